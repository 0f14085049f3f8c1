/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of a node: a sorted array, since they are few, and looked through far more often than they come. */
#include "config.h"

#include "agent/session/ranks_here.h"

#include <stdlib.h>
#include <string.h>

/* The first that is not before it. */
static uint32_t place_of(const struct ranks_here *here, uint32_t rank)
{
	uint32_t begin = 0, end = here->count;

	while (begin < end) {
		uint32_t middle = begin + (end - begin) / 2;

		if (here->row[middle].rank < rank)
			begin = middle + 1;
		else
			end = middle;
	}
	return begin;
}

struct rank_here *ranks_here_find(const struct ranks_here *here, uint32_t rank)
{
	uint32_t at = place_of(here, rank);

	return at < here->count && here->row[at].rank == rank ? &here->row[at] : NULL;
}

struct rank_here *ranks_here_add(struct ranks_here *here, uint32_t rank)
{
	struct rank_here *row = ranks_here_find(here, rank), *grown;
	uint32_t at = place_of(here, rank);

	if (row)
		return row;
	if (here->count == here->room) {
		uint32_t room = here->room ? 2 * here->room : 1;

		grown = reallocarray(here->row, room, sizeof *grown);
		if (!grown)
			return NULL;
		here->row = grown;
		here->room = room;
	}
	row = &here->row[at];
	memmove(row + 1, row, (here->count - at) * sizeof *row);
	*row = (struct rank_here){.rank = rank};
	here->count++;
	return row;
}

void ranks_here_free(struct ranks_here *here)
{
	free(here->row);
	*here = (struct ranks_here){0};
}
