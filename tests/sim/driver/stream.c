/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: order, the rules of the default streams, and the calls that take one. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "driver/sim.h"

/* A channel's ring is finite: a thread that launches faster than the device works waits here. */

static __thread struct {
	struct sim_stream *stream;
	uint64_t ctx_id;
} per_thread[SIM_DEVICES];
static uint64_t next_id;

struct sim_stream *sim_stream_new(struct sim_ctx *c, unsigned flags, int priority)
{
	struct sim_stream *s = calloc(1, sizeof *s);

	if (!s)
		abort();
	s->magic = SIM_STREAM_MAGIC;
	s->ctx = c;
	s->flags = flags;
	s->priority = priority < -5 ? -5 : priority > 0 ? 0 : priority;
	s->id = ++next_id;
	s->channel = c->streams_made++ % sim_settings.connections;
	s->next = c->streams;
	c->streams = s;
	return s;
}

void sim_stream_free(struct sim_stream *s)
{
	for (struct sim_stream **link = &s->ctx->streams; *link; link = &(*link)->next)
		if (*link == s) {
			*link = s->next;
			break;
		}
	if (s->capture)
		sim_capture_invalidate(s->capture);
	free(s->frontier);
	sim_op_unref(s->last);
	/* Unfinished operations still count down `depth`, and a stale handle has to be told from a live one: the struct stays. */
	s->last = NULL;
	s->frontier = NULL;
	s->magic = 0;
}

CUresult sim_stream_get(CUstream h, struct sim_stream **out)
{
	struct sim_ctx *c = sim_current();

	if (h == CU_STREAM_LEGACY || !h) {
		*out = c->legacy;
		return CUDA_SUCCESS;
	}
	if (h == CU_STREAM_PER_THREAD) {
		int d = c->device;

		if (per_thread[d].ctx_id != c->id || !per_thread[d].stream) {
			per_thread[d].stream = sim_stream_new(c, 0, 0);
			per_thread[d].stream->is_default = true;
			per_thread[d].ctx_id = c->id;
		}
		*out = per_thread[d].stream;
		return CUDA_SUCCESS;
	}
	struct sim_stream *s = (struct sim_stream *)h;
	if (s->magic != SIM_STREAM_MAGIC)
		return CUDA_ERROR_INVALID_HANDLE;
	*out = s;
	return CUDA_SUCCESS;
}

struct sim_op *sim_stream_op(struct sim_stream *s, struct sim_work *w)
{
	struct sim_op *op = sim_op_new();

	op->work = *w;
	op->stream = s;
	op->device = s->ctx->device;
	sim_op_after(op, s->last);
	if (s == s->ctx->legacy) {
		for (struct sim_stream *o = s->ctx->streams; o; o = o->next)
			if (o != s && !(o->flags & CU_STREAM_NON_BLOCKING) && !o->capture)
				sim_op_after(op, o->last);
	} else if (!(s->flags & CU_STREAM_NON_BLOCKING) && s->ctx->legacy) {
		sim_op_after(op, s->ctx->legacy->last);
	}
	return op;
}

void sim_stream_pass(struct sim_stream *s, struct sim_op *op)
{
	const enum sim_engine e = sim_op_engine(op);

	if (e != SIM_ENGINE_NONE)
		s->kind = e == SIM_ENGINE_H2D ? 1 : e == SIM_ENGINE_D2H ? 2 : 0;
	struct sim_op **last = &s->ctx->channel[s->kind][s->channel];

	/* Behind one of the same stream it comes anyway. */
	if (*last && !(*last)->passed && (*last)->stream != s && !sim_settings.helpful_channels) {
		(*last)->channel_next = op;
		sim_op_ref(op);
		op->waits++;
	}
	sim_op_unref(*last);
	*last = op;
	sim_op_ref(op);
}

void sim_stream_push(struct sim_stream *s, struct sim_op *op)
{
	sim_op_unref(s->last);
	s->last = op;
	sim_op_ref(op);
	op->counted = true;
	s->depth++;
	sim_stream_pass(s, op);
	sim_op_submit(op);
}

CUresult sim_stream_room(struct sim_stream *s)
{
	CUresult r = CUDA_SUCCESS;
	bool holds = s->depth >= sim_settings.queue && !sim_settings.helpful_queues;
	int device = s->ctx->device;

	if (holds)
		sim_hold(device);
	while (r == CUDA_SUCCESS && s->depth >= sim_settings.queue) {
		sim_room_waiters++;
		pthread_cond_wait(&sim_progress, &sim_lock);
		sim_room_waiters--;
		if (s->magic != SIM_STREAM_MAGIC)
			r = CUDA_ERROR_INVALID_HANDLE;
		else if (sim_sticky() != CUDA_SUCCESS)
			r = sim_sticky();
	}
	if (holds)
		sim_let_go(device);
	return r;
}

CUresult sim_submit(struct sim_stream *s, struct sim_work *w, struct sim_op **out)
{
	CUresult r = CUDA_SUCCESS;

	if (out)
		*out = NULL;
	if (s->capture) {
		r = sim_capture_add(s, w, NULL);
		return r;
	}
	r = sim_capture_implicit(s);
	if (r == CUDA_SUCCESS)
		r = sim_stream_room(s);
	if (r != CUDA_SUCCESS) {
		sim_work_clear(w);
		return r;
	}
	sim_record(w, s->id);
	struct sim_op *op = sim_stream_op(s, w);
	if (out) {
		*out = op;
		sim_op_ref(op);
	}
	sim_stream_push(s, op);
	return CUDA_SUCCESS;
}

static CUresult create(CUstream *out, unsigned flags, int priority)
{
	SIM_ENTER();
	if (!out || (flags & ~CU_STREAM_NON_BLOCKING))
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	*out = (CUstream)sim_stream_new(sim_current(), flags, priority);
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuStreamCreate(CUstream *out, unsigned flags)
{
	return create(out, flags, 0);
}

SIM_API CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority)
{
	return create(out, flags, priority);
}

SIM_API CUresult cuStreamDestroy_v2(CUstream h)
{
	struct sim_stream *s;

	SIM_ENTER();
	CUresult r = h && h != CU_STREAM_LEGACY && h != CU_STREAM_PER_THREAD ? sim_stream_get(h, &s) : CUDA_ERROR_INVALID_HANDLE;
	if (r == CUDA_SUCCESS)
		sim_stream_free(s);
	return sim_return(r);
}

static CUresult synchronize(CUstream h)
{
	struct sim_stream *s;

	SIM_ENTER();
	CUresult r = sim_stream_get(h, &s);
	if (r == CUDA_SUCCESS && s->capture) {
		sim_capture_invalidate(s->capture);
		r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	if (r == CUDA_SUCCESS)
		r = sim_capture_implicit(s);
	if (r == CUDA_SUCCESS) {
		sim_note_wait((s->ctx->flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC);
		if (s == s->ctx->legacy) {
			/* The default stream is done when all blocking streams are. */
			struct sim_work w = { .kind = SIM_WORK_EMPTY };
			struct sim_op *op = sim_stream_op(s, &w);

			sim_op_ref(op);
			sim_stream_push(s, op);
			sim_op_wait(op);
			sim_op_unref(op);
		} else if (s->last) {
			sim_op_wait(s->last);
		}
		sim_pools_trim();
		r = sim_sticky();
	}
	return sim_return(r);
}

SIM_API CUresult cuStreamSynchronize(CUstream h) { return synchronize(SIM_LEGACY(h)); }
SIM_API CUresult cuStreamSynchronize_ptsz(CUstream h) { return synchronize(SIM_PTDS(h)); }

static CUresult query(CUstream h)
{
	struct sim_stream *s;

	SIM_ENTER();
	CUresult r = sim_stream_get(h, &s);
	if (r == CUDA_SUCCESS && s->capture) {
		sim_capture_invalidate(s->capture);
		r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	if (r == CUDA_SUCCESS)
		r = sim_capture_implicit(s);
	if (r == CUDA_SUCCESS) {
		r = !s->last || s->last->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
		if (s == s->ctx->legacy)
			for (struct sim_stream *o = s->ctx->streams; o; o = o->next)
				if (!(o->flags & CU_STREAM_NON_BLOCKING) && o->last && !o->last->done)
					r = CUDA_ERROR_NOT_READY;
	}
	return sim_return(r);
}

SIM_API CUresult cuStreamQuery(CUstream h) { return query(SIM_LEGACY(h)); }
SIM_API CUresult cuStreamQuery_ptsz(CUstream h) { return query(SIM_PTDS(h)); }

static CUresult wait_event(CUstream h, CUevent eh, unsigned flags)
{
	struct sim_stream *s;

	SIM_ENTER();
	CUresult r = sim_stream_get(h, &s);
	struct sim_event *e = sim_event_check(eh);
	if (r == CUDA_SUCCESS && (!e || flags & ~CU_EVENT_WAIT_EXTERNAL))
		r = e ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	if (r != CUDA_SUCCESS)
		return sim_return(r);
	if (s->capture && e->shared)
		return sim_return(CUDA_ERROR_NOT_SUPPORTED);
	if (e->capture || s->capture) {
		if (flags & CU_EVENT_WAIT_EXTERNAL && s->capture) {
			struct sim_work w = { .kind = SIM_WORK_EVENT_WAIT, .u.event = e };
			return sim_return(sim_submit(s, &w, NULL));
		}
		return sim_return(sim_capture_wait(s, e));
	}
	uint64_t ticket = e->shared ? sim_ticket_last(e->shared) : 0;
	if (e->shared && !sim_ticket_reached(e->shared, ticket)) {
		struct sim_work w = { .kind = SIM_WORK_AWAIT, .u.ticket = { e->shared, ticket } };

		sim_shared_ref(e->shared);
		sim_stream_push(s, sim_stream_op(s, &w));
	} else if (e->op && !e->op->done) {
		struct sim_work w = { .kind = SIM_WORK_EMPTY };
		struct sim_op *op = sim_stream_op(s, &w);

		sim_op_after(op, e->op);
		sim_stream_push(s, op);
	}
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuStreamWaitEvent(CUstream h, CUevent e, unsigned flags) { return wait_event(SIM_LEGACY(h), e, flags); }
SIM_API CUresult cuStreamWaitEvent_ptsz(CUstream h, CUevent e, unsigned flags) { return wait_event(SIM_PTDS(h), e, flags); }

static CUresult add_callback(CUstream h, CUstreamCallback fn, void *data, unsigned flags)
{
	struct sim_stream *s;
	struct sim_work w = { .kind = SIM_WORK_CALLBACK, .u.callback = { fn, data, h } };

	SIM_ENTER();
	CUresult r = flags || !fn ? CUDA_ERROR_INVALID_VALUE : sim_stream_get(h, &s);
	if (r == CUDA_SUCCESS && s->capture) {
		sim_capture_invalidate(s->capture);
		r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return sim_return(r == CUDA_SUCCESS ? sim_submit(s, &w, NULL) : r);
}

SIM_API CUresult cuStreamAddCallback(CUstream h, CUstreamCallback fn, void *data, unsigned flags)
{
	return add_callback(SIM_LEGACY(h), fn, data, flags);
}

SIM_API CUresult cuStreamAddCallback_ptsz(CUstream h, CUstreamCallback fn, void *data, unsigned flags)
{
	return add_callback(SIM_PTDS(h), fn, data, flags);
}

static CUresult host_func(CUstream h, CUhostFn fn, void *data)
{
	struct sim_stream *s;
	struct sim_work w = { .kind = SIM_WORK_HOST, .u.host = { fn, data } };

	SIM_ENTER();
	CUresult r = fn ? sim_stream_get(h, &s) : CUDA_ERROR_INVALID_VALUE;
	return sim_return(r == CUDA_SUCCESS ? sim_submit(s, &w, NULL) : r);
}

SIM_API CUresult cuLaunchHostFunc(CUstream h, CUhostFn fn, void *data) { return host_func(SIM_LEGACY(h), fn, data); }
SIM_API CUresult cuLaunchHostFunc_ptsz(CUstream h, CUhostFn fn, void *data) { return host_func(SIM_PTDS(h), fn, data); }

enum what { FLAGS, PRIORITY, CTX, ID, DEVICE };

static CUresult get(CUstream h, enum what what, void *out)
{
	struct sim_stream *s;

	SIM_ENTER();
	CUresult r = out ? sim_stream_get(h, &s) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		switch (what) {
		case FLAGS: *(unsigned *)out = s->flags; break;
		case PRIORITY: *(int *)out = s->priority; break;
		case CTX: *(CUcontext *)out = (CUcontext)s->ctx; break;
		case ID: *(unsigned long long *)out = s->id; break;
		case DEVICE: *(CUdevice *)out = s->ctx->device; break;
		}
	return sim_return(r);
}

SIM_API CUresult cuStreamGetFlags(CUstream h, unsigned *o) { return get(SIM_LEGACY(h), FLAGS, o); }
SIM_API CUresult cuStreamGetFlags_ptsz(CUstream h, unsigned *o) { return get(SIM_PTDS(h), FLAGS, o); }
SIM_API CUresult cuStreamGetPriority(CUstream h, int *o) { return get(SIM_LEGACY(h), PRIORITY, o); }
SIM_API CUresult cuStreamGetPriority_ptsz(CUstream h, int *o) { return get(SIM_PTDS(h), PRIORITY, o); }
SIM_API CUresult cuStreamGetCtx(CUstream h, CUcontext *o) { return get(SIM_LEGACY(h), CTX, o); }
SIM_API CUresult cuStreamGetCtx_ptsz(CUstream h, CUcontext *o) { return get(SIM_PTDS(h), CTX, o); }
SIM_API CUresult cuStreamGetId(CUstream h, unsigned long long *o) { return get(SIM_LEGACY(h), ID, o); }
SIM_API CUresult cuStreamGetId_ptsz(CUstream h, unsigned long long *o) { return get(SIM_PTDS(h), ID, o); }
SIM_API CUresult cuStreamGetDevice(CUstream h, CUdevice *o) { return get(SIM_LEGACY(h), DEVICE, o); }
SIM_API CUresult cuStreamGetDevice_ptsz(CUstream h, CUdevice *o) { return get(SIM_PTDS(h), DEVICE, o); }

SIM_API CUresult cuStreamGetCtx_v2(CUstream h, CUcontext *o, CUgreenCtx *green)
{
	if (green)
		*green = NULL;
	return get(SIM_LEGACY(h), CTX, o);
}

SIM_API CUresult cuStreamGetCtx_v2_ptsz(CUstream h, CUcontext *o, CUgreenCtx *green)
{
	if (green)
		*green = NULL;
	return get(SIM_PTDS(h), CTX, o);
}
