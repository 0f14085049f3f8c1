/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that have a /dev/shm or a /tmp of their own, as job_container/tmpfs makes them. */
#ifndef TPCK_TOOLS_SPANK_JOB_CONTAINER_H
#define TPCK_TOOLS_SPANK_JOB_CONTAINER_H

#include <slurm/spank.h>

/* In a task, as root, before it executes: mounts the node's folder of the memory tier at its path in the job, where that is another one, and
 * has the program's files left alone in what the job has mounted for itself. What fails is a line, and the task runs. */
void private_enter(spank_t spank);

#endif
