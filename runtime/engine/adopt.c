/* SPDX-License-Identifier: Apache-2.0 */
/* Going on as a program that was noted with another key. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/engine/adopt.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/door.h"
#include "runtime/base/identity_names.h"
#include "runtime/base/log.h"

/* So many names of what is looked at are below the job's folder; digits of a program's id; how much its marker has at most. */
enum { NAMES = 2, DIGITS = 16, MARKER_MAX = 1 << 20 };

/* The programs of the folder, and the id of the last. */
static unsigned list_programs(const char *path, char id[DIGITS + 1])
{
	int folder = tpck_door_file(path, NAMES, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	_Alignas(struct dirent64) char entries[4096];
	unsigned count = 0;
	long got;

	while (folder >= 0 && (got = tpck_sys_getdents(folder, entries, sizeof entries)) > 0)
		for (long at = 0; at < got;) {
			const struct dirent64 *entry = (const void *)(entries + at);

			if (strlen(entry->d_name) == DIGITS && strspn(entry->d_name, "0123456789abcdef") == DIGITS) {
				strcpy(id, entry->d_name);
				count++;
			}
			at += entry->d_reclen;
		}
	if (folder >= 0)
		tpck_sys_close(folder);
	return count;
}

/* A program's marker: "generation N" and its identity text. malloc'd, or NULL. */
static char *read_marker(const char *path)
{
	int fd = tpck_door_file(path, NAMES, TPCK_DOOR_READ, 0);
	char *text = fd < 0 ? NULL : malloc(MARKER_MAX + 1);
	ssize_t got = text ? tpck_sys_read_full(fd, text, MARKER_MAX) : 0;

	if (text)
		text[got < 0 ? 0 : got] = '\0';
	if (fd >= 0)
		tpck_sys_close(fd);
	return text;
}

/* What the key's line says, as far as the text's end; "": nothing. */
static const char *key_of(const char *text)
{
	const char *line = strstr(text, "\n" TPCK_IDENTITY_KEY_LINE);

	return line ? line + 1 + strlen(TPCK_IDENTITY_KEY_LINE) : "";
}

bool tpck_adopt(const char *names, char *identity, size_t size)
{
	char id[DIGITS + 1] = "", path[4200], *text, *its;
	const char *last = strrchr(names, '/');
	unsigned count = list_programs(names, id);
	bool taken;

	if (count > 1)
		tpck_log_warn("not resuming: there are %u programs of which this may be one; they differ by values of environment variables, which "
			      "were noted with another key than this node's", count);
	if (count != 1 || (size_t)snprintf(path, sizeof path, "%.*s/%s", (int)(last - names), names, id) >= sizeof path)
		return false;
	text = read_marker(path);
	its = text ? strchr(text, '\n') : NULL;
	/* With the same key another value is another program, as the agent says. */
	taken = its && strlen(++its) < size && tpck_identity_names(its) == tpck_identity_names(identity) &&
		strncmp(key_of(its), key_of(identity), DIGITS) != 0;
	if (taken) {
		strcpy(identity, its);
		tpck_log_warn("values of environment variables cannot be compared: the checkpoints that there are were noted with another key than this "
			      "node's, as without a common home; they are taken as this program's all the same");
	}
	free(text);
	return taken;
}
