/* SPDX-License-Identifier: Apache-2.0 */
/* Copies in memory of what is at its path: who reads a file that is bad gets one (runtime/files/verified.c). They are what is
 * left of the budget when everything else has had its share, and end with the agent. */
#include "config.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "agent/files/publisher_private.h"
#include "runtime/base/digest.h"
#include "runtime/base/lock_order.h"
#include "runtime/view/sums_record.h"

enum { COPIES = 1024 };
/* Files of one pattern whose times are no further apart are parts of one checkpoint. */
#define TOGETHER_SEC 10

/* A ring: the oldest is at `first`. Those that are gone leave a gap. */
static struct {
	pthread_mutex_t lock;
	struct copy {
		uint64_t path;  /* whose it is, so that it goes with the file; 0: not known, an agent before left it */
		uint64_t pattern;
		uint64_t bytes; /* 0: a gap */
		struct timespec since;
		char name[32];
	} copy[COPIES];
	unsigned first, count;
	uint64_t bytes;  /* at most so much: readers take some away */
	uint64_t spares; /* at most, too: the program takes them. Counted when it matters */
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

static DIR *open_list(void)
{
	char folder[TPCK_PATH_MAX + 8];

	snprintf(folder, sizeof folder, "%s/" TPCK_VIEW_FOLDER, home.folder);
	return opendir(folder);
}

uint64_t files_path_id(const struct chosen *chosen)
{
	return tpck_digest64(chosen->name, strlen(chosen->name), tpck_digest64(chosen->folder.path, strlen(chosen->folder.path), 4));
}

/* ---- the ring, under the lock ----------------------------------------------------------------- */

static const char *lose(struct copy *copy, char path[TPCK_PATH_MAX + 64])
{
	snprintf(path, TPCK_PATH_MAX + 64, "%s/" TPCK_VIEW_FOLDER "/%s", home.folder, copy->name);
	kept.bytes -= copy->bytes;
	copy->bytes = copy->path = 0;
	return path;
}

static void drop(struct copy *copy)
{
	char path[TPCK_PATH_MAX + 64];

	if (copy->bytes)
		unlink(lose(copy, path));
}

static void drop_oldest(void)
{
	drop(&kept.copy[kept.first]);
	kept.first = (kept.first + 1) % COPIES;
	kept.count--;
}

static void drop_of(uint64_t path)
{
	for (unsigned i = 0; i < kept.count; i++)
		if (kept.copy[(kept.first + i) % COPIES].path == path)
			drop(&kept.copy[(kept.first + i) % COPIES]);
}

/* Of the checkpoints before this one: their pages are for what comes next. */
static void drop_before(uint64_t pattern, struct timespec since)
{
	char path[TPCK_PATH_MAX + 64];

	for (unsigned i = 0; i < kept.count; i++) {
		struct copy *copy = &kept.copy[(kept.first + i) % COPIES];

		if (!copy->bytes || copy->pattern != pattern || copy->since.tv_sec + TOGETHER_SEC >= since.tv_sec)
			continue;
		kept.spares += copy->bytes;
		files_spare_give(lose(copy, path), pattern);
	}
}

static struct copy *add(const char *name, uint64_t bytes)
{
	struct copy *copy;

	if (kept.count == COPIES)
		drop_oldest();
	copy = &kept.copy[(kept.first + kept.count++) % COPIES];
	*copy = (struct copy){.bytes = bytes};
	snprintf(copy->name, sizeof copy->name, "%s", name);
	kept.bytes += bytes;
	return copy;
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
	struct tpck_cgroup_room room = files_groups_room(bytes);
	struct statvfs shm;

	/* The program takes files into memory while there is room for them on the tmpfs: there must be for the largest. */
	return files.view->memory_bytes + kept.spares + kept.bytes + bytes <= home.settings.memory / 2 &&
	       tpck_cgroup_has(&room, bytes) && !statvfs(home.folder, &shm) &&
	       (uint64_t)shm.f_bavail * shm.f_frsize >= bytes + bytes / 4 + next + next / 4 + FILES_FREE_BYTES;
}

static bool has_room(uint64_t bytes, uint64_t next)
{
	char oldest[64];
	DIR *list;

	if (fits(bytes, next))
		return true;
	list = open_list();
	if (list) {
		kept.spares = files_spare_bytes(list, oldest);
		closedir(list);
	}
	return fits(bytes, next);
}

static void yield(uint64_t bytes)
{
	uint64_t next = kept.count ? largest() : 0;

	if (!kept.count || has_room(bytes, next))
		return;
	while (kept.count && !fits(bytes, next))
		drop_oldest();
}

/* The copy is that of this file from here on, or goes. */
static void put(const char *from, uint64_t id, uint64_t pattern, const struct stat *file)
{
	char name[TPCK_PATH_MAX + 64];
	struct stat bytes;

	tpck_kept_name(name, sizeof name, home.folder, file);
	if (stat(from, &bytes) || rename(from, name)) {
		unlink(from);
	} else {
		struct copy *copy = add(strrchr(name, '/') + 1, (uint64_t)bytes.st_blocks * 512);

		copy->path = id;
		copy->pattern = pattern;
		copy->since = file->st_mtim;
	}
	yield(0);
}

/* ---- what the publisher does ------------------------------------------------------------------ */

void files_yield(uint64_t bytes)
{
	pthread_mutex_lock(&kept.lock);
	yield(bytes);
	kept.spares += bytes;
	pthread_mutex_unlock(&kept.lock);
}

static int by_age(const void *a, const void *b)
{
	const struct copy *left = a, *right = b;

	if (left->since.tv_sec != right->since.tv_sec)
		return left->since.tv_sec < right->since.tv_sec ? -1 : 1;
	return left->since.tv_nsec < right->since.tv_nsec ? -1 : left->since.tv_nsec > right->since.tv_nsec;
}

void files_adopt_kept(void)
{
	DIR *list = open_list();
	struct dirent *entry;
	struct stat found;

	if (!list)
		return;
	pthread_mutex_lock(&kept.lock);
	while ((entry = readdir(list))) {
		if (strncmp(entry->d_name, TPCK_KEPT, sizeof TPCK_KEPT - 1) != 0)
			continue;
		if (kept.count == COPIES || strlen(entry->d_name) >= sizeof kept.copy->name ||
		    fstatat(dirfd(list), entry->d_name, &found, AT_SYMLINK_NOFOLLOW) || !found.st_blocks)
			unlinkat(dirfd(list), entry->d_name, 0);
		else
			add(entry->d_name, (uint64_t)found.st_blocks * 512)->since = found.st_ctim;
	}
	qsort(kept.copy, kept.count, sizeof *kept.copy, by_age);
	yield(0);
	pthread_mutex_unlock(&kept.lock);
	closedir(list);
}

void files_keep(const struct chosen *chosen)
{
	char path[TPCK_VIEW_PATH + TPCK_VIEW_NAME];
	struct stat found, bytes;

	snprintf(path, sizeof path, "%s/%s", chosen->folder.path, chosen->name);
	pthread_mutex_lock(&kept.lock);
	drop_of(files_path_id(chosen));
	/* Somebody may have written to it by now, or have put another one there. What is all hole is not worth it. */
	if (strcmp(home.settings.files_verify, "on") != 0 || lstat(path, &found) || stat(chosen->bytes, &bytes) ||
	    !bytes.st_blocks || found.st_size != bytes.st_size || found.st_mtim.tv_sec != bytes.st_mtim.tv_sec ||
	    found.st_mtim.tv_nsec != bytes.st_mtim.tv_nsec) {
		unlink(chosen->bytes);
	} else {
		drop_before(chosen->pattern, found.st_mtim);
		put(chosen->bytes, files_path_id(chosen), chosen->pattern, &found);
	}
	pthread_mutex_unlock(&kept.lock);
}

int files_keep_folder(void)
{
	char folder[TPCK_PATH_MAX + 8];

	snprintf(folder, sizeof folder, "%s/" TPCK_VIEW_FOLDER, home.folder);
	return open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

bool files_keep_wants(uint64_t bytes, uint64_t pattern, struct timespec since)
{
	bool wants;

	pthread_mutex_lock(&kept.lock);
	wants = has_room(bytes, largest());
	/* Of a checkpoint before the one that is kept: it would have gone by now. */
	for (unsigned i = 0; wants && i < kept.count; i++) {
		const struct copy *copy = &kept.copy[(kept.first + i) % COPIES];

		wants = !copy->bytes || copy->pattern != pattern || since.tv_sec + TOGETHER_SEC >= copy->since.tv_sec;
	}
	pthread_mutex_unlock(&kept.lock);
	return wants;
}

void files_keep_put(const char *made, uint64_t id, uint64_t pattern, const struct stat *file, int fd)
{
	char from[TPCK_PATH_MAX + 64];
	struct stat now;

	snprintf(from, sizeof from, "%s/" TPCK_VIEW_FOLDER "/%s", home.folder, made);
	pthread_mutex_lock(&kept.lock);
	/* What is removed or replaced behind this is forgotten behind it. */
	if (fstat(fd, &now) || !now.st_nlink) {
		unlink(from);
	} else {
		drop_of(id);
		put(from, id, pattern, file);
	}
	pthread_mutex_unlock(&kept.lock);
}

void files_forget(const struct chosen *chosen)
{
	pthread_mutex_lock(&kept.lock);
	drop_of(files_path_id(chosen));
	pthread_mutex_unlock(&kept.lock);
}

bool files_kept(void)
{
	bool any;

	pthread_mutex_lock(&kept.lock);
	any = kept.bytes;
	pthread_mutex_unlock(&kept.lock);
	return any;
}
