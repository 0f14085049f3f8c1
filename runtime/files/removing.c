/* SPDX-License-Identifier: Apache-2.0 */
/* Names that go. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/kernel.h"
#include "runtime/files/files_private.h"
#include "runtime/files/layer.h"

enum { TRIES = 2000 };
static const struct tpck_layer *const below = &tpck_layer_kernel;

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
	mine = tpck_files_may_change(absolute);
	refusal = errno;
	beside = tpck_files_in_place_in(&parent) && tpck_files_wanted(TPCK_AT(folder, path)) != TPCK_WANTED;
	for (;;) {
		struct tpck_view_entry *entry;

		exists = !tpck_sys_fstatat(folder, path, &there, AT_SYMLINK_NOFOLLOW);
		/* What cannot be removed says so at once; another user's in a sticky folder is the kernel's to judge. */
		if (exists && (S_ISDIR(there.st_mode) || tpck_files_guarded(&parent, &there) || !mine))
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
		if (mine && (entry ? entry->state == TPCK_VIEW_CLOSED && tpck_files_owed_behind(view, entry->order) : exists && tpck_files_owed_behind(view, 0))) {
			later = tpck_files_remove_later(view, &parent, absolute, name, exists ? &there : NULL);
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
TPCK_FILES_SLOW bool tpck_files_holds_pending(int folder, const char *path, bool *owed)
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
		if (tpck_files_holds_pending(folder, path, &owed)) {
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

int tpck_pending_unlink(const struct tpck_at *at, int flags)
{
	if (!atomic_load_explicit(&tpck_files_view, memory_order_acquire) || (!(flags & AT_REMOVEDIR) && tpck_files_idle()) ||
	    flags & ~AT_REMOVEDIR)
		return below->unlink(at, flags);
	return tpck_files_verdict(seen_unlink(at->folder, at->path, flags), at->folder, at->path);
}
