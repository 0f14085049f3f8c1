/* SPDX-License-Identifier: Apache-2.0 */
/* Options, environment twins and arguments: command line beats environment beats plugstack.conf. */
#include "config.h"

#include "tools/spank/options.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/settings.h"
#include "runtime/base/tier_settings.h"

#define TWIN "TRANSPCKPT"

enum { OPTION_ON, OPTION_OFF, OPTION_DIR, OPTION_PEERS };
enum { ARGUMENTS_MAX = 32 };

static bool said_on, said_off, on_by_default;
static char *interval, *dir, *copies, *state_folder, *shm_folder;
/* Settings of plugstack.conf, as "TRANSPCKPT_NAME=value". */
static char *arguments_kept[ARGUMENTS_MAX];
static int arguments_used;
static unsigned stay_sec = 3600;

const char *options_state_folder(void)
{
	return state_folder ? state_folder : RUNDIR "/transpckpt";
}

bool options_shm_folder(uid_t uid, char path[static PATH_MAX])
{
	int used = shm_folder ? snprintf(path, PATH_MAX, "%s/transpckpt-%u", shm_folder, (unsigned)uid) : -1;

	return used > 0 && used < PATH_MAX;
}

unsigned options_stay_sec(void)
{
	return stay_sec;
}

const char *options_agent(void)
{
	static const char name[] = "TRANSPCKPT_AGENT=";

	for (int i = 0; i < arguments_used; i++)
		if (strncmp(arguments_kept[i], name, sizeof name - 1) == 0)
			return arguments_kept[i] + sizeof name - 1;
	return NULL;
}

/* ---- values ------------------------------------------------------------------------------- */

static bool parses(const char *setting, const char *text)
{
	struct tpck_settings settings;

	for (const struct tpck_setting_row *row = tpck_setting_rows; row->name; row++)
		if (strcmp(row->name, setting) == 0)
			return tpck_settings_parse(row, text, &settings) == 0;
	return false;
}

static bool interval_good(const char *who, const char *text)
{
	if (parses("TRANSPCKPT_INTERVAL", text))
		return true;
	slurm_error("transpckpt: %s=%s is no interval: auto, a number of iterations, or seconds as 30s", who, text);
	return false;
}

static bool peers_good(const char *who, const char *text)
{
	if (parses("TRANSPCKPT_PEERS", text))
		return true;
	slurm_error("transpckpt: %s=%s is no number of copies on other nodes, nor of fragments as 4+2", who, text);
	return false;
}

/* Tasks and agents start in folders of their own: only an absolute path is one place for all of them. */
static bool dir_good(const char *who, const char *text)
{
	const char *tier = text;

	if (!parses("TRANSPCKPT_DIR", text)) {
		slurm_error("transpckpt: %s=%.60s... is too long", who, text);
		return false;
	}
	do {
		tier += tpck_tiers_kind(tier);
		if (*tier != '/') {
			slurm_error("transpckpt: %s=%s is no absolute path, nor tiers as node:/nvme,site:/lustre", who, text);
			return false;
		}
		tier += strcspn(tier, ",");
	} while (*tier++);
	return true;
}

static bool keep(char **where, const char *text)
{
	free(*where);
	*where = strdup(text);
	return *where != NULL;
}

/* ---- plugstack.conf ----------------------------------------------------------------------- */

static bool take_setting(const char *key, size_t length, const char *value)
{
	char name[64];
	int used = snprintf(name, sizeof name, "TRANSPCKPT_%.*s", (int)length, key);

	if (used < 0 || (size_t)used >= sizeof name || arguments_used == ARGUMENTS_MAX)
		return false;
	for (char *p = name; *p; p++)
		*p = (char)toupper((unsigned char)*p);
	if (!parses(name, value) || (strcmp(name, "TRANSPCKPT_DIR") == 0 && !dir_good("dir", value)))
		return false;
	if (asprintf(&arguments_kept[arguments_used], "%s=%s", name, value) < 0)
		return false;
	arguments_used++;
	return true;
}

static bool take_seconds(const char *text)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (!isdigit((unsigned char)*text) || *end || value > 100000000)
		return false;
	stay_sec = (unsigned)value;
	return true;
}

void options_take_arguments(int count, char *arguments[])
{
	for (int i = 0; i < count; i++) {
		const char *equals = strchr(arguments[i], '=');
		size_t length = equals ? (size_t)(equals - arguments[i]) : 0;
		bool good = false;

		if (length == 7 && memcmp(arguments[i], "default", 7) == 0) {
			on_by_default = strcmp(equals + 1, "on") == 0;
			good = on_by_default || strcmp(equals + 1, "off") == 0;
		} else if (length == 5 && memcmp(arguments[i], "state", 5) == 0) {
			good = equals[1] == '/' && keep(&state_folder, equals + 1);
		} else if (length == 3 && memcmp(arguments[i], "shm", 3) == 0) {
			good = equals[1] == '/' && equals[2] && parses("TRANSPCKPT_SHM", equals + 1) && keep(&shm_folder, equals + 1);
		} else if (length == 4 && memcmp(arguments[i], "stay", 4) == 0) {
			good = take_seconds(equals + 1);
		} else if (length) {
			good = take_setting(arguments[i], length, equals + 1);
		}
		if (!good)
			slurm_error("transpckpt: '%s' in plugstack.conf is not default=on|off, state=FOLDER, shm=FOLDER, stay=SECONDS or SETTING=VALUE with "
				    "a value that the setting has; ignored", arguments[i]);
	}
}

/* ---- options ------------------------------------------------------------------------------ */

/* Options were looked at before the job was submitted; a step takes them as they are. */
static int take_option(int which, const char *text, int remote)
{
	if (which == OPTION_OFF) {
		said_off = true;
		return 0;
	}
	if (which == OPTION_DIR)
		return (remote || dir_good("--transpckpt-dir", text)) && keep(&dir, text) ? 0 : -1;
	if (which == OPTION_PEERS)
		return (remote || peers_good("--transpckpt-peers", text)) && keep(&copies, text) ? 0 : -1;
	said_on = true;
	if (!text || !*text || strcmp(text, "(null)") == 0)
		return 0;
	return (remote || interval_good("--transpckpt", text)) && keep(&interval, text) ? 0 : -1;
}

static struct spank_option table[] = {
	{"transpckpt", "INTERVAL", "[transpckpt] snapshots of the training program, every INTERVAL iterations or seconds (30s); "
				   "TRANSPCKPT=1, TRANSPCKPT_INTERVAL", 2, OPTION_ON, take_option},
	{"transpckpt-dir", "DIR", "[transpckpt] where its checkpoints become durable; TRANSPCKPT_DIR", 1, OPTION_DIR, take_option},
	{"transpckpt-peers", "K", "[transpckpt] copies of snapshots in the memory of K other nodes; TRANSPCKPT_PEERS", 1, OPTION_PEERS,
	 take_option},
	{"no-transpckpt", NULL, "[transpckpt] no snapshots, whatever else asks for them; TRANSPCKPT=0", 0, OPTION_OFF, take_option},
};

int options_register(spank_t spank)
{
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		if (spank_option_register(spank, &table[i]) != ESPANK_SUCCESS) {
			slurm_error("transpckpt: --%s cannot be registered", table[i].name);
			return -1;
		}
	return 0;
}

int options_check_environment(void)
{
	const char *twin = getenv(TWIN), *text;

	if (twin && *twin && strcmp(twin, "1") != 0 && strcmp(twin, "0") != 0) {
		slurm_error("transpckpt: " TWIN "=%s is neither 1 nor 0", twin);
		return -1;
	}
	if (said_off || (twin && *twin == '0' && !said_on) || !(said_on || on_by_default || (twin && *twin == '1')))
		return 0;
	text = getenv("TRANSPCKPT_INTERVAL");
	if (!interval && text && *text && !interval_good("TRANSPCKPT_INTERVAL", text))
		return -1;
	text = getenv("TRANSPCKPT_DIR");
	if (!dir && text && *text && !dir_good("TRANSPCKPT_DIR", text))
		return -1;
	text = getenv("TRANSPCKPT_PEERS");
	if (!copies && text && *text && !peers_good("TRANSPCKPT_PEERS", text))
		return -1;
	return 0;
}

/* ---- in a step ---------------------------------------------------------------------------- */

enum options_answer options_asked(spank_t spank)
{
	char twin[8] = "";

	if (said_off)
		return OPTIONS_OFF;
	if (said_on)
		return OPTIONS_ON;
	if (spank_getenv(spank, TWIN, twin, sizeof twin) != ESPANK_SUCCESS)
		twin[0] = '\0';
	if (strcmp(twin, "0") == 0)
		return OPTIONS_OFF;
	return strcmp(twin, "1") == 0 || on_by_default ? OPTIONS_ON : OPTIONS_SILENT;
}

void options_export(spank_t spank)
{
	char shm[PATH_MAX];

	if (options_shm_folder(geteuid(), shm))
		spank_setenv(spank, "TRANSPCKPT_SHM", shm, 0);
	for (int i = 0; i < arguments_used; i++) {
		const char *equals = strchr(arguments_kept[i], '=');
		char name[64];

		snprintf(name, sizeof name, "%.*s", (int)(equals - arguments_kept[i]), arguments_kept[i]);
		spank_setenv(spank, name, equals + 1, 0);
	}
	if (interval)
		spank_setenv(spank, "TRANSPCKPT_INTERVAL", interval, 1);
	if (dir)
		spank_setenv(spank, "TRANSPCKPT_DIR", dir, 1);
	if (copies)
		spank_setenv(spank, "TRANSPCKPT_PEERS", copies, 1);
}
