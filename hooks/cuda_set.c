/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of memory sets. */
#include "config.h"

#include "hooks/cuda_driver.h"
#include "hooks/cuda_graph.h"

/* The shape of every hook below: not a function, since each real call has its own type. The value set is
 * part of the token's size word, so that another value is another operation. */
#define SET(bytes_, value_, stream_, ...)                                           \
	do {                                                                        \
		struct tpck_thread *self = tpck_engine_enter();                     \
		struct tpck_call call = {.stream = stream_};                        \
		CUresult result = CUDA_SUCCESS;                                     \
		if (!self)                                                          \
			return TPCK_CALL(__VA_ARGS__);                              \
		tpck_cuda_context_seen();                                           \
		call.token.op = TPCK_OP_MEMSET;                                     \
		call.token.bytes = bytes_;                                          \
		call.token.grid[0] = (uint32_t)(value_);                            \
		call.places[0] = dstDevice;                                         \
		tpck_cuda_graph_node(&call);                                        \
		if (tpck_engine_before(self, &call) == TPCK_GO_RUN)                 \
			result = TPCK_CALL(__VA_ARGS__);                            \
		tpck_engine_after(self, &call);                                     \
		tpck_engine_leave(self);                                            \
		return result;                                                      \
	} while (0)

CUresult tpck_hook_cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
	SET(N, uc, NULL, cuMemsetD8_v2, dstDevice, uc, N);
}

CUresult tpck_hook_cuMemsetD8_v2_ptds(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
	SET(N, uc, CU_STREAM_PER_THREAD, cuMemsetD8_v2_ptds, dstDevice, uc, N);
}

CUresult tpck_hook_cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
	SET(N * 2, us, NULL, cuMemsetD16_v2, dstDevice, us, N);
}

CUresult tpck_hook_cuMemsetD16_v2_ptds(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
	SET(N * 2, us, CU_STREAM_PER_THREAD, cuMemsetD16_v2_ptds, dstDevice, us, N);
}

CUresult tpck_hook_cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
	SET(N * 4, ui, NULL, cuMemsetD32_v2, dstDevice, ui, N);
}

CUresult tpck_hook_cuMemsetD32_v2_ptds(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
	SET(N * 4, ui, CU_STREAM_PER_THREAD, cuMemsetD32_v2_ptds, dstDevice, ui, N);
}

CUresult tpck_hook_cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)
{
	SET(N, uc, hStream, cuMemsetD8Async, dstDevice, uc, N, hStream);
}

CUresult tpck_hook_cuMemsetD8Async_ptsz(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)
{
	return tpck_hook_cuMemsetD8Async(dstDevice, uc, N, tpck_per_thread(hStream));
}

CUresult tpck_hook_cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream)
{
	SET(N * 2, us, hStream, cuMemsetD16Async, dstDevice, us, N, hStream);
}

CUresult tpck_hook_cuMemsetD16Async_ptsz(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream)
{
	return tpck_hook_cuMemsetD16Async(dstDevice, us, N, tpck_per_thread(hStream));
}

CUresult tpck_hook_cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream)
{
	SET(N * 4, ui, hStream, cuMemsetD32Async, dstDevice, ui, N, hStream);
}

CUresult tpck_hook_cuMemsetD32Async_ptsz(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream)
{
	return tpck_hook_cuMemsetD32Async(dstDevice, ui, N, tpck_per_thread(hStream));
}

CUresult tpck_hook_cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height)
{
	SET(Width * Height, uc, NULL, cuMemsetD2D8_v2, dstDevice, dstPitch, uc, Width, Height);
}

CUresult tpck_hook_cuMemsetD2D8_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height)
{
	SET(Width * Height, uc, CU_STREAM_PER_THREAD, cuMemsetD2D8_v2_ptds, dstDevice, dstPitch, uc, Width, Height);
}

CUresult tpck_hook_cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height)
{
	SET(Width * Height * 2, us, NULL, cuMemsetD2D16_v2, dstDevice, dstPitch, us, Width, Height);
}

CUresult tpck_hook_cuMemsetD2D16_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height)
{
	SET(Width * Height * 2, us, CU_STREAM_PER_THREAD, cuMemsetD2D16_v2_ptds, dstDevice, dstPitch, us, Width, Height);
}

CUresult tpck_hook_cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height)
{
	SET(Width * Height * 4, ui, NULL, cuMemsetD2D32_v2, dstDevice, dstPitch, ui, Width, Height);
}

CUresult tpck_hook_cuMemsetD2D32_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height)
{
	SET(Width * Height * 4, ui, CU_STREAM_PER_THREAD, cuMemsetD2D32_v2_ptds, dstDevice, dstPitch, ui, Width, Height);
}

CUresult tpck_hook_cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height, CUstream hStream)
{
	SET(Width * Height, uc, hStream, cuMemsetD2D8Async, dstDevice, dstPitch, uc, Width, Height, hStream);
}

CUresult tpck_hook_cuMemsetD2D8Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height, CUstream hStream)
{
	return tpck_hook_cuMemsetD2D8Async(dstDevice, dstPitch, uc, Width, Height, tpck_per_thread(hStream));
}

CUresult tpck_hook_cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height, CUstream hStream)
{
	SET(Width * Height * 2, us, hStream, cuMemsetD2D16Async, dstDevice, dstPitch, us, Width, Height, hStream);
}

CUresult tpck_hook_cuMemsetD2D16Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height, CUstream hStream)
{
	return tpck_hook_cuMemsetD2D16Async(dstDevice, dstPitch, us, Width, Height, tpck_per_thread(hStream));
}

CUresult tpck_hook_cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height, CUstream hStream)
{
	SET(Width * Height * 4, ui, hStream, cuMemsetD2D32Async, dstDevice, dstPitch, ui, Width, Height, hStream);
}

CUresult tpck_hook_cuMemsetD2D32Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height, CUstream hStream)
{
	return tpck_hook_cuMemsetD2D32Async(dstDevice, dstPitch, ui, Width, Height, tpck_per_thread(hStream));
}
