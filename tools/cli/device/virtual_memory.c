/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of the arena: its range of addresses, memory that is mapped there, and what programs do with such memory. */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "runtime/base/asks.h"
#include "runtime/base/clock.h"
#include "tools/cli/device/libcuda.h"
#include "tools/cli/device/probe.h"
#include "tools/cli/device/probes.h"

/* ---- the range --------------------------------------------------------------------------------------- */

static const char *limited(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < TPCK_ARENA_BYTES * 2)
		return ". The limit of address space stands in the way: ulimit -v unlimited";
	return "";
}

void probe_address_run(void)
{
	CUdeviceptr got = 0;
	CUresult result;

	if (!probe_device_open("address range"))
		return;
	result = CALL(cuMemAddressReserve, &got, TPCK_ARENA_BYTES, 0, TPCK_ARENA_BASE, 0);
	if (result != CUDA_SUCCESS)
		probe_find(BAD, "address range", "the driver refuses %s at %#llx (%s): a program that was killed cannot go on from its snapshots%s",
			   cli_bytes(TPCK_ARENA_BYTES), TPCK_ARENA_BASE, probe_error(result), limited());
	else if (got != TPCK_ARENA_BASE)
		probe_find(BAD, "address range", "asked for %s at %#llx the driver gives %#llx: a program that was killed cannot go on from its "
			   "snapshots%s", cli_bytes(TPCK_ARENA_BYTES), TPCK_ARENA_BASE, (unsigned long long)got, limited());
	else
		probe_find(GOOD, "address range", "%s at %#llx", cli_bytes(TPCK_ARENA_BYTES), TPCK_ARENA_BASE);
}

/* ---- mapping ------------------------------------------------------------------------------------------ */

static bool device_has(CUdevice_attribute what)
{
	int there = 0;

	return cuda.cuDeviceGetAttribute(&there, what, probe_device) == CUDA_SUCCESS && there;
}

CUmemAllocationProp probe_properties(void)
{
	return (CUmemAllocationProp){
		.requestedHandleTypes = device_has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)
						? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE,
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = probe_device},
		.allocFlags.gpuDirectRDMACapable = device_has(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED),
	};
}

static size_t granule(void)
{
	CUmemAllocationProp prop = probe_properties();
	size_t bytes = 2 << 20, asked = 0;

	if (cuda.cuMemGetAllocationGranularity &&
	    CALL(cuMemGetAllocationGranularity, &asked, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS && asked > bytes)
		bytes = asked;
	return bytes;
}

/* Memory that has been asked for as `prop` says. */
static CUresult map_at(CUdeviceptr at, size_t bytes, const CUmemAllocationProp *prop)
{
	CUmemAccessDesc access = {.location = prop->location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUresult result = CALL(cuMemCreate, &handle, bytes, prop, 0);

	if (result != CUDA_SUCCESS)
		return result;
	result = CALL(cuMemMap, at, bytes, 0, handle, 0);
	(void)CALL(cuMemRelease, handle);
	if (result == CUDA_SUCCESS) {
		result = CALL(cuMemSetAccess, at, bytes, &access, 1);
		if (result != CUDA_SUCCESS)
			(void)CALL(cuMemUnmap, at, bytes);
	}
	return result;
}

CUresult probe_map(size_t bytes, CUdeviceptr *at)
{
	CUmemAllocationProp prop = probe_properties();
	size_t unit = granule();
	CUdeviceptr got = 0;
	CUresult result;

	bytes = (bytes + unit - 1) / unit * unit;
	/* The range as the library has it: a small one lies where the driver wants. Where it is refused, what is tried here is tried elsewhere. */
	result = CALL(cuMemAddressReserve, &got, TPCK_ARENA_BYTES, 0, TPCK_ARENA_BASE, 0);
	if (result != CUDA_SUCCESS)
		result = CALL(cuMemAddressReserve, &got, bytes, 0, 0, 0);
	if (result == CUDA_SUCCESS)
		result = map_at(got, bytes, &prop);
	if (result != CUDA_SUCCESS) {
		prop.allocFlags.gpuDirectRDMACapable = 0;
		prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
		result = got ? map_at(got, bytes, &prop) : result;
	}
	if (result == CUDA_SUCCESS)
		*at = got;
	return result;
}

static void examine_flags(CUdeviceptr at, size_t bytes)
{
	CUmemAllocationProp whole = probe_properties(), prop = whole;
	CUresult result;

	if (!whole.allocFlags.gpuDirectRDMACapable) {
		probe_find(GOOD, "network's adapter", "the device does not offer mapped memory to a network's adapter (GPUDirect RDMA)");
	} else {
		prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
		result = map_at(at, bytes, &prop);
		if (result == CUDA_SUCCESS)
			(void)CALL(cuMemUnmap, at, bytes);
		probe_find(result == CUDA_SUCCESS ? GOOD : NOTE, "network's adapter", result == CUDA_SUCCESS
			   ? "memory can be mapped for one (GPUDirect RDMA)%s"
			   : "memory for one (GPUDirect RDMA) is refused, though the device offers it (%s): mapped without; NCCL may be slower between nodes",
			   result == CUDA_SUCCESS ? "" : probe_error(result));
	}
	prop = whole;
	prop.allocFlags.gpuDirectRDMACapable = 0;
	result = prop.requestedHandleTypes ? map_at(at, bytes, &prop) : CUDA_ERROR_NOT_SUPPORTED;
	if (result == CUDA_SUCCESS)
		(void)CALL(cuMemUnmap, at, bytes);
	else
		probe_find(NOTE, "sharing", "mapped memory cannot be given to other processes (%s): those that share device memory by CUDA's IPC fail",
			   probe_error(result));
}

static void add(char *list, size_t size, int number)
{
	size_t length = strlen(list);

	snprintf(list + length, size - length, "%s%d", length ? ", " : "", number);
}

/* Other devices use the arena, too: of those that reach this one's memory, which are given what is mapped. */
static void examine_peers(CUdeviceptr at, size_t bytes)
{
	char given[200] = "", refused[200] = "", apart[200] = "", text[700];
	int count = 1, length = 0;
	CUresult result = CUDA_SUCCESS;

	(void)CALL(cuDeviceGetCount, &count);
	for (int i = 0; i < count; i++) {
		CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = i}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
		CUresult now;
		int can = 0;

		if (i == probe_device)
			continue;
		if (CALL(cuDeviceCanAccessPeer, &can, i, probe_device) != CUDA_SUCCESS || !can) {
			add(apart, sizeof apart, i);
			continue;
		}
		now = CALL(cuMemSetAccess, at, bytes, &access, 1);
		if (now == CUDA_SUCCESS) {
			add(given, sizeof given, i);
		} else {
			add(refused, sizeof refused, i);
			result = now;
		}
	}
	if (count < 2)
		return;
	if (given[0])
		length += snprintf(text + length, sizeof text - (size_t)length, "; can be given to device %s", given);
	if (apart[0])
		length += snprintf(text + length, sizeof text - (size_t)length, "; not reached by device %s with or without the library", apart);
	if (refused[0])
		(void)snprintf(text + length, sizeof text - (size_t)length, "; refused to device %s, which reaches it otherwise (%s): programs that use several "
			       "devices in a process, and NCCL between them, may fail", refused, probe_error(result));
	probe_find(refused[0] ? NOTE : GOOD, "other devices", "mapped memory of this one: %s", text + 2);
}

enum { COST_TIMES = 16 };

/* Mean nanoseconds of mapping and unmapping, and of cuMemAlloc and cuMemFree. */
static bool cost(CUdeviceptr at, size_t bytes, uint64_t *mapping, uint64_t *allocating)
{
	CUmemAllocationProp prop = probe_properties();
	CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	uint64_t begun = tpck_clock_monotonic_ns();
	CUmemGenericAllocationHandle handle;
	CUdeviceptr got;

	probe_at("mapping memory over and over again");
	for (int i = 0; i < COST_TIMES; i++) {
		if (cuda.cuMemCreate(&handle, bytes, &prop, 0) != CUDA_SUCCESS)
			return false;
		if (cuda.cuMemMap(at, bytes, 0, handle, 0) != CUDA_SUCCESS || cuda.cuMemRelease(handle) != CUDA_SUCCESS ||
		    cuda.cuMemSetAccess(at, bytes, &access, 1) != CUDA_SUCCESS || cuda.cuMemUnmap(at, bytes) != CUDA_SUCCESS)
			return false;
	}
	*mapping = (tpck_clock_monotonic_ns() - begun) / COST_TIMES;
	begun = tpck_clock_monotonic_ns();
	for (int i = 0; i < COST_TIMES; i++)
		if (cuda.cuMemAlloc_v2(&got, bytes) != CUDA_SUCCESS || cuda.cuMemFree_v2(got) != CUDA_SUCCESS)
			return false;
	*allocating = (tpck_clock_monotonic_ns() - begun) / COST_TIMES;
	return *allocating > 0;
}

/* Whether bytes that the device sets come back. */
static CUresult use(CUdeviceptr at, size_t bytes)
{
	unsigned char *copy = malloc(bytes);
	CUresult result = CALL(cuMemsetD8_v2, at, 0x5a, bytes);

	if (copy && result == CUDA_SUCCESS)
		result = CALL(cuMemcpyDtoH_v2, copy, at, bytes);
	for (size_t i = 0; copy && i < bytes && result == CUDA_SUCCESS; i++)
		if (copy[i] != 0x5a)
			result = CUDA_ERROR_UNKNOWN;
	free(copy);
	return result;
}

void probe_mapped_run(void)
{
	uint64_t mapping = 0, allocating = 0;
	CUmemAllocationProp prop;
	CUdeviceptr at;
	CUresult result;
	size_t unit;
	char text[200] = "";

	if (!probe_device_open("mapped memory"))
		return;
	unit = granule();
	result = probe_map(unit, &at);
	if (result == CUDA_SUCCESS)
		result = use(at, unit);
	if (result == CUDA_ERROR_OUT_OF_MEMORY) {
		probe_find(NOTE, "mapped memory", "not tried: the device's memory is full. Try again while nothing else uses it");
		return;
	}
	if (result != CUDA_SUCCESS) {
		probe_find(BAD, "mapped memory", "cannot be had or used (%s): there is none for the program, whose allocations fail with the library",
			   probe_error(result));
		return;
	}
	examine_peers(at, unit);
	(void)CALL(cuMemUnmap, at, unit);
	examine_flags(at, unit);
	prop = probe_properties();
	if (map_at(at, unit, &prop) == CUDA_SUCCESS) {
		(void)CALL(cuMemUnmap, at, unit);
		if (cost(at, unit, &mapping, &allocating))
			snprintf(text, sizeof text, "; to map and unmap that takes %.0f us, %.1f times what cuMemAlloc and cuMemFree take",
				 (double)mapping / 1e3, (double)mapping / (double)allocating);
	}
	probe_find(GOOD, "mapped memory", "can be mapped in pieces of %s, and is used as any other%s", cli_bytes(unit), text);
}

/* ---- streams that wait for a value in memory ----------------------------------------------------------- */

enum waited { PASSES, REFUSED, DEAD };

static enum waited wait_on(CUdeviceptr at, CUstream waits, CUstream writes, CUresult *result)
{
	const struct timespec pause = {0, 1000000};
	uint64_t begun;

	*result = CALL(cuMemsetD32_v2, at, 0, 1);
	/* The call returns before the device has done it. */
	if (*result == CUDA_SUCCESS)
		*result = CALL(cuCtxSynchronize);
	if (*result == CUDA_SUCCESS)
		*result = CALL(cuStreamWaitValue32_v2, waits, at, 1, CU_STREAM_WAIT_VALUE_GEQ);
	if (*result == CUDA_SUCCESS)
		*result = CALL(cuStreamWriteValue32_v2, writes, at, 1, CU_STREAM_WRITE_VALUE_DEFAULT);
	if (*result != CUDA_SUCCESS)
		return REFUSED;
	begun = tpck_clock_monotonic_ns();
	probe_at("cuStreamQuery, of a stream that waits for a value");
	while ((*result = cuda.cuStreamQuery(waits)) == CUDA_ERROR_NOT_READY && tpck_clock_monotonic_ns() - begun < 1000000000)
		nanosleep(&pause, NULL);
	return *result == CUDA_SUCCESS ? PASSES : *result == CUDA_ERROR_NOT_READY ? DEAD : REFUSED;
}

void probe_waits_on_memory_run(void)
{
	CUdeviceptr plain = 0, mapped = 0;
	CUstream waits, writes, others[2];
	CUresult result, of_mapped;
	enum waited plainly, there;

	if (!probe_device_open("waits on memory"))
		return;
	result = CALL(cuMemAlloc_v2, &plain, 4096);
	for (int i = 0; i < 2 && result == CUDA_SUCCESS; i++)
		result = CALL(cuStreamCreate, &others[i], CU_STREAM_NON_BLOCKING);
	if (result == CUDA_SUCCESS)
		result = CALL(cuStreamCreate, &waits, CU_STREAM_NON_BLOCKING);
	if (result == CUDA_SUCCESS)
		result = CALL(cuStreamCreate, &writes, CU_STREAM_NON_BLOCKING);
	if (result == CUDA_SUCCESS)
		result = probe_map(4096, &mapped);
	if (result != CUDA_SUCCESS) {
		probe_find(NOTE, "waits on memory", "not tried: %s", probe_error(result));
		return;
	}
	plainly = wait_on(plain, waits, writes, &result);
	there = plainly == PASSES ? wait_on(mapped, others[0], others[1], &of_mapped) : plainly;
	if (plainly != PASSES)
		probe_find(GOOD, "waits on memory", "streams cannot wait for values in device memory with this driver (%s); the library does not need it",
			   plainly == DEAD ? "they wait for ever" : probe_error(result));
	else if (there != PASSES)
		probe_find(NOTE, "waits on memory", "streams wait for values in cuMemAlloc's memory, but not in mapped memory (%s), which the library gives "
						    "programs: those that call cuStreamWaitValue32 themselves are refused it, and should set TRANSPCKPT_DISABLE=1",
			   there == DEAD ? "they wait for ever" : probe_error(of_mapped));
	else
		probe_find(GOOD, "waits on memory", "streams wait for values in mapped memory as in cuMemAlloc's; the library itself does not need it");
}
