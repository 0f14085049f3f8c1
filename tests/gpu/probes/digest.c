/* SPDX-License-Identifier: Apache-2.0 */
/* The library's digest kernel against its twin on the CPU, and how fast the device is at it: digest IMAGE [MIB]. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/block_digest.h"
#include "tests/gpu/probes/probe.h"

struct digester {
	CUfunction kernel;
	CUdeviceptr units, result;
};

/* Everything of a block in units; the device's sum. */
static uint64_t digest(const struct digester *d, CUdeviceptr block, size_t bytes, double *ms)
{
	size_t count = (bytes + TPCK_DIGEST_UNIT_BYTES - 1) / TPCK_DIGEST_UNIT_BYTES;
	struct tpck_digest_unit *units = calloc(count, sizeof *units);
	CUdeviceptr table = d->units, result = d->result;
	void *arguments[] = {&table, &result};
	uint64_t sum = 0;
	double begun;

	if (!units)
		probe_refused("calloc", "no memory");
	for (size_t i = 0; i < count; i++) {
		size_t at = i * TPCK_DIGEST_UNIT_BYTES, left = bytes - at;

		units[i] = (struct tpck_digest_unit){.address = block + at, .first_word = at / 8,
						     .bytes = (uint32_t)(left < TPCK_DIGEST_UNIT_BYTES ? left : TPCK_DIGEST_UNIT_BYTES)};
	}
	DO(cuMemcpyHtoD, d->units, units, count * sizeof *units);
	DO(cuMemcpyHtoD, d->result, &sum, sizeof sum);
	DO(cuCtxSynchronize);
	begun = probe_ms();
	DO(cuLaunchKernel, d->kernel, (unsigned)count, 1, 1, TPCK_DIGEST_THREADS, 1, 1, 0, NULL, arguments, NULL);
	DO(cuCtxSynchronize);
	*ms = probe_ms() - begun;
	DO(cuMemcpyDtoH, &sum, d->result, sizeof sum);
	free(units);
	return tpck_block_digest_finish(sum, bytes);
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = {1, 7, 8, 4096, 32768, 32769, 1000003, 50 << 20};
	size_t most = (size_t)(argc > 2 ? atoi(argv[2]) : 4096) << 20, wrong = 0;
	struct digester d;
	unsigned char *bytes;
	CUdeviceptr block;
	CUdevice device;
	CUcontext context;
	CUmodule module;
	double ms, best = 1e30;

	if (argc < 2)
		return 2;
	probe_begin(&device, &context);
	DO(cuModuleLoadData, &module, probe_file(argv[1], NULL));
	DO(cuModuleGetFunction, &d.kernel, module, TPCK_DIGEST_KERNEL);
	DO(cuMemAlloc, &block, most);
	DO(cuMemAlloc, &d.units, (most / TPCK_DIGEST_UNIT_BYTES + 1) * sizeof(struct tpck_digest_unit));
	DO(cuMemAlloc, &d.result, sizeof(uint64_t));
	bytes = malloc(50 << 20);
	if (!bytes)
		probe_refused("malloc", "no memory");
	for (size_t i = 0; i < (size_t)50 << 20; i++)
		bytes[i] = (unsigned char)(i * 2654435761u >> 13);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		if (sizes[i] > most)
			continue;
		DO(cuMemcpyHtoD, block, bytes, sizes[i]);
		wrong += digest(&d, block, sizes[i], &ms) != tpck_block_digest(bytes, sizes[i]);
	}
	for (int i = 0; i < 3; i++) {
		digest(&d, block, most, &ms);
		best = ms < best ? ms : best;
	}
	probe_say("{\"result\": \"%s\", \"wrong\": %zu, \"MiB\": %zu, \"ms\": %.2f, \"GB_per_s\": %.1f}", wrong ? "failed" : "passed", wrong, most >> 20,
		  best, (double)most / best / 1e6);
	return 0;
}
