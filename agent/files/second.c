/* SPDX-License-Identifier: Apache-2.0 */
/* Second copies of what was never in memory, as the first file of a name on a local disk is not: made when there is nothing else to do and room
 * that nobody needs, they are what was kept of a file that was (kept.c). */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/files/publisher_private.h"
#include "runtime/base/lock_order.h"
#include "runtime/base/log.h"

enum { LATER = 1024, PIECE_CHUNKS = 16 };
/* Counts as a spare while it is made, and goes as one if nobody finishes it. */
#define MAKING "spare.second"

/* The newest is the last. */
static struct {
	pthread_mutex_t lock;
	struct second {
		char *path;
		uint64_t id, pattern;
		struct stat file;
	} later[LATER];
	unsigned count;
} second = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void put_off(const struct second *one)
{
	pthread_mutex_lock(&second.lock);
	if (second.count == LATER) {
		free(second.later[0].path);
		memmove(second.later, second.later + 1, --second.count * sizeof *second.later);
	}
	second.later[second.count++] = *one;
	pthread_mutex_unlock(&second.lock);
}

void files_keep_later(const struct chosen *chosen, const struct stat *put)
{
	struct second one = {.id = files_path_id(chosen), .pattern = chosen->pattern, .file = *put};

	if (strcmp(home.settings.files_verify, "on") != 0 || !put->st_blocks)
		return;
	if (asprintf(&one.path, "%s/%s", chosen->folder.path, chosen->name) >= 0)
		put_off(&one);
}

static bool is_still(int fd, const struct stat *file)
{
	struct stat now;

	return !fstat(fd, &now) && now.st_dev == file->st_dev && now.st_ino == file->st_ino && now.st_size == file->st_size &&
	       now.st_mtim.tv_sec == file->st_mtim.tv_sec && now.st_mtim.tv_nsec == file->st_mtim.tv_nsec;
}

/* -EINTR: there is something else to do; -ENOSPC: it is not wanted, or there is no room. */
static int copy(const struct second *one, int fd, int folder, bool (*busy)(void))
{
	uint64_t bytes = (uint64_t)one->file.st_blocks * 512;
	struct tpck_ahead ahead = {.fd = -1};
	struct tpck_sums *sums = NULL;
	struct tpck_error err = {0};
	int rc;

	do {
		/* What is in the part already is counted with the spares. */
		uint64_t done = (uint64_t)ahead.count * TPCK_SUMS_CHUNK;

		if (busy())
			rc = -EINTR;
		else if (!files_keep_wants(bytes > done ? bytes - done : 0, one->pattern, one->file.st_mtim))
			rc = -ENOSPC;
		else
			rc = tpck_replace_ahead(fd, folder, MAKING, &ahead, PIECE_CHUNKS);
	} while (rc > 0);
	if (rc)
		tpck_replace_ahead_end(&ahead);
	else
		rc = tpck_replace_copy(fd, folder, MAKING, one->path, &ahead, NULL, &sums, &err);
	tpck_sums_free(sums);
	/* Who wrote meanwhile has another file than the one that was published. */
	if (!rc && !is_still(fd, &one->file))
		rc = -ESTALE;
	return rc;
}

bool files_keep_one(bool (*busy)(void))
{
	struct second one = {0};
	int fd = -1, folder, rc = -ESTALE;

	pthread_mutex_lock(&second.lock);
	if (second.count)
		one = second.later[--second.count];
	pthread_mutex_unlock(&second.lock);
	if (!one.path)
		return false;
	folder = files_keep_folder();
	if (folder >= 0)
		fd = open(one.path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0 && is_still(fd, &one.file))
		rc = copy(&one, fd, folder, busy);
	if (!rc)
		files_keep_put(MAKING, one.id, one.pattern, &one.file, fd);
	else if (folder >= 0)
		unlinkat(folder, MAKING, 0);
	if (fd >= 0)
		close(fd);
	if (folder >= 0)
		close(folder);
	if (rc == -EINTR) {
		put_off(&one);
		return false;
	}
	free(one.path);
	return true;
}
