/* SPDX-License-Identifier: Apache-2.0 */
/* The memory tier: sessions, images and log segments as files of tmpfs, opened and checked. */
#ifndef TPCK_RUNTIME_STORE_MEMORY_TIER_H
#define TPCK_RUNTIME_STORE_MEMORY_TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/store/file_names.h"
#include "runtime/wire/segment.h"

/* One session folder with its control page mapped. */
struct tpck_session {
	struct tpck_session_name name;
	char path[TPCK_NAME_MAX];    /* absolute; the wire has room for no more */
	struct tpck_control *control;
	char *identity;              /* identity text */
};

/* Makes the folder (which must not exist) with control page and identity file. */
int tpck_session_create(struct tpck_session **session, const char *job_folder,
			const struct tpck_session_name *name, const char *identity,
			struct tpck_error *err);
/* Opens an existing one; control is read-only where `writable` is false. */
int tpck_session_open(struct tpck_session **session, const char *job_folder, const char *name,
		      bool writable, struct tpck_error *err);
void tpck_session_close(struct tpck_session *session);
/* Removes the folder and all in it. 0 or -errno. */
int tpck_session_remove(const char *path);

/* One image file, mapped whole. */
struct tpck_image {
	struct tpck_image_header *header;
	size_t size;
};
static inline struct tpck_image_chunk *tpck_image_chunks(const struct tpck_image *image)
{
	return (struct tpck_image_chunk *)((char *)image->header + TPCK_IMAGE_CHUNKS_AT);
}
static inline struct tpck_image_row *tpck_image_rows(const struct tpck_image *image)
{
	return (struct tpck_image_row *)((char *)image->header + TPCK_IMAGE_INDEX_AT);
}
static inline struct tpck_image_tensor *tpck_image_tensors(const struct tpck_image *image)
{
	return (struct tpck_image_tensor *)(tpck_image_rows(image) + image->header->rows);
}
static inline struct tpck_image_optimizer *tpck_image_optimizers(const struct tpck_image *image)
{
	return (struct tpck_image_optimizer *)(tpck_image_tensors(image) + image->header->tensors);
}

static inline struct tpck_image_communicator *tpck_image_communicators(const struct tpck_image *image)
{
	return (struct tpck_image_communicator *)(tpck_image_optimizers(image) + image->header->optimizers);
}

static inline struct tpck_image_peer *tpck_image_peers(const struct tpck_image *image)
{
	return (struct tpck_image_peer *)(tpck_image_communicators(image) + image->header->communicators);
}
static inline uint8_t *tpck_image_data(const struct tpck_image *image)
{
	return (uint8_t *)image->header + TPCK_IMAGE_DATA_AT;
}
/* Bytes of data chunk i, from the header's data_bytes. */
uint64_t tpck_image_chunk_bytes(const struct tpck_image_header *header, uint32_t i);

int tpck_image_open(struct tpck_image *image, const char *path, bool writable, struct tpck_error *err);
void tpck_image_close(struct tpck_image *image);
/* Makes an image file that can hold data_bytes, or grows one; memory is allocated, not yet touched. */
int tpck_image_allocate(const char *path, uint32_t ordinal, uint64_t data_bytes, struct tpck_error *err);
/* Touches every page of the data area, so that nobody else has to wait for the kernel to clear it. */
int tpck_image_prefault(const char *path, struct tpck_error *err);
/* Size of the file of an image that holds data_bytes, as memory that it takes at most. */
uint64_t tpck_image_memory(uint64_t data_bytes);

/* Whether the header is whole: magic, version, footer, and everything it names lies in the file. */
int tpck_image_check(const struct tpck_image *image, const char *path, struct tpck_error *err);
/* Compares every row that carries a device digest with the bytes copied. -EBADMSG where one differs, -ECANCELED where its state changes meanwhile. */
int tpck_image_check_device(const struct tpck_image *image, const char *path, struct tpck_error *err);
/* Compares every chunk that was hashed with its digest, and hashes those that were not, where that can be written. */
int tpck_image_check_chunks(const struct tpck_image *image, const char *path, bool writable,
			    struct tpck_error *err);

/* The log segments of a session up to the cut: present, in order, whole, sealed before the cut. */
struct tpck_cut {
	uint64_t sequence, offset;
};
int tpck_log_check(const char *session_path, const struct tpck_cut *cut, struct tpck_error *err);
void tpck_log_path(const char *session_path, uint64_t sequence, char *path, size_t size);

/* Bytes of memory that a folder's files take; of a file with two names, half. */
uint64_t tpck_folder_memory(const char *path);

/* What the stashes in such a folder take, in memory or on the disk; where its file system does not say that, their size. */
uint64_t tpck_stash_sum(const char *folder);

#endif
