/* SPDX-License-Identifier: Apache-2.0 */
/* A plan gives what ranks hold alike the same place whatever each has learnt, what is small lies together, and the order of copying is by
 * class. Images that are filled by it hold what the device has, and nothing else. */
#include "config.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>

#include "runtime/base/block_digest.h"
#include "runtime/capture/pieces.h"
#include "runtime/capture/plan.h"
#include "tests/unit/store_tap.h"

enum { BLOCKS = 60, RANKS = 4, FILLINGS = 40, ROOM = 40 << 20 };

static struct { char text[1]; } err;

static uint32_t drawn(void)
{
	static uint64_t state = 7;

	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(state >> 33);
}

/* A variable, and the blocks of a trainer in order of allocation: the small ones are everywhere among the large. */
static uint64_t block_bytes(uint32_t i)
{
	static const uint64_t some[] = {68, 17230848, 4, 16384, 4 << 20, 3072, 64, 1 << 20, 256, 12288};

	return i == 0 ? 8 : some[i % (sizeof some / sizeof *some)];
}

static const enum tpck_class classes[] = {TPCK_CLASS_UNKNOWN, TPCK_CLASS_CONSTANT, TPCK_CLASS_OPTIMIZER, TPCK_CLASS_EARLY};

static struct tpck_plan *plan_of(uint32_t rows, uint64_t (*bytes)(uint32_t), bool learnt)
{
	struct tpck_plan *plan = tpck_plan_new(rows);

	if (!plan)
		exit(1);
	plan->rows = rows;
	for (uint32_t i = 0; i < rows; i++) {
		plan->row[i].bytes = bytes(i);
		plan->row[i].order = i;
		plan->row[i].class_ = learnt ? classes[drawn() % 4] : TPCK_CLASS_UNKNOWN;
	}
	tpck_plan_place(plan);
	return plan;
}

/* ---- where it lies ---------------------------------------------------------------------------------- */

static bool same_place(const struct tpck_plan *a, const struct tpck_plan *b, uint32_t rows)
{
	bool same = true;

	for (uint32_t i = 0; i < rows; i++)
		same = same && a->row[i].data_offset == b->row[i].data_offset;
	return same;
}

/* No two rows share a byte, and all of it lies in the data area. */
static bool apart(const struct tpck_plan *plan)
{
	bool good = true;

	for (uint32_t i = 0; i < plan->rows; i++) {
		const struct tpck_image_row *row = &plan->row[i];

		good = good && row->data_offset % TPCK_PLAN_ALIGN == 0 && row->data_offset + row->bytes <= plan->data_bytes;
		for (uint32_t k = 0; k < i; k++)
			good = good && (row->data_offset + row->bytes <= plan->row[k].data_offset ||
					plan->row[k].data_offset + plan->row[k].bytes <= row->data_offset);
	}
	return good;
}

/* Chunks in which there is some of a block of less than `limit` bytes. */
static uint32_t chunks_with_small(const struct tpck_plan *plan, uint64_t limit)
{
	uint32_t chunks = (uint32_t)(plan->data_bytes / TPCK_CHUNK_BYTES) + 1, found = 0;

	for (uint32_t c = 0; c < chunks; c++) {
		bool has = false;

		for (uint32_t i = 0; i < plan->rows; i++) {
			const struct tpck_image_row *row = &plan->row[i];

			has = has || (row->bytes < limit && row->data_offset / TPCK_CHUNK_BYTES <= c &&
				      (row->data_offset + row->bytes - 1) / TPCK_CHUNK_BYTES >= c);
		}
		found += has;
	}
	return found;
}

static void places(void)
{
	struct tpck_plan *rank[RANKS], *more;
	bool same = true, good = true, whole = true;
	uint32_t spoilt = 0;

	for (int r = 0; r < RANKS; r++) {
		rank[r] = plan_of(BLOCKS, block_bytes, r > 0);
		same = same && same_place(rank[0], rank[r], BLOCKS) && rank[0]->data_bytes == rank[r]->data_bytes;
		good = good && apart(rank[r]);
		for (uint32_t i = 0; i < BLOCKS; i++)
			whole = whole && (rank[r]->row[i].bytes % TPCK_CHUNK_BYTES || rank[r]->row[i].data_offset % TPCK_CHUNK_BYTES == 0);
		spoilt = chunks_with_small(rank[r], 64 << 10) > spoilt ? chunks_with_small(rank[r], 64 << 10) : spoilt;
	}
	ok(same, "ranks that have learnt different things have their blocks at the same places");
	ok(good, "each block has a place of its own");
	ok(whole, "and of whole chunks, chunks of its own");
	printf("# small blocks are in %u of %u chunks\n", spoilt, (uint32_t)(rank[0]->data_bytes / TPCK_CHUNK_BYTES) + 1);
	ok(spoilt <= 2, "blocks of which many go into a chunk are in one, or in two where they lie across its end");
	more = plan_of(BLOCKS + 3, block_bytes, true);
	for (uint32_t i = BLOCKS; i < BLOCKS + 3; i++)
		more->row[i].bytes = 100 * i;
	tpck_plan_place(more);
	ok(same_place(rank[0], more, BLOCKS), "small blocks that come move none that were there");
	more->row[1].class_ = TPCK_CLASS_DEAD;
	tpck_plan_place(more);
	ok(more->row[1].data_offset == UINT64_MAX && more->turn_count == BLOCKS + 2, "a dead block has no place and no turn");
	for (int r = 0; r < RANKS; r++)
		tpck_plan_free(rank[r]);
	tpck_plan_free(more);
}

/* ---- the order of copying --------------------------------------------------------------------------- */

static int part_of(uint32_t class_)
{
	return class_ == TPCK_CLASS_CONSTANT ? 2 : class_ == TPCK_CLASS_OPTIMIZER;
}

static void turns(void)
{
	struct tpck_plan *plan = plan_of(BLOCKS, block_bytes, true);
	uint64_t from = 0, end[3] = {0};
	bool good = plan->turn_count == BLOCKS, seen[BLOCKS] = {0};
	int part = 0;

	for (uint32_t i = 0; i < plan->turn_count; i++) {
		const struct tpck_turn *turn = &plan->turn[i];
		int now = part_of(plan->row[turn->row].class_);

		good = good && now >= part && !seen[turn->row] && turn->from == from;
		seen[turn->row] = true;
		part = now;
		from += tpck_plan_room(&plan->row[turn->row]);
		for (int k = now; k < 3; k++)
			end[k] = from;
	}
	ok(good, "each block has one turn: what changes early, what the optimizer changes, what does not change");
	ok(plan->early_bytes == end[0] && plan->lazy_bytes == end[1] && plan->data_bytes == end[2], "and it is known where these end");
	tpck_plan_free(plan);
}

/* ---- copies ------------------------------------------------------------------------------------------ */

static char *memory; /* the device's; addresses count from 1, as there is no block at 0 */
static const char *data; /* of the image that is filled */
static unsigned straddled; /* copies that touch two registrations of it */
static unsigned copied; /* copies of all */

static int copy(void *host, uint64_t address, size_t bytes, tpck_stream_handle stream)
{
	uint64_t at = (uint64_t)((const char *)host - data);

	(void)stream;
	copied++;
	straddled += at / TPCK_REGISTER_BYTES != (at + bytes - 1) / TPCK_REGISTER_BYTES;
	memcpy(host, memory + address, bytes);
	return 0;
}

static int done(void *of)
{
	(void)of;
	return 0;
}

static const struct tpck_device device = {
	.stream_synchronize = done, .copy_from_device = copy,
};

static uint64_t device_bytes(uint32_t i)
{
	return i % 7 == 2 ? 5 << 20 : 1 + drawn() % (i % 3 ? 3000 : 300000);
}

static void change(const struct tpck_plan *plan, uint32_t row)
{
	for (uint64_t i = 0; i < plan->row[row].bytes; i++)
		memory[plan->row[row].address + i] = (char)drawn();
}

/* Whether an image has the rows of these parts, up to `last`, as the device has them. */
static bool has(const struct tpck_plan *plan, const struct tpck_staging *staging, int first, int last)
{
	bool same = true;

	for (uint32_t i = 0; i < plan->rows; i++) {
		const struct tpck_image_row *row = &plan->row[i];

		if (part_of(row->class_) >= first && part_of(row->class_) <= last)
			same = same && memcmp(tpck_staging_data(staging) + row->data_offset, memory + row->address, row->bytes) == 0;
	}
	return same;
}

static bool zero_between(const struct tpck_plan *plan, const struct tpck_staging *staging)
{
	bool zero = true;

	for (uint32_t i = 0; i < plan->rows; i++)
		for (uint64_t at = plan->row[i].bytes; at < tpck_plan_room(&plan->row[i]); at++)
			zero = zero && tpck_staging_data(staging)[plan->row[i].data_offset + at] == 0;
	return zero;
}

static bool ready(const struct tpck_plan *plan, const struct tpck_staging *staging)
{
	uint64_t bytes = 0;
	bool all = true;

	for (uint32_t c = 0; bytes < plan->data_bytes && all; c++) {
		all = atomic_load(&tpck_staging_chunk(staging, c)->ready) == 1;
		bytes += tpck_staging_chunk(staging, c)->bytes;
	}
	return all && bytes == plan->data_bytes;
}

/* Two fillings of one image by a plan. In the second, of the constant rows one at most has changed, as its digest shows. Whether what is
 * to be there after each part is. */
static bool filled(struct tpck_plan *plan, struct tpck_staging *staging)
{
	uint64_t digests[30];
	bool good = true;

	for (int filling = 0; filling < 2; filling++) {
		struct tpck_pieces p = {.plan = plan, .staging = staging};
		uint32_t changed = drawn() % plan->rows;

		for (uint32_t i = 0; i < plan->rows; i++)
			if (part_of(plan->row[i].class_) < 2 || filling == 0 || i == changed) {
				change(plan, i);
				digests[i] = tpck_block_digest(memory + plan->row[i].address, plan->row[i].bytes);
			}
		good = good && tpck_pieces_knows(&p) == (filling == 1) && !tpck_pieces_copy(&p, filling ? plan->early_bytes : plan->data_bytes) && has(plan, staging, 0, filling ? 0 : 2);
		good = good && !tpck_pieces_copy(&p, plan->lazy_bytes) && has(plan, staging, 0, 1);
		tpck_pieces_gaps(&p);
		good = good && !tpck_pieces_constants(&p, digests, 1, NULL) && has(plan, staging, 0, 2);
		tpck_pieces_ready(&p);
		good = good && zero_between(plan, staging) && ready(plan, staging);
	}
	return good;
}

/* Blocks that lie across where registrations of the image end. */
static uint64_t large_bytes(uint32_t i)
{
	return i == 0 ? 1000 : i == 1 ? (37 << 20) + 1000 : i == 2 ? 33 << 20 : (61 << 20) + 3;
}

static void borders(void)
{
	enum { LARGE = 136 << 20 };
	struct tpck_staging staging = {.data_bytes = LARGE};
	struct tpck_plan *plan = plan_of(4, large_bytes, true);
	uint64_t at = 1;

	memory = calloc(1, LARGE);
	staging.header = mmap(NULL, TPCK_IMAGE_DATA_AT + LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (!memory || staging.header == MAP_FAILED)
		exit(1);
	data = tpck_staging_data(&staging);
	for (uint32_t k = 0; k < plan->rows; k++) {
		plan->row[k].address = at;
		plan->row[k].class_ = k == 2 ? TPCK_CLASS_CONSTANT : TPCK_CLASS_EARLY;
		at += plan->row[k].bytes;
	}
	tpck_plan_place(plan);
	straddled = 0;
	ok(at <= LARGE && filled(plan, &staging) && straddled == 0, "no copy touches two registrations of the image");
	munmap(staging.header, TPCK_IMAGE_DATA_AT + LARGE);
	free(memory);
	free(staging.constants);
	tpck_plan_free(plan);
}

/* A row that was held to be constant has changed by the step's digest, and changes again before it is copied. */
static void stale(struct tpck_staging *staging)
{
	struct tpck_plan *plan = plan_of(4, device_bytes, true);
	uint64_t digests[4], at = 1;
	struct tpck_pieces p = {.plan = plan, .staging = staging};
	int result = 0;

	for (uint32_t k = 0; k < plan->rows; k++) {
		plan->row[k].address = at;
		plan->row[k].class_ = TPCK_CLASS_CONSTANT;
		at += plan->row[k].bytes;
	}
	tpck_plan_place(plan);
	for (int filling = 0; filling < 2; filling++) {
		p = (struct tpck_pieces){.plan = plan, .staging = staging};
		change(plan, 2);
		for (uint32_t k = 0; k < plan->rows; k++)
			digests[k] = tpck_block_digest(memory + plan->row[k].address, plan->row[k].bytes);
		if (filling)
			change(plan, 2);
		result = tpck_pieces_copy(&p, filling ? plan->lazy_bytes : plan->data_bytes);
		if (!result)
			result = tpck_pieces_constants(&p, digests, 1, NULL);
		if (!filling && result)
			break;
	}
	ok(result == -ESTALE, "a row that changes once more before it is copied costs the snapshot");
	tpck_plan_free(plan);
}

static uint64_t tensor_bytes(uint32_t i)
{
	return 1000 + 4 * (i % 3);
}

/* How many copies so many small blocks are that lie side by side on the device. */
static unsigned copies_of(struct tpck_staging *staging, enum tpck_memory_kind kind, uint32_t devices)
{
	enum { TENSORS = 8192 };
	struct tpck_plan *plan = plan_of(TENSORS, tensor_bytes, true);
	struct tpck_pieces p = {.plan = plan, .staging = staging};
	uint64_t at = TPCK_PLAN_ALIGN;
	bool good;

	for (uint32_t k = 0; k < plan->rows; k++) {
		plan->row[k].address = at;
		plan->row[k].class_ = TPCK_CLASS_EARLY;
		plan->row[k].kind = kind;
		plan->row[k].device = k % devices;
		at += tpck_plan_room(&plan->row[k]);
	}
	tpck_plan_place(plan);
	copied = 0;
	good = !tpck_pieces_copy(&p, plan->data_bytes) && has(plan, staging, 0, 2);
	tpck_pieces_gaps(&p);
	good = good && zero_between(plan, staging);
	tpck_plan_free(plan);
	return good ? copied : 0;
}

static void together(struct tpck_staging *staging)
{
	unsigned arena = copies_of(staging, TPCK_MEMORY_ARENA, 1), variables = copies_of(staging, TPCK_MEMORY_MODULE_VARIABLE, 1),
		 apart = copies_of(staging, TPCK_MEMORY_ARENA, 2);

	ok(arena > 0 && arena <= 300, "8,192 blocks of the arena side by side are one copy a piece");
	ok(variables >= 8192 && apart >= 8192, "variables of modules, and blocks of several devices, are a copy each");
}

static void copies(void)
{
	struct tpck_staging staging = {.data_bytes = ROOM};
	bool good = true;

	memory = malloc(ROOM);
	if (memory)
		memset(memory, 0x77, ROOM);
	staging.header = mmap(NULL, TPCK_IMAGE_DATA_AT + ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (!memory || staging.header == MAP_FAILED)
		exit(1);
	tpck_pieces_open(&device);
	data = tpck_staging_data(&staging);
	memset(tpck_staging_data(&staging), 0x55, ROOM); /* what earlier fillings left */
	for (int i = 0; i < FILLINGS && good; i++) {
		struct tpck_plan *plan = plan_of(30, device_bytes, true);
		uint64_t at = 1;

		for (uint32_t k = 0; k < plan->rows; k++) {
			plan->row[k].address = at;
			at += i % 2 ? tpck_plan_room(&plan->row[k]) : plan->row[k].bytes;
		}
		good = at <= ROOM && plan->data_bytes <= ROOM && filled(plan, &staging);
		tpck_plan_free(plan);
	}
	ok(good, "each part is in an image in its time, changed constants too, with zeros between the blocks whatever was there before");
	stale(&staging);
	together(&staging);
	free(staging.constants);
}

int main(void)
{
	places();
	turns();
	copies();
	borders();
	return tap_done();
}
