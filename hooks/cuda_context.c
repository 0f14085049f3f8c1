/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of initialisation, contexts and the look-up of driver functions. */
#include "config.h"

#include "hooks/cuda_driver.h"
#include "hooks/cuda_ipc.h"
#include "shim/doors.h"

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

CUresult tpck_hook_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
	return TPCK_CALL(cuDevicePrimaryCtxRetain, pctx, dev);
}

CUresult tpck_hook_cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	return TPCK_CALL(cuDevicePrimaryCtxRelease_v2, dev);
}

/* A reset frees all memory of the context at once. */
CUresult tpck_hook_cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	struct tpck_thread *self = tpck_engine_enter();
	CUcontext context = NULL;
	CUresult result;

	/* The one that is reset is the caller's, if it is a runtime that calls. */
	(void)TPCK_CALL(cuCtxGetCurrent, &context);
	result = TPCK_CALL(cuDevicePrimaryCtxReset_v2, dev);
	if (context && result == CUDA_SUCCESS)
		tpck_ipc_context_destroyed(context);
	if (self && result == CUDA_SUCCESS)
		tpck_engine_context_destroyed();
	if (self)
		tpck_engine_leave(self);
	return result;
}

CUresult tpck_hook_cuCtxDestroy_v2(CUcontext ctx)
{
	struct tpck_thread *self = tpck_engine_enter();
	CUresult result = TPCK_CALL(cuCtxDestroy_v2, ctx);

	if (result == CUDA_SUCCESS)
		tpck_ipc_context_destroyed(ctx);
	if (self && result == CUDA_SUCCESS)
		tpck_engine_context_destroyed();
	if (self)
		tpck_engine_leave(self);
	return result;
}

CUresult tpck_hook_cuCtxSynchronize(void)
{
	return TPCK_CALL(cuCtxSynchronize);
}
