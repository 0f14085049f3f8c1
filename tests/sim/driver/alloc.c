/* SPDX-License-Identifier: Apache-2.0 */
/* The table of what is allocated where, and the heap behind cuMemAlloc. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver/sim.h"

#define SMALL_MAX (1ull << 20)
#define SMALL_ALIGN 512ull

/* Small requests share pages of 2 MiB, as the driver's do. */
struct slab {
	uint64_t va;
	int device;
	struct sim_phys *phys;
	uint64_t *start, *end; /* taken pieces, by address */
	int n, cap;
	struct slab *next;
};

static struct sim_alloc **table; /* by address */
static size_t n_table, cap_table;
static struct slab *slabs;
static uint64_t next_id;

static size_t upper(uint64_t va)
{
	size_t lo = 0, hi = n_table;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (table[mid]->va <= va)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct sim_alloc *sim_alloc_add(uint64_t va, uint64_t bytes, enum sim_alloc_kind kind)
{
	struct sim_alloc *a = calloc(1, sizeof *a);

	if (!a)
		return NULL;
	if (n_table == cap_table) {
		size_t cap = cap_table ? cap_table * 2 : 256;
		struct sim_alloc **t = realloc(table, cap * sizeof(struct sim_alloc *));

		if (!t) {
			free(a);
			return NULL;
		}
		table = t;
		cap_table = cap;
	}
	a->va = va;
	a->bytes = a->reserved = bytes;
	a->kind = kind;
	a->id = ++next_id;
	a->ctx = sim_current();
	a->device = sim_device();
	a->fd = -1;
	size_t i = upper(va);
	memmove(table + i + 1, table + i, (n_table - i) * sizeof(struct sim_alloc *));
	table[i] = a;
	n_table++;
	return a;
}

struct sim_alloc *sim_alloc_find(uint64_t va)
{
	size_t i = upper(va);

	if (!i || va - table[i - 1]->va >= (table[i - 1]->bytes ? table[i - 1]->bytes : 1))
		return NULL;
	return table[i - 1];
}

struct sim_alloc *sim_alloc_next(uint64_t va)
{
	size_t i = va ? upper(va - 1) : 0;

	return i < n_table ? table[i] : NULL;
}

void sim_alloc_remove(struct sim_alloc *a)
{
	size_t i = upper(a->va);

	while (i && table[i - 1] != a)
		i--;
	if (!i)
		return;
	memmove(table + i - 1, table + i, (n_table - i) * sizeof(struct sim_alloc *));
	n_table--;
	sim_ipc_forget(a);
	free(a);
}

bool sim_is_pinned(const void *p, uint64_t bytes)
{
	struct sim_alloc *a = sim_alloc_find((uint64_t)(uintptr_t)p);

	return a && (a->kind == SIM_ALLOC_HOST || a->kind == SIM_ALLOC_REGISTERED || a->kind == SIM_ALLOC_MANAGED) &&
	       (uint64_t)(uintptr_t)p + bytes <= a->va + a->bytes;
}

bool sim_is_partly_pinned(uint64_t va, uint64_t bytes)
{
	struct sim_alloc *a = sim_alloc_find(va), *n = sim_alloc_next(va);

	return sim_is_pinned((void *)(uintptr_t)va, 1) || (a == NULL && n && n->va < va + bytes && sim_is_pinned((void *)(uintptr_t)n->va, 1));
}

static uint64_t slab_take(struct slab *s, uint64_t bytes)
{
	uint64_t at = 0;
	int i;

	for (i = 0; i < s->n && s->start[i] - at < bytes; i++)
		at = s->end[i];
	if (i == s->n && SIM_PAGE - at < bytes)
		return 0;
	if (s->n == s->cap) {
		int cap = s->cap ? s->cap * 2 : 32;
		uint64_t *a = realloc(s->start, (size_t)cap * sizeof *a), *b = realloc(s->end, (size_t)cap * sizeof *b);

		if (a)
			s->start = a;
		if (b)
			s->end = b;
		if (!a || !b)
			return 0;
		s->cap = cap;
	}
	memmove(s->start + i + 1, s->start + i, (size_t)(s->n - i) * sizeof *s->start);
	memmove(s->end + i + 1, s->end + i, (size_t)(s->n - i) * sizeof *s->end);
	s->start[i] = at;
	s->end[i] = at + bytes;
	s->n++;
	return s->va + at;
}

static uint64_t map_new(int device, uint64_t bytes, struct sim_phys **out)
{
	struct sim_phys *p = sim_phys_create(device, bytes);
	uint64_t va = p ? sim_va_reserve(p->bytes, SIM_PAGE, 0, false) : 0;

	if (!va || sim_va_map(va, p->bytes, p, 0, PROT_READ | PROT_WRITE)) {
		if (va)
			sim_va_release(va, p->bytes);
		sim_phys_unref(p);
		return 0;
	}
	*out = p;
	return va;
}

static void unmap_phys(uint64_t va, struct sim_phys *p)
{
	uint64_t bytes = p->bytes;

	sim_va_unmap(va, bytes);
	sim_va_release(va, bytes);
	sim_phys_unref(p);
}

/* Address ranges of freed memory are kept for the next request of the size. */
static uint64_t heap_small(int device, uint64_t bytes)
{
	uint64_t va = 0;

	for (struct slab *s = slabs; s && !va; s = s->next)
		va = s->device == device ? slab_take(s, bytes) : 0;
	if (va)
		return va;
	struct slab *s = calloc(1, sizeof *s);
	if (!s)
		return 0;
	s->device = device;
	s->va = map_new(device, SIM_PAGE, &s->phys);
	if (!s->va) {
		free(s);
		return 0;
	}
	s->next = slabs;
	slabs = s;
	return slab_take(s, bytes);
}

static void heap_small_free(uint64_t va)
{
	for (struct slab **link = &slabs; *link; link = &(*link)->next) {
		struct slab *s = *link;

		if (va - s->va >= SIM_PAGE)
			continue;
		for (int i = 0; i < s->n; i++)
			if (s->va + s->start[i] == va) {
				memmove(s->start + i, s->start + i + 1, (size_t)(s->n - i - 1) * sizeof *s->start);
				memmove(s->end + i, s->end + i + 1, (size_t)(s->n - i - 1) * sizeof *s->end);
				s->n--;
				break;
			}
		if (!s->n) {
			*link = s->next;
			unmap_phys(s->va, s->phys);
			free(s->start);
			free(s->end);
			free(s);
		}
		return;
	}
}

CUresult sim_heap_alloc(int device, uint64_t bytes, enum sim_alloc_kind kind, struct sim_alloc **out)
{
	struct sim_phys *p = NULL;
	uint64_t va;

	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (sim_fault_alloc() || bytes > sim_settings.memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	uint64_t take = (bytes + SMALL_ALIGN - 1) / SMALL_ALIGN * SMALL_ALIGN;
	va = take <= SMALL_MAX ? heap_small(device, take) : map_new(device, bytes, &p);
	if (!va)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct sim_alloc *a = sim_alloc_add(va, bytes, kind);
	if (!a)
		return CUDA_ERROR_OUT_OF_MEMORY;
	a->device = device;
	a->reserved = p ? p->bytes : take;
	a->phys = p;
	a->prot = PROT_READ | PROT_WRITE;
	*out = a;
	return CUDA_SUCCESS;
}

CUresult sim_heap_free(struct sim_alloc *a)
{
	if (a->phys)
		unmap_phys(a->va, a->phys);
	else
		heap_small_free(a->va);
	sim_alloc_remove(a);
	return CUDA_SUCCESS;
}

struct sim_phys *sim_heap_phys(const struct sim_alloc *a, uint64_t *offset)
{
	*offset = 0;
	if (a->phys)
		return a->phys;
	for (struct slab *s = slabs; s; s = s->next)
		if (a->va - s->va < SIM_PAGE) {
			*offset = a->va - s->va;
			return s->phys;
		}
	return NULL;
}

void sim_alloc_free_all(struct sim_ctx *ctx)
{
	size_t i = 0;

	while (i < n_table) {
		struct sim_alloc *a = table[i];

		if (a->ctx == ctx && a->kind == SIM_ALLOC_DEVICE)
			sim_heap_free(a);
		else if (a->ctx == ctx && a->kind == SIM_ALLOC_IPC)
			sim_ipc_close(a);
		else if (a->ctx == ctx && (a->kind == SIM_ALLOC_HOST || a->kind == SIM_ALLOC_MANAGED))
			sim_host_free(a);
		else if (a->ctx == ctx && a->kind == SIM_ALLOC_REGISTERED)
			sim_alloc_remove(a);
		else
			i++;
	}
}
