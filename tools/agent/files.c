/* SPDX-License-Identifier: Apache-2.0 */
/* The program's own files: what was closed is put at its path, in the order of closing, by a thread of its own. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/store/replace.h"
#include "runtime/wire/view.h"
#include "tools/agent/agent.h"
#include "tools/agent/sums.h"

/* How often the processes are looked at that write; how long one that only has inherited a descriptor is waited for. */
#define SWEEP_NS 100000000ull
#define INHERITED_NS 2000000000ull
#define AHEAD_BYTES (16ll << 20)
#define SPARE_FREE_BYTES (512ull << 20)
enum { IDLE_MS = 1000, OPEN_MS = 100, WRITTEN_MS = 10, PREPARED = 64, SYNCED = 64, SPARES = 64, SPARE_LEAST = 64 << 10, SYNCERS = 3,
       AHEAD_CHUNKS = 32 };

/* An entry as it was when it was chosen. */
struct chosen {
	uint32_t index;
	enum tpck_view_kind kind;
	uint64_t serial, order, synced, pattern;
	struct tpck_view_folder folder, part_folder;
	char name[TPCK_VIEW_NAME], part[64], bytes[TPCK_VIEW_PATH + 80];
	uint32_t changed;
	uint64_t inode;
	bool mapped, linked;
};

/* A part that a sync has made, and what it is a copy of. */
struct prepared {
	uint64_t serial, bytes;
	struct timespec changed;
	uint32_t changes;
	struct tpck_sums *sums; /* the one who puts it at its path takes them */
};

/* A folder as it was when it was synced last. */
struct synced {
	uint64_t device, inode;
	struct timespec changed;
};

/* One that does what somebody waits for in fsync(): a disk that hangs holds up those who write to it alone. */
struct syncer {
	pthread_t thread;
	bool running;
	uint64_t serial; /* what it is at; 0: nothing. Under the view's lock */
	struct chosen chosen;
	char said[sizeof ((struct tpck_error *)0)->text];
};

struct files {
	struct agent *agent;
	struct tpck_view *view;
	pthread_t thread;
	bool running;
	_Atomic bool stop;
	uint32_t seen; /* the news that were looked at */
	uint64_t publishing; /* under the view's lock, as a syncer's */
	struct syncer syncer[SYNCERS];
	pthread_mutex_t prepared_lock;
	/* What is copied before it is closed. The publisher's alone. */
	struct {
		uint64_t serial, failed; /* whose; with whom it did not work */
		int folder;
		char name[64];
		struct tpck_ahead part;
	} ahead;
	uint64_t swept_ns;
	uint64_t waiting_serial, waiting_ns; /* the entry that somebody still may write, since when it has not changed */
	struct stat waiting;
	struct prepared prepared[PREPARED];
	unsigned prepared_next;
	struct synced synced[SYNCED];
	uint64_t spare[SPARES]; /* patterns that are to get one */
	unsigned spares;
	uint64_t retry_ns;
	double backoff_sec;
	char said[sizeof ((struct tpck_error *)0)->text];
};
static struct files files = {.prepared_lock = PTHREAD_MUTEX_INITIALIZER, .ahead = {.folder = -1, .part = {.fd = -1}}};

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

static void choose(const struct tpck_view_entry *entry, struct chosen *chosen)
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

static bool is_syncing(uint64_t serial)
{
	for (unsigned i = 0; i < SYNCERS; i++)
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
	if (first && is_syncing(first->serial)) {
		work = BUSY;
	} else if (first) {
		choose(first, chosen);
		files.publishing = first->serial;
		work = PUBLISH;
	}
	tpck_view_unlock(files.view);
	return work;
}

/* A sync that somebody waits for, and nobody is at. */
static bool next_sync(struct syncer *syncer)
{
	uint32_t left;

	if (!tpck_view_lock(files.view))
		return false;
	syncer->serial = 0;
	left = files.view->used;
	for (uint32_t i = 0; left && !syncer->serial && i < TPCK_VIEW_ENTRIES; i++) {
		const struct tpck_view_entry *entry = &files.view->entry[i];

		if (entry->state == TPCK_VIEW_FREE)
			continue;
		left--;
		if (entry->kind != TPCK_VIEW_MEMORY || entry->synced <= entry->sync_done || entry->serial == files.publishing ||
		    is_syncing(entry->serial))
			continue;
		choose(entry, &syncer->chosen);
		syncer->serial = entry->serial;
	}
	tpck_view_unlock(files.view);
	return syncer->serial;
}

/* The entry if it is still what was chosen. The lock is held. */
static struct tpck_view_entry *still(const struct chosen *chosen)
{
	struct tpck_view_entry *entry = tpck_view_by_serial(files.view, chosen->index, chosen->serial);

	return entry && entry->state != TPCK_VIEW_OPEN && entry->order == chosen->order ? entry : NULL;
}

/* ---- doing ------------------------------------------------------------------------------------ */

static bool same(const struct prepared *prepared, const struct stat *found)
{
	return prepared->bytes == (uint64_t)found->st_size && prepared->changed.tv_sec == found->st_ctim.tv_sec &&
	       prepared->changed.tv_nsec == found->st_ctim.tv_nsec;
}

static void prepared_note(const struct chosen *chosen, const struct stat *found, struct tpck_sums *sums)
{
	unsigned i = 0;

	pthread_mutex_lock(&files.prepared_lock);
	while (i < PREPARED && files.prepared[i].serial != chosen->serial)
		i++;
	if (i == PREPARED)
		i = files.prepared_next++ % PREPARED;
	tpck_sums_free(files.prepared[i].sums);
	files.prepared[i] = (struct prepared){chosen->serial, (uint64_t)found->st_size, found->st_ctim, chosen->changed, sums};
	pthread_mutex_unlock(&files.prepared_lock);
}

static struct tpck_sums *prepared_sums(const struct chosen *chosen)
{
	struct tpck_sums *sums = NULL;

	pthread_mutex_lock(&files.prepared_lock);
	for (unsigned i = 0; i < PREPARED && !sums; i++)
		if (files.prepared[i].serial == chosen->serial) {
			sums = files.prepared[i].sums;
			files.prepared[i].sums = NULL;
		}
	pthread_mutex_unlock(&files.prepared_lock);
	return sums;
}

/* A sync has copied it already, and it has not changed since. */
static bool is_prepared(const struct chosen *chosen, const struct stat *found)
{
	bool is = false;

	pthread_mutex_lock(&files.prepared_lock);
	for (unsigned i = 0; i < PREPARED && !is; i++)
		is = files.prepared[i].serial == chosen->serial && files.prepared[i].changes == chosen->changed && !chosen->mapped &&
		     same(&files.prepared[i], found);
	pthread_mutex_unlock(&files.prepared_lock);
	return is;
}

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
	return &files.synced[folder->st_ino % SYNCED];
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

static int copy(const struct chosen *chosen, int bytes, int folder, struct tpck_ahead *ahead, struct tpck_error *err)
{
	struct tpck_sums *before, *sums;
	struct stat found;
	int rc;

	if (fstat(bytes, &found))
		return tpck_error_set(err, errno, "reading what %s is to hold", chosen->name);
	if (is_prepared(chosen, &found) && faccessat(folder, chosen->part, F_OK, 0) == 0)
		return 0;
	before = sums_before(chosen->pattern);
	rc = tpck_replace_copy(bytes, folder, chosen->part, chosen->name, ahead, before, &sums, err);
	tpck_sums_free(before);
	if (!rc)
		prepared_note(chosen, &found, sums);
	return rc;
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
static void clear_part(const struct chosen *chosen, int folder)
{
	bool there;

	if (chosen->kind != TPCK_VIEW_MEMORY || !tpck_view_lock(files.view))
		return;
	there = tpck_view_by_serial(files.view, chosen->index, chosen->serial);
	tpck_view_unlock(files.view);
	if (!there)
		unlinkat(folder, chosen->part, 0);
}

/* ---- ahead of the close ----------------------------------------------------------------------- */

static void ahead_end(bool remove)
{
	if (remove && tpck_replace_ahead_valid(&files.ahead.part))
		unlinkat(files.ahead.folder, files.ahead.name, 0);
	tpck_replace_ahead_end(&files.ahead.part);
	if (files.ahead.folder >= 0)
		close(files.ahead.folder);
	files.ahead.folder = -1;
	files.ahead.serial = 0;
}

static bool same_folder(int a, int b)
{
	struct stat one, other;

	return !fstat(a, &one) && !fstat(b, &other) && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

/* What of it is beside its target already. NULL: nothing. */
static struct tpck_ahead *ahead_of(const struct chosen *chosen, int folder)
{
	if (files.ahead.serial != chosen->serial)
		return NULL;
	if (!tpck_replace_ahead_valid(&files.ahead.part) || !same_folder(files.ahead.folder, folder)) {
		ahead_end(true);
		return NULL;
	}
	return &files.ahead.part;
}

/* A large file that is being written: of several the one that is under way, else any. One that was synced has a part of its
 * own. */
static bool choose_open(struct chosen *chosen)
{
	const struct tpck_view_entry *found = NULL;
	uint32_t left;

	if (!tpck_view_lock(files.view))
		return false;
	left = files.view->failing ? 0 : files.view->used;
	for (uint32_t i = 0; left && i < TPCK_VIEW_ENTRIES; i++) {
		const struct tpck_view_entry *entry = &files.view->entry[i];

		if (entry->state == TPCK_VIEW_FREE)
			continue;
		left--;
		if (entry->state == TPCK_VIEW_OPEN && entry->kind == TPCK_VIEW_MEMORY && !entry->synced && !entry->mapped &&
		    entry->serial != files.ahead.failed && !is_syncing(entry->serial) && (!found || entry->serial == files.ahead.serial))
			found = entry;
	}
	if (found) {
		choose(found, chosen);
		files.publishing = found->serial;
	}
	tpck_view_unlock(files.view);
	return found;
}

/* A sync of it may begin. */
static void let_go(void)
{
	if (tpck_view_lock(files.view)) {
		files.publishing = 0;
		tpck_view_unlock(files.view);
	}
	tpck_view_tell(&files.view->syncs);
}

static int copy_ahead(const struct chosen *chosen)
{
	int bytes = open(chosen->bytes, O_RDONLY | O_CLOEXEC), folder, done;
	struct tpck_error err;
	struct stat found;

	if (bytes < 0 || fstat(bytes, &found) || found.st_size < AHEAD_BYTES) {
		if (bytes >= 0)
			close(bytes);
		return 0;
	}
	folder = tpck_replace_folder(chosen->folder.path, chosen->folder.device, chosen->folder.inode, &err);
	if (files.ahead.serial && (folder < 0 || !ahead_of(chosen, folder)))
		ahead_end(true);
	if (folder >= 0 && !files.ahead.serial) {
		files.ahead.serial = chosen->serial;
		files.ahead.folder = fcntl(folder, F_DUPFD_CLOEXEC, 0);
		strcpy(files.ahead.name, chosen->part);
	}
	done = folder < 0 ? folder : tpck_replace_ahead(bytes, folder, chosen->part, &files.ahead.part, AHEAD_CHUNKS);
	if (done < 0) {
		files.ahead.failed = chosen->serial;
		ahead_end(true);
	}
	if (folder >= 0) {
		clear_part(chosen, folder);
		close(folder);
	}
	close(bytes);
	return done;
}

/* So that the disk has work while the program writes. True: there may be more. */
static bool go_ahead(struct chosen *chosen)
{
	int done;

	if (!choose_open(chosen))
		return false;
	done = copy_ahead(chosen);
	let_go();
	return done > 0;
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
		rc = copy(chosen, bytes, folder, ahead_of(chosen, folder), err);
	else if (!rc && bytes >= 0 && fsync(bytes))
		rc = tpck_error_set(err, errno, "writing %s", chosen->name);
	if (!rc && !begin_commit(chosen)) {
		rc = -EAGAIN;
		clear_part(chosen, folder);
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
			sums = prepared_sums(chosen);
		end_commit(chosen, rc, (uint64_t)found.st_size, sums ? sums->shared : 0);
		if (!rc)
			note_sums(chosen, sums);
		else
			tpck_sums_free(sums);
		if (!rc && chosen->kind == TPCK_VIEW_MEMORY)
			unlink(chosen->bytes);
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

static int do_sync(const struct chosen *chosen, struct tpck_error *err)
{
	int bytes = open(chosen->bytes, O_RDONLY | O_CLOEXEC), folder, rc;
	struct tpck_view_entry *entry;

	if (bytes < 0)
		return errno == ENOENT ? 0 : tpck_error_set(err, errno, "reading what %s is to hold", chosen->name);
	folder = tpck_replace_folder(chosen->folder.path, chosen->folder.device, chosen->folder.inode, err);
	rc = folder < 0 ? folder : copy(chosen, bytes, folder, NULL, err);
	close(bytes);
	if (folder >= 0)
		clear_part(chosen, folder);
	if (folder >= 0)
		close(folder);
	if (tpck_view_lock(files.view)) {
		entry = tpck_view_by_serial(files.view, chosen->index, chosen->serial);
		if (entry) {
			entry->sync_done = chosen->synced;
			entry->sync_error = entry->error = -rc;
			if (rc)
				files.view->failing = 1;
		}
		tpck_view_unlock(files.view);
	}
	return rc;
}

/* ---- memory for the next one ------------------------------------------------------------------ */

/* What all of them take; `oldest` gets the name of the one that has waited longest. */
static uint64_t spare_bytes(DIR *list, char oldest[64])
{
	struct timespec since = {0};
	struct dirent *entry;
	uint64_t bytes = 0;
	struct stat found;

	*oldest = '\0';
	rewinddir(list);
	while ((entry = readdir(list))) {
		if (strncmp(entry->d_name, "spare.", 6) != 0 || strlen(entry->d_name) >= 64 ||
		    fstatat(dirfd(list), entry->d_name, &found, AT_SYMLINK_NOFOLLOW))
			continue;
		bytes += (uint64_t)found.st_blocks * 512;
		if (*oldest && (found.st_ctim.tv_sec > since.tv_sec ||
				(found.st_ctim.tv_sec == since.tv_sec && found.st_ctim.tv_nsec >= since.tv_nsec)))
			continue;
		since = found.st_ctim;
		strcpy(oldest, entry->d_name);
	}
	return bytes;
}

/* Spares and files are within half of TRANSPCKPT_MEMORY: names that do not come again lose theirs. */
static bool make_way(uint64_t bytes)
{
	uint64_t limit = files.agent->settings.memory / 2, used = files.view->memory_bytes + bytes;
	char folder[TPCK_PATH_MAX + 8], oldest[64];
	DIR *list;

	snprintf(folder, sizeof folder, "%s/" TPCK_VIEW_FOLDER, files.agent->folder);
	list = used <= limit ? opendir(folder) : NULL;
	if (!list)
		return false;
	while (used + spare_bytes(list, oldest) > limit && *oldest && unlinkat(dirfd(list), oldest, 0) == 0)
		;
	closedir(list);
	return true;
}

/* A file with pages for what the last one of its name had: the next one's writes find them there. */
static void make_spare(uint64_t pattern)
{
	uint64_t bytes = tpck_view_size_of(files.view, pattern);
	char name[TPCK_PATH_MAX + 64], making[TPCK_PATH_MAX + 72];
	struct statvfs shm;
	int fd;

	if (bytes == UINT64_MAX || bytes < SPARE_LEAST)
		return;
	snprintf(name, sizeof name, "%s/" TPCK_VIEW_FOLDER "/spare.%016" PRIx64, files.agent->folder, pattern);
	if (access(name, F_OK) == 0 || !make_way(bytes))
		return;
	if (statvfs(files.agent->folder, &shm) || (uint64_t)shm.f_bavail * shm.f_frsize < bytes + bytes / 4 + SPARE_FREE_BYTES)
		return;
	snprintf(making, sizeof making, "%s.new", name);
	fd = open(making, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)(bytes + bytes / 64)) || rename(making, name))
		unlink(making);
	close(fd);
}

/* A file of this pattern has been published: when there is nothing else to do the next one's is made. */
static void want_spare(uint64_t pattern)
{
	for (unsigned i = 0; i < files.spares; i++)
		if (files.spare[i] == pattern)
			return;
	if (files.spares < SPARES)
		files.spare[files.spares++] = pattern;
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

/* False: there is nothing to sync. */
static bool sync_one(struct syncer *syncer)
{
	struct tpck_error err = {0};

	if (!next_sync(syncer))
		return false;
	if (!do_sync(&syncer->chosen, &err)) {
		syncer->said[0] = '\0';
	} else if (strcmp(syncer->said, err.text) != 0) {
		snprintf(syncer->said, sizeof syncer->said, "%s", err.text);
		tpck_log_warn("%s/%s cannot be synced: %s", syncer->chosen.folder.path, syncer->chosen.name, err.text);
	}
	tpck_view_tell(&files.view->done);
	/* The publisher may be waiting for this one. */
	tpck_view_tell(&files.view->news);
	return true;
}

static void *sync_main(void *argument)
{
	pthread_setname_np(pthread_self(), "tpck-sync");
	while (!files.stop) {
		uint32_t seen = files.view->syncs;

		if (!sync_one(argument))
			tpck_view_wait(&files.view->syncs, seen, IDLE_MS);
	}
	return NULL;
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
	sums_begin(files.agent);
	while (!files.stop) {
		uint32_t seen = files.view->news;
		uint64_t now = tpck_clock_monotonic_ns();
		struct tpck_error err = {0};
		enum work work = now < files.retry_ns ? WRITERS : next(&chosen);
		int rc = -EAGAIN;

		/* There was no thread to be had. */
		if (!files.syncer[0].running && sync_one(&files.syncer[0]))
			continue;
		if (work == WRITERS && now - files.swept_ns >= SWEEP_NS)
			sweep();
		files.seen = seen;
		if (work == NOTHING && sums_catch_up(busy))
			continue;
		if (work == NOTHING && files.spares) {
			make_spare(files.spare[--files.spares]);
			continue;
		}
		if (work == WRITERS && now >= files.retry_ns && go_ahead(&chosen))
			continue;
		if (work != PUBLISH && files.ahead.serial && !tpck_replace_ahead_valid(&files.ahead.part))
			ahead_end(false);
		if (work != PUBLISH) {
			tpck_view_wait(&files.view->news, seen, work == NOTHING ? IDLE_MS : work == BUSY ? WRITTEN_MS : OPEN_MS);
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
				want_spare(chosen.pattern);
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
	for (unsigned i = 0; i < SYNCERS; i++)
		files.syncer[i].running = pthread_create(&files.syncer[i].thread, NULL, sync_main, &files.syncer[i]) == 0;
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
	for (unsigned i = 0; i < SYNCERS; i++)
		if (files.syncer[i].running)
			pthread_join(files.syncer[i].thread, NULL);
	atomic_store(&files.view->agent, 0);
	files.running = false;
	return none;
}
