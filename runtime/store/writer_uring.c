/* SPDX-License-Identifier: Apache-2.0 */
/* Writing through io_uring: one submitter, TPCK_WRITER_DEPTH buffers in flight. */
#include "config.h"

#include "runtime/store/writer_private.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

/* One buffer's write; a short write goes on from `done`. */
struct flight {
	uint64_t offset;
	uint32_t bytes, done;
	bool busy;
};

int tpck_writer_uring_open(struct tpck_writer *writer, bool fixed)
{
	struct iovec buffers[TPCK_WRITER_DEPTH];
	int rc = 0;

	if (!writer->ring_made) {
		rc = io_uring_queue_init(TPCK_WRITER_DEPTH * 2, &writer->ring, 0);
		if (rc)
			return rc;
		writer->ring_made = true;
	}
	if (!fixed)
		return 0;
	for (int i = 0; i < TPCK_WRITER_DEPTH; i++)
		buffers[i] = (struct iovec){writer->buffers + (size_t)i * TPCK_CHUNK_BYTES, TPCK_CHUNK_BYTES};
	return io_uring_register_buffers(&writer->ring, buffers, TPCK_WRITER_DEPTH);
}

void tpck_writer_uring_close(struct tpck_writer *writer)
{
	if (writer->ring_made)
		io_uring_queue_exit(&writer->ring);
	writer->ring_made = false;
}

static void submit(struct tpck_writing *writing, struct flight *flight, unsigned index)
{
	struct tpck_writer *writer = writing->writer;
	/* There are twice as many entries as buffers, and each submission is flushed: never NULL. */
	struct io_uring_sqe *sqe = io_uring_get_sqe(&writer->ring);
	uint8_t *from = writer->buffers + (size_t)index * TPCK_CHUNK_BYTES + flight->done;
	uint32_t bytes = flight->bytes - flight->done;
	uint64_t offset = flight->offset + flight->done;
	int rc;

	if (writer->engine == TPCK_WRITER_URING_FIXED)
		io_uring_prep_write_fixed(sqe, writing->fd, from, bytes, offset, (int)index);
	else
		io_uring_prep_write(sqe, writing->fd, from, bytes, offset);
	io_uring_sqe_set_data(sqe, flight);
	do
		rc = io_uring_submit(&writer->ring);
	while (rc == -EINTR || rc == -EAGAIN);
	if (rc < 0)
		tpck_writing_fail(writing, -rc);
	flight->busy = rc >= 0;
}

static void complete(struct tpck_writing *writing, struct flight *flights, struct io_uring_cqe *cqe)
{
	struct flight *flight = io_uring_cqe_get_data(cqe);
	int result = cqe->res;

	io_uring_cqe_seen(&writing->writer->ring, cqe);
	flight->busy = false;
	if (result > 0)
		flight->done += (uint32_t)result;
	if (flight->done == flight->bytes)
		return;
	if (writing->rc)
		return;
	if (result == 0)
		tpck_writing_fail(writing, EIO);
	else if (result < 0 && result != -EINTR && result != -EAGAIN &&
		 !(result == -EINVAL && tpck_writing_drop_direct(writing)))
		tpck_writing_fail(writing, -result);
	else
		submit(writing, flight, (unsigned)(flight - flights));
}

void tpck_writer_uring_run(struct tpck_writing *writing)
{
	struct flight flights[TPCK_WRITER_DEPTH];
	unsigned busy;

	memset(flights, 0, sizeof flights);
	do {
		struct io_uring_cqe *cqe;
		int rc;

		busy = 0;
		for (unsigned i = 0; i < TPCK_WRITER_DEPTH; i++) {
			struct flight *f = &flights[i];

			if (!f->busy) {
				f->done = 0;
				if (tpck_writing_next(writing, writing->writer->buffers + (size_t)i * TPCK_CHUNK_BYTES,
						      &f->offset, &f->bytes))
					submit(writing, f, i);
			}
			busy += f->busy;
			/* What is done is taken up between chunks, so that a buffer is never idle for long. */
			while (io_uring_peek_cqe(&writing->writer->ring, &cqe) == 0 && cqe)
				complete(writing, flights, cqe);
		}
		busy = 0;
		for (unsigned i = 0; i < TPCK_WRITER_DEPTH; i++)
			busy += flights[i].busy;
		if (busy == 0)
			continue;
		rc = io_uring_wait_cqe(&writing->writer->ring, &cqe);
		if (rc == 0)
			complete(writing, flights, cqe);
		else if (rc != -EINTR)
			tpck_writing_fail(writing, -rc);
	} while (busy || !writing->ended);
}
