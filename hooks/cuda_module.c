/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of functions and module variables: their names. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hooks/cuda_graph.h"
#include "runtime/infer/layouts.h"
#include "runtime/track/functions.h"
#include "runtime/track/signature.h"

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

/* How many pointers a parameter is, by what its signature says. */
static uint32_t pointers_of(uint8_t is)
{
	return is == TPCK_READS_THERE || is == TPCK_IS_POINTER ? 1 : is & TPCK_POINTERS ? is & (TPCK_POINTERS - 1u) : 0;
}

/* Which parameters are plain numbers or pointers: what the name says, if the sizes agree; where a compiler mangles no names (Triton's, numba's,
 * extern "C"), whatever has four bytes, and eight that turn out to be a device's address. `told`: how many parameters these are. Kept, as above. */
static const struct tpck_number *numbers_of(const char *name, const struct tpck_parameter *parameters, size_t count, uint32_t *found,
					    uint16_t *told)
{
	enum { MOST = 4 * TPCK_SIGNATURE_MAX };
	uint8_t bytes[TPCK_SIGNATURE_MAX];
	struct tpck_number numbers[MOST], *kept;
	uint16_t compared = 0;
	uint32_t used = 0;

	if (count > TPCK_SIGNATURE_MAX)
		return NULL;
	if (strncmp(name, "_Z", 2) == 0) {
		if (tpck_signature_numbers(name, bytes) != (int)count)
			return NULL;
	} else {
		for (size_t i = 0; i < count; i++)
			bytes[i] = parameters[i].size == 4 ? 4 : parameters[i].size == 8 ? TPCK_IS_POINTER : 0;
	}
	for (size_t i = 0; i < count; i++) {
		uint32_t size = parameters[i].size, pointers = pointers_of(bytes[i]);

		if (!bytes[i] || (bytes[i] == TPCK_IS_POINTER && size != 8))
			continue;
		if (size != (pointers ? 8 * pointers : bytes[i] & ~TPCK_NUMBER_ADDRESS) || parameters[i].offset + size > UINT16_MAX || used + pointers >= MOST)
			return NULL;
		for (uint32_t at = 0; at < 8 * pointers; at += 8)
			numbers[used++] = (struct tpck_number){(uint16_t)i, (uint16_t)at, (uint16_t)(parameters[i].offset + at), 8, TPCK_MEANS_ADDRESS};
		if (!pointers)
			numbers[used++] = (struct tpck_number){(uint16_t)i, 0, (uint16_t)parameters[i].offset, (uint8_t)size,
							       bytes[i] & TPCK_NUMBER_ADDRESS ? TPCK_MEANS_EITHER : TPCK_MEANS_NUMBER};
		compared++;
	}
	kept = used ? malloc(used * sizeof *kept) : NULL;
	if (!kept)
		return NULL;
	memcpy(kept, numbers, used * sizeof *kept);
	*found = used;
	*told = compared;
	return kept;
}

/* Which words of the parameters may be addresses by which it writes: all that no number is known to be, of pointers and of small structures; the
 * lists of a kernel for many tensors are long, and are no host's. Kept, as above. */
static const struct tpck_word *words_of(const char *name, const struct tpck_parameter *parameters, size_t count, uint32_t *found)
{
	enum { MOST = 32, STRUCTURE = 64 };
	uint8_t bytes[TPCK_SIGNATURE_MAX];
	struct tpck_word words[MOST], *kept;
	bool told = count <= TPCK_SIGNATURE_MAX && strncmp(name, "_Z", 2) == 0 && tpck_signature_numbers(name, bytes) == (int)count;
	uint32_t used = 0;

	for (size_t i = 0; i < count && i < TPCK_SIGNATURE_MAX; i++) {
		uint32_t size = parameters[i].size, offset = parameters[i].offset;

		if (size > STRUCTURE || offset > UINT16_MAX || (told && (bytes[i] == TPCK_READS_THERE || (bytes[i] && !pointers_of(bytes[i]) && !(bytes[i] & TPCK_NUMBER_ADDRESS)))))
			continue;
		for (uint32_t at = 0; at + 8 <= size && used < MOST; at += 8)
			words[used++] = (struct tpck_word){(uint16_t)i, (uint16_t)at, (uint16_t)(offset + at)};
	}
	kept = used ? malloc(used * sizeof *kept) : NULL;
	if (!kept)
		return NULL;
	memcpy(kept, words, used * sizeof *kept);
	*found = used;
	return kept;
}

/* Remembers the function, with its parameters as it describes them itself; none where the driver has no description. */
static void function_add(const void *handle, const char *name, bool kernel)
{
	struct tpck_parameter parameters[TPCK_SIGNATURE_MAX];
	struct tpck_function known = {.name = name};
	size_t count = 0;

	/* NCCL's own library comes past the hooks (shim/doors.h). */
	if (name && (strstr(name, "ncclDevKernel") || strstr(name, "ncclKernel_")))
		tpck_engine_unresumable("NCCL is linked into the program, and what it does cannot be told from the program's own work");
	if (!name || (kernel ? !tpck_cuda.cuKernelGetParamInfo : !tpck_cuda.cuFuncGetParamInfo)) {
		known.undescribed = true;
		tpck_functions_add(handle, &known);
		return;
	}
	for (size_t i = 0; i < PARAMETERS_MAX; i++) {
		size_t offset = 0, size = 0;
		CUresult result = kernel ? tpck_cuda.cuKernelGetParamInfo((CUkernel)handle, i, &offset, &size)
					 : tpck_cuda.cuFuncGetParamInfo((CUfunction)handle, i, &offset, &size);

		/* Behind the last one a parameter's number is an invalid value. */
		known.undescribed = i == 0 && result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE;
		if (result != CUDA_SUCCESS)
			break;
		known.parameters = (uint32_t)(offset + size);
		if (i < TPCK_SIGNATURE_MAX)
			parameters[i] = (struct tpck_parameter){(uint32_t)offset, (uint32_t)size};
		count = i + 1;
	}
	known.described = (uint16_t)count;
	if (count <= TPCK_SIGNATURE_MAX)
		known.layout = layout_of(name, parameters, count);
	known.numbers = numbers_of(name, parameters, count, &known.number_count, &known.compared);
	known.words = words_of(name, parameters, count, &known.word_count);
	tpck_functions_add(handle, &known);
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
		tpck_functions_add(*pFunc, known);
	if (self)
		tpck_engine_leave(self);
	return result;
}

static void variable(CUresult result, CUlibrary library, const char *name, const CUdeviceptr *address, const size_t *bytes)
{
	if (result == CUDA_SUCCESS && name && address && bytes)
		tpck_cuda_variable_asked(library, name, *address, *bytes);
}

CUresult tpck_hook_cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
	struct tpck_thread *self = tpck_engine_enter();
	CUresult result = TPCK_CALL(cuModuleGetGlobal_v2, dptr, bytes, hmod, name);

	if (self) {
		variable(result, NULL, name, dptr, bytes);
		tpck_engine_leave(self);
	}
	return result;
}

CUresult tpck_hook_cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
	struct tpck_thread *self = tpck_engine_enter();
	CUresult result = TPCK_CALL(cuLibraryGetGlobal, dptr, bytes, library, name);

	if (self) {
		variable(result, library, name, dptr, bytes);
		tpck_engine_leave(self);
	}
	return result;
}
