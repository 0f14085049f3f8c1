/* SPDX-License-Identifier: Apache-2.0 */
/* What all ranks of a job can go on from, out of what its nodes have. */
#include "config.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/peer/consensus.h"
#include "tests/unit/store_tap.h"

enum { HELD = TPCK_HOLDING_HELD, COMMITTED = TPCK_HOLDING_COMMITTED, COPY = TPCK_HOLDING_COPY };
enum { ROWS = 400, WORLD_MANY = 10000 };
#define ANY UINT64_MAX

static struct tpck_evidence rows[ROWS];
static size_t count;

static void add(uint64_t generation, uint64_t step, uint32_t rank, uint32_t kind, uint32_t node)
{
	rows[count++] = (struct tpck_evidence){.point = {generation, step}, .rank = rank, .kind = kind, .node = node};
}

static void add_fragment(uint64_t generation, uint64_t step, uint32_t rank, unsigned data, unsigned parity, unsigned index, uint32_t node)
{
	rows[count++] = (struct tpck_evidence){.point = {generation, step}, .rank = rank, .kind = TPCK_HOLDING_FRAGMENT, .node = node,
					       .data = (uint8_t)data, .parity = (uint8_t)parity, .index = (uint8_t)index};
}

/* All of `world` ranks have it on nodes of their own. */
static void add_all(uint64_t generation, uint64_t step, uint32_t world, uint32_t kind)
{
	for (uint32_t r = 0; r < world; r++)
		add(generation, step, r, kind, r);
}

/* Whether the consensus is this point; generation 0: none. */
static bool is(uint32_t world, uint64_t only, uint64_t generation, uint64_t step)
{
	struct tpck_point newest = {0};
	bool found = tpck_consensus(rows, count, NULL, 0, world, only, &newest);

	if (!generation)
		return !found;
	return found && newest.generation == generation && newest.step == step;
}

static bool is_stored(uint32_t world, uint64_t only, const struct tpck_point *stored, size_t stored_count, uint64_t generation, uint64_t step)
{
	struct tpck_point newest = {0};
	bool found = tpck_consensus(rows, count, stored, stored_count, world, only, &newest);

	if (!generation)
		return !found;
	return found && newest.generation == generation && newest.step == step;
}

static void whole(void)
{
	count = 0;
	tap_ok(is(1, ANY, 0, 0), "nothing gives nothing", NULL);
	add_all(3, 20, 4, COMMITTED);
	add_all(3, 40, 4, COMMITTED);
	add_all(2, 90, 4, COMMITTED);
	tap_ok(is(4, ANY, 3, 40), "the newest that all ranks have, whatever earlier generations reached", NULL);
	tap_ok(is(4, 20, 3, 20) && is(4, 90, 2, 90) && is(4, 30, 0, 0), "a step that is wanted, or none", NULL);
	tap_ok(is(5, ANY, 0, 0), "not with ranks that nobody has anything of", NULL);
	add(3, 60, 0, COMMITTED, 0);
	add(3, 60, 1, COPY, 3);
	add(3, 60, 3, COMMITTED, 3);
	add(3, 60, 3, COPY, 2);
	tap_ok(is(4, ANY, 3, 40), "one rank's part is missing, and another's there twice: an older one", NULL);
	add(3, 60, 2, COPY, 0);
	tap_ok(is(4, ANY, 3, 60), "copies are as good", NULL);
	/* Of the same step of another generation nothing is taken. */
	count = 0;
	add(3, 60, 0, COMMITTED, 0);
	add(4, 60, 1, COMMITTED, 1);
	tap_ok(is(2, ANY, 0, 0), "parts of two generations are nothing", NULL);
}

static void held(void)
{
	count = 0;
	add_all(3, 20, 3, COMMITTED);
	add_all(3, 40, 3, HELD);
	tap_ok(is(3, ANY, 3, 20), "what all only hold was not agreed on", NULL);
	/* The rows have been sorted. */
	rows[0].kind = COMMITTED;
	tap_ok(is(3, ANY, 3, 40), "one has committed it: all agreed", NULL);
	rows[0].kind = HELD;
	add(3, 40, 1, COPY, 7);
	tap_ok(is(3, ANY, 3, 40), "and copies are made of what was committed", NULL);
	count = 0;
	add_all(3, 40, 2, HELD);
	add(3, 40, 0, COMMITTED, 5);
	for (size_t i = 0; i < count; i++)
		rows[i].bad = rows[i].kind == COMMITTED;
	tap_ok(is(2, ANY, 3, 40), "an image that is bad tells all the same that it was committed", NULL);
}

static void bad(void)
{
	struct tpck_evidence *from;
	struct tpck_point at = {3, 40};

	count = 0;
	add_all(3, 20, 3, COMMITTED);
	add_all(3, 40, 3, COMMITTED);
	add(3, 40, 1, COPY, 2);
	add(3, 40, 1, COPY, 0);
	for (int left = 3; left; left--) {
		tap_ok(is(3, ANY, 3, 40), "another place has a good one", NULL);
		from = tpck_consensus_source(rows, count, &at, 1, 1);
		if (from)
			from->bad = true;
	}
	tap_ok(is(3, ANY, 3, 20) && !tpck_consensus_source(rows, count, &at, 1, 1), "none is left: an older step", NULL);
}

static void sources(void)
{
	struct tpck_point at = {3, 40}, no = {3, 41};
	struct tpck_evidence *from;

	count = 0;
	add(3, 40, 0, COPY, 1);
	add(3, 40, 0, HELD, 4);
	add(3, 40, 0, COPY, 2);
	add(3, 40, 0, COMMITTED, 5);
	add(3, 40, 1, COPY, 5);
	add(3, 20, 0, COMMITTED, 9);
	(void)is(2, ANY, 3, 40);
	from = tpck_consensus_source(rows, count, &at, 0, 2);
	tap_ok(from && from->node == 2, "a source: the node's own before all", NULL);
	from = tpck_consensus_source(rows, count, &at, 0, 7);
	tap_ok(from && from->kind != COPY, "then a process's own", NULL);
	for (size_t i = 0; i < count; i++)
		rows[i].bad = rows[i].kind != COPY;
	from = tpck_consensus_source(rows, count, &at, 0, 7);
	tap_ok(from && from->kind == COPY, "then a copy", NULL);
	from = tpck_consensus_source(rows, count, &at, 0, 9);
	tap_ok(from && from->point.step == 40, "but of no other step", NULL);
	tap_ok(!tpck_consensus_source(rows, count, &no, 0, 1) && !tpck_consensus_source(rows, count, &at, 2, 1),
	       "and none of what nobody has", NULL);
}

static void stored(void)
{
	struct tpck_point some[] = {{3, 10}, {3, 30}, {2, 99}, {4, 5}};

	count = 0;
	tap_ok(is_stored(3, ANY, some, 3, 3, 30), "the store's newest, where nodes have nothing", NULL);
	add_all(3, 20, 3, COMMITTED);
	tap_ok(is_stored(3, ANY, some, 3, 3, 30), "the store's, where it is newer", NULL);
	tap_ok(is_stored(3, ANY, some, 4, 4, 5), "of a later generation even with a lower step", NULL);
	add_all(3, 40, 3, COMMITTED);
	tap_ok(is_stored(3, ANY, some, 3, 3, 40), "the nodes', where theirs is", NULL);
	tap_ok(is_stored(3, 10, some, 4, 3, 10) && is_stored(3, 20, some, 4, 3, 20) && is_stored(3, 11, some, 4, 0, 0),
	       "a step that is wanted, of either", NULL);
}

/* ---- against one that tries every point --------------------------------------------------- */

static bool newer(struct tpck_point a, struct tpck_point b)
{
	return a.generation != b.generation ? a.generation > b.generation : a.step > b.step;
}

static bool twin(const struct tpck_evidence *all, size_t n, uint32_t world, uint64_t only, struct tpck_point *best)
{
	bool found = false;

	for (size_t i = 0; i < n; i++) {
		struct tpck_point at = all[i].point;
		bool good = only == ANY || at.step == only, agreed = false;

		for (uint32_t r = 0; r < world && good; r++) {
			good = false;
			for (size_t k = 0; k < n; k++)
				if (all[k].point.generation == at.generation && all[k].point.step == at.step) {
					agreed = agreed || all[k].kind != HELD;
					good = good || (all[k].rank == r && !all[k].bad);
				}
		}
		if (good && agreed && (!found || newer(at, *best))) {
			found = true;
			*best = at;
		}
	}
	return found;
}

static void random_rows(void)
{
	unsigned differ = 0, some = 0, none = 0;
	char detail[64];

	srandom(7);
	for (unsigned turn = 0; turn < 20000; turn++) {
		uint32_t world = 1 + (uint32_t)random() % 4;
		struct tpck_point got = {0}, want = {0};
		bool found, expected;
		uint64_t only = random() % 3 ? ANY : (uint64_t)random() % 4;

		count = 0;
		for (unsigned n = (unsigned)random() % 40; n; n--) {
			add(1 + (uint64_t)random() % 2, (uint64_t)random() % 4, (uint32_t)random() % world,
			    random() % 3 ? HELD : COMMITTED + (uint32_t)random() % 2, (uint32_t)random() % 5);
			rows[count - 1].bad = random() % 4 == 0;
		}
		expected = twin(rows, count, world, only, &want);
		found = tpck_consensus(rows, count, NULL, 0, world, only, &got);
		differ += found != expected || (found && (newer(got, want) || newer(want, got)));
		some += found;
		none += !found;
	}
	snprintf(detail, sizeof detail, "%u differ, %u with and %u without", differ, some, none);
	tap_ok(!differ && some > 1000 && none > 1000, "random rows: as one finds that tries every point", detail);
}

/* ---- many --------------------------------------------------------------------------------- */

static double seconds_of(uint32_t world, bool *good)
{
	struct tpck_evidence *many = calloc((size_t)world * 3, sizeof *many);
	struct tpck_point newest = {0};
	struct timespec a, b;
	size_t n = 0;

	for (uint64_t step = 10; many && step <= 30; step += 10)
		for (uint32_t r = 0; r < world; r++)
			many[n++] = (struct tpck_evidence){.point = {1, step}, .rank = (r * 7919u) % world, .kind = COMMITTED, .node = r / 8};
	/* The last rank of the newest is missing. */
	for (size_t i = 0; i < n; i++)
		if (many[i].point.step == 30 && many[i].rank == world - 1)
			many[i].bad = true;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
	*good = many && tpck_consensus(many, n, NULL, 0, world, ANY, &newest) && newest.step == 20;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
	free(many);
	return (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
}

static void many_ranks(void)
{
	double few = 1e9, many = 1e9;
	char detail[80];
	bool good = true, one;

	/* The shortest of several: others use this machine. */
	for (int i = 0; i < 5; i++) {
		double s = seconds_of(WORLD_MANY / 10, &one), t = seconds_of(WORLD_MANY, &good);

		good = good && one;
		few = s < few ? s : few;
		many = t < many ? t : many;
	}
	snprintf(detail, sizeof detail, "%.6f s and %.6f s", few, many);
	tap_ok(good, "10,000 ranks with three points each", detail);
	tap_ok(many < 50 * few, "in a time that grows about as they do", detail);
}

/* Ranks whose part is there as fragments of 2+1 only, or of 3+2. */
static void fragments(void)
{
	struct tpck_point point = {3, 20};
	struct tpck_evidence *source;

	count = 0;
	add(3, 20, 0, COMMITTED, 0);
	add_fragment(3, 20, 1, 2, 1, 0, 1);
	tap_ok(is(2, ANY, 0, 0), "one fragment of two is nothing", NULL);
	add_fragment(3, 20, 1, 2, 1, 0, 2);
	tap_ok(is(2, ANY, 0, 0), "nor is the same one twice", NULL);
	add_fragment(3, 20, 1, 3, 2, 1, 3);
	add_fragment(3, 20, 1, 3, 2, 2, 4);
	tap_ok(is(2, ANY, 0, 0), "nor are those of another code", NULL);
	add_fragment(3, 20, 1, 2, 1, 2, 3);
	tap_ok(is(2, ANY, 3, 20), "any two are the rank's part", NULL);
	source = tpck_consensus_source(rows, count, &point, 1, 1);
	tap_ok(source && source->kind == TPCK_HOLDING_FRAGMENT, "which stand for it, also where the rank is to start beside one", NULL);
	add(3, 20, 1, COPY, 9);
	add_all(3, 10, 2, COMMITTED);
	tap_ok(is(2, ANY, 3, 20) && tpck_consensus_source(rows, count, &point, 1, 1)->kind == TPCK_HOLDING_COPY, "a whole copy is better", NULL);
	tpck_consensus_bad(rows, count, tpck_consensus_source(rows, count, &point, 1, 1));
	source = tpck_consensus_source(rows, count, &point, 1, 1);
	tap_ok(is(2, ANY, 3, 20) && source->kind == TPCK_HOLDING_FRAGMENT, "if it is bad they are taken", NULL);
	tpck_consensus_bad(rows, count, source);
	tap_ok(is(2, ANY, 3, 10), "if they are, too, the step before is", NULL);
}

int main(void)
{
	whole();
	fragments();
	held();
	bad();
	sources();
	stored();
	random_rows();
	many_ranks();
	return tap_done();
}
