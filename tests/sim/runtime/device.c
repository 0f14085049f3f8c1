/* SPDX-License-Identifier: Apache-2.0 */
/* The device: how many, which, and what it can do. */
#include <stdio.h>
#include <string.h>

#include "runtime/rt.h"

RT_API cudaError_t cudaGetDeviceCount(int *n)
{
	cudaError_t e = rt_load();

	*n = 0;
	return rt_result(e == cudaSuccess ? (cudaError_t)rt_drv.cuDeviceGetCount(n) : e);
}

static cudaError_t ordinal(int d)
{
	CUdevice x;

	return (cudaError_t)rt_drv.cuDeviceGet(&x, d);
}

RT_API cudaError_t cudaSetDevice(int d)
{
	CUcontext current = NULL, c;
	cudaError_t e = rt_load();

	if (e == cudaSuccess)
		e = ordinal(d);
	if (e == cudaSuccess)
		e = (cudaError_t)rt_drv.cuCtxGetCurrent(&current);
	/* A context that the program made on that device itself stays. */
	if (e != cudaSuccess || (current && rt_device() == d))
		return rt_result(e);
	e = rt_primary(d, &c);
	return rt_result(e == cudaSuccess ? (cudaError_t)rt_drv.cuCtxSetCurrent(c) : e);
}

RT_API cudaError_t cudaInitDevice(int d, unsigned flags, unsigned device_flags)
{
	(void)flags, (void)device_flags;
	return cudaSetDevice(d);
}

RT_API cudaError_t cudaGetDevice(int *d)
{
	cudaError_t e = rt_load();

	if (e == cudaSuccess)
		*d = rt_device();
	return rt_result(e);
}

RT_API cudaError_t cudaSetDeviceFlags(unsigned flags)
{
	cudaError_t e = rt_load();

	return rt_result(e == cudaSuccess ? (cudaError_t)rt_drv.cuDevicePrimaryCtxSetFlags(rt_device(), flags) : e);
}

RT_API cudaError_t cudaGetDeviceFlags(unsigned *flags)
{
	int active;
	cudaError_t e = rt_load();

	return rt_result(e == cudaSuccess ? (cudaError_t)rt_drv.cuDevicePrimaryCtxGetState(rt_device(), flags, &active) : e);
}

RT_API cudaError_t cudaDeviceSynchronize(void) { RT(rt_drv.cuCtxSynchronize()); }
RT_API cudaError_t cudaDeviceReset(void) { RT(rt_drv.cuDevicePrimaryCtxReset(rt_device())); }
RT_API cudaError_t cudaDeviceGetLimit(size_t *v, enum cudaLimit l) { RT(rt_drv.cuCtxGetLimit(v, (CUlimit)l)); }
RT_API cudaError_t cudaDeviceSetLimit(enum cudaLimit l, size_t v) { RT(rt_drv.cuCtxSetLimit((CUlimit)l, v)); }
RT_API cudaError_t cudaDeviceGetCacheConfig(enum cudaFuncCache *c) { RT(rt_drv.cuCtxGetCacheConfig((CUfunc_cache *)c)); }
RT_API cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache c) { RT(rt_drv.cuCtxSetCacheConfig((CUfunc_cache)c)); }
RT_API cudaError_t cudaDeviceCanAccessPeer(int *can, int a, int b) { RT(rt_drv.cuDeviceCanAccessPeer(can, a, b)); }

static CUresult peer_access(int d, unsigned flags, bool enable)
{
	CUcontext c;
	cudaError_t e = ordinal(d);

	if (e == cudaSuccess && enable && d == rt_device())
		e = cudaErrorInvalidDevice;
	if (e == cudaSuccess)
		e = rt_primary(d, &c);
	return e != cudaSuccess ? (CUresult)e : enable ? rt_drv.cuCtxEnablePeerAccess(c, flags) : rt_drv.cuCtxDisablePeerAccess(c);
}

RT_API cudaError_t cudaDeviceEnablePeerAccess(int d, unsigned flags) { RT(peer_access(d, flags, true)); }
RT_API cudaError_t cudaDeviceDisablePeerAccess(int d) { RT(peer_access(d, 0, false)); }
RT_API cudaError_t cudaDeviceGetPCIBusId(char *id, int n, int d) { RT(rt_drv.cuDeviceGetPCIBusId(id, n, d)); }
RT_API cudaError_t cudaDeviceGetByPCIBusId(int *d, const char *id) { RT(rt_drv.cuDeviceGetByPCIBusId(d, id)); }
RT_API cudaError_t cudaProfilerStart(void) { RT(CUDA_SUCCESS); }
RT_API cudaError_t cudaProfilerStop(void) { RT(CUDA_SUCCESS); }

RT_API cudaError_t cudaDeviceGetAttribute(int *v, enum cudaDeviceAttr a, int d)
{
	cudaError_t e = rt_load();

	return rt_result(e == cudaSuccess ? (cudaError_t)rt_drv.cuDeviceGetAttribute(v, (CUdevice_attribute)a, d) : e);
}

RT_API cudaError_t cudaDriverGetVersion(int *v)
{
	cudaError_t e = rt_load();

	*v = 0;
	return e == cudaSuccess ? (cudaError_t)rt_drv.cuDriverGetVersion(v) : cudaSuccess;
}

RT_API cudaError_t cudaRuntimeGetVersion(int *v)
{
	*v = CUDART_VERSION;
	return cudaSuccess;
}

static int get(CUdevice_attribute a, CUdevice d)
{
	int v = 0;

	rt_drv.cuDeviceGetAttribute(&v, a, d);
	return v;
}

RT_API cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int d)
{
	CUuuid uuid;
	cudaError_t e = rt_load();

	if (e == cudaSuccess)
		e = ordinal(d);
	if (e != cudaSuccess)
		return rt_result(e);
	memset(p, 0, sizeof *p);
	rt_drv.cuDeviceGetName(p->name, sizeof p->name, d);
	rt_drv.cuDeviceGetUuid(&uuid, d);
	memcpy(&p->uuid, &uuid, sizeof p->uuid);
	rt_drv.cuDeviceTotalMem(&p->totalGlobalMem, d);
#define A(x) get(CU_DEVICE_ATTRIBUTE_##x, d)
	p->sharedMemPerBlock = (size_t)A(MAX_SHARED_MEMORY_PER_BLOCK);
	p->regsPerBlock = A(MAX_REGISTERS_PER_BLOCK);
	p->warpSize = A(WARP_SIZE);
	p->memPitch = (size_t)A(MAX_PITCH);
	p->maxThreadsPerBlock = A(MAX_THREADS_PER_BLOCK);
	p->maxThreadsDim[0] = A(MAX_BLOCK_DIM_X);
	p->maxThreadsDim[1] = A(MAX_BLOCK_DIM_Y);
	p->maxThreadsDim[2] = A(MAX_BLOCK_DIM_Z);
	p->maxGridSize[0] = A(MAX_GRID_DIM_X);
	p->maxGridSize[1] = A(MAX_GRID_DIM_Y);
	p->maxGridSize[2] = A(MAX_GRID_DIM_Z);
	p->totalConstMem = (size_t)A(TOTAL_CONSTANT_MEMORY);
	p->major = A(COMPUTE_CAPABILITY_MAJOR);
	p->minor = A(COMPUTE_CAPABILITY_MINOR);
	p->textureAlignment = (size_t)A(TEXTURE_ALIGNMENT);
	p->texturePitchAlignment = (size_t)A(TEXTURE_PITCH_ALIGNMENT);
	p->multiProcessorCount = A(MULTIPROCESSOR_COUNT);
	p->canMapHostMemory = A(CAN_MAP_HOST_MEMORY);
	p->concurrentKernels = A(CONCURRENT_KERNELS);
	p->pciBusID = A(PCI_BUS_ID);
	p->asyncEngineCount = A(ASYNC_ENGINE_COUNT);
	p->unifiedAddressing = A(UNIFIED_ADDRESSING);
	p->memoryBusWidth = A(GLOBAL_MEMORY_BUS_WIDTH);
	p->l2CacheSize = A(L2_CACHE_SIZE);
	p->maxThreadsPerMultiProcessor = A(MAX_THREADS_PER_MULTIPROCESSOR);
	p->streamPrioritiesSupported = A(STREAM_PRIORITIES_SUPPORTED);
	p->globalL1CacheSupported = A(GLOBAL_L1_CACHE_SUPPORTED);
	p->localL1CacheSupported = A(LOCAL_L1_CACHE_SUPPORTED);
	p->sharedMemPerMultiprocessor = (size_t)A(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
	p->regsPerMultiprocessor = A(MAX_REGISTERS_PER_MULTIPROCESSOR);
	p->managedMemory = A(MANAGED_MEMORY);
	p->concurrentManagedAccess = A(CONCURRENT_MANAGED_ACCESS);
	p->computePreemptionSupported = A(COMPUTE_PREEMPTION_SUPPORTED);
	p->canUseHostPointerForRegisteredMem = A(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
	p->cooperativeLaunch = A(COOPERATIVE_LAUNCH);
	p->sharedMemPerBlockOptin = (size_t)A(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
	p->maxBlocksPerMultiProcessor = A(MAX_BLOCKS_PER_MULTIPROCESSOR);
	p->reservedSharedMemPerBlock = (size_t)A(RESERVED_SHARED_MEMORY_PER_BLOCK);
	p->hostRegisterSupported = A(HOST_REGISTER_SUPPORTED);
	p->memoryPoolsSupported = A(MEMORY_POOLS_SUPPORTED);
#undef A
	return cudaSuccess;
}
