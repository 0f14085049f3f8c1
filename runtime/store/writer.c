/* SPDX-License-Identifier: Apache-2.0 */
/* The writer's face: picks the way of writing, cuts the source into aligned pieces. */
#include "config.h"

#include "runtime/store/writer_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/base/log.h"

/* File space is allocated this far ahead: writes within the file's size run side by side, those
 * that extend it wait for each other (ext4, XFS). */
enum { RESERVE_AHEAD = 256 << 20 };

static void choose_engine(struct tpck_writer *writer, enum tpck_writer_engine wanted)
{
	int rc;

	writer->engine = TPCK_WRITER_THREADS;
	if (wanted == TPCK_WRITER_THREADS)
		return;
	if (wanted != TPCK_WRITER_URING) {
		rc = tpck_writer_uring_open(writer, true);
		if (rc == 0) {
			writer->engine = TPCK_WRITER_URING_FIXED;
			return;
		}
	}
	rc = tpck_writer_uring_open(writer, false);
	if (rc == 0)
		writer->engine = TPCK_WRITER_URING;
	else
		errno = -rc;
}

int tpck_writer_open(struct tpck_writer **out, enum tpck_writer_engine wanted, struct tpck_error *err)
{
	static bool said;
	struct tpck_writer *writer = calloc(1, sizeof *writer);

	if (!writer)
		return tpck_error_set(err, ENOMEM, "making the writer's buffers");
	writer->buffers = mmap(NULL, (size_t)TPCK_WRITER_DEPTH * TPCK_CHUNK_BYTES, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (writer->buffers == MAP_FAILED) {
		free(writer);
		return tpck_error_set(err, ENOMEM, "making the writer's buffers");
	}
	choose_engine(writer, wanted);
	if (wanted == TPCK_WRITER_AUTO && !said && writer->engine != TPCK_WRITER_URING_FIXED) {
		said = true;
		if (writer->engine == TPCK_WRITER_THREADS)
			tpck_log_warn("io_uring is not available here (%m); writing with threads");
		else
			tpck_log_warn("io_uring cannot register %d MiB of buffers (RLIMIT_MEMLOCK); writing without",
				      TPCK_WRITER_DEPTH * (TPCK_CHUNK_BYTES >> 20));
	}
	*out = writer;
	return 0;
}

enum tpck_writer_engine tpck_writer_engine(const struct tpck_writer *writer)
{
	return writer->engine;
}

void tpck_writer_close(struct tpck_writer *writer)
{
	if (!writer)
		return;
	tpck_writer_uring_close(writer);
	munmap(writer->buffers, (size_t)TPCK_WRITER_DEPTH * TPCK_CHUNK_BYTES);
	free(writer);
}

void tpck_writing_fail(struct tpck_writing *writing, int code)
{
	if (!writing->rc)
		writing->rc = tpck_error_set(writing->err, code, "writing %s", writing->path);
	writing->ended = true;
}

bool tpck_writing_drop_direct(struct tpck_writing *writing)
{
	int flags = fcntl(writing->fd, F_GETFL);

	return flags >= 0 && (flags & O_DIRECT) && fcntl(writing->fd, F_SETFL, flags & ~O_DIRECT) == 0;
}

bool tpck_writing_next(struct tpck_writing *writing, uint8_t *buffer, uint64_t *offset, uint32_t *bytes)
{
	uint32_t got = 0, padded;
	int rc;

	if (writing->ended)
		return false;
	rc = writing->source->next(writing->source->context, buffer, &got, writing->err);
	if (rc || got == 0) {
		writing->rc = rc;
		writing->ended = true;
		return false;
	}
	padded = (got + TPCK_WRITER_ALIGN - 1) / TPCK_WRITER_ALIGN * TPCK_WRITER_ALIGN;
	memset(buffer + got, 0, padded - got);
	if (writing->reserve && writing->at + padded > writing->reserved) {
		/* Full or unable: the writes themselves will tell. */
		if (fallocate(writing->fd, 0, (off_t)writing->at, RESERVE_AHEAD))
			writing->reserve = false;
		writing->reserved = writing->at + RESERVE_AHEAD;
	}
	*offset = writing->at;
	*bytes = padded;
	writing->at += padded;
	return true;
}

int tpck_writer_write(struct tpck_writer *writer, int fd, const char *path, uint64_t at,
		      const struct tpck_source *source, uint64_t *end, struct tpck_error *err)
{
	struct tpck_writing writing = {
		.writer = writer, .source = source, .path = path, .fd = fd, .at = at, .reserved = at,
		.reserve = true, .err = err,
	};

	if (writer->engine == TPCK_WRITER_THREADS)
		tpck_writer_threads_run(&writing);
	else
		tpck_writer_uring_run(&writing);
	if (!writing.rc && writing.reserved > at && ftruncate(fd, (off_t)writing.at))
		tpck_writing_fail(&writing, errno);
	if (!writing.rc)
		*end = writing.at;
	return writing.rc;
}
