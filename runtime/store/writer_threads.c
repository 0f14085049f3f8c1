/* SPDX-License-Identifier: Apache-2.0 */
/* Writing with pwrite from a few threads, where io_uring is refused. */
#include "config.h"

#include "runtime/base/lock_order.h"
#include "runtime/store/writer_private.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

enum { THREADS = 4 };

struct crew {
	pthread_mutex_t lock; /* the source and the writing's progress */
	struct tpck_writing *writing;
	unsigned next_buffer;
};

static int write_at(struct tpck_writing *writing, const uint8_t *bytes, uint32_t size, uint64_t offset)
{
	while (size) {
		ssize_t put = pwrite(writing->fd, bytes, size, (off_t)offset);

		if (put < 0 && (errno == EINTR || (errno == EINVAL && tpck_writing_drop_direct(writing))))
			continue;
		if (put <= 0)
			return put < 0 ? -errno : -EIO;
		bytes += put;
		offset += (uint64_t)put;
		size -= (uint32_t)put;
	}
	return 0;
}

static void *work(void *argument)
{
	struct crew *crew = argument;
	uint64_t offset;
	uint32_t bytes;
	uint8_t *buffer;
	int rc;

	pthread_mutex_lock(&crew->lock);
	buffer = crew->writing->writer->buffers + (size_t)crew->next_buffer++ * TPCK_CHUNK_BYTES;
	while (tpck_writing_next(crew->writing, buffer, &offset, &bytes)) {
		pthread_mutex_unlock(&crew->lock);
		rc = write_at(crew->writing, buffer, bytes, offset);
		pthread_mutex_lock(&crew->lock);
		if (rc)
			tpck_writing_fail(crew->writing, -rc);
	}
	pthread_mutex_unlock(&crew->lock);
	return NULL;
}

void tpck_writer_threads_run(struct tpck_writing *writing)
{
	struct crew crew = {PTHREAD_MUTEX_INITIALIZER, writing, 0};
	pthread_t threads[THREADS];
	int started = 0;

	/* The calling thread is one of them, so that it works even where no thread can be made. */
	while (started < THREADS - 1 && pthread_create(&threads[started], NULL, work, &crew) == 0)
		started++;
	work(&crew);
	while (started)
		pthread_join(threads[--started], NULL);
}
