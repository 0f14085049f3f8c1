/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a file that is opened is wanted, by the rules (rules.h), or as one that was learnt. */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/files/files_private.h"
#include "runtime/files/layer.h"

bool tpck_files_tool;

/* The path made absolute without looking at links. */
static bool make_absolute(int folder, const char *path, char *out, size_t size)
{
	char link[40];
	ssize_t got = 0;
	int written;

	if (*path != '/' && folder == AT_FDCWD) {
		got = tpck_sys_getcwd(out, size) - 1;
	} else if (*path != '/') {
		snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
		got = tpck_sys_readlink(link, out, size);
	}
	if (got < 0 || (size_t)got >= size)
		return false;
	while (path[0] == '.' && path[1] == '/')
		path += 2;
	written = snprintf(out + got, size - (size_t)got, "%s%s", got ? "/" : "", path);
	return written >= 0 && (size_t)written < size - (size_t)got;
}

static TPCK_FILES_SLOW enum tpck_wanted wanted_by_path(const struct tpck_at *at)
{
	char buffer[TPCK_FILES_PATH], glob[TPCK_SETTING_TEXT_MAX];
	const char *absolute = at->absolute ? at->absolute : buffer;
	enum tpck_rule rule;

	if (absolute == buffer && !make_absolute(at->folder, at->path, buffer, sizeof buffer))
		return TPCK_WANTED_NOT;
	rule = tpck_rules_name(tpck_files_settings, absolute, tpck_files_tool, glob, sizeof glob);
	if (!tpck_rule_takes(rule))
		return TPCK_WANTED_NOT;
	return tpck_rules_unsure(rule, glob, absolute) ? TPCK_WANTED_UNSURE : TPCK_WANTED;
}

enum tpck_wanted tpck_files_wanted(const struct tpck_at *at)
{
	const char *path = at->path;
	enum tpck_wanted wanted;

	if (!tpck_rules_may_be(tpck_files_settings, path))
		return TPCK_WANTED_NOT;
	/* Of what such a program writes only that is recognised which says of others that they are whole: the name alone tells. */
	if (tpck_files_tool && strcmp(tpck_files_settings->files, "auto") == 0) {
		const char *slash = strrchr(path, '/');

		if (!tpck_rules_points(slash ? slash + 1 : path))
			return TPCK_WANTED_NOT;
	}
	wanted = tpck_rules_may_recognise(tpck_files_settings, path) ? wanted_by_path(at) : TPCK_WANTED_NOT;
	return wanted == TPCK_WANTED_NOT && !tpck_files_tool && tpck_files_learnt(at->folder, path) ? TPCK_WANTED : wanted;
}
