/* SPDX-License-Identifier: Apache-2.0 */
/* What published files were, in memory for the last of each pattern, and in the log. */
#include "config.h"

#include "agent/files/file_digests.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/home/home.h"
#include "runtime/base/lock_order.h"
#include "runtime/base/log.h"
#include "runtime/store/tier.h"
#include "runtime/view/view.h"

/* The log is made anew when it has grown by so much. */
#define LOG_GROWS_BYTES (64ull << 20)
enum { LAST = 64, LATER = 1024 };

static struct {
	char log[TPCK_PATH_MAX];
	uint64_t grown;
	bool failed;
	pthread_mutex_t log_lock; /* of the log, and what is above */
	pthread_mutex_t lock; /* of what follows */
	struct {
		uint64_t pattern;
		struct tpck_sums *sums;
	} last[LAST];
	unsigned next;
	struct {
		uint64_t pattern;
		struct tpck_sums *file; /* without digests */
	} later[LATER];
	_Atomic unsigned count, taking; /* `taking`: one that is not in `later` now */
} known = {.log_lock = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER};

static void complain(const struct tpck_error *err)
{
	if (!known.failed)
		tpck_log_warn("digests of the program's files are not kept: %s", err->text);
	known.failed = true;
}

static struct tpck_sums *copy_of(const struct tpck_sums *sums)
{
	struct tpck_sums *copy = tpck_sums_new(sums->bytes);

	if (!copy)
		return NULL;
	memcpy(copy->digest, sums->digest, sums->count * sizeof *sums->digest);
	copy->inode = sums->inode;
	copy->modified = sums->modified;
	copy->path = strdup(sums->path);
	if (copy->path)
		return copy;
	tpck_sums_free(copy);
	return NULL;
}

static bool newer(const struct tpck_sums *a, const struct tpck_sums *b)
{
	return a->modified.tv_sec != b->modified.tv_sec ? a->modified.tv_sec > b->modified.tv_sec :
							  a->modified.tv_nsec > b->modified.tv_nsec;
}

/* The last of each name from the log, where there is room for it: what an agent before this one published. */
static void recall(const struct tpck_sums *sums)
{
	const char *slash = strrchr(sums->path, '/');
	char folder[TPCK_PATH_MAX];
	struct tpck_sums *copy;
	uint64_t pattern;
	unsigned at = 0;

	if (!slash || (size_t)(slash - sums->path) >= sizeof folder)
		return;
	snprintf(folder, sizeof folder, "%.*s", (int)(slash - sums->path), sums->path);
	pattern = tpck_view_pattern(folder, slash + 1);
	while (at < known.next && known.last[at].pattern != pattern)
		at++;
	if (at == LAST || (at < known.next && !newer(sums, known.last[at].sums)))
		return;
	copy = copy_of(sums);
	if (!copy)
		return;
	if (at == known.next)
		known.next++;
	tpck_sums_free(known.last[at].sums);
	known.last[at].pattern = pattern;
	known.last[at].sums = copy;
}

/* So that the first of a name that this agent sees goes into memory too; where a program has saved already, it knows better. */
static void note_sizes(struct tpck_view *view)
{
	if (!tpck_view_lock(view))
		return;
	for (unsigned i = 0; i < known.next; i++)
		if (tpck_view_size_of(view, known.last[i].pattern) == UINT64_MAX)
			tpck_view_size_note(view, known.last[i].pattern, known.last[i].sums->bytes);
	tpck_view_unlock(view);
	tpck_log_debug("the last saves of %u names are known", known.next);
}

void sums_begin(struct tpck_view *view)
{
	struct tpck_error err = {0};

	if (tpck_tier_path(home.tier, TPCK_SUMS_LOG, known.log, sizeof known.log, &err) || tpck_tier_check(home.tier, &err) ||
	    tpck_sums_compact(known.log, recall, &err)) {
		complain(&err);
	} else {
		note_sizes(view);
	}
}

struct tpck_sums *sums_before(uint64_t pattern)
{
	struct tpck_sums *copy = NULL;

	pthread_mutex_lock(&known.lock);
	for (unsigned i = 0; i < LAST; i++) {
		const struct tpck_sums *sums = known.last[i].sums;

		if (!sums || known.last[i].pattern != pattern)
			continue;
		copy = copy_of(sums);
		break;
	}
	pthread_mutex_unlock(&known.lock);
	return copy;
}

static void remember(uint64_t pattern, struct tpck_sums *sums)
{
	unsigned at = 0;

	pthread_mutex_lock(&known.lock);
	while (at < LAST && !(known.last[at].sums && known.last[at].pattern == pattern))
		at++;
	if (at == LAST)
		at = known.next++ % LAST;
	tpck_sums_free(known.last[at].sums);
	known.last[at].pattern = pattern;
	known.last[at].sums = sums;
	pthread_mutex_unlock(&known.lock);
}

static void append(const struct tpck_sums *sums)
{
	struct tpck_error err = {0};

	pthread_mutex_lock(&known.log_lock);
	if (known.failed) {
		pthread_mutex_unlock(&known.log_lock);
		return;
	}
	known.grown += sums->count * sizeof *sums->digest;
	if (tpck_sums_append(known.log, sums, &err) ||
	    (known.grown > LOG_GROWS_BYTES && tpck_sums_compact(known.log, NULL, &err)))
		complain(&err);
	if (known.grown > LOG_GROWS_BYTES)
		known.grown = 0;
	pthread_mutex_unlock(&known.log_lock);
}

/* The file, which has no digests yet, is taken over. */
static void put_off(uint64_t pattern, struct tpck_sums *file)
{
	pthread_mutex_lock(&known.lock);
	if (file && known.count < LATER) {
		known.later[known.count].file = file;
		known.later[known.count++].pattern = pattern;
		file = NULL;
	}
	pthread_mutex_unlock(&known.lock);
	tpck_sums_free(file);
}

void sums_published(uint64_t pattern, const char *path, const struct stat *file, struct tpck_sums *sums)
{
	if (!sums) {
		sums = tpck_sums_new(0);
		if (sums && tpck_sums_settle(sums, path, file)) {
			sums->bytes = (uint64_t)file->st_size;
			put_off(pattern, sums);
		} else {
			tpck_sums_free(sums);
		}
		return;
	}
	/* Somebody may have written to it by now. */
	if ((uint64_t)file->st_size != sums->bytes || file->st_mtim.tv_sec != sums->modified.tv_sec ||
	    file->st_mtim.tv_nsec != sums->modified.tv_nsec || !tpck_sums_settle(sums, path, file)) {
		tpck_sums_free(sums);
		return;
	}
	append(sums);
	remember(pattern, sums);
}

bool sums_left(void)
{
	return known.count || known.taking;
}

bool sums_catch_up(bool (*busy)(void))
{
	struct tpck_sums_finder *finder;
	struct tpck_sums *sums = NULL, *file = NULL;
	struct tpck_error err = {0};
	struct stat before, after;
	uint64_t pattern = 0;
	int fd = -1, rc = 0;

	pthread_mutex_lock(&known.lock);
	known.taking = known.count > 0;
	if (known.taking) {
		file = known.later[--known.count].file;
		pattern = known.later[known.count].pattern;
	}
	pthread_mutex_unlock(&known.lock);
	if (!file)
		return false;
	finder = tpck_sums_finder_new();
	if (tpck_sums_find(finder, file, &before))
		fd = open(file->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	tpck_sums_finder_free(finder);
	if (fd >= 0 && !fstat(fd, &before) && tpck_sums_of(file, &before))
		sums = tpck_sums_new((uint64_t)before.st_size);
	/* Who writes meanwhile has another file than the one that was published. */
	if (sums)
		rc = tpck_sums_take(sums, fd, busy, &err);
	if (sums && (rc || fstat(fd, &after) || !tpck_sums_of(file, &after))) {
		tpck_sums_free(sums);
		sums = NULL;
	}
	if (fd >= 0)
		close(fd);
	if (rc == -EINTR) {
		put_off(pattern, file);
		known.taking = 0;
		return false;
	}
	if (sums) {
		sums->modified = before.st_mtim;
		sums_published(pattern, file->path, &before, sums);
	}
	tpck_sums_free(file);
	known.taking = 0;
	return true;
}
