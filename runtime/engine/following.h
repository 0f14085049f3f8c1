/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A twin: a process that runs forward behind the living one, by its log as it is written, and takes over from it (doc/twin.md). Nothing that it does until
 * then touches the living one, or the outside.
 */
#ifndef TPCK_RUNTIME_ENGINE_FOLLOWING_H
#define TPCK_RUNTIME_ENGINE_FOLLOWING_H

#include <stdbool.h>
#include <stdint.h>

/* At the start of a twin, in place of looking for something to go on from. A twin that cannot follow ends. */
void tpck_following_begin(void);
/* Whether this process is a twin that has not been told to take over. */
bool tpck_following(void);
/* Ends such a process, with a line that says why. */
void tpck_following_end(const char *why) __attribute__((noreturn));
/* In any program that has a supervisor: it has held a snapshot, in that session. */
void tpck_following_held(const char *session);
/* Such a program ends with a status other than 0: whether a twin takes over all the same (enum tpck_twin_excuse). */
bool tpck_following_excuses(void);
/* Now and then, in a process that is live: says how far it has been seen to repeat itself. */
void tpck_following_tell(void);
/* The process is live. */
void tpck_following_live(void);
/* A program that is forked once more in its place, before it goes forward: ends where the one before it has died too often at one place. */
void tpck_following_again(void);
/* Ends such a program, which has nothing to go on from: it has not begun. In any other one nothing is done. */
void tpck_following_refuse(const char *why);

#endif
