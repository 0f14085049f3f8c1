/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and sets: the kind picks the driver's call. */
#include "runtime/rt.h"

static CUdeviceptr dev(const void *p)
{
	return (CUdeviceptr)(size_t)p;
}

static CUresult copy(const struct rt_driver *d, void *to, const void *from, size_t n, enum cudaMemcpyKind k)
{
	if (!n)
		return CUDA_SUCCESS;
	switch (k) {
	case cudaMemcpyHostToDevice: return d->cuMemcpyHtoD(dev(to), from, n);
	case cudaMemcpyDeviceToHost: return d->cuMemcpyDtoH(to, dev(from), n);
	case cudaMemcpyDeviceToDevice: return d->cuMemcpyDtoD(dev(to), dev(from), n);
	case cudaMemcpyHostToHost:
	case cudaMemcpyDefault: return d->cuMemcpy(dev(to), dev(from), n);
	default: return (CUresult)cudaErrorInvalidMemcpyDirection;
	}
}

static CUresult copy_async(const struct rt_driver *d, void *to, const void *from, size_t n, enum cudaMemcpyKind k, cudaStream_t s)
{
	if (!n)
		return CUDA_SUCCESS;
	switch (k) {
	case cudaMemcpyHostToDevice: return d->cuMemcpyHtoDAsync(dev(to), from, n, s);
	case cudaMemcpyDeviceToHost: return d->cuMemcpyDtoHAsync(to, dev(from), n, s);
	case cudaMemcpyDeviceToDevice: return d->cuMemcpyDtoDAsync(dev(to), dev(from), n, s);
	case cudaMemcpyHostToHost:
	case cudaMemcpyDefault: return d->cuMemcpyAsync(dev(to), dev(from), n, s);
	default: return (CUresult)cudaErrorInvalidMemcpyDirection;
	}
}

#define BOTH(fn, twin, params, call) \
	cudaError_t fn params; \
	RT_API cudaError_t fn params \
	{ \
		const struct rt_driver *d = &rt_drv; \
		RT(call); \
	} \
	cudaError_t fn##twin params; \
	RT_API cudaError_t fn##twin params \
	{ \
		const struct rt_driver *d = &rt_ptd; \
		RT(call); \
	}

BOTH(cudaMemcpy, _ptds, (void *to, const void *from, size_t n, enum cudaMemcpyKind k), copy(d, to, from, n, k))
BOTH(cudaMemcpyAsync, _ptsz, (void *to, const void *from, size_t n, enum cudaMemcpyKind k, cudaStream_t s), copy_async(d, to, from, n, k, s))

static CUresult to_symbol(const struct rt_driver *d, const void *symbol, const void *from, size_t n, size_t offset, enum cudaMemcpyKind k,
			  cudaStream_t s, bool async)
{
	CUdeviceptr va;
	size_t size;
	cudaError_t e = rt_symbol_of(symbol, &va, &size);

	if (e == cudaSuccess && (offset > size || n > size - offset))
		e = cudaErrorInvalidValue;
	if (e != cudaSuccess)
		return (CUresult)e;
	void *to = (void *)(size_t)(va + offset);
	return async ? copy_async(d, to, from, n, k, s) : copy(d, to, from, n, k);
}

static CUresult from_symbol(const struct rt_driver *d, void *to, const void *symbol, size_t n, size_t offset, enum cudaMemcpyKind k,
			    cudaStream_t s, bool async)
{
	CUdeviceptr va;
	size_t size;
	cudaError_t e = rt_symbol_of(symbol, &va, &size);

	if (e == cudaSuccess && (offset > size || n > size - offset))
		e = cudaErrorInvalidValue;
	if (e != cudaSuccess)
		return (CUresult)e;
	const void *from = (const void *)(size_t)(va + offset);
	return async ? copy_async(d, to, from, n, k, s) : copy(d, to, from, n, k);
}

BOTH(cudaMemcpyToSymbol, _ptds, (const void *y, const void *from, size_t n, size_t o, enum cudaMemcpyKind k), to_symbol(d, y, from, n, o, k, NULL, false))
BOTH(cudaMemcpyToSymbolAsync, _ptsz, (const void *y, const void *from, size_t n, size_t o, enum cudaMemcpyKind k, cudaStream_t s), to_symbol(d, y, from, n, o, k, s, true))
BOTH(cudaMemcpyFromSymbol, _ptds, (void *to, const void *y, size_t n, size_t o, enum cudaMemcpyKind k), from_symbol(d, to, y, n, o, k, NULL, false))
BOTH(cudaMemcpyFromSymbolAsync, _ptsz, (void *to, const void *y, size_t n, size_t o, enum cudaMemcpyKind k, cudaStream_t s), from_symbol(d, to, y, n, o, k, s, true))

static CUDA_MEMCPY2D rect(void *to, size_t tp, const void *from, size_t fp, size_t w, size_t h)
{
	return (CUDA_MEMCPY2D){ .srcMemoryType = CU_MEMORYTYPE_UNIFIED, .srcDevice = dev(from), .srcPitch = fp,
				.dstMemoryType = CU_MEMORYTYPE_UNIFIED, .dstDevice = dev(to), .dstPitch = tp, .WidthInBytes = w, .Height = h };
}

static CUresult copy_2d(const struct rt_driver *d, void *to, size_t tp, const void *from, size_t fp, size_t w, size_t h)
{
	CUDA_MEMCPY2D c = rect(to, tp, from, fp, w, h);

	return d->cuMemcpy2DUnaligned(&c);
}

static CUresult copy_2d_async(const struct rt_driver *d, void *to, size_t tp, const void *from, size_t fp, size_t w, size_t h, cudaStream_t s)
{
	CUDA_MEMCPY2D c = rect(to, tp, from, fp, w, h);

	return d->cuMemcpy2DAsync(&c, s);
}

BOTH(cudaMemcpy2D, _ptds, (void *to, size_t tp, const void *from, size_t fp, size_t w, size_t h, enum cudaMemcpyKind k), ((void)k, copy_2d(d, to, tp, from, fp, w, h)))
BOTH(cudaMemcpy2DAsync, _ptsz, (void *to, size_t tp, const void *from, size_t fp, size_t w, size_t h, enum cudaMemcpyKind k, cudaStream_t s), ((void)k, copy_2d_async(d, to, tp, from, fp, w, h, s)))

RT_API cudaError_t cudaMemcpyPeer(void *to, int td, const void *from, int fd, size_t n)
{
	CUcontext a = NULL, b = NULL;
	cudaError_t e = rt_init();

	if (e == cudaSuccess)
		e = rt_primary(td, &a);
	if (e == cudaSuccess)
		e = rt_primary(fd, &b);
	return rt_result(e == cudaSuccess ? (cudaError_t)rt_drv.cuMemcpyPeer(dev(to), a, dev(from), b, n) : e);
}

RT_API cudaError_t cudaMemcpyPeerAsync(void *to, int td, const void *from, int fd, size_t n, cudaStream_t s)
{
	CUcontext a = NULL, b = NULL;
	cudaError_t e = rt_init();

	if (e == cudaSuccess)
		e = rt_primary(td, &a);
	if (e == cudaSuccess)
		e = rt_primary(fd, &b);
	return rt_result(e == cudaSuccess ? (cudaError_t)rt_drv.cuMemcpyPeerAsync(dev(to), a, dev(from), b, n, s) : e);
}

BOTH(cudaMemset, _ptds, (void *p, int v, size_t n), d->cuMemsetD8(dev(p), (unsigned char)v, n))
BOTH(cudaMemsetAsync, _ptsz, (void *p, int v, size_t n, cudaStream_t s), d->cuMemsetD8Async(dev(p), (unsigned char)v, n, s))
BOTH(cudaMemset2D, _ptds, (void *p, size_t pitch, int v, size_t w, size_t h), d->cuMemsetD2D8(dev(p), pitch, (unsigned char)v, w, h))
BOTH(cudaMemset2DAsync, _ptsz, (void *p, size_t pitch, int v, size_t w, size_t h, cudaStream_t s), d->cuMemsetD2D8Async(dev(p), pitch, (unsigned char)v, w, h, s))

/* Linear memory only; x counts bytes there. */
static CUDA_MEMCPY3D box(const struct cudaMemcpy3DParms *p)
{
	return (CUDA_MEMCPY3D){ .srcMemoryType = CU_MEMORYTYPE_UNIFIED, .srcDevice = dev(p->srcPtr.ptr), .srcPitch = p->srcPtr.pitch,
				.srcHeight = p->srcPtr.ysize, .srcXInBytes = p->srcPos.x, .srcY = p->srcPos.y, .srcZ = p->srcPos.z,
				.dstMemoryType = CU_MEMORYTYPE_UNIFIED, .dstDevice = dev(p->dstPtr.ptr), .dstPitch = p->dstPtr.pitch,
				.dstHeight = p->dstPtr.ysize, .dstXInBytes = p->dstPos.x, .dstY = p->dstPos.y, .dstZ = p->dstPos.z,
				.WidthInBytes = p->extent.width, .Height = p->extent.height, .Depth = p->extent.depth };
}

static CUresult copy_3d(const struct rt_driver *d, const struct cudaMemcpy3DParms *p)
{
	CUDA_MEMCPY3D c = box(p);

	return p->srcArray || p->dstArray ? CUDA_ERROR_NOT_SUPPORTED : d->cuMemcpy3D(&c);
}

static CUresult copy_3d_async(const struct rt_driver *d, const struct cudaMemcpy3DParms *p, cudaStream_t s)
{
	CUDA_MEMCPY3D c = box(p);

	return p->srcArray || p->dstArray ? CUDA_ERROR_NOT_SUPPORTED : d->cuMemcpy3DAsync(&c, s);
}

BOTH(cudaMemcpy3D, _ptds, (const struct cudaMemcpy3DParms *p), copy_3d(d, p))
BOTH(cudaMemcpy3DAsync, _ptsz, (const struct cudaMemcpy3DParms *p, cudaStream_t s), copy_3d_async(d, p, s))
