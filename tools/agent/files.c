/* SPDX-License-Identifier: Apache-2.0 */
/* The program's own files: what was closed is put at its path, in the order of closing, by a thread of its own. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/store/replace.h"
#include "runtime/wire/view.h"
#include "tools/agent/files_private.h"
#include "tools/agent/sums.h"

/* How often the processes are looked at that write; how long one that only has inherited a descriptor is waited for. */
#define SWEEP_NS 100000000ull
#define INHERITED_NS 2000000000ull
enum { OPEN_MS = 100, WRITTEN_MS = 10 };

struct files files = {.prepared_lock = PTHREAD_MUTEX_INITIALIZER, .ahead = {.folder = -1, .part = {.fd = -1}}};

/* ---- what processes leave --------------------------------------------------------------------- */

static void sweep(void)
{
	char lost[TPCK_VIEW_PATH + TPCK_VIEW_NAME];

	while (tpck_view_sweep(files.view, files.agent->folder, lost))
		/* One that was being moved to its disk has two names. */
		if (!strstr(lost, "/" TPCK_VIEW_PART))
			tpck_log_warn("%s was being written when its process was killed; what was there before stays", lost);
	files.swept_ns = tpck_clock_monotonic_ns();
}

static bool known(uint64_t serial)
{
	for (uint32_t i = 0; i < TPCK_VIEW_ENTRIES; i++)
		if (files.view->entry[i].state != TPCK_VIEW_FREE && files.view->entry[i].serial == serial)
			return true;
	return false;
}

/* Bytes that no entry names: whoever made or dropped them died in between. */
static void clear_orphans(void)
{
	char folder[TPCK_PATH_MAX + 8], *end;
	struct dirent *entry;
	DIR *list;

	snprintf(folder, sizeof folder, "%s/" TPCK_VIEW_FOLDER, files.agent->folder);
	list = opendir(folder);
	if (!list || !tpck_view_lock(files.view)) {
		if (list)
			closedir(list);
		return;
	}
	while ((entry = readdir(list))) {
		uint64_t serial = strtoull(entry->d_name, &end, 16);

		if (end == entry->d_name + 16 && !*end && !known(serial) &&
		    (serial <= files.view->serial || serial >> 32 != files.view->serial >> 32))
			unlinkat(dirfd(list), entry->d_name, 0);
	}
	tpck_view_unlock(files.view);
	closedir(list);
}

/* ---- choosing --------------------------------------------------------------------------------- */

void files_choose(const struct tpck_view_entry *entry, struct chosen *chosen)
{
	const struct tpck_view_key *key = tpck_view_key_of(entry);

	*chosen = (struct chosen){
		.index = (uint32_t)(entry - files.view->entry), .kind = entry->kind, .serial = entry->serial,
		.order = entry->order, .synced = entry->synced, .pattern = entry->pattern,
		.folder = files.view->folder[key->folder], .part_folder = files.view->folder[entry->part_folder],
		.mapped = entry->mapped, .changed = entry->changed, .inode = entry->inode,
		.linked = entry->linked,
	};
	strcpy(chosen->name, tpck_view_name_of(entry));
	tpck_view_part_name(chosen->part, entry->serial);
	tpck_view_bytes(files.view, entry, files.agent->folder, chosen->bytes, sizeof chosen->bytes);
}

enum work { NOTHING, WRITERS, BUSY, PUBLISH };

bool files_is_syncing(uint64_t serial)
{
	for (unsigned i = 0; i < FILES_SYNCERS; i++)
		if (files.syncer[i].serial == serial)
			return true;
	return false;
}

/* What is to be done next: the first that was closed. */
static enum work next(struct chosen *chosen)
{
	const struct tpck_view_entry *first = NULL;
	enum work work = NOTHING;
	uint32_t left;

	if (!tpck_view_lock(files.view))
		return NOTHING;
	left = files.view->used;
	for (uint32_t i = 0; left && i < TPCK_VIEW_ENTRIES; i++) {
		struct tpck_view_entry *entry = &files.view->entry[i];

		if (entry->state == TPCK_VIEW_FREE)
			continue;
		left--;
		/* An agent that was killed at the rename: it is done again. */
		if (entry->state == TPCK_VIEW_COMMITTING)
			atomic_store(&entry->state, TPCK_VIEW_CLOSED);
		if (entry->state == TPCK_VIEW_OPEN)
			work = WRITERS;
		if (entry->state == TPCK_VIEW_CLOSED && (!first || entry->order < first->order))
			first = entry;
	}
	files.publishing = 0;
	if (first && files_is_syncing(first->serial)) {
		work = BUSY;
	} else if (first) {
		files_choose(first, chosen);
		files.publishing = first->serial;
		work = PUBLISH;
	}
	tpck_view_unlock(files.view);
	return work;
}

/* The entry if it is still what was chosen. The lock is held. */
static struct tpck_view_entry *still(const struct chosen *chosen)
{
	struct tpck_view_entry *entry = tpck_view_by_serial(files.view, chosen->index, chosen->serial);

	return entry && entry->state != TPCK_VIEW_OPEN && entry->order == chosen->order ? entry : NULL;
}

/* ---- doing ------------------------------------------------------------------------------------ */

/* Whether somebody may still write to what was closed. One who has had a descriptor since before a fork, and does
 * nothing with it, is not waited for. */
static bool written(const struct chosen *chosen, int fd)
{
	uint64_t now = tpck_clock_monotonic_ns();
	struct stat found;

	if (tpck_replace_unwritten(fd) || fstat(fd, &found))
		return false;
	if (files.waiting_serial != chosen->serial || files.waiting.st_size != found.st_size ||
	    files.waiting.st_mtim.tv_sec != found.st_mtim.tv_sec || files.waiting.st_mtim.tv_nsec != found.st_mtim.tv_nsec) {
		files.waiting_serial = chosen->serial;
		files.waiting_ns = now;
		files.waiting = found;
	}
	return now - files.waiting_ns < INHERITED_NS;
}

static struct synced *synced_of(const struct stat *folder)
{
	return &files.synced[folder->st_ino % FILES_SYNCED];
}

/* What the program itself did in the folder before it closed the file comes to the disk before the file: a rename of one
 * that is at its path already, say. A folder that is new here may be new in the one above. */
static void sync_before(int folder)
{
	struct synced *synced;
	struct stat now;
	int above;

	if (fstat(folder, &now))
		return;
	synced = synced_of(&now);
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

static void sync_note(int folder)
{
	struct stat now;

	if (!fstat(folder, &now))
		*synced_of(&now) = (struct synced){now.st_dev, now.st_ino, now.st_ctim};
}

/* Between these two nobody changes the entry. False: it has changed. */
static bool begin_commit(const struct chosen *chosen)
{
	struct tpck_view_entry *entry;

	if (!tpck_view_lock(files.view))
		return false;
	entry = still(chosen);
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

static void note_sums(const struct chosen *chosen, struct tpck_sums *sums)
{
	char path[TPCK_VIEW_PATH + TPCK_VIEW_NAME];

	snprintf(path, sizeof path, "%s/%s", chosen->folder.path, chosen->name);
	sums_published(chosen->pattern, path, sums);
}

/* -EAGAIN: somebody still writes, or it has changed meanwhile. */
static int publish_file(const struct chosen *chosen, struct tpck_error *err)
{
	int bytes = open(chosen->bytes, O_RDONLY | O_CLOEXEC), folder = -1, part_folder = -1, rc = 0;
	struct tpck_sums *sums = NULL;
	struct stat found = {0};

	if (bytes < 0 && errno != ENOENT)
		return tpck_error_set(err, errno, "reading what %s is to hold", chosen->name);
	/* A part that is gone is at its place: an agent was killed behind the rename. */
	if (bytes >= 0 && !chosen->linked && written(chosen, bytes)) {
		close(bytes);
		return -EAGAIN;
	}
	folder = tpck_replace_folder(chosen->folder.path, chosen->folder.device, chosen->folder.inode, err);
	rc = folder < 0 ? folder : 0;
	if (!rc && chosen->kind == TPCK_VIEW_DIRECT) {
		part_folder = tpck_replace_folder(chosen->part_folder.path, chosen->part_folder.device, chosen->part_folder.inode, err);
		rc = part_folder < 0 ? part_folder : 0;
	}
	if (!rc)
		sync_before(folder);
	if (!rc && bytes >= 0)
		fstat(bytes, &found);
	if (!rc && bytes >= 0 && chosen->kind == TPCK_VIEW_MEMORY)
		rc = files_copy(chosen, bytes, folder, files_ahead_of(chosen, folder), err);
	else if (!rc && bytes >= 0 && fsync(bytes))
		rc = tpck_error_set(err, errno, "writing %s", chosen->name);
	if (!rc && !begin_commit(chosen)) {
		rc = -EAGAIN;
		files_clear_part(chosen, folder);
	} else if (!rc) {
		if (bytes >= 0)
			rc = tpck_replace_commit(chosen->kind == TPCK_VIEW_DIRECT ? part_folder : folder, chosen->part, folder,
						 chosen->name, err);
		if (rc == -EXDEV) {
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
			sync_note(folder);
		if (chosen->kind == TPCK_VIEW_MEMORY)
			sums = files_prepared_sums(chosen);
		end_commit(chosen, rc, (uint64_t)found.st_size, sums ? sums->shared : 0);
		if (!rc)
			note_sums(chosen, sums);
		else
			tpck_sums_free(sums);
		if (!rc && chosen->kind == TPCK_VIEW_MEMORY)
			files_keep(chosen);
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
	int folder = tpck_replace_folder(chosen->folder.path, chosen->folder.device, chosen->folder.inode, err), rc = 0;

	if (folder < 0 && folder != -ENOENT && folder != -ESTALE)
		return folder;
	if (!begin_commit(chosen)) {
		rc = -EAGAIN;
	} else {
		/* What is gone with its folder is gone. */
		if (folder >= 0 && unlinkat(folder, chosen->name, 0) && errno != ENOENT)
			rc = tpck_error_set(err, errno, "removing %s/%s", chosen->folder.path, chosen->name);
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
	int folder = tpck_replace_folder(chosen->folder.path, chosen->folder.device, chosen->folder.inode, err), rc = 0, fd = -1;
	struct stat found = {0};

	if (folder < 0 && folder != -ENOENT && folder != -ESTALE)
		return folder;
	if (folder >= 0)
		fd = openat(folder, chosen->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0 && !fstat(fd, &found) && found.st_ino == chosen->inode && fsync(fd))
		rc = tpck_error_set(err, errno, "writing %s", chosen->name);
	if (!rc && folder >= 0 && fsync(folder))
		rc = tpck_error_set(err, errno, "syncing the folder of %s", chosen->name);
	end_commit(chosen, rc, (uint64_t)found.st_size, 0);
	if (!rc && fd >= 0 && found.st_ino == chosen->inode)
		note_sums(chosen, NULL);
	if (fd >= 0)
		close(fd);
	if (folder >= 0)
		close(folder);
	return rc;
}

/* ---- the thread ------------------------------------------------------------------------------- */

/* Its folder has been removed, and has not only gone with its file system: what was to be in it has gone too. One that was
 * renamed just now is in the table by its new name soon. */
static bool gone(const struct chosen *chosen, int rc)
{
	char path[TPCK_VIEW_PATH], *slash;
	struct stat found;

	if (rc != -ENOENT && rc != -ESTALE)
		return false;
	strcpy(path, chosen->folder.path);
	if (stat(path, &found) == 0)
		return found.st_dev == chosen->folder.device && found.st_ino != chosen->folder.inode;
	while (errno == ENOENT && (slash = strrchr(path, '/')) && slash > path) {
		*slash = '\0';
		if (stat(path, &found) == 0)
			return found.st_dev == chosen->folder.device;
	}
	return false;
}

/* True: it is the second time, and there is nothing more to be done. */
static bool dropped(const struct chosen *chosen, int rc)
{
	struct tpck_view_entry *entry;
	bool drop = false;

	if (!gone(chosen, rc) || !tpck_view_lock(files.view))
		return false;
	entry = still(chosen);
	drop = entry && entry->error == -rc;
	if (drop)
		tpck_view_remove(files.view, entry);
	tpck_view_unlock(files.view);
	if (drop && chosen->kind != TPCK_VIEW_REMOVED) {
		unlink(chosen->bytes);
		tpck_log_warn("%s/%s is given up: its folder has been removed", chosen->folder.path, chosen->name);
	}
	return drop;
}

static void failed(const struct chosen *chosen, int rc, const struct tpck_error *err)
{
	struct tpck_view_entry *entry;

	if (strcmp(files.said, err->text) != 0) {
		snprintf(files.said, sizeof files.said, "%s", err->text);
		tpck_log_warn("%s/%s is not at its path yet: %s", chosen->folder.path, chosen->name, err->text);
	}
	files.backoff_sec = agent_backoff(files.backoff_sec);
	files.retry_ns = tpck_clock_monotonic_ns() + (uint64_t)(files.backoff_sec * 1e9);
	if (tpck_view_lock(files.view)) {
		entry = tpck_view_by_serial(files.view, chosen->index, chosen->serial);
		if (entry)
			entry->error = -rc;
		tpck_view_unlock(files.view);
	}
	files.view->failing = 1;
	tpck_view_tell(&files.view->done);
}

static void go_on(void)
{
	files.view->failing = 0;
	files.said[0] = '\0';
	files.backoff_sec = 0;
	files.retry_ns = 0;
	tpck_view_tell(&files.view->done);
}

static void succeeded(const struct chosen *chosen)
{
	if (files.said[0])
		tpck_log_warn("%s/%s is at its path; it works again", chosen->folder.path, chosen->name);
	go_on();
}

/* Whether somebody waits for what the publisher does. */
static bool busy(void)
{
	return files.stop || files.view->news != files.seen;
}

static void *files_main(void *unused)
{
	static struct chosen chosen;

	(void)unused;
	pthread_setname_np(pthread_self(), "tpck-files");
	sweep();
	clear_orphans();
	files_adopt_kept();
	sums_begin(files.agent);
	while (!files.stop) {
		uint32_t seen = files.view->news;
		uint64_t now = tpck_clock_monotonic_ns();
		struct tpck_error err = {0};
		enum work work = now < files.retry_ns ? WRITERS : next(&chosen);
		int rc = -EAGAIN;

		/* There was no thread to be had. */
		if (!files.syncer[0].running && files_sync_one(&files.syncer[0]))
			continue;
		if (work == WRITERS && now - files.swept_ns >= SWEEP_NS)
			sweep();
		files.seen = seen;
		if (work == NOTHING && sums_catch_up(busy))
			continue;
		if (work == NOTHING && files.spares) {
			files_make_spare(files.spare[--files.spares]);
			continue;
		}
		if (work == WRITERS && now >= files.retry_ns && files_go_ahead(&chosen))
			continue;
		if (work != PUBLISH && files.ahead.serial && !tpck_replace_ahead_valid(&files.ahead.part))
			files_ahead_end(false);
		if (work != PUBLISH) {
			files_yield(0);
			tpck_view_wait(&files.view->news, seen, work == NOTHING ? FILES_IDLE_MS : work == BUSY ? WRITTEN_MS : OPEN_MS);
			continue;
		}
		if (chosen.kind == TPCK_VIEW_REMOVED)
			rc = publish_removal(&chosen, &err);
		else if (chosen.kind == TPCK_VIEW_PLAIN)
			rc = publish_plain(&chosen, &err);
		else
			rc = publish_file(&chosen, &err);
		if (rc == -EAGAIN) {
			sweep();
			tpck_view_wait(&files.view->news, seen, WRITTEN_MS);
		} else if (rc && dropped(&chosen, rc)) {
			go_on();
		} else if (rc) {
			failed(&chosen, rc, &err);
		} else {
			succeeded(&chosen);
			if (chosen.kind == TPCK_VIEW_MEMORY || chosen.kind == TPCK_VIEW_DIRECT)
				files_want_spare(chosen.pattern);
		}
	}
	return NULL;
}

void files_begin(struct agent *agent)
{
	int rc;

	if (files.running)
		return;
	files.agent = agent;
	rc = tpck_view_map(agent->folder, false, &files.view);
	if (rc) {
		errno = -rc;
		if (rc != -ENOENT)
			tpck_log_warn("cannot look after the program's files in %s/" TPCK_VIEW_FOLDER ": %m", agent->folder);
		return;
	}
	atomic_store(&files.view->ended, 0);
	atomic_store(&files.view->agent, (int32_t)getpid());
	for (unsigned i = 0; i < FILES_SYNCERS; i++)
		files.syncer[i].running = pthread_create(&files.syncer[i].thread, NULL, files_sync_main, &files.syncer[i]) == 0;
	files.running = pthread_create(&files.thread, NULL, files_main, NULL) == 0;
	if (!files.running)
		tpck_log_warn("cannot start a thread: the program's files stay pending");
}

bool files_owed(void)
{
	return files.running && (atomic_load(&files.view->used) || (!files.agent->stopping && sums_left()));
}

bool files_failing(void)
{
	return files.retry_ns != 0;
}

bool files_stop(void)
{
	bool none = true;

	if (!files.running)
		return true;
	/* Whoever takes a file behind this looks for another table. */
	if (tpck_view_lock(files.view)) {
		none = !files.view->used;
		if (none)
			atomic_store(&files.view->ended, 1);
		tpck_view_unlock(files.view);
	}
	files.stop = true;
	tpck_view_tell(&files.view->news);
	tpck_view_tell(&files.view->syncs);
	pthread_join(files.thread, NULL);
	for (unsigned i = 0; i < FILES_SYNCERS; i++)
		if (files.syncer[i].running)
			pthread_join(files.syncer[i].thread, NULL);
	atomic_store(&files.view->agent, 0);
	files.running = false;
	return none;
}
