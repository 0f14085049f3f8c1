/* SPDX-License-Identifier: Apache-2.0 */
/* Plain device memory, page-locked host memory and managed memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver/sim.h"

static CUresult mem_alloc(CUdeviceptr *out, size_t bytes)
{
	struct sim_alloc *a;

	SIM_ENTER();
	sim_allocating();
	CUresult r = out && bytes ? sim_capture_unsafe() : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = sim_heap_alloc(sim_device(), bytes, SIM_ALLOC_DEVICE, &a);
	if (r == CUDA_SUCCESS)
		*out = a->va;
	return sim_return(r);
}

SIM_API CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes) { return mem_alloc(out, bytes); }

SIM_API CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned element)
{
	(void)element;
	if (!pitch || !width || !height)
		return CUDA_ERROR_INVALID_VALUE;
	*pitch = (width + 511) / 512 * 512;
	return mem_alloc(out, *pitch * height);
}

CUresult sim_host_free(struct sim_alloc *a)
{
	uint64_t va = a->va, bytes = a->reserved;

	sim_remote_unmap(va, bytes);
	if (a->fd >= 0)
		close(a->fd);
	sim_alloc_remove(a);
	munmap((void *)(uintptr_t)va, bytes);
	return CUDA_SUCCESS;
}

SIM_API CUresult cuMemFree_v2(CUdeviceptr va)
{
	SIM_ENTER();
	CUresult r = sim_capture_unsafe();
	if (r != CUDA_SUCCESS || !va)
		return sim_return(r);
	struct sim_alloc *a = sim_alloc_find(va);
	if (!a || a->va != va || (a->kind != SIM_ALLOC_DEVICE && a->kind != SIM_ALLOC_POOL && a->kind != SIM_ALLOC_MANAGED))
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	/* Freeing waits for everything that was launched before it. */
	sim_wait_device_held(a->device);
	a = sim_alloc_find(va);
	if (!a || a->va != va)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	if (a->kind == SIM_ALLOC_POOL)
		r = sim_pool_free_now(a);
	else
		r = a->kind == SIM_ALLOC_MANAGED ? sim_host_free(a) : sim_heap_free(a);
	return sim_return(r == CUDA_SUCCESS ? sim_sticky() : r);
}

/* Host memory that kernels reach too: a file mapped at the same address on both sides. */
static CUresult shared_alloc(uint64_t *out, size_t bytes, unsigned flags, enum sim_alloc_kind kind)
{
	uint64_t size = (bytes + SIM_PAGE - 1) & ~(SIM_PAGE - 1);

	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	sim_allocating();
	if (sim_fault_alloc())
		return CUDA_ERROR_OUT_OF_MEMORY;
	uint64_t va = sim_va_reserve(size, SIM_PAGE, 0, false);
	int fd = memfd_create("simgpu-host", MFD_CLOEXEC);
	struct sim_alloc *a = NULL;
	if (!va || fd < 0 || sim_memory_size(fd, size) ||
	    mmap((void *)(uintptr_t)va, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
		goto fail;
	/* Page-locked memory has its pages from the start. */
	if (kind == SIM_ALLOC_HOST)
		madvise((void *)(uintptr_t)va, (bytes + 4095) & ~4095ull, MADV_POPULATE_WRITE);
	if (sim_remote_map_file(va, size, 0, PROT_READ | PROT_WRITE, fd))
		goto fail;
	a = sim_alloc_add(va, bytes, kind);
	if (!a)
		goto fail;
	a->reserved = size;
	a->flags = flags;
	a->fd = fd;
	a->prot = PROT_READ | PROT_WRITE;
	*out = va;
	return CUDA_SUCCESS;
fail:
	if (fd >= 0)
		close(fd);
	if (va)
		munmap((void *)(uintptr_t)va, size);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult host_alloc(void **out, size_t bytes, unsigned flags)
{
	uint64_t va;

	SIM_ENTER();
	CUresult r = out ? sim_capture_unsafe() : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = shared_alloc(&va, bytes, flags, SIM_ALLOC_HOST);
	if (r == CUDA_SUCCESS)
		*out = (void *)(uintptr_t)va;
	return sim_return(r);
}

SIM_API CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned flags)
{
	if (flags & ~(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED))
		return CUDA_ERROR_INVALID_VALUE;
	return host_alloc(out, bytes, flags | CU_MEMHOSTALLOC_DEVICEMAP);
}

SIM_API CUresult cuMemAllocHost_v2(void **out, size_t bytes) { return host_alloc(out, bytes, CU_MEMHOSTALLOC_DEVICEMAP); }

SIM_API CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned flags)
{
	uint64_t va;

	SIM_ENTER();
	CUresult r = out && (flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST) ? sim_capture_unsafe() : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = shared_alloc(&va, bytes, flags, SIM_ALLOC_MANAGED);
	if (r == CUDA_SUCCESS)
		*out = va;
	return sim_return(r);
}

SIM_API CUresult cuMemFreeHost(void *p)
{
	SIM_ENTER();
	struct sim_alloc *a = sim_alloc_find((uint64_t)(uintptr_t)p);
	if (!a || a->va != (uint64_t)(uintptr_t)p || a->kind != SIM_ALLOC_HOST)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	sim_wait_device_held(a->device);
	a = sim_alloc_find((uint64_t)(uintptr_t)p);
	return sim_return(a ? sim_host_free(a) : CUDA_ERROR_INVALID_VALUE);
}

SIM_API CUresult cuMemHostRegister_v2(void *p, size_t bytes, unsigned flags)
{
	uint64_t va = (uint64_t)(uintptr_t)p;

	SIM_ENTER();
	sim_allocating();
	CUresult r = p && bytes ? sim_capture_unsafe() : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS && sim_fault_thread())
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (r == CUDA_SUCCESS) {
		struct sim_alloc *a = sim_alloc_find(va), *n = sim_alloc_next(va);

		if (a || (n && n->va < va + bytes))
			r = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	}
	/* Pinning touches every page; one that is not there is an error, not a fault. */
	uint64_t first = va & ~4095ull, last = (va + bytes + 4095) & ~4095ull;
	int populate = flags & CU_MEMHOSTREGISTER_READ_ONLY ? MADV_POPULATE_READ : MADV_POPULATE_WRITE;
	/* EINVAL: a kernel before 5.14. */
	if (r == CUDA_SUCCESS && madvise((void *)(uintptr_t)first, last - first, populate) && errno != EINVAL)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS) {
		struct sim_alloc *a = sim_alloc_add(va, bytes, SIM_ALLOC_REGISTERED);

		if (a)
			a->flags = flags;
		else
			r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	return sim_return(r);
}

SIM_API CUresult cuMemHostUnregister(void *p)
{
	SIM_ENTER();
	struct sim_alloc *a = sim_alloc_find((uint64_t)(uintptr_t)p);
	if (!a || a->va != (uint64_t)(uintptr_t)p || a->kind != SIM_ALLOC_REGISTERED)
		return sim_return(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	sim_wait_device_held(a->device);
	a = sim_alloc_find((uint64_t)(uintptr_t)p);
	if (a)
		sim_alloc_remove(a);
	return sim_return(a ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

SIM_API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *p, unsigned flags)
{
	SIM_ENTER();
	if (!out || flags || !sim_is_pinned(p, 1))
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	*out = (CUdeviceptr)(uintptr_t)p;
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuMemHostGetFlags(unsigned *out, void *p)
{
	SIM_ENTER();
	struct sim_alloc *a = sim_alloc_find((uint64_t)(uintptr_t)p);
	if (!out || !a || a->kind != SIM_ALLOC_HOST)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	*out = a->flags;
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	SIM_ENTER();
	if (free_bytes)
		*free_bytes = sim_vram_free_bytes(sim_device());
	if (total)
		*total = sim_settings.memory;
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr va)
{
	SIM_ENTER();
	struct sim_alloc *a = sim_alloc_find(va);
	if (!a || a->kind == SIM_ALLOC_REGISTERED || a->kind == SIM_ALLOC_HOST)
		return sim_return(CUDA_ERROR_NOT_FOUND);
	if (base)
		*base = a->va;
	if (bytes)
		*bytes = a->bytes;
	return sim_return(CUDA_SUCCESS);
}

static CUmemorytype type_of(const struct sim_alloc *a)
{
	return a->kind == SIM_ALLOC_HOST || a->kind == SIM_ALLOC_REGISTERED ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

static CUresult attribute(void *out, CUpointer_attribute what, CUdeviceptr va)
{
	struct sim_alloc *a = sim_alloc_find(va);
	CUresult r = a ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

	if (!a && what != CU_POINTER_ATTRIBUTE_MAPPED)
		return r;
	switch (what) {
	case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext *)out = (CUcontext)(a->kind == SIM_ALLOC_VMM || a->kind == SIM_ALLOC_POOL ? NULL : a->ctx); break;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *(unsigned *)out = type_of(a); break;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(CUdeviceptr *)out = va; break;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (type_of(a) != CU_MEMORYTYPE_HOST && a->kind != SIM_ALLOC_MANAGED)
			return CUDA_ERROR_INVALID_VALUE;
		*(void **)out = (void *)(uintptr_t)va;
		break;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: *(unsigned *)out = a->sync_memops; break;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID: *(unsigned long long *)out = a->id; break;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned *)out = a->kind == SIM_ALLOC_MANAGED; break;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)out = a->device; break;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: *(unsigned *)out = a->kind == SIM_ALLOC_DEVICE; break;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr *)out = a->va; break;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)out = a->bytes; break;
	case CU_POINTER_ATTRIBUTE_MAPPED: *(unsigned *)out = a && a->prot; break;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*(unsigned long long *)out = a->phys && a->kind == SIM_ALLOC_VMM ? (unsigned long long)a->phys->prop.requestedHandleTypes : 0;
		break;
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		*(unsigned *)out = a->kind == SIM_ALLOC_VMM ? a->phys->prop.allocFlags.gpuDirectRDMACapable : a->kind == SIM_ALLOC_DEVICE;
		break;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		*(unsigned *)out = a->prot & PROT_WRITE ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE :
				   a->prot ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
		break;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: *(CUmemoryPool *)out = (CUmemoryPool)a->pool; break;
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: *(size_t *)out = a->bytes; break;
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: *(CUdeviceptr *)out = a->va; break;
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: *(unsigned long long *)out = a->id; break;
	default: return CUDA_ERROR_NOT_SUPPORTED;
	}
	return r;
}

SIM_API CUresult cuPointerGetAttribute(void *out, CUpointer_attribute what, CUdeviceptr va)
{
	SIM_ENTER();
	return sim_return(out ? attribute(out, what, va) : CUDA_ERROR_INVALID_VALUE);
}

SIM_API CUresult cuPointerGetAttributes(unsigned n, CUpointer_attribute *what, void **out, CUdeviceptr va)
{
	SIM_ENTER();
	/* Unlike the call for one attribute, this one answers for any pointer: unknown ones read as zero. */
	for (unsigned i = 0; i < n; i++) {
		if (attribute(out[i], what[i], va) == CUDA_SUCCESS)
			continue;
		switch (what[i]) {
		case CU_POINTER_ATTRIBUTE_CONTEXT:
		case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
			memset(out[i], 0, 8);
			break;
		case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
			*(int *)out[i] = -2;
			break;
		default:
			memset(out[i], 0, 4);
			break;
		}
	}
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute what, CUdeviceptr va)
{
	SIM_ENTER();
	struct sim_alloc *a = sim_alloc_find(va);
	if (!a || what != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	a->sync_memops = *(const unsigned *)value != 0;
	return sim_return(CUDA_SUCCESS);
}

/* Managed memory is always where it is wanted. */
SIM_API CUresult cuMemAdvise_v2(CUdeviceptr va, size_t n, CUmem_advise advice, CUmemLocation where)
{
	(void)va, (void)n, (void)advice, (void)where;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuMemPrefetchAsync_v2(CUdeviceptr va, size_t n, CUmemLocation where, unsigned flags, CUstream s)
{
	(void)va, (void)n, (void)where, (void)flags, (void)s;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr va, size_t n, CUmemLocation where, unsigned flags, CUstream s)
{
	return cuMemPrefetchAsync_v2(va, n, where, flags, s);
}
