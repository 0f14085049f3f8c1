/* SPDX-License-Identifier: Apache-2.0 */
/* Putting one file at its path, or taking it from there: what a lane does with what it has chosen. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/files/debts.h"
#include "agent/files/file_digests.h"
#include "agent/files/publisher_private.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/store/replace.h"
#include "runtime/view/view.h"

/* How long one that only has inherited a descriptor is waited for. */
#define INHERITED_NS 2000000000ull

struct tpck_view_entry *files_still(const struct chosen *chosen)
{
	struct tpck_view_entry *entry = tpck_view_by_serial(files.view, chosen->index, chosen->serial);

	return entry && entry->state != TPCK_VIEW_OPEN && entry->order == chosen->order ? entry : NULL;
}

/* Whether somebody may still write to what was closed. One who has had a descriptor since before a fork, and does
 * nothing with it, is not waited for. */
static bool written(struct disk *disk, const struct chosen *chosen, int fd)
{
	uint64_t now = tpck_clock_monotonic_ns();
	struct stat found;

	if (tpck_replace_unwritten(fd) || fstat(fd, &found))
		return false;
	if (disk->waiting_serial != chosen->serial || disk->waiting.st_size != found.st_size ||
	    disk->waiting.st_mtim.tv_sec != found.st_mtim.tv_sec || disk->waiting.st_mtim.tv_nsec != found.st_mtim.tv_nsec) {
		disk->waiting_serial = chosen->serial;
		disk->waiting_ns = now;
		disk->waiting = found;
	}
	return now - disk->waiting_ns < INHERITED_NS;
}

static struct synced *synced_of(struct lane *lane, const struct stat *folder)
{
	return &lane->synced[folder->st_ino % FILES_SYNCED];
}

/* What the program itself did in the folder before it closed the file comes to the disk before the file: a rename of one
 * that is at its path already, say. A folder that is new here may be new in the one above. */
void files_sync_before(struct lane *lane, int folder)
{
	struct synced *synced;
	struct stat now;
	int above;

	if (fstat(folder, &now))
		return;
	synced = synced_of(lane, &now);
	if (synced->device == now.st_dev && synced->inode == now.st_ino && synced->changed.tv_sec == now.st_ctim.tv_sec &&
	    synced->changed.tv_nsec == now.st_ctim.tv_nsec)
		return;
	(void)!fsync(folder);
	if (synced->device == now.st_dev && synced->inode == now.st_ino)
		return;
	above = openat(folder, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (above >= 0) {
		(void)!fsync(above);
		close(above);
	}
}

void files_sync_note(struct lane *lane, int folder)
{
	struct stat now;

	if (!fstat(folder, &now))
		*synced_of(lane, &now) = (struct synced){now.st_dev, now.st_ino, now.st_ctim};
}

/* Between these two nobody changes the entry. False: it has changed. */
static bool begin_commit(const struct chosen *chosen)
{
	struct tpck_view_entry *entry;

	if (!tpck_view_lock(files.view))
		return false;
	entry = files_still(chosen);
	if (entry && entry->changed != chosen->changed)
		entry = NULL;
	if (entry)
		atomic_store(&entry->state, TPCK_VIEW_COMMITTING);
	tpck_view_unlock(files.view);
	return entry;
}

static void end_commit(const struct chosen *chosen, int rc, uint64_t bytes, uint64_t shared)
{
	struct tpck_view_entry *entry;

	if (!tpck_view_lock(files.view))
		return;
	entry = tpck_view_by_serial(files.view, chosen->index, chosen->serial);
	if (entry && rc) {
		entry->error = -rc;
		atomic_store(&entry->state, TPCK_VIEW_CLOSED);
	} else if (entry) {
		tpck_view_remove(files.view, entry);
		files.view->published += chosen->kind != TPCK_VIEW_REMOVED;
		files.view->published_bytes += bytes;
		files.view->shared_bytes += shared;
	}
	tpck_view_unlock(files.view);
}

/* Who removed a file that was being copied removed a part that was not yet there. */
void files_clear_part(const struct chosen *chosen, int folder)
{
	bool there;

	if (chosen->kind != TPCK_VIEW_MEMORY || !tpck_view_lock(files.view))
		return;
	there = tpck_view_by_serial(files.view, chosen->index, chosen->serial);
	tpck_view_unlock(files.view);
	if (!there)
		unlinkat(folder, chosen->part, 0);
}

static void (*told)(const char *path, const struct stat *put, uint64_t generation, uint64_t timeline, uint64_t step);

void files_told_to(void (*saved)(const char *path, const struct stat *put, uint64_t generation, uint64_t timeline, uint64_t step))
{
	told = saved;
}

void files_each_owed(void (*visit)(void *context, const char *path, uint64_t pattern, uint64_t order, uint64_t timeline, uint64_t step), void *context)
{
	struct tpck_view *view = files.view;
	char path[TPCK_VIEW_PATH + TPCK_VIEW_NAME];

	if (!view || !tpck_view_lock(view))
		return;
	for (uint32_t i = 0, left = view->used; left && i < TPCK_VIEW_ENTRIES; i++) {
		const struct tpck_view_entry *entry = &view->entry[i];
		const char *folder = view->folder[tpck_view_key_of(entry)->folder].path;

		if (entry->state == TPCK_VIEW_FREE)
			continue;
		left--;
		if (entry->state == TPCK_VIEW_OPEN || !entry->generation || entry->orphan || entry->kind == TPCK_VIEW_REMOVED || entry->kind == TPCK_VIEW_PLAIN)
			continue;
		snprintf(path, sizeof path, "%s/%s", folder, tpck_view_name_of(entry));
		visit(context, path, tpck_view_pattern(folder, tpck_view_name_of(entry)), entry->order, entry->timeline, entry->step);
	}
	tpck_view_unlock(view);
}

void files_tell_put(const struct chosen *chosen, const struct stat *put)
{
	char path[TPCK_VIEW_PATH + TPCK_VIEW_NAME];

	/* What was only synced is no checkpoint. */
	if (!told || chosen->orphan)
		return;
	snprintf(path, sizeof path, "%s/%s", chosen->folder.path, chosen->name);
	told(path, put, chosen->generation, chosen->timeline, chosen->step);
}

void files_note_sums(const struct chosen *chosen, const struct stat *put, struct tpck_sums *sums)
{
	char path[TPCK_VIEW_PATH + TPCK_VIEW_NAME];

	snprintf(path, sizeof path, "%s/%s", chosen->folder.path, chosen->name);
	sums_published(chosen->pattern, path, put, sums);
}

void files_note_suspect(const struct chosen *chosen, int error)
{
	struct tpck_view_entry *entry;

	if (!tpck_view_lock(files.view))
		return;
	entry = tpck_view_by_serial(files.view, chosen->index, chosen->serial);
	if (entry)
		entry->sync_error = error;
	tpck_view_unlock(files.view);
}

/* A part that the program wrote itself. Once a sync has failed, the next one may say that all is well where it is not: it is made
 * anew from memory, where that has all of it, or it does not come. */
static int sync_part(struct lane *lane, int bytes, int part_folder, struct tpck_error *err)
{
	const struct chosen *chosen = &lane->chosen;
	int rc;

	if (!chosen->suspect && !fsync(bytes))
		return 0;
	if (!chosen->suspect) {
		rc = tpck_error_set(err, errno, "writing %s", chosen->name);
		/* One with other names is at one of them, by the program itself; one that goes on is not to be another. */
		if (chosen->linked || chosen->goes_on)
			return rc;
		files_note_suspect(chosen, -rc);
	}
	lane->lost = !tpck_replace_cached(bytes);
	if (lane->lost)
		return tpck_error_set(err, EIO, "writing %s, of which the disk has lost some", chosen->name);
	rc = tpck_replace_rewrite(bytes, part_folder, chosen->part, chosen->name, err);
	if (!rc)
		files_note_suspect(chosen, 0);
	return rc;
}

/* Another node has put it there, or somebody has saved something else since: it is not owed any more. */
static void outdated_now(const struct chosen *chosen, int folder)
{
	struct tpck_view_entry *entry;

	if (!tpck_view_lock(files.view))
		return;
	entry = files_still(chosen);
	if (entry)
		tpck_view_remove(files.view, entry);
	tpck_view_unlock(files.view);
	if (!entry)
		return;
	unlink(chosen->bytes);
	if (folder >= 0)
		unlinkat(folder, chosen->part, 0);
}

/* A file that was synced, and whose writer was killed before it closed it: it gets its own name if it is as it was when it was synced
 * last, or nothing is there. False. Else what is there stays, and it has the name that the job sees it by. True. */
static bool goes_aside(struct chosen *chosen, const struct stat *found, int folder)
{
	const char *own = chosen->orphan == TPCK_ORPHAN_ASIDE ? chosen->own_name : chosen->name;
	bool whole = !chosen->mapped && (uint64_t)found->st_size == chosen->sync_bytes && found->st_ctim.tv_sec == chosen->sync_seconds &&
		     (uint32_t)found->st_ctim.tv_nsec == chosen->sync_nanoseconds;
	char aside[TPCK_VIEW_NAME];

	if (whole || faccessat(folder, own, F_OK, AT_SYMLINK_NOFOLLOW)) {
		memmove(chosen->name, own, strlen(own) + 1);
		return false;
	}
	tpck_view_aside_name(aside, own);
	memmove(chosen->own_name, own, strlen(own) + 1);
	strcpy(chosen->name, aside);
	return true;
}

static void say_orphan(const struct chosen *chosen, bool aside)
{
	if (aside)
		tpck_log_warn("%s/%s was being written when its process was killed; what was there before stays, and what had been synced is %s",
			      chosen->folder.path, chosen->own_name, chosen->name);
	else
		tpck_log_warn("%s/%s was not closed when its process was killed; it is there, since it had been synced",
			      chosen->folder.path, chosen->name);
}

/* -EAGAIN: somebody still writes, or it has changed meanwhile. */
static int publish_file(struct lane *lane, struct tpck_error *err)
{
	const struct chosen *chosen = &lane->chosen;
	int bytes = open(chosen->bytes, O_RDONLY | O_CLOEXEC), folder = -1, part_folder = -1, rc = 0;
	bool aside = false;
	struct tpck_ahead ahead = {.fd = -1};
	struct tpck_sums *sums = NULL;
	struct stat found = {0}, put = {0};

	if (bytes < 0 && errno != ENOENT)
		return tpck_error_set(err, errno, "reading what %s is to hold", chosen->name);
	/* A part that is gone is at its place: an agent was killed behind the rename. */
	if (bytes >= 0 && !chosen->linked && !chosen->goes_on && written(lane->disk, chosen, bytes)) {
		close(bytes);
		return -EAGAIN;
	}
	folder = files_folder(&chosen->folder, err);
	rc = folder < 0 ? folder : 0;
	if (!rc && chosen->kind == TPCK_VIEW_DIRECT) {
		part_folder = files_folder(&chosen->part_folder, err);
		rc = part_folder < 0 ? part_folder : 0;
		/* The part's folder was somewhere else a moment ago. */
		if (!rc && bytes < 0 && !faccessat(part_folder, chosen->part, F_OK, AT_SYMLINK_NOFOLLOW))
			rc = -EAGAIN;
	}
	if (!rc)
		files_sync_before(lane, folder);
	if (!rc && bytes >= 0)
		fstat(bytes, &found);
	if (!rc && bytes >= 0 && chosen->orphan)
		aside = goes_aside(&lane->chosen, &found, folder);
	/* Aside is what was synced, not what came behind it. */
	if (!rc && aside && chosen->kind == TPCK_VIEW_MEMORY && !faccessat(folder, chosen->part, F_OK, AT_SYMLINK_NOFOLLOW))
		tpck_log_debug("%s/%s: what a sync has made of it is kept", chosen->folder.path, chosen->name);
	else if (!rc && bytes >= 0 && chosen->kind == TPCK_VIEW_MEMORY)
		rc = files_copy(chosen, bytes, folder, files_ahead_take(chosen, folder, &ahead) ? &ahead : NULL, err);
	else if (!rc && bytes >= 0)
		rc = sync_part(lane, bytes, part_folder, err);
	tpck_replace_ahead_end(&ahead);
	if (!rc && bytes >= 0 && !owed_may_put(chosen, folder)) {
		outdated_now(chosen, folder);
	} else if (!rc && !begin_commit(chosen)) {
		rc = -EAGAIN;
		files_clear_part(chosen, folder);
	} else if (!rc) {
		if (bytes >= 0)
			rc = tpck_replace_commit(chosen->kind == TPCK_VIEW_DIRECT ? part_folder : folder, chosen->part, folder,
						 chosen->name, err);
		if (rc == -EXDEV) {
			files_makes_part(chosen->folder.path);
			rc = tpck_replace_copy(bytes, folder, chosen->part, chosen->name, NULL, NULL, &sums, err);
			if (!rc)
				rc = tpck_replace_commit(folder, chosen->part, folder, chosen->name, err);
			if (!rc)
				unlink(chosen->bytes);
		}
		/* A rename over another name of the same file leaves both. */
		if (!rc && chosen->linked)
			unlinkat(part_folder, chosen->part, 0);
		if (!rc)
			files_sync_note(lane, folder);
		if (chosen->kind == TPCK_VIEW_MEMORY)
			sums = files_prepared_sums(chosen);
		/* Before others may change it, or give its folder another name. */
		if (!rc && fstatat(folder, chosen->name, &put, AT_SYMLINK_NOFOLLOW))
			put.st_mode = 0;
		if (!rc)
			owed_put(chosen, put.st_mode ? &put : NULL);
		if (!rc && put.st_mode && !chosen->goes_on)
			files_tell_put(chosen, &put);
		end_commit(chosen, rc, (uint64_t)found.st_size, sums ? sums->shared : 0);
		if (!rc && chosen->orphan)
			say_orphan(chosen, aside);
		/* What its writer goes on with is another file in a moment. */
		if (!rc && put.st_mode && !chosen->goes_on)
			files_note_sums(chosen, &put, sums);
		else
			tpck_sums_free(sums);
		if (!rc && aside && chosen->kind == TPCK_VIEW_MEMORY)
			unlink(chosen->bytes);
		else if (!rc && chosen->kind == TPCK_VIEW_MEMORY)
			files_keep(chosen);
		else if (!rc && put.st_mode && !chosen->goes_on)
			files_keep_later(chosen, &put);
	}
	if (bytes >= 0)
		close(bytes);
	if (folder >= 0)
		close(folder);
	if (part_folder >= 0)
		close(part_folder);
	return rc;
}

static int publish_removal(const struct chosen *chosen, struct tpck_error *err)
{
	int folder = files_folder(&chosen->folder, err), rc = 0;

	if (folder < 0 && folder != -ENOENT && folder != -ESTALE)
		return folder;
	if (folder >= 0 && !owed_may_put(chosen, folder)) {
		outdated_now(chosen, -1);
	} else if (!begin_commit(chosen)) {
		rc = -EAGAIN;
	} else {
		/* What is gone with its folder is gone. */
		if (folder >= 0 && unlinkat(folder, chosen->name, 0) && errno != ENOENT)
			rc = tpck_error_set(err, errno, "removing %s/%s", chosen->folder.path, chosen->name);
		if (!rc)
			owed_put(chosen, NULL);
		end_commit(chosen, rc, 0, 0);
		if (!rc)
			files_forget(chosen);
	}
	if (folder >= 0)
		close(folder);
	return rc;
}

/* What is at its path already, by a rename that nobody saw: it comes to the disk before what closed behind it. One that has
 * gone since, or is another one, is whoever's did that. */
static int publish_plain(const struct chosen *chosen, struct tpck_error *err)
{
	int folder = files_folder(&chosen->folder, err), rc = 0, fd = -1;
	struct stat found = {0};

	if (folder < 0 && folder != -ENOENT && folder != -ESTALE)
		return folder;
	if (folder >= 0)
		fd = openat(folder, chosen->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0 && !fstat(fd, &found) && found.st_ino == chosen->inode && fsync(fd))
		rc = tpck_error_set(err, errno, "writing %s", chosen->name);
	if (!rc && folder >= 0 && fsync(folder))
		rc = tpck_error_set(err, errno, "syncing the folder of %s", chosen->name);
	if (!rc && fd >= 0 && found.st_ino == chosen->inode)
		files_tell_put(chosen, &found);
	end_commit(chosen, rc, (uint64_t)found.st_size, 0);
	if (!rc && fd >= 0 && found.st_ino == chosen->inode) {
		files_note_sums(chosen, &found, NULL);
		files_keep_later(chosen, &found);
	}
	if (fd >= 0)
		close(fd);
	if (folder >= 0)
		close(folder);
	return rc;
}

int files_publish(struct lane *lane, struct tpck_error *err)
{
	lane->lost = false;
	if (lane->chosen.kind == TPCK_VIEW_REMOVED)
		return publish_removal(&lane->chosen, err);
	if (lane->chosen.kind == TPCK_VIEW_PLAIN)
		return publish_plain(&lane->chosen, err);
	return publish_file(lane, err);
}
