/* SPDX-License-Identifier: Apache-2.0 */
/* What a process has open, as /proc says. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/view/opened.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/view/view.h"

/* What the kernel calls a ring's descriptor, and its mapping. */
#define RING "anon_inode:[io_uring]"
enum { DIGITS = 16, LINE = 4400, ROOM = 2048, EXITING = 0x4 /* PF_EXITING of the kernel's flags */ };

/* As getdents64() has it. */
struct name {
	uint64_t inode;
	int64_t offset;
	uint16_t length;
	uint8_t type;
	char text[];
};

/* The serial of the file whose bytes are at a path, whatever the name has behind that; 0: none of ours. */
static uint64_t serial_in(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	if (strncmp(name, TPCK_VIEW_PART, sizeof TPCK_VIEW_PART - 1) == 0)
		name += sizeof TPCK_VIEW_PART - 1;
	/* No sign and no space, which strtoull() would take. */
	if (strspn(name, "0123456789abcdef") != DIGITS)
		return 0;
	return strtoull(name, NULL, 16);
}

static struct tpck_opened *find(struct tpck_opened *opened, unsigned count, const char *path)
{
	uint64_t serial = serial_in(path);

	for (unsigned i = 0; serial && i < count; i++)
		if (opened[i].serial == serial)
			return &opened[i];
	return NULL;
}

static int open_below(const char *process, const char *name, int flags)
{
	char path[96];

	snprintf(path, sizeof path, "%s/%s", process, name);
	return tpck_sys_high(tpck_sys_openat(AT_FDCWD, path, flags | O_CLOEXEC, 0));
}

/* ---- lines ------------------------------------------------------------------------------------ */

struct lines {
	int fd;
	size_t begin, end;
	bool failed; /* a line is too long, or cannot be read */
	char text[LINE];
};

/* NULL: there is none left. */
static char *next_line(struct lines *l)
{
	for (;;) {
		char *at = l->text + l->begin, *newline = memchr(at, '\n', l->end - l->begin);
		ssize_t got;

		if (newline) {
			*newline = '\0';
			l->begin = (size_t)(newline - l->text) + 1;
			return at;
		}
		memmove(l->text, at, l->end - l->begin);
		l->end -= l->begin;
		l->begin = 0;
		if (l->end == sizeof l->text) {
			l->failed = true;
			return NULL;
		}
		got = tpck_sys_read(l->fd, l->text + l->end, sizeof l->text - l->end);
		if (got <= 0) {
			l->failed = got < 0;
			return NULL;
		}
		l->end += (size_t)got;
	}
}

/* ---- rings ------------------------------------------------------------------------------------ */

/* A busy ring is not read by newer kernels, and has a number without names in older ones; there was a time when empty places had no
 * line either. */
static __attribute__((noinline)) void look_into_ring(const char *process, const char *number, struct tpck_opened *opened, unsigned count,
						     struct tpck_opening *opening)
{
	unsigned long files = 0, named = 0;
	struct lines l = {.fd = -1};
	bool said = false;
	char name[48], *line;

	snprintf(name, sizeof name, "fdinfo/%.16s", number);
	l.fd = open_below(process, name, O_RDONLY);
	while (l.fd >= 0 && (line = next_line(&l))) {
		struct tpck_opened *found;
		char *colon;

		if (!said && strncmp(line, "UserFiles:", 10) == 0) {
			said = true;
			files = strtoul(line + 10, NULL, 10);
			continue;
		}
		if (!said)
			continue;
		colon = strchr(line, ':');
		/* Each has its place in front: "    0: /path". */
		if (!colon || colon[1] != ' ' || strspn(line, " 0123456789") != (size_t)(colon - line))
			break;
		named++;
		found = find(opened, count, colon + 2);
		if (found)
			found->registered = true;
	}
	if (l.fd < 0 || l.failed || !said || (files && !named))
		opening->rings_unknown = true;
	if (l.fd >= 0)
		tpck_sys_close(l.fd);
}

/* ---- descriptors ------------------------------------------------------------------------------ */

static __attribute__((noinline)) void look_at(int folder, const char *process, const char *number, struct tpck_opened *opened, unsigned count,
					      struct tpck_opening *opening)
{
	char path[TPCK_VIEW_PATH + 16];
	struct tpck_opened *found;
	ssize_t got = tpck_sys_readlinkat(folder, number, path, sizeof path - 1);

	/* One that was closed just now; one whose path is longer than the kernel tells. */
	if (got < 0) {
		opening->unknown = opening->unknown || errno != ENOENT;
		return;
	}
	path[got] = '\0';
	if (strcmp(path, RING) == 0) {
		opening->ring = true;
		look_into_ring(process, number, opened, count, opening);
	}
	found = find(opened, count, path);
	if (found)
		found->open = true;
}

void tpck_opened_descriptors(const char *process, struct tpck_opened *opened, unsigned count, struct tpck_opening *opening)
{
	int folder = open_below(process, "fd", O_RDONLY | O_DIRECTORY);
	_Alignas(struct name) char names[ROOM];
	long got = -1;

	while (folder >= 0 && (got = tpck_sys_getdents(folder, names, sizeof names)) > 0)
		for (long at = 0; at < got; at += ((struct name *)(names + at))->length) {
			const struct name *name = (const struct name *)(names + at);

			if (name->text[0] != '.')
				look_at(folder, process, name->text, opened, count, opening);
		}
	if (folder < 0 || got < 0)
		opening->unknown = true;
	if (folder >= 0)
		tpck_sys_close(folder);
}

__attribute__((noinline)) void tpck_opened_mappings(const char *process, struct tpck_opened *opened, unsigned count, struct tpck_opening *opening)
{
	struct lines l = {.fd = open_below(process, "maps", O_RDONLY)};
	struct tpck_opened *found;
	bool hidden = false;
	char *line;

	while (l.fd >= 0 && (line = next_line(&l))) {
		/* That of a ring whose descriptor is there is no other one. */
		if (!opening->ring && strstr(line, RING))
			hidden = true;
		found = strchr(line, '/') ? find(opened, count, line) : NULL;
		if (found)
			found->open = true;
	}
	if (hidden)
		opening->ring = opening->rings_unknown = true;
	if (l.fd < 0 || l.failed)
		opening->unknown = true;
	if (l.fd >= 0)
		tpck_sys_close(l.fd);
}

/* ---- its end ---------------------------------------------------------------------------------- */

/* Behind the command's name, which may hold anything: state is the 3rd field, flags the 9th. */
static bool goes_on(const char *task)
{
	char text[512], *at;
	int fd = open_below(task, "stat", O_RDONLY);
	ssize_t got = fd >= 0 ? tpck_sys_read(fd, text, sizeof text - 1) : -1;

	if (fd >= 0)
		tpck_sys_close(fd);
	if (got <= 0)
		return false;
	text[got] = '\0';
	at = strrchr(text, ')');
	if (!at || at[1] != ' ' || at[2] == 'X' || at[2] == 'Z')
		return false;
	for (int field = 2; at && field < 9; field++)
		at = strchr(at + 1, ' ');
	return at && !(strtoul(at + 1, NULL, 10) & EXITING);
}

bool tpck_opened_goes_on(int32_t pid)
{
	_Alignas(struct name) char names[ROOM];
	char process[64], task[96];
	bool found;
	long got;
	int folder;

	snprintf(process, sizeof process, "/proc/%d", pid);
	found = goes_on(process);
	folder = found ? -1 : open_below(process, "task", O_RDONLY | O_DIRECTORY);
	while (folder >= 0 && !found && (got = tpck_sys_getdents(folder, names, sizeof names)) > 0)
		for (long at = 0; at < got && !found; at += ((struct name *)(names + at))->length) {
			const struct name *name = (const struct name *)(names + at);

			snprintf(task, sizeof task, "%s/task/%.16s", process, name->text);
			found = name->text[0] != '.' && goes_on(task);
		}
	if (folder >= 0)
		tpck_sys_close(folder);
	return found;
}
