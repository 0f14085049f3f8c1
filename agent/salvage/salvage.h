/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What nodes that were lost had, made durable by those that are left: the newest step of a launch that is whole among its other
 * nodes' memory and the copies. One of those who find that a launch has lost nodes asks the others, says who writes which part, and joins them.
 * Any of it may happen twice, by nodes that do not know of each other: a step's bytes are the same whoever has them, and what is
 * published is so once (doc/cluster.md). Event loop.
 */
#ifndef TPCK_AGENT_SALVAGE_SALVAGE_H
#define TPCK_AGENT_SALVAGE_SALVAGE_H

#include "agent/peers/peers.h"
#include "agent/session/sessions.h"
#include "runtime/peer/accord.h"

extern const struct loop_part salvage_loop;
/* Whether something is left that is not durable, and it is not known that it cannot be: an agent that is to end waits. */
bool salvage_owes(void);
/* The store does not work, and this agent ends. */
void salvage_say_kept(struct agent *agent);
/* Whether copies of a generation are to stay, however long ago their owner was there. */
bool salvage_needs(uint64_t generation);

/* What happens between nodes; behind accord_hears. */
extern const struct peers_hearer salvage_hears;

#endif
