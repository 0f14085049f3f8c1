/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the driver the way the vendor's runtime does, and keeps the thread's error. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt.h"

struct rt_driver rt_drv, rt_ptd;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static cudaError_t load_error;
static pthread_mutex_t primary_lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext primary[RT_DEVICES];
static PFN_cuGetProcAddress_v12000 get_proc;
static __thread cudaError_t last_error;

static void *look_up(const char *base, int version, cuuint64_t flags)
{
	void *p = NULL;

	/* Without a status, as the vendor's runtime asks: an error then means that the symbol is missing. */
	if (get_proc(base, &p, version, flags, NULL) != CUDA_SUCCESS)
		p = NULL;
	return p;
}

static void load(void)
{
	void *h = dlopen("libcuda.so.1", RTLD_NOW);

	load_error = cudaErrorInsufficientDriver;
	if (!h) {
		fprintf(stderr, "simgpu: %s\n", dlerror());
		return;
	}
	get_proc = (PFN_cuGetProcAddress_v12000)dlsym(h, "cuGetProcAddress_v2");
	if (!get_proc)
		return;
#define RT_DRIVER(base, version) \
	rt_drv.base = (PFN_##base##_v##version)look_up(#base, version, CU_GET_PROC_ADDRESS_DEFAULT); \
	rt_ptd.base = (PFN_##base##_v##version)look_up(#base, (version) < 7000 ? 7000 : (version), \
						       CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM); \
	if (!rt_drv.base) { \
		fprintf(stderr, "simgpu: the driver has no %s\n", #base); \
		return; \
	}
#include "runtime/driver.def"
#undef RT_DRIVER
	load_error = (cudaError_t)rt_drv.cuInit(0);
}

cudaError_t rt_load(void)
{
	pthread_once(&once, load);
	return load_error;
}

cudaError_t rt_primary(int device, CUcontext *out)
{
	cudaError_t e = device >= 0 && device < RT_DEVICES ? cudaSuccess : cudaErrorInvalidDevice;

	pthread_mutex_lock(&primary_lock);
	if (e == cudaSuccess && !primary[device])
		e = (cudaError_t)rt_drv.cuDevicePrimaryCtxRetain(&primary[device], device);
	if (e == cudaSuccess)
		*out = primary[device];
	pthread_mutex_unlock(&primary_lock);
	return e;
}

int rt_device(void)
{
	CUcontext c = NULL;
	CUdevice d = 0;

	if (rt_drv.cuCtxGetCurrent(&c) == CUDA_SUCCESS && c)
		rt_drv.cuCtxGetDevice(&d);
	return d;
}

cudaError_t rt_init(void)
{
	CUcontext c = NULL;
	cudaError_t e = rt_load();

	if (e != cudaSuccess)
		return e;
	e = (cudaError_t)rt_drv.cuCtxGetCurrent(&c);
	if (e != cudaSuccess || c)
		return e;
	e = rt_primary(0, &c);
	return e == cudaSuccess ? (cudaError_t)rt_drv.cuCtxSetCurrent(c) : e;
}

cudaError_t rt_result(cudaError_t e)
{
	if (e != cudaSuccess)
		last_error = e;
	return e;
}

int rt_unsupported(const char *symbol)
{
	fprintf(stderr, "simgpu: %s is not supported\n", symbol);
	return rt_result(cudaErrorNotSupported);
}

RT_API cudaError_t cudaGetLastError(void)
{
	cudaError_t e = last_error;

	last_error = cudaSuccess;
	return e;
}

RT_API cudaError_t cudaPeekAtLastError(void)
{
	return last_error;
}

static const struct {
	int code;
	const char *name, *text;
} errors[] = {
#include "runtime_errors.inc"
};

RT_API const char *cudaGetErrorName(cudaError_t e)
{
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
		if (errors[i].code == (int)e)
			return errors[i].name;
	return "unrecognized error code";
}

RT_API const char *cudaGetErrorString(cudaError_t e)
{
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
		if (errors[i].code == (int)e)
			return errors[i].text;
	return "unrecognized error code";
}

static cudaError_t entry_point(const char *symbol, void **out, unsigned version, unsigned long long flags,
			       enum cudaDriverEntryPointQueryResult *status, bool ptds)
{
	CUdriverProcAddressQueryResult s = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	cudaError_t e = rt_load();

	if (e != cudaSuccess)
		return rt_result(e);
	if (flags == cudaEnableDefault && ptds)
		flags = cudaEnablePerThreadDefaultStream;
	e = (cudaError_t)get_proc(symbol, out, (int)version, flags, &s);
	if (status)
		*status = (enum cudaDriverEntryPointQueryResult)s;
	else if (e == cudaSuccess && s != CU_GET_PROC_ADDRESS_SUCCESS)
		e = cudaErrorSymbolNotFound;
	return rt_result(e);
}

RT_API cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **out, unsigned version, unsigned long long flags,
						    enum cudaDriverEntryPointQueryResult *status)
{
	return entry_point(symbol, out, version, flags, status, false);
}

RT_API cudaError_t cudaGetDriverEntryPointByVersion_ptsz(const char *symbol, void **out, unsigned version, unsigned long long flags,
							 enum cudaDriverEntryPointQueryResult *status)
{
	return entry_point(symbol, out, version, flags, status, true);
}

cudaError_t cudaGetDriverEntryPoint(const char *, void **, unsigned long long, enum cudaDriverEntryPointQueryResult *);
RT_API cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **out, unsigned long long flags,
					   enum cudaDriverEntryPointQueryResult *status)
{
	return entry_point(symbol, out, CUDART_VERSION, flags, status, false);
}
