/* SPDX-License-Identifier: Apache-2.0 */
/* Which chunks of a snapshot have the same bytes: replicas of a model differ in little. */
#ifndef TPCK_RUNTIME_PEER_FIRSTS_H
#define TPCK_RUNTIME_PEER_FIRSTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/store/manifest.h"

/* Chunk `chunk` of the image data of member number `member`. */
struct tpck_first {
	uint32_t member, chunk;
};

/* For each chunk of image data the first of the manifest, by member and place, that has its digest: itself, where none
 * before it has. Only that one is sent and kept. */
struct tpck_firsts {
	size_t members;
	struct tpck_first **of; /* [member][chunk] */
};

/* The image data of a member; its objects are those of an image and a log (tpck_stage_check). */
enum { TPCK_OBJECT_OF_DATA = 1 };

int tpck_firsts_find(struct tpck_firsts *firsts, const struct tpck_manifest *manifest, struct tpck_error *err);
void tpck_firsts_free(struct tpck_firsts *firsts);
bool tpck_firsts_is(const struct tpck_firsts *firsts, size_t member, size_t chunk);

#endif
