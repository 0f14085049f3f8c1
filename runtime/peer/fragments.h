/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where fragments of a snapshot's chunks lie, in the folder of a rank (replica.h): a file for each object, `part.<slot>.<object>`, with the
 * fragment of each chunk at its place, and a hole where a chunk is the same as one before it (firsts.h). A log only grows: what is full of its
 * chunks is in `part.log.<object>`, for both slots. In the first rank's folder is `digests.<slot>`, which says by which digest each of them is
 * known to be what its owner made.
 */
#ifndef TPCK_RUNTIME_PEER_FRAGMENTS_H
#define TPCK_RUNTIME_PEER_FRAGMENTS_H

#include "runtime/base/error.h"
#include "runtime/peer/erasure.h"
#include "runtime/peer/firsts.h"
#include "runtime/peer/protocol.h"
#include "runtime/store/manifest.h"

typedef uint8_t tpck_fragment_digest[16];

/* The number of a chunk among all of a manifest; that of no chunk is how many there are. */
size_t tpck_fragments_number(const struct tpck_manifest *manifest, const struct tpck_peer_want *at);
size_t tpck_fragments_count(const struct tpck_manifest *manifest);
/* Whether this chunk's fragment is kept at its own place. */
bool tpck_fragments_is_first(const struct tpck_firsts *firsts, size_t member, size_t object, size_t chunk);
/* Whether both slots have it at one place. */
bool tpck_fragments_is_shared(size_t object, size_t length);
/* Memory that so many such snapshots take. */
uint64_t tpck_fragments_memory(const struct tpck_fragment *fragment, const struct tpck_manifest *manifest, const struct tpck_firsts *firsts,
			       unsigned slots);
/* The files of a member, with memory for what is to be there, and none for the rest. */
int tpck_fragments_reserve(const char *folder, unsigned slot, const struct tpck_fragment *fragment, const struct tpck_member *member, size_t m,
			   const struct tpck_firsts *firsts, struct tpck_error *err);
/* That of a chunk of `length` bytes. */
int tpck_fragments_read(const char *folder, unsigned slot, const struct tpck_fragment *fragment, uint32_t object, uint32_t chunk, void *to,
			size_t length, struct tpck_error *err);
int tpck_fragments_write(const char *folder, unsigned slot, const struct tpck_fragment *fragment, uint32_t object, uint32_t chunk,
			 const void *from, size_t length, struct tpck_error *err);
int tpck_fragments_save(const char *folder, unsigned slot, const tpck_fragment_digest *digests, size_t count, struct tpck_error *err);
/* malloc'd. */
int tpck_fragments_load(const char *folder, unsigned slot, size_t count, tpck_fragment_digest **digests);

#endif
