/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The block digest: a 64-bit sum over memory that a device computes at the speed of its memory and
 * a CPU at the speed of its caches, bit for bit the same. It tells copied bytes from the device's,
 * and a block that changed from one that did not; it is no cryptographic digest.
 *
 * Over the bytes as little-endian 64-bit words w[0..n), the last one filled up with zeros:
 *     v[i] = w[i] ^ ((i + 1) * TPCK_DIGEST_STEP)
 *     sum  = bytes * TPCK_DIGEST_STEP + sum of (low32(v[i]) * high32(v[i]) + w[i])
 * modulo 2^64, with 0 replaced by 1, so that 0 can mean "not taken". A sum has no order, so pieces
 * may be added up as they come.
 */
#ifndef TPCK_RUNTIME_BASE_BLOCK_DIGEST_H
#define TPCK_RUNTIME_BASE_BLOCK_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#define TPCK_DIGEST_STEP 0x9e3779b97f4a7c15ull

/* A piece of a block, as the kernel gets it: bytes (a multiple of 8 but for the block's last piece)
 * at address, which hold the block's words from first_word on; the sum is added to results[result]. */
struct tpck_digest_unit {
	uint64_t address;
	uint64_t first_word;
	uint32_t bytes;
	uint32_t result;
};
enum { TPCK_DIGEST_UNIT_BYTES = 32 << 10, TPCK_DIGEST_THREADS = 32 };
#define TPCK_DIGEST_KERNEL "tpck_digest_units"

/* The digest of bytes on the CPU. */
uint64_t tpck_block_digest(const void *bytes, size_t size);
/* What a piece of a block, from that word on, adds to the block's sum: a multiple of 8 bytes, but for the last piece. */
uint64_t tpck_block_digest_piece(const void *bytes, size_t size, uint64_t first_word);
/* The sum of a block's pieces as a digest: adds what depends on the size alone. */
uint64_t tpck_block_digest_finish(uint64_t sum, size_t size);

#endif
