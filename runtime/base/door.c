/* SPDX-License-Identifier: Apache-2.0 */
/* The one door to a folder of ours. */
#include "config.h"

#include "runtime/base/door.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/base/text.h"

#define MEMORY "/dev/shm/transpckpt-"
enum { RANDOM_DIGITS = 16, PATH_BYTES = 1200 };
/* Whom the kernel names where it has no number for a user in this namespace. */
enum { NOBODY_HERE = 65534 };

/* ---- the look --------------------------------------------------------------------------------- */

static TPCK_AT_START bool is_own(const struct stat *found, uid_t uid, bool sticky)
{
	return S_ISDIR(found->st_mode) && found->st_uid == uid &&
	       (!(found->st_mode & (S_IWGRP | S_IWOTH)) || (sticky && found->st_mode & S_ISVTX));
}

static TPCK_AT_START int look(int folder, bool sticky)
{
	struct stat found;
	int saved = errno, rc = 0;

	if (tpck_sys_fstatat(folder, "", &found, AT_EMPTY_PATH))
		rc = -errno;
	else if (!is_own(&found, geteuid(), sticky))
		rc = -EPERM;
	errno = saved;
	return rc;
}

/* In a folder with the sticky bit, as /dev/shm is, only its owner renames or removes what belongs to somebody. */
static int look_above(int folder)
{
	struct stat found;

	if (tpck_sys_fstatat(folder, "..", &found, AT_SYMLINK_NOFOLLOW))
		return -errno;
	if (found.st_uid != 0 && found.st_uid != geteuid() && found.st_uid != NOBODY_HERE)
		return -EPERM;
	return found.st_mode & (S_IWGRP | S_IWOTH) && !(found.st_mode & S_ISVTX) ? -EPERM : 0;
}

TPCK_AT_START int tpck_door_open(int above, const char *path, int flags)
{
	int saved = errno, fd = -1, rc = 0;

	for (int tries = 0; tries < 2 && fd < 0; tries++) {
		fd = tpck_sys_openat(above, path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
		rc = fd < 0 ? -errno : 0;
		if (rc != -ENOENT || !(flags & TPCK_DOOR_MAKE))
			break;
		if (tpck_sys_mkdirat(above, path, 0700) && errno != EEXIST) {
			rc = -errno;
			break;
		}
	}
	if (!rc)
		rc = look(fd, flags & TPCK_DOOR_STICKY);
	if (!rc && flags & TPCK_DOOR_ABOVE)
		rc = look_above(fd);
	if (rc && fd >= 0)
		tpck_sys_close(fd);
	errno = saved;
	/* A link, with these flags, is no folder either. */
	return rc == -ENOTDIR || rc == -ELOOP ? -EPERM : rc ? rc : fd;
}

/* What is in front of so many names at a path's end, with its NUL; bytes, or -EINVAL. */
static int above_names(const char *path, unsigned names, char above[PATH_BYTES])
{
	size_t end = strlen(path);

	for (; names; names--) {
		while (end && path[end - 1] != '/')
			end--;
		if (!end--)
			return -EINVAL;
	}
	if (!end || end >= PATH_BYTES)
		return -EINVAL;
	memcpy(above, path, end);
	above[end] = '\0';
	return (int)end;
}

/* The folder below which the last of the names is; *last is that name. */
static int walk(const char *path, unsigned names, int flags, const char **last)
{
	char above[PATH_BYTES], name[NAME_MAX + 1];
	int end = above_names(path, names, above), folder = end < 0 ? end : tpck_door_open(AT_FDCWD, above, 0), next;

	for (const char *at = path + (end < 0 ? 0 : end) + 1; folder >= 0; at += strlen(name) + 1) {
		size_t length = strcspn(at, "/");

		*last = at;
		if (!at[length])
			return folder;
		memcpy(name, at, length < sizeof name ? length : 0);
		name[length < sizeof name ? length : 0] = '\0';
		next = name[0] ? tpck_door_open(folder, name, flags) : -EINVAL;
		tpck_sys_close(folder);
		folder = next;
	}
	return folder;
}

int tpck_door_folder(const char *path, unsigned names, int flags)
{
	const char *last = NULL;
	int saved = errno, above, folder;

	if (!names)
		return tpck_door_open(AT_FDCWD, path, flags);
	above = walk(path, names, flags, &last);
	if (above < 0)
		return above;
	folder = tpck_door_open(above, last, flags);
	tpck_sys_close(above);
	errno = saved;
	return folder;
}

int tpck_door_file(const char *path, unsigned names, int flags, unsigned mode)
{
	const char *last = NULL;
	int saved = errno, above = walk(path, names, 0, &last), fd;

	if (above < 0)
		return above;
	fd = tpck_sys_openat(above, last, flags | O_NOFOLLOW, mode);
	fd = fd < 0 ? -errno : fd;
	tpck_sys_close(above);
	errno = saved;
	return fd;
}

int tpck_door_remove(const char *path, unsigned names)
{
	const char *last = NULL;
	int saved = errno, above = walk(path, names, 0, &last), rc;

	if (above < 0)
		return above;
	rc = tpck_sys_unlinkat(above, last, 0) ? -errno : 0;
	tpck_sys_close(above);
	errno = saved;
	return rc;
}

int tpck_door_read(int folder, const char *name)
{
	int saved = errno, fd = tpck_sys_openat(folder, name, TPCK_DOOR_READ, 0), rc = fd < 0 ? -errno : 0;
	struct stat found;

	if (!rc && tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH))
		rc = -errno;
	else if (!rc && !S_ISREG(found.st_mode))
		rc = -EPERM;
	if (rc && fd >= 0)
		tpck_sys_close(fd);
	errno = saved;
	return rc ? rc : fd;
}

int tpck_door_refused(const char *path, int code, const char *setting, struct tpck_error *err)
{
	struct stat found = {0};
	uid_t own = geteuid();
	int saved = errno, rc, folder = tpck_door_open(AT_FDCWD, path, TPCK_DOOR_STICKY);

	if (code != -EPERM || tpck_sys_fstatat(AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW))
		rc = tpck_error_set(err, code != -EPERM ? -code : errno, "opening folder %s", path);
	else if (S_ISLNK(found.st_mode) || !S_ISDIR(found.st_mode))
		rc = tpck_error_set(err, EPERM, "%s is not used, since it is %s: remove it, or set %s to a folder of your own", path,
				    S_ISLNK(found.st_mode) ? "a link" : "no folder", setting);
	else if (found.st_uid != own)
		rc = tpck_error_set(err, EPERM, "%s is not used, since it belongs to user %u, not to %u: have it removed, or set %s to a folder of your own",
				    path, (unsigned)found.st_uid, (unsigned)own, setting);
	else if (found.st_mode & (S_IWGRP | S_IWOTH) && !(found.st_mode & S_ISVTX))
		rc = tpck_error_set(err, EPERM, "%s is not used, since others may write to it (mode %03o): chmod go-w, or set %s to a folder of your own",
				    path, (unsigned)found.st_mode & 0777, setting);
	else if (folder >= 0 && look_above(folder) == -EPERM)
		rc = tpck_error_set(err, EPERM, "%s is not used, since others may put another folder into its place: set %s to one in a folder that they cannot write to",
				    path, setting);
	else
		rc = tpck_error_set(err, EPERM, "using %s", path);
	if (folder >= 0)
		tpck_sys_close(folder);
	errno = saved;
	return rc;
}

void tpck_door_above(const char *path)
{
	char part[PATH_BYTES];
	int saved = errno;

	for (size_t i = 1; path[0] && path[i] && i < sizeof part; i++)
		if (path[i] == '/') {
			memcpy(part, path, i);
			part[i] = '\0';
			tpck_sys_mkdirat(AT_FDCWD, part, 0700);
		}
	errno = saved;
}

/* ---- the memory tier's name ------------------------------------------------------------------- */

/* 1: the user's own; 0: nothing is there; -1: something else. */
static TPCK_AT_START int look_at(const char *path, uid_t uid)
{
	struct stat found;

	if (tpck_sys_fstatat(AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : -1;
	return is_own(&found, uid, false) ? 1 : -1;
}

static TPCK_AT_START bool read_name(const char *link, const char *plain, char *name, size_t size)
{
	size_t length = strlen(plain);
	long got = tpck_sys_readlinkat(AT_FDCWD, link, name, size - 1);

	name[got > 0 ? got : 0] = '\0';
	return got == (long)(length + 1 + RANDOM_DIGITS) && strncmp(name, plain, length) == 0 && name[length] == '-' &&
	       strspn(name + length + 1, "0123456789abcdef") == RANDOM_DIGITS;
}

static void make_link(const char *state, const char *link, const char *plain)
{
	char name[TPCK_DOOR_MEMORY_NAME];
	struct tpck_text text = tpck_text_in(name, sizeof name);
	uint64_t random;

	tpck_door_above(state);
	tpck_sys_mkdirat(AT_FDCWD, state, 0700);
	if (tpck_sys_getrandom(&random, sizeof random, 0) != sizeof random)
		random = tpck_clock_monotonic_ns() * 0x9e3779b97f4a7c15u;
	tpck_text_add(&text, plain);
	tpck_text_add(&text, "-");
	tpck_text_hexadecimal(&text, random, RANDOM_DIGITS);
	/* The first of several that come at once stays. */
	tpck_sys_symlinkat(name, AT_FDCWD, link);
}

/* The random name, or the plain one, at which the look is refused, where none can be kept. */
static TPCK_AT_START __attribute__((noinline)) void choose(uid_t uid, const char *state, bool taken, char *path, size_t size)
{
	char link[PATH_BYTES], name[TPCK_DOOR_MEMORY_NAME];
	struct tpck_text text = tpck_text_in(link, sizeof link);

	tpck_text_add(&text, state);
	tpck_text_add(&text, "/memory.");
	tpck_text_number(&text, uid);
	if (text.cut)
		return;
	for (int tries = 0; tries < 3; tries++) {
		if (read_name(link, path, name, sizeof name)) {
			if (look_at(name, uid) >= 0) {
				text = tpck_text_in(path, size);
				tpck_text_add(&text, name);
				return;
			}
			/* Somebody had seen it, and was there first when the machine was started again. */
			tpck_sys_unlinkat(AT_FDCWD, link, 0);
		}
		if (!taken)
			return;
		make_link(state, link, path);
	}
}

TPCK_AT_START void tpck_door_memory(uid_t uid, const char *state, char *path, size_t size)
{
	struct tpck_text text = tpck_text_in(path, size);
	int saved = errno, there;

	tpck_text_add(&text, MEMORY);
	tpck_text_number(&text, uid);
	there = look_at(path, uid);
	if (there <= 0)
		choose(uid, state, there < 0, path, size);
	errno = saved;
}
