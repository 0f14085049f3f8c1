/* SPDX-License-Identifier: Apache-2.0 */
/* What a task starts with. */
#ifndef TPCK_TOOLS_SPANK_TASK_H
#define TPCK_TOOLS_SPANK_TASK_H

#include <limits.h>
#include <stdbool.h>

#include <slurm/spank.h>

/* The library of this plugin's installation. False: it is not there. */
bool task_library(char path[static PATH_MAX]);
/* In the task, before it executes: the library first in LD_PRELOAD, addresses as in the next start. */
void task_preload(spank_t spank);
/* An outer step may have preloaded the program that starts this one: takes our part of LD_PRELOAD away. */
void task_leave_alone(spank_t spank);

#endif
