/* SPDX-License-Identifier: Apache-2.0 */
/* The device interface of the runtime over the real driver. Every call is made inside the relaxed
 * capture mode, so that it neither fails nor invalidates a capture of the application's. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hooks/cuda_driver.h"
#include "runtime/base/block_digest.h"
#include "runtime/base/log.h"
#include "runtime/base/whole_file.h"

struct relaxed {
	CUstreamCaptureMode mode;
};

static struct relaxed relax(void)
{
	struct relaxed before = {CU_STREAM_CAPTURE_MODE_RELAXED};

	tpck_cuda.cuThreadExchangeStreamCaptureMode(&before.mode);
	return before;
}

static int settle(struct relaxed before, CUresult result)
{
	tpck_cuda.cuThreadExchangeStreamCaptureMode(&before.mode);
	switch (result) {
	case CUDA_SUCCESS:
		return 0;
	case CUDA_ERROR_OUT_OF_MEMORY:
		return -ENOMEM;
	case CUDA_ERROR_NOT_SUPPORTED:
		return -ENOTSUP;
	case CUDA_ERROR_INVALID_VALUE:
		return -EINVAL;
	default:
		return -EIO;
	}
}

static int reserve(int device, uint64_t hint, uint64_t bytes)
{
	struct relaxed before = relax();
	CUdeviceptr got = 0;
	CUresult result = tpck_cuda.cuMemAddressReserve(&got, bytes, 0, hint, 0);

	(void)device;
	if (result == CUDA_SUCCESS && got != hint) {
		tpck_cuda.cuMemAddressFree(got, bytes);
		settle(before, CUDA_SUCCESS);
		return -EADDRINUSE;
	}
	return settle(before, result);
}

static bool has(int device, CUdevice_attribute what)
{
	int there = 0;

	return tpck_cuda.cuDeviceGetAttribute && tpck_cuda.cuDeviceGetAttribute(&there, what, device) == CUDA_SUCCESS && there;
}

/* Memory that has to become a descriptor when the program shares it with other processes (hooks/cuda_ipc.c) must be
 * made so. */
static CUmemAllocationHandleType handle_type(int device)
{
	return has(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
											    : CU_MEM_HANDLE_TYPE_NONE;
}

static CUmemAllocationProp properties(int device)
{
	return (CUmemAllocationProp){
		.requestedHandleTypes = handle_type(device),
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
		/* What cuMemAlloc makes can be registered with a network's adapter; of mapped memory that has to be asked for. */
		.allocFlags.gpuDirectRDMACapable = has(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED),
	};
}

static int back(int device, uint64_t address, uint64_t bytes)
{
	struct relaxed before = relax();
	CUmemAllocationProp prop = properties(device);
	CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUresult result = tpck_cuda.cuMemCreate(&handle, bytes, &prop, 0);

	/* What a device says that it has may be refused all the same, as in containers. */
	if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY && prop.allocFlags.gpuDirectRDMACapable) {
		prop.allocFlags.gpuDirectRDMACapable = 0;
		result = tpck_cuda.cuMemCreate(&handle, bytes, &prop, 0);
	}
	if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY && prop.requestedHandleTypes) {
		prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
		result = tpck_cuda.cuMemCreate(&handle, bytes, &prop, 0);
	}
	if (result != CUDA_SUCCESS)
		return settle(before, result);
	result = tpck_cuda.cuMemMap(address, bytes, 0, handle, 0);
	tpck_cuda.cuMemRelease(handle); /* the mapping keeps it */
	if (result == CUDA_SUCCESS) {
		result = tpck_cuda.cuMemSetAccess(address, bytes, &access, 1);
		if (result != CUDA_SUCCESS)
			tpck_cuda.cuMemUnmap(address, bytes);
	}
	return settle(before, result);
}

static int unback(int device, uint64_t address, uint64_t bytes)
{
	struct relaxed before = relax();

	(void)device;
	return settle(before, tpck_cuda.cuMemUnmap(address, bytes));
}

static int share(int with, uint64_t address, uint64_t bytes)
{
	CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = with}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	struct relaxed before = relax();

	return settle(before, tpck_cuda.cuMemSetAccess(address, bytes, &access, 1));
}

static int current(void)
{
	CUdevice device;

	return tpck_cuda.cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : -ENODEV;
}

static int describe(int device, struct tpck_device_traits *traits)
{
	int count = 0, major = 0, minor = 0, multiprocessors = 0;
	size_t memory = 0;

	if (!tpck_cuda.cuDeviceGetCount || !tpck_cuda.cuDeviceGetAttribute || !tpck_cuda.cuDeviceTotalMem_v2 ||
	    tpck_cuda.cuDeviceGetCount(&count) || tpck_cuda.cuDeviceTotalMem_v2(&memory, device) ||
	    tpck_cuda.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) ||
	    tpck_cuda.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device) ||
	    tpck_cuda.cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device))
		return -EIO;
	*traits = (struct tpck_device_traits){
		.count = (uint32_t)count, .capability = (uint32_t)(10 * major + minor), .multiprocessors = (uint32_t)multiprocessors,
		.memory = memory,
	};
	return 0;
}

static void driver(char *path, size_t size, uint32_t *version)
{
	int now = 0;

	snprintf(path, size, "%s", tpck_driver_path());
	if (!tpck_cuda.cuDriverGetVersion || tpck_cuda.cuDriverGetVersion(&now) != CUDA_SUCCESS)
		now = 0;
	*version = (uint32_t)now;
}

static int context_save(void **context)
{
	CUcontext current = NULL;

	if (tpck_cuda.cuCtxGetCurrent(&current) != CUDA_SUCCESS || !current)
		return -ENODEV;
	*context = current;
	return 0;
}

static int context_use(void *context)
{
	return tpck_cuda.cuCtxSetCurrent(context) == CUDA_SUCCESS ? 0 : -EIO;
}

static int synchronize(void)
{
	struct relaxed before = relax();

	return settle(before, tpck_cuda.cuCtxSynchronize());
}

/* By an event: cuStreamSynchronize() spins, unless the program's context says otherwise. */
static int stream_synchronize(tpck_stream_handle stream)
{
	struct relaxed before = relax();
	CUevent event = NULL;
	CUresult result = tpck_cuda.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);

	if (result == CUDA_SUCCESS) {
		result = tpck_cuda.cuEventRecord(event, stream);
		if (result == CUDA_SUCCESS)
			result = tpck_cuda.cuEventSynchronize(event);
		(void)tpck_cuda.cuEventDestroy_v2(event);
	} else {
		result = tpck_cuda.cuStreamSynchronize(stream);
	}
	return settle(before, result);
}

static int stream_create(tpck_stream_handle *stream)
{
	struct relaxed before = relax();

	return settle(before, tpck_cuda.cuStreamCreate((CUstream *)stream, CU_STREAM_NON_BLOCKING));
}

static int event_create(tpck_event_handle *event, bool timed)
{
	struct relaxed before = relax();

	return settle(before, tpck_cuda.cuEventCreate((CUevent *)event, (timed ? 0 : CU_EVENT_DISABLE_TIMING) | CU_EVENT_BLOCKING_SYNC));
}

static int event_record(tpck_event_handle event, tpck_stream_handle stream)
{
	struct relaxed before = relax();

	return settle(before, tpck_cuda.cuEventRecord(event, stream));
}

static int event_synchronize(tpck_event_handle event)
{
	struct relaxed before = relax();

	return settle(before, tpck_cuda.cuEventSynchronize(event));
}

static bool event_passed(tpck_event_handle event)
{
	struct relaxed before = relax();

	return settle(before, tpck_cuda.cuEventQuery(event)) == 0;
}

static int event_destroy(tpck_event_handle event)
{
	struct relaxed before = relax();

	return settle(before, tpck_cuda.cuEventDestroy_v2(event));
}

static int stream_wait_event(tpck_stream_handle stream, tpck_event_handle event)
{
	struct relaxed before = relax();

	return settle(before, tpck_cuda.cuStreamWaitEvent(stream, event, 0));
}

static uint64_t event_elapsed(tpck_event_handle from, tpck_event_handle to)
{
	struct relaxed before = relax();
	float ms = 0;
	CUresult result = tpck_cuda.cuEventElapsedTime ? tpck_cuda.cuEventElapsedTime(&ms, from, to) : CUDA_ERROR_NOT_SUPPORTED;

	return settle(before, result) == 0 && ms > 0 ? (uint64_t)((double)ms * 1e6) : 0;
}

static int host_alloc(void **host, uint64_t *device_address, size_t bytes)
{
	struct relaxed before = relax();
	CUdeviceptr address = 0;
	CUresult result = tpck_cuda.cuMemHostAlloc(host, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);

	if (result == CUDA_SUCCESS)
		result = tpck_cuda.cuMemHostGetDevicePointer_v2(&address, *host, 0);
	*device_address = address;
	return settle(before, result);
}

static int host_free(void *host)
{
	struct relaxed before = relax();

	return settle(before, tpck_cuda.cuMemFreeHost(host));
}

static int host_register(void *host, size_t bytes)
{
	struct relaxed before = relax();

	return settle(before, tpck_cuda.cuMemHostRegister_v2(host, bytes, CU_MEMHOSTREGISTER_PORTABLE));
}

static int host_unregister(void *host)
{
	struct relaxed before = relax();

	return settle(before, tpck_cuda.cuMemHostUnregister(host));
}

static int copy_from_device(void *host, uint64_t address, size_t bytes, tpck_stream_handle stream)
{
	struct relaxed before = relax();

	return settle(before, tpck_cuda.cuMemcpyDtoHAsync_v2(host, address, bytes, stream));
}

static int copy_to_device(uint64_t address, const void *host, size_t bytes)
{
	struct relaxed before = relax();

	return settle(before, tpck_cuda.cuMemcpyHtoD_v2(address, host, bytes));
}

static bool is_capturing(tpck_stream_handle stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	/* The legacy stream never captures, and asking it while another one does is an error of that one. */
	if (!stream || stream == TPCK_STREAM_LEGACY)
		return false;
	return tpck_cuda.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static bool variables(bool all)
{
	struct relaxed before = relax();
	bool every = tpck_cuda_variables(all);

	settle(before, CUDA_SUCCESS);
	return every;
}

static bool variables_ahead(void)
{
	struct relaxed before = relax();
	bool more = tpck_cuda_variables_ahead();

	settle(before, CUDA_SUCCESS);
	return more;
}

static int device_alloc(uint64_t *address, size_t bytes)
{
	struct relaxed before = relax();
	CUdeviceptr got = 0;
	CUresult result = tpck_cuda.cuMemAlloc_v2(&got, bytes);

	*address = got;
	return settle(before, result);
}

static int device_free(uint64_t address)
{
	struct relaxed before = relax();

	return settle(before, tpck_cuda.cuMemFree_v2(address));
}

static CUfunction digest_function;

static int digest_load(const char *path)
{
	void *code = tpck_whole_file(path);
	struct relaxed before = relax();
	CUmodule module;
	CUresult result;

	if (!code)
		return settle(before, CUDA_ERROR_NOT_SUPPORTED);
	result = tpck_cuda.cuModuleLoadData(&module, code);
	if (result == CUDA_SUCCESS)
		result = tpck_cuda.cuModuleGetFunction(&digest_function, module, TPCK_DIGEST_KERNEL);
	free(code);
	return settle(before, result);
}

/* The setting, or the file beside the library that this device takes. */
static int digest_open(const char *library, const char *setting)
{
	static const char *const names[] = {"digest.fatbin", "digest.simgpu"};
	const char *slash = strrchr(library, '/');
	char path[1200];

	if (setting[0])
		return digest_load(setting);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		snprintf(path, sizeof path, "%.*s/transpckpt/%s", slash ? (int)(slash - library) : 1,
			 slash ? library : ".", names[i]);
		if (!digest_load(path))
			return 0;
	}
	return -ENOTSUP;
}

static int digest(uint64_t units, uint32_t count, uint64_t results, uint32_t result_count, tpck_stream_handle stream)
{
	struct relaxed before = relax();
	void *parameters[] = {&units, &results};
	CUresult result;

	if (!digest_function)
		return settle(before, CUDA_ERROR_NOT_SUPPORTED);
	result = tpck_cuda.cuMemsetD8Async(results, 0, result_count * sizeof(uint64_t), stream);
	if (result == CUDA_SUCCESS && count)
		result = tpck_cuda.cuLaunchKernel(digest_function, count, 1, 1, TPCK_DIGEST_THREADS, 1, 1, 0, stream,
						  parameters, NULL);
	return settle(before, result);
}

static struct tpck_device device = {
	.reserve = reserve, .back = back, .unback = unback, .share = share, .granule = 2 << 20,
	.current = current, .describe = describe, .driver = driver, .context_save = context_save, .context_use = context_use, .synchronize = synchronize,
	.stream_synchronize = stream_synchronize, .stream_create = stream_create,
	.event_create = event_create, .event_record = event_record, .event_synchronize = event_synchronize,
	.event_passed = event_passed, .event_destroy = event_destroy, .stream_wait_event = stream_wait_event,
	.event_elapsed = event_elapsed,
	.host_alloc = host_alloc, .host_free = host_free, .host_register = host_register,
	.host_unregister = host_unregister, .copy_from_device = copy_from_device, .copy_to_device = copy_to_device,
	.is_capturing = is_capturing, .variables = variables, .variables_ahead = variables_ahead,
	.device_alloc = device_alloc, .device_free = device_free, .digest_open = digest_open, .digest = digest,
};

const struct tpck_device *tpck_cuda_device(void)
{
	return &device;
}

_Atomic bool tpck_cuda_seen;

void tpck_cuda_context_look(void)
{
	CUmemAllocationProp prop = properties(0);
	CUcontext current = NULL;
	CUdevice ordinal = 0;
	size_t granule = 0;

	if (tpck_cuda_bind())
		return;
	if (tpck_cuda.cuCtxGetCurrent(&current) != CUDA_SUCCESS || !current)
		return;
	if (!tpck_cuda_seen && tpck_cuda.cuMemGetAllocationGranularity &&
	    tpck_cuda.cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS &&
	    granule > device.granule)
		device.granule = granule;
	if (!tpck_cuda_seen && tpck_cuda.cuCtxGetDevice && tpck_cuda.cuCtxGetDevice(&ordinal) == CUDA_SUCCESS &&
	    has(ordinal, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS))
		tpck_log_info("kernels on this device can write ordinary memory of the program; what they write there is in no snapshot");
	tpck_engine_device(&device);
	tpck_cuda_seen = true;
}
