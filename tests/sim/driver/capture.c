/* SPDX-License-Identifier: Apache-2.0 */
/* Stream capture: what is recorded, how it spreads, and what it forbids. */
#include <stdlib.h>
#include <string.h>

#include "driver/sim.h"

static struct sim_capture *captures; /* under way */
static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
static uint64_t next_id;

void sim_capture_unref(struct sim_capture *c)
{
	if (c && --c->refs == 0)
		free(c);
}

void sim_capture_invalidate(struct sim_capture *c)
{
	c->invalid = true;
}

static bool conflicts(const struct sim_capture *c)
{
	bool mine = pthread_equal(c->thread, pthread_self());

	if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return false;
	if (mine)
		return c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
	return thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult sim_capture_unsafe(void)
{
	CUresult r = CUDA_SUCCESS;

	for (struct sim_capture *c = captures; c; c = c->next)
		if (conflicts(c)) {
			c->invalid = true;
			r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	return r;
}

/* The legacy stream would have to wait for blocking streams, and they for it, across the capture's border. */
CUresult sim_capture_implicit(struct sim_stream *s)
{
	CUresult r = CUDA_SUCCESS;

	if (s != s->ctx->legacy)
		return r;
	for (struct sim_stream *o = s->ctx->streams; o; o = o->next)
		if (o->capture && !(o->flags & CU_STREAM_NON_BLOCKING)) {
			o->capture->invalid = true;
			r = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
		}
	return r;
}

static void set_frontier(struct sim_stream *s, struct sim_node **nodes, int n)
{
	struct sim_node **copy = malloc((size_t)(n + 1) * sizeof(struct sim_node *));

	if (!copy)
		abort();
	if (n)
		memcpy(copy, nodes, (size_t)n * sizeof(struct sim_node *));
	free(s->frontier);
	s->frontier = copy;
	s->n_frontier = n;
}

static void add_frontier(struct sim_stream *s, struct sim_node **nodes, int n)
{
	struct sim_node **all = malloc((size_t)(s->n_frontier + n + 1) * sizeof(struct sim_node *));
	int k = s->n_frontier;

	if (!all)
		abort();
	memcpy(all, s->frontier, (size_t)k * sizeof(struct sim_node *));
	for (int i = 0; i < n; i++) {
		int j = 0;

		while (j < k && all[j] != nodes[i])
			j++;
		if (j == k)
			all[k++] = nodes[i];
	}
	free(s->frontier);
	s->frontier = all;
	s->n_frontier = k;
}

CUresult sim_capture_add(struct sim_stream *s, struct sim_work *w, struct sim_node **out)
{
	struct sim_node *n;

	if (s->capture->invalid) {
		sim_work_clear(w);
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	}
	CUresult r = sim_node_new(s->capture->graph, s->frontier, s->n_frontier, w, &n);
	if (r != CUDA_SUCCESS)
		return r;
	set_frontier(s, &n, 1);
	if (out)
		*out = n;
	return r;
}

CUresult sim_capture_record(struct sim_stream *s, struct sim_event *e)
{
	if (s->capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	sim_capture_unref(e->capture);
	free(e->node);
	e->capture = s->capture;
	e->capture->refs++;
	e->node = malloc((size_t)(s->n_frontier + 1) * sizeof(struct sim_node *));
	if (!e->node)
		abort();
	memcpy(e->node, s->frontier, (size_t)s->n_frontier * sizeof(struct sim_node *));
	e->n_node = s->n_frontier;
	return CUDA_SUCCESS;
}

CUresult sim_capture_wait(struct sim_stream *s, struct sim_event *e)
{
	if (!e->capture) {
		/* Work outside the capture cannot be waited for inside. */
		if (!e->op)
			return CUDA_SUCCESS;
		s->capture->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	}
	if (e->capture->ended)
		return CUDA_ERROR_CAPTURED_EVENT;
	if (e->capture->invalid || (s->capture && s->capture->invalid))
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (s->capture && s->capture != e->capture) {
		s->capture->invalid = e->capture->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	}
	if (s == s->ctx->legacy) {
		e->capture->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	if (!s->capture) {
		s->capture = e->capture;
		s->capture->refs++;
		set_frontier(s, e->node, e->n_node);
	} else {
		add_frontier(s, e->node, e->n_node);
	}
	return CUDA_SUCCESS;
}

static CUresult begin(CUstream h, CUstreamCaptureMode mode, struct sim_graph *into, struct sim_node **deps, int n)
{
	struct sim_stream *s;
	CUresult r = sim_stream_get(h, &s);

	if (r == CUDA_SUCCESS && (unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS && s == s->ctx->legacy)
		r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (r == CUDA_SUCCESS && s->capture)
		r = CUDA_ERROR_ILLEGAL_STATE;
	if (r != CUDA_SUCCESS)
		return r;
	struct sim_capture *c = calloc(1, sizeof *c);
	if (!c)
		return CUDA_ERROR_OUT_OF_MEMORY;
	c->graph = into ? into : sim_graph_new();
	c->graph->exposed = true;
	c->graph->capture = c;
	c->mode = mode;
	c->thread = pthread_self();
	c->origin = s;
	c->id = ++next_id;
	c->refs = 1;
	c->next = captures;
	captures = c;
	s->capture = c;
	set_frontier(s, deps, n);
	return CUDA_SUCCESS;
}

static CUresult begin_call(CUstream h, CUstreamCaptureMode mode)
{
	SIM_ENTER();
	return sim_return(begin(h, mode, NULL, NULL, 0));
}

SIM_API CUresult cuStreamBeginCapture(CUstream h) { return begin_call(SIM_LEGACY(h), CU_STREAM_CAPTURE_MODE_GLOBAL); }
SIM_API CUresult cuStreamBeginCapture_ptsz(CUstream h) { return begin_call(SIM_PTDS(h), CU_STREAM_CAPTURE_MODE_GLOBAL); }
SIM_API CUresult cuStreamBeginCapture_v2(CUstream h, CUstreamCaptureMode m) { return begin_call(SIM_LEGACY(h), m); }
SIM_API CUresult cuStreamBeginCapture_v2_ptsz(CUstream h, CUstreamCaptureMode m) { return begin_call(SIM_PTDS(h), m); }

static CUresult begin_to_graph(CUstream h, CUgraph g, const CUgraphNode *deps, size_t n, CUstreamCaptureMode m)
{
	SIM_ENTER();
	struct sim_graph *graph = (struct sim_graph *)g;
	if (!graph || graph->magic != SIM_GRAPH_MAGIC || graph->capture)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	return sim_return(begin(h, m, graph, (struct sim_node **)(uintptr_t)deps, (int)n));
}

SIM_API CUresult cuStreamBeginCaptureToGraph(CUstream h, CUgraph g, const CUgraphNode *deps, const CUgraphEdgeData *e, size_t n, CUstreamCaptureMode m)
{
	(void)e;
	return begin_to_graph(SIM_LEGACY(h), g, deps, n, m);
}

SIM_API CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream h, CUgraph g, const CUgraphNode *deps, const CUgraphEdgeData *e, size_t n, CUstreamCaptureMode m)
{
	(void)e;
	return begin_to_graph(SIM_PTDS(h), g, deps, n, m);
}

static void mark_ancestors(struct sim_node *n, char *mark)
{
	if (mark[n->index])
		return;
	mark[n->index] = 1;
	for (int i = 0; i < n->n_dep; i++)
		mark_ancestors(n->dep[i], mark);
}

static bool joined(struct sim_capture *c)
{
	char *mark = calloc((size_t)c->graph->n_node + 1, 1);
	bool all = true;

	if (!mark)
		abort();
	for (int i = 0; i < c->origin->n_frontier; i++)
		mark_ancestors(c->origin->frontier[i], mark);
	for (struct sim_stream *s = c->origin->ctx->streams; s; s = s->next)
		for (int i = 0; s->capture == c && i < s->n_frontier; i++)
			all = all && mark[s->frontier[i]->index];
	free(mark);
	return all;
}

static void leave(struct sim_capture *c)
{
	for (struct sim_capture **link = &captures; *link; link = &(*link)->next)
		if (*link == c) {
			*link = c->next;
			break;
		}
	c->ended = true;
	c->graph->capture = NULL;
	for (struct sim_stream *s = c->origin->ctx->streams; s; s = s->next)
		if (s->capture == c) {
			s->capture = NULL;
			free(s->frontier);
			s->frontier = NULL;
			s->n_frontier = 0;
			if (s != c->origin)
				sim_capture_unref(c);
		}
}

static CUresult end(CUstream h, CUgraph *out)
{
	struct sim_stream *s;

	SIM_ENTER();
	CUresult r = out ? sim_stream_get(h, &s) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS && !s->capture)
		r = CUDA_ERROR_ILLEGAL_STATE;
	if (r != CUDA_SUCCESS)
		return sim_return(r);
	struct sim_capture *c = s->capture;
	*out = NULL;
	if (c->origin != s) {
		c->invalid = true;
		return sim_return(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	}
	if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(c->thread, pthread_self()))
		return sim_return(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
	r = c->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : joined(c) ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	leave(c);
	if (r == CUDA_SUCCESS)
		*out = (CUgraph)c->graph;
	else
		sim_graph_free(c->graph);
	c->graph = NULL;
	sim_capture_unref(c);
	return sim_return(r);
}

SIM_API CUresult cuStreamEndCapture(CUstream h, CUgraph *out) { return end(SIM_LEGACY(h), out); }
SIM_API CUresult cuStreamEndCapture_ptsz(CUstream h, CUgraph *out) { return end(SIM_PTDS(h), out); }

static CUstreamCaptureStatus status_of(const struct sim_stream *s)
{
	return !s->capture ? CU_STREAM_CAPTURE_STATUS_NONE :
	       s->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

static CUresult is_capturing(CUstream h, CUstreamCaptureStatus *out)
{
	struct sim_stream *s;

	SIM_ENTER();
	CUresult r = out ? sim_stream_get(h, &s) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = sim_capture_implicit(s);
	if (r == CUDA_SUCCESS)
		*out = status_of(s);
	return sim_return(r);
}

SIM_API CUresult cuStreamIsCapturing(CUstream h, CUstreamCaptureStatus *out) { return is_capturing(SIM_LEGACY(h), out); }
SIM_API CUresult cuStreamIsCapturing_ptsz(CUstream h, CUstreamCaptureStatus *out) { return is_capturing(SIM_PTDS(h), out); }

static CUresult info(CUstream h, CUstreamCaptureStatus *st, cuuint64_t *id, CUgraph *g, const CUgraphNode **deps, const CUgraphEdgeData **edges, size_t *n)
{
	struct sim_stream *s;

	SIM_ENTER();
	CUresult r = st ? sim_stream_get(h, &s) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = sim_capture_implicit(s);
	if (r != CUDA_SUCCESS)
		return sim_return(r);
	*st = status_of(s);
	if (*st == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
		if (id)
			*id = s->capture->id;
		if (g)
			*g = (CUgraph)s->capture->graph;
		if (deps)
			*deps = (const CUgraphNode *)(const void *)s->frontier;
		if (edges)
			*edges = NULL;
		if (n)
			*n = (size_t)s->n_frontier;
	}
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuStreamGetCaptureInfo(CUstream h, CUstreamCaptureStatus *st, cuuint64_t *id) { return info(SIM_LEGACY(h), st, id, NULL, NULL, NULL, NULL); }
SIM_API CUresult cuStreamGetCaptureInfo_ptsz(CUstream h, CUstreamCaptureStatus *st, cuuint64_t *id) { return info(SIM_PTDS(h), st, id, NULL, NULL, NULL, NULL); }

#define INFO_PARAMS CUstream h, CUstreamCaptureStatus *st, cuuint64_t *id, CUgraph *g, const CUgraphNode **deps
SIM_API CUresult cuStreamGetCaptureInfo_v2(INFO_PARAMS, size_t *n) { return info(SIM_LEGACY(h), st, id, g, deps, NULL, n); }
SIM_API CUresult cuStreamGetCaptureInfo_v2_ptsz(INFO_PARAMS, size_t *n) { return info(SIM_PTDS(h), st, id, g, deps, NULL, n); }
SIM_API CUresult cuStreamGetCaptureInfo_v3(INFO_PARAMS, const CUgraphEdgeData **e, size_t *n) { return info(SIM_LEGACY(h), st, id, g, deps, e, n); }
SIM_API CUresult cuStreamGetCaptureInfo_v3_ptsz(INFO_PARAMS, const CUgraphEdgeData **e, size_t *n) { return info(SIM_PTDS(h), st, id, g, deps, e, n); }

static CUresult update(CUstream h, CUgraphNode *deps, size_t n, unsigned flags)
{
	struct sim_stream *s;

	SIM_ENTER();
	CUresult r = flags <= CU_STREAM_SET_CAPTURE_DEPENDENCIES ? sim_stream_get(h, &s) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS && !s->capture)
		r = CUDA_ERROR_ILLEGAL_STATE;
	if (r == CUDA_SUCCESS && s->capture->invalid)
		r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (r != CUDA_SUCCESS)
		return sim_return(r);
	if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
		set_frontier(s, (struct sim_node **)deps, (int)n);
	else
		add_frontier(s, (struct sim_node **)deps, (int)n);
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuStreamUpdateCaptureDependencies(CUstream h, CUgraphNode *d, size_t n, unsigned f) { return update(SIM_LEGACY(h), d, n, f); }
SIM_API CUresult cuStreamUpdateCaptureDependencies_ptsz(CUstream h, CUgraphNode *d, size_t n, unsigned f) { return update(SIM_PTDS(h), d, n, f); }

SIM_API CUresult cuStreamUpdateCaptureDependencies_v2(CUstream h, CUgraphNode *d, const CUgraphEdgeData *e, size_t n, unsigned f)
{
	(void)e;
	return update(SIM_LEGACY(h), d, n, f);
}

SIM_API CUresult cuStreamUpdateCaptureDependencies_v2_ptsz(CUstream h, CUgraphNode *d, const CUgraphEdgeData *e, size_t n, unsigned f)
{
	(void)e;
	return update(SIM_PTDS(h), d, n, f);
}

SIM_API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	CUstreamCaptureMode old = thread_mode;
	thread_mode = *mode;
	*mode = old;
	return CUDA_SUCCESS;
}
