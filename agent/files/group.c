/* SPDX-License-Identifier: Apache-2.0 */
/* Many small files that are owed to one file system: they come to the disk together, and then to their paths one after the other,
 * in the order of closing. One at a time each would wait for two commits of the file system's journal.
 *
 * What is promised of one file holds of each: its bytes are on the disk before it has its name, and it is in the table until its
 * name is on the disk. The names of one folder come to the disk together; those of the next folder are not given before. What is
 * not plain (pointers, removals, orphans, what has failed before, what somebody still writes) ends the group in front of it, and is
 * published alone. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/files/debts.h"
#include "agent/files/file_digests.h"
#include "agent/files/publisher_private.h"
#include "runtime/base/clock.h"
#include "runtime/store/replace.h"
#include "runtime/store/sync_all.h"

/* What is larger is worth a turn of its own; all together they hold up what closes behind them no longer than a large file does.
 * From `SHARE_LEAST` on a file may have blocks of the save before. */
enum { SMALL_BYTES = 1 << 20, GROUP_BYTES = 64 << 20, SHARE_LEAST = 64 << 10, FOLDERS = 64 };

struct member {
	struct chosen chosen;
	int bytes, part;         /* part: what is to be synced; -1: a sync has done that */
	int folder, part_folder; /* of struct group */
	struct stat found, put;
	struct tpck_sums *sums;
};

struct group {
	unsigned count, folders;
	int folder[FOLDERS];
	struct tpck_view_folder known[FOLDERS];
	unsigned most; /* members */
	struct member member[];
};

/* As many as there are, and as the agent may have descriptors for: half of what it may have in all. */
static unsigned most_members(unsigned count)
{
	struct rlimit limit;
	unsigned most = FILES_GROUP;

	if (!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur < 4 * most)
		most = (unsigned)limit.rlim_cur / 4;
	return count < most ? count : most;
}

/* ---- who is in it ----------------------------------------------------------------------------- */

struct candidate {
	uint64_t order, serial;
	uint32_t index;
};

static int by_order(const void *a, const void *b)
{
	const struct candidate *left = a, *right = b;

	return left->order < right->order ? -1 : left->order > right->order;
}

/* All that are whole and owed to the lane's file system, in order. */
static struct candidate *candidates(const struct lane *lane, unsigned *count)
{
	unsigned room = files.view->used + 64;
	struct candidate *found = malloc(room * sizeof *found);
	bool full = false;
	uint32_t left;

	*count = 0;
	if (!found || !tpck_view_lock(files.view)) {
		free(found);
		return NULL;
	}
	left = files.view->used;
	for (uint32_t i = 0; left && i < TPCK_VIEW_ENTRIES; i++) {
		const struct tpck_view_entry *entry = &files.view->entry[i];

		if (entry->state == TPCK_VIEW_FREE)
			continue;
		left--;
		if (entry->state != TPCK_VIEW_CLOSED || tpck_view_device_of(files.view, entry) != lane->device)
			continue;
		/* More have come than there is room for, and may be those that were closed first. */
		full = *count == room;
		if (full)
			break;
		found[(*count)++] = (struct candidate){entry->order, entry->serial, i};
	}
	tpck_view_unlock(files.view);
	if (full)
		*count = 0;
	qsort(found, *count, sizeof *found, by_order);
	return found;
}

static bool is_plain(const struct tpck_view_entry *entry)
{
	if (entry->state != TPCK_VIEW_CLOSED || entry->error || entry->sync_error || entry->linked || entry->goes_on || entry->orphan ||
	    entry->mapped || tpck_view_after_all(entry) || files_is_syncing(entry->serial))
		return false;
	if (entry->kind == TPCK_VIEW_MEMORY)
		return entry->bytes <= SMALL_BYTES;
	return entry->kind == TPCK_VIEW_DIRECT && files.view->folder[entry->part_folder].device == tpck_view_device_of(files.view, entry);
}

/* No other lane is at the file system. What is claimed here no sync begins with. */
static unsigned claim(struct lane *lane, const struct candidate *found, unsigned count, unsigned most)
{
	unsigned claimed = 0;

	if (!count || !tpck_view_lock(files.view))
		return 0;
	while (claimed < count && claimed < most) {
		const struct tpck_view_entry *entry = tpck_view_by_serial(files.view, found[claimed].index, found[claimed].serial);

		if (!entry || entry->order != found[claimed].order || !is_plain(entry))
			break;
		lane->group[claimed++] = entry->serial;
	}
	lane->grouped = claimed;
	tpck_view_unlock(files.view);
	return claimed;
}

/* ---- beside their targets --------------------------------------------------------------------- */

/* The folder's index; mostly that of the one before. -1: it cannot be opened, or there are too many. */
static int folder_in(struct lane *lane, struct group *group, const struct tpck_view_folder *folder, struct tpck_error *err)
{
	int fd;

	for (unsigned i = group->folders; i--;)
		if (group->known[i].device == folder->device && group->known[i].inode == folder->inode)
			return (int)i;
	fd = group->folders < FOLDERS ? files_folder(folder, err) : -EMFILE;
	if (fd < 0)
		return -1;
	files_sync_before(lane, fd);
	group->known[group->folders] = *folder;
	group->folder[group->folders] = fd;
	return (int)group->folders++;
}

static bool choose(struct member *member, const struct candidate *candidate)
{
	const struct tpck_view_entry *entry;

	if (!tpck_view_lock(files.view))
		return false;
	entry = tpck_view_by_serial(files.view, candidate->index, candidate->serial);
	if (entry && (entry->order != candidate->order || !is_plain(entry)))
		entry = NULL;
	if (entry)
		files_choose(entry, &member->chosen);
	tpck_view_unlock(files.view);
	return entry;
}

/* The member's bytes are on their way to the disk, beside its target. False: it is to be published alone. */
static bool prepare(struct lane *lane, struct group *group, struct member *member)
{
	const struct chosen *chosen = &member->chosen;
	struct tpck_error err = {0};

	member->part = -1;
	member->bytes = open(chosen->bytes, O_RDONLY | O_CLOEXEC);
	if (member->bytes < 0)
		return false;
	if (fstat(member->bytes, &member->found) || member->found.st_size > SMALL_BYTES || !tpck_replace_unwritten(member->bytes))
		return false;
	member->folder = member->part_folder = folder_in(lane, group, &chosen->folder, &err);
	if (member->folder >= 0 && chosen->kind == TPCK_VIEW_DIRECT)
		member->part_folder = folder_in(lane, group, &chosen->part_folder, &err);
	if (member->folder < 0 || member->part_folder < 0)
		return false;
	if (chosen->kind == TPCK_VIEW_MEMORY)
		return files_copy_unsynced(chosen, member->bytes, group->folder[member->folder], member->found.st_size >= SHARE_LEAST,
					   &member->part, &member->sums, &err) == 0;
	member->part = member->bytes;
	sync_file_range(member->bytes, 0, 0, SYNC_FILE_RANGE_WRITE);
	return true;
}

static void finish(struct group *group, struct member *member, bool put)
{
	const struct chosen *chosen = &member->chosen;

	/* One that was made here, and is not to be had from the disk. */
	if (!put && chosen->kind == TPCK_VIEW_MEMORY && member->part >= 0)
		unlinkat(group->folder[member->folder], chosen->part, 0);
	tpck_sums_free(member->sums);
	if (member->part >= 0 && member->part != member->bytes)
		close(member->part);
	if (member->bytes >= 0)
		close(member->bytes);
}

static void drop_from(struct group *group, unsigned first)
{
	while (group->count > first)
		finish(group, &group->member[--group->count], false);
}

/* In the order of closing, up to the first one that is for another turn. */
static void prepare_all(struct lane *lane, struct group *group, const struct candidate *found, unsigned count)
{
	uint64_t bytes = 0;

	while (group->count < count && bytes <= GROUP_BYTES) {
		struct member *member = &group->member[group->count];

		member->sums = NULL;
		if (!choose(member, &found[group->count]))
			break;
		if (!prepare(lane, group, member)) {
			finish(group, member, false);
			break;
		}
		bytes += (uint64_t)member->found.st_size;
		group->count++;
	}
}

/* A part of the program's own whose sync has failed is looked at when it is published alone: the next sync of it may say that all
 * is well. */
static void sync_all(struct group *group)
{
	int fd[FILES_GROUP], result[FILES_GROUP];
	unsigned good = 0;

	for (unsigned i = 0; i < group->count; i++)
		fd[i] = group->member[i].part;
	tpck_sync_all(fd, result, group->count);
	for (unsigned i = 0; i < group->count; i++)
		if (result[i] && group->member[i].chosen.kind == TPCK_VIEW_DIRECT)
			files_note_suspect(&group->member[i].chosen, -result[i]);
	while (good < group->count && !result[good])
		good++;
	drop_from(group, good);
}

/* ---- to their paths --------------------------------------------------------------------------- */

/* From here on nobody changes them. Who has changed one since it was chosen ends the group. */
static void begin_commit(struct group *group)
{
	unsigned good = 0;

	if (tpck_view_lock(files.view)) {
		for (; good < group->count; good++) {
			struct tpck_view_entry *entry = files_still(&group->member[good].chosen);

			if (!entry || entry->changed != group->member[good].chosen.changed)
				break;
			atomic_store(&entry->state, TPCK_VIEW_COMMITTING);
		}
		tpck_view_unlock(files.view);
	}
	for (unsigned i = good; i < group->count; i++)
		files_clear_part(&group->member[i].chosen, group->folder[group->member[i].folder]);
	drop_from(group, good);
}

static int sync_folders(struct lane *lane, const struct group *group, unsigned first, unsigned end, struct tpck_error *err)
{
	int folder = group->folder[group->member[first].folder], other = -1;

	if (fsync(folder))
		return tpck_error_set(err, errno, "syncing the folder of %s", group->member[first].chosen.name);
	for (unsigned i = first; i < end; i++) {
		int part_folder = group->folder[group->member[i].part_folder];

		if (part_folder == folder || part_folder == other)
			continue;
		if (fsync(part_folder))
			return tpck_error_set(err, errno, "syncing the folder of %s", group->member[i].chosen.name);
		other = part_folder;
	}
	files_sync_note(lane, folder);
	return 0;
}

/* Files of one folder get their names, and these come to the disk. How many have come to their paths so: all, or none. */
static int rename_run(struct lane *lane, struct group *group, unsigned first, unsigned *end, struct tpck_error *err)
{
	int folder = group->folder[group->member[first].folder], rc = 0;
	unsigned i;

	for (i = first; i < group->count && group->member[i].folder == group->member[first].folder; i++) {
		struct member *member = &group->member[i];

		if (renameat(group->folder[member->part_folder], member->chosen.part, folder, member->chosen.name)) {
			rc = tpck_error_set(err, errno, "putting %s at its place", member->chosen.name);
			break;
		}
		/* Before others may change it, or give its folder another name. */
		if (fstatat(folder, member->chosen.name, &member->put, AT_SYMLINK_NOFOLLOW))
			member->put.st_mode = 0;
	}
	*end = i;
	if (i > first) {
		int synced = sync_folders(lane, group, first, i, err);

		if (synced) {
			*end = first;
			rc = synced;
		}
	}
	return rc;
}

/* `put` of them are at their paths; the next one is not because of `rc`, if that is not 0. */
static void end_commit(struct group *group, unsigned put, int rc)
{
	if (!tpck_view_lock(files.view))
		return;
	for (unsigned i = 0; i < group->count; i++) {
		const struct member *member = &group->member[i];
		struct tpck_view_entry *entry = tpck_view_by_serial(files.view, member->chosen.index, member->chosen.serial);

		if (!entry)
			continue;
		if (i < put) {
			tpck_view_remove(files.view, entry);
			files.view->published++;
			files.view->published_bytes += (uint64_t)member->found.st_size;
			files.view->shared_bytes += member->sums ? member->sums->shared : 0;
			continue;
		}
		if (i == put && rc)
			entry->error = -rc;
		atomic_store(&entry->state, TPCK_VIEW_CLOSED);
	}
	tpck_view_unlock(files.view);
}

/* What is known of one that is at its path. */
static void note_put(struct member *member)
{
	const struct chosen *chosen = &member->chosen;

	if (member->put.st_mode) {
		files_note_sums(chosen, &member->put, member->sums);
		member->sums = NULL;
	}
	if (chosen->kind == TPCK_VIEW_MEMORY)
		files_keep(chosen);
	else if (member->put.st_mode)
		files_keep_later(chosen, &member->put);
	if (chosen->kind == TPCK_VIEW_MEMORY || !chosen->until_sync)
		files_want_spare(chosen->pattern);
}

static int commit(struct lane *lane, struct group *group, unsigned *put, struct tpck_error *err)
{
	unsigned end = 0;
	int rc = 0;

	begin_commit(group);
	for (*put = 0; !rc && *put < group->count; *put = end)
		rc = rename_run(lane, group, *put, &end, err);
	for (unsigned i = 0; i < *put; i++)
		if (group->member[i].put.st_mode)
			files_tell_put(&group->member[i].chosen, &group->member[i].put);
	end_commit(group, *put, rc);
	for (unsigned i = 0; i < *put; i++)
		note_put(&group->member[i]);
	/* What is named and not known to be on the disk has no part any more; all else is made again. */
	if (rc && *put < group->count)
		lane->chosen = group->member[*put].chosen;
	for (unsigned i = 0; i < group->count; i++)
		finish(group, &group->member[i], i < *put);
	group->count = 0;
	return rc;
}

/* The next of them, as far as they are plain; `first`: the first one must be what the lane has chosen. How many were to come; *put: have
 * come. */
static unsigned publish_some(struct lane *lane, struct group *group, const struct candidate *found, unsigned count, bool first,
			     unsigned *put, struct tpck_error *err, int *rc)
{
	unsigned claimed = first && found[0].serial != lane->serial ? 0 : claim(lane, found, count, group->most);

	*put = 0;
	*rc = 0;
	if (claimed >= (first ? FILES_GROUP_LEAST : 1)) {
		group->count = 0;
		prepare_all(lane, group, found, claimed);
		sync_all(group);
		if (group->count)
			*rc = commit(lane, group, put, err);
	}
	if (claimed)
		files_let_go(lane, true);
	while (group->folders)
		close(group->folder[--group->folders]);
	return claimed;
}

int files_publish_group(struct lane *lane, unsigned *put, struct tpck_error *err)
{
	struct candidate *found;
	struct group *group = NULL;
	unsigned count, claimed = 0, some = 0;
	int rc = 0;

	*put = 0;
	/* Those who have copies of what is owed on other nodes are told of one after the other. */
	if (files.view->used < FILES_GROUP_LEAST || owed_view())
		return 0;
	found = candidates(lane, &count);
	if (found && count >= FILES_GROUP_LEAST)
		group = malloc(sizeof *group + most_members(count) * sizeof *group->member);
	if (group) {
		group->folders = 0;
		group->most = most_members(count);
	}
	/* What closes meanwhile has its place behind these: thousands are looked for once. */
	while (group && *put < count && some == claimed && !rc && !files.stop) {
		claimed = publish_some(lane, group, found + *put, count - *put, !*put, &some, err, &rc);
		*put += some;
		if (!claimed)
			break;
		lane->busy_ns = tpck_clock_monotonic_ns();
		tpck_view_tell(&files.view->done);
	}
	free(group);
	free(found);
	return rc;
}
