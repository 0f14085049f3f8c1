/* SPDX-License-Identifier: Apache-2.0 */
/* A record of the log of published files (doc/format.md), and where a copy of such a file is kept in memory: what the agent
 * writes and the library looks at before a file is read. */
#ifndef TPCK_RUNTIME_VIEW_SUMS_RECORD_H
#define TPCK_RUNTIME_VIEW_SUMS_RECORD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* The log, in the root of the job's first durable tier. */
#define TPCK_SUMS_LOG "files.sums"
#define TPCK_SUMS_CHUNK (1u << 20)
#define TPCK_SUMS_MAGIC 0x314d55534b435054ull /* "TPCKSUM1" */
/* Copies in memory: SHM/JOB/files/kept.ID. */
#define TPCK_KEPT "kept."

/* Behind it the path and the digests. Little endian. */
struct tpck_sums_record {
	uint64_t magic;
	uint8_t digest[16]; /* of what follows, path and digests included */
	uint64_t inode, bytes;
	int64_t modified_sec;
	uint64_t modified_ns;
	uint64_t count;
	uint64_t path_bytes;
};

static inline size_t tpck_sums_chunks(uint64_t bytes)
{
	return (size_t)(bytes / TPCK_SUMS_CHUNK + (bytes % TPCK_SUMS_CHUNK != 0));
}

/* How long a record is that begins so, with path and digests; 0: none does. */
size_t tpck_sums_record_length(const struct tpck_sums_record *head);
/* The record at `text`, of at most `size` bytes: its length, 0 where there is no whole one. */
size_t tpck_sums_record_at(const void *text, size_t size, struct tpck_sums_record *head);
/* A record's digests. */
static inline const uint8_t (*tpck_sums_record_digests(const void *text, const struct tpck_sums_record *head))[16]
{
	return (const uint8_t (*)[16])((const uint8_t *)text + sizeof *head + head->path_bytes);
}

/* The name of the copy of a published file: by what a reader sees of the file, so that no list of them is needed. */
void tpck_kept_name(char *path, size_t size, const char *job_folder, const struct stat *file);

#endif
