/* SPDX-License-Identifier: Apache-2.0 */
/* Copies in memory of what is at its path: who reads a file that is bad gets one (runtime/files/verified.c). They are what is
 * left of the budget when everything else has had its share, and end with the agent. */
#include "config.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "runtime/base/digest.h"
#include "runtime/wire/sums_record.h"
#include "tools/agent/files_private.h"

/* Of many small files the folder's listing would be long; fewer are left than there may be, so that not each makes one go. */
enum { RECENT = 512, COPIES_MAX = 512, COPIES_LEFT = 384 };

static struct {
	pthread_mutex_t lock;
	/* At most so much: readers take some away, and the program spares. What they are is counted when that matters. */
	uint64_t bytes, spares;
	unsigned count;
	/* Which copy belongs to a path, so that it goes with the file. */
	struct {
		uint64_t path;
		char name[32];
	} recent[RECENT];
	unsigned next;
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

static DIR *open_list(void)
{
	char folder[TPCK_PATH_MAX + 8];

	snprintf(folder, sizeof folder, "%s/" TPCK_VIEW_FOLDER, files.agent->folder);
	return opendir(folder);
}

static void remove_named(const char *name)
{
	char path[TPCK_PATH_MAX + 64];

	snprintf(path, sizeof path, "%s/" TPCK_VIEW_FOLDER "/%s", files.agent->folder, name);
	unlink(path);
}

static uint64_t path_of(const struct chosen *chosen)
{
	return tpck_digest64(chosen->name, strlen(chosen->name), tpck_digest64(chosen->folder.path, strlen(chosen->folder.path), 4));
}

/* The place of a path among the recent ones, or the oldest place, which is lost: its copy goes by its age. The lock is held. */
static unsigned place_of(uint64_t path)
{
	for (unsigned i = 0; i < RECENT; i++)
		if (kept.recent[i].path == path)
			return i;
	return kept.next++ % RECENT;
}

/* The largest file that may come next. */
static uint64_t largest(void)
{
	uint64_t bytes = 0;

	if (!tpck_view_lock(files.view))
		return UINT64_MAX / 4;
	for (unsigned i = 0; i < TPCK_VIEW_SIZES; i++)
		if (files.view->size[i].pattern && files.view->size[i].bytes > bytes)
			bytes = files.view->size[i].bytes;
	tpck_view_unlock(files.view);
	return bytes;
}

static bool fits(uint64_t bytes, uint64_t next)
{
	struct statvfs shm;

	/* The program takes files into memory while there is room for them on the tmpfs: there must be for the largest. */
	return files.view->memory_bytes + kept.spares + kept.bytes + bytes <= files.agent->settings.memory / 2 &&
	       !statvfs(files.agent->folder, &shm) &&
	       (uint64_t)shm.f_bavail * shm.f_frsize >= bytes + bytes / 4 + next + next / 4 + FILES_FREE_BYTES;
}

/* The lock is held. */
static void yield(uint64_t bytes)
{
	uint64_t next = kept.count ? largest() : 0;
	bool many = kept.count > COPIES_MAX;
	char oldest[64], spare[64];
	unsigned spares;
	DIR *list;

	if (!kept.count || (!many && fits(bytes, next)))
		return;
	list = open_list();
	while (list) {
		kept.bytes = files_held(list, TPCK_KEPT, oldest, &kept.count);
		kept.spares = files_held(list, "spare.", spare, &spares);
		if (!*oldest || (fits(bytes, next) && kept.count <= (many ? COPIES_LEFT : COPIES_MAX)) ||
		    unlinkat(dirfd(list), oldest, 0))
			break;
	}
	if (list)
		closedir(list);
}

void files_yield(uint64_t bytes)
{
	pthread_mutex_lock(&kept.lock);
	yield(bytes);
	kept.spares += bytes;
	pthread_mutex_unlock(&kept.lock);
}

void files_adopt_kept(void)
{
	DIR *list = open_list();
	char oldest[64];
	unsigned spares;

	if (!list)
		return;
	pthread_mutex_lock(&kept.lock);
	kept.bytes = files_held(list, TPCK_KEPT, oldest, &kept.count);
	kept.spares = files_held(list, "spare.", oldest, &spares);
	pthread_mutex_unlock(&kept.lock);
	closedir(list);
}

void files_keep(const struct chosen *chosen)
{
	char path[TPCK_VIEW_PATH + TPCK_VIEW_NAME], name[TPCK_PATH_MAX + 64];
	struct stat found, bytes;
	unsigned at;

	snprintf(path, sizeof path, "%s/%s", chosen->folder.path, chosen->name);
	/* Somebody may have written to it by now, or have put another one there. */
	if (strcmp(files.agent->settings.files_verify, "on") != 0 || lstat(path, &found) || stat(chosen->bytes, &bytes) ||
	    !found.st_size || found.st_size != bytes.st_size || found.st_mtim.tv_sec != bytes.st_mtim.tv_sec ||
	    found.st_mtim.tv_nsec != bytes.st_mtim.tv_nsec) {
		unlink(chosen->bytes);
		return;
	}
	tpck_kept_name(name, sizeof name, files.agent->folder, &found);
	pthread_mutex_lock(&kept.lock);
	at = place_of(path_of(chosen));
	if (kept.recent[at].path == path_of(chosen))
		remove_named(kept.recent[at].name);
	kept.recent[at].path = path_of(chosen);
	snprintf(kept.recent[at].name, sizeof kept.recent[at].name, "%s", strrchr(name, '/') + 1);
	if (rename(chosen->bytes, name))
		unlink(chosen->bytes);
	kept.bytes += (uint64_t)bytes.st_blocks * 512;
	kept.count++;
	yield(0);
	pthread_mutex_unlock(&kept.lock);
}

void files_forget(const struct chosen *chosen)
{
	uint64_t path = path_of(chosen);

	pthread_mutex_lock(&kept.lock);
	for (unsigned i = 0; i < RECENT; i++)
		if (kept.recent[i].path == path) {
			remove_named(kept.recent[i].name);
			kept.recent[i].path = 0;
		}
	pthread_mutex_unlock(&kept.lock);
}
