/* SPDX-License-Identifier: Apache-2.0 */
/* Modules, libraries, kernels and their variables, as simnvcc's images describe them, or images made of the vendor's cubins and of PTX. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver/sim.h"
#include "image.h"

#define SHORTEST 32 /* bytes in which every kind of image says what it is */

/* A kernel of a library has another handle than the function that it is in a module. */
static bool is_of_library(const void *handle)
{
	return (uintptr_t)handle & 1;
}

struct sim_kernel *sim_kernel_check(const void *handle)
{
	struct sim_kernel *k = (struct sim_kernel *)((uintptr_t)handle & ~(uintptr_t)1);

	return k && k->magic == SIM_KERNEL_MAGIC ? k : NULL;
}

static struct sim_module *module_check(const void *handle)
{
	struct sim_module *m = (struct sim_module *)(uintptr_t)handle;

	return m && m->magic == SIM_MODULE_MAGIC ? m : NULL;
}

static const struct sim_image_header *find_image(const void *image)
{
	const struct sim_fatbin_wrapper *w = image;
	const struct sim_image_header *h = image;

	if (w->magic == SIMGPU_FATBIN_MAGIC)
		h = w->data;
	if (!h || memcmp(h->magic, SIMGPU_IMAGE_MAGIC, sizeof h->magic))
		return NULL;
	return h->version == SIMGPU_IMAGE_VERSION ? h : NULL;
}

static CUresult foreign_image(const void *image, char **made)
{
	const struct sim_fatbin_wrapper *w = image;

	return sim_cubin_image(w->magic == SIMGPU_FATBIN_MAGIC ? w->data : image, made);
}

static void unload(struct sim_module *m)
{
	uint64_t gone = 0;

	for (int d = 0; d < SIM_DEVICES; d++) {
		for (uint32_t i = 0; i < m->n_variables; i++)
			if (m->variable[i].alloc[d])
				sim_heap_free(m->variable[i].alloc[d]);
		/* Without variables the same is on every device. */
		if (m->remote[d] && m->remote[d] != gone)
			sim_remote_unload(m->remote[d]);
		gone = m->remote[d] ? m->remote[d] : gone;
	}
	free(m->object);
	m->object = NULL;
	for (uint32_t i = 0; i < m->n_kernels; i++)
		m->kernel[i].magic = 0;
	free(m->variable);
	free(m->image);
	m->variable = NULL;
	m->image = NULL;
	/* Kernel handles may be held for ever; they stay recognisable as stale. */
	m->magic = 0;
}

static CUresult place_variables(struct sim_module *m, int device)
{
	for (uint32_t i = 0; i < m->n_variables; i++) {
		struct sim_variable *x = &m->variable[i];
		CUresult r = sim_heap_alloc(device, x->bytes ? x->bytes : 1, SIM_ALLOC_VARIABLE, &x->alloc[device]);

		if (r != CUDA_SUCCESS)
			return r;
		if (sim_remote_bind(m->remote[device], x->name, x->alloc[device]->va))
			return CUDA_ERROR_INVALID_IMAGE;
	}
	for (uint32_t i = 0; i < m->n_variables; i++) {
		struct sim_variable *x = &m->variable[i];

		if (sim_remote_fill(m->remote[device], x->name, x->alloc[device]->va, x->bytes))
			return CUDA_ERROR_INVALID_IMAGE;
	}
	return CUDA_SUCCESS;
}

CUresult sim_module_on(struct sim_module *m, int device)
{
	if (m->remote[device] || m->nowhere)
		return CUDA_SUCCESS;
	if (!m->library)
		return CUDA_ERROR_INVALID_HANDLE;
	for (int d = 0; d < SIM_DEVICES && !m->n_variables && !m->remote[device]; d++)
		m->remote[device] = m->remote[d];
	if (m->remote[device])
		return CUDA_SUCCESS;
	if (sim_remote_load(m->object, m->object_bytes, &m->remote[device]))
		return sim_remote_lost() ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_ERROR_INVALID_IMAGE;
	return place_variables(m, device);
}

static bool keep_object(struct sim_module *m, const struct sim_image_header *h)
{
	if (!m->library || !h->object_bytes || !m->n_variables || sim_settings.devices == 1)
		return true;
	m->object = malloc(h->object_bytes);
	m->object_bytes = h->object_bytes;
	if (m->object)
		memcpy(m->object, (const char *)h + h->object, h->object_bytes);
	return m->object != NULL;
}

/* `ruled`: a fat binary that a program loads itself, which may have another for devices like this one, needs a rule. */
static CUresult load_image(const struct sim_image_header *h, bool library, bool ruled, struct sim_module **out)
{
	struct sim_module *m = calloc(1, sizeof *m);
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	m->magic = SIM_MODULE_MAGIC;
	m->library = library;
	/* Everything but the object itself; names must outlive the caller's copy. */
	m->image = malloc(h->object);
	m->n_kernels = h->n_kernels;
	m->n_variables = h->n_variables;
	m->kernel = calloc(h->n_kernels + 1, sizeof *m->kernel);
	m->variable = calloc(h->n_variables + 1, sizeof *m->variable);
	if (!m->image || !m->kernel || !m->variable) {
		unload(m);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	memcpy(m->image, h, h->object);
	int device = sim_device();
	/* The device process never sees exchanges. */
	m->nowhere = (h->flags & SIMGPU_IMAGE_EXCHANGE) != 0;
	if (m->nowhere) {
		m->library = true;
	} else if (h->object_bytes ? sim_remote_load((const char *)h + h->object, h->object_bytes, &m->remote[device]) :
			      sim_remote_describe(h, h->total_bytes, ruled, &m->remote[device])) {
		unload(m);
		return sim_remote_lost()  ? CUDA_ERROR_DEVICE_UNAVAILABLE :
		       h->object_bytes ? CUDA_ERROR_INVALID_IMAGE :
					 CUDA_ERROR_NO_BINARY_FOR_GPU;
	}
	const struct sim_image_kernel *k = (const void *)(m->image + h->kernels);
	for (uint32_t i = 0; i < m->n_kernels; i++) {
		struct sim_kernel *x = &m->kernel[i];

		x->magic = SIM_KERNEL_MAGIC;
		x->index = i;
		x->module = m;
		x->name = m->image + h->strings + k[i].name;
		x->n_params = k[i].n_params;
		x->param_bytes = k[i].param_bytes;
		x->params = (const struct sim_image_param *)(const void *)(m->image + h->params) + k[i].first_param;
		x->exchange = m->nowhere;
		x->ns = sim_kernel_ns(x->name);
	}
	const struct sim_image_variable *v = (const void *)(m->image + h->variables);
	for (uint32_t i = 0; i < m->n_variables; i++)
		m->variable[i] = (struct sim_variable){ .name = m->image + h->strings + v[i].name, .bytes = v[i].size, .constant = v[i].constant };
	CUresult r = keep_object(m, h) ? place_variables(m, device) : CUDA_ERROR_OUT_OF_MEMORY;
	if (r != CUDA_SUCCESS) {
		unload(m);
		return r;
	}
	*out = m;
	return CUDA_SUCCESS;
}

static CUresult load(const void *image, bool library, struct sim_module **out)
{
	const struct sim_image_header *h = image ? find_image(image) : NULL;
	char *made = NULL;
	CUresult r = CUDA_SUCCESS;

	if (!image)
		return CUDA_ERROR_INVALID_VALUE;
	if (!h) {
		r = foreign_image(image, &made);
		h = (const void *)made;
	}
	if (r == CUDA_SUCCESS)
		r = load_image(h, library, made && !library && memcmp(image, "\177ELF", 4), out);
	free(made);
	return r;
}

static CUresult load_module(void *out, const void *image, bool library)
{
	struct sim_module *m;

	SIM_ENTER();
	if (!out)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	CUresult r = load(image, library, &m);
	if (r == CUDA_SUCCESS)
		*(struct sim_module **)out = m;
	return sim_return(r);
}

SIM_API CUresult cuModuleLoadData(CUmodule *out, const void *image) { return load_module(out, image, false); }
SIM_API CUresult cuModuleLoadFatBinary(CUmodule *out, const void *image) { return load_module(out, image, false); }

SIM_API CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned n, CUjit_option *options, void **values)
{
	(void)n, (void)options, (void)values;
	return load_module(out, image, false);
}

static CUresult load_file(void *out, const char *path, bool library)
{
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	CUresult r = CUDA_ERROR_FILE_NOT_FOUND;

	if (fd < 0)
		return r;
	struct stat st;
	char *m = fstat(fd, &st) ? NULL : calloc(1, (size_t)st.st_size + 1);
	size_t got = 0;
	ssize_t n = 1;
	while (m && got < (size_t)st.st_size && (n = read(fd, m + got, (size_t)st.st_size - got)) > 0)
		got += (size_t)n;
	/* The byte behind it ends a text. */
	r = m && got >= SHORTEST ? load_module(out, m, library) : CUDA_ERROR_INVALID_IMAGE;
	free(m);
	close(fd);
	return r;
}

SIM_API CUresult cuModuleLoad(CUmodule *out, const char *path) { return load_file(out, path, false); }

SIM_API CUresult cuModuleUnload(CUmodule h)
{
	SIM_ENTER();
	struct sim_module *m = module_check(h);
	if (!m)
		return sim_return(CUDA_ERROR_INVALID_HANDLE);
	for (int d = 0; d < sim_settings.devices; d++)
		if (m->remote[d])
			sim_wait_device(d);
	unload(m);
	return sim_return(CUDA_SUCCESS);
}

static CUresult get_kernel(void *out, const void *h, const char *name)
{
	SIM_ENTER();
	struct sim_module *m = module_check(h);
	if (!m || !out || !name)
		return sim_return(m ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE);
	for (uint32_t i = 0; i < m->n_kernels; i++)
		if (!strcmp(m->kernel[i].name, name)) {
			*(struct sim_kernel **)out = &m->kernel[i];
			return sim_return(CUDA_SUCCESS);
		}
	return sim_return(CUDA_ERROR_NOT_FOUND);
}

static CUresult get_global(CUdeviceptr *va, size_t *bytes, const void *h, const char *name)
{
	SIM_ENTER();
	struct sim_module *m = module_check(h);
	if (!m || !name)
		return sim_return(m ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE);
	for (uint32_t i = 0; i < m->n_variables; i++)
		if (!strcmp(m->variable[i].name, name)) {
			CUresult r;

			sim_load_part(&m->data[sim_device()], sim_device(), sim_settings.ask_ns);
			/* Another thread may have unloaded it meanwhile. */
			r = module_check(h) ? sim_module_on(m, sim_device()) : CUDA_ERROR_INVALID_HANDLE;
			if (r != CUDA_SUCCESS)
				return sim_return(r);
			if (va)
				*va = m->variable[i].alloc[sim_device()]->va;
			if (bytes)
				*bytes = m->variable[i].bytes;
			return sim_return(CUDA_SUCCESS);
		}
	return sim_return(CUDA_ERROR_NOT_FOUND);
}

SIM_API CUresult cuModuleGetFunction(CUfunction *out, CUmodule m, const char *name) { return get_kernel(out, m, name); }
SIM_API CUresult cuModuleGetGlobal_v2(CUdeviceptr *va, size_t *n, CUmodule m, const char *name) { return get_global(va, n, m, name); }

static CUresult count(unsigned *n, const void *h)
{
	SIM_ENTER();
	struct sim_module *m = module_check(h);
	if (!m || !n)
		return sim_return(m ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE);
	*n = m->n_kernels;
	return sim_return(CUDA_SUCCESS);
}

static CUresult enumerate(void *out, unsigned n, const void *h)
{
	SIM_ENTER();
	struct sim_module *m = module_check(h);
	if (!m || !out)
		return sim_return(m ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE);
	for (uint32_t i = 0; i < n && i < m->n_kernels; i++)
		((struct sim_kernel **)out)[i] = &m->kernel[i];
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuModuleGetFunctionCount(unsigned *n, CUmodule m) { return count(n, m); }
SIM_API CUresult cuModuleEnumerateFunctions(CUfunction *out, unsigned n, CUmodule m) { return enumerate(out, n, m); }

SIM_API CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
	*mode = sim_settings.eager ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuLibraryLoadData(CUlibrary *out, const void *image, CUjit_option *jo, void **jv, unsigned nj, CUlibraryOption *lo,
				   void **lv, unsigned nl)
{
	(void)jo, (void)jv, (void)nj, (void)lo, (void)lv, (void)nl;
	return load_module(out, image, true);
}

SIM_API CUresult cuLibraryLoadFromFile(CUlibrary *out, const char *path, CUjit_option *jo, void **jv, unsigned nj,
				       CUlibraryOption *lo, void **lv, unsigned nl)
{
	(void)jo, (void)jv, (void)nj, (void)lo, (void)lv, (void)nl;
	return load_file(out, path, true);
}

SIM_API CUresult cuLibraryUnload(CUlibrary h) { return cuModuleUnload((CUmodule)h); }
static CUkernel of_library(const void *kernel)
{
	return (CUkernel)((uintptr_t)kernel | 1);
}

SIM_API CUresult cuLibraryGetKernel(CUkernel *out, CUlibrary h, const char *name)
{
	CUresult r = get_kernel(out, h, name);

	if (r == CUDA_SUCCESS)
		*out = of_library(*out);
	return r;
}

SIM_API CUresult cuLibraryGetGlobal(CUdeviceptr *va, size_t *n, CUlibrary h, const char *name) { return get_global(va, n, h, name); }
SIM_API CUresult cuLibraryGetKernelCount(unsigned *n, CUlibrary h) { return count(n, h); }

SIM_API CUresult cuLibraryEnumerateKernels(CUkernel *out, unsigned n, CUlibrary h)
{
	unsigned there = 0;
	CUresult r = count(&there, h);

	if (r == CUDA_SUCCESS)
		r = enumerate(out, n, h);
	for (unsigned i = 0; r == CUDA_SUCCESS && i < n && i < there; i++)
		out[i] = of_library(out[i]);
	return r;
}

SIM_API CUresult cuLibraryGetModule(CUmodule *out, CUlibrary h)
{
	if (!module_check(h))
		return CUDA_ERROR_INVALID_HANDLE;
	*out = (CUmodule)h;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuLibraryGetManaged(CUdeviceptr *va, size_t *n, CUlibrary h, const char *name)
{
	(void)va, (void)n, (void)name;
	return module_check(h) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
}

SIM_API CUresult cuKernelGetFunction(CUfunction *out, CUkernel h)
{
	SIM_ENTER();
	struct sim_kernel *k = is_of_library(h) ? sim_kernel_check(h) : NULL;
	if (!k)
		return sim_return(CUDA_ERROR_INVALID_HANDLE);
	*out = (CUfunction)k;
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuKernelGetLibrary(CUlibrary *out, CUkernel h)
{
	struct sim_kernel *k = sim_kernel_check(h);

	if (!k)
		return CUDA_ERROR_INVALID_HANDLE;
	*out = (CUlibrary)k->module;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuFuncGetModule(CUmodule *out, CUfunction h)
{
	struct sim_kernel *k = is_of_library(h) ? NULL : sim_kernel_check(h);

	if (!k)
		return CUDA_ERROR_INVALID_HANDLE;
	*out = (CUmodule)k->module;
	return CUDA_SUCCESS;
}

static CUresult get_name(const char **out, const void *h, bool kernel)
{
	struct sim_kernel *k = kernel == is_of_library(h) ? sim_kernel_check(h) : NULL;

	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (!k)
		return CUDA_ERROR_INVALID_HANDLE;
	*out = k->name;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuFuncGetName(const char **out, CUfunction f) { return get_name(out, f, false); }
SIM_API CUresult cuKernelGetName(const char **out, CUkernel k) { return get_name(out, k, true); }

static CUresult param_info(const void *h, size_t i, size_t *offset, size_t *size, bool kernel)
{
	struct sim_kernel *k = kernel == is_of_library(h) ? sim_kernel_check(h) : NULL;

	if (sim_settings.no_param_info)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!k)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!offset || i >= k->n_params)
		return CUDA_ERROR_INVALID_VALUE;
	*offset = k->params[i].offset;
	if (size)
		*size = k->params[i].size;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuFuncGetParamInfo(CUfunction f, size_t i, size_t *o, size_t *s) { return param_info(f, i, o, s, false); }
SIM_API CUresult cuKernelGetParamInfo(CUkernel k, size_t i, size_t *o, size_t *s) { return param_info(k, i, o, s, true); }

static CUresult get_attribute(int *v, CUfunction_attribute a, const void *h)
{
	struct sim_kernel *k = sim_kernel_check(h);

	if (!k)
		return CUDA_ERROR_INVALID_HANDLE;
	switch (a) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *v = 1024; break;
	case CU_FUNC_ATTRIBUTE_NUM_REGS: *v = 32; break;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *v = 90; break;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *v = k->attribute_shared ? k->attribute_shared : 49152; break;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: *v = k->carveout; break;
	default: *v = 0; break;
	}
	return CUDA_SUCCESS;
}

static CUresult set_attribute(const void *h, CUfunction_attribute a, int v)
{
	struct sim_kernel *k = sim_kernel_check(h);

	if (!k)
		return CUDA_ERROR_INVALID_HANDLE;
	if (a == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
		if (v < 0 || v > 232448)
			return CUDA_ERROR_INVALID_VALUE;
		k->attribute_shared = v;
	} else if (a == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) {
		k->carveout = v;
	}
	return CUDA_SUCCESS;
}

SIM_API CUresult cuFuncGetAttribute(int *v, CUfunction_attribute a, CUfunction f) { return get_attribute(v, a, f); }
SIM_API CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v) { return set_attribute(f, a, v); }

SIM_API CUresult cuKernelGetAttribute(int *v, CUfunction_attribute a, CUkernel k, CUdevice d)
{
	(void)d;
	return get_attribute(v, a, k);
}

SIM_API CUresult cuKernelSetAttribute(CUfunction_attribute a, int v, CUkernel k, CUdevice d)
{
	(void)d;
	return set_attribute(k, a, v);
}

SIM_API CUresult cuFuncSetCacheConfig(CUfunction f, CUfunc_cache c)
{
	(void)c;
	return sim_kernel_check(f) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SIM_API CUresult cuKernelSetCacheConfig(CUkernel k, CUfunc_cache c, CUdevice d)
{
	(void)c, (void)d;
	return sim_kernel_check(k) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SIM_API CUresult cuFuncLoad(CUfunction f)
{
	SIM_ENTER();
	struct sim_kernel *k = sim_kernel_check(f);
	if (!k)
		return sim_return(CUDA_ERROR_INVALID_HANDLE);
	sim_load(k, sim_device());
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuFuncIsLoaded(CUfunctionLoadingState *s, CUfunction f)
{
	SIM_ENTER();
	struct sim_kernel *k = sim_kernel_check(f);
	if (!s || !k)
		return sim_return(s ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE);
	*s = sim_settings.eager || k->loaded[sim_device()] ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
	return sim_return(CUDA_SUCCESS);
}
