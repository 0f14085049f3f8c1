/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation, pools and what is known about pointers. */
#include <string.h>

#include "runtime/rt.h"

#define BOTH(fn, params, call) \
	cudaError_t fn params; \
	RT_API cudaError_t fn params \
	{ \
		const struct rt_driver *d = &rt_drv; \
		RT(call); \
	} \
	cudaError_t fn##_ptsz params; \
	RT_API cudaError_t fn##_ptsz params \
	{ \
		const struct rt_driver *d = &rt_ptd; \
		RT(call); \
	}

static CUdeviceptr dev(const void *p)
{
	return (CUdeviceptr)(size_t)p;
}

RT_API cudaError_t cudaMalloc(void **p, size_t n)
{
	if (p && !n) {
		*p = NULL;
		RT(cudaSuccess);
	}
	RT(rt_drv.cuMemAlloc((CUdeviceptr *)p, n));
}

RT_API cudaError_t cudaFree(void *p) { RT(p ? rt_drv.cuMemFree(dev(p)) : CUDA_SUCCESS); }
RT_API cudaError_t cudaMallocPitch(void **p, size_t *pitch, size_t w, size_t h) { RT(rt_drv.cuMemAllocPitch((CUdeviceptr *)p, pitch, w, h, 4)); }
RT_API cudaError_t cudaMallocManaged(void **p, size_t n, unsigned flags) { RT(rt_drv.cuMemAllocManaged((CUdeviceptr *)p, n, flags)); }
RT_API cudaError_t cudaMallocHost(void **p, size_t n) { RT(rt_drv.cuMemAllocHost(p, n)); }
RT_API cudaError_t cudaHostAlloc(void **p, size_t n, unsigned flags) { RT(rt_drv.cuMemHostAlloc(p, n, flags)); }
RT_API cudaError_t cudaFreeHost(void *p) { RT(p ? rt_drv.cuMemFreeHost(p) : CUDA_SUCCESS); }
RT_API cudaError_t cudaHostRegister(void *p, size_t n, unsigned flags) { RT(rt_drv.cuMemHostRegister(p, n, flags)); }
RT_API cudaError_t cudaHostUnregister(void *p) { RT(rt_drv.cuMemHostUnregister(p)); }
RT_API cudaError_t cudaHostGetDevicePointer(void **d, void *h, unsigned flags) { RT(rt_drv.cuMemHostGetDevicePointer((CUdeviceptr *)d, h, flags)); }
RT_API cudaError_t cudaHostGetFlags(unsigned *flags, void *p) { RT(rt_drv.cuMemHostGetFlags(flags, p)); }
RT_API cudaError_t cudaMemGetInfo(size_t *f, size_t *t) { RT(rt_drv.cuMemGetInfo(f, t)); }

/* The driver's handles are the runtime's. */
RT_API cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *h, void *p) { RT(rt_drv.cuIpcGetMemHandle((CUipcMemHandle *)h, dev(p))); }
RT_API cudaError_t cudaIpcCloseMemHandle(void *p) { RT(rt_drv.cuIpcCloseMemHandle(dev(p))); }
RT_API cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *h, cudaEvent_t e) { RT(rt_drv.cuIpcGetEventHandle((CUipcEventHandle *)h, e)); }

RT_API cudaError_t cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t h, unsigned flags)
{
	CUipcMemHandle x;

	memcpy(&x, &h, sizeof x);
	RT(rt_drv.cuIpcOpenMemHandle((CUdeviceptr *)p, x, flags));
}

RT_API cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *e, cudaIpcEventHandle_t h)
{
	CUipcEventHandle x;

	memcpy(&x, &h, sizeof x);
	RT(rt_drv.cuIpcOpenEventHandle(e, x));
}

RT_API cudaError_t cudaMemAdvise(const void *p, size_t n, enum cudaMemoryAdvise a, struct cudaMemLocation l)
{
	CUmemLocation x = { .type = (CUmemLocationType)l.type, .id = l.id };

	RT(rt_drv.cuMemAdvise(dev(p), n, (CUmem_advise)a, x));
}

RT_API cudaError_t cudaMemPrefetchAsync(const void *p, size_t n, struct cudaMemLocation l, unsigned flags, cudaStream_t s)
{
	CUmemLocation x = { .type = (CUmemLocationType)l.type, .id = l.id };

	RT(rt_drv.cuMemPrefetchAsync(dev(p), n, x, flags, s));
}

RT_API cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p)
{
	unsigned type = 0, managed = 0;
	int ordinal = -2;
	CUdeviceptr d = 0;
	void *h = NULL;
	CUpointer_attribute what[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
				       CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER };
	void *out[] = { &type, &managed, &ordinal, &d, &h };
	cudaError_t e = rt_init();

	if (e == cudaSuccess)
		e = (cudaError_t)rt_drv.cuPointerGetAttributes(5, what, out, dev(p));
	if (e != cudaSuccess)
		return rt_result(e);
	memset(a, 0, sizeof *a);
	a->type = managed ? cudaMemoryTypeManaged : type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost :
		  type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
	a->device = ordinal;
	a->devicePointer = (void *)(size_t)d;
	a->hostPointer = a->type == cudaMemoryTypeUnregistered ? (void *)(size_t)p : h;
	return cudaSuccess;
}

BOTH(cudaMallocAsync, (void **p, size_t n, cudaStream_t s), d->cuMemAllocAsync((CUdeviceptr *)p, n, s))
BOTH(cudaMallocFromPoolAsync, (void **p, size_t n, cudaMemPool_t pool, cudaStream_t s), d->cuMemAllocFromPoolAsync((CUdeviceptr *)p, n, pool, s))
BOTH(cudaFreeAsync, (void *p, cudaStream_t s), d->cuMemFreeAsync(dev(p), s))

RT_API cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *p)
{
	CUmemPoolProps x = { .allocType = (CUmemAllocationType)p->allocType, .handleTypes = (CUmemAllocationHandleType)p->handleTypes,
			     .location = { .type = (CUmemLocationType)p->location.type, .id = p->location.id }, .maxSize = p->maxSize };

	RT(rt_drv.cuMemPoolCreate(pool, &x));
}

RT_API cudaError_t cudaMemPoolDestroy(cudaMemPool_t p) { RT(rt_drv.cuMemPoolDestroy(p)); }
RT_API cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t p, enum cudaMemPoolAttr a, void *v) { RT(rt_drv.cuMemPoolSetAttribute(p, (CUmemPool_attribute)a, v)); }
RT_API cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t p, enum cudaMemPoolAttr a, void *v) { RT(rt_drv.cuMemPoolGetAttribute(p, (CUmemPool_attribute)a, v)); }
RT_API cudaError_t cudaMemPoolTrimTo(cudaMemPool_t p, size_t n) { RT(rt_drv.cuMemPoolTrimTo(p, n)); }
RT_API cudaError_t cudaMemPoolSetAccess(cudaMemPool_t p, const struct cudaMemAccessDesc *a, size_t n) { RT(rt_drv.cuMemPoolSetAccess(p, (const CUmemAccessDesc *)a, n)); }
RT_API cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *p, int dv) { RT(rt_drv.cuDeviceGetDefaultMemPool(p, dv)); }
RT_API cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *p, int dv) { RT(rt_drv.cuDeviceGetMemPool(p, dv)); }
RT_API cudaError_t cudaDeviceSetMemPool(int dv, cudaMemPool_t p) { RT(rt_drv.cuDeviceSetMemPool(dv, p)); }
RT_API cudaError_t cudaDeviceGraphMemTrim(int dv) { RT(rt_drv.cuDeviceGraphMemTrim(dv)); }

RT_API cudaError_t cudaGetSymbolAddress(void **out, const void *symbol)
{
	CUdeviceptr va;
	size_t n;
	cudaError_t e = rt_init();

	if (e == cudaSuccess)
		e = rt_symbol_of(symbol, &va, &n);
	if (e == cudaSuccess)
		*out = (void *)(size_t)va;
	return rt_result(e);
}

RT_API cudaError_t cudaGetSymbolSize(size_t *out, const void *symbol)
{
	CUdeviceptr va;
	cudaError_t e = rt_init();

	if (e == cudaSuccess)
		e = rt_symbol_of(symbol, &va, out);
	return rt_result(e);
}
