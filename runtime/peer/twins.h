/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks of another node's snapshot that ranks here have, too: replicas of a model have the same parameters on every node. What a
 * copy of it lacks is taken from their images where it can be, and need not be sent. That it is the same is for the
 * digests to say, after it was copied: an image may be in use for something else by then.
 *
 * Not locked here.
 */
#ifndef TPCK_RUNTIME_PEER_TWINS_H
#define TPCK_RUNTIME_PEER_TWINS_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/peer/replica.h"

struct tpck_twins;

/* What ranks here have: the manifest of their snapshot, and by member where its image is. NULL: there is no memory. Both are
 * needed in this call only. */
struct tpck_twins *tpck_twins_new(const struct tpck_manifest *manifest, const char *const *image_paths);
void tpck_twins_free(struct tpck_twins *twins);
/* Takes from there what a copy that was begun wants. How many wants are left, in front; *bytes is what was found. */
size_t tpck_twins_fill(const struct tpck_twins *twins, struct tpck_replica *replica, struct tpck_peer_want *want, size_t count,
		       uint64_t *bytes);

#endif
