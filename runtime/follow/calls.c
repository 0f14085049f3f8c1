/* SPDX-License-Identifier: Apache-2.0 */
/* Files and paths: the calls, while recording and while running forward. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/follow/follow.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/readable.h"
#include "runtime/files/files.h"
#include "runtime/follow/caches.h"
#include "runtime/follow/follow_private.h"

enum { PATH_SIZE = TPCK_FOLLOW_PATH };

static int real_open(int folder, const char *path, int flags, mode_t mode)
{
	return tpck_files_open(folder, path, flags, mode);
}

static bool plain_read(int flags)
{
	return !tpck_follow_writes(flags) && !(flags & (O_CREAT | O_PATH | O_DIRECTORY | O_NOFOLLOW));
}

static bool is_file(int fd, struct stat *found)
{
	return !tpck_sys_fstatat(fd, "", found, AT_EMPTY_PATH) && S_ISREG(found->st_mode);
}

static bool is_absence(int error)
{
	return error == ENOENT || error == ENOTDIR;
}

/* The path was opened for reading before there is a device, or could not be. True: that is noted. */
static bool opened_early(const char *path, int fd)
{
	struct stat found;

	if (fd < 0)
		return is_absence(errno) && tpck_early_look(path, true, TPCK_LOOK_SEEN, NULL);
	if (tpck_early_knows(path, true, TPCK_LOOK_READ))
		return true;
	if (tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH))
		return false;
	return tpck_early_look(path, true, S_ISREG(found.st_mode) ? TPCK_LOOK_READ : TPCK_LOOK_SEEN, &found);
}

int tpck_follow_open(int folder, const char *path, int flags, mode_t mode)
{
	char absolute[PATH_SIZE];
	enum tpck_last last = TPCK_LAST_UNKNOWN;
	bool opened = false, absent;
	struct stat found;
	uint64_t digest;
	int fd = -1;

	if (plain_read(flags & ~O_DIRECTORY) && tpck_early_defers(folder, path) && !tpck_files_owes()) {
		fd = real_open(folder, path, flags, mode);
		opened = true;
		if (opened_early(path, fd))
			return fd;
	} else if (plain_read(flags) && tpck_follow_lately(path, true)) {
		return real_open(folder, path, flags, mode);
	}
	if (tpck_follow_writes(flags) || flags & O_CREAT)
		last = tpck_early_changes(folder, path, !(flags & O_NOFOLLOW));
	if (!tpck_follow_resolve_last(folder, path, !(flags & O_NOFOLLOW) && (flags & (O_CREAT | O_EXCL)) != (O_CREAT | O_EXCL), last,
				      absolute, &digest, &absent)) {
		fd = opened ? fd : real_open(folder, path, flags, mode);
		if (fd >= 0 && !tpck_follow_writes(flags) && tpck_temporary(absolute))
			tpck_folders_opened(fd, absolute);
		return fd;
	}
	if (tpck_overlay_active() && flags & O_CREAT && !tpck_overlay_find(digest) &&
	    ((flags & O_EXCL && tpck_temporary_begins(absolute, mode, 0600)) || tpck_temporary_named(absolute))) {
		fd = real_open(folder, path, flags, mode);
	} else if (tpck_overlay_active() && !(flags & O_PATH && !(flags & O_DIRECTORY))) {
		fd = tpck_overlay_open(absolute, digest, flags, mode);
	} else if (!tpck_overlay_active() && plain_read(flags) && !tpck_files_owes()) {
		/* What is open now is what is at the path: nothing of it has to be asked for by its name. */
		fd = opened ? fd : real_open(folder, path, flags, mode);
		if (fd >= 0 && is_file(fd, &found)) {
			tpck_follow_has_opened(absolute, digest, &found);
			tpck_follow_lately_note(path, true);
			return fd;
		}
		tpck_follow_opens(absolute, digest, flags, false);
	} else {
		if (flags & (O_PATH | O_DIRECTORY))
			tpck_follow_about(absolute, digest, false, false, false);
		else
			tpck_follow_opens(absolute, digest, flags, absent && !opened);
		if (!opened)
			fd = absent ? tpck_files_open_new(folder, path, flags, mode) : real_open(folder, path, flags, mode);
		if (fd >= 0 && (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL))
			tpck_leftovers_made(fd);
		if (fd >= 0 && absent)
			tpck_names_made(absolute);
		if (fd >= 0 && plain_read(flags) && is_file(fd, &found))
			tpck_follow_lately_note(path, true);
	}
	if (fd >= 0 && !tpck_follow_writes(flags))
		tpck_folders_opened(fd, absolute);
	return fd;
}

bool tpck_follow_redirects(const char *path)
{
	char absolute[PATH_SIZE];
	uint64_t digest;

	return tpck_overlay_active() && tpck_follow_resolve(AT_FDCWD, path, true, absolute, &digest);
}

void tpck_follow_touch(int folder, const char *path, int flags)
{
	enum tpck_last last = TPCK_LAST_UNKNOWN;
	char absolute[PATH_SIZE];
	struct stat found;
	uint64_t digest;
	bool absent;

	if (plain_read(flags) && tpck_early_defers(folder, path)) {
		int saved = errno, result = tpck_files_stat(folder, path, &found, 0);
		bool noted = result ? is_absence(errno) && tpck_early_look(path, true, TPCK_LOOK_SEEN, NULL)
				    : tpck_early_look(path, true, S_ISREG(found.st_mode) ? TPCK_LOOK_READ : TPCK_LOOK_SEEN, &found);

		errno = saved;
		if (noted)
			return;
	}
	if (tpck_follow_writes(flags) || flags & O_CREAT)
		last = tpck_early_changes(folder, path, true);
	if (tpck_follow_resolve_last(folder, path, true, last, absolute, &digest, &absent))
		tpck_follow_opens(absolute, digest, flags, absent);
}

static int renamed(int from_folder, const char *from, int to_folder, const char *to)
{
	char from_path[PATH_SIZE], to_path[PATH_SIZE];
	uint64_t from_digest, to_digest;
	bool from_followed, to_followed;

	tpck_early_changes(from_folder, from, false);
	tpck_early_changes(to_folder, to, false);
	from_followed = tpck_follow_resolve(from_folder, from, false, from_path, &from_digest);
	to_followed = tpck_follow_resolve(to_folder, to, false, to_path, &to_digest);
	if (tpck_overlay_active() && to_followed && !from_followed &&
	    (tpck_temporary(from_path) || tpck_caches_hold(from_path)))
		return tpck_overlay_take(from_path, to_path, to_digest);
	if (tpck_overlay_active() && from_followed && !to_followed && (tpck_temporary(to_path) || tpck_caches_hold(to_path)))
		return tpck_overlay_give(from_path, from_digest, to_path);
	if (tpck_overlay_active() && from_followed && to_followed)
		return tpck_overlay_rename(from_path, from_digest, to_path, to_digest);
	/* The renamed file's content will be asked for when the renaming is done again. */
	if (!tpck_overlay_active() && from_followed)
		tpck_follow_about(from_path, from_digest, true, true, true);
	if (!tpck_overlay_active() && to_followed) {
		tpck_follow_about(to_path, to_digest, false, true, true);
		tpck_follow_makes(to_path);
	}
	if (!tpck_overlay_active() && from_followed && to_followed)
		tpck_follow_moves(from_path, to_path);
	return tpck_files_rename(from_folder, from, to_folder, to, 0);
}

int tpck_follow_rename(int from_folder, const char *from, int to_folder, const char *to)
{
	int result = renamed(from_folder, from, to_folder, to);

	tpck_names_changed();
	return result;
}

static int unlinked(int folder, const char *path, int flags)
{
	char absolute[PATH_SIZE];
	uint64_t digest;

	tpck_early_changes(folder, path, false);
	if (tpck_follow_resolve(folder, path, false, absolute, &digest)) {
		if (tpck_overlay_active())
			return tpck_overlay_unlink(absolute, digest, flags);
		tpck_follow_about(absolute, digest, false, true, true);
	}
	return tpck_files_unlink(folder, path, flags);
}

int tpck_follow_unlink(int folder, const char *path, int flags)
{
	int result = unlinked(folder, path, flags);

	tpck_names_changed();
	return result;
}

int tpck_follow_mkdir(int folder, const char *path, mode_t mode)
{
	char absolute[PATH_SIZE];
	uint64_t digest;

	tpck_early_makes(folder, path);
	if (tpck_follow_resolve(folder, path, false, absolute, &digest)) {
		if (tpck_overlay_active() && (tpck_overlay_find(digest) || !tpck_temporary_begins(absolute, mode, 0700)))
			return tpck_overlay_mkdir(absolute, digest, mode);
		if (tpck_overlay_active())
			return tpck_files_mkdir(folder, path, mode);
		tpck_follow_about(absolute, digest, false, false, false);
		tpck_follow_makes(absolute);
	}
	return tpck_files_mkdir(folder, path, mode);
}

/* The path was asked for before there is a device, by a call that tells nothing of it but that it is there. True: that is noted. */
static bool asked_early(int folder, const char *path, int flags, bool failed)
{
	bool follow = !(flags & AT_SYMLINK_NOFOLLOW), absent = failed && is_absence(errno), noted;
	struct stat found;
	int saved = errno;

	if ((!failed || absent) && tpck_early_knows(path, follow, TPCK_LOOK_SEEN))
		return true;
	if (!absent && tpck_files_stat(folder, path, &found, flags & AT_SYMLINK_NOFOLLOW)) {
		absent = is_absence(errno);
		if (!absent) {
			errno = saved;
			return false;
		}
	}
	noted = tpck_early_look(path, follow, TPCK_LOOK_SEEN, absent ? NULL : &found);
	errno = saved;
	return noted;
}

int tpck_follow_access(int folder, const char *path, int mode, int flags)
{
	char absolute[PATH_SIZE];
	struct stat found;
	uint64_t digest;

	if (tpck_early_defers(folder, path)) {
		int result = tpck_files_access(folder, path, mode, flags);

		if (asked_early(folder, path, flags, result < 0))
			return result;
	}
	if (tpck_follow_resolve(folder, path, !(flags & AT_SYMLINK_NOFOLLOW), absolute, &digest)) {
		if (tpck_overlay_active()) {
			int known = tpck_overlay_stat(absolute, digest, &found);

			if (known != TPCK_OVERLAY_REAL)
				return known;
			folder = AT_FDCWD;
			path = absolute;
		} else {
			tpck_follow_about(absolute, digest, false, false, false);
			tpck_follow_lately_note(path, false);
		}
	}
	return tpck_files_access(folder, path, mode, flags);
}

/* An answer that the kernel does not give: 0, or -1 with what it says of a pointer that is none. */
static int given(void *to, const void *answer, size_t bytes)
{
	if (!tpck_readable(to, bytes)) {
		errno = EFAULT;
		return -1;
	}
	memcpy(to, answer, bytes);
	return 0;
}

int tpck_follow_stat(int folder, const char *path, struct stat *found, int flags)
{
	char absolute[PATH_SIZE];
	bool first = false, early = tpck_early_defers(folder, path);
	uint64_t digest;
	int result;

	if (!early && !tpck_follow_lately(path, false) &&
	    tpck_follow_resolve(folder, path, !(flags & AT_SYMLINK_NOFOLLOW), absolute, &digest)) {
		if (tpck_overlay_active()) {
			struct stat answer;
			int known = tpck_overlay_stat(absolute, digest, &answer);

			if (!known)
				return given(found, &answer, sizeof answer);
			if (known != TPCK_OVERLAY_REAL)
				return known;
			folder = AT_FDCWD;
			path = absolute;
		} else {
			first = true;
		}
	}
	result = tpck_files_stat(folder, path, found, flags);
	if (early) {
		if ((result && !is_absence(errno)) ||
		    !tpck_early_look(path, !(flags & AT_SYMLINK_NOFOLLOW), TPCK_LOOK_SEEN, result ? NULL : found))
			first = tpck_follow_resolve(folder, path, !(flags & AT_SYMLINK_NOFOLLOW), absolute, &digest);
	}
	if (first) {
		/* What the program is told is what was there; where it is told nothing, somebody has to look. */
		if (!result || is_absence(errno))
			tpck_follow_seen(absolute, digest, result ? NULL : found);
		else
			tpck_follow_about(absolute, digest, false, false, false);
		tpck_follow_lately_note(path, false);
	}
	if (!result && tpck_follow_shows())
		tpck_follow_shown(found);
	return result;
}

/* What the kernel has found, or found nothing at, it has read. All else is rare, and asked for once more. */
int tpck_follow_first_access(const char *path, int mode, int flags)
{
	int result = flags ? tpck_sys_faccessat2(AT_FDCWD, path, mode, flags) : tpck_sys_faccessat(AT_FDCWD, path, mode);

	if (result && !is_absence(errno) && !tpck_readable_path(path))
		return result;
	return asked_early(AT_FDCWD, path, flags, result < 0) ? result : tpck_follow_access(AT_FDCWD, path, mode, flags);
}

int tpck_follow_first_stat(const char *path, struct stat *found, int flags)
{
	int result = tpck_sys_fstatat(AT_FDCWD, path, found, flags);
	bool there = !result || is_absence(errno);

	/* The kernel takes no path at all with AT_EMPTY_PATH. */
	if (!path || (!there && !tpck_readable_path(path)))
		return result;
	if (there && tpck_early_look(path, !(flags & AT_SYMLINK_NOFOLLOW), TPCK_LOOK_SEEN, result ? NULL : found))
		return result;
	return tpck_follow_stat(AT_FDCWD, path, found, flags);
}

int tpck_follow_truncate(const char *path, off_t bytes)
{
	char absolute[PATH_SIZE];
	uint64_t digest;

	tpck_early_changes(AT_FDCWD, path, true);
	if (tpck_follow_resolve(AT_FDCWD, path, true, absolute, &digest)) {
		if (tpck_overlay_active()) {
			int fd = tpck_overlay_open(absolute, digest, O_WRONLY | O_CLOEXEC, 0), result;

			if (fd < 0)
				return -1;
			result = tpck_sys_ftruncate(fd, bytes);
			tpck_sys_close(fd);
			return result;
		}
		tpck_follow_opens(absolute, digest, O_WRONLY, false);
	}
	return tpck_files_truncate(path, bytes);
}

int tpck_follow_symlink(const char *target, int folder, const char *path)
{
	char absolute[PATH_SIZE];
	uint64_t digest;
	int result;

	tpck_early_settle();
	if (tpck_follow_resolve(folder, path, false, absolute, &digest)) {
		if (tpck_overlay_active()) {
			result = tpck_overlay_symlink(target, absolute, digest);
			tpck_names_changed();
			return result;
		}
		tpck_follow_about(absolute, digest, false, false, false);
		tpck_follow_makes(absolute);
	}
	result = tpck_files_symlink(target, folder, path);
	tpck_names_changed();
	return result;
}

int tpck_follow_link(int from_folder, const char *from, int to_folder, const char *to, int flags)
{
	char from_path[PATH_SIZE], to_path[PATH_SIZE];
	uint64_t from_digest, to_digest;

	tpck_early_makes(to_folder, to);
	if (tpck_follow_resolve(from_folder, from, flags & AT_SYMLINK_FOLLOW, from_path, &from_digest) &&
	    tpck_follow_resolve(to_folder, to, false, to_path, &to_digest)) {
		if (tpck_overlay_active())
			return tpck_overlay_link(from_path, from_digest, to_path, to_digest);
		tpck_follow_about(from_path, from_digest, true, false, false);
		tpck_follow_about(to_path, to_digest, false, false, false);
		tpck_follow_makes(to_path);
	}
	return tpck_files_link(from_folder, from, to_folder, to, flags);
}

ssize_t tpck_follow_readlink(int folder, const char *path, char *target, size_t size)
{
	char absolute[PATH_SIZE];
	uint64_t digest;

	if (tpck_early_defers(folder, path)) {
		ssize_t got = tpck_files_readlink(folder, path, target, size);

		if (asked_early(folder, path, AT_SYMLINK_NOFOLLOW, got < 0))
			return got;
	}
	if (tpck_follow_resolve(folder, path, false, absolute, &digest)) {
		if (tpck_overlay_active()) {
			ssize_t known = tpck_overlay_readlink(absolute, digest, target, size);

			if (known != TPCK_OVERLAY_REAL)
				return known;
			folder = AT_FDCWD;
			path = absolute;
		} else {
			tpck_follow_about(absolute, digest, false, false, false);
		}
	}
	return tpck_files_readlink(folder, path, target, size);
}

int tpck_follow_chmod(int folder, const char *path, mode_t mode)
{
	char absolute[PATH_SIZE];
	uint64_t digest;

	if (tpck_follow_resolve(folder, path, true, absolute, &digest)) {
		if (tpck_overlay_active())
			return tpck_overlay_chmod(absolute, digest, mode);
		tpck_follow_about(absolute, digest, true, false, false);
	}
	return tpck_files_chmod(folder, path, mode);
}

int tpck_follow_times(int folder, const char *path, const struct timespec times[2], int flags)
{
	bool follow = !(flags & AT_SYMLINK_NOFOLLOW), absent;
	enum tpck_last last = tpck_early_changes(folder, path, follow);
	char absolute[PATH_SIZE];
	uint64_t digest;

	if (tpck_follow_resolve_last(folder, path, follow, last, absolute, &digest, &absent)) {
		if (tpck_overlay_active())
			return tpck_overlay_times(absolute, digest, times);
		/* What was read is told by its time. */
		tpck_follow_about(absolute, digest, true, true, false);
	}
	return tpck_files_times(folder, path, times, flags);
}

const char *tpck_follow_place(int folder, const char *path, bool follow, bool changes, char *buffer)
{
	uint64_t digest;

	/* A path that was read is noted already. */
	if (tpck_early_defers(folder, path) && tpck_early_knows(path, follow, TPCK_LOOK_READ))
		return tpck_files_place(folder, path, follow, changes, buffer);
	if (!tpck_follow_resolve(folder, path, follow, buffer, &digest))
		return tpck_files_place(folder, path, follow, changes, buffer);
	if (tpck_overlay_active())
		return tpck_overlay_place(buffer, digest, changes);
	/* What was read is told by its time, which is not that of its attributes. */
	tpck_follow_about(buffer, digest, true, false, false);
	return tpck_files_place(folder, path, follow, changes, buffer);
}

const char *tpck_follow_around(const char *path, char *buffer)
{
	struct stat found;
	uint64_t digest;
	char *slash;
	int known;

	if (!tpck_overlay_active() || !tpck_follow_resolve(AT_FDCWD, path, true, buffer, &digest))
		return path;
	known = tpck_overlay_stat(buffer, digest, &found);
	if (known)
		return known == TPCK_OVERLAY_REAL ? path : NULL;
	while (tpck_sys_faccessat(AT_FDCWD, buffer, F_OK) && (slash = strrchr(buffer, '/')) && slash != buffer)
		*slash = '\0';
	return buffer;
}

/* ---- listings ------------------------------------------------------------------------------- */

static const char *listing(const char *absolute, uint64_t digest)
{
	const struct tpck_record_file *listed;

	if (!tpck_overlay_active()) {
		tpck_follow_lists(absolute, digest);
		return NULL;
	}
	listed = tpck_learnt_listing(absolute, digest);
	return listed ? tpck_folders_list(listed, absolute) : NULL;
}

static bool listed_early(const char *path)
{
	struct stat found;
	int saved = errno;
	bool noted;

	if (tpck_files_stat(AT_FDCWD, path, &found, 0))
		noted = is_absence(errno) && tpck_early_look(path, true, TPCK_LOOK_SEEN, NULL);
	else
		noted = tpck_early_look(path, true, S_ISDIR(found.st_mode) ? TPCK_LOOK_LISTED : TPCK_LOOK_SEEN, &found);
	errno = saved;
	return noted;
}

const char *tpck_follow_listing(const char *path)
{
	char absolute[PATH_SIZE];
	const char *listed = NULL;
	int saved = errno;
	uint64_t digest;

	if (tpck_early_defers(AT_FDCWD, path) && listed_early(path))
		return NULL;
	if (tpck_follow_resolve(AT_FDCWD, path, true, absolute, &digest))
		listed = listing(absolute, digest);
	errno = saved;
	return listed;
}

void tpck_follow_listed(const char *path, int fd)
{
	char absolute[PATH_SIZE];
	uint64_t digest;

	/* What the kernel calls it is its name as long as nothing runs forward. */
	if (!tpck_early_defers(AT_FDCWD, path) && tpck_follow_resolve(AT_FDCWD, path, true, absolute, &digest))
		tpck_folders_opened(fd, absolute);
}

void tpck_follow_listing_of(int fd)
{
	char link[64], name[PATH_SIZE], absolute[PATH_SIZE];
	const char *listed = NULL;
	int saved = errno, instead;
	uint64_t digest;
	ssize_t got;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	got = tpck_sys_readlink(link, name, sizeof name - 1);
	if (got > 0) {
		name[got] = '\0';
		tpck_folders_named(name, name, sizeof name);
		if (tpck_follow_resolve(AT_FDCWD, name, true, absolute, &digest))
			listed = listing(absolute, digest);
	}
	instead = listed ? real_open(AT_FDCWD, listed, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0) : -1;
	if (instead >= 0) {
		tpck_sys_dup3(instead, fd, O_CLOEXEC);
		tpck_sys_close(instead);
	}
	errno = saved;
}
