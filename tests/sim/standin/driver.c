/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-ins' way to the driver, which is the vendor's libraries' own: dlopen, cuGetProcAddress, launches by handle. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image.h"
#include "standin/standin.h"

static struct {
	CUresult (*getProc)(const char *, void **, int, cuuint64_t, void *);
	CUresult (*libraryLoad)(CUlibrary *, const void *, CUjit_option *, void **, unsigned, CUlibraryOption *, void **, unsigned);
	CUresult (*getKernel)(CUkernel *, CUlibrary, const char *);
	CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);
	CUresult (*copy)(CUdeviceptr, CUdeviceptr, size_t, CUstream);
} drv;

static void load(void)
{
	void *h = dlopen("libcuda.so.1", RTLD_NOW);

	*(void **)&drv.getProc = h ? dlsym(h, "cuGetProcAddress_v2") : NULL;
	if (!drv.getProc) {
		fprintf(stderr, "simgpu: no driver: %s\n", dlerror());
		return;
	}
	drv.getProc("cuLibraryLoadData", (void **)&drv.libraryLoad, 12000, 0, NULL);
	drv.getProc("cuLibraryGetKernel", (void **)&drv.getKernel, 12000, 0, NULL);
	drv.getProc("cuLaunchKernel", (void **)&drv.launch, 7000, 0, NULL);
	drv.getProc("cuMemcpyAsync", (void **)&drv.copy, 7000, 0, NULL);
}

static int ready(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load);
	return drv.libraryLoad && drv.getKernel && drv.launch && drv.copy;
}

/* One kernel, one parameter, no code. */
static CUresult make(const char *name, size_t bytes, uint64_t flags, CUkernel *out)
{
	struct {
		struct sim_image_header h;
		struct sim_image_kernel k;
		struct sim_image_param p;
		char name[256];
	} image = { .h = { .magic = SIMGPU_IMAGE_MAGIC, .version = SIMGPU_IMAGE_VERSION, .n_kernels = 1, .n_params = 1, .flags = flags } };
	CUlibrary library;

	memcpy(image.h.magic, SIMGPU_IMAGE_MAGIC, sizeof image.h.magic);
	image.h.kernels = (uint64_t)((char *)&image.k - (char *)&image);
	image.h.params = image.h.variables = (uint64_t)((char *)&image.p - (char *)&image);
	image.h.strings = (uint64_t)(image.name - (char *)&image);
	image.h.object = image.h.total_bytes = sizeof image;
	image.k.n_params = 1;
	image.k.param_bytes = image.p.size = (uint32_t)bytes;
	snprintf(image.name, sizeof image.name, "%s", name);
	CUresult r = drv.libraryLoad(&library, &image, NULL, NULL, 0, NULL, NULL, 0);
	return r == CUDA_SUCCESS ? drv.getKernel(out, library, image.name) : r;
}

static struct known {
	char *name;
	CUkernel kernel;
	struct known *next;
} *known;

static CUresult kernel_named(const char *name, size_t bytes, uint64_t flags, CUkernel *out)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	CUresult r = CUDA_SUCCESS;
	struct known *k;

	pthread_mutex_lock(&lock);
	for (k = known; k && strcmp(k->name, name); k = k->next)
		;
	if (!k) {
		k = calloc(1, sizeof *k);
		if (!k || !(k->name = strdup(name)))
			r = CUDA_ERROR_OUT_OF_MEMORY;
		if (r == CUDA_SUCCESS)
			r = make(name, bytes, flags, &k->kernel);
		if (r == CUDA_SUCCESS) {
			k->next = known;
			known = k;
		}
	}
	if (r == CUDA_SUCCESS)
		*out = k->kernel;
	pthread_mutex_unlock(&lock);
	return r;
}

void *standin_driver(const char *name, int version)
{
	void *fn = NULL;

	return ready() && drv.getProc(name, &fn, version, 0, NULL) == CUDA_SUCCESS ? fn : NULL;
}

CUresult standin_exchange_kernel(const char *name, size_t bytes, CUfunction *out)
{
	return ready() ? kernel_named(name, bytes, SIMGPU_IMAGE_EXCHANGE, (CUkernel *)(void *)out) : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult standin_launch(const char *name, const void *args, size_t bytes, uint64_t blocks, CUstream stream)
{
	void *params[] = { (void *)(uintptr_t)args };
	CUkernel k;

	if (!ready())
		return CUDA_ERROR_NOT_INITIALIZED;
	CUresult r = kernel_named(name, bytes, 0, &k);
	if (r != CUDA_SUCCESS)
		return r;
	blocks = blocks < 1 ? 1 : blocks > 65535 ? 65535 : blocks;
	return drv.launch((CUfunction)k, (unsigned)blocks, 1, 1, 128, 1, 1, 0, stream, params, NULL);
}

CUresult standin_copy(void *to, const void *from, size_t bytes, CUstream stream)
{
	return ready() ? drv.copy((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from, bytes, stream) : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult standin_matmul(struct standin_matmul *m, const char *suffix, CUstream stream)
{
	static const char *const trans[] = { "nn", "tn", "nt", "tt" };
	char name[128];
	int64_t tiles = (m->d.rows + 127) / 128 * ((m->d.cols + 63) / 64) * m->batch;

	if (m->d.rows <= 0 || m->d.cols <= 0 || m->batch <= 0)
		return CUDA_SUCCESS;
	switch (m->a.type) {
	case STANDIN_F32: snprintf(name, sizeof name, "simgpu_sgemm_128x64_%s%s", trans[m->trans & 3], suffix); break;
	case STANDIN_F64: snprintf(name, sizeof name, "simgpu_dgemm_128x64_%s%s", trans[m->trans & 3], suffix); break;
	case STANDIN_F16: snprintf(name, sizeof name, "simgpu_hgemm_128x64_%s%s", trans[m->trans & 3], suffix); break;
	case STANDIN_BF16: snprintf(name, sizeof name, "simgpu_bfgemm_128x64_%s%s", trans[m->trans & 3], suffix); break;
	default: snprintf(name, sizeof name, "simgpu_gemm_128x64_%s%s", trans[m->trans & 3], suffix); break;
	}
	return standin_launch(name, m, sizeof *m, (uint64_t)tiles, stream);
}
