/* SPDX-License-Identifier: Apache-2.0 */
/* The memory set calls; asynchronous to the host but for page-locked targets. */
#include "driver/sim.h"

static CUresult set(CUdeviceptr d, size_t pitch, uint32_t v, uint32_t element, size_t w, size_t h, CUstream sh, bool async)
{
	struct sim_work work = { .kind = SIM_WORK_MEMSET,
				 .u.set = { .dst = d, .pitch = pitch, .width = w, .height = h, .value = v, .element = element } };
	struct sim_rect r = { .dst = d, .src = d, .dst_pitch = pitch, .src_pitch = pitch, .width = w * element, .height = h, .depth = 1 };
	struct sim_stream *s;
	struct sim_op *op = NULL;

	SIM_ENTER();
	CUresult e = sim_stream_get(sh, &s);
	if (e == CUDA_SUCCESS && !async) {
		e = sim_capture_unsafe();
		if (e == CUDA_SUCCESS && s->capture) {
			sim_capture_invalidate(s->capture);
			e = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	}
	if (e == CUDA_SUCCESS && d % element)
		e = CUDA_ERROR_INVALID_VALUE;
	if (e == CUDA_SUCCESS && w && h)
		e = sim_copy_prepare(&r);
	if (e == CUDA_SUCCESS && w && h && r.dst_kind == SIM_PAGEABLE)
		e = CUDA_ERROR_INVALID_VALUE;
	if (e != CUDA_SUCCESS || !w || !h)
		return sim_return(e);
	e = sim_submit(s, &work, !async && r.dst_kind == SIM_PINNED ? &op : NULL);
	if (e == CUDA_SUCCESS && op) {
		sim_op_wait(op);
		sim_op_unref(op);
	}
	return sim_return(e);
}

#define SET(bits, type) \
	SIM_API CUresult cuMemsetD##bits##_v2(CUdeviceptr d, type v, size_t n) { return set(d, n * sizeof v, v, sizeof v, n, 1, CU_STREAM_LEGACY, false); } \
	SIM_API CUresult cuMemsetD##bits##_v2_ptds(CUdeviceptr d, type v, size_t n) { return set(d, n * sizeof v, v, sizeof v, n, 1, CU_STREAM_PER_THREAD, false); } \
	SIM_API CUresult cuMemsetD##bits##Async(CUdeviceptr d, type v, size_t n, CUstream s) { return set(d, n * sizeof v, v, sizeof v, n, 1, SIM_LEGACY(s), true); } \
	SIM_API CUresult cuMemsetD##bits##Async_ptsz(CUdeviceptr d, type v, size_t n, CUstream s) { return set(d, n * sizeof v, v, sizeof v, n, 1, SIM_PTDS(s), true); } \
	SIM_API CUresult cuMemsetD2D##bits##_v2(CUdeviceptr d, size_t p, type v, size_t w, size_t h) { return set(d, p, v, sizeof v, w, h, CU_STREAM_LEGACY, false); } \
	SIM_API CUresult cuMemsetD2D##bits##_v2_ptds(CUdeviceptr d, size_t p, type v, size_t w, size_t h) { return set(d, p, v, sizeof v, w, h, CU_STREAM_PER_THREAD, false); } \
	SIM_API CUresult cuMemsetD2D##bits##Async(CUdeviceptr d, size_t p, type v, size_t w, size_t h, CUstream s) { return set(d, p, v, sizeof v, w, h, SIM_LEGACY(s), true); } \
	SIM_API CUresult cuMemsetD2D##bits##Async_ptsz(CUdeviceptr d, size_t p, type v, size_t w, size_t h, CUstream s) { return set(d, p, v, sizeof v, w, h, SIM_PTDS(s), true); }
SET(8, unsigned char)
SET(16, unsigned short)
SET(32, unsigned int)
