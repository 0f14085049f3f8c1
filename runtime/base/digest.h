/* SPDX-License-Identifier: Apache-2.0 */
/* Digests: XXH3 for bytes at rest, over xxhash.h inlined. */
#ifndef TPCK_RUNTIME_BASE_DIGEST_H
#define TPCK_RUNTIME_BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

/* XXH3-64 of the bytes with a seed. */
uint64_t tpck_digest64(const void *bytes, size_t size, uint64_t seed);
/* XXH3-128 in canonical (big endian) form, as xxhsum -H2 prints it. */
void tpck_digest128(const void *bytes, size_t size, uint8_t digest[16]);
/* A number for both, by which one of many can be known: never 0. */
static inline uint32_t tpck_digest_pair(uint32_t one, uint32_t other)
{
	return (uint32_t)((((uint64_t)one << 32 | other) * 0x9e3779b97f4a7c15ull) >> 32) | 1;
}
/* 32 lower-case hexadecimal digits and a NUL. */
void tpck_digest128_text(const uint8_t digest[16], char text[33]);

#endif
