/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of memory sets. */
#include "config.h"

#include "hooks/cuda_driver.h"
#include "hooks/cuda_graph.h"

struct set {
	struct tpck_thread *self; /* NULL: nothing is followed */
	struct tpck_call call;
};

/* Around a real call: whether it is to be made. The value is part of the token's size word, so that another value is another operation. */
static bool begins(struct set *set, CUdeviceptr at, size_t bytes, uint32_t value, CUstream stream)
{
	set->self = tpck_engine_enter();
	set->call = (struct tpck_call){.stream = stream, .token = {.op = TPCK_OP_MEMSET, .bytes = bytes, .grid = {value}}, .places = {at}};
	if (!set->self)
		return true;
	tpck_cuda_context_seen();
	tpck_cuda_graph_node(&set->call);
	return tpck_engine_before(set->self, &set->call) == TPCK_GO_RUN;
}

static CUresult ends(struct set *set, CUresult result)
{
	if (!set->self)
		return result;
	tpck_engine_after(set->self, &set->call);
	tpck_engine_leave(set->self);
	return result;
}

CUresult tpck_hook_cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
	struct set set;

	return ends(&set, begins(&set, dstDevice, N, uc, NULL) ? TPCK_CALL(cuMemsetD8_v2, dstDevice, uc, N) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemsetD8_v2_ptds(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
	struct set set;

	return ends(&set, begins(&set, dstDevice, N, uc, CU_STREAM_PER_THREAD) ? TPCK_CALL(cuMemsetD8_v2_ptds, dstDevice, uc, N) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
	struct set set;

	return ends(&set, begins(&set, dstDevice, N * 2, us, NULL) ? TPCK_CALL(cuMemsetD16_v2, dstDevice, us, N) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemsetD16_v2_ptds(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
	struct set set;

	return ends(&set, begins(&set, dstDevice, N * 2, us, CU_STREAM_PER_THREAD) ? TPCK_CALL(cuMemsetD16_v2_ptds, dstDevice, us, N) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
	struct set set;

	return ends(&set, begins(&set, dstDevice, N * 4, ui, NULL) ? TPCK_CALL(cuMemsetD32_v2, dstDevice, ui, N) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemsetD32_v2_ptds(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
	struct set set;

	return ends(&set, begins(&set, dstDevice, N * 4, ui, CU_STREAM_PER_THREAD) ? TPCK_CALL(cuMemsetD32_v2_ptds, dstDevice, ui, N) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)
{
	struct set set;

	return ends(&set, begins(&set, dstDevice, N, uc, hStream) ? TPCK_CALL(cuMemsetD8Async, dstDevice, uc, N, hStream) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemsetD8Async_ptsz(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)
{
	return tpck_hook_cuMemsetD8Async(dstDevice, uc, N, tpck_per_thread(hStream));
}

CUresult tpck_hook_cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream)
{
	struct set set;

	return ends(&set, begins(&set, dstDevice, N * 2, us, hStream) ? TPCK_CALL(cuMemsetD16Async, dstDevice, us, N, hStream) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemsetD16Async_ptsz(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream)
{
	return tpck_hook_cuMemsetD16Async(dstDevice, us, N, tpck_per_thread(hStream));
}

CUresult tpck_hook_cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream)
{
	struct set set;

	return ends(&set, begins(&set, dstDevice, N * 4, ui, hStream) ? TPCK_CALL(cuMemsetD32Async, dstDevice, ui, N, hStream) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemsetD32Async_ptsz(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream)
{
	return tpck_hook_cuMemsetD32Async(dstDevice, ui, N, tpck_per_thread(hStream));
}

CUresult tpck_hook_cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height)
{
	struct set set;

	return ends(&set, begins(&set, dstDevice, Width * Height, uc, NULL)
			? TPCK_CALL(cuMemsetD2D8_v2, dstDevice, dstPitch, uc, Width, Height) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemsetD2D8_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height)
{
	struct set set;

	return ends(&set, begins(&set, dstDevice, Width * Height, uc, CU_STREAM_PER_THREAD)
			? TPCK_CALL(cuMemsetD2D8_v2_ptds, dstDevice, dstPitch, uc, Width, Height) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height)
{
	struct set set;

	return ends(&set, begins(&set, dstDevice, Width * Height * 2, us, NULL)
			? TPCK_CALL(cuMemsetD2D16_v2, dstDevice, dstPitch, us, Width, Height) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemsetD2D16_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height)
{
	struct set set;

	return ends(&set, begins(&set, dstDevice, Width * Height * 2, us, CU_STREAM_PER_THREAD)
			? TPCK_CALL(cuMemsetD2D16_v2_ptds, dstDevice, dstPitch, us, Width, Height) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height)
{
	struct set set;

	return ends(&set, begins(&set, dstDevice, Width * Height * 4, ui, NULL)
			? TPCK_CALL(cuMemsetD2D32_v2, dstDevice, dstPitch, ui, Width, Height) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemsetD2D32_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height)
{
	struct set set;

	return ends(&set, begins(&set, dstDevice, Width * Height * 4, ui, CU_STREAM_PER_THREAD)
			? TPCK_CALL(cuMemsetD2D32_v2_ptds, dstDevice, dstPitch, ui, Width, Height) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height, CUstream hStream)
{
	struct set set;

	return ends(&set, begins(&set, dstDevice, Width * Height, uc, hStream)
			? TPCK_CALL(cuMemsetD2D8Async, dstDevice, dstPitch, uc, Width, Height, hStream) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemsetD2D8Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height, CUstream hStream)
{
	return tpck_hook_cuMemsetD2D8Async(dstDevice, dstPitch, uc, Width, Height, tpck_per_thread(hStream));
}

CUresult tpck_hook_cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height, CUstream hStream)
{
	struct set set;

	return ends(&set, begins(&set, dstDevice, Width * Height * 2, us, hStream)
			? TPCK_CALL(cuMemsetD2D16Async, dstDevice, dstPitch, us, Width, Height, hStream) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemsetD2D16Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height, CUstream hStream)
{
	return tpck_hook_cuMemsetD2D16Async(dstDevice, dstPitch, us, Width, Height, tpck_per_thread(hStream));
}

CUresult tpck_hook_cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height, CUstream hStream)
{
	struct set set;

	return ends(&set, begins(&set, dstDevice, Width * Height * 4, ui, hStream)
			? TPCK_CALL(cuMemsetD2D32Async, dstDevice, dstPitch, ui, Width, Height, hStream) : CUDA_SUCCESS);
}

CUresult tpck_hook_cuMemsetD2D32Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height, CUstream hStream)
{
	return tpck_hook_cuMemsetD2D32Async(dstDevice, dstPitch, ui, Width, Height, tpck_per_thread(hStream));
}
