/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of functions and module variables: their names. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hooks/cuda_graph.h"
#include "runtime/infer/layouts.h"
#include "runtime/track/functions.h"

enum { PARAMETERS_MAX = 256 };

/* What parameters like these hold, if that is known of a function of this name. Kept: functions come once. */
static const struct tpck_layout *layout_of(const char *name, const struct tpck_parameter *parameters, size_t count)
{
	struct tpck_layout layout, *kept;

	if (!tpck_layout_find(name, parameters, (uint32_t)count, &layout))
		return NULL;
	kept = malloc(sizeof *kept);
	if (kept)
		*kept = layout;
	return kept;
}

/* Remembers the function, with its parameters as it describes them itself; none where the driver has no description. */
static void function_add(const void *handle, const char *name, bool kernel)
{
	struct tpck_parameter parameters[TPCK_LAYOUT_PARAMETERS];
	uint32_t bytes = 0;
	size_t count = 0;

	/* NCCL's own library comes past the hooks (shim/doors.h). */
	if (name && (strstr(name, "ncclDevKernel") || strstr(name, "ncclKernel_")))
		tpck_engine_unresumable("NCCL is linked into the program, and what it does cannot be told from the program's own work");
	if (!name || (kernel ? !tpck_cuda.cuKernelGetParamInfo : !tpck_cuda.cuFuncGetParamInfo)) {
		tpck_functions_add(handle, name, 0, NULL);
		return;
	}
	for (size_t i = 0; i < PARAMETERS_MAX; i++) {
		size_t offset = 0, size = 0;
		CUresult result = kernel ? tpck_cuda.cuKernelGetParamInfo((CUkernel)handle, i, &offset, &size)
					 : tpck_cuda.cuFuncGetParamInfo((CUfunction)handle, i, &offset, &size);

		if (result != CUDA_SUCCESS)
			break;
		bytes = (uint32_t)(offset + size);
		if (i < TPCK_LAYOUT_PARAMETERS)
			parameters[i] = (struct tpck_parameter){(uint32_t)offset, (uint32_t)size};
		count = i + 1;
	}
	tpck_functions_add(handle, name, bytes, layout_of(name, parameters, count));
}

/* A handle whose creation was not seen. */
void tpck_cuda_function_learn(CUfunction function)
{
	const char *name = NULL;
	bool kernel = false;

	if (tpck_cuda_bind())
		return;
	if (!tpck_cuda.cuFuncGetName || tpck_cuda.cuFuncGetName(&name, function) != CUDA_SUCCESS)
		name = NULL;
	/* A launch takes a CUkernel as well, which a driver need not take for a function elsewhere. */
	if (!name && tpck_cuda.cuKernelGetName) {
		kernel = tpck_cuda.cuKernelGetName(&name, (CUkernel)function) == CUDA_SUCCESS;
		name = kernel ? name : NULL;
	}
	function_add(function, name, kernel);
}

CUresult tpck_hook_cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
	struct tpck_thread *self = tpck_engine_enter();
	CUresult result = TPCK_CALL(cuModuleGetFunction, hfunc, hmod, name);

	if (self && result == CUDA_SUCCESS && !tpck_cuda_bind())
		function_add(*hfunc, name, false);
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
		function_add(*pKernel, name, true);
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
		tpck_functions_add(*pFunc, known->name, known->parameters, known->layout);
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
