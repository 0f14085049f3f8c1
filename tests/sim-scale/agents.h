/* SPDX-License-Identifier: Apache-2.0 */
/* What one agent keeps of a launch with very many ranks; what is around its code is modelled (around.h). */
#ifndef TPCK_TESTS_SIM_SCALE_AGENTS_H
#define TPCK_TESTS_SIM_SCALE_AGENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Ranks of a node, and of each rank's identity text. */
enum { EACH = 8, IDENTITY_BYTES = 2000 };

struct agent_costs {
	size_t choosing, running; /* memory: when the ranks are told what to go on from; while they run. Bytes from malloc() */
	double members_ns, ended_ns; /* of the processor, for all that the ranks said of themselves, and of their ends */
	size_t said; /* bytes that nodes sent of their ranks' identities */
	bool right;
};

/* Through a start that goes on from what memory holds, and a step. */
struct agent_costs agent_that_follows(uint32_t world);
struct agent_costs agent_that_leads(uint32_t world);

#endif
