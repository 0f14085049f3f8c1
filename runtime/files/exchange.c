/* SPDX-License-Identifier: Apache-2.0 */
/* renameat2(RENAME_EXCHANGE) where one of the two files is being written still. What is at the paths changes places at once; the one
 * that is written appears by its other name when it is closed. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/files/files_private.h"

/* One of the two names. */
struct side {
	int folder;
	const char *path, *name;
	struct stat parent, there;
	bool exists; /* something is really there */
	struct tpck_pending pending;
	bool open;   /* it is pending, and somebody writes it */
	char at[TPCK_FILES_PATH], text[TPCK_FILES_PATH]; /* the folder's own name; the path without a slash behind it */
};

/* NOT: the kernel says what there is to say. LATER: what is whole is to be at its path first. */
enum found { NOT, LATER, FOUND };

/* What is open stays so until the names have changed: this process counts as one that writes it. */
static bool hold_open(struct side *side)
{
	struct tpck_view *view = tpck_files_lock();
	struct tpck_view_entry *entry = view ? tpck_view_by_serial(view, side->pending.index, side->pending.serial) : NULL;
	struct tpck_view_holder *holder = NULL;

	if (entry && entry->state == TPCK_VIEW_OPEN && entry->kind != TPCK_VIEW_REMOVED &&
	    tpck_view_versions(view, side->parent.st_dev, side->parent.st_ino, side->name) == 1)
		holder = tpck_view_holder_of(entry, tpck_files_pid(), tpck_files_started());
	if (holder)
		tpck_view_opening(holder);
	if (view)
		tpck_view_unlock(view);
	side->open = holder != NULL;
	return side->open;
}

static void let_go(struct side *side)
{
	struct tpck_view *view = side->open ? tpck_files_lock() : NULL;

	if (view) {
		tpck_view_opened(view, side->pending.index, side->pending.serial, tpck_files_pid());
		tpck_view_unlock(view);
		tpck_files_release(side->pending.index, side->pending.serial, true);
	}
}

static struct tpck_view_entry *entry_of(struct tpck_view *view, const struct side *side)
{
	return side->open ? tpck_view_by_serial(view, side->pending.index, side->pending.serial) : NULL;
}

/* The one that is written has the other's name from here on. `there`: what that finds in its place. The lock is held. */
static bool move_to(struct tpck_view *view, const struct side *side, const struct side *to, const struct side *there)
{
	struct tpck_view_entry *entry = entry_of(view, side);

	if (!side->open)
		return true;
	if (!entry || !tpck_view_move(view, entry, to->parent.st_dev, to->parent.st_ino, to->at, to->name))
		return false;
	entry->there = tpck_view_there_of(there->exists ? &there->there : NULL);
	entry->over = there->exists;
	return true;
}

/* The names of what is written. Both change, or none. */
static bool move_both(const struct side *from, const struct side *to, bool back)
{
	struct tpck_view *view = tpck_files_lock();
	bool good;

	if (!view)
		return false;
	/* What is really there goes the same way, if it is to go at all. */
	good = move_to(view, from, back ? from : to, from);
	if (good && !move_to(view, to, back ? to : from, to)) {
		(void)move_to(view, from, from, from);
		good = false;
	}
	tpck_view_unlock(view);
	if (good)
		tpck_view_tell(&view->news);
	return good;
}

/* What is really there. */
static int exchange_real(const struct side *from, const struct side *to)
{
	if (from->exists && to->exists)
		return tpck_files_rename_real(from->folder, from->path, to->folder, to->path, RENAME_EXCHANGE);
	if (from->exists)
		return tpck_files_rename_real(from->folder, from->path, to->folder, to->path, RENAME_NOREPLACE);
	return to->exists ? tpck_files_rename_real(to->folder, to->path, from->folder, from->path, RENAME_NOREPLACE) : 0;
}

static enum found find(struct side *side)
{
	size_t length = strnlen(side->path, TPCK_FILES_PATH);
	enum tpck_seen seen;

	if (!length || length == TPCK_FILES_PATH)
		return NOT;
	side->exists = !tpck_sys_fstatat(side->folder, side->path, &side->there, AT_SYMLINK_NOFOLLOW);
	/* A folder may have a slash behind it. */
	while (side->exists && length > 1 && side->path[length - 1] == '/')
		length--;
	*(char *)mempcpy(side->text, side->path, length) = '\0';
	side->path = side->text;
	seen = tpck_files_look(side->folder, side->path, false, &side->pending);
	if (seen == TPCK_SEEN_REMOVED || (seen == TPCK_SEEN_REAL && !side->exists) ||
	    !tpck_files_folder_of(side->folder, side->path, &side->parent, side->at, &side->name))
		return NOT;
	return seen == TPCK_SEEN_REAL || hold_open(side) ? FOUND : LATER;
}

/* Both files are there, and one is being written. */
static int exchange(const struct side *from, const struct side *to)
{
	int result, saved;

	if (!tpck_files_may(from->at, W_OK | X_OK) || !tpck_files_may(to->at, W_OK | X_OK))
		return -1;
	if (from->open && to->open && from->pending.serial == to->pending.serial)
		return 0;
	/* What is at the paths changes behind what closed before. */
	if (!tpck_files_settle_at(from->folder, from->path)) {
		errno = EIO;
		return -1;
	}
	if (!move_both(from, to, false))
		return 1;
	result = exchange_real(from, to);
	saved = errno;
	if (result)
		(void)move_both(from, to, true);
	errno = saved;
	return result;
}

static int exchange_held(struct side *first, struct side *second)
{
	enum found one = find(first), other = one == NOT ? NOT : find(second);
	int result = other == NOT ? 1 : -2, saved;

	if (one == FOUND && other == FOUND && (first->open || second->open))
		result = first->parent.st_dev == second->parent.st_dev && !tpck_rules_excepted(tpck_files_settings, first->at) &&
					 !tpck_rules_excepted(tpck_files_settings, second->at)
				 ? exchange(first, second)
				 : 1;
	saved = errno;
	let_go(first);
	let_go(second);
	errno = saved;
	return result;
}

TPCK_FILES_SLOW int tpck_files_exchange(int from_folder, const char *from, int to_folder, const char *to)
{
	/* A thread's stack may be small. */
	struct side *sides = (void *)tpck_sys_mmap(NULL, 2 * sizeof *sides, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
	int result, saved;

	if (sides == MAP_FAILED)
		return 1;
	sides[0].folder = from_folder;
	sides[0].path = from;
	sides[1].folder = to_folder;
	sides[1].path = to;
	result = exchange_held(&sides[0], &sides[1]);
	saved = errno;
	tpck_sys_munmap(sides, 2 * sizeof *sides);
	errno = saved;
	return result;
}
