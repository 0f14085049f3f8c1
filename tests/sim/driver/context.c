/* SPDX-License-Identifier: Apache-2.0 */
/* Initialisation, the checks every call makes, and contexts. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver/sim.h"

#define STACK_MAX 64

static struct sim_ctx primary[SIM_DEVICES];
__thread bool sim_in_callback;
static __thread struct sim_ctx *stack[STACK_MAX];
static __thread int depth;
static struct sim_ctx *contexts;
static uint64_t next_ctx_id;
/* A page that a forked child finds empty: the driver does not work there. */
static volatile int *initialised;

static CUresult start(void)
{
	static int failed;

	if (failed)
		return CUDA_ERROR_NO_DEVICE;
	sim_settings_read();
	failed = !sim_settings.devices || sim_vram_start() || sim_engine_start();
	if (failed)
		return CUDA_ERROR_NO_DEVICE;
	volatile int *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	madvise((void *)(uintptr_t)page, 4096, MADV_WIPEONFORK);
	*page = 1;
	initialised = page;
	return CUDA_SUCCESS;
}

__attribute__((destructor)) static void stop(void)
{
	if (initialised && *initialised) {
		*initialised = 0;
		sim_settings_end();
		sim_remote_stop();
	}
}

SIM_API CUresult cuInit(unsigned flags)
{
	static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
	CUresult r = CUDA_SUCCESS;

	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (initialised)
		return *initialised ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
	pthread_mutex_lock(&once);
	if (!initialised)
		r = start();
	pthread_mutex_unlock(&once);
	return r;
}

/* Devices whose context a call holds. */
static bool held[SIM_DEVICES];

CUresult sim_enter_no_ctx(void)
{
	if (!initialised || !*initialised)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (sim_in_callback)
		return CUDA_ERROR_NOT_PERMITTED;
	pthread_mutex_lock(&sim_lock);
	return CUDA_SUCCESS;
}

static void wait_for_holder(int device)
{
	while (held[device])
		pthread_cond_wait(&sim_progress, &sim_lock);
}

void sim_hold(int device)
{
	/* Somebody else may have begun to while this one waited for something else. */
	wait_for_holder(device);
	held[device] = true;
}

void sim_let_go(int device)
{
	held[device] = false;
	pthread_cond_broadcast(&sim_progress);
}

void sim_wait_device_held(int device)
{
	if (!sim_settings.helpful_memory)
		sim_hold(device);
	sim_wait_device(device);
	if (!sim_settings.helpful_memory)
		sim_let_go(device);
}

void sim_allocating(void)
{
	if (sim_settings.waiting_allocations)
		sim_wait_device_held(sim_device());
}

CUresult sim_enter(void)
{
	CUresult r = sim_enter_no_ctx();

	if (r != CUDA_SUCCESS)
		return r;
	struct sim_ctx *c = sim_current();
	if (c)
		wait_for_holder(sim_device());
	r = !c ? CUDA_ERROR_INVALID_CONTEXT : !c->alive ? CUDA_ERROR_CONTEXT_IS_DESTROYED : sim_sticky();
	if (r != CUDA_SUCCESS)
		pthread_mutex_unlock(&sim_lock);
	return r;
}

void sim_leave(void)
{
	pthread_mutex_unlock(&sim_lock);
}

struct sim_ctx *sim_current(void)
{
	return depth ? stack[depth - 1] : NULL;
}

int sim_device(void)
{
	return depth ? stack[depth - 1]->device : 0;
}

static void ctx_begin(struct sim_ctx *c)
{
	c->magic = SIM_CTX_MAGIC;
	c->alive = true;
	c->id = ++next_ctx_id;
	c->legacy = sim_stream_new(c, 0, 0);
	c->legacy->is_default = true;
	c->limit[CU_LIMIT_STACK_SIZE] = 1024;
	c->limit[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
	c->limit[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
	c->next = contexts;
	contexts = c;
}

void sim_ctx_stop(struct sim_ctx *c)
{
	sim_wait_device(c->device);
	c->peers = 0;
	while (c->streams)
		sim_stream_free(c->streams);
	c->legacy = NULL;
	for (int kind = 0; kind < SIM_CHANNEL_KINDS; kind++)
		for (int i = 0; i < SIM_CHANNELS; i++) {
			sim_op_unref(c->channel[kind][i]);
			c->channel[kind][i] = NULL;
		}
	sim_alloc_free_all(c);
	c->alive = false;
	for (struct sim_ctx **link = &contexts; *link; link = &(*link)->next)
		if (*link == c) {
			*link = c->next;
			break;
		}
}

static CUresult device_ok(CUdevice dev)
{
	return dev >= 0 && dev < sim_settings.devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

SIM_API CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice dev)
{
	CUresult r = sim_enter_no_ctx();

	if (r != CUDA_SUCCESS)
		return r;
	r = device_ok(dev);
	if (r == CUDA_SUCCESS && !out)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS) {
		struct sim_ctx *c = &primary[dev];

		if (!c->alive) {
			c->primary = true;
			c->device = dev;
			ctx_begin(c);
		}
		c->refs++;
		*out = (CUcontext)c;
	}
	return sim_return(r);
}

SIM_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	CUresult r = sim_enter_no_ctx();

	if (r != CUDA_SUCCESS)
		return r;
	r = device_ok(dev);
	if (r == CUDA_SUCCESS && !primary[dev].refs)
		r = CUDA_ERROR_INVALID_CONTEXT;
	if (r == CUDA_SUCCESS && --primary[dev].refs == 0)
		sim_ctx_stop(&primary[dev]);
	return sim_return(r);
}

SIM_API CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	CUresult r = sim_enter_no_ctx();

	if (r != CUDA_SUCCESS)
		return r;
	r = device_ok(dev);
	if (r == CUDA_SUCCESS && primary[dev].alive) {
		sim_ctx_stop(&primary[dev]);
		if (primary[dev].refs)
			ctx_begin(&primary[dev]);
	}
	return sim_return(r);
}

SIM_API CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned *flags, int *active)
{
	CUresult r = sim_enter_no_ctx();

	if (r != CUDA_SUCCESS)
		return r;
	r = device_ok(dev);
	if (r == CUDA_SUCCESS) {
		if (flags)
			*flags = primary[dev].flags;
		if (active)
			*active = primary[dev].alive;
	}
	return sim_return(r);
}

SIM_API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned flags)
{
	CUresult r = sim_enter_no_ctx();

	if (r != CUDA_SUCCESS)
		return r;
	r = device_ok(dev);
	if (r == CUDA_SUCCESS)
		primary[dev].flags = flags;
	return sim_return(r);
}

static CUresult ctx_create(CUcontext *out, unsigned flags, CUdevice dev)
{
	CUresult r = sim_enter_no_ctx();

	if (r != CUDA_SUCCESS)
		return r;
	r = out ? device_ok(dev) : CUDA_ERROR_INVALID_VALUE;
	struct sim_ctx *c = r == CUDA_SUCCESS ? calloc(1, sizeof *c) : NULL;
	if (r == CUDA_SUCCESS && (!c || depth == STACK_MAX))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (r == CUDA_SUCCESS) {
		c->flags = flags;
		c->device = dev;
		ctx_begin(c);
		stack[depth++] = c;
		*out = (CUcontext)c;
	}
	return sim_return(r);
}

SIM_API CUresult cuCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice dev)
{
	return ctx_create(out, flags, dev);
}

SIM_API CUresult cuCtxCreate_v3(CUcontext *out, CUexecAffinityParam *params, int n, unsigned flags, CUdevice dev)
{
	return params || n ? CUDA_ERROR_NOT_SUPPORTED : ctx_create(out, flags, dev);
}

SIM_API CUresult cuCtxCreate_v4(CUcontext *out, CUctxCreateParams *params, unsigned flags, CUdevice dev)
{
	return params ? CUDA_ERROR_NOT_SUPPORTED : ctx_create(out, flags, dev);
}

static struct sim_ctx *ctx_check(CUcontext h)
{
	struct sim_ctx *c = (struct sim_ctx *)h;

	return c && c->magic == SIM_CTX_MAGIC ? c : NULL;
}

SIM_API CUresult cuCtxDestroy_v2(CUcontext h)
{
	CUresult r = sim_enter_no_ctx();

	if (r != CUDA_SUCCESS)
		return r;
	struct sim_ctx *c = ctx_check(h);
	if (!c || c->primary || !c->alive)
		return sim_return(CUDA_ERROR_INVALID_CONTEXT);
	/* The memory of the struct stays: other threads may still have it on their stacks. */
	sim_ctx_stop(c);
	if (depth && stack[depth - 1] == c)
		depth--;
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuCtxGetCurrent(CUcontext *out)
{
	if (!initialised || !*initialised)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (CUcontext)sim_current();
	return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxSetCurrent(CUcontext h)
{
	CUresult r = sim_enter_no_ctx();

	if (r != CUDA_SUCCESS)
		return r;
	struct sim_ctx *c = ctx_check(h);
	if (h && !c)
		return sim_return(CUDA_ERROR_INVALID_CONTEXT);
	if (depth)
		depth--;
	if (c)
		stack[depth++] = c;
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuCtxPushCurrent_v2(CUcontext h)
{
	CUresult r = sim_enter_no_ctx();

	if (r != CUDA_SUCCESS)
		return r;
	struct sim_ctx *c = ctx_check(h);
	if (!c)
		r = CUDA_ERROR_INVALID_CONTEXT;
	else if (depth == STACK_MAX)
		r = CUDA_ERROR_OUT_OF_MEMORY;
	else
		stack[depth++] = c;
	return sim_return(r);
}

SIM_API CUresult cuCtxPopCurrent_v2(CUcontext *out)
{
	CUresult r = sim_enter_no_ctx();

	if (r != CUDA_SUCCESS)
		return r;
	if (!depth)
		return sim_return(CUDA_ERROR_INVALID_CONTEXT);
	depth--;
	if (out)
		*out = (CUcontext)stack[depth];
	return sim_return(CUDA_SUCCESS);
}

static CUresult synchronize(const struct sim_ctx *c)
{
	CUresult r = sim_capture_unsafe();

	if (r == CUDA_SUCCESS) {
		sim_note_wait((c->flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC);
		sim_wait_device(c->device);
		sim_pools_trim();
		r = sim_sticky();
	}
	return r;
}

SIM_API CUresult cuCtxSynchronize(void)
{
	SIM_ENTER();
	return sim_return(synchronize(sim_current()));
}

SIM_API CUresult cuCtxSynchronize_v2(CUcontext h)
{
	SIM_ENTER();
	return sim_return(h && !ctx_check(h) ? CUDA_ERROR_INVALID_CONTEXT : synchronize(h ? ctx_check(h) : sim_current()));
}

SIM_API CUresult cuCtxGetDevice(CUdevice *dev)
{
	SIM_ENTER();
	*dev = sim_device();
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuCtxGetDevice_v2(CUdevice *dev, CUcontext h)
{
	SIM_ENTER();
	if (h && !ctx_check(h))
		return sim_return(CUDA_ERROR_INVALID_CONTEXT);
	*dev = h ? ctx_check(h)->device : sim_device();
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuCtxGetFlags(unsigned *flags)
{
	SIM_ENTER();
	*flags = sim_current()->flags;
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuCtxSetFlags(unsigned flags)
{
	SIM_ENTER();
	sim_current()->flags = flags;
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuCtxGetId(CUcontext h, unsigned long long *id)
{
	SIM_ENTER();
	struct sim_ctx *c = h ? ctx_check(h) : sim_current();
	if (!c)
		return sim_return(CUDA_ERROR_INVALID_CONTEXT);
	*id = c->id;
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuCtxGetApiVersion(CUcontext h, unsigned *version)
{
	(void)h;
	*version = 3020;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
	SIM_ENTER();
	if ((unsigned)limit >= 16)
		return sim_return(CUDA_ERROR_UNSUPPORTED_LIMIT);
	*value = sim_current()->limit[limit];
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
	SIM_ENTER();
	if ((unsigned)limit >= 16)
		return sim_return(CUDA_ERROR_UNSUPPORTED_LIMIT);
	sim_current()->limit[limit] = value;
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuCtxGetCacheConfig(CUfunc_cache *config)
{
	*config = CU_FUNC_CACHE_PREFER_NONE;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
	(void)config;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	SIM_ENTER();
	if (least)
		*least = 0;
	if (greatest)
		*greatest = -5;
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuCtxResetPersistingL2Cache(void)
{
	return CUDA_SUCCESS;
}

/* Kernels reach the memory of all devices as it is; that this was asked for is remembered, since asking twice is an error. */
SIM_API CUresult cuCtxEnablePeerAccess(CUcontext h, unsigned flags)
{
	SIM_ENTER();
	struct sim_ctx *c = sim_current(), *peer = ctx_check(h);

	if (flags)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	if (!peer || !peer->alive || peer == c)
		return sim_return(CUDA_ERROR_INVALID_CONTEXT);
	if (peer->device == c->device)
		return sim_return(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
	if (c->peers & 1u << peer->device)
		return sim_return(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
	c->peers |= 1u << peer->device;
	return sim_return(CUDA_SUCCESS);
}

bool sim_is_peer(int device, int of)
{
	for (struct sim_ctx *c = contexts; c; c = c->next)
		if (c->device == device && c->peers & 1u << of)
			return true;
	return false;
}

SIM_API CUresult cuCtxDisablePeerAccess(CUcontext h)
{
	SIM_ENTER();
	struct sim_ctx *c = sim_current(), *peer = ctx_check(h);

	if (!peer || !peer->alive)
		return sim_return(CUDA_ERROR_INVALID_CONTEXT);
	if (!(c->peers & 1u << peer->device))
		return sim_return(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
	c->peers &= ~(1u << peer->device);
	return sim_return(CUDA_SUCCESS);
}
