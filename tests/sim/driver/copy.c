/* SPDX-License-Identifier: Apache-2.0 */
/* The memory copy calls: what each waits for, and what it takes from the host before it returns. */
#include <stdlib.h>
#include <string.h>

#include "driver/sim.h"

/* Bytes that a copy from pageable memory leaves in the driver's buffer (CUDA driver API, API synchronization behavior). */
#define STAGED 65536

static CUresult sync_allowed(struct sim_stream *s)
{
	CUresult r = sim_capture_unsafe();

	if (r == CUDA_SUCCESS && s->capture) {
		sim_capture_invalidate(s->capture);
		r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return r == CUDA_SUCCESS ? sim_capture_implicit(s) : r;
}

/* Pageable memory is read before the call returns, as through the driver's staging buffer. */
static char *stage(struct sim_rect *r)
{
	char *b = malloc(r->width * r->height * r->depth + 1), *to = b;

	if (!b)
		return NULL;
	for (uint64_t z = 0; z < r->depth; z++)
		for (uint64_t y = 0; y < r->height; y++, to += r->width)
			memcpy(to, (char *)(uintptr_t)(r->src + z * r->src_slice + y * r->src_pitch), r->width);
	r->src = (uint64_t)(uintptr_t)b;
	r->src_pitch = r->width;
	r->src_slice = r->width * r->height;
	r->src_kind = SIM_PINNED;
	return b;
}

static bool sync_memops(uint64_t va)
{
	struct sim_alloc *a = sim_alloc_find(va);

	return a && a->sync_memops;
}

CUresult sim_copy_call(struct sim_rect *r, CUstream h, bool async)
{
	struct sim_work w = { .kind = SIM_WORK_COPY };
	struct sim_stream *s;
	struct sim_op *op = NULL;

	SIM_ENTER();
	CUresult e = sim_stream_get(h, &s);
	if (e == CUDA_SUCCESS && !async)
		e = sync_allowed(s);
	if (e == CUDA_SUCCESS)
		e = sim_copy_prepare(r);
	if (e != CUDA_SUCCESS || !r->width || !r->height || !r->depth)
		return sim_return(e);
	if (s->capture) {
		w.u.copy.rect = *r;
		return sim_return(sim_submit(s, &w, NULL));
	}
	bool to_host = r->dst_kind != SIM_DEVICE, from_host = r->src_kind != SIM_DEVICE;
	bool wait = async ? r->dst_kind == SIM_PAGEABLE || (to_host && from_host) : to_host || from_host;
	wait = wait || (async && (sync_memops(r->dst) || sync_memops(r->src)));
	char *staging = NULL;
	const bool pageable = (r->src_kind == SIM_PAGEABLE || r->dst_kind == SIM_PAGEABLE) && !(to_host && from_host);
	const bool holds = pageable && !sim_settings.helpful_pageable;
	const int device = s->ctx->device;
	/* What the driver's buffer does not take at once goes through it when the stream has come so far. */
	if (async && holds && from_host && r->width * r->height * r->depth > STAGED && s->last && !s->last->done) {
		sim_hold(device);
		if (s->last)
			sim_op_wait(s->last);
		sim_let_go(device);
	}
	if (async && r->src_kind == SIM_PAGEABLE && !to_host) {
		/* The copy into the staging buffer is the host's own time. */
		sim_leave();
		staging = stage(r);
		if (!staging)
			return CUDA_ERROR_OUT_OF_MEMORY;
		e = sim_enter();
		if (e != CUDA_SUCCESS) {
			free(staging);
			return e;
		}
	}
	w.u.copy.rect = *r;
	w.u.copy.staging = staging;
	e = sim_submit(s, &w, wait ? &op : NULL);
	if (e == CUDA_SUCCESS && op) {
		if (holds)
			sim_hold(device);
		sim_op_wait(op);
		if (holds)
			sim_let_go(device);
		sim_op_unref(op);
		e = sim_sticky();
	}
	return sim_return(e);
}

static CUresult linear(uint64_t dst, uint64_t src, size_t n, CUstream h, bool async, bool need_dst, bool need_src)
{
	struct sim_rect r = { .dst = dst, .src = src, .dst_pitch = n, .src_pitch = n, .width = n, .height = 1, .depth = 1,
			      .need_dst = need_dst, .need_src = need_src };

	return sim_copy_call(&r, h, async);
}

static uint64_t u(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

#define LS CU_STREAM_LEGACY
#define PS CU_STREAM_PER_THREAD
SIM_API CUresult cuMemcpy(CUdeviceptr d, CUdeviceptr s, size_t n) { return linear(d, s, n, LS, false, false, false); }
SIM_API CUresult cuMemcpy_ptds(CUdeviceptr d, CUdeviceptr s, size_t n) { return linear(d, s, n, PS, false, false, false); }
SIM_API CUresult cuMemcpyAsync(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream h) { return linear(d, s, n, SIM_LEGACY(h), true, false, false); }
SIM_API CUresult cuMemcpyAsync_ptsz(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream h) { return linear(d, s, n, SIM_PTDS(h), true, false, false); }
SIM_API CUresult cuMemcpyHtoD_v2(CUdeviceptr d, const void *s, size_t n) { return linear(d, u(s), n, LS, false, true, false); }
SIM_API CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr d, const void *s, size_t n) { return linear(d, u(s), n, PS, false, true, false); }
SIM_API CUresult cuMemcpyDtoH_v2(void *d, CUdeviceptr s, size_t n) { return linear(u(d), s, n, LS, false, false, true); }
SIM_API CUresult cuMemcpyDtoH_v2_ptds(void *d, CUdeviceptr s, size_t n) { return linear(u(d), s, n, PS, false, false, true); }
SIM_API CUresult cuMemcpyDtoD_v2(CUdeviceptr d, CUdeviceptr s, size_t n) { return linear(d, s, n, LS, false, true, true); }
SIM_API CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr d, CUdeviceptr s, size_t n) { return linear(d, s, n, PS, false, true, true); }
SIM_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr d, const void *s, size_t n, CUstream h) { return linear(d, u(s), n, SIM_LEGACY(h), true, true, false); }
SIM_API CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr d, const void *s, size_t n, CUstream h) { return linear(d, u(s), n, SIM_PTDS(h), true, true, false); }
SIM_API CUresult cuMemcpyDtoHAsync_v2(void *d, CUdeviceptr s, size_t n, CUstream h) { return linear(u(d), s, n, SIM_LEGACY(h), true, false, true); }
SIM_API CUresult cuMemcpyDtoHAsync_v2_ptsz(void *d, CUdeviceptr s, size_t n, CUstream h) { return linear(u(d), s, n, SIM_PTDS(h), true, false, true); }
SIM_API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream h) { return linear(d, s, n, SIM_LEGACY(h), true, true, true); }
SIM_API CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream h) { return linear(d, s, n, SIM_PTDS(h), true, true, true); }

static CUresult peer(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream h, bool async)
{
	return linear(d, s, n, h, async, true, true);
}

SIM_API CUresult cuMemcpyPeer(CUdeviceptr d, CUcontext dc, CUdeviceptr s, CUcontext sc, size_t n)
{
	(void)dc, (void)sc;
	return peer(d, s, n, LS, false);
}

SIM_API CUresult cuMemcpyPeer_ptds(CUdeviceptr d, CUcontext dc, CUdeviceptr s, CUcontext sc, size_t n)
{
	(void)dc, (void)sc;
	return peer(d, s, n, PS, false);
}

SIM_API CUresult cuMemcpyPeerAsync(CUdeviceptr d, CUcontext dc, CUdeviceptr s, CUcontext sc, size_t n, CUstream h)
{
	(void)dc, (void)sc;
	return peer(d, s, n, SIM_LEGACY(h), true);
}

SIM_API CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr d, CUcontext dc, CUdeviceptr s, CUcontext sc, size_t n, CUstream h)
{
	(void)dc, (void)sc;
	return peer(d, s, n, SIM_PTDS(h), true);
}

static uint64_t base_of(CUmemorytype type, const void *host, CUdeviceptr dev)
{
	return type == CU_MEMORYTYPE_HOST ? u(host) : dev;
}

static CUresult rect_2d(const CUDA_MEMCPY2D *c, CUstream h, bool async)
{
	if (!c || c->srcMemoryType == CU_MEMORYTYPE_ARRAY || c->dstMemoryType == CU_MEMORYTYPE_ARRAY)
		return c ? sim_unsupported("cuMemcpy2D with arrays") : CUDA_ERROR_INVALID_VALUE;
	struct sim_rect r = {
		.dst_pitch = c->dstPitch ? c->dstPitch : c->WidthInBytes,
		.src_pitch = c->srcPitch ? c->srcPitch : c->WidthInBytes,
		.width = c->WidthInBytes, .height = c->Height, .depth = 1,
	};
	r.dst = base_of(c->dstMemoryType, c->dstHost, c->dstDevice) + c->dstY * r.dst_pitch + c->dstXInBytes;
	r.src = base_of(c->srcMemoryType, c->srcHost, c->srcDevice) + c->srcY * r.src_pitch + c->srcXInBytes;
	return sim_copy_call(&r, h, async);
}

SIM_API CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *c) { return rect_2d(c, LS, false); }
SIM_API CUresult cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D *c) { return rect_2d(c, PS, false); }
SIM_API CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *c) { return rect_2d(c, LS, false); }
SIM_API CUresult cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D *c) { return rect_2d(c, PS, false); }
SIM_API CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *c, CUstream h) { return rect_2d(c, SIM_LEGACY(h), true); }
SIM_API CUresult cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D *c, CUstream h) { return rect_2d(c, SIM_PTDS(h), true); }

static CUresult rect_3d(const CUDA_MEMCPY3D *c, CUstream h, bool async)
{
	if (!c || c->srcMemoryType == CU_MEMORYTYPE_ARRAY || c->dstMemoryType == CU_MEMORYTYPE_ARRAY)
		return c ? sim_unsupported("cuMemcpy3D with arrays") : CUDA_ERROR_INVALID_VALUE;
	struct sim_rect r = {
		.dst_pitch = c->dstPitch ? c->dstPitch : c->WidthInBytes,
		.src_pitch = c->srcPitch ? c->srcPitch : c->WidthInBytes,
		.width = c->WidthInBytes, .height = c->Height, .depth = c->Depth,
	};
	r.dst_slice = r.dst_pitch * (c->dstHeight ? c->dstHeight : c->Height);
	r.src_slice = r.src_pitch * (c->srcHeight ? c->srcHeight : c->Height);
	r.dst = base_of(c->dstMemoryType, c->dstHost, c->dstDevice) + c->dstZ * r.dst_slice + c->dstY * r.dst_pitch + c->dstXInBytes;
	r.src = base_of(c->srcMemoryType, c->srcHost, c->srcDevice) + c->srcZ * r.src_slice + c->srcY * r.src_pitch + c->srcXInBytes;
	return sim_copy_call(&r, h, async);
}

SIM_API CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *c) { return rect_3d(c, LS, false); }
SIM_API CUresult cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D *c) { return rect_3d(c, PS, false); }
SIM_API CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *c, CUstream h) { return rect_3d(c, SIM_LEGACY(h), true); }
SIM_API CUresult cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D *c, CUstream h) { return rect_3d(c, SIM_PTDS(h), true); }

static CUresult batch(CUdeviceptr *dst, CUdeviceptr *src, size_t *n, size_t count, CUstream h)
{
	if (!dst || !src || !n || !count || h == LS || h == PS)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		CUresult r = linear(dst[i], src[i], n[i], h, true, false, false);

		if (r != CUDA_SUCCESS)
			return r;
	}
	return CUDA_SUCCESS;
}

SIM_API CUresult cuMemcpyBatchAsync(CUdeviceptr *dst, CUdeviceptr *src, size_t *n, size_t count, CUmemcpyAttributes *a,
				    size_t *index, size_t na, size_t *fail, CUstream h)
{
	(void)a, (void)index, (void)na;
	CUresult r = batch(dst, src, n, count, SIM_LEGACY(h));
	if (r != CUDA_SUCCESS && fail)
		*fail = SIZE_MAX;
	return r;
}

SIM_API CUresult cuMemcpyBatchAsync_ptsz(CUdeviceptr *dst, CUdeviceptr *src, size_t *n, size_t count, CUmemcpyAttributes *a,
					 size_t *index, size_t na, size_t *fail, CUstream h)
{
	return cuMemcpyBatchAsync(dst, src, n, count, a, index, na, fail, h);
}

SIM_API CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dst, CUdeviceptr *src, size_t *n, size_t count, CUmemcpyAttributes *a,
				       size_t *index, size_t na, CUstream h)
{
	(void)a, (void)index, (void)na;
	return batch(dst, src, n, count, SIM_LEGACY(h));
}

SIM_API CUresult cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr *dst, CUdeviceptr *src, size_t *n, size_t count, CUmemcpyAttributes *a,
					    size_t *index, size_t na, CUstream h)
{
	(void)a, (void)index, (void)na;
	return batch(dst, src, n, count, SIM_PTDS(h));
}
