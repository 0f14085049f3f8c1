/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the supervisors of a job's ranks share (runtime/wire/twin_set.h): the agent makes it, and where ranks are on several nodes the agents tell each other
 * what is in it. Rank 0's node hears of all, and tells the others what is decided. Event loop.
 */
#ifndef TPCK_AGENT_TWINS_TWIN_SETS_H
#define TPCK_AGENT_TWINS_TWIN_SETS_H

#include "agent/peers/peers.h"
#include "agent/session/live.h"
#include "runtime/wire/twin_set.h"

/* A process of several ranks that has a supervisor has a session now. */
void twins_seat(struct agent *agent, const struct live *live);

/* Each set of a launch on several nodes; and of these sets each seat of this node's, of which a supervisor was there. What is changed is told to the others. */
void twins_each(void (*visit)(void *context, uint64_t generation, struct tpck_twin_set *set), void *context);
void twins_each_seat(void (*visit)(void *context, uint64_t generation, const struct tpck_twin_set *set, uint32_t rank), void *context);

/* Begins behind the adoption of what an earlier agent has left. */
extern const struct loop_part twins_loop;
extern const struct peers_hearer twins_hears;

#endif
