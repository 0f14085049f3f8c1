/* SPDX-License-Identifier: Apache-2.0 */
/* Consensus: what is proven. */
#include "config.h"

#include "runtime/peer/consensus.h"

#include <stdlib.h>

static int newest_first(const void *a, const void *b)
{
	const struct tpck_evidence *x = a, *y = b;
	int order = tpck_point_compare(&y->point, &x->point);

	if (order)
		return order;
	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	return x->node < y->node ? -1 : x->node > y->node;
}

/* Whether among rows [0, count), all of one rank and point, there are enough fragments of a code. */
static bool has_fragments(const struct tpck_evidence *rows, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		uint64_t found = 0;

		for (size_t j = 0; j < count && rows[i].kind == TPCK_HOLDING_FRAGMENT && !rows[i].bad; j++)
			if (rows[j].kind == TPCK_HOLDING_FRAGMENT && !rows[j].bad && rows[j].data == rows[i].data && rows[j].parity == rows[i].parity)
				found |= 1ull << (rows[j].index & 63);
		if (found && rows[i].data && __builtin_popcountll(found) >= rows[i].data)
			return true;
	}
	return false;
}

/* The same, or one that has the whole. */
static bool has_rank(const struct tpck_evidence *rows, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!rows[i].bad && rows[i].kind != TPCK_HOLDING_FRAGMENT)
			return true;
	return has_fragments(rows, count);
}

/* Whether rows [0, count), all of one point and by rank, have all ranks, and what they say was agreed on. */
static bool is_whole(const struct tpck_evidence *rows, size_t count, uint32_t world)
{
	uint32_t next = 0;
	bool agreed = false;

	for (size_t i = 0, end; i < count; i = end) {
		for (end = i; end < count && rows[end].rank == rows[i].rank; end++)
			agreed = agreed || rows[end].kind != TPCK_HOLDING_HELD;
		if (rows[i].rank == next && has_rank(rows + i, end - i))
			next++;
	}
	return agreed && next == world;
}

bool tpck_consensus(struct tpck_evidence *rows, size_t count, const struct tpck_point *stored, size_t stored_count,
		    uint32_t world, uint64_t only, struct tpck_point *newest)
{
	bool found = false;

	if (count)
		qsort(rows, count, sizeof *rows, newest_first);
	for (size_t begin = 0, end; begin < count && !found; begin = end) {
		for (end = begin + 1; end < count && tpck_point_compare(&rows[end].point, &rows[begin].point) == 0;)
			end++;
		if (only != UINT64_MAX && rows[begin].point.step != only)
			continue;
		found = is_whole(rows + begin, end - begin, world);
		if (found)
			*newest = rows[begin].point;
	}
	for (size_t i = 0; i < stored_count; i++)
		if ((only == UINT64_MAX || stored[i].step == only) && (!found || tpck_point_compare(&stored[i], newest) > 0)) {
			found = true;
			*newest = stored[i];
		}
	return found;
}

static int rung(const struct tpck_evidence *row)
{
	return row->kind == TPCK_HOLDING_FRAGMENT ? 2 : row->kind == TPCK_HOLDING_COPY;
}

struct tpck_evidence *tpck_consensus_source(struct tpck_evidence *rows, size_t count, const struct tpck_point *point,
					    uint32_t rank, uint32_t node)
{
	const struct tpck_evidence first = {.point = *point, .rank = rank};
	struct tpck_evidence *best = NULL;
	size_t begin = 0, end = count;

	while (begin < end) {
		size_t middle = begin + (end - begin) / 2;

		if (newest_first(&rows[middle], &first) < 0)
			begin = middle + 1;
		else
			end = middle;
	}
	for (size_t i = begin; i < count && rows[i].rank == rank && tpck_point_compare(&rows[i].point, point) == 0; i++) {
		struct tpck_evidence *row = &rows[i];

		if (row->bad)
			continue;
		if (row->node == node && row->kind != TPCK_HOLDING_FRAGMENT)
			return row;
		if (!best || rung(row) < rung(best))
			best = row;
	}
	return best;
}

void tpck_consensus_bad(struct tpck_evidence *rows, size_t count, struct tpck_evidence *tried)
{
	tried->bad = true;
	for (size_t i = 0; i < count && tried->kind == TPCK_HOLDING_FRAGMENT; i++)
		if (rows[i].kind == TPCK_HOLDING_FRAGMENT && rows[i].rank == tried->rank && tpck_point_compare(&rows[i].point, &tried->point) == 0)
			rows[i].bad = true;
}
