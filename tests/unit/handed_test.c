/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of blocks that an allocator of the program's hands out: what is known of them, and which rows of an image they make. */
#include "config.h"

#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/engine/partial_blocks.h"
#include "runtime/track/handed.h"
#include "tests/unit/store_tap.h"

#define MIB (1ull << 20)
#define BASE 0x4a0000000000ull

static struct tpck_error err;

static int reserve(int device, uint64_t at, uint64_t bytes)
{
	(void)device;
	(void)at;
	(void)bytes;
	return 0;
}

static int back(int device, uint64_t address, uint64_t bytes)
{
	return reserve(device, address, bytes);
}

static const struct tpck_device device = {.reserve = reserve, .back = back, .unback = back, .granule = 2 << 20};
static struct tpck_arena *arena;
static struct tpck_image_row row[64];

static uint64_t allocate(uint64_t bytes)
{
	uint64_t address = 0;
	uint32_t unused;

	return tpck_arena_allocate(arena, bytes, TPCK_STREAM_NONE, &address, &unused) ? 0 : address;
}

static void out(uint64_t address, uint64_t bytes)
{
	tpck_handed_out(address, bytes, tpck_arena_orders(arena));
}

/* Rows of the block at an address, as "+first-last" in MiB for what is needed and "-..." for what is dead, at a step. */
static const char *rows(uint64_t address, uint64_t step)
{
	static char text[400];
	uint32_t count;
	size_t at = 0;

	(void)tpck_parts_begin(arena, step);
	for (const struct tpck_block *block = tpck_arena_first(arena); block; block = block->next)
		if (block->address != address)
			(void)tpck_parts_rows(block, row);
	count = tpck_parts_rows(tpck_arena_find(arena, address), row);
	tpck_parts_end();
	for (uint32_t i = 0; i < count; i++)
		at += (size_t)snprintf(text + at, sizeof text - at, "%c%llu-%llu ", row[i].class_ == TPCK_CLASS_DEAD ? '-' : '+',
				       (unsigned long long)((row[i].address - address) / MIB), (unsigned long long)((row[i].address + row[i].bytes - address) / MIB));
	return text;
}

static bool is(const char *got, const char *wanted)
{
	if (!strcmp(got, wanted))
		return true;
	printf("# got %s wanted %s\n", got, wanted);
	return false;
}

int main(void)
{
	uint64_t whole, block, other, large;
	struct tpck_handed *found;
	bool there = false;

	if (tpck_arena_open(&arena, &device, 0, BASE, 1024 * MIB))
		return 1;
	whole = allocate(20 * MIB);
	ok(!tpck_handed_look_at_out(), "nothing is known to be out");
	ok(!tpck_handed_digest() && tpck_parts_hold(arena, 1) && is(rows(whole, 1), "+0-20 "), "without word of an allocator's a block is needed whole");
	block = allocate(40 * MIB);
	out(block + 4 * MIB, 2 * MIB);
	out(block + 6 * MIB, MIB / 2);
	out(block + 30 * MIB, 2 * MIB);
	ok(!tpck_parts_hold(arena, 1), "once there is word the plan is made anew");
	ok(is(rows(block, 1), "-0-4 +4-6 -6-30 +30-32 -32-40 ") && row[1].bytes == 2 * MIB + MIB / 2, "what is handed out is needed, and the rest is not");
	ok(row[0].order == row[4].order && row[4].address + row[4].bytes == block + 40 * MIB && row[3].address == block + 30 * MIB, "the rows are the whole block");
	ok(is(rows(whole, 1), "+0-20 "), "another block stays whole");
	ok(tpck_parts_hold(arena, 2), "nothing has changed");
	tpck_handed_back(block + 30 * MIB);
	ok(tpck_parts_hold(arena, 3), "a plan holds less, too");
	out(block + 30 * MIB, MIB);
	ok(tpck_parts_hold(arena, 3), "and a part of a part");
	out(block + 8 * MIB, MIB / 4);
	ok(!tpck_parts_hold(arena, 3), "what lies elsewhere is not in it");
	tpck_handed_back(block + 8 * MIB);
	out(block + 31 * MIB + MIB / 2, MIB);
	ok(!tpck_parts_hold(arena, 3) && is(rows(block, 3), "-0-4 +4-6 -6-30 +30-32 -32-40 ") && row[3].bytes == 2 * MIB + MIB / 2, "what reaches further is not in it");
	tpck_handed_back(block + 30 * MIB);
	tpck_handed_back(block + 31 * MIB + MIB / 2);
	tpck_handed_back(block + 4 * MIB);
	tpck_handed_back(block + 6 * MIB);
	ok(is(rows(block, 4), "-0-4 +4-6 -6-30 +30-32 -32-40 "), "what was needed before stays");
	other = allocate(200 * MIB);
	out(other, 200 * MIB);
	(void)rows(other, 5);
	tpck_handed_back(other);
	ok(tpck_parts_hold(arena, 5 + 32) && !tpck_parts_hold(arena, 5 + 128) && is(rows(other, 5 + 128), "-0-200 ") && is(rows(block, 5 + 128), "-0-40 "), "but not for ever");
	/* The address is another block's now, whose user says nothing. */
	(void)tpck_arena_free(arena, block, TPCK_STREAM_NONE);
	ok(allocate(40 * MIB) == block && is(rows(block, 170), "+0-40 "), "who comes after it is not known to hand out parts");
	out(block + MIB, 2 * MIB);
	tpck_handed_back(block + MIB);
	ok(is(rows(block, 171), "-0-40 "), "one of which all came back is not needed");
	out(block, MIB / 4);
	out(block + MIB, MIB);
	ok(is(rows(block, 172), "+0-2 -2-40 "), "a small gap is copied");
	out(block + MIB / 2, MIB / 4);
	ok(tpck_parts_hold(arena, 172), "and what is handed out there is in the plan");
	tpck_handed_back(block);
	tpck_handed_back(block + MIB / 2);
	tpck_handed_back(block + MIB);
	large = allocate(400 * MIB);
	out(large, MIB);
	out(large + 3 * MIB, MIB);
	ok(is(rows(large, 172), "+0-1 -1-3 +3-4 -4-400 "), "one of two MiB is not, in a large block neither");
	out(large + 100 * MIB, 2 * MIB);
	out(large + 102 * MIB, 3 * MIB);
	out(large + 105 * MIB, MIB / 2);
	out(large + 106 * MIB, 2 * MIB);
	ok(is(rows(large, 172), "+0-1 -1-3 +3-4 -4-100 +100-102 +102-105 +105-108 -108-400 "), "parts that lie side by side are rows of their own, unless they are small");
	tpck_handed_back(large + 100 * MIB);
	tpck_handed_back(large + 102 * MIB);
	out(large + 101 * MIB, 3 * MIB);
	ok(tpck_parts_hold(arena, 172), "what reaches over two of them is in the plan");
	out(large + 107 * MIB, 2 * MIB);
	ok(!tpck_parts_hold(arena, 172), "and what reaches further is not");
	tpck_handed_back(large + 107 * MIB);
	for (uint64_t i = 0; i < 20000; i++)
		out(other + i * 4096, 4096);
	for (uint64_t i = 0; i < 20000; i += 2)
		tpck_handed_back(other + i * 4096);
	ok(is(rows(other, 172), "+0-78 -78-200 "), "gaps that are small are copied: rows stay few");
	ok(is(rows(large, 172), "+0-4 -4-100 +100-108 -108-400 "), "and where parts are many so is one of two MiB in a large block");
	tpck_handed_distrust();
	ok(!tpck_handed_digest() && !tpck_parts_hold(arena, 173) && is(rows(block, 173), "+0-40 ") && tpck_parts_hold(arena, 174), "once a graph is there all is needed");
	out(block, MIB);
	ok(tpck_parts_hold(arena, 175) && is(rows(block, 175), "+0-40 "), "and stays so");
	found = tpck_handed_look_at_out();
	for (uint32_t i = 0; found && i < found->out_count; i++)
		there = there || (found->out[i].begin == block && found->out[i].end == block + MIB);
	ok(there && found->out_count > 10000, "what is out is known all the same");
	tpck_handed_free(found);
	return tap_done();
}
