/* SPDX-License-Identifier: Apache-2.0 */
/* Speed of the digests of a chunk in the cache and of memory beyond it, beside XXH3 alone. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "runtime/base/block_digest.h"
#include "runtime/base/digest.h"

enum { TIMES = 7 };

static volatile uint64_t sink;

static void plain(const void *bytes, size_t size)
{
	sink += XXH3_128bits(bytes, size).low64;
}

static void stored(const void *bytes, size_t size)
{
	uint8_t digest[16];

	tpck_digest128(bytes, size, digest);
	sink += digest[0];
}

static void block(const void *bytes, size_t size)
{
	sink += tpck_block_digest(bytes, size);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Median GiB/s of one core over `rounds` of `size` bytes. */
static double rate(void (*digest)(const void *, size_t), const char *bytes, size_t size, int rounds)
{
	double rates[TIMES];

	for (int t = 0; t < TIMES; t++) {
		struct timespec a, b;

		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
		for (int i = 0; i < rounds; i++)
			digest(bytes, size);
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
		rates[t] = (double)size * rounds / (1 << 30) /
			   ((double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9);
	}
	qsort(rates, TIMES, sizeof *rates, by_value);
	return rates[TIMES / 2];
}

int main(void)
{
	size_t large = 256u << 20, small = 1u << 20;
	char *bytes = malloc(large);

	if (!bytes)
		return 1;
	for (size_t i = 0; i < large; i++)
		bytes[i] = (char)(i * 2654435761u >> 13);
	printf("{\"xxh3\": %.2f, \"stored\": %.2f, \"block\": %.2f, ", rate(plain, bytes, large, 1),
	       rate(stored, bytes, large, 1), rate(block, bytes, large, 1));
	printf("\"xxh3_cached\": %.2f, \"stored_cached\": %.2f, \"block_cached\": %.2f}\n", rate(plain, bytes, small, 200),
	       rate(stored, bytes, small, 200), rate(block, bytes, small, 200));
	free(bytes);
	return 0;
}
