/* SPDX-License-Identifier: Apache-2.0 */
/* A chunk and an object: where bytes lie, and what they must be. */
#ifndef TPCK_RUNTIME_STORE_CHUNK_H
#define TPCK_RUNTIME_STORE_CHUNK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

/* At most TPCK_CHUNK_BYTES at an offset of a container, which may be an older checkpoint's. */
struct tpck_chunk {
	uint32_t container; /* index into the manifest's containers */
	uint32_t length;
	uint64_t offset;
	uint8_t digest[16]; /* XXH3-128, canonical */
};

enum tpck_object_kind {
	TPCK_OBJECT_IMAGE, /* the data area of an image */
	TPCK_OBJECT_INDEX, /* its rows */
	TPCK_OBJECT_LOG,   /* the records of one log segment up to the cut */
};

/* Bytes as a list of chunks, all of TPCK_CHUNK_BYTES but the last. */
struct tpck_object {
	char name[64];
	enum tpck_object_kind kind;
	uint64_t bytes;
	uint64_t segment_generation, segment_bytes; /* logs: header fields of the segment's file */
	size_t count;
	struct tpck_chunk *chunks;
};

/* Makes room for the chunks of so many bytes; lengths are set, the rest is zero. */
int tpck_object_make(struct tpck_object *object, enum tpck_object_kind kind, const char *name, uint64_t bytes);
void tpck_object_clear(struct tpck_object *object);
const char *tpck_object_kind_name(enum tpck_object_kind kind);
int tpck_object_kind_parse(const char *name, enum tpck_object_kind *kind);
/* Chunk i of the object of that name, or NULL; for finding what did not change. */
const struct tpck_chunk *tpck_object_chunk(const struct tpck_object *objects, size_t count, const char *name,
					   size_t i);

#endif
