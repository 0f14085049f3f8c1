/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of pinned host memory, which the driver gives or the program registers. All calls are real in every mode; what is learnt is which memory kernels may write to. */
#include "config.h"

#include "hooks/cuda_driver.h"

static CUresult given(CUresult result, void **pp, size_t bytesize)
{
	struct tpck_thread *self = tpck_engine_enter();

	if (!self)
		return result;
	if (result == CUDA_SUCCESS)
		tpck_engine_host_memory(*pp, bytesize);
	tpck_engine_leave(self);
	return result;
}

CUresult tpck_hook_cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
	return given(TPCK_CALL(cuMemHostAlloc, pp, bytesize, Flags), pp, bytesize);
}

CUresult tpck_hook_cuMemAllocHost_v2(void **pp, size_t bytesize)
{
	return given(TPCK_CALL(cuMemAllocHost_v2, pp, bytesize), pp, bytesize);
}

CUresult tpck_hook_cuMemFreeHost(void *p)
{
	struct tpck_thread *self = tpck_engine_enter();

	if (self) {
		tpck_engine_host_memory_ends(p);
		tpck_engine_leave(self);
	}
	return TPCK_CALL(cuMemFreeHost, p);
}

CUresult tpck_hook_cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
	struct tpck_thread *self = tpck_engine_enter();
	CUresult result = TPCK_CALL(cuMemHostGetDevicePointer_v2, pdptr, p, Flags);

	if (!self)
		return result;
	if (result == CUDA_SUCCESS)
		tpck_engine_host_memory_shown(p);
	tpck_engine_leave(self);
	return result;
}

CUresult tpck_hook_cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
	CUresult result = TPCK_CALL(cuMemHostRegister_v2, p, bytesize, Flags);
	struct tpck_thread *self = tpck_engine_enter();

	if (!self)
		return result;
	if (result == CUDA_SUCCESS)
		tpck_engine_host_memory_registered(p, bytesize);
	tpck_engine_leave(self);
	return result;
}

CUresult tpck_hook_cuMemHostUnregister(void *p)
{
	struct tpck_thread *self = tpck_engine_enter();

	if (self) {
		tpck_engine_host_memory_ends(p);
		tpck_engine_leave(self);
	}
	return TPCK_CALL(cuMemHostUnregister, p);
}
