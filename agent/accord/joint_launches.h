/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches whose ranks are on several nodes. Each node's agent has the ranks that are there; the agent of rank 0 leads, and what
 * it says is what all do (runtime/peer/accord.h). Without it, or without one of the others, nothing more is agreed on in this
 * start. All is the event loop's.
 */
#ifndef TPCK_AGENT_ACCORD_JOINT_LAUNCHES_H
#define TPCK_AGENT_ACCORD_JOINT_LAUNCHES_H

#include "agent/peers/peers.h"
#include "agent/session/sessions.h"
#include "runtime/peer/accord.h"

/* What a launch whose ranks are on several nodes goes by. */
extern const struct launch_apart accord_apart;
/* What may have waited for anything. */
extern const struct loop_part accord_loop;
/* What happens between nodes. */
extern const struct peers_hearer accord_hears;

/* Nothing is agreed on, for now or for good. */
bool accord_is_broken(const struct launch *launch);
/* All other nodes that are there. */
void accord_each_node(void (*visit)(void *context, const char *node), void *context);
/* What is held here of a step that others have committed was agreed on. */
void accord_promote(struct agent *agent, const struct tpck_point *point);
/* Snapshots here of a generation, be they committed or held; each rank's form is the first rank here. malloc'd. */
size_t accord_holdings_of(const struct launch *launch, struct tpck_accord_holding **rows);
bool accord_leads(const struct launch *launch);

#endif
