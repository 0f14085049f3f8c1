/* SPDX-License-Identifier: Apache-2.0 */
/* Control groups of the agents: outside of the steps, one a job, with the job's limits. */
#ifndef TPCK_TOOLS_SPANK_GROUPS_H
#define TPCK_TOOLS_SPANK_GROUPS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* In a step, as root: takes this process out of the step's groups, into the job's for agents where they can be made, else into slurmd's.
 * False: a step's group may still hold it. */
bool groups_enter(uint32_t job);
/* The same for the agent of an earlier job that serves this one, too: a process is moved only where it is in another job's group for agents. */
void groups_take_over(uint32_t job, pid_t agent);

/* At a job's end, by what groups_enter() noted. Whether a process is left in them; they are removed where none is. */
bool groups_used(uint32_t job);
void groups_kill(uint32_t job);

#endif
