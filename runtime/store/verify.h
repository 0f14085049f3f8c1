/* SPDX-License-Identifier: Apache-2.0 */
/* Verification: every chunk against its digest, as read from the disk. */
#ifndef TPCK_RUNTIME_STORE_VERIFY_H
#define TPCK_RUNTIME_STORE_VERIFY_H

#include "runtime/store/manifest.h"
#include "runtime/store/tier.h"

/* Reads one chunk into a buffer of TPCK_CHUNK_BYTES (aligned) and compares. -EBADMSG names file,
 * object, chunk and offset. */
int tpck_verify_chunk(struct tpck_tier *tier, const struct tpck_manifest *manifest,
		      const struct tpck_object *object, size_t i, uint8_t *buffer, struct tpck_error *err);

/* The header of one container. -ENOENT, with the ranks that have chunks in it, where it is not there. */
int tpck_verify_container(struct tpck_tier *tier, const struct tpck_manifest *manifest, size_t container, struct tpck_error *err);

/* The headers of the containers that must be there for one rank to go on: all, of a checkpoint in parts those that have its
 * chunks. -ENOENT as above. */
int tpck_verify_member(struct tpck_tier *tier, const struct tpck_manifest *manifest, const struct tpck_member *member,
		       struct tpck_error *err);

/* All of it, containers' headers too; stops at the first fault. */
int tpck_verify(struct tpck_tier *tier, const struct tpck_manifest *manifest, struct tpck_error *err);
/* Only what this checkpoint wrote itself; what it refers to was verified when that was written. */
int tpck_verify_new(struct tpck_tier *tier, const struct tpck_manifest *manifest, struct tpck_error *err);
/* All that no checkpoint of `verified` has at the same place with the same digest. */
int tpck_verify_unlike(struct tpck_tier *tier, const struct tpck_manifest *manifest,
		       const struct tpck_catalog *verified, struct tpck_error *err);
/* Goes on after a fault and hands each to `fault`. Returns how many there were, or -ENOMEM. */
long tpck_verify_each(struct tpck_tier *tier, const struct tpck_manifest *manifest,
		      void (*fault)(void *context, const struct tpck_error *err), void *context);

#endif
