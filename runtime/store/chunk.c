/* SPDX-License-Identifier: Apache-2.0 */
/* Objects as lists of chunks. */
#include "config.h"

#include "runtime/store/chunk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/wire/segment.h"

static const char *const kind_names[] = {"image", "index", "log"};

int tpck_object_make(struct tpck_object *object, enum tpck_object_kind kind, const char *name, uint64_t bytes)
{
	memset(object, 0, sizeof *object);
	object->kind = kind;
	snprintf(object->name, sizeof object->name, "%s", name);
	object->bytes = bytes;
	object->count = (size_t)((bytes + TPCK_CHUNK_BYTES - 1) / TPCK_CHUNK_BYTES);
	object->chunks = calloc(object->count ? object->count : 1, sizeof *object->chunks);
	if (!object->chunks)
		return -ENOMEM;
	for (size_t i = 0; i < object->count; i++) {
		uint64_t left = bytes - (uint64_t)i * TPCK_CHUNK_BYTES;

		object->chunks[i].length = left < TPCK_CHUNK_BYTES ? (uint32_t)left : TPCK_CHUNK_BYTES;
	}
	return 0;
}

void tpck_object_clear(struct tpck_object *object)
{
	free(object->chunks);
	object->chunks = NULL;
	object->count = 0;
}

const char *tpck_object_kind_name(enum tpck_object_kind kind)
{
	return kind_names[kind];
}

int tpck_object_kind_parse(const char *name, enum tpck_object_kind *kind)
{
	for (size_t i = 0; i < sizeof kind_names / sizeof *kind_names; i++) {
		if (strcmp(kind_names[i], name) == 0) {
			*kind = (enum tpck_object_kind)i;
			return 0;
		}
	}
	return -EINVAL;
}

const struct tpck_chunk *tpck_object_chunk(const struct tpck_object *objects, size_t count, const char *name,
					   size_t i)
{
	for (size_t o = 0; o < count; o++)
		if (strcmp(objects[o].name, name) == 0)
			return i < objects[o].count ? &objects[o].chunks[i] : NULL;
	return NULL;
}
