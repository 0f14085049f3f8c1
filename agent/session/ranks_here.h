/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a launch that are on this node, by their numbers. What it takes goes by how many these are, and not by how many the job has. */
#ifndef TPCK_AGENT_SESSION_RANKS_HERE_H
#define TPCK_AGENT_SESSION_RANKS_HERE_H

#include <stdint.h>

struct live;

struct rank_here {
	uint32_t rank;
	struct live *live; /* NULL: it has said HELLO and is not welcomed yet, or it is gone */
};

struct ranks_here {
	struct rank_here *row; /* [count], in order; a row stays until all go */
	uint32_t count, room;
};

/* NULL: it has never been here. */
struct rank_here *ranks_here_find(const struct ranks_here *here, uint32_t rank);
/* Found, or made. NULL: there is no memory. Other rows may lie elsewhere then. */
struct rank_here *ranks_here_add(struct ranks_here *here, uint32_t rank);
void ranks_here_free(struct ranks_here *here);

#endif
