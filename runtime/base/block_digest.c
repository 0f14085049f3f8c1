/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU twin of the block digest. */
#include "config.h"

#include "runtime/base/block_digest.h"

#include <stdbool.h>
#include <string.h>

uint64_t tpck_block_digest_finish(uint64_t sum, size_t size)
{
	sum += (uint64_t)size * TPCK_DIGEST_STEP;
	return sum ? sum : 1;
}

/* clang makes vector code at -O2, and does not know the attribute by which gcc is asked for it. */
#ifdef __clang__
#define VECTORS
#else
#define VECTORS optimize("O3")
#endif

/* Written so that compilers make vector code of it: 32-bit multiplications, no dependence between words. */
__attribute__((always_inline)) static inline uint64_t sum(const uint64_t *words, size_t count, uint64_t first)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < count; i++) {
		uint64_t w = words[i], v = w ^ ((first + i + 1) * TPCK_DIGEST_STEP);

		sum += (v & 0xffffffffu) * (v >> 32) + w;
	}
	return sum;
}

__attribute__((VECTORS)) static uint64_t sum_words(const uint64_t *words, size_t count, uint64_t first)
{
	return sum(words, count, first);
}

/* The loader knows what the processor has. target_clones would ask the processor at the start of every process, and a virtual
 * machine's answers through its host: 100 us and more. */
#if defined(__x86_64__) && __has_include(<sys/platform/x86.h>)
#include <sys/platform/x86.h>

__attribute__((VECTORS, target("avx2"))) static uint64_t sum_words_avx2(const uint64_t *words, size_t count, uint64_t first)
{
	return sum(words, count, first);
}

static bool has_avx2(void)
{
	return CPU_FEATURE_ACTIVE(AVX2);
}
#else
#define sum_words_avx2 sum_words
static bool has_avx2(void)
{
	return false;
}
#endif

uint64_t tpck_block_digest_piece(const void *bytes, size_t size, uint64_t first_word)
{
	size_t words = size / 8;
	uint64_t sum, last = 0;

	sum = has_avx2() ? sum_words_avx2(bytes, words, first_word) : sum_words(bytes, words, first_word);
	if (size % 8) {
		memcpy(&last, (const char *)bytes + words * 8, size % 8);
		sum += sum_words(&last, 1, first_word + words);
	}
	return sum;
}

uint64_t tpck_block_digest(const void *bytes, size_t size)
{
	return tpck_block_digest_finish(tpck_block_digest_piece(bytes, size, 0), size);
}
