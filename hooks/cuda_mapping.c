/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of device memory that the program reserves and maps itself, as PyTorch's expandable segments do. The calls are real
 * in every mode; reservations are asked for at addresses that come again in a resumed process. */
#include "config.h"

#include <errno.h>

#include "hooks/cuda_driver.h"

/* Where the record may end while running forward, and what it compares. Until tpck_engine_after() nobody's boundary can
 * be: the record and the live blocks say the same of the call. */
static void announce(struct tpck_thread *self, struct tpck_call *call, enum tpck_op op, uint64_t bytes)
{
	tpck_cuda_context_seen();
	tpck_memory_call(call, op, bytes, NULL);
	(void)tpck_engine_before(self, call);
}

/* The driver's own, where the program has one in mind and gets it, and where it asks for what the driver alone answers; else a part of one of the library's:
 * its address comes again. */
CUresult tpck_hook_cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
				       unsigned long long flags)
{
	struct tpck_thread *self = tpck_engine_enter();
	CUdeviceptr place = 0;
	struct tpck_call call;
	CUresult result = CUDA_SUCCESS;

	if (!self)
		return TPCK_CALL(cuMemAddressReserve, ptr, size, alignment, addr, flags);
	announce(self, &call, TPCK_OP_MEMSET, size);
	if (ptr && !flags && !addr && TPCK_REAL(cuMemAddressReserve))
		place = tpck_engine_reserve(self, tpck_cuda_device(), size, alignment);
	if (!place)
		result = TPCK_CALL(cuMemAddressReserve, ptr, size, alignment, addr, flags);
	if (result == CUDA_SUCCESS && !place && addr && *ptr != addr) {
		place = tpck_engine_reserve(self, tpck_cuda_device(), size, alignment);
		if (place)
			(void)TPCK_CALL(cuMemAddressFree, *ptr, size);
	}
	if (place)
		*ptr = place;
	else if (result == CUDA_SUCCESS && *ptr != addr)
		tpck_engine_unresumable("the driver does not give the program's own mappings an address that a resumed process "
					"would need again");
	tpck_engine_after(self, &call);
	tpck_engine_leave(self);
	return result;
}

CUresult tpck_hook_cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	struct tpck_thread *self = tpck_engine_enter();
	struct tpck_call call;
	CUresult result;
	int ours;

	if (!self)
		return TPCK_CALL(cuMemAddressFree, ptr, size);
	announce(self, &call, TPCK_OP_D2D, size);
	ours = tpck_engine_unreserve(self, ptr, size);
	result = ours == -ENOENT ? TPCK_CALL(cuMemAddressFree, ptr, size) : ours ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	tpck_engine_after(self, &call);
	tpck_engine_leave(self);
	return result;
}

CUresult tpck_hook_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
			       unsigned long long flags)
{
	struct tpck_thread *self = tpck_engine_enter();
	CUresult result;

	if (!self)
		return TPCK_CALL(cuMemCreate, handle, size, prop, flags);
	tpck_cuda_context_seen();
	if (prop && prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		tpck_engine_unresumable("the program maps host memory itself (cuMemCreate)");
	else if (prop)
		tpck_engine_memory_on(prop->location.id);
	result = TPCK_CALL(cuMemCreate, handle, size, prop, flags);
	if (result == CUDA_ERROR_OUT_OF_MEMORY && tpck_engine_give_back())
		result = TPCK_CALL(cuMemCreate, handle, size, prop, flags);
	tpck_engine_leave(self);
	return result;
}

CUresult tpck_hook_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
			    unsigned long long flags)
{
	struct tpck_thread *self = tpck_engine_enter();
	struct tpck_call call;
	CUresult result;

	if (!self)
		return TPCK_CALL(cuMemMap, ptr, size, offset, handle, flags);
	announce(self, &call, TPCK_OP_MEMSET, size);
	result = TPCK_CALL(cuMemMap, ptr, size, offset, handle, flags);
	if (result == CUDA_SUCCESS)
		tpck_engine_map(self, ptr, size, handle);
	tpck_engine_after(self, &call);
	tpck_engine_leave(self);
	return result;
}

CUresult tpck_hook_cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	struct tpck_thread *self = tpck_engine_enter();
	struct tpck_call call;
	CUresult result;

	if (!self)
		return TPCK_CALL(cuMemSetAccess, ptr, size, desc, count);
	announce(self, &call, TPCK_OP_MEMSET, size);
	result = TPCK_CALL(cuMemSetAccess, ptr, size, desc, count);
	for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
		if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || !tpck_engine_maps_here(desc[i].location.id))
			tpck_engine_unresumable("the program lets others than its device use memory that it maps (cuMemSetAccess)");
		else if (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
			tpck_engine_unresumable("the program takes access to its memory away (cuMemSetAccess)");
		else
			tpck_engine_access(self, ptr, size);
	}
	tpck_engine_after(self, &call);
	tpck_engine_leave(self);
	return result;
}

CUresult tpck_hook_cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	struct tpck_thread *self = tpck_engine_enter();
	struct tpck_call call;
	CUresult result;

	if (!self)
		return TPCK_CALL(cuMemUnmap, ptr, size);
	announce(self, &call, TPCK_OP_D2D, size);
	tpck_engine_unmap(self, ptr, size);
	result = TPCK_CALL(cuMemUnmap, ptr, size);
	if (result != CUDA_SUCCESS)
		tpck_engine_unresumable("the driver does not unmap what the program maps (cuMemUnmap)");
	tpck_engine_after(self, &call);
	tpck_engine_leave(self);
	return result;
}
