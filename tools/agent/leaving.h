/* SPDX-License-Identifier: Apache-2.0 */
/* The end of the agent: when it leaves, who tells it to, and how long it waits for those whose processes are gone. Event loop. */
#ifndef TPCK_TOOLS_AGENT_LEAVING_H
#define TPCK_TOOLS_AGENT_LEAVING_H

#include "tools/agent/agent.h"

extern const struct loop_part leaving_loop, endings_loop;

/* How long what a process that died left waits for it to come back, ns. */
uint64_t agent_linger_ns(const struct agent *agent);
/* Another agent of the same mpirun's is told to end, and so are all; with ULFM, where each ends for itself, it gathers them. */
void agent_told_to_end(struct agent *agent, const char *host);
/* With ULFM: the agent of this host has died, and its next one, which mpirun has not started, works alone. */
void agent_gather(struct agent *agent, const char *host);

#endif
