/* SPDX-License-Identifier: Apache-2.0 */
/* A few threads over a range. */
#include "config.h"

#include "runtime/base/lock_order.h"
#include "runtime/store/parallel.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "runtime/store/writer.h"
#include "runtime/wire/segment.h"

/* For what reads much, and for what mostly waits for answers. */
enum { THREADS = 4, THREADS_MAX = 16 };

struct loop {
	pthread_mutex_t lock;
	size_t next, count;
	int (*each)(void *context, size_t i, uint8_t *buffer, struct tpck_error *err);
	void *context;
	int rc;
	struct tpck_error error;
};

static void *go_on(void *argument)
{
	struct loop *loop = argument;
	uint8_t *buffer = aligned_alloc(TPCK_WRITER_ALIGN, TPCK_CHUNK_BYTES);
	struct tpck_error err = {0};

	pthread_mutex_lock(&loop->lock);
	if (!buffer && !loop->rc)
		loop->rc = tpck_error_set(&loop->error, ENOMEM, "reading chunks");
	while (!loop->rc && loop->next < loop->count) {
		size_t i = loop->next++;
		int rc;

		pthread_mutex_unlock(&loop->lock);
		rc = loop->each(loop->context, i, buffer, &err);
		pthread_mutex_lock(&loop->lock);
		if (rc && !loop->rc) {
			loop->rc = rc;
			loop->error = err;
		}
	}
	pthread_mutex_unlock(&loop->lock);
	free(buffer);
	return NULL;
}

static int run(size_t most, size_t count, int (*each)(void *context, size_t i, uint8_t *buffer, struct tpck_error *err),
	       void *context, struct tpck_error *err)
{
	struct loop loop = {.lock = PTHREAD_MUTEX_INITIALIZER, .count = count, .each = each, .context = context};
	pthread_t threads[THREADS_MAX];
	size_t started = 0;

	/* The calling thread is one of them, so that it works even where no thread can be made. */
	while (started + 1 < most && started + 1 < count &&
	       pthread_create(&threads[started], NULL, go_on, &loop) == 0)
		started++;
	go_on(&loop);
	while (started)
		pthread_join(threads[--started], NULL);
	if (loop.rc && err)
		*err = loop.error;
	return loop.rc;
}

int tpck_parallel(size_t count, int (*each)(void *context, size_t i, uint8_t *buffer, struct tpck_error *err),
		  void *context, struct tpck_error *err)
{
	return run(THREADS, count, each, context, err);
}

int tpck_parallel_small(size_t count, int (*each)(void *context, size_t i, uint8_t *buffer, struct tpck_error *err),
			void *context, struct tpck_error *err)
{
	return run(THREADS_MAX, count, each, context, err);
}
