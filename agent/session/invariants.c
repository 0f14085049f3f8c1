/* SPDX-License-Identifier: Apache-2.0 */
/* The invariants of a takeover. */
#include "config.h"

#include "agent/session/invariants.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

static bool broken(char *why, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static bool broken(char *why, size_t size, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, size, format, args);
	va_end(args);
	return false;
}

static size_t count_of(const struct invariant_rank *ranks, size_t count, uint32_t rank, uint32_t ordinal)
{
	size_t found = 0;

	for (size_t i = 0; i < count; i++)
		found += ranks[i].rank == rank && ranks[i].ordinal == ordinal;
	return found;
}

static bool is_one_job(const struct invariant_rank *ranks, size_t count, bool apart, char *why, size_t size)
{
	uint32_t world = count ? ranks[0].world : 0;

	for (size_t i = 0; i < count; i++)
		if (ranks[i].world != world || ranks[i].rank >= world)
			return broken(why, size, "I1: rank %u of %u is none of the %u ranks", ranks[i].rank, ranks[i].world, world);
	/* Whether other nodes' ranks are there who leads them knows. */
	for (uint32_t rank = 0; rank < world && !apart; rank++) {
		size_t i = 0;

		while (i < count && ranks[i].rank != rank)
			i++;
		if (i == count)
			return broken(why, size, "I1: rank %u of %u is missing", rank, world);
	}
	return true;
}

static bool has_one_owner(const struct invariant_rank *ranks, size_t count, char *why, size_t size)
{
	for (size_t i = 0; i < count; i++) {
		if (count_of(ranks, count, ranks[i].rank, ranks[i].ordinal) != 1)
			return broken(why, size, "I2: more than one process is rank %u", ranks[i].rank);
		if (ranks[i].former)
			return broken(why, size, "I2: process %d, which was rank %u, is still there", ranks[i].former, ranks[i].rank);
	}
	return true;
}

bool invariants_hold(const struct invariant_rank *ranks, size_t count, bool apart, char *why, size_t size)
{
	if (!is_one_job(ranks, count, apart, why, size) || !has_one_owner(ranks, count, why, size))
		return false;
	for (size_t i = 0; i < count; i++) {
		if (!ranks[i].has_state)
			return broken(why, size, "I3: rank %u's snapshot of step %" PRIu64 " is not in its place", ranks[i].rank, ranks[i].point.step);
		if (tpck_point_compare(&ranks[i].point, &ranks[0].point))
			return broken(why, size, "I4: rank %u would go on from step %" PRIu64 ", rank %u from step %" PRIu64, ranks[i].rank, ranks[i].point.step,
				      ranks[0].rank, ranks[0].point.step);
		if (!ranks[i].committed)
			return broken(why, size, "I4: not all ranks have committed step %" PRIu64, ranks[i].point.step);
	}
	return true;
}
