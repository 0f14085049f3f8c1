/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fragments of chunks, by an erasure code (Cauchy Reed-Solomon, systematic; ISA-L's): of K data and M parity fragments any K give the chunk
 * back. A data fragment is the K-th part of the chunk as it is, the last one with zeros behind it. Fragments of bytes that are the same are the
 * same. Nothing here tells a fragment from a damaged one: each has a digest, and the chunk has its own.
 */
#ifndef TPCK_RUNTIME_PEER_ERASURE_H
#define TPCK_RUNTIME_PEER_ERASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* K and M together; the settings know it too. */
enum { TPCK_FRAGMENTS_MAX = 32 };

/* One fragment of a code. */
struct tpck_fragment {
	uint16_t data, parity; /* K and M; K is 0: none, but the whole */
	uint16_t index;        /* below K + M; those below K are data */
	uint16_t reserved;
};

/* Whether this build has the library. */
bool tpck_erasure_can(void);
/* Whether a fragment that somebody names is one. */
bool tpck_fragment_is_valid(const struct tpck_fragment *fragment);
/* That of `length` bytes. */
size_t tpck_fragment_bytes(const struct tpck_fragment *fragment, size_t length);
/* Makes it of these bytes. 0; -ENOMEM, -ENOSYS. */
int tpck_erasure_cut(const struct tpck_fragment *fragment, const uint8_t *bytes, size_t length, uint8_t *to);
/* Makes `length` bytes of K fragments of a code, each with another index. 0; -EINVAL, -ENOMEM, -ENOSYS. */
int tpck_erasure_join(const struct tpck_fragment *code, const uint16_t *index, const uint8_t *const *fragment, uint8_t *to, size_t length);

#endif
