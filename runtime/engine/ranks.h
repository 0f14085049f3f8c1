/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the job's processes this one is, as its launcher says by the environment. */
#ifndef TPCK_RUNTIME_ENGINE_RANKS_H
#define TPCK_RUNTIME_ENGINE_RANKS_H

#include <stdbool.h>
#include <stdint.h>

struct tpck_ranks {
	uint32_t rank, world; /* 0 of 1 where nobody says */
	bool elsewhere;       /* some of them are on other nodes */
	uint32_t nodes;       /* how many those are on, if each has as many; 0: not known */
	uint64_t launch;      /* digest of what tells this start of the job from others, the same in all ranks; 0: nothing does */
};

void tpck_ranks_find(struct tpck_ranks *ranks);

#endif
