/* SPDX-License-Identifier: Apache-2.0 */
/* Names of what is pending, and of what is made beside it; the folders that they are in. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/files/files_private.h"
#include "runtime/files/layer.h"

static const struct tpck_layer *const below = &tpck_layer_kernel;

/* What the job sees by this name, whether or not a slash behind it says that a folder is meant. */
TPCK_FILES_SLOW enum tpck_seen tpck_files_look_at_name(int folder, const char *path, struct tpck_pending *pending)
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
TPCK_FILES_SLOW bool tpck_files_name_taken(int folder, const char *path)
{
	struct tpck_pending pending;
	enum tpck_seen seen = tpck_files_idle() || !path ? TPCK_SEEN_REAL : tpck_files_look_at_name(folder, path, &pending);

	if (seen == TPCK_SEEN_REMOVED)
		(void)tpck_files_settle_at(folder, path);
	if (seen == TPCK_SEEN_PENDING)
		errno = EEXIST;
	return seen == TPCK_SEEN_PENDING;
}

int tpck_files_mknod(int folder, const char *path, mode_t mode, dev_t device)
{
	if (!tpck_files_idle() && tpck_files_name_taken(folder, path))
		return -1;
	return tpck_files_verdict(tpck_sys_mknodat(folder, path, mode, (unsigned)device), folder, path);
}

int tpck_files_bind(int fd, const void *address, unsigned bytes, const char *path)
{
	int domain = 0, saved = errno;
	unsigned size = sizeof domain;

	if (!tpck_files_idle() && !tpck_sys_getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) && domain == AF_UNIX &&
	    tpck_files_name_taken(AT_FDCWD, path)) {
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
bool tpck_files_own_name(int fd, char *path)
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
	good = tpck_files_own_name(fd, absolute) && !tpck_sys_fstatat(fd, "", found, AT_EMPTY_PATH);
	tpck_sys_close(fd);
	return good;
}

/* Whether something that closed later than `order` is still owed: what is done now is done behind it. */
bool tpck_files_owed_behind(struct tpck_view *view, uint64_t order)
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
bool tpck_files_remove_later(struct tpck_view *view, const struct stat *parent, const char *path, const char *name,
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

bool tpck_files_may_change(const char *folder)
{
	return tpck_files_may(folder, W_OK | X_OK);
}

/* Another user's in a folder that guards them. */
bool tpck_files_guarded(const struct stat *parent, const struct stat *there)
{
	return parent->st_mode & S_ISVTX && there->st_uid != geteuid() && parent->st_uid != geteuid();
}

/* ---- what is at its path, which may be a folder with files in it that are being written ------------ */

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
	(void)tpck_files_own_name(fd, before);
	result = below->rename(TPCK_AT(from_folder, from), TPCK_AT(to_folder, to), flags);
	saved = errno;
	if (!result && *before && tpck_files_own_name(fd, after))
		folder_moved(before, after, flags & RENAME_EXCHANGE);
	tpck_sys_close(fd);
	errno = saved;
	return result;
}
