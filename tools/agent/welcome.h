/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What processes are told at their start, noted in their sessions before any of them is told. All ranks of a node are told by one agent, or by
 * it and its next one: that takes up where the last one died.
 */
#ifndef TPCK_TOOLS_AGENT_WELCOME_H
#define TPCK_TOOLS_AGENT_WELCOME_H

#include <stdbool.h>

#include "tools/agent/agent.h"

/* What the process of this number will be told; it counts once one session of the generation says whose it is. */
void welcome_note(const struct tpck_session *session, pid_t pid, const struct tpck_welcome *welcome);
/* A session says not whose it is. True: others of its generation did, and now it does. */
bool welcome_complete(struct agent *agent, struct tpck_session *session);
/* The last agent was about to welcome this process, to a session that was taken over: it is now. False: this is not so. */
bool welcome_again(struct agent *agent, struct client *client, const struct tpck_hello *hello, const char *identity);

#endif
