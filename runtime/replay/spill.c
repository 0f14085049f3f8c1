/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that goes to files. */
#include "config.h"

#include "runtime/replay/spill.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/base/kernel.h"

static bool write_all(int fd, const char *from, uint64_t bytes)
{
	uint64_t done = 0;

	while (done < bytes) {
		ssize_t got = tpck_sys_pwrite(fd, from + done, bytes - done, (off_t)done);

		if (got <= 0 && errno != EINTR)
			return false;
		done += got > 0 ? (uint64_t)got : 0;
	}
	return true;
}

bool tpck_spill(void *at, uint64_t bytes, const char *folder)
{
	int fd = tpck_sys_openat(AT_FDCWD, folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	bool done = fd >= 0 && write_all(fd, at, bytes) &&
		    tpck_sys_mmap(at, bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == at;

	if (fd >= 0)
		tpck_sys_close(fd);
	return done;
}

bool tpck_spill_nameless(const char *prefix, const char *folder)
{
	int maps = tpck_sys_openat(AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
	static const char gone[] = " (deleted)";
	char buffer[8192];
	size_t used = 0;
	ssize_t got;

	while (maps >= 0 && (got = tpck_sys_read(maps, buffer + used, sizeof buffer - 1 - used)) > 0) {
		char *line = buffer, *end;

		used += (size_t)got;
		buffer[used] = '\0';
		for (; (end = strchr(line, '\n')); line = end + 1) {
			char *path, *next;
			uint64_t from = strtoull(line, &next, 16), to = strtoull(next + 1, &next, 16);

			*end = '\0';
			path = strchr(line, '/');
			if (!path || strncmp(path, prefix, strlen(prefix)) != 0 || end - path < (long)sizeof gone || strcmp(end - sizeof gone + 1, gone) != 0)
				continue;
			tpck_sys_close(maps);
			return tpck_spill((void *)(uintptr_t)from, to - from, folder);
		}
		used = strlen(line);
		memmove(buffer, line, used);
		/* A line that is longer than the buffer is nobody's whom this is about. */
		if (used == sizeof buffer - 1)
			used = 0;
	}
	if (maps >= 0)
		tpck_sys_close(maps);
	return false;
}
