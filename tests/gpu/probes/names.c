/* SPDX-License-Identifier: Apache-2.0 */
/* What a driver says of functions and kernels: names and parameters, by each handle that a program may hold: names KERNELS. */
#include <stdio.h>
#include <string.h>

#include "tests/gpu/probes/probe.h"

static void say(const char *what, CUresult result, const char *name)
{
	probe_say("{\"%s\": \"%s\"}", what, result ? probe_error(result) : name ? name : "NULL");
}

static void name_of(const char *what, CUfunction function)
{
	const char *name = NULL;
	CUresult result = TRY(cuFuncGetName, &name, function);

	say(what, result, name);
}

static void parameters_of(const char *what, CUfunction function, CUkernel kernel)
{
	char text[512] = "";
	CUresult result = CUDA_SUCCESS;

	for (size_t i = 0; i < 16 && !result; i++) {
		size_t offset = 0, size = 0, length = strlen(text);

		result = kernel ? TRY(cuKernelGetParamInfo, kernel, i, &offset, &size) : TRY(cuFuncGetParamInfo, function, i, &offset, &size);
		if (!result)
			snprintf(text + length, sizeof text - length, "%s%zu+%zu", i ? " " : "", offset, size);
		else
			snprintf(text + length, sizeof text - length, " then %s", probe_error(result));
	}
	say(what, CUDA_SUCCESS, text);
}

int main(int argc, char **argv)
{
	static const char wanted[] = "probe_parameters";
	const char *name = NULL, *image;
	CUmoduleLoadingMode mode;
	CUresult result;
	CUfunction function;
	CUdevice device;
	CUcontext context;
	CUmodule module;
	CUlibrary library;
	CUkernel kernel;

	if (argc < 2)
		return 2;
	image = probe_file(argv[1], NULL);
	probe_begin(&device, &context);
	DO(cuModuleGetLoadingMode, &mode);
	probe_say("{\"loading\": \"%s\"}", mode == CU_MODULE_EAGER_LOADING ? "eager" : "lazy");
	DO(cuModuleLoadData, &module, image);
	DO(cuModuleGetFunction, &function, module, wanted);
	name_of("cuFuncGetName of a function", function);
	parameters_of("cuFuncGetParamInfo of a function", function, NULL);
	DO(cuLibraryLoadData, &library, image, NULL, NULL, 0, NULL, NULL, 0);
	DO(cuLibraryGetKernel, &kernel, library, wanted);
	result = TRY(cuKernelGetName, &name, kernel);
	say("cuKernelGetName of a kernel", result, name);
	parameters_of("cuKernelGetParamInfo of a kernel", NULL, kernel);
	name_of("cuFuncGetName of a kernel", (CUfunction)kernel);
	parameters_of("cuFuncGetParamInfo of a kernel", (CUfunction)kernel, NULL);
	DO(cuKernelGetFunction, &function, kernel);
	name_of("cuFuncGetName of a kernel's function", function);
	parameters_of("cuFuncGetParamInfo of a kernel's function", function, NULL);
	probe_say("{\"result\": \"passed\"}");
	return 0;
}
