/* SPDX-License-Identifier: Apache-2.0 */
/* Stashes, which are what programs have read back from the device (wire/segment.h), on their way from memory into the store. */
#ifndef TPCK_AGENT_DURABLE_STASHER_H
#define TPCK_AGENT_DURABLE_STASHER_H

#include "agent/session/sessions.h"

/* Puts all that a program has read back so far into the store, before a checkpoint is published whose log refers to it. What cannot be
 * put there is said, and stays in memory. The flusher's thread. */
void stash_settle(const struct tpck_program *program);
/* The folder of the store in which it lies, which is made where it is missing: a descriptor, or -errno. */
int stash_store(const struct tpck_program *program, struct tpck_error *err);
/* The program has ended well: they go, in the store with the versions of files that its log refers to. Any thread but the event loop's. */
void stash_remove(const struct tpck_program *program);

/* The event loop's: what is full goes to the store soon, by a thread of its own: a large checkpoint that the flusher is at takes longer than memory has
 * room for what is read back meanwhile. */
extern const struct loop_part stash_loop;

#endif
