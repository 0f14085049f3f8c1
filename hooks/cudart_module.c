/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime's registration of device variables, which is the only place that names one that no
 * host code ever asks for. */
#include "config.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "hooks/cuda_driver.h"
#include "hooks/libc.h"
#include "runtime/track/threads.h"

enum { NAMES = 4096, LIBRARIES = 1024 };

static const char *names[NAMES];
static CUlibrary libraries[LIBRARIES];
static _Atomic uint32_t names_count, libraries_count;
static uint32_t names_asked, libraries_asked;
static tpck_spin lock;

typedef void (*register_type)(void **, char *, char *, const char *, int, size_t, int, int);

void __cudaRegisterVar(void **fatbin, char *host, char *device_address, const char *device_name, int external,
		       size_t bytes, int constant, int global);

/* The runtime may be loaded RTLD_LOCAL, where RTLD_NEXT does not look. */
static int find_runtime(struct dl_phdr_info *info, size_t size, void *argument)
{
	const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
	void *library;

	(void)size;
	if (!slash || strncmp(slash + 1, "libcudart.so", 12) != 0)
		return 0;
	library = tpck_real_dlopen(info->dlpi_name, RTLD_NOW | RTLD_NOLOAD);
	*(void **)argument = library ? tpck_real_dlsym(library, "__cudaRegisterVar") : NULL;
	return *(void **)argument != NULL;
}

TPCK_EXPORT void __cudaRegisterVar(void **fatbin, char *host, char *device_address, const char *device_name,
				   int external, size_t bytes, int constant, int global)
{
	static register_type real;

	if (!real)
		real = (register_type)tpck_real_dlsym(RTLD_NEXT, "__cudaRegisterVar");
	if (!real)
		dl_iterate_phdr(find_runtime, &real);
	/* Constants are written before the first launch that reads them and by copies that are seen. */
	if (device_name) {
		tpck_spin_lock(&lock);
		if (names_count < NAMES)
			names[names_count++] = device_name;
		else
			tpck_engine_unresumable("the program has more variables on the device than can be followed");
		tpck_spin_unlock(&lock);
	}
	if (real)
		real(fatbin, host, device_address, device_name, external, bytes, constant, global);
}

CUresult tpck_hook_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
				     void **jitOptionsValues, unsigned int numJitOptions,
				     CUlibraryOption *libraryOptions, void **libraryOptionValues,
				     unsigned int numLibraryOptions)
{
	CUresult result = TPCK_CALL(cuLibraryLoadData, library, code, jitOptions, jitOptionsValues, numJitOptions,
				    libraryOptions, libraryOptionValues, numLibraryOptions);

	if (result == CUDA_SUCCESS) {
		tpck_spin_lock(&lock);
		if (libraries_count < LIBRARIES)
			libraries[libraries_count++] = *library;
		tpck_spin_unlock(&lock);
	}
	return result;
}

CUresult tpck_hook_cuLibraryUnload(CUlibrary library)
{
	tpck_spin_lock(&lock);
	for (uint32_t i = 0; i < libraries_count; i++)
		if (libraries[i] == library)
			libraries[i] = NULL;
	tpck_spin_unlock(&lock);
	return TPCK_CALL(cuLibraryUnload, library);
}

/* Asks for the addresses of registered variables in libraries that came since the last time. Not
 * while a stream captures: the first question loads the module. */
void tpck_cuda_variables(void)
{
	uint32_t all_names = atomic_load(&names_count), all_libraries = atomic_load(&libraries_count);

	if (all_names == names_asked && all_libraries == libraries_asked)
		return;
	for (uint32_t l = 0; l < all_libraries; l++)
		for (uint32_t n = l < libraries_asked ? names_asked : 0; n < all_names; n++) {
			CUdeviceptr address = 0;
			size_t bytes = 0;

			if (libraries[l] && tpck_cuda.cuLibraryGetGlobal &&
			    tpck_cuda.cuLibraryGetGlobal(&address, &bytes, libraries[l], names[n]) == CUDA_SUCCESS)
				tpck_engine_module_variable(names[n], address, bytes);
		}
	names_asked = all_names;
	libraries_asked = all_libraries;
}
