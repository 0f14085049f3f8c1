/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual memory management: reservations, physical handles, mappings and access. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "driver/sim.h"

/* A smaller reservation is not made where its hint says (an H200 with driver 580.159.04: 2 and 6 MiB were not, 32 MiB were). */
#define HINTED_BYTES (32ull << 20)

#define PHYS_MAGIC 0x4853494du

struct reservation {
	uint64_t va, bytes;
	struct reservation *next;
};
static struct reservation *reservations;

static struct reservation *reservation_of(uint64_t va, uint64_t bytes)
{
	for (struct reservation *r = reservations; r; r = r->next)
		if (va >= r->va && va + bytes <= r->va + r->bytes)
			return r;
	return NULL;
}

static bool overlaps(uint64_t va, uint64_t bytes)
{
	struct sim_alloc *a = sim_alloc_find(va), *n = sim_alloc_next(va);

	return a || (n && n->va < va + bytes);
}

SIM_API CUresult cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t align, CUdeviceptr hint, unsigned long long flags)
{
	SIM_ENTER();
	if (!out || !bytes || bytes % SIM_PAGE || flags || (align & (align - 1)))
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	if (hint && sim_settings.refuse_hint)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	struct reservation *r = calloc(1, sizeof *r);
	if (!r)
		return sim_return(CUDA_ERROR_OUT_OF_MEMORY);
	r->va = sim_va_reserve(bytes, align, sim_settings.move_hint || (bytes < HINTED_BYTES && !sim_settings.helpful_hints) ? 0 : hint, false);
	if (!r->va) {
		free(r);
		return sim_return(CUDA_ERROR_OUT_OF_MEMORY);
	}
	r->bytes = bytes;
	r->next = reservations;
	reservations = r;
	*out = r->va;
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuMemAddressFree(CUdeviceptr va, size_t bytes)
{
	SIM_ENTER();
	for (struct reservation **link = &reservations; *link; link = &(*link)->next) {
		struct reservation *r = *link;

		if (r->va != va || r->bytes != bytes)
			continue;
		if (overlaps(va, bytes))
			return sim_return(CUDA_ERROR_INVALID_VALUE);
		*link = r->next;
		sim_va_release(va, bytes);
		free(r);
		return sim_return(CUDA_SUCCESS);
	}
	return sim_return(CUDA_ERROR_INVALID_VALUE);
}

static CUresult check_prop(const CUmemAllocationProp *p)
{
	if (!p || p->type != CU_MEM_ALLOCATION_TYPE_PINNED || p->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	if (p->location.id < 0 || p->location.id >= sim_settings.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	if (p->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *p, CUmemAllocationGranularity_flags f)
{
	(void)f;
	CUresult r = out ? check_prop(p) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*out = SIM_PAGE;
	return r;
}

static struct sim_phys *phys_check(CUmemGenericAllocationHandle h)
{
	struct sim_phys *p = (struct sim_phys *)(uintptr_t)h;

	return p && p->magic == PHYS_MAGIC && p->handles > 0 ? p : NULL;
}

static CUmemGenericAllocationHandle handle_of(struct sim_phys *p)
{
	p->magic = PHYS_MAGIC;
	p->handles++;
	return (CUmemGenericAllocationHandle)(uintptr_t)p;
}

SIM_API CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags)
{
	SIM_ENTER();
	sim_allocating();
	CUresult r = !out || !bytes || bytes % SIM_PAGE || flags ? CUDA_ERROR_INVALID_VALUE : check_prop(prop);
	if (r == CUDA_SUCCESS && sim_fault_alloc())
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (r != CUDA_SUCCESS)
		return sim_return(r);
	struct sim_phys *p = sim_phys_create(prop->location.id, bytes);
	if (!p)
		return sim_return(CUDA_ERROR_OUT_OF_MEMORY);
	p->prop = *prop;
	*out = handle_of(p);
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuMemRelease(CUmemGenericAllocationHandle h)
{
	SIM_ENTER();
	struct sim_phys *p = phys_check(h);
	if (!p)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	p->handles--;
	sim_phys_unref(p);
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuMemMap(CUdeviceptr va, size_t bytes, size_t offset, CUmemGenericAllocationHandle h, unsigned long long flags)
{
	SIM_ENTER();
	struct sim_phys *p = phys_check(h);
	if (!p || flags || offset || !bytes || bytes % SIM_PAGE || va % SIM_PAGE || bytes > p->bytes || !reservation_of(va, bytes) ||
	    overlaps(va, bytes))
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	struct sim_alloc *a = sim_alloc_add(va, bytes, SIM_ALLOC_VMM);
	if (!a)
		return sim_return(CUDA_ERROR_OUT_OF_MEMORY);
	a->device = p->device;
	a->phys = p;
	p->refs++;
	/* Mapped, and nobody may touch it yet. */
	sim_va_note(va, bytes, p, 0);
	return sim_return(CUDA_SUCCESS);
}

/* The range must be made of whole mappings without a gap. */
static CUresult whole_mappings(uint64_t va, uint64_t bytes)
{
	uint64_t at = va;

	while (at < va + bytes) {
		struct sim_alloc *a = sim_alloc_find(at);

		if (!a || a->kind != SIM_ALLOC_VMM || a->va != at || a->va + a->bytes > va + bytes)
			return CUDA_ERROR_INVALID_VALUE;
		at += a->bytes;
	}
	return CUDA_SUCCESS;
}

static bool reached_by(uint64_t va, uint64_t bytes, int device)
{
	for (struct sim_alloc *a; bytes && (a = sim_alloc_find(va)); va += a->bytes, bytes -= a->bytes < bytes ? a->bytes : bytes)
		if (a->device_prot[device])
			return true;
	return false;
}

SIM_API CUresult cuMemUnmap(CUdeviceptr va, size_t bytes)
{
	SIM_ENTER();
	CUresult r = bytes ? whole_mappings(va, bytes) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return sim_return(r);
	/* Whoever was given access may be at it. */
	for (int d = 0; d < sim_settings.devices; d++)
		if (reached_by(va, bytes, d))
			sim_wait_device_held(d);
	for (uint64_t at = va; at < va + bytes;) {
		struct sim_alloc *a = sim_alloc_find(at);
		uint64_t n = a->bytes;

		sim_va_unmap(at, n);
		sim_phys_unref(a->phys);
		sim_alloc_remove(a);
		at += n;
	}
	return sim_return(CUDA_SUCCESS);
}

/* Each device named gets what it is given, the others keep what they have. Returns what any may do. */
static int access_of(struct sim_alloc *a, const CUmemAccessDesc *d, size_t n)
{
	int prot = PROT_NONE;

	for (size_t i = 0; i < n; i++)
		a->device_prot[d[i].location.id] = d[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE :
						   d[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ ? PROT_READ : PROT_NONE;
	for (int i = 0; i < SIM_DEVICES; i++)
		prot |= a->device_prot[i];
	return prot;
}

SIM_API CUresult cuMemSetAccess(CUdeviceptr va, size_t bytes, const CUmemAccessDesc *d, size_t n)
{
	SIM_ENTER();
	CUresult r = bytes && d && n ? whole_mappings(va, bytes) : CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; r == CUDA_SUCCESS && i < n; i++)
		if (d[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || d[i].location.id < 0 || d[i].location.id >= sim_settings.devices)
			r = CUDA_ERROR_INVALID_VALUE;
	for (uint64_t at = va; r == CUDA_SUCCESS && at < va + bytes;) {
		struct sim_alloc *a = sim_alloc_find(at);
		int prot = access_of(a, d, n);

		if (a->prot != prot) {
			sim_va_unmap(at, a->bytes);
			if (sim_va_map(at, a->bytes, a->phys, 0, prot))
				r = sim_remote_lost() ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_ERROR_MAP_FAILED;
			else
				a->prot = prot;
		}
		at += a->bytes;
	}
	return sim_return(r);
}

SIM_API CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *l, CUdeviceptr va)
{
	SIM_ENTER();
	struct sim_alloc *a = sim_alloc_find(va);
	if (!flags || !l || !a)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	int prot = l->type != CU_MEM_LOCATION_TYPE_DEVICE || l->id < 0 || l->id >= sim_settings.devices ? PROT_NONE :
		   a->kind == SIM_ALLOC_VMM ? a->device_prot[l->id] :
		   a->kind == SIM_ALLOC_POOL ? (sim_pool_lets(a->pool, l->id) ? a->prot : PROT_NONE) : a->device == l->id || sim_is_peer(l->id, a->device) ? a->prot : PROT_NONE;
	*flags = !prot ? CU_MEM_ACCESS_FLAGS_PROT_NONE : prot & PROT_WRITE ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *p)
{
	SIM_ENTER();
	struct sim_alloc *a = sim_alloc_find((uint64_t)(uintptr_t)p);
	if (!out || !a || a->kind != SIM_ALLOC_VMM)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	a->phys->refs++;
	*out = handle_of(a->phys);
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *out, CUmemGenericAllocationHandle h)
{
	SIM_ENTER();
	struct sim_phys *p = phys_check(h);
	if (!p || !out)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	*out = p->prop;
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle h, CUmemAllocationHandleType t, unsigned long long flags)
{
	SIM_ENTER();
	struct sim_phys *p = phys_check(h);
	if (!p || !out || flags || t != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || p->prop.requestedHandleTypes != t)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	int fd = sim_phys_export(p);
	if (fd < 0)
		return sim_return(CUDA_ERROR_OPERATING_SYSTEM);
	*(int *)out = fd;
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *os, CUmemAllocationHandleType t)
{
	SIM_ENTER();
	if (!out || t != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	struct sim_phys *p = sim_phys_import((int)(intptr_t)os);
	if (!p)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	p->prop = (CUmemAllocationProp){ .type = CU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = t,
					 .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = sim_device() } };
	p->device = sim_device();
	*out = handle_of(p);
	return sim_return(CUDA_SUCCESS);
}
