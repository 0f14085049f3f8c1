/* SPDX-License-Identifier: Apache-2.0 */
/* The arena over a device that is only a count of granules: addresses, streams, shortage, look-up. */
#include "config.h"

#include <errno.h>
#include <stdint.h>

#include "runtime/track/arena.h"
#include "tests/unit/store_tap.h"

#define BASE 0x4a0000000000ull
enum { GRANULE = 2 << 20, GRANULES = 64, UNIT = 512, UNITS = GRANULES * (GRANULE / UNIT) };

static struct {
	uint64_t backed, limit;      /* granules */
	uint8_t is_backed[GRANULES]; /* the number of its mapping */
	uint8_t mapping;
	int errors;                  /* backed twice, unbacked twice, outside, not whole granules */
	int reserved, unbacked, calls, waits;
} fake;

static int reserve(int device, uint64_t hint, uint64_t bytes)
{
	(void)device;
	(void)bytes;
	fake.reserved++;
	return hint == BASE ? 0 : -EADDRINUSE;
}

static int change(uint64_t address, uint64_t bytes, uint8_t to)
{
	uint64_t first = (address - BASE) / GRANULE, end = (address + bytes - BASE) / GRANULE;

	if (address < BASE || address % GRANULE || bytes % GRANULE || !bytes || end > GRANULES) {
		fake.errors++;
		return -EINVAL;
	}
	for (uint64_t g = first; g < end; g++)
		fake.errors += !fake.is_backed[g] == !to;
	/* A mapping goes as a whole or not at all, as with the driver. */
	if (!to && ((first && fake.is_backed[first - 1] == fake.is_backed[first]) ||
		    (end < GRANULES && fake.is_backed[end] == fake.is_backed[end - 1])))
		return -EINVAL;
	if (to && fake.backed + (end - first) > fake.limit)
		return -ENOMEM;
	if (to)
		to = fake.mapping = fake.mapping % 255 + 1;
	for (uint64_t g = first; g < end; g++)
		fake.is_backed[g] = to;
	fake.backed = to ? fake.backed + (end - first) : fake.backed - (end - first);
	return 0;
}

static int back(int device, uint64_t address, uint64_t bytes)
{
	(void)device;
	fake.calls++;
	return change(address, bytes, 1);
}

static int unback(int device, uint64_t address, uint64_t bytes)
{
	(void)device;
	fake.unbacked++;
	return change(address, bytes, 0);
}

static int synchronize(void)
{
	fake.waits++;
	return 0;
}

static const struct tpck_device device = {.synchronize = synchronize, .reserve = reserve, .back = back, .unback = unback, .granule = GRANULE};

static struct tpck_arena *open_arena(uint64_t limit)
{
	struct tpck_arena *arena = NULL;

	memset(&fake, 0, sizeof fake);
	fake.limit = limit;
	if (tpck_arena_open(&arena, &device, 0, BASE, (uint64_t)GRANULES * GRANULE)) {
		printf("Bail out! no arena\n");
		exit(1);
	}
	return arena;
}

/* Nothing of an arena can be given back but its blocks; the process ends soon enough. */
static void drop(struct tpck_arena *arena)
{
	tpck_arena_reset(arena);
	free(arena);
}

#define is_true(good) tap_ok(good, #good, "")

static uint64_t get(struct tpck_arena *arena, uint64_t bytes, uint32_t stream, uint32_t *wait)
{
	uint64_t address = 0;
	uint32_t unused;

	return tpck_arena_allocate(arena, bytes, stream, &address, wait ? wait : &unused) ? 0 : address;
}

static void test_basics(void)
{
	struct tpck_arena *arena = NULL;
	uint64_t a, b, c, blocks, bytes, backed;

	is_true(tpck_arena_open(&arena, &device, 0, BASE + GRANULE, GRANULE) == -EADDRINUSE && !arena);
	arena = open_arena(GRANULES);
	a = get(arena, 1, 0, NULL);
	b = get(arena, 0, 0, NULL);
	c = get(arena, GRANULE, 0, NULL);
	is_true(a == BASE);
	is_true(b == BASE + UNIT);
	tap_ok(c == BASE + GRANULE, "a block of a granule begins one of its own", "");
	tpck_arena_totals(arena, &blocks, &bytes, &backed);
	is_true(blocks == 3 && bytes == 2 + GRANULE && backed == 2 * GRANULE && fake.backed == 2);
	is_true(tpck_arena_find(arena, a) && tpck_arena_find(arena, a)->bytes == 1);
	tap_ok(!tpck_arena_find(arena, a + 1), "what a block occupies beyond its bytes is not in it", "");
	tap_ok(tpck_arena_find(arena, c + GRANULE - 1) == tpck_arena_find(arena, c), "an address inside", "");
	is_true(!tpck_arena_find(arena, BASE - 1) && !tpck_arena_find(arena, c + GRANULE) && !tpck_arena_find(arena, 0));
	is_true(tpck_arena_contains(arena, BASE) && !tpck_arena_contains(arena, BASE + (uint64_t)GRANULES * GRANULE));
	is_true(tpck_arena_free(arena, c + UNIT, 0) == -ENOENT && tpck_arena_free(arena, BASE - 1, 0) == -ENOENT);
	is_true(tpck_arena_free(arena, c, 0) == 0 && tpck_arena_free(arena, c, 0) == -ENOENT);
	is_true(get(arena, (uint64_t)GRANULES * GRANULE + 1, 0, NULL) == 0);
	is_true(get(arena, UINT64_MAX, 0, NULL) == 0 && get(arena, UINT64_MAX - GRANULE, 0, NULL) == 0);
	is_true(fake.errors == 0);
	drop(arena);
}

static void test_coalescing(void)
{
	static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
	bool good = true;

	for (int o = 0; o < 6; o++) {
		struct tpck_arena *arena = open_arena(GRANULES);
		uint64_t at[3], first;

		for (int i = 0; i < 3; i++)
			at[i] = get(arena, GRANULE, 7, NULL);
		get(arena, GRANULE, 7, NULL); /* keeps the end from growing over them */
		first = at[0];
		for (int i = 0; i < 3; i++)
			good &= tpck_arena_free(arena, at[orders[o][i]], 7) == 0;
		good &= get(arena, 3 * GRANULE, 7, NULL) == first;
		good &= fake.errors == 0 && fake.calls == 4;
		drop(arena);
	}
	tap_ok(good, "three neighbours freed in any order are one again, and stay backed", "");
}

static void test_streams(void)
{
	struct tpck_arena *arena = open_arena(GRANULES);
	uint64_t a = get(arena, GRANULE, 5, NULL), b, c;
	uint32_t wait = 99;

	tpck_arena_free(arena, a, 5);
	b = get(arena, GRANULE, 5, &wait);
	tap_ok(b == a && wait == TPCK_STREAM_NONE, "freed on a stream, on it at once", "");
	tpck_arena_free(arena, b, 5);
	c = get(arena, GRANULE, 6, &wait);
	tap_ok(c != a && wait == TPCK_STREAM_NONE, "another stream rather takes fresh memory", "");
	drop(arena);

	arena = open_arena(GRANULES);
	c = get(arena, GRANULE, 5, NULL);
	tpck_arena_free(arena, c, TPCK_STREAM_NONE);
	b = get(arena, GRANULE, 8, &wait);
	tap_ok(b == c && wait == TPCK_STREAM_NONE, "freed when all is done, to anybody at once", "");
	drop(arena);

	arena = open_arena(GRANULES);
	a = get(arena, (uint64_t)GRANULES * GRANULE, 5, NULL);
	tpck_arena_free(arena, a, 5);
	b = get(arena, GRANULE, 6, &wait);
	tap_ok(b == a && wait == 5, "with no other memory behind a wait on the stream of the free", "");
	c = get(arena, GRANULE, TPCK_STREAM_NONE, &wait);
	tap_ok(c && wait == 5, "so too for use from anywhere", "");
	tpck_arena_free(arena, b, 6);
	tpck_arena_free(arena, c, 7);
	wait = 0;
	b = get(arena, 3 * GRANULE, 6, &wait);
	tap_ok(b == a && wait == TPCK_STREAM_MANY, "pieces freed on several streams wait for all of them", "");
	is_true(fake.errors == 0);
	drop(arena);
}

/* As cudaMalloc and cudaFree beside cudaMallocAsync and cudaFreeAsync in a loop. */
static void test_pairs(void)
{
	struct tpck_arena *arena = open_arena(GRANULES);
	uint64_t highest = 0, at, other = get(arena, 4096, 5, NULL);
	bool waits = false;

	for (int i = 0; i < 200; i++) {
		uint64_t before = tpck_arena_calls(arena);
		uint32_t wait = 0;

		at = get(arena, 4096, TPCK_STREAM_NONE, &wait);
		highest = at > highest ? at : highest;
		waits |= wait != TPCK_STREAM_NONE;
		tpck_arena_done(arena, before);
		tpck_arena_free(arena, at, TPCK_STREAM_NONE);
		at = get(arena, 4096, 5, &wait);
		highest = at > highest ? at : highest;
		waits |= wait != TPCK_STREAM_NONE;
		tpck_arena_free(arena, at, 5);
	}
	tap_ok(highest && highest < BASE + GRANULE && fake.calls == 1, "blocks that come and go take no more and more memory", "");
	is_true(!waits && other && fake.unbacked == 0 && fake.errors == 0);
	drop(arena);
}

static void test_done(void)
{
	struct tpck_arena *arena = open_arena(GRANULES);
	uint64_t a = get(arena, GRANULE, 5, NULL), between = get(arena, GRANULE, 5, NULL), b = get(arena, GRANULE, 5, NULL);
	uint64_t call;
	uint32_t wait;

	tpck_arena_free(arena, a, 5);
	call = tpck_arena_calls(arena);
	tpck_arena_free(arena, b, 5);
	is_true(tpck_arena_calls(arena) == call + 1);
	tpck_arena_done(arena, call);
	tap_ok(get(arena, GRANULE, 6, &wait) == a && wait == TPCK_STREAM_NONE, "what is done is anybody's at once", "");
	tap_ok(get(arena, GRANULE, 6, &wait) == b + GRANULE, "what was freed later is not", "");
	tpck_arena_free(arena, a, TPCK_STREAM_NONE);
	tpck_arena_free(arena, between, 6);
	is_true(get(arena, 2 * GRANULE, 6, &wait) != a);
	tpck_arena_done(arena, tpck_arena_calls(arena));
	tap_ok(get(arena, 3 * GRANULE, 7, &wait) == a && wait == TPCK_STREAM_NONE, "neighbours that were left apart are one", "");
	is_true(fake.errors == 0);
	drop(arena);
}

static void test_idle(void)
{
	struct tpck_arena *arena = open_arena(GRANULES);
	uint64_t big = get(arena, 8 * GRANULE, 1, NULL), small = get(arena, 100, 1, NULL), other;

	is_true(tpck_arena_idle(arena) == 0);
	tpck_arena_free(arena, big, 1);
	tap_ok(tpck_arena_idle(arena) == 8 * GRANULE, "memory of no block is counted", "");
	tpck_arena_trim(arena, 0);
	tap_ok(fake.unbacked == 0, "what a stream may still use is not given back", "");
	other = get(arena, GRANULE, 1, NULL);
	is_true(other == big && tpck_arena_idle(arena) == 0);
	tpck_arena_done(arena, tpck_arena_calls(arena));
	tpck_arena_trim(arena, 0);
	tap_ok(fake.unbacked == 0 && fake.errors == 0, "nor a part of a mapping", "");
	tpck_arena_free(arena, other, TPCK_STREAM_NONE);
	tpck_arena_trim(arena, 7 * GRANULE);
	is_true(fake.unbacked == 1 && fake.backed == 1 && tpck_arena_idle(arena) == 0);
	tap_ok(get(arena, 8 * GRANULE, 1, NULL) == big && fake.backed == 9, "it is mapped again where it was", "");
	tpck_arena_free(arena, big, TPCK_STREAM_NONE);
	tpck_arena_trim(arena, 9 * GRANULE);
	is_true(fake.unbacked == 1 && tpck_arena_idle(arena) == 8 * GRANULE);
	is_true(small && fake.errors == 0);
	/* A mapping whose halves are free, each on another stream. */
	is_true(get(arena, GRANULE, 1, NULL) == big && get(arena, 7 * GRANULE, 1, NULL) == big + GRANULE);
	tpck_arena_free(arena, big, 1);
	tpck_arena_free(arena, big + GRANULE, 2);
	is_true(tpck_arena_idle(arena) == 8 * GRANULE && tpck_arena_give_back(arena) && fake.unbacked == 2 && fake.waits == 1);
	is_true(fake.errors == 0 && tpck_arena_idle(arena) == 0 && !tpck_arena_give_back(arena));
	drop(arena);
}

static void test_shortage(void)
{
	struct tpck_arena *arena = open_arena(4);
	uint64_t at[4], blocks, bytes, backed, big;

	for (int i = 0; i < 4; i++)
		at[i] = get(arena, GRANULE, 1, NULL);
	is_true(at[3] && get(arena, GRANULE, 1, NULL) == 0);
	is_true(get(arena, UNIT, 1, NULL) == 0);
	tpck_arena_free(arena, at[0], 1);
	tpck_arena_free(arena, at[2], 1);
	big = get(arena, 2 * GRANULE, 1, NULL);
	tap_ok(big != 0, "memory backed for freed blocks is given back when another needs it", "");
	tpck_arena_totals(arena, &blocks, &bytes, &backed);
	is_true(blocks == 3 && backed == 4 * GRANULE && fake.backed == 4 && fake.unbacked == 2);
	tap_ok(get(arena, GRANULE, 1, NULL) == 0, "no more than the device has", "");
	tpck_arena_free(arena, big, 1);
	tap_ok(get(arena, GRANULE, 1, NULL) != 0, "and it goes on after a shortage", "");
	is_true(fake.errors == 0);
	drop(arena);
}

static void test_reset(void)
{
	struct tpck_arena *arena = open_arena(GRANULES);
	uint64_t a = get(arena, GRANULE, 1, NULL), version, blocks, bytes, backed;

	get(arena, 100, 1, NULL);
	version = tpck_arena_version(arena);
	tpck_arena_reset(arena);
	memset(fake.is_backed, 0, sizeof fake.is_backed);
	fake.backed = 0;
	tpck_arena_totals(arena, &blocks, &bytes, &backed);
	is_true(!blocks && !bytes && !backed && !tpck_arena_first(arena) && tpck_arena_version(arena) > version);
	is_true(!tpck_arena_find(arena, a));
	tap_ok(get(arena, GRANULE, 1, NULL) == BASE, "after a reset everything begins anew", "");
	is_true(fake.errors == 0);
	drop(arena);
}

/* ---- at random, beside a map of what is in use ---- */

enum { OPERATIONS = 100000, HELD = 600 };
static uint64_t trace[2][OPERATIONS];
static uint8_t used[UNITS];

static uint64_t random_state;

static uint32_t chance(uint32_t below)
{
	random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(random_state >> 33) % below;
}

static bool mark(uint64_t address, uint64_t bytes, uint8_t to)
{
	uint64_t first = (address - BASE) / UNIT, end = (address + bytes + UNIT - 1 - BASE) / UNIT;

	if (address < BASE || address % UNIT || end > UNITS)
		return false;
	for (uint64_t u = first; u < end; u++) {
		if (used[u] == to || !fake.is_backed[u * UNIT / GRANULE])
			return false;
		used[u] = to;
	}
	return true;
}

static uint64_t random_bytes(void)
{
	switch (chance(10)) {
	case 0:
		return (uint64_t)GRANULE * (1 + chance(3)) + chance(GRANULE);
	case 1:
		return GRANULE;
	case 2:
	case 3:
		return chance(GRANULE);
	default:
		return chance(8192);
	}
}

static bool live_list_is_right(const struct tpck_arena *arena, uint64_t count)
{
	uint64_t seen = 0, last = 0;

	for (const struct tpck_block *b = tpck_arena_first(arena); b; b = b->next, seen++) {
		if (!b->live || (seen && b->order <= last))
			return false;
		last = b->order;
	}
	return seen == count;
}

/* The mapping is what the device was given at once, no more and no less. */
static bool mapping_is_right(const struct tpck_arena *arena, uint64_t granule)
{
	uint64_t start, bytes, first = granule, end = granule + 1;

	if (!fake.is_backed[granule])
		return !tpck_arena_mapping(arena, BASE + granule * GRANULE, &start, &bytes);
	while (first && fake.is_backed[first - 1] == fake.is_backed[granule])
		first--;
	while (end < GRANULES && fake.is_backed[end] == fake.is_backed[granule])
		end++;
	return tpck_arena_mapping(arena, BASE + granule * GRANULE + GRANULE - 1, &start, &bytes) &&
	       start == BASE + first * GRANULE && bytes == (end - first) * GRANULE;
}

/* With a limit of granules; the addresses go into `out`. */
static const char *run_at_random(uint64_t limit, uint64_t *out)
{
	static struct {
		uint64_t address, bytes;
	} held[HELD];
	struct tpck_arena *arena = open_arena(limit);
	uint64_t count = 0, total = 0, blocks, bytes, backed, call = 0;
	const char *bad = NULL;

	memset(used, 0, sizeof used);
	random_state = 42;
	for (int i = 0; i < OPERATIONS && !bad; i++) {
		uint32_t stream = chance(4), wait;
		bool allocate = count == 0 || (count < HELD && chance(100) < 52);
		uint64_t bytes_asked = random_bytes(), pick = chance(HELD), address = 0;

		if (allocate) {
			if (tpck_arena_allocate(arena, bytes_asked, stream, &address, &wait) == 0) {
				bytes_asked += !bytes_asked;
				if (!mark(address, bytes_asked, 1))
					bad = "a block overlaps another or is not backed";
				if (wait != TPCK_STREAM_NONE && wait == stream)
					bad = "a stream waits for itself";
				if (bytes_asked >= GRANULE && address % GRANULE)
					bad = "a large block does not begin a granule";
				held[count].address = address;
				held[count++].bytes = bytes_asked;
				total += bytes_asked;
			}
		} else {
			pick %= count;
			address = held[pick].address;
			if (!mark(address, held[pick].bytes, 0) || tpck_arena_free(arena, address, stream))
				bad = "a block is not where it was";
			total -= held[pick].bytes;
			held[pick] = held[--count];
		}
		out[i] = address;
		switch (chance(50)) {
		case 0:
			call = tpck_arena_calls(arena);
			break;
		case 1:
			tpck_arena_done(arena, call);
			tpck_arena_trim(arena, 4 * GRANULE);
		}
		if (i % 64 == 0 && count) {
			uint64_t at = held[pick % count].address, inside = chance((uint32_t)held[pick % count].bytes);
			const struct tpck_block *found = tpck_arena_find(arena, at + inside);

			if (!found || found->address != at || found->bytes != held[pick % count].bytes)
				bad = "an address inside a block is not found";
		}
		if (i % 16 == 0 && !mapping_is_right(arena, chance(GRANULES)))
			bad = "a mapping is not what the device was given";
		if (allocate && address && tpck_arena_find(arena, address)->ordered != (stream != TPCK_STREAM_NONE))
			bad = "a block of a stream's is not told from others";
		if (i % 1024 == 0 && !live_list_is_right(arena, count))
			bad = "the live blocks are not in order of allocation";
	}
	tpck_arena_totals(arena, &blocks, &bytes, &backed);
	if (!bad && (blocks != count || bytes != total || backed != fake.backed * GRANULE))
		bad = "the totals are wrong";
	if (!bad && fake.errors)
		bad = "the device was asked for nonsense";
	/* What is freed all at once is one block again. */
	while (count)
		tpck_arena_free(arena, held[--count].address, TPCK_STREAM_NONE);
	if (!bad && limit == GRANULES && get(arena, GRANULE, 0, NULL) == 0)
		bad = "freed memory is lost";
	drop(arena);
	return bad;
}

int main(void)
{
	const char *bad;

	test_basics();
	test_coalescing();
	test_streams();
	test_pairs();
	test_done();
	test_idle();
	test_shortage();
	test_reset();
	bad = run_at_random(GRANULES, trace[0]);
	tap_ok(!bad, "100000 operations: nothing overlaps, all is found", bad);
	bad = run_at_random(GRANULES, trace[1]);
	tap_ok(!bad && memcmp(trace[0], trace[1], sizeof trace[0]) == 0, "the same order gives the same addresses", bad);
	bad = run_at_random(24, trace[1]);
	tap_ok(!bad, "100000 operations with too little memory", bad);
	return tap_done();
}
