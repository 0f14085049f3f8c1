/* SPDX-License-Identifier: Apache-2.0 */
/* What memory that is mapped by hand costs beside cuMemAlloc, what a driver says of it, and whether a stream can wait on a word in it:
 * vmm [MIB-AT-MOST]. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/gpu/probes/probe.h"

static CUdevice device;

static CUmemAllocationProp properties(bool rdma)
{
	CUmemAllocationProp made = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};

	made.allocFlags.gpuDirectRDMACapable = rdma;
	return made;
}

static void map(CUdeviceptr at, size_t bytes, bool rdma, double ms[3])
{
	CUmemAllocationProp made = properties(rdma);
	CUmemAccessDesc access = {.location = made.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	double begun = probe_ms();

	DO(cuMemCreate, &handle, bytes, &made, 0);
	ms[0] = probe_ms() - begun;
	DO(cuMemMap, at, bytes, 0, handle, 0);
	ms[1] = probe_ms() - begun - ms[0];
	DO(cuMemSetAccess, at, bytes, &access, 1);
	ms[2] = probe_ms() - begun - ms[0] - ms[1];
	DO(cuMemRelease, handle);
}

static void costs(CUdeviceptr at, size_t bytes)
{
	double ms[3], begun = probe_ms(), taken, freed, unmapped;
	CUdeviceptr memory;

	DO(cuMemAlloc, &memory, bytes);
	taken = probe_ms() - begun;
	begun = probe_ms();
	DO(cuMemFree, memory);
	freed = probe_ms() - begun;
	map(at, bytes, true, ms);
	begun = probe_ms();
	DO(cuMemUnmap, at, bytes);
	unmapped = probe_ms() - begun;
	probe_say("{\"row\": {\"MiB\": %zu, \"cuMemAlloc\": %.3f, \"cuMemFree\": %.3f, \"cuMemCreate\": %.3f, \"cuMemMap\": %.3f, "
		  "\"cuMemSetAccess\": %.3f, \"cuMemUnmap\": %.3f}}",
		  bytes >> 20, taken, freed, ms[0], ms[1], ms[2], unmapped);
}

static void attributes(CUdeviceptr at)
{
	static const struct {
		const char *name;
		CUpointer_attribute attribute;
	} asked[] = {
		{"memory_type", CU_POINTER_ATTRIBUTE_MEMORY_TYPE},
		{"rdma_capable", CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE},
		{"legacy_ipc_capable", CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE},
		{"mapped", CU_POINTER_ATTRIBUTE_MAPPED},
		{"range_size", CU_POINTER_ATTRIBUTE_RANGE_SIZE},
	};

	for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
		unsigned long long value = 0;
		CUresult result = TRY(cuPointerGetAttribute, &value, asked[i].attribute, at);

		if (result)
			probe_say("{\"%s\": \"%s\"}", asked[i].name, probe_error(result));
		else
			probe_say("{\"%s\": %llu}", asked[i].name, value);
	}
}

static void *give_up(void *unused)
{
	(void)unused;
	probe_sleep_ms(3000);
	probe_say("{\"stream_waits_on_mapped_memory\": \"never ended\"}");
	_exit(0);
}

static void wait_on(CUdeviceptr at)
{
	CUstream one, other;
	pthread_t thread;
	CUresult result;

	DO(cuStreamCreate, &one, CU_STREAM_NON_BLOCKING);
	DO(cuStreamCreate, &other, CU_STREAM_NON_BLOCKING);
	DO(cuMemsetD32Async, at, 0, 16, one);
	DO(cuStreamSynchronize, one);
	result = TRY(cuStreamWaitValue32, one, at, 1, CU_STREAM_WAIT_VALUE_GEQ);
	if (result) {
		probe_say("{\"stream_waits_on_mapped_memory\": \"%s\"}", probe_error(result));
		return;
	}
	pthread_create(&thread, NULL, give_up, NULL);
	DO(cuStreamWriteValue32, other, at, 1, 0);
	DO(cuStreamSynchronize, one);
	probe_say("{\"stream_waits_on_mapped_memory\": \"works\"}");
}

int main(int argc, char **argv)
{
	size_t most = (size_t)(argc > 1 ? atoi(argv[1]) : 4096) << 20, granule = 0, bytes = (size_t)8 << 30;
	CUmemAllocationProp made;
	CUcontext context;
	CUdeviceptr at;
	double ms[3];

	probe_begin(&device, &context);
	made = properties(true);
	DO(cuMemGetAllocationGranularity, &granule, &made, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	probe_say("{\"granularity\": %zu}", granule);
	DO(cuMemAddressReserve, &at, bytes, 0, 0, 0);
	for (size_t size = (size_t)2 << 20; size <= most; size *= 2)
		costs(at, size);
	map(at, granule, true, ms);
	attributes(at);
	wait_on(at);
	probe_say("{\"result\": \"passed\"}");
	return 0;
}
