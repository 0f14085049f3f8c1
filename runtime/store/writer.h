/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a stream of chunks to a file with many writes in flight. */
#ifndef TPCK_RUNTIME_STORE_WRITER_H
#define TPCK_RUNTIME_STORE_WRITER_H

#include <stdint.h>

#include "runtime/base/error.h"

enum {
	TPCK_WRITER_DEPTH = 8,
	/* What O_DIRECT asks for on every disk we know; chunks begin at multiples of it. */
	TPCK_WRITER_ALIGN = 4096,
};

/* Where the bytes come from: fills buffer (TPCK_CHUNK_BYTES, aligned) and sets *bytes, 0 at the end.
 * The bytes go to the next aligned offset; what is left of the last block is written as zeros. */
struct tpck_source {
	int (*next)(void *context, uint8_t *buffer, uint32_t *bytes, struct tpck_error *err);
	void *context;
};

enum tpck_writer_engine {
	TPCK_WRITER_AUTO,         /* the first of these that the machine allows */
	TPCK_WRITER_URING_FIXED,  /* io_uring, buffers registered */
	TPCK_WRITER_URING,        /* io_uring, buffers not registered (RLIMIT_MEMLOCK too low) */
	TPCK_WRITER_THREADS,      /* pwrite from a few threads (io_uring refused) */
};

struct tpck_writer;
/* What was given up in AUTO is said in one line the first time. */
int tpck_writer_open(struct tpck_writer **writer, enum tpck_writer_engine engine, struct tpck_error *err);
enum tpck_writer_engine tpck_writer_engine(const struct tpck_writer *writer);
void tpck_writer_close(struct tpck_writer *writer);

/* Writes the source to fd from offset `at` on; path is for messages. *end: behind the last padded
 * byte. On failure some chunks may have been written. */
int tpck_writer_write(struct tpck_writer *writer, int fd, const char *path, uint64_t at,
		      const struct tpck_source *source, uint64_t *end, struct tpck_error *err);

#endif
