/* SPDX-License-Identifier: Apache-2.0 */
/* All parts of a checkpoint, one after another, whose marks are read ahead. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "runtime/base/lock_order.h"
#include "runtime/store/parts.h"

/* Marks are read by several threads, which mostly wait for the store. What they say is made out by the caller's, since that is the
 * processor's work and takes some times a mark's memory. */
enum { AHEAD = 16, AHEAD_BYTES = 16 << 20 };

struct mark {
	char *text;
	size_t size;
	struct tpck_error why; /* where there is no text */
	bool here;
};

struct ahead {
	struct tpck_tier *tier;
	const struct tpck_manifest *manifest;
	pthread_mutex_t lock;   /* of all that follows */
	pthread_cond_t changed;
	size_t taken, done;     /* marks that somebody reads or has read, and those that the caller is done with */
	uint64_t bytes;         /* of those between */
	bool over;
	struct mark mark[AHEAD]; /* by number */
};

/* Whether the next mark may be read: the one that the caller waits for always. */
static bool may_read(const struct ahead *ahead)
{
	return ahead->taken == ahead->done ||
	       (ahead->taken < ahead->done + AHEAD && ahead->bytes + ahead->manifest->parts[ahead->taken].size <= AHEAD_BYTES);
}

/* Reads the next one. The lock is held, but not while it reads. */
static void read_next(struct ahead *ahead)
{
	size_t i = ahead->taken++;
	struct mark *mark = &ahead->mark[i % AHEAD];

	ahead->bytes += ahead->manifest->parts[i].size;
	mark->here = false;
	pthread_mutex_unlock(&ahead->lock);
	if (tpck_part_text(&mark->text, &mark->size, ahead->tier, ahead->manifest, i, &mark->why))
		mark->text = NULL;
	pthread_mutex_lock(&ahead->lock);
	mark->here = true;
	pthread_cond_broadcast(&ahead->changed);
}

static void *reader_main(void *argument)
{
	struct ahead *ahead = argument;

	pthread_mutex_lock(&ahead->lock);
	while (!ahead->over && ahead->taken < ahead->manifest->part_count)
		if (may_read(ahead))
			read_next(ahead);
		else
			pthread_cond_wait(&ahead->changed, &ahead->lock);
	pthread_mutex_unlock(&ahead->lock);
	return NULL;
}

/* The mark that is next. Where no thread reads it, this one does. */
static struct mark *next_mark(struct ahead *ahead)
{
	struct mark *mark = &ahead->mark[ahead->done % AHEAD];

	pthread_mutex_lock(&ahead->lock);
	if (ahead->taken == ahead->done)
		read_next(ahead);
	while (!mark->here)
		pthread_cond_wait(&ahead->changed, &ahead->lock);
	pthread_mutex_unlock(&ahead->lock);
	return mark;
}

/* All that was read has been freed when it is `over`. */
static void mark_done(struct ahead *ahead, struct mark *mark, bool over)
{
	free(mark->text);
	mark->text = NULL;
	pthread_mutex_lock(&ahead->lock);
	ahead->bytes -= ahead->manifest->parts[ahead->done++].size;
	ahead->over = over;
	pthread_cond_broadcast(&ahead->changed);
	pthread_mutex_unlock(&ahead->lock);
}

static int go_through(struct ahead *ahead,
		      int (*each)(void *context, size_t i, const struct tpck_manifest *part, const struct tpck_error *why), void *context)
{
	int rc = 0;

	while (!rc && ahead->done < ahead->manifest->part_count) {
		struct mark *mark = next_mark(ahead);
		struct tpck_manifest *part = NULL;

		if (mark->text && tpck_part_parse(&part, mark->text, mark->size, ahead->tier, ahead->manifest, ahead->done, &mark->why))
			part = NULL;
		rc = each(context, ahead->done, part, part ? NULL : &mark->why);
		tpck_manifest_free(part);
		mark_done(ahead, mark, rc != 0);
	}
	return rc;
}

int tpck_manifest_each_part(struct tpck_tier *tier, const struct tpck_manifest *manifest,
			    int (*each)(void *context, size_t i, const struct tpck_manifest *part, const struct tpck_error *why),
			    void *context)
{
	struct ahead *ahead = calloc(1, sizeof *ahead);
	pthread_t readers[AHEAD];
	size_t started = 0;
	int rc;

	if (!ahead)
		return -ENOMEM;
	ahead->tier = tier;
	ahead->manifest = manifest;
	pthread_mutex_init(&ahead->lock, NULL);
	pthread_cond_init(&ahead->changed, NULL);
	while (started < AHEAD && started + 1 < manifest->part_count && pthread_create(&readers[started], NULL, reader_main, ahead) == 0)
		started++;
	rc = go_through(ahead, each, context);
	while (started)
		pthread_join(readers[--started], NULL);
	/* What was read and not wanted any more. */
	for (size_t i = ahead->done; i < ahead->taken; i++)
		free(ahead->mark[i % AHEAD].text);
	pthread_cond_destroy(&ahead->changed);
	pthread_mutex_destroy(&ahead->lock);
	free(ahead);
	return rc;
}
