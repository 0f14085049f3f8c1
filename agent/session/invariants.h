/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must hold before processes go live in the places of others (DeadPool, "System Invariants"): I1, all are ranks of one job; I2, each rank has one owner; I3,
 * the state of each is there; I4, all go on from one step that was whole.
 */
#ifndef TPCK_AGENT_SESSION_INVARIANTS_H
#define TPCK_AGENT_SESSION_INVARIANTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/store/manifest.h"

/* A process that is about to go on. */
struct invariant_rank {
	uint32_t rank, ordinal, world; /* as it says itself */
	int former;                    /* a process that had its place, and is still there; 0: none is */
	bool has_state;                /* the snapshot is in its session, whole, of that very step */
	struct tpck_point point;
	bool committed;                /* all ranks had committed the step, as far as anybody knows */
};

/* Of all ranks of a launch; `apart`: of those of this node. False: *why is a sentence that names the invariant. */
bool invariants_hold(const struct invariant_rank *ranks, size_t count, bool apart, char *why, size_t size);

#endif
