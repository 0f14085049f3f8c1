/* SPDX-License-Identifier: Apache-2.0 */
/* The stream-ordered allocator: what a request gets depends on how far the device has come, as on hardware. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "driver/sim.h"

#define POOL_MAGIC 0x5053494du
#define ALIGN 512ull
#define SEGMENT (32ull << 20)

struct sim_pool_block {
	uint64_t offset, bytes;
	bool used;
	struct sim_op *free_op;    /* not finished: only the freeing stream may have it again */
	struct sim_stream *stream; /* that freed it */
	struct segment *segment;
	struct sim_pool_block *next; /* by address */
};

struct segment {
	struct sim_pool *pool;
	uint64_t va, bytes;
	struct sim_phys *phys;
	struct sim_pool_block *blocks;
	struct segment *next;
};

struct sim_pool {
	uint32_t magic;
	CUmemPoolProps props;
	uint64_t threshold, reserved, reserved_high, used, used_high;
	int follow_events, opportunistic, internal;
	bool destroyed;
	unsigned peers; /* other devices that may use its memory, as bits */
	struct segment *segments;
	struct sim_pool *next;
};

static struct sim_pool default_pool[SIM_DEVICES];
static struct sim_pool *pools;
static struct sim_pool *current[SIM_DEVICES];

static struct sim_pool *pool_check(CUmemoryPool h)
{
	struct sim_pool *p = (struct sim_pool *)h;

	return p && p->magic == POOL_MAGIC ? p : NULL;
}

static struct sim_pool *pool_current(int device)
{
	struct sim_pool *p = &default_pool[device];

	if (!current[device]) {
		current[device] = p;
		*p = (struct sim_pool){ .magic = POOL_MAGIC, .follow_events = 1, .opportunistic = 1, .internal = 1, .next = pools };
		p->props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
		p->props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
		p->props.location.id = device;
		pools = p;
	}
	return current[device];
}

static bool block_idle(const struct sim_pool_block *b)
{
	return !b->used && (!b->free_op || b->free_op->done);
}

static void settle(struct segment *s)
{
	for (struct sim_pool_block *b = s->blocks; b; b = b->next) {
		if (!block_idle(b))
			continue;
		sim_op_unref(b->free_op);
		b->free_op = NULL;
		while (b->next && block_idle(b->next)) {
			struct sim_pool_block *n = b->next;

			/* An operation under way may still name the block it frees. */
			if (n->free_op)
				sim_op_unref(n->free_op);
			b->bytes += n->bytes;
			b->next = n->next;
			free(n);
		}
	}
}

static struct segment *segment_new(struct sim_pool *p, uint64_t bytes)
{
	struct segment *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->phys = sim_phys_create(p->props.location.id, bytes);
	s->va = s->phys ? sim_va_reserve(s->phys->bytes, SIM_PAGE, 0, false) : 0;
	s->blocks = calloc(1, sizeof *s->blocks);
	if (!s->va || !s->blocks || sim_va_map(s->va, s->phys->bytes, s->phys, 0, PROT_READ | PROT_WRITE)) {
		if (s->va)
			sim_va_release(s->va, s->phys->bytes);
		sim_phys_unref(s->phys);
		free(s->blocks);
		free(s);
		return NULL;
	}
	s->pool = p;
	s->bytes = s->phys->bytes;
	s->blocks->bytes = s->bytes;
	s->blocks->segment = s;
	s->next = p->segments;
	p->segments = s;
	p->reserved += s->bytes;
	if (p->reserved > p->reserved_high)
		p->reserved_high = p->reserved;
	return s;
}

static void trim(struct sim_pool *p, uint64_t keep)
{
	for (struct segment **link = &p->segments; *link && p->reserved > keep;) {
		struct segment *s = *link;

		settle(s);
		if (s->blocks->next || !block_idle(s->blocks)) {
			link = &s->next;
			continue;
		}
		*link = s->next;
		p->reserved -= s->bytes;
		sim_va_unmap(s->va, s->bytes);
		sim_va_release(s->va, s->bytes);
		sim_phys_unref(s->phys);
		free(s->blocks);
		free(s);
	}
}

static void reap(void)
{
	for (struct sim_pool **link = &pools; *link;) {
		struct sim_pool *p = *link;

		if (p->destroyed && !p->used) {
			trim(p, 0);
			if (!p->segments) {
				/* The struct stays, so that a stale handle is told from a live one. */
				*link = p->next;
				p->magic = 0;
				continue;
			}
		}
		link = &p->next;
	}
}

void sim_pools_trim(void)
{
	for (struct sim_pool *p = pools; p; p = p->next)
		trim(p, p->threshold);
	reap();
}

/* The smallest free block that the stream may have now, or, if it is to wait, any free block. */
static struct sim_pool_block *find(struct sim_pool *p, uint64_t bytes, struct sim_stream *s, bool wait)
{
	struct sim_pool_block *best = NULL;

	for (struct segment *g = p->segments; g; g = g->next) {
		settle(g);
		for (struct sim_pool_block *b = g->blocks; b; b = b->next) {
			if (b->used || b->bytes < bytes)
				continue;
			/* A block never used belongs to everybody. */
			if (!wait && b->stream && b->stream != s && !(p->opportunistic && block_idle(b)))
				continue;
			if (!best || b->bytes < best->bytes)
				best = b;
		}
	}
	return best;
}

static CUresult take(struct sim_pool *p, struct sim_pool_block *b, uint64_t bytes, uint64_t asked, struct sim_alloc **out)
{
	if (b->bytes > bytes) {
		struct sim_pool_block *rest = calloc(1, sizeof *rest);

		if (!rest)
			return CUDA_ERROR_OUT_OF_MEMORY;
		*rest = *b;
		rest->offset += bytes;
		rest->bytes -= bytes;
		if (rest->free_op)
			sim_op_ref(rest->free_op);
		b->bytes = bytes;
		b->next = rest;
	}
	struct sim_alloc *a = sim_alloc_add(b->segment->va + b->offset, asked, SIM_ALLOC_POOL);
	if (!a)
		return CUDA_ERROR_OUT_OF_MEMORY;
	sim_op_unref(b->free_op);
	b->free_op = NULL;
	b->used = true;
	a->device = p->props.location.id;
	a->reserved = bytes;
	a->pool = p;
	a->block = b;
	a->prot = PROT_READ | PROT_WRITE;
	p->used += bytes;
	if (p->used > p->used_high)
		p->used_high = p->used;
	*out = a;
	return CUDA_SUCCESS;
}

static CUresult pool_alloc(struct sim_pool *p, uint64_t asked, struct sim_stream *s, struct sim_alloc **out)
{
	uint64_t bytes = (asked + ALIGN - 1) / ALIGN * ALIGN;
	uint64_t grow = bytes <= SEGMENT ? SEGMENT : (bytes + SIM_PAGE - 1) / SIM_PAGE * SIM_PAGE;

	if (sim_fault_alloc())
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct sim_pool_block *b = find(p, bytes, s, false);
	if (!b && p->props.maxSize && p->reserved + grow > p->props.maxSize)
		grow = (bytes + SIM_PAGE - 1) / SIM_PAGE * SIM_PAGE;
	if (!b && (!p->props.maxSize || p->reserved + grow <= p->props.maxSize)) {
		struct segment *g = segment_new(p, grow);

		if (!g && grow > (bytes + SIM_PAGE - 1) / SIM_PAGE * SIM_PAGE)
			g = segment_new(p, (bytes + SIM_PAGE - 1) / SIM_PAGE * SIM_PAGE);
		if (!g) {
			for (struct sim_pool *o = pools; o; o = o->next)
				trim(o, 0);
			g = segment_new(p, (bytes + SIM_PAGE - 1) / SIM_PAGE * SIM_PAGE);
		}
		b = g ? g->blocks : NULL;
	}
	if (!b && p->internal) {
		b = find(p, bytes, s, true);
		if (b && b->free_op && !b->free_op->done) {
			struct sim_work w = { .kind = SIM_WORK_EMPTY };
			struct sim_op *op = sim_stream_op(s, &w);

			sim_op_after(op, b->free_op);
			sim_stream_push(s, op);
		}
	}
	return b ? take(p, b, bytes, asked, out) : CUDA_ERROR_OUT_OF_MEMORY;
}

static void graph_memory_end(struct sim_graph_memory *m)
{
	if (m->refs || m->live)
		return;
	sim_heap_free(m->alloc);
	free(m);
}

void sim_graph_memory_unref(struct sim_graph_memory *m)
{
	if (!m)
		return;
	m->refs--;
	graph_memory_end(m);
}

void sim_graph_memory_live(struct sim_graph_memory *m, bool live)
{
	m->live = live;
	graph_memory_end(m);
}

CUresult sim_graph_memory_new(uint64_t bytes, struct sim_work *w)
{
	struct sim_graph_memory *m = calloc(1, sizeof *m);

	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = sim_heap_alloc(sim_device(), bytes, SIM_ALLOC_GRAPH, &m->alloc);
	if (r != CUDA_SUCCESS) {
		free(m);
		return r;
	}
	m->refs = 1;
	m->alloc->graph = m;
	*w = (struct sim_work){ .kind = SIM_WORK_ALLOC, .u.memory = { .va = m->alloc->va, .bytes = bytes, .graph = m } };
	return CUDA_SUCCESS;
}

static CUresult alloc_async(CUdeviceptr *out, size_t bytes, CUmemoryPool h, bool named, CUstream sh)
{
	struct sim_stream *s;
	struct sim_alloc *a = NULL;

	SIM_ENTER();
	CUresult r = out && bytes ? sim_stream_get(sh, &s) : CUDA_ERROR_INVALID_VALUE;
	struct sim_pool *p = named ? pool_check(h) : r == CUDA_SUCCESS ? pool_current(s->ctx->device) : NULL;
	if (r == CUDA_SUCCESS && (!p || p->destroyed))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS && s->capture) {
		struct sim_work w;
		uint64_t va;

		r = sim_graph_memory_new(bytes, &w);
		if (r == CUDA_SUCCESS) {
			va = w.u.memory.va;
			r = sim_submit(s, &w, NULL);
			if (r == CUDA_SUCCESS)
				*out = va;
		}
		return sim_return(r);
	}
	if (r == CUDA_SUCCESS)
		r = sim_capture_implicit(s);
	if (r == CUDA_SUCCESS)
		r = pool_alloc(p, bytes, s, &a);
	if (r == CUDA_SUCCESS)
		*out = a->va;
	return sim_return(r);
}

SIM_API CUresult cuMemAllocAsync(CUdeviceptr *o, size_t n, CUstream s) { return alloc_async(o, n, NULL, false, SIM_LEGACY(s)); }
SIM_API CUresult cuMemAllocAsync_ptsz(CUdeviceptr *o, size_t n, CUstream s) { return alloc_async(o, n, NULL, false, SIM_PTDS(s)); }
SIM_API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *o, size_t n, CUmemoryPool p, CUstream s) { return alloc_async(o, n, p, true, SIM_LEGACY(s)); }
SIM_API CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *o, size_t n, CUmemoryPool p, CUstream s) { return alloc_async(o, n, p, true, SIM_PTDS(s)); }

CUresult sim_pool_free_now(struct sim_alloc *a)
{
	a->block->used = false;
	a->block->stream = NULL;
	a->pool->used -= a->reserved;
	sim_alloc_remove(a);
	sim_pools_trim();
	return CUDA_SUCCESS;
}

static CUresult free_async(CUdeviceptr va, CUstream sh)
{
	struct sim_stream *s;
	struct sim_op *op;
	struct sim_work w = { .kind = SIM_WORK_FREE, .u.memory.va = va };

	SIM_ENTER();
	CUresult r = sim_stream_get(sh, &s);
	if (r != CUDA_SUCCESS || !va)
		return sim_return(r == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : r);
	struct sim_alloc *a = sim_alloc_find(va);
	if (!a || a->va != va || (a->kind != SIM_ALLOC_POOL && a->kind != SIM_ALLOC_GRAPH && a->kind != SIM_ALLOC_DEVICE))
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	if (s->capture)
		return sim_return(sim_submit(s, &w, NULL));
	if (a->kind == SIM_ALLOC_GRAPH) {
		sim_wait_device(a->device);
		sim_graph_memory_live(a->graph, false);
		return sim_return(CUDA_SUCCESS);
	}
	if (a->kind == SIM_ALLOC_DEVICE) {
		sim_wait_device_held(a->device);
		return sim_return(sim_heap_free(a));
	}
	r = sim_submit(s, &w, &op);
	if (r == CUDA_SUCCESS) {
		a->block->used = false;
		a->block->stream = s;
		a->block->free_op = op;
		a->pool->used -= a->reserved;
		sim_alloc_remove(a);
	}
	return sim_return(r);
}

SIM_API CUresult cuMemFreeAsync(CUdeviceptr va, CUstream s) { return free_async(va, SIM_LEGACY(s)); }
SIM_API CUresult cuMemFreeAsync_ptsz(CUdeviceptr va, CUstream s) { return free_async(va, SIM_PTDS(s)); }

SIM_API CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props)
{
	SIM_ENTER();
	if (!out || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
	    props->location.type != CU_MEM_LOCATION_TYPE_DEVICE || props->location.id < 0 ||
	    props->location.id >= sim_settings.devices)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	if (props->handleTypes != CU_MEM_HANDLE_TYPE_NONE)
		return sim_return(CUDA_ERROR_NOT_SUPPORTED);
	struct sim_pool *p = calloc(1, sizeof *p);
	if (!p)
		return sim_return(CUDA_ERROR_OUT_OF_MEMORY);
	p->magic = POOL_MAGIC;
	p->props = *props;
	p->follow_events = p->opportunistic = p->internal = 1;
	p->next = pools;
	pools = p;
	*out = (CUmemoryPool)p;
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuMemPoolDestroy(CUmemoryPool h)
{
	SIM_ENTER();
	struct sim_pool *p = pool_check(h);
	if (!p || p == &default_pool[p->props.location.id] || p->destroyed)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	/* What is still allocated from it stays, and is returned when freed. */
	p->destroyed = true;
	if (current[p->props.location.id] == p)
		current[p->props.location.id] = &default_pool[p->props.location.id];
	reap();
	return sim_return(CUDA_SUCCESS);
}

static CUresult pool_attribute(struct sim_pool *p, CUmemPool_attribute a, void *v, bool set)
{
	int *flag = a == CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES ? &p->follow_events :
		    a == CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC ? &p->opportunistic :
		    a == CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES ? &p->internal : NULL;
	uint64_t *word = a == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD ? &p->threshold :
			 a == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? &p->reserved :
			 a == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH ? &p->reserved_high :
			 a == CU_MEMPOOL_ATTR_USED_MEM_CURRENT ? &p->used :
			 a == CU_MEMPOOL_ATTR_USED_MEM_HIGH ? &p->used_high : NULL;

	if (flag) {
		if (set)
			*flag = *(int *)v;
		else
			*(int *)v = *flag;
		return CUDA_SUCCESS;
	}
	if (!word)
		return CUDA_ERROR_INVALID_VALUE;
	if (!set) {
		*(uint64_t *)v = *word;
		return CUDA_SUCCESS;
	}
	if (a == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
		*word = *(uint64_t *)v;
		return CUDA_SUCCESS;
	}
	/* High watermarks can be set to zero only, which means: to what is there now. */
	if (*(uint64_t *)v || a == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT || a == CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
		return CUDA_ERROR_INVALID_VALUE;
	*word = a == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH ? p->reserved : p->used;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuMemPoolSetAttribute(CUmemoryPool h, CUmemPool_attribute a, void *v)
{
	SIM_ENTER();
	struct sim_pool *p = pool_check(h);
	return sim_return(p && v ? pool_attribute(p, a, v, true) : CUDA_ERROR_INVALID_VALUE);
}

SIM_API CUresult cuMemPoolGetAttribute(CUmemoryPool h, CUmemPool_attribute a, void *v)
{
	SIM_ENTER();
	struct sim_pool *p = pool_check(h);
	return sim_return(p && v ? pool_attribute(p, a, v, false) : CUDA_ERROR_INVALID_VALUE);
}

SIM_API CUresult cuMemPoolTrimTo(CUmemoryPool h, size_t keep)
{
	SIM_ENTER();
	struct sim_pool *p = pool_check(h);
	if (!p)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	trim(p, keep);
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuMemPoolSetAccess(CUmemoryPool h, const CUmemAccessDesc *d, size_t n)
{
	SIM_ENTER();
	struct sim_pool *p = pool_check(h);
	CUresult r = p && d ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; r == CUDA_SUCCESS && i < n; i++)
		if (d[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || d[i].location.id < 0 || d[i].location.id >= sim_settings.devices ||
		    (d[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE && (d[i].flags || d[i].location.id == p->props.location.id)))
			r = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; r == CUDA_SUCCESS && i < n; i++)
		if (d[i].flags)
			p->peers |= 1u << d[i].location.id;
		else
			p->peers &= ~(1u << d[i].location.id);
	return sim_return(r);
}

bool sim_pool_lets(const struct sim_pool *p, int device)
{
	return p && (device == p->props.location.id || p->peers >> device & 1);
}

SIM_API CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool h, CUmemLocation *l)
{
	SIM_ENTER();
	if (!pool_check(h) || !flags || !l)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	*flags = l->type == CU_MEM_LOCATION_TYPE_DEVICE && l->id >= 0 && l->id < sim_settings.devices && sim_pool_lets(pool_check(h), l->id) ?
			 CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return sim_return(CUDA_SUCCESS);
}

static bool is_device(CUdevice d)
{
	return d >= 0 && d < sim_settings.devices;
}

SIM_API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice d)
{
	CUresult r = sim_enter_no_ctx();

	if (r != CUDA_SUCCESS)
		return r;
	if (!is_device(d))
		return sim_return(CUDA_ERROR_INVALID_DEVICE);
	pool_current(d);
	*out = (CUmemoryPool)&default_pool[d];
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuDeviceGetMemPool(CUmemoryPool *out, CUdevice d)
{
	CUresult r = sim_enter_no_ctx();

	if (r != CUDA_SUCCESS)
		return r;
	if (!is_device(d))
		return sim_return(CUDA_ERROR_INVALID_DEVICE);
	*out = (CUmemoryPool)pool_current(d);
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuDeviceSetMemPool(CUdevice d, CUmemoryPool h)
{
	CUresult r = sim_enter_no_ctx();

	if (r != CUDA_SUCCESS)
		return r;
	struct sim_pool *p = pool_check(h);
	if (!is_device(d) || !p || p->destroyed || p->props.location.id != d)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	pool_current(d);
	current[d] = p;
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuDeviceGraphMemTrim(CUdevice d)
{
	return is_device(d) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

SIM_API CUresult cuDeviceGetGraphMemAttribute(CUdevice d, CUgraphMem_attribute a, void *v)
{
	(void)a;
	if (!is_device(d) || !v)
		return CUDA_ERROR_INVALID_VALUE;
	*(uint64_t *)v = 0;
	return CUDA_SUCCESS;
}
