/* SPDX-License-Identifier: Apache-2.0 */
/* Events: a record is an operation of its stream, an event remembers its last one. */
#include <stdlib.h>
#include <time.h>

#include "driver/sim.h"

struct sim_event *sim_event_check(CUevent h)
{
	struct sim_event *e = (struct sim_event *)h;

	return e && e->magic == SIM_EVENT_MAGIC ? e : NULL;
}

struct sim_event *sim_event_new(unsigned flags, struct sim_shared *shared)
{
	struct sim_event *e = calloc(1, sizeof *e);

	if (!e) {
		sim_shared_unref(shared);
		return NULL;
	}
	e->magic = SIM_EVENT_MAGIC;
	e->flags = flags;
	e->ctx = sim_current();
	e->shared = shared;
	return e;
}

SIM_API CUresult cuEventCreate(CUevent *out, unsigned flags)
{
	SIM_ENTER();
	if (!out || (flags & ~(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)))
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	if (flags & CU_EVENT_INTERPROCESS && !(flags & CU_EVENT_DISABLE_TIMING))
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	struct sim_shared *shared = flags & CU_EVENT_INTERPROCESS ? sim_shared_event_new() : NULL;
	struct sim_event *e = flags & CU_EVENT_INTERPROCESS && !shared ? NULL : sim_event_new(flags, shared);
	if (!e)
		return sim_return(CUDA_ERROR_OUT_OF_MEMORY);
	*out = (CUevent)e;
	return sim_return(CUDA_SUCCESS);
}

static void forget_capture(struct sim_event *e)
{
	sim_capture_unref(e->capture);
	free(e->node);
	e->capture = NULL;
	e->node = NULL;
	e->n_node = 0;
}

SIM_API CUresult cuEventDestroy_v2(CUevent h)
{
	SIM_ENTER();
	struct sim_event *e = sim_event_check(h);
	if (!e)
		return sim_return(CUDA_ERROR_INVALID_HANDLE);
	forget_capture(e);
	sim_op_unref(e->op);
	e->op = NULL;
	sim_shared_unref(e->shared);
	e->shared = NULL;
	/* As with streams, a stale handle must stay recognisable. */
	e->magic = 0;
	return sim_return(CUDA_SUCCESS);
}

/* A record that other processes see too. */
static CUresult record_shared(struct sim_stream *s, struct sim_event *e)
{
	struct sim_work w = { .kind = SIM_WORK_REACH, .u.ticket = { e->shared, sim_ticket_take(e->shared) } };
	uint64_t ticket = w.u.ticket.number;

	sim_shared_ref(e->shared);
	CUresult r = sim_submit(s, &w, NULL);
	if (r != CUDA_SUCCESS && e->shared)
		sim_ticket_reach(e->shared, ticket);
	return r;
}

static CUresult record(CUevent h, CUstream sh, unsigned flags)
{
	struct sim_stream *s;

	SIM_ENTER();
	CUresult r = sim_stream_get(sh, &s);
	struct sim_event *e = sim_event_check(h);
	if (r == CUDA_SUCCESS && (!e || e->ctx->device != s->ctx->device))
		r = CUDA_ERROR_INVALID_HANDLE;
	if (r == CUDA_SUCCESS && (flags & ~CU_EVENT_RECORD_EXTERNAL))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return sim_return(r);
	struct sim_work w = { .kind = SIM_WORK_EVENT_RECORD, .u.event = e };
	if (s->capture && e->shared)
		return sim_return(CUDA_ERROR_NOT_SUPPORTED);
	if (e->shared)
		return sim_return(record_shared(s, e));
	if (s->capture && flags & CU_EVENT_RECORD_EXTERNAL)
		return sim_return(sim_submit(s, &w, NULL));
	if (s->capture)
		return sim_return(sim_capture_record(s, e));
	struct sim_op *op;
	w.kind = SIM_WORK_EMPTY;
	r = sim_submit(s, &w, &op);
	if (r == CUDA_SUCCESS) {
		forget_capture(e);
		sim_op_unref(e->op);
		e->op = op;
		e->recorded = true;
	}
	return sim_return(r);
}

SIM_API CUresult cuEventRecord(CUevent e, CUstream s) { return record(e, SIM_LEGACY(s), 0); }
SIM_API CUresult cuEventRecord_ptsz(CUevent e, CUstream s) { return record(e, SIM_PTDS(s), 0); }
SIM_API CUresult cuEventRecordWithFlags(CUevent e, CUstream s, unsigned f) { return record(e, SIM_LEGACY(s), f); }
SIM_API CUresult cuEventRecordWithFlags_ptsz(CUevent e, CUstream s, unsigned f) { return record(e, SIM_PTDS(s), f); }

/* An event of a capture stands for a graph node, not for work: nobody can wait for it. */
static CUresult in_capture(struct sim_event *e)
{
	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	if (e->capture) {
		sim_capture_invalidate(e->capture);
		return CUDA_ERROR_CAPTURED_EVENT;
	}
	return sim_capture_unsafe();
}

SIM_API CUresult cuEventQuery(CUevent h)
{
	SIM_ENTER();
	struct sim_event *e = sim_event_check(h);
	CUresult r = in_capture(e);
	if (r == CUDA_SUCCESS && (e->shared ? !sim_ticket_reached(e->shared, sim_ticket_last(e->shared)) : e->op && !e->op->done))
		r = CUDA_ERROR_NOT_READY;
	return sim_return(r);
}

/* Nobody wakes this process when another one's work is done. */
static void await_shared(struct sim_shared *s)
{
	uint64_t ticket = sim_ticket_last(s);
	struct timespec t = { .tv_nsec = 10000 };

	sim_shared_ref(s);
	while (!sim_ticket_reached(s, ticket) && sim_sticky() == CUDA_SUCCESS) {
		sim_leave();
		nanosleep(&t, NULL);
		if (t.tv_nsec < 500000)
			t.tv_nsec += t.tv_nsec / 8;
		pthread_mutex_lock(&sim_lock);
	}
	sim_shared_unref(s);
}

SIM_API CUresult cuEventSynchronize(CUevent h)
{
	SIM_ENTER();
	struct sim_event *e = sim_event_check(h);
	CUresult r = in_capture(e);
	if (r == CUDA_SUCCESS)
		sim_note_wait(e->flags & CU_EVENT_BLOCKING_SYNC);
	if (r == CUDA_SUCCESS && e->shared) {
		await_shared(e->shared);
		r = sim_sticky();
	} else if (r == CUDA_SUCCESS && e->op) {
		sim_op_wait(e->op);
		sim_pools_trim();
		r = sim_sticky();
	}
	return sim_return(r);
}

static CUresult elapsed(float *ms, CUevent a, CUevent b)
{
	SIM_ENTER();
	struct sim_event *x = sim_event_check(a), *y = sim_event_check(b);
	CUresult r = CUDA_SUCCESS;
	if (!ms)
		r = CUDA_ERROR_INVALID_VALUE;
	else if (!x || !y || !x->op || !y->op || (x->flags | y->flags) & CU_EVENT_DISABLE_TIMING)
		r = CUDA_ERROR_INVALID_HANDLE;
	else if (!x->op->done || !y->op->done)
		r = CUDA_ERROR_NOT_READY;
	else
		*ms = (float)((double)(int64_t)(y->op->end_ns - x->op->end_ns) / 1e6);
	return sim_return(r);
}

SIM_API CUresult cuEventElapsedTime(float *ms, CUevent a, CUevent b) { return elapsed(ms, a, b); }
SIM_API CUresult cuEventElapsedTime_v2(float *ms, CUevent a, CUevent b) { return elapsed(ms, a, b); }
