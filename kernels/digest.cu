/* SPDX-License-Identifier: Apache-2.0 */
/* The block digest on a device (runtime/base/block_digest.h): one thread block, which is one warp, a piece. Its lanes' sums are added up in the warp, so
 * that a piece is one atomic operation; sums of integers are the same whatever the order. */
#include <cuda_runtime.h>

#include "runtime/base/block_digest.h"

extern "C" __global__ void tpck_digest_units(const tpck_digest_unit *units, unsigned long long *results)
{
	const tpck_digest_unit unit = units[blockIdx.x];
	const unsigned long long *words = (const unsigned long long *)unit.address;
	unsigned count = unit.bytes / 8;
	unsigned long long sum = 0;
	__shared__ unsigned long long sums[TPCK_DIGEST_THREADS];

	for (unsigned i = threadIdx.x; i < count; i += TPCK_DIGEST_THREADS) {
		unsigned long long w = words[i], v = w ^ ((unit.first_word + i + 1) * TPCK_DIGEST_STEP);

		sum += (v & 0xffffffffu) * (v >> 32) + w;
	}
	if (threadIdx.x == 0 && unit.bytes % 8) {
		const unsigned char *tail = (const unsigned char *)(words + count);
		unsigned long long w = 0, v;

		for (unsigned b = 0; b < unit.bytes % 8; b++)
			w |= (unsigned long long)tail[b] << (8 * b);
		v = w ^ ((unit.first_word + count + 1) * TPCK_DIGEST_STEP);
		sum += (v & 0xffffffffu) * (v >> 32) + w;
	}
	sums[threadIdx.x] = sum;
	__syncwarp();
	if (threadIdx.x)
		return;
	for (unsigned lane = 1; lane < TPCK_DIGEST_THREADS; lane++)
		sum += sums[lane];
	atomicAdd(&results[unit.result], sum);
}
