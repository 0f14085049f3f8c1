/* SPDX-License-Identifier: Apache-2.0 */
/* Another name of a file that is at its path, or of one that has no name; symbolic links. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/kernel.h"
#include "runtime/files/files_private.h"
#include "runtime/files/layer.h"

static const struct tpck_layer *const below = &tpck_layer_kernel;

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
TPCK_FILES_SLOW int tpck_files_link_later(int from_folder, const char *from, int to_folder, const char *to, int flags, bool renames,
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
	    tpck_rules_excepted(tpck_files_settings, to_path) || !tpck_files_may_change(to_path) ||
	    (wanted == TPCK_WANTED_UNSURE && tpck_files_in_place_in(&to_parent)))
		return -2;
	exists = !tpck_sys_fstatat(to_folder, to, &there, AT_SYMLINK_NOFOLLOW);
	if (exists && (S_ISDIR(there.st_mode) || there.st_ino == file.st_ino || to_parent.st_mode & S_ISVTX))
		return -2;
	if (renames && (!tpck_files_folder_of(from_folder, from, &from_parent, from_path, &from_name) || from_parent.st_mode & S_ISVTX ||
			!tpck_files_may_change(from_path)))
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
	tpck_files_date(entry);
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
			made = tpck_files_remove_later(view, &from_parent, from_path, from_name, &file);
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
		if (tpck_layer_pending.stat(TPCK_AT(from_folder, from), &found, look))
			return -1;
		if (tpck_files_look_at_name(to_folder, to, &pending) == TPCK_SEEN_PENDING) {
			errno = EEXIST;
			return -1;
		}
		ready_to_link(from_folder, from, flags, &pending);
		errno = saved;
	}
	if (from && to && tpck_files_may_take() && (wanted = tpck_files_wanted(TPCK_AT(to_folder, to))) != TPCK_WANTED_NOT &&
	    !tpck_files_is_pending(from_folder, from, flags & AT_SYMLINK_FOLLOW)) {
		result = tpck_files_link_later(from_folder, from, to_folder, to, flags, false, false, wanted);
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

int tpck_pending_link(const struct tpck_at *from, const struct tpck_at *to, int flags)
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
	owed = !tpck_files_own_name(fd, at) || tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH) || !(view = tpck_files_lock()) ||
	       owed_below(view, &found, at);
	if (view)
		tpck_view_unlock(view);
	tpck_sys_close(fd);
	return owed;
}

static TPCK_FILES_SLOW int seen_symlink(const char *target, int folder, const char *path)
{
	int saved = errno;

	if (tpck_files_name_taken(folder, path))
		return -1;
	/* A link to what is whole, or to nothing, cannot be seen ahead of what it names. */
	if (target && path && leads_to_owed(folder, path, target) && !tpck_files_settle()) {
		errno = EIO;
		return -1;
	}
	errno = saved;
	return tpck_sys_symlinkat(target, folder, path);
}

int tpck_pending_symlink(const char *target, const struct tpck_at *at)
{
	/* A link to "" is refused before anything is looked at. */
	return tpck_files_idle() || !*target ? below->symlink(target, at) : tpck_files_verdict(seen_symlink(target, at->folder, at->path), at->folder, at->path);
}
