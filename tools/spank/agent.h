/* SPDX-License-Identifier: Apache-2.0 */
/* The node's agent of a job: started outside of the step, told of the job's end. */
#ifndef TPCK_TOOLS_SPANK_AGENT_H
#define TPCK_TOOLS_SPANK_AGENT_H

#include <limits.h>
#include <sys/types.h>

#include <slurm/spank.h>

/* In slurmd: notes which process it is, whose cgroups the agents get. */
void agent_note_slurmd(void);
/* In a step, as the user, in the job's folder: gives the job a name where the user gives it none, starts the agent unless
 * one answers, and holds it until this process ends. */
void agent_hold(spank_t spank);
struct tpck_settings;
/* The library's settings, as a task will read them. 0 or -errno. */
int agent_settings(spank_t spank, struct tpck_settings *settings);
/* The folder of the memory tier by those, as the library finds it; called with the rights of that user. */
void agent_tier(spank_t spank, const struct tpck_settings *settings, uid_t uid, char path[static PATH_MAX]);
/* STATE/JOBID.job: one line "UID GID FOLDER" a step, FOLDER the agent's. */
int agent_record_path(spank_t spank, char path[static PATH_MAX]);

#endif
