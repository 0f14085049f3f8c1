/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU twin of the block digest. */
#include "config.h"

#include "runtime/base/block_digest.h"

#include <string.h>

uint64_t tpck_block_digest_finish(uint64_t sum, size_t size)
{
	sum += (uint64_t)size * TPCK_DIGEST_STEP;
	return sum ? sum : 1;
}

/* Written so that compilers make vector code of it: 32-bit multiplications, no dependence between words. */
#ifdef __SANITIZE_THREAD__ /* it would be called before its own start, by the choice between the two */
#define VECTOR_CODE __attribute__((optimize("O3")))
#else
#define VECTOR_CODE __attribute__((optimize("O3"), target_clones("avx2", "default")))
#endif
VECTOR_CODE static uint64_t sum_words(const uint64_t *words, size_t count, uint64_t first)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < count; i++) {
		uint64_t w = words[i], v = w ^ ((first + i + 1) * TPCK_DIGEST_STEP);

		sum += (v & 0xffffffffu) * (v >> 32) + w;
	}
	return sum;
}

uint64_t tpck_block_digest(const void *bytes, size_t size)
{
	size_t words = size / 8;
	uint64_t sum, last = 0;

	sum = sum_words(bytes, words, 0);
	if (size % 8) {
		memcpy(&last, (const char *)bytes + words * 8, size % 8);
		sum += sum_words(&last, 1, words);
	}
	return tpck_block_digest_finish(sum, size);
}
