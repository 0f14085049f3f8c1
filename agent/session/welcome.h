/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What processes are told at their start, noted in their sessions before any of them is told. All ranks of a node are told by one agent, or by
 * it and its next one: that takes up where the last one died.
 */
#ifndef TPCK_AGENT_SESSION_WELCOME_H
#define TPCK_AGENT_SESSION_WELCOME_H

#include <stdbool.h>

#include "agent/session/sessions.h"

/* What the process of this number will be told; it counts once one session of the generation says whose it is. */
void welcome_note(const struct tpck_session *session, pid_t pid, const struct tpck_welcome *welcome);
/* A session says not whose it is. True: others of its generation did, and now it does. */
bool welcome_complete(struct tpck_session *session);
/* Where its generation's ranks meet, as it was told, in the form of TPCK_ACCORD_START; 0: it is not known. */
uint64_t welcome_ports(const struct tpck_session *session);
/* One that an agent from before made ready for its process, who has been told nothing of it; it is not opened any more. */
void welcome_note_missed(const struct tpck_session *session);
/* The newest generation that this rank's process was made ready for so, or 0. */
uint64_t welcome_missed(uint64_t launch, uint32_t rank, uint32_t ordinal);
/* The last agent was about to welcome this process, to a session that was taken over: it is now. False: this is not so. */
bool welcome_again(struct agent *agent, struct client *client, const struct tpck_hello *hello, const char *identity);

#endif
