/* SPDX-License-Identifier: Apache-2.0 */
/* Stream memory operations: waiting for a value in memory, and writing one. */
#include "driver/sim.h"

static CUresult value_work(bool wait, bool wide, CUdeviceptr va, uint64_t v, unsigned flags, struct sim_work *w)
{
	CUresult r = sim_settings.no_memops ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;

	*w = (struct sim_work){ .kind = wait ? SIM_WORK_WAIT_VALUE : SIM_WORK_WRITE_VALUE,
				.u.value = { .address = va, .value = v, .flags = flags, .wide = wide } };
	if (r == CUDA_SUCCESS && (!va || va % (wide ? 8 : 4)))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS && !sim_is_device_va(va) && !sim_is_pinned((void *)(uintptr_t)va, wide ? 8 : 4))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS && wait && (flags & ~(CU_STREAM_WAIT_VALUE_FLUSH | 3u)))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS && wait && (flags & CU_STREAM_WAIT_VALUE_FLUSH))
		r = CUDA_ERROR_NOT_SUPPORTED;
	if (r == CUDA_SUCCESS && !wait && (flags & ~CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER))
		r = CUDA_ERROR_INVALID_VALUE;
	return r;
}

static CUresult value(CUstream h, bool wait, bool wide, CUdeviceptr va, uint64_t v, unsigned flags)
{
	struct sim_stream *s;
	struct sim_work w;

	SIM_ENTER();
	CUresult r = value_work(wait, wide, va, v, flags, &w);
	if (r == CUDA_SUCCESS)
		r = sim_stream_get(h, &s);
	return sim_return(r == CUDA_SUCCESS ? sim_submit(s, &w, NULL) : r);
}

#define FAMILY(name, wait, bits, wide) \
	SIM_API CUresult name##bits(CUstream s, CUdeviceptr va, cuuint##bits##_t v, unsigned f) { return value(SIM_LEGACY(s), wait, wide, va, v, f); } \
	SIM_API CUresult name##bits##_ptsz(CUstream s, CUdeviceptr va, cuuint##bits##_t v, unsigned f) { return value(SIM_PTDS(s), wait, wide, va, v, f); } \
	SIM_API CUresult name##bits##_v2(CUstream s, CUdeviceptr va, cuuint##bits##_t v, unsigned f) { return value(SIM_LEGACY(s), wait, wide, va, v, f); } \
	SIM_API CUresult name##bits##_v2_ptsz(CUstream s, CUdeviceptr va, cuuint##bits##_t v, unsigned f) { return value(SIM_PTDS(s), wait, wide, va, v, f); }
FAMILY(cuStreamWaitValue, true, 32, false)
FAMILY(cuStreamWaitValue, true, 64, true)
FAMILY(cuStreamWriteValue, false, 32, false)
FAMILY(cuStreamWriteValue, false, 64, true)

static CUresult batch(CUstream h, unsigned n, CUstreamBatchMemOpParams *p, unsigned flags)
{
	CUresult r = sim_settings.no_memops ? CUDA_ERROR_NOT_SUPPORTED : n && p && !flags && n <= 256 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

	for (unsigned i = 0; i < n && r == CUDA_SUCCESS; i++)
		switch (p[i].operation) {
		case CU_STREAM_MEM_OP_WAIT_VALUE_32:
			r = value(h, true, false, p[i].waitValue.address, p[i].waitValue.value, p[i].waitValue.flags);
			break;
		case CU_STREAM_MEM_OP_WAIT_VALUE_64:
			r = value(h, true, true, p[i].waitValue.address, p[i].waitValue.value64, p[i].waitValue.flags);
			break;
		case CU_STREAM_MEM_OP_WRITE_VALUE_32:
			r = value(h, false, false, p[i].writeValue.address, p[i].writeValue.value, p[i].writeValue.flags);
			break;
		case CU_STREAM_MEM_OP_WRITE_VALUE_64:
			r = value(h, false, true, p[i].writeValue.address, p[i].writeValue.value64, p[i].writeValue.flags);
			break;
		case CU_STREAM_MEM_OP_BARRIER:
			break;
		default:
			r = CUDA_ERROR_NOT_SUPPORTED;
			break;
		}
	return r;
}

SIM_API CUresult cuStreamBatchMemOp(CUstream s, unsigned n, CUstreamBatchMemOpParams *p, unsigned f) { return batch(SIM_LEGACY(s), n, p, f); }
SIM_API CUresult cuStreamBatchMemOp_ptsz(CUstream s, unsigned n, CUstreamBatchMemOpParams *p, unsigned f) { return batch(SIM_PTDS(s), n, p, f); }
SIM_API CUresult cuStreamBatchMemOp_v2(CUstream s, unsigned n, CUstreamBatchMemOpParams *p, unsigned f) { return batch(SIM_LEGACY(s), n, p, f); }
SIM_API CUresult cuStreamBatchMemOp_v2_ptsz(CUstream s, unsigned n, CUstreamBatchMemOpParams *p, unsigned f) { return batch(SIM_PTDS(s), n, p, f); }

CUresult sim_memop_work(const CUstreamBatchMemOpParams *o, struct sim_work *w)
{
	switch (o->operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
		return value_work(true, false, o->waitValue.address, o->waitValue.value, o->waitValue.flags, w);
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		return value_work(true, true, o->waitValue.address, o->waitValue.value64, o->waitValue.flags, w);
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
		return value_work(false, false, o->writeValue.address, o->writeValue.value, o->writeValue.flags, w);
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		return value_work(false, true, o->writeValue.address, o->writeValue.value64, o->writeValue.flags, w);
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}
