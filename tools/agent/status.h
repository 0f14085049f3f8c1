/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent is at, for who asks. Event loop. */
#ifndef TPCK_TOOLS_AGENT_STATUS_H
#define TPCK_TOOLS_AGENT_STATUS_H

struct agent;
struct client;

/* Of struct session_beyond. */
void status_answer(struct agent *agent, struct client *client);

#endif
