/* SPDX-License-Identifier: Apache-2.0 */
/* Parts beside their targets, and who makes them because somebody waits in fsync(). */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/files/file_digests.h"
#include "agent/files/publisher_private.h"
#include "runtime/base/lock_order.h"
#include "runtime/base/log.h"
#include "runtime/store/replace.h"

/* ---- parts ------------------------------------------------------------------------------------ */

static bool same(const struct prepared *prepared, const struct stat *found)
{
	return prepared->bytes == (uint64_t)found->st_size && prepared->changed.tv_sec == found->st_ctim.tv_sec &&
	       prepared->changed.tv_nsec == found->st_ctim.tv_nsec;
}

static void prepared_note(const struct chosen *chosen, const struct stat *found, struct tpck_sums *sums)
{
	unsigned i = 0;

	pthread_mutex_lock(&files.prepared_lock);
	while (i < FILES_PREPARED && files.prepared[i].serial != chosen->serial)
		i++;
	if (i == FILES_PREPARED)
		i = files.prepared_next++ % FILES_PREPARED;
	tpck_sums_free(files.prepared[i].sums);
	files.prepared[i] = (struct prepared){chosen->serial, (uint64_t)found->st_size, found->st_ctim, chosen->changed, sums};
	pthread_mutex_unlock(&files.prepared_lock);
}

struct tpck_sums *files_prepared_sums(const struct chosen *chosen)
{
	struct tpck_sums *sums = NULL;

	pthread_mutex_lock(&files.prepared_lock);
	for (unsigned i = 0; i < FILES_PREPARED && !sums; i++)
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
	for (unsigned i = 0; i < FILES_PREPARED && !is; i++)
		is = files.prepared[i].serial == chosen->serial && files.prepared[i].changes == chosen->changed && !chosen->mapped &&
		     same(&files.prepared[i], found);
	pthread_mutex_unlock(&files.prepared_lock);
	return is;
}

/* The save before it. One that was written by another name: an agent before this one left only the name that it has at last. */
static struct tpck_sums *save_before(const struct chosen *chosen)
{
	struct tpck_sums *before = sums_before(chosen->pattern);

	return before ? before : sums_before(tpck_view_pattern(chosen->folder.path, chosen->name));
}

int files_copy_unsynced(const struct chosen *chosen, int bytes, int folder, bool share, int *part, struct tpck_sums **sums,
			struct tpck_error *err)
{
	struct tpck_sums *before;
	struct stat found;
	int rc;

	*part = -1;
	if (fstat(bytes, &found))
		return tpck_error_set(err, errno, "reading what %s is to hold", chosen->name);
	if (is_prepared(chosen, &found) && faccessat(folder, chosen->part, F_OK, 0) == 0) {
		*sums = files_prepared_sums(chosen);
		return 0;
	}
	before = share ? save_before(chosen) : NULL;
	files_makes_part(chosen->folder.path);
	rc = tpck_replace_copy_unsynced(bytes, folder, chosen->part, chosen->name, before, sums, part, err);
	tpck_sums_free(before);
	return rc;
}

int files_copy(const struct chosen *chosen, int bytes, int folder, struct tpck_ahead *ahead, struct tpck_error *err)
{
	struct tpck_sums *before, *sums;
	struct stat found;
	int rc;

	if (fstat(bytes, &found))
		return tpck_error_set(err, errno, "reading what %s is to hold", chosen->name);
	if (is_prepared(chosen, &found) && faccessat(folder, chosen->part, F_OK, 0) == 0)
		return 0;
	before = save_before(chosen);
	files_makes_part(chosen->folder.path);
	rc = tpck_replace_copy(bytes, folder, chosen->part, chosen->name, ahead, before, &sums, err);
	tpck_sums_free(before);
	if (!rc)
		prepared_note(chosen, &found, sums);
	return rc;
}

/* ---- syncers ---------------------------------------------------------------------------------- */

static pthread_mutex_t beginning = PTHREAD_MUTEX_INITIALIZER;

static bool syncer_for(uint64_t device)
{
	unsigned count = 0;

	for (unsigned i = 0; i < FILES_SYNCERS; i++)
		count += files.syncer[i].serial && files.syncer[i].chosen.folder.device == device;
	return count < FILES_DISK_SYNCERS;
}

/* The view's lock is held. */
static bool all_at_work(void)
{
	for (unsigned i = 0; i < FILES_SYNCERS; i++)
		if (files.syncer[i].running && !files.syncer[i].serial)
			return false;
	return true;
}

/* A sync that somebody waits for, and nobody is at. `last`: there is no syncer left for the next one. */
static bool next_sync(struct syncer *syncer, bool *last)
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
		if (entry->kind != TPCK_VIEW_MEMORY || entry->synced <= entry->sync_done || files_is_publishing(entry->serial) ||
		    files_is_syncing(entry->serial) || !syncer_for(tpck_view_device_of(files.view, entry)))
			continue;
		files_choose(entry, &syncer->chosen);
		syncer->serial = entry->serial;
	}
	*last = syncer->serial && all_at_work();
	tpck_view_unlock(files.view);
	return syncer->serial;
}

static int do_sync(const struct chosen *chosen, struct tpck_error *err)
{
	int bytes = open(chosen->bytes, O_RDONLY | O_CLOEXEC), folder, rc;
	struct tpck_view_entry *entry;
	struct stat found;

	if (bytes < 0)
		return errno == ENOENT ? 0 : tpck_error_set(err, errno, "reading what %s is to hold", chosen->name);
	folder = fstat(bytes, &found) ? tpck_error_set(err, errno, "reading what %s is to hold", chosen->name) : files_folder(&chosen->folder, err);
	rc = folder < 0 ? folder : files_copy(chosen, bytes, folder, NULL, err);
	close(bytes);
	if (folder >= 0)
		files_clear_part(chosen, folder);
	if (folder >= 0)
		close(folder);
	if (folder == -EAGAIN)
		return 0;
	if (tpck_view_lock(files.view)) {
		entry = tpck_view_by_serial(files.view, chosen->index, chosen->serial);
		if (entry) {
			entry->sync_done = chosen->synced;
			entry->sync_error = entry->error = -rc;
			if (!rc)
				tpck_view_synced(entry, entry->mapped ? NULL : &found);
			if (rc)
				files.view->failing = 1;
		}
		tpck_view_unlock(files.view);
	}
	return rc;
}

bool files_sync_one(struct syncer *syncer)
{
	struct tpck_error err = {0};
	bool last;

	if (!next_sync(syncer, &last))
		return false;
	if (last)
		files_sync_begin();
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

		if (!files_sync_one(argument))
			tpck_view_wait(&files.view->syncs, seen, FILES_IDLE_MS);
	}
	return NULL;
}

void files_sync_begin(void)
{
	unsigned i = 0;

	pthread_mutex_lock(&beginning);
	while (i < FILES_SYNCERS && files.syncer[i].running)
		i++;
	if (i < FILES_SYNCERS && !files.stop)
		files.syncer[i].running = pthread_create(&files.syncer[i].thread, NULL, sync_main, &files.syncer[i]) == 0;
	pthread_mutex_unlock(&beginning);
}

void files_sync_end(void)
{
	/* Whoever was about to begin one has done it, or sees that it is over. */
	pthread_mutex_lock(&beginning);
	pthread_mutex_unlock(&beginning);
	for (unsigned i = 0; i < FILES_SYNCERS; i++)
		if (files.syncer[i].running)
			pthread_join(files.syncer[i].thread, NULL);
}
