/* SPDX-License-Identifier: Apache-2.0 */
/* Starting over: the same program again in the same process, with resuming off (doc/record.md, "Starting over"). */
#ifndef TPCK_RUNTIME_REPLAY_RESTART_H
#define TPCK_RUNTIME_REPLAY_RESTART_H

#include <stdbool.h>
#include <sys/types.h>

/* Remembers what the process was started with. Called first of all at load. */
void tpck_restart_remember(char *const *environment);
/* The program has taken bytes from standard input by a call that is hooked. */
void tpck_restart_input_taken(void);
/* Whether it has, or the C library for it, and that can be read once only. */
bool tpck_restart_input_gone(void);
/* `joined` says whether the program has joined a launcher that lets nobody do so twice, as a clause; NULL: no. */
void tpck_restart_launcher(const char *(*joined)(void));
/* What it says; NULL: the program has joined none. */
const char *tpck_restart_joined(void);
/* NULL, or why the program cannot be started over in this process: what it has done outside of it cannot
 * be done twice. */
const char *tpck_restart_obstacle(void);
/* Ranks that start over meet at this port of MASTER_ADDR; 0: where they met before. */
void tpck_restart_meet(unsigned port);
/* Ends the program's children, all but `spared` (0: none), then executes it again as at the start, with
 * TRANSPCKPT_RESUME=never unless it `resumes`, and does not return; -errno where that is not possible. */
int tpck_restart(pid_t spared, bool resumes);

#endif
