/* SPDX-License-Identifier: Apache-2.0 */
/* The calls on paths other than open, as the job sees them. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/files/files_private.h"
#include "runtime/files/layer.h"

enum { TRIES = 2000 };
static const struct tpck_layer *const below = &tpck_layer_kernel;

/* What is changed while the agent copies it is copied again: the change is made under the lock, which is NULL with
 * ENOENT where it is too late for it. */
static struct tpck_view *begin_change(const struct tpck_pending *pending)
{
	struct tpck_view *view = tpck_files_lock();
	struct tpck_view_entry *entry = view ? tpck_view_by_serial(view, pending->index, pending->serial) : NULL;

	if (entry && entry->state != TPCK_VIEW_COMMITTING)
		return view;
	if (view)
		tpck_view_unlock(view);
	errno = ENOENT;
	return NULL;
}

static void end_change(struct tpck_view *view, const struct tpck_pending *pending)
{
	int saved = errno;

	if (view) {
		view->entry[pending->index].changed++;
		tpck_view_unlock(view);
	}
	errno = saved;
}

/* A call that is made on the bytes of what is pending at a path. They may be published just then: ENOENT of such a path is looked at again. */
struct bytes {
	struct tpck_pending pending; /* where they are */
	struct tpck_view *locked;
	bool changes;
	bool done;                   /* the answer is there */
	int tries;
	long result;                 /* the caller's to set, between bytes_next() and the next one */
};

static void bytes_begin(struct bytes *of, bool changes)
{
	of->changes = changes;
	of->done = false;
	of->tries = -1;
}

/* Whether the call is to be made. Once it is not, either `done`, or nothing is pending there. */
static bool bytes_next(struct bytes *of, const struct tpck_at *at, bool follow)
{
	enum tpck_seen seen;

	do {
		if (of->tries >= 0) {
			if (of->changes)
				end_change(of->locked, &of->pending);
			of->done = !of->result || errno != ENOENT;
			if (!of->done && of->tries)
				tpck_files_breathe();
		}
		if (of->done || tpck_files_idle() || ++of->tries == TRIES)
			return false;
		seen = tpck_files_look(at->folder, at->path, follow, &of->pending);
		if (seen == TPCK_SEEN_REAL)
			return false;
		of->result = -1;
		if (seen == TPCK_SEEN_REMOVED) {
			errno = ENOENT;
			of->done = true;
			return false;
		}
		of->locked = of->changes ? begin_change(&of->pending) : NULL;
	} while (of->changes && !of->locked);
	return true;
}

static int verdict(int result, const struct tpck_at *at)
{
	return tpck_files_verdict(result, at->folder, at->path);
}

/* What is no link, and not pending by its own name, costs one call as ever. False: more is to be looked at. */
static TPCK_FILES_SLOW bool stat_plainly(const struct tpck_at *at, struct stat *found, int flags, int *result)
{
	struct tpck_pending pending;

	if (flags & AT_SYMLINK_NOFOLLOW || !at->path || !*at->path ||
	    tpck_files_look(at->folder, at->path, false, &pending) != TPCK_SEEN_REAL)
		return false;
	*result = below->stat(at, found, flags | AT_SYMLINK_NOFOLLOW);
	return *result || !S_ISLNK(found->st_mode);
}

static TPCK_FILES_SLOW int seen_stat(const struct tpck_at *at, struct stat *found, int flags)
{
	struct bytes of;
	int plain;

	tpck_files_stays(at->folder, at->path, !(flags & AT_SYMLINK_NOFOLLOW));
	if (!tpck_files_idle() && stat_plainly(at, found, flags, &plain))
		return plain;
	bytes_begin(&of, false);
	while (bytes_next(&of, at, !(flags & AT_SYMLINK_NOFOLLOW)))
		of.result = tpck_sys_fstatat(AT_FDCWD, of.pending.path, found, 0);
	if (of.done)
		return (int)of.result;
	return below->stat(at, found, flags);
}

static int pending_stat(const struct tpck_at *at, struct stat *found, int flags)
{
	return tpck_files_idle() ? below->stat(at, found, flags) : verdict(seen_stat(at, found, flags), at);
}

static TPCK_FILES_SLOW int seen_statx(const struct tpck_at *at, int flags, unsigned mask, struct statx *found)
{
	struct bytes of;

	tpck_files_stays(at->folder, at->path, !(flags & AT_SYMLINK_NOFOLLOW));
	bytes_begin(&of, false);
	while (bytes_next(&of, at, !(flags & AT_SYMLINK_NOFOLLOW)))
		of.result = tpck_sys_statx(AT_FDCWD, of.pending.path, flags, mask, found);
	if (of.done)
		return (int)of.result;
	return below->statx(at, flags, mask, found);
}

static int pending_statx(const struct tpck_at *at, int flags, unsigned mask, struct statx *found)
{
	return tpck_files_idle() ? below->statx(at, flags, mask, found) : verdict(seen_statx(at, flags, mask, found), at);
}

static TPCK_FILES_SLOW int seen_access(const struct tpck_at *at, int mode, int flags)
{
	struct bytes of;

	bytes_begin(&of, false);
	while (bytes_next(&of, at, !(flags & AT_SYMLINK_NOFOLLOW)))
		of.result = tpck_sys_faccessat(AT_FDCWD, of.pending.path, mode);
	if (of.done)
		return (int)of.result;
	return below->access(at, mode, flags);
}

static int pending_access(const struct tpck_at *at, int mode, int flags)
{
	return tpck_files_idle() || mode & ~(R_OK | W_OK | X_OK) ? below->access(at, mode, flags) : verdict(seen_access(at, mode, flags), at);
}

static TPCK_FILES_SLOW int seen_truncate(const struct tpck_at *at, off_t bytes)
{
	struct bytes of;

	bytes_begin(&of, true);
	while (bytes_next(&of, at, true))
		of.result = tpck_sys_truncate(of.pending.path, bytes);
	if (of.done)
		return (int)of.result;
	return below->truncate(at, bytes);
}

static int pending_truncate(const struct tpck_at *at, off_t bytes)
{
	return tpck_files_idle() || bytes < 0 ? below->truncate(at, bytes) : verdict(seen_truncate(at, bytes), at);
}

static TPCK_FILES_SLOW bool is_pending(int folder, const char *path, bool follow)
{
	struct tpck_pending pending;

	return !tpck_files_idle() && tpck_files_look(folder, path, follow, &pending) != TPCK_SEEN_REAL;
}

static TPCK_FILES_SLOW int seen_chmod(const struct tpck_at *at, mode_t mode)
{
	struct bytes of;
	int saved = errno;

	/* A program: whoever executes it asks the kernel for its path. */
	if (mode & 0111 && is_pending(at->folder, at->path, true)) {
		(void)tpck_files_settle_at(at->folder, at->path);
		errno = saved;
	}
	bytes_begin(&of, true);
	while (bytes_next(&of, at, true))
		of.result = tpck_sys_fchmodat(AT_FDCWD, of.pending.path, mode);
	if (of.done)
		return (int)of.result;
	return below->chmod(at, mode);
}

static int pending_chmod(const struct tpck_at *at, mode_t mode)
{
	return tpck_files_idle() ? below->chmod(at, mode) : verdict(seen_chmod(at, mode), at);
}

static TPCK_FILES_SLOW int seen_times(const struct tpck_at *at, const struct timespec times[2], int flags)
{
	struct bytes of;

	bytes_begin(&of, true);
	while (bytes_next(&of, at, !(flags & AT_SYMLINK_NOFOLLOW)))
		of.result = tpck_sys_utimensat(AT_FDCWD, of.pending.path, times, 0);
	if (of.done)
		return (int)of.result;
	return below->times(at, times, flags);
}

static int pending_times(const struct tpck_at *at, const struct timespec times[2], int flags)
{
	return tpck_files_idle() ? below->times(at, times, flags) : verdict(seen_times(at, times, flags), at);
}

static TPCK_FILES_SLOW ssize_t seen_readlink(const struct tpck_at *at, char *target, size_t size)
{
	struct tpck_pending pending;
	int numbered = at->path ? tpck_files_numbered(at->path) : -1;
	ssize_t got = numbered >= 0 ? tpck_files_name_of(numbered, target, size) : -2;

	if (got != -2)
		return got;
	if (!tpck_files_idle() && tpck_files_look(at->folder, at->path, false, &pending) != TPCK_SEEN_REAL) {
		errno = pending.kind == TPCK_VIEW_REMOVED ? ENOENT : EINVAL;
		return -1;
	}
	return below->readlink(at, target, size);
}

static ssize_t pending_readlink(const struct tpck_at *at, char *target, size_t size)
{
	return tpck_files_idle() ? below->readlink(at, target, size) : verdict((int)seen_readlink(at, target, size), at);
}

static TPCK_FILES_SLOW const char *seen_place(const struct tpck_at *at, bool follow, bool changes, char *buffer)
{
	struct tpck_pending pending;
	enum tpck_seen seen = tpck_files_idle() ? TPCK_SEEN_REAL : tpck_files_look(at->folder, at->path, follow, &pending);

	/* The agent may be copying it just now. */
	if (changes && seen == TPCK_SEEN_PENDING && tpck_files_settle_at(at->folder, at->path))
		seen = tpck_files_idle() ? TPCK_SEEN_REAL : tpck_files_look(at->folder, at->path, follow, &pending);
	if (seen == TPCK_SEEN_REAL)
		return below->place(at, follow, changes, buffer);
	if (seen == TPCK_SEEN_REMOVED) {
		errno = ENOENT;
		return NULL;
	}
	return strcpy(buffer, pending.path);
}

static const char *pending_place(const struct tpck_at *at, bool follow, bool changes, char *buffer)
{
	return tpck_files_idle() ? below->place(at, follow, changes, buffer) : seen_place(at, follow, changes, buffer);
}

static TPCK_FILES_SLOW int seen_runs(int folder, const char *path)
{
	struct tpck_pending pending;
	enum tpck_seen seen = tpck_files_look(folder, path, true, &pending);
	int saved = errno;

	if (seen == TPCK_SEEN_PENDING) {
		(void)tpck_files_settle_at(folder, path);
		seen = tpck_files_look(folder, path, true, &pending);
	}
	if (seen == TPCK_SEEN_REAL) {
		errno = saved;
		return 0;
	}
	if (seen == TPCK_SEEN_REMOVED)
		errno = ENOENT;
	else if (tpck_files_may(pending.path, X_OK))
		errno = ETXTBSY; /* somebody writes it */
	return -1;
}

int tpck_files_runs(int folder, const char *path)
{
	return tpck_files_idle() ? 0 : seen_runs(folder, path);
}

bool tpck_files_again(int tries)
{
	if (errno != ENOENT || tpck_files_idle())
		return errno == ENOENT && !tries;
	if (tries)
		tpck_files_breathe();
	return tries < TRIES;
}

static TPCK_FILES_SLOW const char *seen_around(const struct tpck_at *at, char *buffer)
{
	struct tpck_pending pending;
	const struct tpck_view_entry *entry;
	const char *around = at->path;
	struct tpck_view *view;

	switch (tpck_files_look(at->folder, at->path, true, &pending)) {
	case TPCK_SEEN_REAL:
		return below->around(at, buffer);
	case TPCK_SEEN_REMOVED:
		errno = ENOENT;
		return NULL;
	case TPCK_SEEN_PENDING:
		break;
	}
	view = tpck_files_lock();
	entry = view ? tpck_view_by_serial(view, pending.index, pending.serial) : NULL;
	if (entry)
		around = strcpy(buffer, view->folder[tpck_view_key_of(entry)->folder].path);
	if (view)
		tpck_view_unlock(view);
	return around;
}

static const char *pending_around(const struct tpck_at *at, char *buffer)
{
	return tpck_files_idle() ? below->around(at, buffer) : seen_around(at, buffer);
}

/* ---- names ------------------------------------------------------------------------------------ */

/* What the job sees by this name, whether or not a slash behind it says that a folder is meant. */
static TPCK_FILES_SLOW enum tpck_seen look_at_name(int folder, const char *path, struct tpck_pending *pending)
{
	size_t length = strnlen(path, TPCK_FILES_PATH);
	char name[TPCK_FILES_PATH];

	if (!length || length == TPCK_FILES_PATH || path[length - 1] != '/')
		return tpck_files_look(folder, path, false, pending);
	while (length > 1 && path[length - 1] == '/')
		length--;
	*(char *)mempcpy(name, path, length) = '\0';
	return tpck_files_look(folder, name, false, pending);
}

/* Whether the name of something that is to be made is one of a file that the job sees; what is to go goes first. */
static TPCK_FILES_SLOW bool taken(int folder, const char *path)
{
	struct tpck_pending pending;
	enum tpck_seen seen = tpck_files_idle() || !path ? TPCK_SEEN_REAL : look_at_name(folder, path, &pending);

	if (seen == TPCK_SEEN_REMOVED)
		(void)tpck_files_settle_at(folder, path);
	if (seen == TPCK_SEEN_PENDING)
		errno = EEXIST;
	return seen == TPCK_SEEN_PENDING;
}

static int pending_mkdir(const struct tpck_at *at, mode_t mode)
{
	if (!tpck_files_idle() && taken(at->folder, at->path))
		return -1;
	return verdict(below->mkdir(at, mode), at);
}

int tpck_files_mknod(int folder, const char *path, mode_t mode, dev_t device)
{
	if (!tpck_files_idle() && taken(folder, path))
		return -1;
	return tpck_files_verdict(tpck_sys_mknodat(folder, path, mode, (unsigned)device), folder, path);
}

int tpck_files_bind(int fd, const void *address, unsigned bytes, const char *path)
{
	int domain = 0, saved = errno;
	unsigned size = sizeof domain;

	if (!tpck_files_idle() && !tpck_sys_getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) && domain == AF_UNIX &&
	    taken(AT_FDCWD, path)) {
		errno = EADDRINUSE;
		return -1;
	}
	errno = saved;
	return tpck_files_verdict(tpck_sys_bind(fd, address, bytes), AT_FDCWD, path);
}

int tpck_files_connects(int fd, const char *path)
{
	int domain = 0, saved = errno;
	unsigned size = sizeof domain;
	struct tpck_pending pending;
	enum tpck_seen seen = TPCK_SEEN_REAL;

	if (!tpck_files_idle() && !tpck_sys_getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) && domain == AF_UNIX)
		seen = tpck_files_look(AT_FDCWD, path, true, &pending);
	if (seen == TPCK_SEEN_REAL) {
		errno = saved;
		return 0;
	}
	/* A file is no socket, which is said to those who may write it. */
	errno = seen == TPCK_SEEN_REMOVED ? ENOENT : tpck_files_may(pending.path, W_OK) ? ECONNREFUSED : EACCES;
	return -1;
}

/* A folder's own name as the agent opens it. False: it is none. */
static bool own_name(int fd, char *path)
{
	char link[40];
	ssize_t got;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	got = tpck_sys_readlink(link, path, TPCK_FILES_PATH - 1);
	if (got > 0)
		path[got] = '\0';
	return got > 0 && *path == '/';
}

TPCK_FILES_SLOW bool tpck_files_folder_of(int folder, const char *path, struct stat *found, char *absolute, const char **name)
{
	bool good;
	int fd;

	if (!tpck_files_split(path, absolute, name))
		return false;
	fd = tpck_sys_high(tpck_sys_openat(folder, absolute, O_PATH | O_DIRECTORY | O_CLOEXEC, 0));
	if (fd < 0)
		return false;
	good = own_name(fd, absolute) && !tpck_sys_fstatat(fd, "", found, AT_EMPTY_PATH);
	tpck_sys_close(fd);
	return good;
}

/* Whether something that closed later than `order` is still owed: what is done now is done behind it. */
static bool owed_behind(struct tpck_view *view, uint64_t order)
{
	uint32_t left = view->used;

	for (uint32_t i = 0; left && i < TPCK_VIEW_ENTRIES; i++) {
		if (view->entry[i].state == TPCK_VIEW_FREE)
			continue;
		left--;
		if (view->entry[i].state != TPCK_VIEW_OPEN && view->entry[i].order > order)
			return true;
	}
	return false;
}

/* The name goes once what is owed before is there. The lock is held. */
static bool remove_later(struct tpck_view *view, const struct stat *parent, const char *path, const char *name,
			 const struct stat *there)
{
	struct tpck_view_entry *entry = tpck_view_add(view, parent->st_dev, parent->st_ino, path, name, TPCK_VIEW_REMOVED);

	if (entry) {
		entry->there = tpck_view_there_of(there);
		tpck_view_close(view, entry);
	}
	return entry;
}

bool tpck_files_may(const char *path, int mode)
{
	int result = tpck_sys_faccessat2(AT_FDCWD, path, mode, AT_EACCESS);

	if (result && errno == ENOSYS)
		result = tpck_sys_faccessat(AT_FDCWD, path, mode);
	return !result;
}

static bool may_change(const char *folder)
{
	return tpck_files_may(folder, W_OK | X_OK);
}

/* Another user's in a folder that guards them. */
static bool guarded(const struct stat *parent, const struct stat *there)
{
	return parent->st_mode & S_ISVTX && there->st_uid != geteuid() && parent->st_uid != geteuid();
}

/* ---- another name of a file that is at its path, or of one that has no name ----------------------- */

/* An entry that is being made, for the name that the file is to get. NULL: errno is EEXIST, or 0: it cannot be. */
static struct tpck_view_entry *add_linked(struct tpck_view *view, const struct stat *parent, const char *path, const char *name,
					  bool exists, bool replaces)
{
	struct tpck_view_entry *entry = tpck_view_find(view, parent->st_dev, parent->st_ino, name);
	struct tpck_view_holder *holder;

	errno = 0;
	if (!replaces && (entry ? entry->kind != TPCK_VIEW_REMOVED : exists)) {
		errno = EEXIST;
		return NULL;
	}
	entry = tpck_view_add(view, parent->st_dev, parent->st_ino, path, name, TPCK_VIEW_DIRECT);
	if (!entry)
		return NULL;
	/* Who dies now has made nothing. */
	holder = tpck_view_holder_of(entry, tpck_files_pid(), tpck_files_started());
	holder->count = 1;
	entry->linked = 1;
	return entry;
}

/* The part is the file itself, by one more name: it gets the new one in its turn, whole, and what it is called now goes
 * behind that if it is renamed. -2: it is the file system's. */
static TPCK_FILES_SLOW int link_later(int from_folder, const char *from, int to_folder, const char *to, int flags, bool renames,
				      bool replaces, enum tpck_wanted wanted)
{
	char to_path[TPCK_FILES_PATH], from_path[TPCK_FILES_PATH], part[TPCK_FILES_PATH + 80];
	struct stat to_parent, from_parent, there, file;
	const char *to_name, *from_name = NULL;
	struct tpck_view_entry *entry;
	struct tpck_view *view;
	int look = flags & AT_EMPTY_PATH ? AT_EMPTY_PATH : flags & AT_SYMLINK_FOLLOW ? 0 : AT_SYMLINK_NOFOLLOW;
	uint64_t serial;
	uint32_t index;
	bool exists, made;

	/* What is not there is so at once; a renaming has more to say. */
	if (tpck_sys_fstatat(from_folder, from, &file, look))
		return renames ? below->rename(TPCK_AT(from_folder, from), TPCK_AT(to_folder, to), replaces ? 0 : RENAME_NOREPLACE) : -1;
	if (!S_ISREG(file.st_mode) ||
	    !tpck_files_folder_of(to_folder, to, &to_parent, to_path, &to_name) || file.st_dev != to_parent.st_dev ||
	    tpck_rules_excepted(tpck_files_settings, to_path) || !may_change(to_path) ||
	    (wanted == TPCK_WANTED_UNSURE && tpck_files_in_place_in(&to_parent)))
		return -2;
	exists = !tpck_sys_fstatat(to_folder, to, &there, AT_SYMLINK_NOFOLLOW);
	if (exists && (S_ISDIR(there.st_mode) || there.st_ino == file.st_ino || to_parent.st_mode & S_ISVTX))
		return -2;
	if (renames && (!tpck_files_folder_of(from_folder, from, &from_parent, from_path, &from_name) || from_parent.st_mode & S_ISVTX ||
			!may_change(from_path)))
		return -2;
	if (!tpck_files_ready() || !(view = tpck_files_lock()))
		return -2;
	entry = add_linked(view, &to_parent, to_path, to_name, exists, replaces);
	if (!entry) {
		tpck_view_unlock(view);
		return errno ? -1 : -2;
	}
	index = (uint32_t)(entry - view->entry);
	serial = entry->serial;
	entry->there = tpck_view_there_of(exists ? &there : NULL);
	tpck_view_bytes(view, entry, tpck_files_folder, part, sizeof part);
	tpck_view_unlock(view);
	made = !tpck_sys_linkat(from_folder, from, AT_FDCWD, part, flags);
	if (!tpck_view_lock(view))
		return -2;
	entry = tpck_view_by_serial(view, index, serial);
	if (entry && made) {
		memset(entry->holder, 0, sizeof entry->holder);
		tpck_view_close(view, entry);
		if (renames)
			made = remove_later(view, &from_parent, from_path, from_name, &file);
	}
	if (entry && !made) {
		tpck_view_discard(view, entry, tpck_files_folder);
		return -2;
	}
	tpck_view_unlock(view);
	tpck_view_tell(&view->news);
	return entry ? 0 : -2;
}

/* Whether what is linked is one of O_TMPFILE. */
static TPCK_FILES_SLOW bool unnamed(int folder, const char *path, int flags)
{
	struct stat found;

	return path && (flags & AT_EMPTY_PATH || (flags & AT_SYMLINK_FOLLOW && strncmp(path, "/proc/", 6) == 0)) &&
	       !tpck_sys_fstatat(folder, path, &found, flags & AT_EMPTY_PATH) && S_ISREG(found.st_mode) && !found.st_nlink;
}

/* A file that is still being written is to get one more name: it goes on in the inode that it will have at its path, of which another name can be. */
static TPCK_FILES_SLOW void ready_to_link(int from_folder, const char *from, int flags, struct tpck_pending *pending)
{
	int fd = flags & AT_EMPTY_PATH && !*from ? from_folder : flags & AT_SYMLINK_FOLLOW ? tpck_files_numbered(from) : -1;
	uint64_t what = fd >= 0 && tpck_files_some() ? tpck_files_what(fd) : 0;

	if (!what && tpck_files_look(from_folder, from, flags & AT_SYMLINK_FOLLOW, pending) == TPCK_SEEN_PENDING) {
		struct tpck_view *view = tpck_files_lock();
		const struct tpck_view_entry *entry = view ? tpck_view_by_serial(view, pending->index, pending->serial) : NULL;

		if (entry && entry->state == TPCK_VIEW_OPEN)
			what = tpck_files_pack(pending->index, pending->serial);
		if (view)
			tpck_view_unlock(view);
	}
	if (what && tpck_files_let_be(what, true) == -1)
		tpck_files_to_disk(what);
}

static TPCK_FILES_SLOW int seen_link(int from_folder, const char *from, int to_folder, const char *to, int flags)
{
	int saved = errno, result;
	struct tpck_pending pending;
	enum tpck_wanted wanted;
	struct stat found;

	if (from && to) {
		int look = flags & AT_EMPTY_PATH ? AT_EMPTY_PATH : flags & AT_SYMLINK_FOLLOW ? 0 : AT_SYMLINK_NOFOLLOW;

		/* The kernel asks for what is linked before it looks at the new name. */
		if (flags & ~(AT_EMPTY_PATH | AT_SYMLINK_FOLLOW))
			return tpck_sys_linkat(from_folder, from, to_folder, to, flags);
		if (pending_stat(TPCK_AT(from_folder, from), &found, look))
			return -1;
		if (look_at_name(to_folder, to, &pending) == TPCK_SEEN_PENDING) {
			errno = EEXIST;
			return -1;
		}
		ready_to_link(from_folder, from, flags, &pending);
		errno = saved;
	}
	if (from && to && tpck_files_may_take() && (wanted = tpck_files_wanted(TPCK_AT(to_folder, to))) != TPCK_WANTED_NOT &&
	    !is_pending(from_folder, from, flags & AT_SYMLINK_FOLLOW)) {
		result = link_later(from_folder, from, to_folder, to, flags, false, false, wanted);
		if (result != -2) {
			if (!result)
				errno = saved;
			return result;
		}
	}
	if (!tpck_files_settle_at(to_folder, to)) {
		errno = EIO;
		return -1;
	}
	/* The file is open still: what it will be at its path has its other name now. */
	if (from && tpck_files_look(from_folder, from, flags & AT_SYMLINK_FOLLOW, &pending) == TPCK_SEEN_PENDING && pending.kind == TPCK_VIEW_DIRECT) {
		from_folder = AT_FDCWD;
		from = pending.path;
	}
	errno = saved;
	return tpck_files_verdict(tpck_sys_linkat(from_folder, from, to_folder, to, flags), to_folder, to);
}

static int pending_link(const struct tpck_at *from, const struct tpck_at *to, int flags)
{
	if (tpck_files_idle() && !(flags & (AT_EMPTY_PATH | AT_SYMLINK_FOLLOW) && tpck_files_may_take() && unnamed(from->folder, from->path, flags)))
		return below->link(from, to, flags);
	return seen_link(from->folder, from->path, to->folder, to->path, flags);
}

/* ---- symbolic links --------------------------------------------------------------------------------- */

/* Whether something is owed in this folder or below it, whatever name it has now. The lock is held. */
static bool owed_below(struct tpck_view *view, const struct stat *folder, const char *path)
{
	size_t length = strlen(path);
	uint32_t left = view->used;

	for (uint32_t i = 0; left && i < TPCK_VIEW_ENTRIES; i++) {
		const struct tpck_view_entry *entry = &view->entry[i];
		const struct tpck_view_folder *in = &view->folder[tpck_view_key_of(entry)->folder];

		if (entry->state == TPCK_VIEW_FREE)
			continue;
		left--;
		if ((in->inode == folder->st_ino && in->device == folder->st_dev) ||
		    (strncmp(in->path, path, length) == 0 && (in->path[length] == '/' || path[length - 1] == '/')))
			return true;
	}
	return false;
}

/* Whether what a link at `path` would lead to is another thing for others than for the job. */
static TPCK_FILES_SLOW bool leads_to_owed(int folder, const char *path, const char *target)
{
	char at[TPCK_FILES_PATH];
	const char *slash = *target == '/' ? NULL : strrchr(path, '/');
	struct tpck_pending pending;
	struct tpck_view *view = NULL;
	struct stat found;
	bool owed;
	int fd;

	if ((size_t)snprintf(at, sizeof at, "%.*s%s", slash ? (int)(slash - path) + 1 : 0, path, target) >= sizeof at ||
	    tpck_files_look(folder, at, true, &pending) != TPCK_SEEN_REAL)
		return true;
	fd = tpck_sys_high(tpck_sys_openat(folder, at, O_PATH | O_DIRECTORY | O_CLOEXEC, 0));
	if (fd < 0)
		return false;
	owed = !own_name(fd, at) || tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH) || !(view = tpck_files_lock()) ||
	       owed_below(view, &found, at);
	if (view)
		tpck_view_unlock(view);
	tpck_sys_close(fd);
	return owed;
}

static TPCK_FILES_SLOW int seen_symlink(const char *target, int folder, const char *path)
{
	int saved = errno;

	if (taken(folder, path))
		return -1;
	/* A link to what is whole, or to nothing, cannot be seen ahead of what it names. */
	if (target && path && leads_to_owed(folder, path, target) && !tpck_files_settle()) {
		errno = EIO;
		return -1;
	}
	errno = saved;
	return tpck_sys_symlinkat(target, folder, path);
}

static int pending_symlink(const char *target, const struct tpck_at *at)
{
	/* A link to "" is refused before anything is looked at. */
	return tpck_files_idle() || !*target ? below->symlink(target, at) : verdict(seen_symlink(target, at->folder, at->path), at);
}

/* ---- names that go ---------------------------------------------------------------------------------- */

/* A file's name goes. -2: the real call is to be made, which nothing is before. */
static TPCK_FILES_SLOW int unlink_pending(int folder, const char *path)
{
	char absolute[TPCK_FILES_PATH];
	bool exists, mine, beside, later = false, dropped = false;
	struct stat parent, there;
	struct tpck_view *view;
	const char *name;
	int refusal;

	if (!tpck_files_folder_of(folder, path, &parent, absolute, &name))
		return -2;
	mine = may_change(absolute);
	refusal = errno;
	beside = tpck_files_in_place_in(&parent) && tpck_files_wanted(TPCK_AT(folder, path)) != TPCK_WANTED;
	for (;;) {
		struct tpck_view_entry *entry;

		exists = !tpck_sys_fstatat(folder, path, &there, AT_SYMLINK_NOFOLLOW);
		/* What cannot be removed says so at once; another user's in a sticky folder is the kernel's to judge. */
		if (exists && (S_ISDIR(there.st_mode) || guarded(&parent, &there) || !mine))
			return -2;
		view = tpck_files_lock();
		if (!view)
			return -2;
		entry = tpck_view_find(view, parent.st_dev, parent.st_ino, name);
		if (entry && entry->kind == TPCK_VIEW_REMOVED) {
			tpck_view_unlock(view);
			errno = ENOENT;
			return dropped ? 0 : -1;
		}
		/* Beside a file that is changed in place: a journal whose end is what a database's change is made by. */
		if (!entry && exists && mine && beside) {
			tpck_view_unlock(view);
			break;
		}
		/* What is whole may be what something that closed behind it points to: it comes, and goes in its turn. */
		if (mine && (entry ? entry->state == TPCK_VIEW_CLOSED && owed_behind(view, entry->order) : exists && owed_behind(view, 0))) {
			later = remove_later(view, &parent, absolute, name, exists ? &there : NULL);
			tpck_view_unlock(view);
			break;
		}
		if (!entry) {
			tpck_view_unlock(view);
			break;
		}
		if (!mine) {
			tpck_view_unlock(view);
			errno = refusal;
			return -1;
		}
		if (entry->state != TPCK_VIEW_COMMITTING) {
			tpck_view_discard(view, entry, tpck_files_folder);
			dropped = true;
		} else {
			tpck_view_unlock(view);
			tpck_files_breathe();
		}
	}
	if (dropped || later)
		tpck_view_tell(&view->news);
	return later || (dropped && !exists) ? 0 : -2;
}

/* What the job sees in a folder: true, something that is pending. `owed`: something of it is, seen or not. */
static TPCK_FILES_SLOW bool holds_pending(int folder, const char *path, bool *owed)
{
	struct tpck_view *view;
	bool holds = false;
	struct stat found;
	uint32_t left;

	*owed = false;
	if (!path || tpck_sys_fstatat(folder, path, &found, AT_SYMLINK_NOFOLLOW) || !S_ISDIR(found.st_mode) ||
	    !(view = tpck_files_lock()))
		return false;
	left = view->used;
	for (uint32_t i = 0; left && !holds && i < TPCK_VIEW_ENTRIES; i++) {
		const struct tpck_view_entry *entry = &view->entry[i];
		const struct tpck_view_key *key = tpck_view_key_of(entry);

		if (entry->state == TPCK_VIEW_FREE)
			continue;
		left--;
		if (entry->kind == TPCK_VIEW_PLAIN)
			continue;
		if (view->folder[key->folder].inode != found.st_ino || view->folder[key->folder].device != found.st_dev)
			continue;
		*owed = true;
		holds = entry->kind != TPCK_VIEW_REMOVED && tpck_view_find(view, found.st_dev, found.st_ino, key->name) == entry;
	}
	tpck_view_unlock(view);
	return holds;
}

static bool in_view(const struct tpck_view *view, const char *part)
{
	uint64_t serial = strtoull(part + sizeof TPCK_VIEW_PART - 1, NULL, 16);
	uint32_t left = view->used;

	/* Another job's. */
	if (serial > view->serial || serial >> 32 != view->serial >> 32)
		return true;
	for (uint32_t i = 0; left && i < TPCK_VIEW_ENTRIES; i++) {
		if (view->entry[i].state == TPCK_VIEW_FREE)
			continue;
		left--;
		if (view->entry[i].serial == serial)
			return true;
	}
	return false;
}

/* The agent may be copying what was removed meanwhile. Whether there is nothing in the folder but such copies. */
static TPCK_FILES_SLOW bool clear_copies(int folder, const char *path)
{
	char buffer[4096];
	struct tpck_view *view = NULL;
	bool others = false;
	long got;
	int fd = tpck_sys_high(tpck_sys_openat(folder, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0));

	if (fd < 0)
		return false;
	while (!others && (got = tpck_sys_getdents(fd, buffer, sizeof buffer)) > 0)
		for (long at = 0; at < got && !others;) {
			const struct dirent64 *entry = (const void *)(buffer + at);
			const char *name = entry->d_name;

			at += entry->d_reclen;
			if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
				continue;
			others = strncmp(name, TPCK_VIEW_PART, sizeof TPCK_VIEW_PART - 1) != 0;
			if (others || !(view = tpck_files_lock())) {
				others = true;
				continue;
			}
			others = in_view(view, name);
			tpck_view_unlock(view);
			if (!others)
				tpck_sys_unlinkat(fd, name, 0);
		}
	tpck_sys_close(fd);
	return !others;
}

static TPCK_FILES_SLOW int seen_unlink(int folder, const char *path, int flags)
{
	int saved = errno, result;
	bool owed;

	if (flags & AT_REMOVEDIR) {
		struct tpck_pending pending;
		const char *name = path ? strrchr(path, '/') : NULL;

		/* A folder is not removed by this name of it. */
		if (path && strcmp(name ? name + 1 : path, ".") == 0)
			return tpck_sys_unlinkat(folder, path, flags);
		if (path && !tpck_files_idle() && tpck_files_look(folder, path, false, &pending) != TPCK_SEEN_REAL) {
			errno = pending.kind == TPCK_VIEW_REMOVED ? ENOENT : ENOTDIR;
			return -1;
		}
		/* A file that is in memory alone does not keep the real folder; nor may it go before those in it have. */
		if (holds_pending(folder, path, &owed)) {
			errno = ENOTEMPTY;
			return -1;
		}
		if (owed)
			(void)tpck_files_settle_at(folder, path);
		errno = saved;
		/* Names in it may be about to go. */
		result = tpck_sys_unlinkat(folder, path, flags);
		if (result && (errno == ENOTEMPTY || errno == EEXIST) && tpck_files_settle_at(folder, path))
			result = tpck_sys_unlinkat(folder, path, flags);
		for (int tries = 0; result && errno == ENOTEMPTY && tries < TRIES && clear_copies(folder, path); tries++) {
			if (tries)
				tpck_files_breathe();
			result = tpck_sys_unlinkat(folder, path, flags);
		}
		if (!result)
			errno = saved;
		return result;
	}
	result = path ? unlink_pending(folder, path) : -2;
	if (result == -1)
		return -1;
	errno = saved;
	return result == 0 ? 0 : tpck_sys_unlinkat(folder, path, flags);
}

static int pending_unlink(const struct tpck_at *at, int flags)
{
	if (!atomic_load_explicit(&tpck_files_view, memory_order_acquire) || (!(flags & AT_REMOVEDIR) && tpck_files_idle()) ||
	    flags & ~AT_REMOVEDIR)
		return below->unlink(at, flags);
	return verdict(seen_unlink(at->folder, at->path, flags), at);
}

/* A pending file gets another name, which the agent will put it at. -2: not before what is owed is there. */
static TPCK_FILES_SLOW int rename_pending(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
	struct stat from_parent, to_parent, there;
	char from_path[TPCK_FILES_PATH], to_path[TPCK_FILES_PATH];
	const char *from_name, *to_name;
	struct tpck_view_entry *entry;
	struct tpck_view_there replaced = {.kind = TPCK_THERE_NOTHING};
	struct tpck_view *view;
	bool left, moved = false;

	if (flags & ~(unsigned)RENAME_NOREPLACE || !tpck_files_folder_of(from_folder, from, &from_parent, from_path, &from_name))
		return -2;
	if (!tpck_files_folder_of(to_folder, to, &to_parent, to_path, &to_name) || tpck_rules_excepted(tpck_files_settings, to_path))
		return -2;
	if (from_parent.st_dev != to_parent.st_dev) {
		errno = EXDEV;
		return -1;
	}
	if (!may_change(to_path) || !may_change(from_path)) {
		int refusal = errno;

		errno = flags && !pending_stat(TPCK_AT(to_folder, to), &there, AT_SYMLINK_NOFOLLOW) ? EEXIST : refusal;
		return -1;
	}
	if (!tpck_sys_fstatat(to_folder, to, &there, AT_SYMLINK_NOFOLLOW)) {
		if (S_ISDIR(there.st_mode)) {
			errno = flags ? EEXIST : EISDIR;
			return -1;
		}
		/* Only who is somebody else's superior may. */
		if (guarded(&to_parent, &there)) {
			errno = flags ? EEXIST : EPERM;
			return flags || geteuid() ? -1 : -2;
		}
		replaced = tpck_view_there_of(&there);
	}
	left = !tpck_sys_fstatat(from_folder, from, &there, AT_SYMLINK_NOFOLLOW);
	view = tpck_files_lock();
	if (!view)
		return -2;
	entry = tpck_view_find(view, from_parent.st_dev, from_parent.st_ino, from_name);
	/* Older versions of the name are published first, so that nothing of it is left. */
	if (entry && entry->state != TPCK_VIEW_COMMITTING && entry->kind != TPCK_VIEW_REMOVED &&
	    tpck_view_versions(view, from_parent.st_dev, from_parent.st_ino, from_name) == 1) {
		struct tpck_view_entry *other = tpck_view_find(view, to_parent.st_dev, to_parent.st_ino, to_name);

		if (flags && (other ? other->kind != TPCK_VIEW_REMOVED : replaced.kind != TPCK_THERE_NOTHING)) {
			tpck_view_unlock(view);
			errno = EEXIST;
			return -1;
		}
		moved = other == entry || tpck_view_move(view, entry, to_parent.st_dev, to_parent.st_ino, to_path, to_name);
		if (moved && other != entry)
			entry->there = replaced;
		if (moved && other != entry && entry->state == TPCK_VIEW_CLOSED)
			entry->order = ++view->order;
		if (moved && other != entry && left)
			(void)remove_later(view, &from_parent, from_path, from_name, &there);
	}
	tpck_view_unlock(view);
	if (moved)
		tpck_view_tell(&view->news);
	return moved ? 0 : -2;
}

/* A folder has another name now: what is being written below it is to appear there. `exchanged`: what had that name has the folder's. */
static TPCK_FILES_SLOW void folder_moved(const char *from, const char *to, bool exchanged)
{
	struct tpck_view *view = tpck_files_lock();

	for (uint32_t i = 0; view && i < TPCK_VIEW_FOLDERS && view->folder[i].inode; i++) {
		char *path = view->folder[i].path, rest[TPCK_VIEW_PATH];
		const char *before = from, *after = to;

		if (exchanged && strncmp(path, to, strlen(to)) == 0 && strchr("/", path[strlen(to)])) {
			before = to;
			after = from;
		}
		if (!view->folder[i].used || strncmp(path, before, strlen(before)) != 0 || !strchr("/", path[strlen(before)]))
			continue;
		strcpy(rest, path + strlen(before));
		if (strlen(after) + strlen(rest) < TPCK_VIEW_PATH)
			sprintf(path, "%s%s", after, rest);
	}
	if (view)
		tpck_view_unlock(view);
}

static int open_folder(int folder, const char *path)
{
	return tpck_sys_high(tpck_sys_openat(folder, path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0));
}

/* One that may be a folder with files in it that are being written. */
TPCK_FILES_SLOW int tpck_files_rename_real(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
	char before[TPCK_FILES_PATH], after[TPCK_FILES_PATH];
	int fd, result, saved = errno;

	if (tpck_files_idle() || !from)
		return below->rename(TPCK_AT(from_folder, from), TPCK_AT(to_folder, to), flags);
	fd = open_folder(from_folder, from);
	if (fd < 0 && flags & RENAME_EXCHANGE && to)
		fd = open_folder(to_folder, to);
	errno = saved;
	if (fd < 0)
		return below->rename(TPCK_AT(from_folder, from), TPCK_AT(to_folder, to), flags);
	*before = '\0';
	(void)own_name(fd, before);
	result = below->rename(TPCK_AT(from_folder, from), TPCK_AT(to_folder, to), flags);
	saved = errno;
	if (!result && *before && own_name(fd, after))
		folder_moved(before, after, flags & RENAME_EXCHANGE);
	tpck_sys_close(fd);
	errno = saved;
	return result;
}

/* A file that is at its path, to a name that is wanted. */
static TPCK_FILES_SLOW int rename_later(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
	enum tpck_wanted wanted;

	if (flags & ~(unsigned)RENAME_NOREPLACE || !tpck_files_may_take() || (wanted = tpck_files_wanted(TPCK_AT(to_folder, to))) == TPCK_WANTED_NOT)
		return -2;
	return link_later(from_folder, from, to_folder, to, 0, true, !flags, wanted);
}

static bool ends_in_slash(const char *path)
{
	size_t length = strnlen(path, TPCK_FILES_PATH);

	return length && path[length - 1] == '/';
}

/* "." or "..", which no folder is renamed or removed by. */
static bool is_dots(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static int said(int error)
{
	errno = error;
	return -1;
}

/* The kernel does not find a pending file that is renamed, and says so before it looks at the new name: too long, or a folder's. True: errno
 * says which. */
static TPCK_FILES_SLOW bool refuses_name(int folder, const char *path, unsigned flags, bool pending)
{
	char text[TPCK_FILES_PATH];
	size_t length = strnlen(path, TPCK_FILES_PATH - 1), name;
	bool slash = ends_in_slash(path), exists;
	struct stat found;

	while (length > 1 && path[length - 1] == '/')
		length--;
	*(char *)mempcpy(text, path, length) = '\0';
	exists = pending || !pending_stat(TPCK_AT(folder, text), &found, AT_SYMLINK_NOFOLLOW);
	for (name = length; name && text[name - 1] != '/'; name--)
		;
	/* What it is to lie in is judged first. */
	text[name] = '\0';
	if (name && tpck_sys_fstatat(folder, text, &found, 0))
		return false;
	if (length - name > NAME_MAX)
		errno = ENAMETOOLONG;
	else if (slash)
		errno = flags && exists ? EEXIST : ENOTDIR;
	return length - name > NAME_MAX || slash;
}

/* What is pending, or to go, says no: a folder takes no file's place, nor that of a folder which only the job sees something in; a file
 * gets no folder's name. 0, or -1 with errno. */
static TPCK_FILES_SLOW int may_rename(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
	struct tpck_pending pending;
	enum tpck_seen seen = tpck_files_look(from_folder, from, false, &pending), at;
	struct stat found, there;
	int saved = errno;
	bool owed;

	if (seen == TPCK_SEEN_REMOVED)
		return said(ENOENT);
	at = look_at_name(to_folder, to, &pending);
	if (seen == TPCK_SEEN_PENDING && !(flags & RENAME_EXCHANGE) && refuses_name(to_folder, to, flags, at == TPCK_SEEN_PENDING))
		return -1;
	if (!flags && seen == TPCK_SEEN_REAL && !tpck_sys_fstatat(from_folder, from, &found, AT_SYMLINK_NOFOLLOW) && S_ISDIR(found.st_mode)) {
		if (at == TPCK_SEEN_PENDING)
			return said(ENOTDIR);
		if (!tpck_sys_fstatat(to_folder, to, &there, AT_SYMLINK_NOFOLLOW) && there.st_ino != found.st_ino && !is_dots(to) &&
		    holds_pending(to_folder, to, &owed))
			return said(ENOTEMPTY);
	}
	errno = saved;
	return 0;
}

static int seen_rename(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
	int saved = errno, result;

	if (!tpck_files_idle() && from && to && may_rename(from_folder, from, to_folder, to, flags))
		return -1;
	for (int tries = 0; tries < TRIES && !tpck_files_idle() && from && to; tries++) {
		bool pending = is_pending(from_folder, from, false);

		if (flags & RENAME_EXCHANGE)
			result = tpck_files_exchange(from_folder, from, to_folder, to);
		else if (pending)
			result = rename_pending(from_folder, from, to_folder, to, flags);
		else if (ends_in_slash(from))
			result = -2;
		else
			result = rename_later(from_folder, from, to_folder, to, flags);
		if (result == 1)
			break;
		if (result != -2) {
			if (!result)
				errno = saved;
			return result;
		}
		/* A folder's name, or a file that is at its path: behind what closed before. */
		if (!tpck_files_settle_at(from_folder, from)) {
			errno = EIO;
			return -1;
		}
		if (!pending && !(flags & RENAME_EXCHANGE && is_pending(to_folder, to, false)))
			break;
	}
	return tpck_files_rename_real(from_folder, from, to_folder, to, flags);
}

static int pending_rename(const struct tpck_at *from, const struct tpck_at *to, unsigned flags)
{
	int saved = errno, result;

	if (!atomic_load_explicit(&tpck_files_view, memory_order_acquire) || flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT))
		return below->rename(from, to, flags);
	result = verdict(seen_rename(from->folder, from->path, to->folder, to->path, flags), from);
	if (result < 0)
		tpck_files_through(to->folder, to->path, TPCK_THROUGH_FOLDERS);
	else
		errno = saved;
	return result;
}

static void pending_touches(const struct tpck_at *at, int flags)
{
	(void)at;
	(void)flags;
}

const struct tpck_layer tpck_layer_pending = {
	.open = tpck_pending_open,
	.stat = pending_stat,
	.statx = pending_statx,
	.access = pending_access,
	.readlink = pending_readlink,
	.truncate = pending_truncate,
	.chmod = pending_chmod,
	.times = pending_times,
	.mkdir = pending_mkdir,
	.symlink = pending_symlink,
	.link = pending_link,
	.unlink = pending_unlink,
	.rename = pending_rename,
	.place = pending_place,
	.around = pending_around,
	.redirects = tpck_pending_redirects,
	.touches = pending_touches,
};
