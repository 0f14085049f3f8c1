/* SPDX-License-Identifier: Apache-2.0 */
/* The end of the agent: when it leaves, who tells it to, and how long it waits for those whose processes are gone. Event loop. */
#ifndef TPCK_TOOLS_AGENT_LEAVING_H
#define TPCK_TOOLS_AGENT_LEAVING_H

#include "agent/peers/peers.h"
#include "agent/session/sessions.h"

extern const struct loop_part leaving_loop, endings_loop;

/* How long what a process that died left waits for it to come back, ns. */
uint64_t agent_linger_ns(const struct agent *agent);
/* Others that end, or have to do without one of them. */
extern const struct peers_hearer leaving_hears;

#endif
