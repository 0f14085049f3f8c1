/* SPDX-License-Identifier: Apache-2.0 */
/* Fat binaries, kernels and variables as host code registers them, loaded when first used. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt.h"

struct fatbin {
	void *self; /* what the handle points at */
	const void *image;
	CUlibrary library;
	struct fatbin *next;
};

struct entry {
	const void *host;
	const char *name;
	struct fatbin *fatbin;
	CUkernel kernel;
	CUdeviceptr address[RT_DEVICES];
	size_t bytes;
	bool variable;
	struct entry *next;
};

#define BUCKETS 1024
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fatbin *fatbins;
static struct entry *table[BUCKETS];

static struct entry **bucket(const void *host)
{
	return &table[((size_t)host >> 3) % BUCKETS];
}

static struct entry *find(const void *host)
{
	struct entry *e = *bucket(host);

	while (e && e->host != host)
		e = e->next;
	return e;
}

void **__cudaRegisterFatBinary(void *);
RT_API void **__cudaRegisterFatBinary(void *image)
{
	struct fatbin *f = calloc(1, sizeof *f);

	if (!f)
		return NULL;
	f->self = f;
	f->image = image;
	pthread_mutex_lock(&lock);
	f->next = fatbins;
	fatbins = f;
	pthread_mutex_unlock(&lock);
	return &f->self;
}

void __cudaRegisterFatBinaryEnd(void **);
RT_API void __cudaRegisterFatBinaryEnd(void **handle)
{
	(void)handle;
}

char __cudaInitModule(void **);
RT_API char __cudaInitModule(void **handle)
{
	(void)handle;
	return 1;
}

void __cudaUnregisterFatBinary(void **);
RT_API void __cudaUnregisterFatBinary(void **handle)
{
	struct fatbin *f = handle ? *handle : NULL;

	pthread_mutex_lock(&lock);
	for (int i = 0; f && i < BUCKETS; i++)
		for (struct entry **link = &table[i]; *link;)
			if ((*link)->fatbin == f) {
				struct entry *e = *link;

				*link = e->next;
				free(e);
			} else {
				link = &(*link)->next;
			}
	for (struct fatbin **link = &fatbins; f && *link; link = &(*link)->next)
		if (*link == f) {
			*link = f->next;
			break;
		}
	pthread_mutex_unlock(&lock);
	/* The library stays loaded: at exit the driver may be gone before the last host object. */
	free(f);
}

static void add(void **handle, const void *host, const char *name, bool variable, size_t bytes)
{
	struct entry *e = calloc(1, sizeof *e);

	if (!e || !handle)
		return;
	e->host = host;
	e->name = name;
	e->fatbin = *handle;
	e->variable = variable;
	e->bytes = bytes;
	pthread_mutex_lock(&lock);
	e->next = *bucket(host);
	*bucket(host) = e;
	pthread_mutex_unlock(&lock);
}

void __cudaRegisterFunction(void **, const char *, char *, const char *, int, uint3 *, uint3 *, dim3 *, dim3 *, int *);
RT_API void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, uint3 *tid,
				   uint3 *bid, dim3 *block, dim3 *grid, int *warp)
{
	(void)device, (void)limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
	add(handle, host, name, false, 0);
}

void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int);
RT_API void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext, size_t bytes, int constant, int global)
{
	(void)device, (void)ext, (void)constant, (void)global;
	add(handle, host, name, true, bytes);
}

static cudaError_t library_of(struct fatbin *f)
{
	if (f->library)
		return cudaSuccess;
	return (cudaError_t)rt_drv.cuLibraryLoadData(&f->library, f->image, NULL, NULL, 0, NULL, NULL, 0);
}

static cudaError_t load_kernel(struct entry *e)
{
	CUfunction function;
	const char *name;
	size_t offset, size;

	if (e->kernel)
		return cudaSuccess;
	cudaError_t r = library_of(e->fatbin);
	CUkernel k = NULL;
	if (r == cudaSuccess)
		r = (cudaError_t)rt_drv.cuLibraryGetKernel(&k, e->fatbin->library, e->name);
	if (r == cudaSuccess)
		r = (cudaError_t)rt_drv.cuKernelGetFunction(&function, k);
	if (r == cudaSuccess)
		r = (cudaError_t)rt_drv.cuKernelGetName(&name, k);
	if (r != cudaSuccess)
		return r == (cudaError_t)CUDA_ERROR_NOT_FOUND ? cudaErrorInvalidDeviceFunction : r;
	for (size_t i = 0; rt_drv.cuKernelGetParamInfo(k, i, &offset, &size) == CUDA_SUCCESS; i++)
		;
	e->kernel = k;
	return cudaSuccess;
}

cudaError_t rt_kernel_of(const void *host, CUkernel *out)
{
	cudaError_t r = cudaErrorInvalidDeviceFunction;

	pthread_mutex_lock(&lock);
	struct entry *e = find(host);
	if (e && !e->variable)
		r = load_kernel(e);
	if (r == cudaSuccess)
		*out = e->kernel;
	pthread_mutex_unlock(&lock);
	return r;
}

cudaError_t rt_function_of(const void *host, CUfunction *out)
{
	CUkernel k;
	cudaError_t r = rt_kernel_of(host, &k);

	/* A cudaKernel_t is accepted in place of the host's function. */
	if (r == cudaErrorInvalidDeviceFunction) {
		const char *name;

		r = rt_drv.cuKernelGetName(&name, (CUkernel)(size_t)host) == CUDA_SUCCESS ? cudaSuccess : r;
		k = (CUkernel)(size_t)host;
	}
	return r == cudaSuccess ? (cudaError_t)rt_drv.cuKernelGetFunction(out, k) : r;
}

cudaError_t rt_symbol_of(const void *symbol, CUdeviceptr *address, size_t *bytes)
{
	cudaError_t r = cudaErrorInvalidSymbol;

	pthread_mutex_lock(&lock);
	struct entry *e = find(symbol);
	if (e && e->variable) {
		int d = rt_device();

		r = library_of(e->fatbin);
		if (r == cudaSuccess && !e->address[d])
			r = (cudaError_t)rt_drv.cuLibraryGetGlobal(&e->address[d], &e->bytes, e->fatbin->library, e->name);
		if (r == cudaSuccess) {
			*address = e->address[d];
			*bytes = e->bytes;
		}
	}
	pthread_mutex_unlock(&lock);
	return r;
}
