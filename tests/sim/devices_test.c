/* SPDX-License-Identifier: Apache-2.0 */
/* Several devices: contexts, memory, streams, pools and mappings of each, copies between them, and which of them a process sees. */
#include <sys/wait.h>

#include "check.h"
#include "standin/nccl.h"

static CUcontext context(int d)
{
	CUcontext c;

	OK(cuDevicePrimaryCtxRetain(&c, d));
	return c;
}

static int device_of(CUdeviceptr p)
{
	int d;

	OK(cuPointerGetAttribute(&d, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
	return d;
}

static void identity(void)
{
	CUuuid u[2];
	char id[2][32];
	int n, bus[2];
	CUdevice d;

	OK(cuDeviceGetCount(&n));
	CHECK(n == 2);
	for (int i = 0; i < 2; i++) {
		OK(cuDeviceGet(&d, i));
		CHECK(d == i);
		OK(cuDeviceGetUuid(&u[i], d));
		OK(cuDeviceGetPCIBusId(id[i], sizeof id[i], d));
		OK(cuDeviceGetAttribute(&bus[i], CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, d));
		OK(cuDeviceGetByPCIBusId(&d, id[i]));
		CHECK(d == i);
	}
	CHECK(memcmp(&u[0], &u[1], sizeof u[0]) && strcmp(id[0], id[1]) && bus[0] != bus[1]);
	EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&d, 2));
	EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetByPCIBusId(&d, "0000:09:00.0"));
	OK(cuDeviceCanAccessPeer(&n, 0, 1));
	CHECK(n == 1);
	OK(cuDeviceCanAccessPeer(&n, 1, 1));
	CHECK(n == 0);
	EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDeviceCanAccessPeer(&n, 0, 2));
}

static void contexts(CUcontext c[2])
{
	unsigned flags;
	int active;
	CUdevice d;

	OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
	CHECK(!active);
	c[0] = context(0);
	c[1] = context(1);
	CHECK(c[0] != c[1]);
	for (int i = 1; i >= 0; i--) {
		OK(cuCtxSetCurrent(c[i]));
		OK(cuCtxGetDevice(&d));
		CHECK(d == i);
	}
	OK(cuCtxEnablePeerAccess(c[1], 0));
	EXPECT(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(c[1], 0));
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxEnablePeerAccess(c[0], 0));
	OK(cuCtxDisablePeerAccess(c[1]));
	EXPECT(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(c[1]));
}

/* What one takes the other does not lack. */
static void memory(CUcontext c[2])
{
	size_t before[2], after[2], total;
	CUdeviceptr p[2], more, small[2];

	/* Small pieces share a page, but not one of the other device. */
	for (int i = 0; i < 2; i++) {
		OK(cuCtxSetCurrent(c[i]));
		OK(cuMemGetInfo(&before[i], &total));
		CHECK(total == 64u << 20);
		OK(cuMemAlloc(&small[i], 512));
		OK(cuMemGetInfo(&after[i], &total));
		CHECK(after[i] < before[i]);
		before[i] = after[i];
	}
	OK(cuCtxSetCurrent(c[1]));
	OK(cuMemAlloc(&p[1], 48u << 20));
	EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&more, 48u << 20));
	OK(cuMemGetInfo(&after[1], &total));
	CHECK(before[1] - after[1] == 48u << 20);
	OK(cuCtxSetCurrent(c[0]));
	OK(cuMemGetInfo(&after[0], &total));
	CHECK(after[0] == before[0]);
	OK(cuMemAlloc(&p[0], 48u << 20));
	for (int i = 0; i < 2; i++) {
		CHECK(device_of(p[i]) == i && device_of(small[i]) == i);
		OK(cuMemFree(p[i]));
		OK(cuMemFree(small[i]));
	}
	OK(cuCtxSetCurrent(c[1]));
	OK(cuMemGetInfo(&after[1], &total));
	CHECK(after[1] >= before[1]);
}

static void streams_and_copies(CUcontext c[2])
{
	CUdeviceptr p[2];
	CUstream s[2];
	CUevent e[2];
	CUfunction add;
	CUmodule m;
	CUdevice d;
	int n = 4096, host[4096];

	for (int i = 0; i < 2; i++) {
		OK(cuCtxSetCurrent(c[i]));
		OK(cuStreamCreate(&s[i], CU_STREAM_NON_BLOCKING));
		OK(cuEventCreate(&e[i], 0));
		OK(cuMemAlloc(&p[i], sizeof host));
		OK(cuStreamGetDevice(s[i], &d));
		CHECK(d == i);
	}
	/* From one to the next and back; each adds, and each waits for the other's event. */
	OK(cuMemsetD32Async(p[0], 7, (size_t)n, s[1]));
	OK(cuEventRecord(e[1], s[1]));
	OK(cuStreamWaitEvent(s[0], e[1], 0));
	for (int i = 0; i < 2; i++) {
		OK(cuCtxSetCurrent(c[i]));
		m = kernels_load();
		add = kernel(m, "add");
		OK(launch_add(add, s[i], p[i], n, i ? 100 : 10));
		EXPECT(CUDA_ERROR_INVALID_HANDLE, launch_add(add, s[1 - i], p[i], n, 1));
		OK(cuMemcpyPeerAsync(p[1 - i], c[1 - i], p[i], c[i], sizeof host, s[i]));
		OK(cuEventRecord(e[i], s[i]));
		EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(e[1 - i], s[i]));
		OK(cuStreamWaitEvent(s[1 - i], e[i], 0));
	}
	/* A module is of the context that it was loaded in. */
	OK(cuCtxSetCurrent(c[0]));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, launch_add(add, s[0], p[0], n, 1));
	OK(cuMemcpyDtoHAsync(host, p[0], sizeof host, s[0]));
	OK(cuStreamSynchronize(s[0]));
	for (int i = 0; i < n; i++)
		CHECK(host[i] == 117);
	for (int i = 0; i < 2; i++) {
		OK(cuEventDestroy(e[i]));
		OK(cuStreamDestroy(s[i]));
		OK(cuMemFree(p[i]));
	}
}

/* A device's wait is for its own streams: the other's may hang for now. */
static void waiting(CUcontext c[2])
{
	CUdeviceptr flag, other;
	CUstream s;

	OK(cuCtxSetCurrent(c[1]));
	OK(cuMemAlloc(&flag, 4));
	OK(cuMemsetD32(flag, 0, 1));
	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cuStreamWaitValue32(s, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuCtxSetCurrent(c[0]));
	OK(cuMemAlloc(&other, 4096));
	OK(cuMemsetD32(other, 0, 1024));
	OK(cuMemFree(other));
	OK(cuCtxSynchronize());
	OK(cuCtxSetCurrent(c[1]));
	EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
	OK(cuMemsetD32(flag, 1, 1));
	OK(cuStreamSynchronize(s));
	OK(cuStreamDestroy(s));
	OK(cuMemFree(flag));
}

static void pools_and_mappings(CUcontext c[2])
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1 } };
	CUmemAccessDesc mine = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 }, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemLocation where[2] = { { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 }, { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1 } };
	CUmemGenericAllocationHandle h;
	CUmemoryPool pool[2];
	unsigned long long access;
	size_t before, after, total;
	CUdeviceptr p, va;

	for (int i = 0; i < 2; i++)
		OK(cuDeviceGetDefaultMemPool(&pool[i], i));
	CHECK(pool[0] != pool[1]);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuDeviceSetMemPool(0, pool[1]));
	OK(cuCtxSetCurrent(c[1]));
	OK(cuMemAllocAsync(&p, 4096, NULL));
	CHECK(device_of(p) == 1);
	OK(cuMemFreeAsync(p, NULL));
	OK(cuCtxSynchronize());

	OK(cuMemGetInfo(&before, &total));
	OK(cuCtxSetCurrent(c[0]));
	OK(cuMemAddressReserve(&va, 4u << 20, 0, 0, 0));
	OK(cuMemCreate(&h, 4u << 20, &prop, 0));
	OK(cuMemMap(va, 4u << 20, 0, h, 0));
	OK(cuMemSetAccess(va, 4u << 20, &mine, 1));
	OK(cuMemGetAccess(&access, &where[0], va));
	CHECK(access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	OK(cuMemGetAccess(&access, &where[1], va));
	CHECK(access == CU_MEM_ACCESS_FLAGS_PROT_NONE);
	mine.location.id = 1;
	OK(cuMemSetAccess(va, 4u << 20, &mine, 1));
	OK(cuMemGetAccess(&access, &where[0], va));
	CHECK(access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE && device_of(va) == 1);
	OK(cuMemsetD8(va, 1, 4u << 20));
	OK(cuCtxSetCurrent(c[1]));
	OK(cuMemGetInfo(&after, &total));
	CHECK(before - after == 4u << 20);
	OK(cuMemUnmap(va, 4u << 20));
	OK(cuMemRelease(h));
	OK(cuMemAddressFree(va, 4u << 20));
	prop.location.id = 2;
	EXPECT(CUDA_ERROR_INVALID_DEVICE, cuMemCreate(&h, 4u << 20, &prop, 0));
}

/* A rank a device, in one thread. */
static void ranks(CUcontext c[2])
{
	ncclComm_t comm[2];
	CUdeviceptr p[2];
	CUstream s[2];
	float one = 1, sum;
	int d;

	ncclResult_t r = ncclCommInitAll(comm, 2, NULL);
	if (r != ncclSuccess)
		fprintf(stderr, "%s: %s\n", ncclGetErrorString(r), ncclGetLastError(NULL));
	CHECK(r == ncclSuccess);
	CHECK(ncclGroupStart() == ncclSuccess);
	for (int i = 0; i < 2; i++) {
		CHECK(ncclCommCuDevice(comm[i], &d) == ncclSuccess && d == i);
		OK(cuCtxSetCurrent(c[i]));
		OK(cuStreamCreate(&s[i], CU_STREAM_NON_BLOCKING));
		OK(cuMemAlloc(&p[i], 4));
		OK(cuMemcpyHtoD(p[i], &one, 4));
		CHECK(ncclAllReduce((void *)(uintptr_t)p[i], (void *)(uintptr_t)p[i], 1, ncclFloat32, ncclSum, comm[i], s[i]) == ncclSuccess);
	}
	CHECK(ncclGroupEnd() == ncclSuccess);
	for (int i = 0; i < 2; i++) {
		OK(cuCtxSetCurrent(c[i]));
		OK(cuStreamSynchronize(s[i]));
		OK(cuMemcpyDtoH(&sum, p[i], 4));
		CHECK(sum == 2);
		CHECK(ncclCommDestroy(comm[i]) == ncclSuccess);
	}
}

/* In a process of its own: how many it sees, and which the first one is. */
static void visible(const char *list, int count, const char *first)
{
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid) {
		char id[32];
		int n;

		setenv("CUDA_VISIBLE_DEVICES", list, 1);
		setenv("SIMGPU_DEVICES", "3", 1);
		if (!count) {
			EXPECT(CUDA_ERROR_NO_DEVICE, cuInit(0));
			exit(0);
		}
		OK(cuInit(0));
		OK(cuDeviceGetCount(&n));
		OK(cuDeviceGetPCIBusId(id, sizeof id, 0));
		if (n != count || strcmp(id, first))
			fprintf(stderr, "'%s' shows %d, first %s\n", list, n, id);
		exit(n != count || strcmp(id, first));
	}
	CHECK(waitpid(pid, &status, 0) == pid && !status);
}

int main(void)
{
	CUcontext c[2];

	alarm(120);
	visible("0,1,2", 3, "0000:01:00.0");
	visible("2", 1, "0000:03:00.0");
	visible("1,0", 2, "0000:02:00.0");
	visible("1,7,0", 1, "0000:02:00.0");
	visible("1,1", 0, "");
	visible("", 0, "");
	visible("-1", 0, "");
	setenv("SIMGPU_DEVICES", "2", 1);
	setenv("SIMGPU_MEMORY", "64M", 1);
	unsetenv("CUDA_VISIBLE_DEVICES");
	OK(cuInit(0));
	identity();
	contexts(c);
	memory(c);
	streams_and_copies(c);
	waiting(c);
	pools_and_mappings(c);
	ranks(c);
	return 0;
}
