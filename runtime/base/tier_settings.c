/* SPDX-License-Identifier: Apache-2.0 */
/* What TRANSPCKPT_DIR and TRANSPCKPT_SHM mean. */
#include "config.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/door.h"
#include "runtime/base/file_system.h"
#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"
#include "runtime/base/tier_settings.h"

/* What may stand before the colon of a tier; runtime/store/tiers.c has a constructor for each. No pointers, which the loader would have to fill in. */
static const char schemes[][TPCK_TIER_KIND] = {"node", "site"};

TPCK_AT_START size_t tpck_tiers_kind(const char *tier)
{
	size_t length = strcspn(tier, ":");

	for (size_t i = 0; tier[length] && i < sizeof schemes / sizeof *schemes; i++)
		if (strlen(schemes[i]) == length && strncmp(tier, schemes[i], length) == 0)
			return length + 1;
	return 0;
}

bool tpck_tier_scheme(unsigned index, char kind[TPCK_TIER_KIND])
{
	if (index >= sizeof schemes / sizeof *schemes)
		return false;
	strcpy(kind, schemes[index]);
	return true;
}

/* Of the first one of a list. */
static TPCK_AT_START size_t tier_length(const char *tiers)
{
	const char *comma = strchr(tiers, ',');

	return comma ? (size_t)(comma - tiers) : strlen(tiers);
}

/* A program may change its folder, and the agent leaves it: appends `path`, absolute. False: it is too long. */
static TPCK_AT_START bool append_absolute(char *to, const char *path, size_t length)
{
	size_t kind = tpck_tiers_kind(path), used = strlen(to);
	char folder[TPCK_SETTING_TEXT_MAX] = "", whole[2 * TPCK_SETTING_TEXT_MAX + 8];

	if (path[kind] != '/' && (tpck_sys_getcwd(folder, sizeof folder) < 0 || folder[0] != '/'))
		folder[0] = '\0';
	snprintf(whole, sizeof whole, "%.*s%s%s%.*s", (int)kind, path, folder, folder[0] ? "/" : "", (int)(length - kind),
		 path + kind);
	if (used + strlen(whole) >= TPCK_SETTING_TEXT_MAX) {
		tpck_log_warn("%.200s, from the folder of this process, is too long a path", path);
		return false;
	}
	strcpy(to + used, whole);
	return true;
}

/* Whether `last`, a tier inside of the list, is there before. */
static TPCK_AT_START bool same_folder(const char *tiers, const char *last)
{
	const char *folder = last + tpck_tiers_kind(last);

	for (; tiers < last; tiers += strcspn(tiers, ",") + 1) {
		size_t kind = tpck_tiers_kind(tiers), length = strcspn(tiers, ",") - kind;

		if (length == strlen(folder) && strncmp(tiers + kind, folder, length) == 0)
			return true;
	}
	return false;
}

TPCK_AT_START int tpck_tiers_settle(char *dir)
{
	char list[TPCK_SETTING_TEXT_MAX];
	unsigned count = 0;
	int complaints = 0;

	/* Mostly it is one folder. */
	if (dir[0] == '/' && !strchr(dir, ',') && !strchr(dir, ':'))
		return 0;
	strcpy(list, dir);
	dir[0] = '\0';
	for (const char *tier = list; *tier; tier += strcspn(tier, ",") + (tier[strcspn(tier, ",")] == ',')) {
		size_t length = strcspn(tier, ","), colon = strcspn(tier, ":"), before = strlen(dir);

		if (length == tpck_tiers_kind(tier))
			continue;
		if (colon < length && colon < strcspn(tier, "/") && !tpck_tiers_kind(tier)) {
			tpck_log_warn("TRANSPCKPT_DIR: '%.*s' is no kind of tier (node, site); the folder %.*s is used",
				      (int)colon, tier, (int)length, tier);
			complaints++;
		}
		if (count == TPCK_TIERS_MAX) {
			tpck_log_warn("TRANSPCKPT_DIR: only the first %d tiers are used; '%.400s' is not", TPCK_TIERS_MAX, tier);
			return complaints + 1;
		}
		if (before && before + 1 < TPCK_SETTING_TEXT_MAX)
			strcat(dir, ",");
		if (!append_absolute(dir, tier, length)) {
			complaints++;
			dir[before] = '\0';
			continue;
		}
		count++;
		if (before && same_folder(dir, dir + before + 1)) {
			tpck_log_warn("TRANSPCKPT_DIR: %.*s is there twice; it is one tier", (int)length, tier);
			complaints++;
			dir[before] = '\0';
			count--;
		}
	}
	return complaints;
}

TPCK_AT_START int tpck_tiers_absolute(char *path)
{
	char given[TPCK_SETTING_TEXT_MAX];

	if (!path[0] || path[0] == '/')
		return 0;
	strcpy(given, path);
	path[0] = '\0';
	if (append_absolute(path, given, strlen(given)))
		return 0;
	strcpy(path, given);
	return 1;
}

TPCK_AT_START void tpck_settings_shm(const struct tpck_settings *settings, char *path, size_t size)
{
	static char known[TPCK_DOOR_MEMORY_NAME];
	static _Atomic uint64_t known_of; /* a user's number and one */
	char state[TPCK_SETTING_TEXT_MAX];
	struct tpck_text text = tpck_text_in(path, size);
	uint64_t user = (uint64_t)getuid() + 1;

	tpck_text_add(&text, settings->shm);
	if (settings->shm[0])
		return;
	/* A process stays with what it has found: the name is asked for often, and by several threads once there are some. */
	if (!known_of) {
		tpck_settings_state(state, sizeof state);
		tpck_door_memory(getuid(), state, known, sizeof known);
		known_of = user;
	}
	if (known_of == user) {
		tpck_text_add(&text, known);
		return;
	}
	tpck_settings_state(state, sizeof state);
	tpck_door_memory(getuid(), state, path, size);
}

TPCK_AT_START void tpck_settings_state(char *path, size_t size)
{
	tpck_settings_state_of(getenv("XDG_STATE_HOME"), getenv("HOME"), getuid(), path, size);
}

TPCK_AT_START void tpck_settings_state_of(const char *state, const char *home, uid_t uid, char *path, size_t size)
{
	struct tpck_text text = tpck_text_in(path, size);
	bool set = state && state[0] == '/';

	/* Without a home: of the user's own name, in a folder where others cannot replace it. */
	if (!set && !(home && home[0] == '/')) {
		tpck_text_add(&text, "/tmp/transpckpt-");
		tpck_text_number(&text, uid);
		return;
	}
	tpck_text_add(&text, set ? state : home);
	tpck_text_add(&text, set ? "/transpckpt" : "/.local/state/transpckpt");
}

TPCK_AT_START bool tpck_settings_tier(const struct tpck_settings *settings, unsigned index, char kind[TPCK_TIER_KIND], char *path,
				      size_t size)
{
	struct tpck_text text = tpck_text_in(path, size), named = tpck_text_in(kind, TPCK_TIER_KIND);
	const char *tier = settings->dir;

	if (!tier[0]) {
		tpck_settings_state(path, size);
		return index == 0;
	}
	for (; index && *tier; index--)
		tier += tier_length(tier) + (tier[tier_length(tier)] == ',');
	if (!*tier)
		return false;
	if (tpck_tiers_kind(tier))
		tpck_text_bytes(&named, tier, tpck_tiers_kind(tier) - 1);
	tier += tpck_tiers_kind(tier);
	tpck_text_bytes(&text, tier, tier_length(tier));
	return true;
}

void tpck_settings_shared_tier(const struct tpck_settings *settings, char *path, size_t size)
{
	char kind[TPCK_TIER_KIND];

	for (unsigned i = 0; tpck_settings_tier(settings, i, kind, path, size); i++)
		if (strcmp(kind, "site") == 0)
			return;
	(void)tpck_settings_tier(settings, 0, kind, path, size);
}

bool tpck_settings_are_local(const struct tpck_settings *settings)
{
	struct tpck_file_system file_system;
	char path[TPCK_SETTING_TEXT_MAX + 64];

	tpck_settings_shared_tier(settings, path, sizeof path);
	return tpck_file_system_of(path, &file_system) && file_system.known && !file_system.site;
}

TPCK_AT_START void tpck_settings_store(const struct tpck_settings *settings, char *path, size_t size)
{
	char kind[TPCK_TIER_KIND];

	(void)tpck_settings_tier(settings, 0, kind, path, size);
}

bool tpck_settings_store_file(const struct tpck_settings *settings, const char *start_folder, const char *job, const char *name, char *path, size_t size)
{
	char store[TPCK_SETTING_TEXT_MAX + 16];
	int length;

	tpck_settings_store(settings, store, sizeof store);
	length = snprintf(path, size, "%s%s%s/%s/%s", *store == '/' ? "" : start_folder, *store == '/' ? "" : "/", store, job, name);
	return length >= 0 && (size_t)length < size;
}
