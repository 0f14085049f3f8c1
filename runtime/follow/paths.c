/* SPDX-License-Identifier: Apache-2.0 */
/* Paths as the program writes them, and which are followed. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/follow/follow.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/digest.h"
#include "runtime/follow/caches.h"
#include "runtime/follow/follow_private.h"
#include "runtime/replay/forward.h"

uint64_t tpck_follow_digest(const char *absolute)
{
	return tpck_digest64(absolute, strlen(absolute), 0);
}

/* The folder that a path begins in, without a slash at its end. False: it has no name. */
static bool base_of(int folder, char *base, size_t size, size_t *length)
{
	char link[64];
	ssize_t got;

	if (folder == AT_FDCWD) {
		got = tpck_early_base(base, size, length);
		if (!got) {
			got = tpck_sys_getcwd(base, size); /* with its NUL */
			*length = got > 0 ? (size_t)got - 1 : 0;
		}
	} else {
		snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
		got = tpck_sys_readlink(link, base, size - 1);
		if (got > 0) {
			base[got] = '\0';
			tpck_folders_named(base, base, size);
			*length = strlen(base);
		}
	}
	while (got > 0 && *length && base[*length - 1] == '/')
		--*length;
	return got > 0;
}

bool tpck_follow_absolute(int folder, const char *path, char *out, size_t size)
{
	size_t used = 0;

	if (!path || !*path)
		return false;
	if (*path != '/') {
		if (!base_of(folder, out, size, &used))
			return false;
		while (path[0] == '.' && path[1] == '/')
			path += 1 + strspn(path + 1, "/");
	}
	/* "a//b" and "a/b/" are "a/b". */
	while (*path) {
		size_t length;

		while (*path == '/')
			path++;
		length = (size_t)(strchrnul(path, '/') - path);
		if (used + 1 + length >= size)
			return false;
		if (!length)
			break;
		out[used++] = '/';
		memcpy(out + used, path, length);
		used += length;
		path += length;
	}
	if (!used)
		out[used++] = '/';
	out[used] = '\0';
	return true;
}

bool tpck_follow_outside(const char *absolute)
{
	static const char outside[][6] = {"/proc", "/sys", "/dev", "/run"};

	if (absolute[0] != '/' || !strchr("psdr", absolute[1]))
		return false;
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

static bool is_known(const void *of)
{
	uint64_t digest = *(const uint64_t *)of;

	return tpck_learnt_first(digest) || tpck_overlay_find(digest);
}

bool tpck_follow_resolve_last(const struct tpck_at *at, bool follow, enum tpck_last last, struct tpck_name *name)
{
	int saved = errno;
	uint64_t asked;
	bool found;

	/* A slash at the end is followed whatever is there. */
	if (last != TPCK_LAST_UNKNOWN && (!*at->path || at->path[strlen(at->path) - 1] == '/'))
		last = TPCK_LAST_UNKNOWN;
	name->absent = name->literal = false;
	name->path[0] = '\0'; /* and no more: filling callers' buffers cost half of an open */
	found = tpck_follow_absolute(at->folder, at->path, name->path, sizeof name->path) && followed(name->path);
	asked = found ? tpck_follow_digest(name->path) : 0;
	if (found && !tpck_names_canonical(name->path, follow && last == TPCK_LAST_UNKNOWN, &name->absent))
		name->path[0] = '\0';
	if (follow && last == TPCK_LAST_ABSENT)
		name->absent = !tpck_overlay_active();
	found = found && name->path[0] && !tpck_temporary(name->path);
	if (found) {
		name->digest = tpck_follow_digest(name->path);
		name->literal = name->digest == asked;
		found = name->literal || followed(name->path);
		if (found && tpck_overlay_active()) {
			tpck_learnt_numbered(name->path, name->digest);
			/* The run that is followed has touched the path before this thread did, and its log will say what was there. */
			tpck_forward_await_that(is_known, &name->digest);
		}
	}
	errno = saved;
	return found;
}

bool tpck_follow_resolve(const struct tpck_at *at, bool follow, struct tpck_name *name)
{
	return tpck_follow_resolve_last(at, follow, TPCK_LAST_UNKNOWN, name);
}
