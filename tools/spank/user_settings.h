/* SPDX-License-Identifier: Apache-2.0 */
/* Where a job's agent and memory tier are to be, by the user's settings. */
#ifndef TPCK_TOOLS_SPANK_USER_SETTINGS_H
#define TPCK_TOOLS_SPANK_USER_SETTINGS_H

#include <limits.h>
#include <stdbool.h>

#include <slurm/spank.h>

#include "runtime/base/settings.h"
#include "tools/spank/user.h"

struct place {
	char job[TPCK_SETTINGS_JOB_MAX + 64]; /* its name, as a folder has it */
	char tier[PATH_MAX];                  /* the memory tier's folder: absolute, and one line */
	char files_except[TPCK_SETTING_TEXT_MAX];
	bool named;    /* by the user */
	bool disabled; /* by TRANSPCKPT_DISABLE */
};

/* Reads environment and configuration files as the user, in a process of its own, and looks at what comes back. 0 or -errno. */
int place_find(spank_t spank, const struct user *user, struct place *place);

#endif
