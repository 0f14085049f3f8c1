/* SPDX-License-Identifier: Apache-2.0 */
/* The layer of the record (files/layer.h): the calls on paths, while recording and while running forward. Listings have calls of their own. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/follow/follow.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "runtime/base/readable.h"
#include "runtime/files/files.h"
#include "runtime/files/layer.h"
#include "runtime/follow/caches.h"
#include "runtime/follow/follow_private.h"

static const struct tpck_layer *const below = &tpck_layer_pending;

/* Functions with paths on their stack: threads' stacks may be small. */
#define SLOW __attribute__((noinline))

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

static int follow_open(const struct tpck_at *at, int flags, mode_t mode)
{
	struct tpck_at named = *at;
	enum tpck_last last = TPCK_LAST_UNKNOWN;
	struct tpck_name name;
	bool opened = false;
	struct stat found;
	int fd = -1;

	if (plain_read(flags & ~O_DIRECTORY) && tpck_early_defers(at->folder, at->path) && !tpck_files_owes()) {
		fd = below->open(at, flags, mode);
		opened = true;
		if (opened_early(at->path, fd))
			return fd;
	} else if (plain_read(flags) && tpck_follow_lately(at->path, true)) {
		return below->open(at, flags, mode);
	}
	if (tpck_follow_writes(flags) || flags & O_CREAT)
		last = tpck_early_changes(at, !(flags & O_NOFOLLOW));
	if (!tpck_follow_resolve_last(at, !(flags & O_NOFOLLOW) && (flags & (O_CREAT | O_EXCL)) != (O_CREAT | O_EXCL), last, &name)) {
		fd = opened ? fd : below->open(at, flags, mode);
		if (fd >= 0 && !tpck_follow_writes(flags) && tpck_temporary(name.path))
			tpck_folders_opened(fd, name.path);
		return fd;
	}
	named.absolute = name.literal ? name.path : NULL;
	if (tpck_overlay_active() && flags & O_CREAT && !tpck_overlay_find(name.digest) &&
	    ((flags & O_EXCL && tpck_temporary_begins(name.path, mode, 0600)) || tpck_temporary_named(name.path))) {
		fd = below->open(&named, flags, mode);
	} else if (tpck_overlay_active() && !(flags & O_PATH && !(flags & O_DIRECTORY))) {
		fd = tpck_overlay_open(name.path, name.digest, flags, mode);
	} else if (!tpck_overlay_active() && plain_read(flags) && !tpck_files_owes()) {
		/* What is open now is what is at the path: nothing of it has to be asked for by its name. */
		fd = opened ? fd : below->open(&named, flags, mode);
		if (fd >= 0 && is_file(fd, &found)) {
			tpck_follow_has_opened(name.path, name.digest, &found);
			tpck_follow_lately_note(at->path, true);
			return fd;
		}
		tpck_follow_opens(name.path, name.digest, flags, false);
	} else {
		if (flags & (O_PATH | O_DIRECTORY))
			tpck_follow_about(name.path, name.digest, false, false, false);
		else
			tpck_follow_opens(name.path, name.digest, flags, name.absent && !opened);
		named.absent = name.absent;
		if (!opened)
			fd = below->open(&named, flags, mode);
		if (fd >= 0 && (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL))
			tpck_leftovers_made(fd);
		if (fd >= 0 && name.absent)
			tpck_names_made(name.path);
		if (fd >= 0 && plain_read(flags) && is_file(fd, &found))
			tpck_follow_lately_note(at->path, true);
	}
	if (fd >= 0 && !tpck_follow_writes(flags))
		tpck_folders_opened(fd, name.path);
	return fd;
}

static bool follow_redirects(const struct tpck_at *at, int flags)
{
	struct tpck_name name;

	return (tpck_overlay_active() && tpck_follow_resolve(at, true, &name)) || below->redirects(at, flags);
}

static void follow_touches(const struct tpck_at *at, int flags)
{
	enum tpck_last last = TPCK_LAST_UNKNOWN;
	struct tpck_name name;
	struct stat found;

	if (plain_read(flags) && tpck_early_defers(at->folder, at->path)) {
		int saved = errno, result = below->stat(at, &found, 0);
		bool noted = result ? is_absence(errno) && tpck_early_look(at->path, true, TPCK_LOOK_SEEN, NULL)
				    : tpck_early_look(at->path, true, S_ISREG(found.st_mode) ? TPCK_LOOK_READ : TPCK_LOOK_SEEN, &found);

		errno = saved;
		if (noted)
			return;
	}
	if (tpck_follow_writes(flags) || flags & O_CREAT)
		last = tpck_early_changes(at, true);
	if (tpck_follow_resolve_last(at, true, last, &name))
		tpck_follow_opens(name.path, name.digest, flags, name.absent);
}

static int follow_mkdir(const struct tpck_at *at, mode_t mode)
{
	struct tpck_name name;

	tpck_early_makes(at);
	if (tpck_follow_resolve(at, false, &name)) {
		if (tpck_overlay_active() && (tpck_overlay_find(name.digest) || !tpck_temporary_begins(name.path, mode, 0700)))
			return tpck_overlay_mkdir(name.path, name.digest, mode);
		if (tpck_overlay_active())
			return below->mkdir(at, mode);
		tpck_follow_about(name.path, name.digest, false, false, false);
		tpck_follow_makes(name.path);
	}
	return below->mkdir(at, mode);
}

/* The path was asked for before there is a device, by a call that tells nothing of it but that it is there. True: that is noted. */
static bool asked_early(const struct tpck_at *at, int flags, bool failed)
{
	bool follow = !(flags & AT_SYMLINK_NOFOLLOW), absent = failed && is_absence(errno), noted;
	struct stat found;
	int saved = errno;

	if ((!failed || absent) && tpck_early_knows(at->path, follow, TPCK_LOOK_SEEN))
		return true;
	if (!absent && below->stat(at, &found, flags & AT_SYMLINK_NOFOLLOW)) {
		absent = is_absence(errno);
		if (!absent) {
			errno = saved;
			return false;
		}
	}
	noted = tpck_early_look(at->path, follow, TPCK_LOOK_SEEN, absent ? NULL : &found);
	errno = saved;
	return noted;
}

static int follow_access(const struct tpck_at *at, int mode, int flags)
{
	struct tpck_name name;
	struct stat found;

	if (tpck_early_defers(at->folder, at->path)) {
		int result = below->access(at, mode, flags);

		if (asked_early(at, flags, result < 0))
			return result;
	}
	if (tpck_follow_resolve(at, !(flags & AT_SYMLINK_NOFOLLOW), &name)) {
		if (tpck_overlay_active()) {
			int known = tpck_overlay_stat(name.path, name.digest, &found);

			return known != TPCK_OVERLAY_REAL ? known : below->access(TPCK_AT(AT_FDCWD, name.path), mode, flags);
		}
		tpck_follow_about(name.path, name.digest, false, false, false);
		tpck_follow_lately_note(at->path, false);
	}
	return below->access(at, mode, flags);
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

static int follow_stat(const struct tpck_at *at, struct stat *found, int flags)
{
	bool follow = !(flags & AT_SYMLINK_NOFOLLOW), first = false, early = tpck_early_defers(at->folder, at->path);
	struct tpck_at real = *at;
	struct tpck_name name;
	int result;

	if (!early && !tpck_follow_lately(at->path, false) && tpck_follow_resolve(at, follow, &name)) {
		if (tpck_overlay_active()) {
			struct stat answer;
			int known = tpck_overlay_stat(name.path, name.digest, &answer);

			if (!known)
				return given(found, &answer, sizeof answer);
			if (known != TPCK_OVERLAY_REAL)
				return known;
			real.folder = AT_FDCWD;
			real.path = name.path;
		} else {
			first = true;
		}
	}
	result = below->stat(&real, found, flags);
	if (early) {
		if ((result && !is_absence(errno)) || !tpck_early_look(at->path, follow, TPCK_LOOK_SEEN, result ? NULL : found))
			first = tpck_follow_resolve(at, follow, &name);
	}
	if (first) {
		/* What the program is told is what was there; where it is told nothing, somebody has to look. */
		if (!result || is_absence(errno))
			tpck_follow_seen(name.path, name.digest, result ? NULL : found);
		else
			tpck_follow_about(name.path, name.digest, false, false, false);
		tpck_follow_lately_note(at->path, false);
	}
	if (!result && tpck_follow_shows())
		tpck_follow_shown(found);
	return result;
}

int tpck_follow_to_statx(const struct stat *from, struct statx *to)
{
	struct statx answer = {
		.stx_mask = STATX_BASIC_STATS,
		.stx_blksize = (uint32_t)from->st_blksize,
		.stx_nlink = (uint32_t)from->st_nlink,
		.stx_uid = from->st_uid,
		.stx_gid = from->st_gid,
		.stx_mode = (uint16_t)from->st_mode,
		.stx_ino = from->st_ino,
		.stx_size = (uint64_t)from->st_size,
		.stx_blocks = (uint64_t)from->st_blocks,
		.stx_atime = {.tv_sec = from->st_atim.tv_sec, .tv_nsec = (uint32_t)from->st_atim.tv_nsec},
		.stx_mtime = {.tv_sec = from->st_mtim.tv_sec, .tv_nsec = (uint32_t)from->st_mtim.tv_nsec},
		.stx_ctime = {.tv_sec = from->st_ctim.tv_sec, .tv_nsec = (uint32_t)from->st_ctim.tv_nsec},
		.stx_dev_major = major(from->st_dev),
		.stx_dev_minor = minor(from->st_dev),
	};

	return given(to, &answer, sizeof answer);
}

/* With the overlay the answer is its own; else it only notes the touch, and the layers below answer. */
static int follow_statx(const struct tpck_at *at, int flags, unsigned mask, struct statx *found)
{
	struct stat plain;

	if (*at->path && follow_stat(at, &plain, flags & AT_SYMLINK_NOFOLLOW))
		return -1;
	return *at->path && tpck_overlay_active() ? tpck_follow_to_statx(&plain, found) : below->statx(at, flags, mask, found);
}

/* What the kernel has found, or found nothing at, it has read. All else is rare, and asked for once more. */
int tpck_follow_first_access(const char *path, int mode, int flags)
{
	int result = flags ? tpck_sys_faccessat2(AT_FDCWD, path, mode, flags) : tpck_sys_faccessat(AT_FDCWD, path, mode);

	if (result && !is_absence(errno) && !tpck_readable_path(path))
		return result;
	return asked_early(TPCK_AT(AT_FDCWD, path), flags, result < 0) ? result : follow_access(TPCK_AT(AT_FDCWD, path), mode, flags);
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
	return follow_stat(TPCK_AT(AT_FDCWD, path), found, flags);
}

static int renamed(const struct tpck_at *from, const struct tpck_at *to)
{
	struct tpck_name from_name, to_name;
	bool from_followed, to_followed;

	tpck_early_changes(from, false);
	tpck_early_changes(to, false);
	from_followed = tpck_follow_resolve(from, false, &from_name);
	to_followed = tpck_follow_resolve(to, false, &to_name);
	if (tpck_overlay_active() && to_followed && !from_followed &&
	    (tpck_temporary(from_name.path) || tpck_caches_hold(from_name.path)))
		return tpck_overlay_take(from_name.path, to_name.path, to_name.digest);
	if (tpck_overlay_active() && from_followed && !to_followed && (tpck_temporary(to_name.path) || tpck_caches_hold(to_name.path)))
		return tpck_overlay_give(from_name.path, from_name.digest, to_name.path);
	if (tpck_overlay_active() && from_followed && to_followed)
		return tpck_overlay_rename(from_name.path, from_name.digest, to_name.path, to_name.digest);
	/* The renamed file's content will be asked for when the renaming is done again. */
	if (!tpck_overlay_active() && from_followed)
		tpck_follow_about(from_name.path, from_name.digest, true, true, true);
	if (!tpck_overlay_active() && to_followed) {
		tpck_follow_about(to_name.path, to_name.digest, false, true, true);
		tpck_follow_makes(to_name.path);
	}
	if (!tpck_overlay_active() && from_followed && to_followed)
		tpck_follow_moves(from_name.path, to_name.path);
	return below->rename(from, to, 0);
}

static int follow_rename(const struct tpck_at *from, const struct tpck_at *to, unsigned flags)
{
	struct stat found;
	int result;

	if (flags & ~(unsigned)RENAME_NOREPLACE) {
		errno = EINVAL;
		return -1;
	}
	if (flags && !follow_stat(to, &found, AT_SYMLINK_NOFOLLOW)) {
		errno = EEXIST;
		return -1;
	}
	result = renamed(from, to);
	tpck_names_changed();
	return result;
}

static int unlinked(const struct tpck_at *at, int flags)
{
	struct tpck_name name;

	tpck_early_changes(at, false);
	if (tpck_follow_resolve(at, false, &name)) {
		if (tpck_overlay_active())
			return tpck_overlay_unlink(name.path, name.digest, flags);
		tpck_follow_about(name.path, name.digest, false, true, true);
	}
	return below->unlink(at, flags);
}

static int follow_unlink(const struct tpck_at *at, int flags)
{
	int result = unlinked(at, flags);

	tpck_names_changed();
	return result;
}

static int follow_truncate(const struct tpck_at *at, off_t bytes)
{
	struct tpck_name name;

	tpck_early_changes(at, true);
	if (tpck_follow_resolve(at, true, &name)) {
		if (tpck_overlay_active()) {
			int fd = tpck_overlay_open(name.path, name.digest, O_WRONLY | O_CLOEXEC, 0), result;

			if (fd < 0)
				return -1;
			result = tpck_sys_ftruncate(fd, bytes);
			tpck_sys_close(fd);
			return result;
		}
		tpck_follow_opens(name.path, name.digest, O_WRONLY, false);
	}
	return below->truncate(at, bytes);
}

static int symlinked(const char *target, const struct tpck_at *at)
{
	struct tpck_name name;

	tpck_early_settle();
	if (tpck_follow_resolve(at, false, &name)) {
		if (tpck_overlay_active())
			return tpck_overlay_symlink(target, name.path, name.digest);
		tpck_follow_about(name.path, name.digest, false, false, false);
		tpck_follow_makes(name.path);
	}
	return below->symlink(target, at);
}

static int follow_symlink(const char *target, const struct tpck_at *at)
{
	int result = symlinked(target, at);

	tpck_names_changed();
	return result;
}

static int follow_link(const struct tpck_at *from, const struct tpck_at *to, int flags)
{
	struct tpck_name from_name, to_name;

	tpck_early_makes(to);
	if (tpck_follow_resolve(from, flags & AT_SYMLINK_FOLLOW, &from_name) && tpck_follow_resolve(to, false, &to_name)) {
		if (tpck_overlay_active())
			return tpck_overlay_link(from_name.path, from_name.digest, to_name.path, to_name.digest);
		tpck_follow_about(from_name.path, from_name.digest, true, false, false);
		tpck_follow_about(to_name.path, to_name.digest, false, false, false);
		tpck_follow_makes(to_name.path);
	}
	return below->link(from, to, flags);
}

static ssize_t follow_readlink(const struct tpck_at *at, char *target, size_t size)
{
	struct tpck_name name;

	if (tpck_early_defers(at->folder, at->path)) {
		ssize_t got = below->readlink(at, target, size);

		if (asked_early(at, AT_SYMLINK_NOFOLLOW, got < 0))
			return got;
	}
	if (tpck_follow_resolve(at, false, &name)) {
		if (tpck_overlay_active()) {
			ssize_t known = tpck_overlay_readlink(name.path, name.digest, target, size);

			return known != TPCK_OVERLAY_REAL ? known : below->readlink(TPCK_AT(AT_FDCWD, name.path), target, size);
		}
		tpck_follow_about(name.path, name.digest, false, false, false);
	}
	return below->readlink(at, target, size);
}

static int follow_chmod(const struct tpck_at *at, mode_t mode)
{
	struct tpck_name name;

	if (tpck_follow_resolve(at, true, &name)) {
		if (tpck_overlay_active())
			return tpck_overlay_chmod(name.path, name.digest, mode);
		tpck_follow_about(name.path, name.digest, true, false, false);
	}
	return below->chmod(at, mode);
}

static int follow_times(const struct tpck_at *at, const struct timespec times[2], int flags)
{
	bool follow = !(flags & AT_SYMLINK_NOFOLLOW);
	enum tpck_last last = tpck_early_changes(at, follow);
	struct tpck_name name;

	if (tpck_follow_resolve_last(at, follow, last, &name)) {
		if (tpck_overlay_active())
			return tpck_overlay_times(name.path, name.digest, times);
		/* What was read is told by its time. */
		tpck_follow_about(name.path, name.digest, true, true, false);
	}
	return below->times(at, times, flags);
}

/* Whether the overlay has the answer of the two below: *place. Functions of their own: what they have on the stack is not there when the layer below is asked. */
static SLOW bool overlay_place(const struct tpck_at *at, bool follow, bool changes, char *buffer, const char **place)
{
	struct tpck_name name;

	if (!tpck_follow_resolve(at, follow, &name))
		return false;
	if (tpck_overlay_active()) {
		*place = tpck_overlay_place(strcpy(buffer, name.path), name.digest, changes);
		return true;
	}
	/* What was read is told by its time, which is not that of its attributes. */
	tpck_follow_about(name.path, name.digest, true, false, false);
	return false;
}

static SLOW bool overlay_around(const struct tpck_at *at, char *buffer, const char **place)
{
	struct tpck_name name;
	struct stat found;
	char *slash;
	int known;

	known = tpck_follow_resolve(at, true, &name) ? tpck_overlay_stat(name.path, name.digest, &found) : TPCK_OVERLAY_REAL;
	*place = known ? NULL : strcpy(buffer, name.path);
	while (!known && tpck_sys_faccessat(AT_FDCWD, buffer, F_OK) && (slash = strrchr(buffer, '/')) && slash != buffer)
		*slash = '\0';
	return known != TPCK_OVERLAY_REAL;
}

static const char *follow_place(const struct tpck_at *at, bool follow, bool changes, char *buffer)
{
	/* A path that was read is noted already. */
	bool noted = tpck_early_defers(at->folder, at->path) && tpck_early_knows(at->path, follow, TPCK_LOOK_READ);
	const char *place;

	return !noted && overlay_place(at, follow, changes, buffer, &place) ? place : below->place(at, follow, changes, buffer);
}

static const char *follow_around(const struct tpck_at *at, char *buffer)
{
	const char *place;

	return tpck_overlay_active() && overlay_around(at, buffer, &place) ? place : below->around(at, buffer);
}

const struct tpck_layer tpck_layer_follow = {
	.open = follow_open,
	.stat = follow_stat,
	.statx = follow_statx,
	.access = follow_access,
	.readlink = follow_readlink,
	.truncate = follow_truncate,
	.chmod = follow_chmod,
	.times = follow_times,
	.mkdir = follow_mkdir,
	.symlink = follow_symlink,
	.link = follow_link,
	.unlink = follow_unlink,
	.rename = follow_rename,
	.place = follow_place,
	.around = follow_around,
	.redirects = follow_redirects,
	.touches = follow_touches,
};

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

	if (below->stat(TPCK_AT(AT_FDCWD, path), &found, 0))
		noted = is_absence(errno) && tpck_early_look(path, true, TPCK_LOOK_SEEN, NULL);
	else
		noted = tpck_early_look(path, true, S_ISDIR(found.st_mode) ? TPCK_LOOK_LISTED : TPCK_LOOK_SEEN, &found);
	errno = saved;
	return noted;
}

const char *tpck_follow_listing(const char *path)
{
	const char *listed = NULL;
	struct tpck_name name;
	int saved = errno;

	if (tpck_early_defers(AT_FDCWD, path) && listed_early(path))
		return NULL;
	if (tpck_follow_resolve(TPCK_AT(AT_FDCWD, path), true, &name))
		listed = listing(name.path, name.digest);
	errno = saved;
	return listed;
}

void tpck_follow_listed(const char *path, int fd)
{
	struct tpck_name name;

	/* What the kernel calls it is its name as long as nothing runs forward. */
	if (!tpck_early_defers(AT_FDCWD, path) && tpck_follow_resolve(TPCK_AT(AT_FDCWD, path), true, &name))
		tpck_folders_opened(fd, name.path);
}

void tpck_follow_listing_of(int fd)
{
	char link[64], called[TPCK_FOLLOW_PATH];
	const char *listed = NULL;
	struct tpck_name name;
	int saved = errno, instead;
	ssize_t got;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	got = tpck_sys_readlink(link, called, sizeof called - 1);
	if (got > 0) {
		called[got] = '\0';
		tpck_folders_named(called, called, sizeof called);
		if (tpck_follow_resolve(TPCK_AT(AT_FDCWD, called), true, &name))
			listed = listing(name.path, name.digest);
	}
	instead = listed ? below->open(TPCK_AT(AT_FDCWD, listed), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0) : -1;
	if (instead >= 0) {
		tpck_sys_dup3(instead, fd, O_CLOEXEC);
		tpck_sys_close(instead);
	}
	errno = saved;
}
