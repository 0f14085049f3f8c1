/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of device memory: allocation, freeing, and what is asked about it. */
#include "config.h"

#include <errno.h>

#include "hooks/cuda_driver.h"
#include "hooks/cuda_graph.h"
#include "hooks/cuda_ipc.h"

static CUresult to_result(int result)
{
	return result == 0 ? CUDA_SUCCESS : result == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
}

/* Allocating and freeing at once are forbidden while certain streams capture, and break the capture: the driver
 * knows when, and does so. */
static bool forbidden(CUresult *result)
{
	CUdeviceptr probe;

	if (__builtin_expect(!tpck_cuda_capturing(), 1))
		return false;
	*result = TPCK_CALL(cuMemAlloc_v2, &probe, 1);
	if (*result == CUDA_SUCCESS)
		(void)TPCK_CALL(cuMemFree_v2, probe);
	return *result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && *result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

/* Serves a request from the arena. False: make the real call. */
static bool allocate(struct tpck_thread *self, CUdeviceptr *dptr, size_t bytes, CUstream stream, bool ordered,
		     CUresult *result)
{
	struct tpck_call call;
	uint64_t address;
	int served;

	tpck_cuda_context_seen();
	if (!dptr || !bytes || tpck_cuda_waits_dead())
		return false; /* the driver says what is wrong with it */
	if (!ordered && forbidden(result))
		return true;
	tpck_memory_call(&call, TPCK_OP_MEMSET, bytes, stream);
	(void)tpck_engine_before(self, &call);
	served = tpck_engine_allocate(self, bytes, stream, ordered, &address);
	tpck_engine_after(self, &call);
	if (served == -ENOTSUP)
		return false;
	*result = to_result(served);
	if (!served)
		*dptr = address;
	return true;
}

CUresult tpck_hook_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	struct tpck_thread *self = tpck_engine_enter();
	CUresult result;

	if (!self)
		return TPCK_CALL(cuMemAlloc_v2, dptr, bytesize);
	if (!allocate(self, dptr, bytesize, NULL, false, &result))
		result = TPCK_CALL(cuMemAlloc_v2, dptr, bytesize);
	tpck_engine_leave(self);
	return result;
}

CUresult tpck_hook_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
				      unsigned int ElementSizeBytes)
{
	struct tpck_thread *self = tpck_engine_enter();
	size_t pitch = (WidthInBytes + 511) / 512 * 512;
	CUresult result;

	if (!self)
		return TPCK_CALL(cuMemAllocPitch_v2, dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
	if (!pPitch || !WidthInBytes || !Height || (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16) ||
	    !allocate(self, dptr, pitch * Height, NULL, false, &result))
		result = TPCK_CALL(cuMemAllocPitch_v2, dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
	else if (result == CUDA_SUCCESS)
		*pPitch = pitch;
	tpck_engine_leave(self);
	return result;
}

static CUresult allocate_ordered(CUdeviceptr *dptr, size_t bytes, CUstream stream, const CUmemoryPool *pool)
{
	struct tpck_thread *self = tpck_engine_enter();
	CUresult result;

	if (!self || !allocate(self, dptr, bytes, stream, true, &result))
		result = pool ? TPCK_CALL(cuMemAllocFromPoolAsync, dptr, bytes, *pool, stream)
			      : TPCK_CALL(cuMemAllocAsync, dptr, bytes, stream);
	if (self)
		tpck_engine_leave(self);
	return result;
}

CUresult tpck_hook_cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	return allocate_ordered(dptr, bytesize, hStream, NULL);
}

CUresult tpck_hook_cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	return allocate_ordered(dptr, bytesize, tpck_per_thread(hStream), NULL);
}

CUresult tpck_hook_cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
	return allocate_ordered(dptr, bytesize, hStream, &pool);
}

CUresult tpck_hook_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
						CUstream hStream)
{
	return allocate_ordered(dptr, bytesize, tpck_per_thread(hStream), &pool);
}

/* Pools' memory is not what cuCtxEnablePeerAccess() is about (vendor documentation, stream ordered memory allocator). Which device a pool is on the driver
 * tells of none. */
CUresult tpck_hook_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
	struct tpck_thread *self = tpck_engine_enter();
	CUresult result = TPCK_CALL(cuMemPoolSetAccess, pool, map, count);
	CUdevice own = -1;

	if (!self)
		return result;
	if (result == CUDA_SUCCESS && map && (!tpck_cuda.cuCtxGetDevice || tpck_cuda.cuCtxGetDevice(&own) != CUDA_SUCCESS))
		own = -1;
	for (size_t i = 0; result == CUDA_SUCCESS && map && i < count; i++) {
		if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || map[i].location.id == own || map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
			continue;
		tpck_engine_unresumable("the program lets one device use the memory of another (cuMemPoolSetAccess)");
		tpck_engine_share_memory(-1, map[i].location.id);
	}
	tpck_engine_leave(self);
	return result;
}

/* Gives a block back to the arena. False: make the real call. */
static bool release(struct tpck_thread *self, CUdeviceptr address, CUstream stream, bool ordered)
{
	struct tpck_call call;
	bool waited = false, done;

	if (!tpck_engine_is_device_memory(address))
		return false;
	/* The wait may be long, and nobody else's boundary can be while a thread is in a call that orders memory. */
	if (!ordered && !tpck_engine_forward())
		waited = tpck_engine_free_wait(self);
	tpck_ipc_freed(address);
	tpck_memory_call(&call, TPCK_OP_D2D, 0, stream);
	(void)tpck_engine_before(self, &call);
	if (!ordered && !waited && !tpck_engine_forward())
		tpck_engine_free_wait(self);
	done = tpck_engine_free(self, address, stream, ordered) == 0;
	tpck_engine_after(self, &call);
	return done;
}

CUresult tpck_hook_cuMemFree_v2(CUdeviceptr dptr)
{
	struct tpck_thread *self = tpck_engine_enter();
	CUresult result = CUDA_SUCCESS;

	if (!self)
		return TPCK_CALL(cuMemFree_v2, dptr);
	if (!tpck_engine_is_device_memory(dptr)) {
		result = TPCK_CALL(cuMemFree_v2, dptr);
	} else if (!forbidden(&result)) {
		/* Freeing nothing asks whether there is a context, and one that has not failed; after the wait that is
		 * part of freeing once more. */
		result = TPCK_CALL(cuMemFree_v2, 0);
		if (result == CUDA_SUCCESS)
			result = TPCK_CALL(cuMemFree_v2, release(self, dptr, NULL, false) ? 0 : dptr);
	}
	tpck_engine_leave(self);
	return result;
}

static CUresult free_ordered(CUdeviceptr dptr, CUstream stream)
{
	struct tpck_thread *self = tpck_engine_enter();
	CUresult result = CUDA_SUCCESS;

	if (!self || !release(self, dptr, stream, true))
		result = TPCK_CALL(cuMemFreeAsync, dptr, stream);
	if (self)
		tpck_engine_leave(self);
	return result;
}

CUresult tpck_hook_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
	return free_ordered(dptr, hStream);
}

CUresult tpck_hook_cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream)
{
	return free_ordered(dptr, tpck_per_thread(hStream));
}

CUresult tpck_hook_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	struct tpck_thread *self = tpck_engine_enter();

	if (self) {
		tpck_engine_unresumable("the program uses managed memory (cuMemAllocManaged), which the CPU reads without a call");
		tpck_engine_leave(self);
	}
	return TPCK_CALL(cuMemAllocManaged, dptr, bytesize, flags);
}

CUresult tpck_hook_cuMemGetInfo_v2(size_t *available, size_t *total)
{
	struct tpck_thread *self = tpck_engine_enter();
	CUresult result = CUDA_SUCCESS;

	if (self && available && total && tpck_engine_meminfo_answer(self, available, total)) {
		tpck_engine_leave(self);
		return result;
	}
	result = TPCK_CALL(cuMemGetInfo_v2, available, total);
	if (self && result == CUDA_SUCCESS && available && total) {
		/* What is mapped for no block would be the program's if it asked, so it is free as it were without us. */
		*available += tpck_engine_idle_memory();
		if (*available > *total)
			*available = *total;
		tpck_engine_meminfo_note(self, *available, *total);
	}
	if (self)
		tpck_engine_leave(self);
	return result;
}

CUresult tpck_hook_cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
	uint64_t base, bytes;

	if (tpck_engine_block(dptr, &base, &bytes) || tpck_ipc_block(dptr, &base, &bytes)) {
		if (pbase)
			*pbase = base;
		if (psize)
			*psize = bytes;
		return CUDA_SUCCESS;
	}
	return TPCK_CALL(cuMemGetAddressRange_v2, pbase, psize, dptr);
}

/* The driver knows the arena's mappings, not the blocks in them, nor those of other processes. */
static void range_attribute(CUpointer_attribute attribute, void *data, CUdeviceptr ptr)
{
	uint64_t base, bytes;
	bool own;

	if (!data)
		return;
	own = tpck_engine_block(ptr, &base, &bytes);
	if (!own && !tpck_ipc_block(ptr, &base, &bytes))
		return;
	if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
		*(CUdeviceptr *)data = base;
	else if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
		*(size_t *)data = bytes;
	else if (attribute == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE)
		*(unsigned *)data = own && tpck_engine_block_of_its_own(ptr, &base, &bytes);
	else if (attribute == CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES)
		*(unsigned long long *)data = CU_MEM_HANDLE_TYPE_NONE;
}

CUresult tpck_hook_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	CUresult result = TPCK_CALL(cuPointerGetAttribute, data, attribute, ptr);

	if (result == CUDA_SUCCESS)
		range_attribute(attribute, data, ptr);
	return result;
}

CUresult tpck_hook_cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data,
					  CUdeviceptr ptr)
{
	CUresult result = TPCK_CALL(cuPointerGetAttributes, numAttributes, attributes, data, ptr);

	if (result == CUDA_SUCCESS && attributes && data)
		for (unsigned i = 0; i < numAttributes; i++)
			range_attribute(attributes[i], data[i], ptr);
	return result;
}
