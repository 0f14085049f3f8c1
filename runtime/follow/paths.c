/* SPDX-License-Identifier: Apache-2.0 */
/* Paths as the program writes them, and which are followed. */
#include "config.h"

#include "runtime/follow/follow.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/digest.h"
#include "runtime/follow/caches.h"
#include "runtime/follow/follow_private.h"

enum { PATH_SIZE = TPCK_FOLLOW_PATH };

uint64_t tpck_follow_digest(const char *absolute)
{
	return tpck_digest64(absolute, strlen(absolute), 0);
}

bool tpck_follow_absolute(int folder, const char *path, char *out, size_t size)
{
	char base[PATH_SIZE];
	char link[64];
	ssize_t got;
	int written;

	if (!path || !*path)
		return false;
	if (*path == '/') {
		written = snprintf(out, size, "%s", path);
	} else {
		if (folder == AT_FDCWD) {
			if (syscall(SYS_getcwd, base, sizeof base) < 0)
				return false;
		} else {
			snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
			got = syscall(SYS_readlink, link, base, sizeof base - 1);
			if (got < 0)
				return false;
			base[got] = '\0';
			tpck_folders_named(base, base, sizeof base);
		}
		while (path[0] == '.' && path[1] == '/') {
			path += 2;
			while (*path == '/')
				path++;
		}
		written = snprintf(out, size, "%s/%s", base, path);
	}
	if (written < 0 || (size_t)written >= size)
		return false;
	/* "a//b" and "a/b/" are "a/b". */
	written = 0;
	for (const char *p = out; *p; p++)
		if (*p != '/' || (p[1] != '/' && (p[1] || !written)))
			out[written++] = *p;
	out[written] = '\0';
	return true;
}

bool tpck_follow_outside(const char *absolute)
{
	static const char *const outside[] = {"/proc", "/sys", "/dev", "/run"};

	for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
		size_t length = strlen(outside[i]);

		if (strncmp(absolute, outside[i], length) == 0 && (absolute[length] == '/' || absolute[length] == '\0'))
			return true;
	}
	return false;
}

/* Our own folders and compilers' caches are never followed either. */
static bool followed(const char *absolute)
{
	if (tpck_follow_outside(absolute))
		return false;
	if (tpck_follow_keep[0] && strncmp(absolute, tpck_follow_keep, strlen(tpck_follow_keep)) == 0)
		return false;
	return !tpck_caches_hold(absolute);
}

bool tpck_follow_resolve(int folder, const char *path, bool follow, char *absolute, uint64_t *digest)
{
	int saved = errno;
	bool found;

	*absolute = '\0'; /* and no more: filling callers' buffers cost half of an open */
	found = tpck_follow_absolute(folder, path, absolute, PATH_SIZE) && followed(absolute);

	if (found && !tpck_names_canonical(absolute, follow))
		absolute[0] = '\0';
	found = found && absolute[0] && followed(absolute) && !tpck_temporary(absolute);
	if (found)
		*digest = tpck_follow_digest(absolute);
	errno = saved;
	return found;
}
