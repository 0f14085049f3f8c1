/* SPDX-License-Identifier: Apache-2.0 */
/* Names that change. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/files/files_private.h"
#include "runtime/files/layer.h"

enum { TRIES = 2000 };
static const struct tpck_layer *const below = &tpck_layer_kernel;

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
	if (!tpck_files_may_change(to_path) || !tpck_files_may_change(from_path)) {
		int refusal = errno;

		errno = flags && !tpck_layer_pending.stat(TPCK_AT(to_folder, to), &there, AT_SYMLINK_NOFOLLOW) ? EEXIST : refusal;
		return -1;
	}
	if (!tpck_sys_fstatat(to_folder, to, &there, AT_SYMLINK_NOFOLLOW)) {
		if (S_ISDIR(there.st_mode)) {
			errno = flags ? EEXIST : EISDIR;
			return -1;
		}
		/* Only who is somebody else's superior may. */
		if (tpck_files_guarded(&to_parent, &there)) {
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
			(void)tpck_files_remove_later(view, &from_parent, from_path, from_name, &there);
	}
	tpck_view_unlock(view);
	if (moved)
		tpck_view_tell(&view->news);
	return moved ? 0 : -2;
}

/* A file that is at its path, to a name that is wanted. */
static TPCK_FILES_SLOW int rename_later(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
	enum tpck_wanted wanted;

	if (flags & ~(unsigned)RENAME_NOREPLACE || !tpck_files_may_take() || (wanted = tpck_files_wanted(TPCK_AT(to_folder, to))) == TPCK_WANTED_NOT)
		return -2;
	return tpck_files_link_later(from_folder, from, to_folder, to, 0, true, !flags, wanted);
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
	exists = pending || !tpck_layer_pending.stat(TPCK_AT(folder, text), &found, AT_SYMLINK_NOFOLLOW);
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
	at = tpck_files_look_at_name(to_folder, to, &pending);
	if (seen == TPCK_SEEN_PENDING && !(flags & RENAME_EXCHANGE) && refuses_name(to_folder, to, flags, at == TPCK_SEEN_PENDING))
		return -1;
	if (!flags && seen == TPCK_SEEN_REAL && !tpck_sys_fstatat(from_folder, from, &found, AT_SYMLINK_NOFOLLOW) && S_ISDIR(found.st_mode)) {
		if (at == TPCK_SEEN_PENDING)
			return said(ENOTDIR);
		if (!tpck_sys_fstatat(to_folder, to, &there, AT_SYMLINK_NOFOLLOW) && there.st_ino != found.st_ino && !is_dots(to) &&
		    tpck_files_holds_pending(to_folder, to, &owed))
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
		bool pending = tpck_files_is_pending(from_folder, from, false);

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
		if (!pending && !(flags & RENAME_EXCHANGE && tpck_files_is_pending(to_folder, to, false)))
			break;
	}
	return tpck_files_rename_real(from_folder, from, to_folder, to, flags);
}

int tpck_pending_rename(const struct tpck_at *from, const struct tpck_at *to, unsigned flags)
{
	int saved = errno, result;

	if (!atomic_load_explicit(&tpck_files_view, memory_order_acquire) || flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT))
		return below->rename(from, to, flags);
	result = tpck_files_verdict(seen_rename(from->folder, from->path, to->folder, to->path, flags), from->folder, from->path);
	if (result < 0)
		tpck_files_through(to->folder, to->path, TPCK_THROUGH_FOLDERS);
	else
		errno = saved;
	return result;
}
