/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/base/processes.h"

char *tpck_lines_next(struct tpck_lines *from)
{
	for (;;) {
		char *line = from->bytes + from->at, *end = memchr(line, '\n', from->used - from->at);
		long got;

		if (end) {
			*end = '\0';
			from->at = (size_t)(end + 1 - from->bytes);
			return line;
		}
		memmove(from->bytes, line, from->used - from->at);
		from->used -= from->at;
		from->at = 0;
		got = from->used < sizeof from->bytes ? tpck_sys_read(from->fd, from->bytes + from->used, sizeof from->bytes - from->used) : 0;
		if (got <= 0)
			return NULL;
		from->used += (size_t)got;
	}
}

bool tpck_process_names_library(const char *process, const char *file)
{
	static const char name[] = "libtranspckpt";
	char path[300], bytes[4096 + sizeof name];
	size_t kept = 0;
	bool found = false;
	long got;
	int fd;

	snprintf(path, sizeof path, "/proc/%s/%s", process, file);
	fd = tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	while (fd >= 0 && !found && (got = tpck_sys_read(fd, bytes + kept, sizeof bytes - kept)) > 0) {
		kept += (size_t)got;
		found = memmem(bytes, kept, name, sizeof name - 1) != NULL;
		if (kept > sizeof name) {
			memmove(bytes, bytes + kept - sizeof name, sizeof name);
			kept = sizeof name;
		}
	}
	if (fd >= 0)
		tpck_sys_close(fd);
	return found;
}

bool tpck_process_has_mapped(int pid, const char *end, char *path, size_t size, bool *library)
{
	struct tpck_lines from = {0};
	bool found = false;
	char *line;

	snprintf(path, size, "/proc/%d/maps", pid);
	from.fd = tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	*library = false;
	while (!found && from.fd >= 0 && (line = tpck_lines_next(&from))) {
		const char *name = strchr(line, '/');
		size_t length = name ? strlen(name) : 0;

		found = length > strlen(end) && length < size && strcmp(name + length - strlen(end), end) == 0;
		if (found)
			memcpy(path, name, length + 1);
		*library = *library || (name && strstr(name, "libtranspckpt"));
	}
	if (from.fd >= 0)
		tpck_sys_close(from.fd);
	return found;
}

/* What /proc/PID/stat says behind the program's name, which may have anything in it: a state, a space, the parent. "": nothing. */
static const char *state_of(int pid, char text[512])
{
	char path[40], *end;
	long got;
	int fd;

	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	fd = tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	got = fd >= 0 ? tpck_sys_read(fd, text, 511) : -1;
	if (fd >= 0)
		tpck_sys_close(fd);
	text[got > 0 ? got : 0] = '\0';
	end = strrchr(text, ')');
	return end && end[1] && end[2] ? end + 2 : "";
}

int tpck_process_parent(int pid)
{
	char text[512];
	const char *state = state_of(pid, text);

	return *state ? atoi(state + 1) : 0;
}

bool tpck_process_stands(int pid)
{
	char text[512];
	const char *state = state_of(pid, text);

	return *state == 'T' || *state == 't';
}

bool tpck_process_descends(int pid, int from)
{
	for (int steps = 0; pid > 1 && steps < 64; steps++) {
		if (pid == from)
			return true;
		pid = tpck_process_parent(pid);
	}
	return false;
}

bool tpck_process_any_number(const char *folder, bool (*call)(const char *name, void *what), void *what)
{
	int fd = tpck_sys_openat(AT_FDCWD, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	char bytes[2048] __attribute__((aligned(8)));
	bool found = false;
	long got;

	while (fd >= 0 && !found && (got = tpck_sys_getdents(fd, bytes, sizeof bytes)) > 0)
		for (long at = 0; at < got && !found;) {
			const struct {
				uint64_t inode;
				int64_t next;
				uint16_t length;
				uint8_t type;
				char name[];
			} *entry = (const void *)(bytes + at);

			if (entry->name[0] >= '0' && entry->name[0] <= '9')
				found = call(entry->name, what);
			at += entry->length;
		}
	if (fd >= 0)
		tpck_sys_close(fd);
	return found;
}
