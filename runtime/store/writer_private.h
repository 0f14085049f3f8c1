/* SPDX-License-Identifier: Apache-2.0 */
/* What the two ways of writing share: the buffers, and one job's progress. */
#ifndef TPCK_RUNTIME_STORE_WRITER_PRIVATE_H
#define TPCK_RUNTIME_STORE_WRITER_PRIVATE_H

#include <liburing.h>
#include <stdbool.h>

#include "runtime/store/writer.h"
#include "runtime/wire/segment.h"

struct tpck_writer {
	enum tpck_writer_engine engine;
	uint8_t *buffers; /* TPCK_WRITER_DEPTH of TPCK_CHUNK_BYTES */
	struct io_uring ring;
	bool ring_made;
};

struct tpck_writing {
	struct tpck_writer *writer;
	const struct tpck_source *source;
	const char *path;
	int fd;
	uint64_t at;       /* where the next chunk goes */
	uint64_t reserved; /* file space is allocated up to here */
	bool reserve;      /* the file system can allocate ahead */
	bool ended;        /* source is at its end, or something failed */
	int rc;            /* first failure */
	struct tpck_error *err;
};

/* Takes the next chunk of the source into buffer, padded; its place and padded size. False at the
 * end or on failure. */
bool tpck_writing_next(struct tpck_writing *writing, uint8_t *buffer, uint64_t *offset, uint32_t *bytes);
void tpck_writing_fail(struct tpck_writing *writing, int code);
/* After EINVAL from a write: whether trying again without O_DIRECT is worth it. */
bool tpck_writing_drop_direct(struct tpck_writing *writing);

int tpck_writer_uring_open(struct tpck_writer *writer, bool fixed);
void tpck_writer_uring_close(struct tpck_writer *writer);
void tpck_writer_uring_run(struct tpck_writing *writing);
void tpck_writer_threads_run(struct tpck_writing *writing);

#endif
