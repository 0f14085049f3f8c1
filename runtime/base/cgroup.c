/* SPDX-License-Identifier: Apache-2.0 */
/* Memory control groups: limits, use, and what of it can be taken back. */
#include "config.h"

#include "runtime/base/cgroup.h"
#include "runtime/base/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Version 1 says this, rounded to pages, for no limit. */
#define NO_LIMIT (1ull << 62)
/* What a machine should have left at most. */
#define MACHINE_RESERVE (16ull << 30)
enum { TEXT = 4096, ROOT = 128 };

/* What the two versions call the same. */
struct names {
	const char *mount, *limit, *used;
	const char *cache[2];
};
static const struct names v1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
				{"total_inactive_file ", "total_active_file "}};
static const struct names v2 = {"/sys/fs/cgroup", "memory.max", "memory.current", {"inactive_file ", "active_file "}};

static bool read_text(const char *path, char text[TEXT])
{
	int fd = tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	ssize_t got;

	if (fd < 0)
		return false;
	got = tpck_sys_read_full(fd, text, TEXT - 1);
	text[got > 0 ? got : 0] = '\0';
	tpck_sys_close(fd);
	return got > 0;
}

/* ---- where ------------------------------------------------------------------------------------ */

static bool has_memory(const char *controllers, const char *end)
{
	while (controllers < end) {
		size_t length = strcspn(controllers, ",:");

		if (length == 6 && strncmp(controllers, "memory", 6) == 0)
			return true;
		controllers += length + 1;
	}
	return false;
}

static void note(char to[TPCK_CGROUP_PATH], const char *path)
{
	size_t length = strcspn(path, "\n");

	if (*path != '/' || length >= TPCK_CGROUP_PATH)
		return;
	memcpy(to, path, length);
	to[length] = '\0';
}

bool tpck_cgroup_of(const char *root, int pid, struct tpck_cgroup *group)
{
	char text[TEXT], path[ROOT + 40], *line = text;
	int saved = errno;

	*group = (struct tpck_cgroup){"", ""};
	if (pid)
		snprintf(path, sizeof path, "%.*s/proc/%d/cgroup", ROOT, root, pid);
	else
		snprintf(path, sizeof path, "%.*s/proc/self/cgroup", ROOT, root);
	/* "ID:CONTROLLERS:PATH" */
	for (line = read_text(path, text) ? text : NULL; line && *line; line = strchr(line, '\n'), line += line != NULL) {
		char *controllers = strchr(line, ':'), *at = controllers ? strchr(controllers + 1, ':') : NULL;

		if (!at)
			break;
		if (strncmp(line, "0::", 3) == 0)
			note(group->v2, at + 1);
		else if (has_memory(controllers + 1, at))
			note(group->v1, at + 1);
	}
	errno = saved;
	return *group->v1 || *group->v2;
}

/* ---- how much --------------------------------------------------------------------------------- */

static bool read_number(const char *root, const struct names *names, const char *group, const char *file, char text[TEXT], uint64_t *number)
{
	char path[ROOT + 40 + TPCK_CGROUP_PATH + 40], *end;

	snprintf(path, sizeof path, "%.*s%s%s/%s", ROOT, root, names->mount, group, file);
	if (!read_text(path, text))
		return false;
	*number = strtoull(text, &end, 10);
	return end != text; /* "max" is no number */
}

static uint64_t in_cache(const char *root, const struct names *names, const char *group, char text[TEXT])
{
	uint64_t bytes = 0, first;

	if (!read_number(root, names, group, "memory.stat", text, &first))
		first = 0; /* it begins with a name */
	for (int i = 0; i < 2; i++) {
		char *at = text;

		while (at && strncmp(at, names->cache[i], strlen(names->cache[i])) != 0) {
			at = strchr(at, '\n');
			at += at != NULL;
		}
		if (at)
			bytes += strtoull(at + strlen(names->cache[i]), NULL, 10);
	}
	return bytes;
}

static void look(const char *root, const struct names *names, const char *group, struct tpck_cgroup_room *room)
{
	struct tpck_cgroup_room this;
	uint64_t limit, used, cache;
	char text[TEXT];

	if (!read_number(root, names, group, names->limit, text, &limit) || limit >= NO_LIMIT ||
	    !read_number(root, names, group, names->used, text, &used))
		return;
	cache = in_cache(root, names, group, text);
	used = used > cache ? used - cache : 0;
	this = (struct tpck_cgroup_room){limit > used ? limit - used : 0, limit / 8};
	if (tpck_cgroup_tighter(&this, room))
		*room = this;
}

/* In a container the path may be the host's, and the group itself at the mount: that is looked at, too. */
static void look_up(const char *root, const struct names *names, const char *group, struct tpck_cgroup_room *room)
{
	char path[TPCK_CGROUP_PATH], *slash;

	if (!*group)
		return;
	strcpy(path, group);
	for (;;) {
		if (strcmp(path, "/") == 0)
			*path = '\0';
		look(root, names, path, room);
		slash = strrchr(path, '/');
		if (!slash)
			return;
		*slash = '\0';
	}
}

/* The number behind a name, in KiB; 0: it is not there. */
static uint64_t in_meminfo(const char *text, const char *name)
{
	const char *at = strstr(text, name);

	return at ? strtoull(at + strlen(name), NULL, 10) << 10 : 0;
}

static void look_at_machine(const char *root, struct tpck_cgroup_room *room)
{
	char text[TEXT], path[ROOT + 40];
	uint64_t all;

	snprintf(path, sizeof path, "%.*s/proc/meminfo", ROOT, root);
	all = read_text(path, text) ? in_meminfo(text, "MemTotal:") : 0;
	if (!all)
		return;
	room->bytes = in_meminfo(text, "MemAvailable:");
	room->reserve = all / 8 < MACHINE_RESERVE ? all / 8 : MACHINE_RESERVE;
}

struct tpck_cgroup_room tpck_cgroup_room(const char *root, const struct tpck_cgroup *group)
{
	struct tpck_cgroup_room room = {UINT64_MAX, 0};
	int saved = errno;

	look_at_machine(root, &room);

	look_up(root, &v1, group->v1, &room);
	look_up(root, &v2, group->v2, &room);
	errno = saved;
	return room;
}

bool tpck_cgroup_ends_together(const char *root, const struct tpck_cgroup *group, char which[TPCK_CGROUP_PATH])
{
	char text[TEXT], *slash;
	int saved = errno;
	uint64_t together;
	bool found = false;

	snprintf(which, TPCK_CGROUP_PATH, "%s", group->v2);
	while (*which && !found) {
		if (strcmp(which, "/") == 0)
			*which = '\0';
		found = read_number(root, &v2, which, "memory.oom.group", text, &together) && together;
		slash = found ? NULL : strrchr(which, '/');
		if (slash)
			*slash = '\0';
		else
			break;
		/* In a container the group itself is at the mount. */
		if (!*which)
			found = read_number(root, &v2, which, "memory.oom.group", text, &together) && together;
	}
	if (found && !*which)
		snprintf(which, TPCK_CGROUP_PATH, "/");
	errno = saved;
	return found;
}
