/* SPDX-License-Identifier: Apache-2.0 */
/* Other nodes' agents, before a rank looks whether it is to go on. */
#ifndef TPCK_RUNTIME_ENGINE_MEET_H
#define TPCK_RUNTIME_ENGINE_MEET_H

#include "runtime/engine/ranks.h"
#include "runtime/reach/reach.h"

/* Where some of the ranks are on other nodes, and the store is not one that all see: returns when this node's agent, which is
 * started if there is none, knows those of the launch's other nodes and what they have, or cannot for now; some ten
 * seconds at most. Once a launch and node; what a rank starts does not wait. */
void tpck_meet(const struct tpck_reach *how, const struct tpck_ranks *ranks);

#endif
