/* SPDX-License-Identifier: Apache-2.0 */
/* Starting over: the same program again in the same process, with resuming off (DESIGN 6.6). */
#ifndef TPCK_RUNTIME_REPLAY_RESTART_H
#define TPCK_RUNTIME_REPLAY_RESTART_H

/* Remembers what the process was started with. Called first of all at load. */
void tpck_restart_remember(char *const *environment);
/* Executes the program again with TRANSPCKPT_RESUME=never and does not return, unless that is not
 * possible; then it returns -errno, and the process is left as it was. */
int tpck_restart(void);

#endif
