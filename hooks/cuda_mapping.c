/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of device memory that the program reserves and maps itself, as PyTorch's expandable segments do. The calls are real
 * in every mode; reservations are asked for at addresses that come again in a resumed process. */
#include "config.h"

#include <pthread.h>

#include "hooks/cuda_driver.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"

/* Where the record may end while running forward, and what it compares. Until tpck_engine_after() nobody's boundary can
 * be: the record and the live blocks say the same of the call. */
static void announce(struct tpck_thread *self, struct tpck_call *call, enum tpck_op op, uint64_t bytes)
{
	tpck_cuda_context_seen();
	tpck_memory_call(call, op, bytes, NULL);
	(void)tpck_engine_before(self, call);
}

/* Reservations that were made larger than asked for, since the driver would have them elsewhere otherwise. */
enum { WIDENED = 64 };
static struct {
	CUdeviceptr address;
	size_t asked, made;
} widened[WIDENED] TPCK_LARGE;
static pthread_mutex_t widened_lock = PTHREAD_MUTEX_INITIALIZER;

/* What is freed for `asked` bytes at an address; its entry is cleared. */
static size_t made_of(CUdeviceptr address, size_t asked)
{
	size_t made = asked;

	pthread_mutex_lock(&widened_lock);
	for (int i = 0; i < WIDENED; i++)
		if (widened[i].address == address && widened[i].asked == asked) {
			made = widened[i].made;
			widened[i].address = 0;
		}
	pthread_mutex_unlock(&widened_lock);
	return made;
}

static bool remember_made(CUdeviceptr address, size_t asked, size_t made)
{
	bool noted = false;

	pthread_mutex_lock(&widened_lock);
	for (int i = 0; i < WIDENED && !noted; i++)
		if (!widened[i].address) {
			widened[i].address = address;
			widened[i].asked = asked;
			widened[i].made = made;
			noted = true;
		}
	pthread_mutex_unlock(&widened_lock);
	return noted;
}

/* At that very place, or not at all. */
static bool reserve_at(CUdeviceptr place, size_t size, size_t alignment, unsigned long long flags)
{
	CUdeviceptr got = 0;
	CUresult result = TPCK_CALL(cuMemAddressReserve, &got, size, alignment, place, flags);

	if (result == CUDA_SUCCESS && got == place)
		return true;
	tpck_log_debug("the driver does not reserve %zu bytes at %#llx: error %d, %#llx", size, (unsigned long long)place, (int)result,
		      (unsigned long long)got);
	if (result == CUDA_SUCCESS)
		TPCK_CALL(cuMemAddressFree, got, size);
	return false;
}

/* A power of two, as the arena's range is one that drivers give. */
static bool reserve_wider(CUdeviceptr place, size_t size, unsigned long long flags)
{
	size_t made = (size_t)2 << 20;

	while (made < size && made << 1)
		made <<= 1;
	if (made <= size || !reserve_at(place, made, 0, flags))
		return false;
	if (remember_made(place, size, made))
		return true;
	TPCK_CALL(cuMemAddressFree, place, made);
	return false;
}

CUresult tpck_hook_cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
				       unsigned long long flags)
{
	struct tpck_thread *self = tpck_engine_enter();
	CUdeviceptr place;
	struct tpck_call call;
	CUresult result = CUDA_SUCCESS;

	if (!self)
		return TPCK_CALL(cuMemAddressReserve, ptr, size, alignment, addr, flags);
	announce(self, &call, TPCK_OP_MEMSET, size);
	place = addr || !ptr ? 0 : tpck_engine_reserve(self, size, alignment);
	if (place && (reserve_at(place, size, alignment, flags) || reserve_wider(place, size, flags)))
		*ptr = place;
	else
		result = TPCK_CALL(cuMemAddressReserve, ptr, size, alignment, addr, flags);
	if (addr)
		place = addr;
	if (result == CUDA_SUCCESS && (!place || *ptr != place))
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

	if (!self)
		return TPCK_CALL(cuMemAddressFree, ptr, size);
	announce(self, &call, TPCK_OP_D2D, size);
	result = TPCK_CALL(cuMemAddressFree, ptr, made_of(ptr, size));
	if (result == CUDA_SUCCESS)
		tpck_engine_unreserve(self, ptr, size);
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
