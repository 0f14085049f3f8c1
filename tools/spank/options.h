/* SPDX-License-Identifier: Apache-2.0 */
/* What a job asks for: options of srun, sbatch and salloc, their environment twins, and arguments in plugstack.conf. */
#ifndef TPCK_TOOLS_SPANK_OPTIONS_H
#define TPCK_TOOLS_SPANK_OPTIONS_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include <slurm/spank.h>

/* Where the plugin keeps what it knows of jobs between their steps and their end: root's. */
const char *options_state_folder(void);

/* That of the user's memory tier in the folder of plugstack.conf's shm=. False: there is none. */
bool options_shm_folder(uid_t uid, char path[static PATH_MAX]);

/* plugstack.conf's agent=, or NULL. */
const char *options_agent(void);
/* How many seconds an agent may stay behind the end of its job. */
unsigned options_stay_sec(void);

/* Takes plugstack.conf's arguments; each bad one is a line and is left out. */
void options_take_arguments(int count, char *arguments[]);
/* To be called from slurm_spank_init(). */
int options_register(spank_t spank);
/* Where the job is submitted: 0, or -1 behind a line about what is wrong in the environment. */
int options_check_environment(void);

/* In a step. */
enum options_answer { OPTIONS_SILENT, OPTIONS_ON, OPTIONS_OFF };
/* OPTIONS_OFF: said by the user; OPTIONS_SILENT: nobody asks for it. */
enum options_answer options_asked(spank_t spank);
/* Puts the settings of options and plugstack.conf into the job's environment. */
void options_export(spank_t spank);

#endif
