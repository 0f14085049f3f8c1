/* SPDX-License-Identifier: Apache-2.0 */
/* What the user's settings say. TRANSPCKPT_CONF names any path, so root opens none of them. */
#include "config.h"

#include "runtime/base/tier_settings.h"
#include "tools/spank/user_settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/digest.h"
#include "runtime/base/door.h"
#include "runtime/base/log.h"

enum { FIND_MS = 5000 };

/* ---- as the user -------------------------------------------------------------------------- */

struct find {
	spank_t spank;
	uid_t uid;
};

static int read_settings(spank_t spank, struct tpck_settings *settings)
{
	char **environment = NULL, **kept;
	size_t count = 0;

	if (spank_get_item(spank, S_JOB_ENV, &environment) != ESPANK_SUCCESS || !environment)
		return -EINVAL;
	while (environment[count])
		count++;
	kept = calloc(count + 1, sizeof *kept);
	if (!kept)
		return -ENOMEM;
	/* Not its log: slurmstepd has one. */
	count = 0;
	for (char **e = environment; *e; e++)
		if (strncmp(*e, "TRANSPCKPT_", 11) == 0 && strncmp(*e, "TRANSPCKPT_LOG=", 15) != 0)
			kept[count++] = *e;
	tpck_log_hold(1);
	(void)tpck_settings_read(settings, kept);
	free(kept);
	return 0;
}

/* Name and folder tell one job from another, as program and folder do for a program that is started by hand: a job
 * that is submitted again is the same. */
static void name_job(spank_t spank, char *job, size_t size)
{
	char name[128] = "", task[32] = "", both[PATH_MAX + 256] = "", folder[PATH_MAX] = "";
	int length;

	if (spank_getenv(spank, "SLURM_JOB_NAME", name, sizeof name) != ESPANK_SUCCESS && !name[0])
		strcpy(name, "job");
	if (spank_getenv(spank, "SLURM_ARRAY_TASK_ID", task + 1, sizeof task - 1) == ESPANK_SUCCESS)
		task[0] = '-';
	if (!getcwd(folder, sizeof folder))
		folder[0] = '\0';
	length = snprintf(both, sizeof both, "%s\n%s", name, folder);
	snprintf(job, size, "%.60s-%08x%s", name, (unsigned)tpck_digest64(both, (size_t)length, 0), task[0] ? task : "");
}

/* As the library finds it. */
static void find_tier(spank_t spank, const struct tpck_settings *settings, uid_t uid, char path[static PATH_MAX])
{
	char state[PATH_MAX] = "", home[PATH_MAX] = "", folder[TPCK_SETTING_TEXT_MAX];

	if (settings->shm[0]) {
		snprintf(path, PATH_MAX, "%s", settings->shm);
		return;
	}
	if (spank_getenv(spank, "XDG_STATE_HOME", state, sizeof state) != ESPANK_SUCCESS)
		state[0] = '\0';
	if (spank_getenv(spank, "HOME", home, sizeof home) != ESPANK_SUCCESS)
		home[0] = '\0';
	tpck_settings_state_of(state, home, uid, folder, sizeof folder);
	tpck_door_memory(uid, folder, path, PATH_MAX);
}

static int find(void *argument, void *answer)
{
	const struct find *what = argument;
	struct place *place = answer;
	struct tpck_settings settings;
	int rc = read_settings(what->spank, &settings);

	if (rc)
		return rc;
	place->disabled = settings.disable;
	place->named = settings.job[0];
	if (place->named)
		snprintf(place->job, sizeof place->job, "%.*s", TPCK_SETTINGS_JOB_MAX, settings.job);
	else
		name_job(what->spank, place->job, sizeof place->job);
	tpck_settings_job_clean(place->job);
	find_tier(what->spank, &settings, what->uid, place->tier);
	snprintf(place->files_except, sizeof place->files_except, "%s", settings.files_except);
	return 0;
}

/* ---- what came back ----------------------------------------------------------------------- */

static bool is_text(const char *text, size_t size)
{
	return memchr(text, '\0', size) && !strchr(text, '\n');
}

static bool is_name(const char *job, size_t size)
{
	char clean[sizeof ((struct place *)0)->job];

	if (!is_text(job, size) || !job[0])
		return false;
	strcpy(clean, job);
	tpck_settings_job_clean(clean);
	return strcmp(clean, job) == 0;
}

int place_find(spank_t spank, const struct user *user, struct place *place)
{
	struct find what = {spank, user->uid};
	int rc = user_run(user, find, &what, place, sizeof *place, FIND_MS);

	if (rc)
		return rc > 0 ? -EPROTO : rc;
	/* Folders become lines of the record, which root reads. */
	if (!is_name(place->job, sizeof place->job) || !is_text(place->tier, sizeof place->tier) || place->tier[0] != '/' ||
	    !is_text(place->files_except, sizeof place->files_except))
		return -EINVAL;
	return 0;
}
