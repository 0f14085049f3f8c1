/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of functions and module variables: their names. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "hooks/cuda_graph.h"
#include "runtime/track/functions.h"

enum { PARAMETERS_MAX = 256 };

/* Bytes of all parameters, from the function's own description; 0 where the driver has none. */
static uint32_t parameters_of(const void *handle, bool kernel)
{
	uint32_t bytes = 0;

	if (kernel ? !tpck_cuda.cuKernelGetParamInfo : !tpck_cuda.cuFuncGetParamInfo)
		return 0;
	for (size_t i = 0; i < PARAMETERS_MAX; i++) {
		size_t offset = 0, size = 0;
		CUresult result = kernel ? tpck_cuda.cuKernelGetParamInfo((CUkernel)handle, i, &offset, &size)
					 : tpck_cuda.cuFuncGetParamInfo((CUfunction)handle, i, &offset, &size);

		if (result != CUDA_SUCCESS)
			break;
		bytes = (uint32_t)(offset + size);
	}
	return bytes;
}

/* A handle whose creation was not seen. */
void tpck_cuda_function_learn(CUfunction function)
{
	const char *name = NULL;

	if (tpck_cuda_bind())
		return;
	if (!tpck_cuda.cuFuncGetName || tpck_cuda.cuFuncGetName(&name, function) != CUDA_SUCCESS)
		name = NULL;
	tpck_functions_add(function, name, name ? parameters_of(function, false) : 0);
}

CUresult tpck_hook_cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
	struct tpck_thread *self = tpck_engine_enter();
	CUresult result = TPCK_CALL(cuModuleGetFunction, hfunc, hmod, name);

	if (self && result == CUDA_SUCCESS && !tpck_cuda_bind())
		tpck_functions_add(*hfunc, name, parameters_of(*hfunc, false));
	if (self)
		tpck_engine_leave(self);
	return result;
}

CUresult tpck_hook_cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name)
{
	struct tpck_thread *self = tpck_engine_enter();
	CUresult result = TPCK_CALL(cuLibraryGetKernel, pKernel, library, name);

	/* A CUkernel may be launched as it is, in the place of a CUfunction (cuLaunchKernel). */
	if (self && result == CUDA_SUCCESS && !tpck_cuda_bind())
		tpck_functions_add(*pKernel, name, parameters_of(*pKernel, true));
	if (self && result == CUDA_SUCCESS)
		tpck_cuda_library_used(library);
	if (self)
		tpck_engine_leave(self);
	return result;
}

/* Other ways to what a library holds. */
CUresult tpck_hook_cuLibraryGetModule(CUmodule *pMod, CUlibrary library)
{
	CUresult result = TPCK_CALL(cuLibraryGetModule, pMod, library);

	if (result == CUDA_SUCCESS)
		tpck_cuda_library_used(library);
	return result;
}

CUresult tpck_hook_cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels, CUlibrary lib)
{
	CUresult result = TPCK_CALL(cuLibraryEnumerateKernels, kernels, numKernels, lib);

	if (result == CUDA_SUCCESS)
		tpck_cuda_library_used(lib);
	return result;
}

CUresult tpck_hook_cuLibraryGetUnifiedFunction(void **fptr, CUlibrary library, const char *symbol)
{
	CUresult result = TPCK_CALL(cuLibraryGetUnifiedFunction, fptr, library, symbol);

	if (result == CUDA_SUCCESS)
		tpck_cuda_library_used(library);
	return result;
}

CUresult tpck_hook_cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel)
{
	struct tpck_thread *self = tpck_engine_enter();
	CUresult result = TPCK_CALL(cuKernelGetFunction, pFunc, kernel);
	const struct tpck_function *known = tpck_functions_find(kernel);

	if (self && result == CUDA_SUCCESS && known)
		tpck_functions_add(*pFunc, known->name, known->parameters);
	if (self)
		tpck_engine_leave(self);
	return result;
}

static void variable(CUresult result, const char *name, const CUdeviceptr *address, const size_t *bytes)
{
	if (result == CUDA_SUCCESS && name && address && bytes)
		tpck_engine_module_variable(name, *address, *bytes);
}

CUresult tpck_hook_cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
	struct tpck_thread *self = tpck_engine_enter();
	CUresult result = TPCK_CALL(cuModuleGetGlobal_v2, dptr, bytes, hmod, name);

	if (self) {
		variable(result, name, dptr, bytes);
		tpck_engine_leave(self);
	}
	return result;
}

CUresult tpck_hook_cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
	struct tpck_thread *self = tpck_engine_enter();
	CUresult result = TPCK_CALL(cuLibraryGetGlobal, dptr, bytes, library, name);

	if (self) {
		variable(result, name, dptr, bytes);
		tpck_engine_leave(self);
	}
	return result;
}
