/* SPDX-License-Identifier: Apache-2.0 */
/* Memory: out of the host's reach, pools that follow the device's progress, virtual memory management, pointer queries. */
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static CUfunction add;
static sigjmp_buf back;

static void on_segv(int sig)
{
	(void)sig;
	siglongjmp(back, 1);
}

static bool host_faults(CUdeviceptr p)
{
	struct sigaction act = { .sa_handler = on_segv }, old;
	bool fault = true;

	sigaction(SIGSEGV, &act, &old);
	if (sigsetjmp(back, 1) == 0) {
		(void)*(volatile char *)(uintptr_t)p;
		fault = false;
	}
	sigaction(SIGSEGV, &old, NULL);
	return fault;
}

static void reach(void)
{
	CUdeviceptr p, small;
	size_t before, after, total, bytes;
	void *h;

	OK(cuMemGetInfo(&before, &total));
	CHECK(total == 64 << 20);
	OK(cuMemAlloc(&p, 5 << 20));
	OK(cuMemAlloc(&small, 100));
	CHECK(host_faults(p) && host_faults(p + (5 << 20) - 1) && host_faults(small));
	OK(cuMemGetInfo(&after, &total));
	/* The small one shares the page of the module's variable. */
	CHECK(before - after == 6 << 20);
	OK(cuMemGetAddressRange(&p, &bytes, p + 1000));
	CHECK(bytes == 5 << 20);
	CUdeviceptr big;
	EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&big, 64 << 20));
	/* Page-locked memory is the same for both sides, without a copy. */
	OK(cuMemHostAlloc(&h, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	CUdeviceptr d;
	OK(cuMemHostGetDevicePointer(&d, h, 0));
	*(int *)h = 40;
	OK(launch_add(add, NULL, d, 1, 2));
	OK(cuCtxSynchronize());
	CHECK(*(int *)h == 42);
	unsigned type;
	OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, d));
	CHECK(type == CU_MEMORYTYPE_HOST);
	OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 5));
	CHECK(type == CU_MEMORYTYPE_DEVICE);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)&type));
	OK(cuMemFreeHost(h));
	OK(cuMemFree(p));
	OK(cuMemFree(small));
	OK(cuMemGetInfo(&after, &total));
	CHECK(before == after);
	CUdeviceptr managed;
	OK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
	*(int *)(uintptr_t)managed = 1;
	OK(launch_add(add, NULL, managed, 1, 2));
	OK(cuCtxSynchronize());
	CHECK(*(int *)(uintptr_t)managed == 3);
	OK(cuMemFree(managed));
}

/* Copies know of registrations by whole ranges. */
static void registered(void)
{
	enum { PIECE = 1 << 20 };
	char *host = mmap(NULL, 4 * PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CUdeviceptr p;

	CHECK(host != MAP_FAILED);
	OK(cuMemAlloc(&p, 4 * PIECE));
	OK(cuMemHostRegister(host, PIECE, 0));
	OK(cuMemHostRegister(host + PIECE, PIECE, 0));
	OK(cuMemcpyDtoH(host, p, PIECE));
	OK(cuMemcpyDtoH(host + PIECE, p, PIECE));
	OK(cuMemcpyDtoH(host + 2 * PIECE, p, 2 * PIECE));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(host, p, 2 * PIECE));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoHAsync(host + PIECE - 4, p, 8, NULL));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(p, host + PIECE, 2 * PIECE));
	OK(cuMemHostUnregister(host));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoDAsync(p, host + PIECE / 2, PIECE, NULL));
	OK(cuMemHostUnregister(host + PIECE));
	OK(cuMemcpyHtoD(p, host, 4 * PIECE));
	OK(cuMemFree(p));
	munmap(host, 4 * PIECE);
}

static void pools(void)
{
	CUstream a, b;
	CUdeviceptr x, y, z, spin;
	CUmemoryPool pool;
	uint64_t reserved, used, keep = UINT64_MAX;

	OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	OK(cuMemAlloc(&spin, 4096));
	OK(cuMemAllocAsync(&x, 1 << 20, a));
	CHECK(host_faults(x));
	/* Freed behind a kernel that runs for 60 ms: the same stream has it back at once, another one not yet. */
	OK(launch_add(add, a, spin, 16, 1));
	OK(cuMemFreeAsync(x, a));
	OK(cuMemAllocAsync(&y, 1 << 20, b));
	CHECK(y != x);
	OK(cuMemAllocAsync(&z, 1 << 20, a));
	CHECK(z == x);
	OK(cuMemFreeAsync(z, a));
	OK(cuStreamSynchronize(a));
	/* Now it has been freed for everybody. */
	OK(cuMemAllocAsync(&z, 1 << 20, b));
	CHECK(z == x);
	OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	CHECK(used == 2 << 20);
	OK(cuMemFreeAsync(z, b));
	OK(cuMemFreeAsync(y, b));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(y, b));
	OK(cuStreamSynchronize(b));
	OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
	CHECK(reserved >= 2 << 20);
	keep = 0;
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	OK(cuStreamSynchronize(b));
	OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
	CHECK(reserved == 0);
	/* A pool of one's own outlives its destruction while memory of it does. */
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
	CUmemoryPool own;
	OK(cuMemPoolCreate(&own, &props));
	OK(cuMemAllocFromPoolAsync(&x, 4096, own, a));
	OK(cuMemPoolDestroy(own));
	OK(launch_add(add, a, x, 16, 1));
	OK(cuMemFreeAsync(x, a));
	OK(cuStreamSynchronize(a));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&x, 4096, own, a));
	OK(cuMemFree(spin));
}

static void vmm(void)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				     .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
	CUmemAccessDesc rw = { .location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	const CUdeviceptr fixed = 0x300000000000ull;
	const size_t whole = (size_t)256 << 30;
	CUmemGenericAllocationHandle h, k, imported;
	CUdeviceptr va, other;
	size_t g;
	int v, fd;

	OK(cuMemGetAllocationGranularity(&g, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	CHECK(g == 2 << 20);
	OK(cuMemAddressReserve(&va, whole, 0, fixed, 0));
	CHECK(va == fixed);
	/* A hint is a hint: taken, the reservation goes elsewhere, and so does a small one always. */
	OK(cuMemAddressReserve(&other, whole, 0, fixed, 0));
	CHECK(other != fixed);
	OK(cuMemAddressFree(other, whole));
	OK(cuMemAddressReserve(&other, g, 0, fixed + whole, 0));
	CHECK(other != fixed + whole);
	OK(cuMemAddressFree(other, g));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&h, 4096, &prop, 0));
	OK(cuMemCreate(&h, 2 * g, &prop, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(va + 4096, g, 0, h, 0));
	OK(cuMemMap(va, 2 * g, 0, h, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(va + g, g, 0, h, 0));
	/* Mapped, but without access yet. */
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(va, &v, 4));
	OK(cuMemSetAccess(va, 2 * g, &rw, 1));
	CHECK(host_faults(va));
	v = 20;
	OK(cuMemcpyHtoD(va + g - 4, &v, 4));
	OK(launch_add(add, NULL, va + g - 4, 2, 1));
	OK(cuMemcpyDtoH(&v, va + g - 4, 4));
	CHECK(v == 21);
	/* Out and in again through a descriptor: the same memory at a second address. */
	OK(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	OK(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	OK(cuMemMap(va + 4 * g, 2 * g, 0, imported, 0));
	OK(cuMemSetAccess(va + 4 * g, 2 * g, &rw, 1));
	OK(launch_add(add, NULL, va + 5 * g - 4, 1, 1));
	OK(cuMemcpyDtoH(&v, va + g - 4, 4));
	CHECK(v == 22);
	OK(cuMemRetainAllocationHandle(&k, (void *)(uintptr_t)(va + g)));
	CHECK(k == h);
	OK(cuMemRelease(k));
	OK(cuMemRelease(h));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemRelease(h));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(va, g));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(va, whole));
	OK(cuMemUnmap(va, 2 * g));
	OK(cuMemUnmap(va + 4 * g, 2 * g));
	OK(cuMemRelease(imported));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(&v, va, 4));
	OK(cuMemAddressFree(va, whole));
	/* Read only means so to kernels. That ends the context, so it comes last. */
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
	OK(cuMemAddressReserve(&va, g, 0, 0, 0));
	OK(cuMemCreate(&h, g, &prop, 0));
	OK(cuMemMap(va, g, 0, h, 0));
	rw.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
	OK(cuMemSetAccess(va, g, &rw, 1));
	OK(cuMemcpyDtoH(&v, va, 4));
	OK(launch_add(add, NULL, va, 1, 1));
	EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
	EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc(&va, 16));
}

int main(void)
{
	setenv("SIMGPU_MEMORY", "64M", 1);
	setenv("SIMGPU_KERNEL_US", "60000", 1);
	device_start();
	add = kernel(kernels_load(), "add");
	reach();
	registered();
	pools();
	vmm();
	return 0;
}
