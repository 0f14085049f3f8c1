/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of initialisation, contexts and the look-up of driver functions. */
#include "config.h"

#include "hooks/cuda_driver.h"
#include "hooks/cuda_ipc.h"
#include "runtime/base/layout.h"
#include "shim/doors.h"

enum { HEAP_BYTES = 8 << 20 };

CUresult tpck_hook_cuInit(unsigned int Flags)
{
	return TPCK_CALL(cuInit, Flags);
}

/* The real look-up decides which function a name, version and flags mean; what it gives is swapped for
 * the hook of that very function, but for NCCL, which is left alone with the driver. Status may be NULL. */
CUresult tpck_hook_cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
	CUresult result = TPCK_CALL(cuGetProcAddress, symbol, pfn, cudaVersion, flags);

	if (result == CUDA_SUCCESS && pfn && !tpck_door_passes(__builtin_return_address(0)))
		*pfn = tpck_door_swap(*pfn);
	return result;
}

CUresult tpck_hook_cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
				       CUdriverProcAddressQueryResult *symbolStatus)
{
	CUresult result = TPCK_CALL(cuGetProcAddress_v2, symbol, pfn, cudaVersion, flags, symbolStatus);

	if (result == CUDA_SUCCESS && pfn && !tpck_door_passes(__builtin_return_address(0)))
		*pfn = tpck_door_swap(*pfn);
	return result;
}

/* The primary contexts that were asked for. A driver gives the same handle for a device again and again, behind a reset too. */
enum { DEVICES = 64 };
static _Atomic(CUcontext) primary[DEVICES] TPCK_LARGE;

static CUcontext primary_of(CUdevice dev)
{
	return dev >= 0 && dev < DEVICES ? atomic_load(&primary[dev]) : NULL;
}

static bool is_primary(CUcontext context)
{
	for (CUdevice dev = 0; dev < DEVICES; dev++)
		if (primary_of(dev) == context)
			return true;
	return false;
}

CUresult tpck_hook_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
	CUresult result = TPCK_CALL(cuDevicePrimaryCtxRetain, pctx, dev);

	if (result == CUDA_SUCCESS && dev >= 0 && dev < DEVICES)
		atomic_store(&primary[dev], *pctx);
	return result;
}

/* Around the call by which the driver destroys or resets a context (vendor documentation, context management): what is ours in it ends first, while the
 * device can still be asked. */
static CUresult end_context(CUcontext context, CUresult (*call)(CUcontext, CUdevice), CUdevice dev)
{
	struct tpck_thread *self = tpck_engine_enter();
	CUresult result;

	if (self && context)
		tpck_engine_context_ends(context);
	result = call(context, dev);
	if (context && result == CUDA_SUCCESS)
		tpck_ipc_context_destroyed(context);
	if (self)
		tpck_engine_leave(self);
	return result;
}

static CUresult reset(CUcontext unused, CUdevice dev)
{
	(void)unused;
	return TPCK_CALL(cuDevicePrimaryCtxReset_v2, dev);
}

static CUresult destroy(CUcontext context, CUdevice unused)
{
	(void)unused;
	return TPCK_CALL(cuCtxDestroy_v2, context);
}

/* The last one destroys it; who has it, too, without having asked here, is not known before. What the program has not freed by then stays the process's:
 * without a context it may not be unmapped. */
CUresult tpck_hook_cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	CUcontext context = primary_of(dev);
	struct tpck_thread *self;
	unsigned flags;
	int active = 1;
	CUresult result;

	if (!context)
		return TPCK_CALL(cuDevicePrimaryCtxRelease_v2, dev);
	self = tpck_engine_enter();
	if (self)
		tpck_engine_context_settle(context);
	result = TPCK_CALL(cuDevicePrimaryCtxRelease_v2, dev);
	if (result == CUDA_SUCCESS && tpck_cuda.cuDevicePrimaryCtxGetState &&
	    tpck_cuda.cuDevicePrimaryCtxGetState(dev, &flags, &active) == CUDA_SUCCESS && !active) {
		tpck_ipc_context_destroyed(context);
		if (self)
			tpck_engine_context_ends(context);
	}
	if (self)
		tpck_engine_leave(self);
	return result;
}

CUresult tpck_hook_cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	return end_context(primary_of(dev), reset, dev);
}

/* The driver refuses it of primary contexts, and of what is none. */
CUresult tpck_hook_cuCtxDestroy_v2(CUcontext ctx)
{
	return is_primary(ctx) ? destroy(ctx, 0) : end_context(ctx, destroy, 0);
}

/* The driver gives the current context's device access to what cuMemAlloc made on the other one. What the library serves in its place is mapped memory, for
 * which each device needs access of its own (vendor documentation, virtual memory management). */
static void share(CUcontext owner)
{
	CUdevice with, of;
	CUcontext popped;

	if (tpck_cuda.cuCtxGetDevice(&with) != CUDA_SUCCESS || tpck_cuda.cuCtxPushCurrent_v2(owner) != CUDA_SUCCESS)
		return;
	if (tpck_cuda.cuCtxGetDevice(&of) != CUDA_SUCCESS)
		of = -1;
	tpck_cuda.cuCtxPopCurrent_v2(&popped);
	tpck_engine_share_memory(of, with);
}

CUresult tpck_hook_cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
	struct tpck_thread *self = tpck_engine_enter();
	CUresult result;

	if (self)
		tpck_engine_unresumable("the program lets one device use the memory of another (cuCtxEnablePeerAccess)");
	result = TPCK_CALL(cuCtxEnablePeerAccess, peerContext, Flags);
	if (self && result == CUDA_SUCCESS && !tpck_cuda_bind())
		share(peerContext);
	if (self)
		tpck_engine_leave(self);
	return result;
}

/* Kernels that take memory themselves have it in a heap of the context's, which nobody else can read. All have one of 8 MiB (CUDA C++ programming guide,
 * dynamic global memory allocation): who asks for more uses it. */
CUresult tpck_hook_cuCtxSetLimit(CUlimit limit, size_t value)
{
	CUresult result = TPCK_CALL(cuCtxSetLimit, limit, value);

	if (result == CUDA_SUCCESS && limit == CU_LIMIT_MALLOC_HEAP_SIZE && value > HEAP_BYTES)
		tpck_engine_unresumable("kernels of the program take memory themselves (cudaLimitMallocHeapSize)");
	return result;
}

CUresult tpck_hook_cuCtxSynchronize(void)
{
	CUresult result = TPCK_CALL(cuCtxSynchronize);

	tpck_cuda_note(result);
	tpck_engine_device_waited();
	return result;
}

/* What the name means to programs of CUDA 13: of a context that need not be the current one. */
CUresult tpck_hook_cuCtxSynchronize_v2(CUcontext ctx)
{
	CUresult result = TPCK_CALL(cuCtxSynchronize_v2, ctx);

	tpck_cuda_note(result);
	tpck_engine_device_waited();
	return result;
}
