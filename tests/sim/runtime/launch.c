/* SPDX-License-Identifier: Apache-2.0 */
/* Launches, from the calls that nvcc emits for <<<>>> to the documented ones, and what is known of a kernel. */
#include <string.h>

#include "runtime/rt.h"

#define DEPTH 16
static __thread struct {
	dim3 grid, block;
	size_t shared;
	void *stream;
} configs[DEPTH];
static __thread int depth;

unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, struct CUstream_st *);
RT_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream)
{
	if (depth == DEPTH)
		return 1;
	configs[depth].grid = grid;
	configs[depth].block = block;
	configs[depth].shared = shared;
	configs[depth++].stream = stream;
	return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *, dim3 *, size_t *, void *);
RT_API cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
	if (!depth)
		return rt_result(cudaErrorMissingConfiguration);
	depth--;
	*grid = configs[depth].grid;
	*block = configs[depth].block;
	*shared = configs[depth].shared;
	*(void **)stream = configs[depth].stream;
	return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t *, const void *);
RT_API cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *entry)
{
	CUkernel k;
	cudaError_t e = rt_init();

	if (e == cudaSuccess)
		e = rt_kernel_of(entry, &k);
	if (e == cudaSuccess)
		*out = (cudaKernel_t)k;
	return rt_result(e);
}

RT_API cudaError_t cudaGetKernel(cudaKernel_t *out, const void *entry) { return __cudaGetKernel(out, entry); }

static cudaError_t launch(const struct rt_driver *d, CUfunction f, dim3 g, dim3 b, void **args, size_t shared, cudaStream_t s)
{
	cudaError_t e = (cudaError_t)d->cuLaunchKernel(f, g.x, g.y, g.z, b.x, b.y, b.z, (unsigned)shared, s, args, NULL);

	/* The runtime has its own name for a shape that the driver calls an invalid value. */
	return e == cudaErrorInvalidValue ? cudaErrorInvalidConfiguration : e;
}

static cudaError_t launch_kernel(const struct rt_driver *d, cudaKernel_t k, dim3 g, dim3 b, void **args, size_t shared, cudaStream_t s)
{
	cudaError_t e = rt_init();

	if (e == cudaSuccess)
		e = k ? launch(d, (CUfunction)k, g, b, args, shared, s) : cudaErrorInvalidDeviceFunction;
	return rt_result(e);
}

cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void **, size_t, cudaStream_t);
RT_API cudaError_t __cudaLaunchKernel(cudaKernel_t k, dim3 g, dim3 b, void **args, size_t shared, cudaStream_t s)
{
	return launch_kernel(&rt_drv, k, g, b, args, shared, s);
}

cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t, dim3, dim3, void **, size_t, cudaStream_t);
RT_API cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t k, dim3 g, dim3 b, void **args, size_t shared, cudaStream_t s)
{
	return launch_kernel(&rt_ptd, k, g, b, args, shared, s);
}

static cudaError_t launch_host(const struct rt_driver *d, const void *entry, dim3 g, dim3 b, void **args, size_t shared, cudaStream_t s, bool coop)
{
	CUfunction f;
	cudaError_t e = rt_init();

	if (e == cudaSuccess)
		e = rt_function_of(entry, &f);
	if (e == cudaSuccess)
		e = coop ? (cudaError_t)d->cuLaunchCooperativeKernel(f, g.x, g.y, g.z, b.x, b.y, b.z, (unsigned)shared, s, args) :
			   launch(d, f, g, b, args, shared, s);
	return rt_result(e);
}

RT_API cudaError_t cudaLaunchKernel(const void *f, dim3 g, dim3 b, void **args, size_t shared, cudaStream_t s)
{
	return launch_host(&rt_drv, f, g, b, args, shared, s, false);
}

cudaError_t cudaLaunchKernel_ptsz(const void *, dim3, dim3, void **, size_t, cudaStream_t);
RT_API cudaError_t cudaLaunchKernel_ptsz(const void *f, dim3 g, dim3 b, void **args, size_t shared, cudaStream_t s)
{
	return launch_host(&rt_ptd, f, g, b, args, shared, s, false);
}

RT_API cudaError_t cudaLaunchCooperativeKernel(const void *f, dim3 g, dim3 b, void **args, size_t shared, cudaStream_t s)
{
	return launch_host(&rt_drv, f, g, b, args, shared, s, true);
}

static cudaError_t launch_config(const struct rt_driver *d, const cudaLaunchConfig_t *c, const void *entry, void **args)
{
	CUfunction f;
	cudaError_t e = rt_init();

	if (e == cudaSuccess)
		e = rt_function_of(entry, &f);
	if (e != cudaSuccess)
		return rt_result(e);
	CUlaunchConfig x = { .gridDimX = c->gridDim.x, .gridDimY = c->gridDim.y, .gridDimZ = c->gridDim.z,
			     .blockDimX = c->blockDim.x, .blockDimY = c->blockDim.y, .blockDimZ = c->blockDim.z,
			     .sharedMemBytes = (unsigned)c->dynamicSmemBytes, .hStream = c->stream,
			     .attrs = (CUlaunchAttribute *)c->attrs, .numAttrs = c->numAttrs };
	return rt_result((cudaError_t)d->cuLaunchKernelEx(&x, f, args, NULL));
}

RT_API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *f, void **args) { return launch_config(&rt_drv, c, f, args); }
cudaError_t cudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t *, const void *, void **);
RT_API cudaError_t cudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t *c, const void *f, void **args) { return launch_config(&rt_ptd, c, f, args); }

RT_API cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *data) { RT(rt_drv.cuLaunchHostFunc(s, fn, data)); }
cudaError_t cudaLaunchHostFunc_ptsz(cudaStream_t, cudaHostFn_t, void *);
RT_API cudaError_t cudaLaunchHostFunc_ptsz(cudaStream_t s, cudaHostFn_t fn, void *data) { RT(rt_ptd.cuLaunchHostFunc(s, fn, data)); }

RT_API cudaError_t cudaGetFuncBySymbol(cudaFunction_t *out, const void *entry)
{
	RT(rt_function_of(entry, (CUfunction *)out));
}

RT_API cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *entry)
{
	CUfunction f;
	cudaError_t e = rt_init();

	if (e == cudaSuccess)
		e = rt_function_of(entry, &f);
	if (e != cudaSuccess)
		return rt_result(e);
	memset(a, 0, sizeof *a);
	rt_drv.cuFuncGetAttribute(&a->maxThreadsPerBlock, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f);
	rt_drv.cuFuncGetAttribute(&a->numRegs, CU_FUNC_ATTRIBUTE_NUM_REGS, f);
	rt_drv.cuFuncGetAttribute(&a->ptxVersion, CU_FUNC_ATTRIBUTE_PTX_VERSION, f);
	rt_drv.cuFuncGetAttribute(&a->binaryVersion, CU_FUNC_ATTRIBUTE_BINARY_VERSION, f);
	rt_drv.cuFuncGetAttribute(&a->maxDynamicSharedSizeBytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, f);
	return cudaSuccess;
}

RT_API cudaError_t cudaFuncSetAttribute(const void *entry, enum cudaFuncAttribute a, int v)
{
	CUfunction f;
	cudaError_t e = rt_init();

	if (e == cudaSuccess)
		e = rt_function_of(entry, &f);
	if (e == cudaSuccess)
		e = (cudaError_t)rt_drv.cuFuncSetAttribute(f, (CUfunction_attribute)a, v);
	return rt_result(e);
}

RT_API cudaError_t cudaFuncSetCacheConfig(const void *entry, enum cudaFuncCache c)
{
	CUfunction f;
	cudaError_t e = rt_init();

	if (e == cudaSuccess)
		e = rt_function_of(entry, &f);
	if (e == cudaSuccess)
		e = (cudaError_t)rt_drv.cuFuncSetCacheConfig(f, (CUfunc_cache)c);
	return rt_result(e);
}

RT_API cudaError_t cudaFuncGetName(const char **name, const void *entry)
{
	CUfunction f;
	cudaError_t e = rt_init();

	if (e == cudaSuccess)
		e = rt_function_of(entry, &f);
	if (e == cudaSuccess)
		e = (cudaError_t)rt_drv.cuFuncGetName(name, f);
	return rt_result(e);
}

RT_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *entry, int block, size_t shared, unsigned flags)
{
	CUfunction f;
	cudaError_t e = rt_init();

	if (e == cudaSuccess)
		e = rt_function_of(entry, &f);
	if (e == cudaSuccess)
		e = (cudaError_t)rt_drv.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(n, f, block, shared, flags);
	return rt_result(e);
}

RT_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *f, int block, size_t shared)
{
	return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(n, f, block, shared, 0);
}

RT_API cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, const void *entry, int blocks, int block)
{
	CUfunction f;
	cudaError_t e = rt_init();

	if (e == cudaSuccess)
		e = rt_function_of(entry, &f);
	if (e == cudaSuccess)
		e = (cudaError_t)rt_drv.cuOccupancyAvailableDynamicSMemPerBlock(bytes, f, blocks, block);
	return rt_result(e);
}
