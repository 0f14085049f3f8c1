/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel launches, and how many blocks would fit. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/protocol.h"
#include "driver/sim.h"
#include "image.h"

#define SHARED_DEFAULT 49152u

CUresult sim_launch_pack(struct sim_launch *l, struct sim_kernel *k, void **params, void **extra)
{
	const void *buffer = NULL;
	size_t bytes = 0;

	if (params && extra)
		return CUDA_ERROR_INVALID_VALUE;
	for (void **e = extra; e && *e != CU_LAUNCH_PARAM_END; e += 2)
		if (*e == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = e[1];
		else if (*e == CU_LAUNCH_PARAM_BUFFER_SIZE)
			bytes = *(size_t *)e[1];
		else
			return CUDA_ERROR_INVALID_VALUE;
	if (k->param_bytes && !params && (!buffer || bytes < k->param_bytes))
		return CUDA_ERROR_INVALID_VALUE;
	if (k->param_bytes > SIM_PARAM_BYTES_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = sim_module_on(k->module, sim_device());
	if (r != CUDA_SUCCESS)
		return r;
	l->kernel = k;
	l->device = sim_device();
	l->param_bytes = k->param_bytes;
	l->params = calloc(1, k->param_bytes + 1);
	if (!l->params)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (params) {
		for (uint32_t i = 0; i < k->n_params; i++)
			memcpy(l->params + k->params[i].offset, params[i], k->params[i].size);
	} else if (buffer) {
		memcpy(l->params, buffer, k->param_bytes);
	}
	return CUDA_SUCCESS;
}

static CUresult check_shape(const struct sim_launch *l, const struct sim_kernel *k)
{
	uint64_t threads = (uint64_t)l->block[0] * l->block[1] * l->block[2];
	uint32_t shared = k->attribute_shared > (int)SHARED_DEFAULT ? (uint32_t)k->attribute_shared : SHARED_DEFAULT;

	if (!l->grid[0] || !l->grid[1] || !l->grid[2] || !threads)
		return CUDA_ERROR_INVALID_VALUE;
	if (l->grid[0] > 0x7fffffff || l->grid[1] > 65535 || l->grid[2] > 65535 || threads > 1024 || l->block[2] > 64 ||
	    l->shared > shared)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static atomic_uint_fast64_t calls;

static void sleep_ns(uint64_t ns)
{
	struct timespec left = { .tv_sec = (time_t)(ns / 1000000000ull), .tv_nsec = (long)(ns % 1000000000ull) };

	while (ns && clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
		;
}

/* No other call gets on while the device finishes what it has, and while what is wanted is loaded. */
static void load(int device, uint64_t ns)
{
	if (!sim_settings.helpful_loading) {
		sim_hold(device);
		sim_wait_device(device);
	}
	pthread_mutex_unlock(&sim_lock);
	sleep_ns(ns);
	pthread_mutex_lock(&sim_lock);
	if (!sim_settings.helpful_loading)
		sim_let_go(device);
}

void sim_load_part(enum sim_loaded *part, int device, uint64_t ns)
{
	if (sim_settings.eager)
		return;
	while (*part == SIM_COMING)
		pthread_cond_wait(&sim_progress, &sim_lock);
	if (*part == SIM_THERE)
		return;
	*part = SIM_COMING;
	load(device, ns);
	*part = SIM_THERE;
	pthread_cond_broadcast(&sim_progress);
}

/* A kernel's code is loaded when it is launched first (lazy loading), the first one's with what its module has for all. */
void sim_load(struct sim_kernel *k, int device)
{
	if (k->loaded[device])
		return;
	k->loaded[device] = true;
	if (k->module->code[device] != SIM_THERE)
		sim_load_part(&k->module->code[device], device, sim_settings.load_ns);
	else if (!sim_settings.eager && !sim_settings.helpful_loading)
		load(device, 0);
}

static CUresult launch(const void *f, const uint32_t g[3], const uint32_t b[3], unsigned shared, CUstream h, void **params,
		       void **extra, bool cooperative)
{
	struct sim_work w = { .kind = SIM_WORK_KERNEL };
	struct sim_stream *s;

	SIM_ENTER();
	struct sim_kernel *k = sim_kernel_check(f);
	CUresult r = k ? sim_stream_get(h, &s) : CUDA_ERROR_INVALID_HANDLE;
	/* A kernel runs on the current device, and so on one of its streams. */
	if (r == CUDA_SUCCESS && s->ctx->device != sim_device())
		r = CUDA_ERROR_INVALID_HANDLE;
	memcpy(w.u.launch.grid, g, sizeof w.u.launch.grid);
	memcpy(w.u.launch.block, b, sizeof w.u.launch.block);
	w.u.launch.shared = shared;
	w.u.launch.cooperative = cooperative;
	if (r == CUDA_SUCCESS)
		r = check_shape(&w.u.launch, k);
	if (r == CUDA_SUCCESS && atomic_fetch_add(&calls, 1) + 1 == sim_settings.launch_at)
		r = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
	if (r == CUDA_SUCCESS)
		r = sim_launch_pack(&w.u.launch, k, params, extra);
	if (r == CUDA_SUCCESS && !s->capture)
		sim_load(k, s->ctx->device);
	return sim_return(r == CUDA_SUCCESS ? sim_submit(s, &w, NULL) : r);
}

#define SHAPE (const uint32_t[]){ gx, gy, gz }, (const uint32_t[]){ bx, by, bz }
#define SHAPE_PARAMS unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz

SIM_API CUresult cuLaunchKernel(CUfunction f, SHAPE_PARAMS, unsigned shared, CUstream s, void **params, void **extra)
{
	return launch(f, SHAPE, shared, SIM_LEGACY(s), params, extra, false);
}

SIM_API CUresult cuLaunchKernel_ptsz(CUfunction f, SHAPE_PARAMS, unsigned shared, CUstream s, void **params, void **extra)
{
	return launch(f, SHAPE, shared, SIM_PTDS(s), params, extra, false);
}

SIM_API CUresult cuLaunchCooperativeKernel(CUfunction f, SHAPE_PARAMS, unsigned shared, CUstream s, void **params)
{
	return launch(f, SHAPE, shared, SIM_LEGACY(s), params, NULL, true);
}

SIM_API CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, SHAPE_PARAMS, unsigned shared, CUstream s, void **params)
{
	return launch(f, SHAPE, shared, SIM_PTDS(s), params, NULL, true);
}

static CUresult launch_ex(const CUlaunchConfig *c, CUfunction f, void **params, void **extra, bool ptds)
{
	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	bool cooperative = false;
	for (unsigned i = 0; i < c->numAttrs; i++)
		if (c->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
			cooperative = c->attrs[i].value.cooperative != 0;
	return launch(f, (const uint32_t[]){ c->gridDimX, c->gridDimY, c->gridDimZ },
		      (const uint32_t[]){ c->blockDimX, c->blockDimY, c->blockDimZ }, c->sharedMemBytes,
		      ptds ? SIM_PTDS(c->hStream) : SIM_LEGACY(c->hStream), params, extra, cooperative);
}

SIM_API CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **p, void **e) { return launch_ex(c, f, p, e, false); }
SIM_API CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *c, CUfunction f, void **p, void **e) { return launch_ex(c, f, p, e, true); }

static CUresult max_blocks(int *n, const void *f, int block, size_t shared)
{
	struct sim_kernel *k = sim_kernel_check(f);

	if (!n || block <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!k)
		return CUDA_ERROR_INVALID_HANDLE;
	int by_threads = 2048 / ((block + 31) / 32 * 32), by_shared = shared ? (int)(233472 / (shared + 1024)) : 32;
	*n = by_threads < by_shared ? by_threads : by_shared;
	if (*n > 32)
		*n = 32;
	if (block > 1024)
		*n = 0;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CUfunction f, int block, size_t shared)
{
	return max_blocks(n, f, block, shared);
}

SIM_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, CUfunction f, int block, size_t shared, unsigned flags)
{
	(void)flags;
	return max_blocks(n, f, block, shared);
}

SIM_API CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction f, CUoccupancyB2DSize fn, size_t shared,
							   int limit, unsigned flags)
{
	int n = 0;

	(void)flags;
	*block = limit > 0 && limit < 1024 ? limit : 1024;
	CUresult r = max_blocks(&n, f, *block, fn ? fn(*block) : shared);
	*grid = n * 4;
	return r;
}

SIM_API CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction f, CUoccupancyB2DSize fn, size_t shared, int limit)
{
	return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, f, fn, shared, limit, 0);
}

SIM_API CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction f, int blocks, int block)
{
	(void)block;
	if (!bytes || blocks <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	*bytes = (size_t)(233472 / blocks - 1024);
	return sim_kernel_check(f) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
