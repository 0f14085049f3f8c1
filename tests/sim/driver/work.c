/* SPDX-License-Identifier: Apache-2.0 */
/* Carrying out one piece of work: copies and sets through the alias, kernels in the device process. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "device/protocol.h"
#include "driver/sim.h"

void sim_work_copy(struct sim_work *to, const struct sim_work *from)
{
	*to = *from;
	switch (from->kind) {
	case SIM_WORK_KERNEL:
		to->u.launch.params = malloc(from->u.launch.param_bytes + 1);
		if (!to->u.launch.params)
			abort();
		memcpy(to->u.launch.params, from->u.launch.params, from->u.launch.param_bytes);
		break;
	case SIM_WORK_COPY:
		to->u.copy.staging = NULL;
		break;
	case SIM_WORK_CHILD:
		to->u.child = sim_graph_clone(from->u.child);
		break;
	case SIM_WORK_ALLOC:
		if (from->u.memory.graph)
			from->u.memory.graph->refs++;
		break;
	case SIM_WORK_REACH:
	case SIM_WORK_AWAIT:
		sim_shared_ref(from->u.ticket.event);
		break;
	default:
		break;
	}
}

void sim_work_clear(struct sim_work *w)
{
	switch (w->kind) {
	case SIM_WORK_KERNEL:
		free(w->u.launch.params);
		break;
	case SIM_WORK_COPY:
		free(w->u.copy.staging);
		break;
	case SIM_WORK_CHILD:
		sim_graph_free(w->u.child);
		break;
	case SIM_WORK_ALLOC:
		sim_graph_memory_unref(w->u.memory.graph);
		break;
	case SIM_WORK_REACH:
	case SIM_WORK_AWAIT:
		sim_shared_unref(w->u.ticket.event);
		break;
	default:
		break;
	}
	w->kind = SIM_WORK_EMPTY;
}

/* What the copy engines see at a device address, and how much of it lies together. */
static char *reach(uint64_t va, enum sim_place place, uint64_t want, uint64_t *run)
{
	if (place != SIM_DEVICE) {
		*run = want;
		return (char *)(uintptr_t)va;
	}
	struct sim_page *p = sim_page(va);
	uint64_t left = SIM_PAGE - (va & (SIM_PAGE - 1));

	*run = want < left ? want : left;
	return p && p->alias && p->prot ? p->alias + (va & (SIM_PAGE - 1)) : NULL;
}

static CUresult copy_row(uint64_t dst, enum sim_place dp, uint64_t src, enum sim_place sp, uint64_t n)
{
	while (n) {
		uint64_t a, b;
		char *d = reach(dst, dp, n, &a), *s = reach(src, sp, n, &b);

		if (!d || !s)
			return CUDA_ERROR_ILLEGAL_ADDRESS;
		a = a < b ? a : b;
		memmove(d, s, a);
		dst += a;
		src += a;
		n -= a;
	}
	return CUDA_SUCCESS;
}

static enum sim_place place_now(uint64_t va)
{
	return sim_is_device_va(va) ? SIM_DEVICE : SIM_PINNED;
}

bool sim_device_read(void *to, uint64_t va, uint64_t bytes)
{
	return copy_row((uint64_t)(uintptr_t)to, SIM_PINNED, va, place_now(va), bytes) == CUDA_SUCCESS;
}

bool sim_device_write(uint64_t va, const void *from, uint64_t bytes)
{
	return copy_row(va, place_now(va), (uint64_t)(uintptr_t)from, SIM_PINNED, bytes) == CUDA_SUCCESS;
}

static CUresult copy_rect(const struct sim_rect *r)
{
	CUresult e = CUDA_SUCCESS;

	if (r->height <= 1 && r->depth <= 1)
		return copy_row(r->dst, r->dst_kind, r->src, r->src_kind, r->width);
	for (uint64_t z = 0; z < r->depth && e == CUDA_SUCCESS; z++)
		for (uint64_t y = 0; y < r->height && e == CUDA_SUCCESS; y++)
			e = copy_row(r->dst + z * r->dst_slice + y * r->dst_pitch, r->dst_kind,
				     r->src + z * r->src_slice + y * r->src_pitch, r->src_kind, r->width);
	return e;
}

static void fill(char *d, uint64_t n, uint32_t value, uint32_t element)
{
	if (element == 1) {
		memset(d, (int)value, n);
	} else if (element == 2) {
		for (uint64_t i = 0; i < n / 2; i++)
			((uint16_t *)d)[i] = (uint16_t)value;
	} else {
		for (uint64_t i = 0; i < n / 4; i++)
			((uint32_t *)d)[i] = value;
	}
}

static CUresult set_rect(const struct sim_work *w)
{
	for (uint64_t y = 0; y < w->u.set.height; y++) {
		uint64_t at = w->u.set.dst + y * w->u.set.pitch, n = w->u.set.width * w->u.set.element, run;
		enum sim_place place = sim_is_device_va(at) ? SIM_DEVICE : SIM_PINNED;

		for (; n; n -= run, at += run) {
			char *d = reach(at, place, n, &run);

			if (!d)
				return CUDA_ERROR_ILLEGAL_ADDRESS;
			fill(d, run, w->u.set.value, w->u.set.element);
		}
	}
	return CUDA_SUCCESS;
}

static char *value_at(const struct sim_work *w)
{
	uint64_t run;
	enum sim_place place = sim_is_device_va(w->u.value.address) ? SIM_DEVICE : SIM_PINNED;

	return reach(w->u.value.address, place, 8, &run);
}

static bool value_holds(const struct sim_work *w)
{
	char *p = value_at(w);
	uint64_t want = w->u.value.value, have;

	if (!p)
		return true;
	if (sim_settings.dead_memops) {
		struct sim_alloc *a = sim_alloc_find(w->u.value.address);

		if (a && a->kind == SIM_ALLOC_VMM)
			return false;
	}
	have = w->u.value.wide ? __atomic_load_n((uint64_t *)p, __ATOMIC_ACQUIRE) : __atomic_load_n((uint32_t *)p, __ATOMIC_ACQUIRE);
	switch (w->u.value.flags & 3) {
	case CU_STREAM_WAIT_VALUE_GEQ:
		return w->u.value.wide ? (int64_t)(have - want) >= 0 : (int32_t)((uint32_t)have - (uint32_t)want) >= 0;
	case CU_STREAM_WAIT_VALUE_EQ:
		return have == want;
	case CU_STREAM_WAIT_VALUE_AND:
		return (have & want) != 0;
	default:
		return (w->u.value.wide ? ~(have | want) : (uint64_t)(uint32_t)~(have | want)) != 0;
	}
}

bool sim_wait_holds(const struct sim_work *w)
{
	return w->kind == SIM_WORK_AWAIT ? sim_ticket_reached(w->u.ticket.event, w->u.ticket.number) : value_holds(w);
}

static CUresult write_value(const struct sim_work *w)
{
	char *p = value_at(w);

	if (!p)
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	if (w->u.value.wide)
		__atomic_store_n((uint64_t *)p, w->u.value.value, __ATOMIC_RELEASE);
	else
		__atomic_store_n((uint32_t *)p, (uint32_t)w->u.value.value, __ATOMIC_RELEASE);
	return CUDA_SUCCESS;
}

static CUresult run_kernel(const struct sim_launch *l, uint64_t *model)
{
	*model = l->kernel->ns;
	switch (sim_fault_launch()) {
	case SIM_FAULT_STICKY:
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	case SIM_FAULT_LOST:
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	case SIM_FAULT_DROP:
		return CUDA_SUCCESS;
	case SIM_FAULT_STALL:
		if (sim_settings.stall_ns == UINT64_MAX)
			for (;;)
				pause();
		*model += sim_settings.stall_ns;
		break;
	default:
		break;
	}
	return sim_settings.execute ? sim_remote_launch(&l, 1) : CUDA_SUCCESS;
}

bool sim_work_batches(const struct sim_work *w)
{
	const struct sim_settings *s = &sim_settings;

	return w->kind == SIM_WORK_KERNEL && w->u.launch.kernel->ns <= s->together_ns && !w->u.launch.kernel->exchange && w->u.launch.param_bytes <= SIM_LAUNCH_SMALL && s->execute &&
	       !s->sticky_at && !s->lost_at && !s->drop_at && !s->stall_at;
}

CUresult sim_work_do_batch(struct sim_op *const *op, int n, uint64_t *model)
{
	const struct sim_launch *list[SIM_LAUNCH_RING];

	for (int i = 0; i < n; i++) {
		list[i] = &op[i]->work.u.launch;
		*model += list[i]->kernel->ns;
	}
	return sim_remote_launch(list, n);
}

CUresult sim_work_do(struct sim_work *w, uint64_t *model)
{
	const struct sim_rect *r = &w->u.copy.rect;

	switch (w->kind) {
	case SIM_WORK_KERNEL:
		return run_kernel(&w->u.launch, model);
	case SIM_WORK_COPY:
		/* Copies inside the device are about as fast as its memory; only the bus is modelled. */
		if (sim_settings.copy_bytes_per_ns > 0 && (r->dst_kind == SIM_DEVICE) != (r->src_kind == SIM_DEVICE))
			*model = (uint64_t)((double)(r->width * r->height * r->depth) / sim_settings.copy_bytes_per_ns) + 1;
		return copy_rect(r);
	case SIM_WORK_MEMSET:
		return set_rect(w);
	case SIM_WORK_HOST:
		w->u.host.fn(w->u.host.data);
		return CUDA_SUCCESS;
	case SIM_WORK_CALLBACK:
		w->u.callback.fn(w->u.callback.stream, sim_sticky(), w->u.callback.data);
		return CUDA_SUCCESS;
	case SIM_WORK_WRITE_VALUE:
		return write_value(w);
	case SIM_WORK_REACH:
		sim_ticket_reach(w->u.ticket.event, w->u.ticket.number);
		return CUDA_SUCCESS;
	default:
		return CUDA_SUCCESS;
	}
}

static CUresult place_of(uint64_t va, uint64_t bytes, uint8_t *kind)
{
	if (!sim_is_device_va(va)) {
		struct sim_alloc *a = sim_alloc_find(va);

		/* Reserved but not mapped is nobody's memory. */
		if (a && a->kind == SIM_ALLOC_VMM)
			return CUDA_ERROR_INVALID_VALUE;
		*kind = sim_is_pinned((void *)(uintptr_t)va, bytes) ? SIM_PINNED : SIM_PAGEABLE;
		return *kind == SIM_PAGEABLE && !sim_settings.helpful_straddle && sim_is_partly_pinned(va, bytes) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	}
	/* The range may span allocations only where virtual memory management put them side by side. */
	for (uint64_t end = va + bytes, at = va; at < end;) {
		struct sim_alloc *a = sim_alloc_find(at);

		if (!a)
			return CUDA_ERROR_INVALID_VALUE;
		if (a->kind != SIM_ALLOC_VMM && end > a->va + a->reserved)
			return CUDA_ERROR_INVALID_VALUE;
		if (!a->prot)
			return CUDA_ERROR_INVALID_VALUE;
		at = a->va + a->reserved;
	}
	*kind = SIM_DEVICE;
	return CUDA_SUCCESS;
}

CUresult sim_copy_prepare(struct sim_rect *r)
{
	uint64_t dst = r->width, src = r->width;

	if (!r->width || !r->height || !r->depth)
		return CUDA_SUCCESS;
	if (r->height > 1 || r->depth > 1) {
		if (r->dst_pitch < r->width || r->src_pitch < r->width)
			return CUDA_ERROR_INVALID_VALUE;
		dst += (r->height - 1) * r->dst_pitch + (r->depth - 1) * r->dst_slice;
		src += (r->height - 1) * r->src_pitch + (r->depth - 1) * r->src_slice;
	}
	if (!r->dst || !r->src)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult e = place_of(r->dst, dst, &r->dst_kind);
	if (e == CUDA_SUCCESS)
		e = place_of(r->src, src, &r->src_kind);
	if (e == CUDA_SUCCESS && ((r->need_dst && r->dst_kind == SIM_PAGEABLE) || (r->need_src && r->src_kind == SIM_PAGEABLE)))
		e = CUDA_ERROR_INVALID_VALUE;
	return e;
}
