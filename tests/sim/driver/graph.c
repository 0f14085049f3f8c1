/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs, their nodes and edges, and executable graphs. */
#include <stdlib.h>
#include <string.h>

#include "driver/sim.h"

#define NODE_MAGIC 0x4e53494du
#define EXEC_MAGIC 0x4553494du

struct sim_graph *sim_graph_new(void)
{
	struct sim_graph *g = calloc(1, sizeof *g);

	if (!g)
		abort();
	g->magic = SIM_GRAPH_MAGIC;
	return g;
}

static void node_free(struct sim_node *n)
{
	n->magic = 0;
	sim_work_clear(&n->work);
	free(n->dep);
	free(n->param_list);
	free(n);
}

void sim_graph_free(struct sim_graph *g)
{
	if (!g)
		return;
	for (int i = 0; i < g->n_node; i++)
		node_free(g->node[i]);
	free(g->node);
	/* The struct stays, so that a stale handle is told from a live one; clones are nobody's handle. */
	if (g->exposed)
		g->magic = 0;
	else
		free(g);
}

CUresult sim_node_new(struct sim_graph *g, struct sim_node **deps, int n, struct sim_work *w, struct sim_node **out)
{
	for (int i = 0; i < n; i++)
		if (!deps[i] || deps[i]->magic != NODE_MAGIC || deps[i]->graph != g) {
			sim_work_clear(w);
			return CUDA_ERROR_INVALID_VALUE;
		}
	if (g->n_node == g->cap_node) {
		g->cap_node = g->cap_node ? g->cap_node * 2 : 16;
		g->node = realloc(g->node, (size_t)g->cap_node * sizeof(struct sim_node *));
		if (!g->node)
			abort();
	}
	struct sim_node *x = calloc(1, sizeof *x);
	if (!x)
		abort();
	x->magic = NODE_MAGIC;
	x->graph = g;
	x->work = *w;
	x->dep = malloc((size_t)(n + 1) * sizeof(struct sim_node *));
	if (!x->dep)
		abort();
	if (n)
		memcpy(x->dep, deps, (size_t)n * sizeof(struct sim_node *));
	x->n_dep = n;
	x->index = g->n_node;
	g->node[g->n_node++] = x;
	*out = x;
	return CUDA_SUCCESS;
}

struct sim_graph *sim_graph_clone(const struct sim_graph *g)
{
	struct sim_graph *c = sim_graph_new();
	struct sim_node *n;

	for (int i = 0; i < g->n_node; i++) {
		struct sim_work w;

		sim_work_copy(&w, &g->node[i]->work);
		sim_node_new(c, NULL, 0, &w, &n);
		n->origin = g->node[i];
		n->disabled = g->node[i]->disabled;
	}
	/* Edges may point forward when they were added later. */
	for (int i = 0; i < g->n_node; i++) {
		const struct sim_node *from = g->node[i];

		n = c->node[i];
		free(n->dep);
		n->dep = malloc((size_t)(from->n_dep + 1) * sizeof(struct sim_node *));
		if (!n->dep)
			abort();
		n->n_dep = from->n_dep;
		for (int k = 0; k < from->n_dep; k++)
			n->dep[k] = c->node[from->dep[k]->index];
	}
	return c;
}

static struct sim_graph *graph_check(CUgraph h)
{
	struct sim_graph *g = (struct sim_graph *)h;

	return g && g->magic == SIM_GRAPH_MAGIC ? g : NULL;
}

static struct sim_node *node_check(CUgraphNode h)
{
	struct sim_node *n = (struct sim_node *)h;

	return n && n->magic == NODE_MAGIC ? n : NULL;
}

static struct sim_exec *exec_check(CUgraphExec h)
{
	struct sim_exec *e = (struct sim_exec *)h;

	return e && e->magic == EXEC_MAGIC ? e : NULL;
}

SIM_API CUresult cuGraphCreate(CUgraph *out, unsigned flags)
{
	SIM_ENTER();
	if (!out || flags)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	struct sim_graph *g = sim_graph_new();
	g->exposed = true;
	*out = (CUgraph)g;
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuGraphDestroy(CUgraph h)
{
	SIM_ENTER();
	struct sim_graph *g = graph_check(h);
	if (!g || g->capture)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	sim_graph_free(g);
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuGraphClone(CUgraph *out, CUgraph h)
{
	SIM_ENTER();
	struct sim_graph *g = graph_check(h);
	if (!g || !out)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	struct sim_graph *c = sim_graph_clone(g);
	c->exposed = true;
	*out = (CUgraph)c;
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuGraphNodeFindInClone(CUgraphNode *out, CUgraphNode original, CUgraph clone)
{
	SIM_ENTER();
	struct sim_graph *g = graph_check(clone);
	for (int i = 0; g && out && i < g->n_node; i++)
		if (g->node[i]->origin == (struct sim_node *)original) {
			*out = (CUgraphNode)g->node[i];
			return sim_return(CUDA_SUCCESS);
		}
	return sim_return(CUDA_ERROR_INVALID_VALUE);
}

SIM_API CUresult cuGraphDestroyNode(CUgraphNode h)
{
	SIM_ENTER();
	struct sim_node *n = node_check(h);
	if (!n)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	struct sim_graph *g = n->graph;
	for (int i = 0; i < g->n_node; i++) {
		struct sim_node *o = g->node[i];
		int k = 0;

		for (int j = 0; j < o->n_dep; j++)
			if (o->dep[j] != n)
				o->dep[k++] = o->dep[j];
		o->n_dep = k;
	}
	memmove(g->node + n->index, g->node + n->index + 1, (size_t)(g->n_node - n->index - 1) * sizeof(struct sim_node *));
	g->n_node--;
	for (int i = 0; i < g->n_node; i++)
		g->node[i]->index = i;
	node_free(n);
	return sim_return(CUDA_SUCCESS);
}

static CUresult list(struct sim_node **nodes, int n, CUgraphNode *out, size_t *count)
{
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	if (out) {
		size_t room = *count;

		for (size_t i = 0; i < room; i++)
			out[i] = i < (size_t)n ? (CUgraphNode)nodes[i] : NULL;
		*count = room < (size_t)n ? room : (size_t)n;
	} else {
		*count = (size_t)n;
	}
	return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphGetNodes(CUgraph h, CUgraphNode *out, size_t *count)
{
	SIM_ENTER();
	struct sim_graph *g = graph_check(h);
	return sim_return(g ? list(g->node, g->n_node, out, count) : CUDA_ERROR_INVALID_VALUE);
}

SIM_API CUresult cuGraphGetRootNodes(CUgraph h, CUgraphNode *out, size_t *count)
{
	SIM_ENTER();
	struct sim_graph *g = graph_check(h);
	if (!g)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	struct sim_node **roots = malloc((size_t)(g->n_node + 1) * sizeof(struct sim_node *));
	int n = 0;
	for (int i = 0; roots && i < g->n_node; i++)
		if (!g->node[i]->n_dep)
			roots[n++] = g->node[i];
	CUresult r = list(roots, n, out, count);
	free(roots);
	return sim_return(r);
}

static CUresult edges(CUgraph h, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t *count)
{
	SIM_ENTER();
	struct sim_graph *g = graph_check(h);
	size_t n = 0;
	if (!g || !count)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	for (int i = 0; i < g->n_node; i++)
		for (int k = 0; k < g->node[i]->n_dep; k++, n++)
			if (from && to && n < *count) {
				from[n] = (CUgraphNode)g->node[i]->dep[k];
				to[n] = (CUgraphNode)g->node[i];
				if (data)
					memset(&data[n], 0, sizeof *data);
			}
	*count = n;
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuGraphGetEdges(CUgraph h, CUgraphNode *f, CUgraphNode *t, size_t *n) { return edges(h, f, t, NULL, n); }
SIM_API CUresult cuGraphGetEdges_v2(CUgraph h, CUgraphNode *f, CUgraphNode *t, CUgraphEdgeData *d, size_t *n) { return edges(h, f, t, d, n); }

static CUresult dependencies(CUgraphNode h, CUgraphNode *out, size_t *n)
{
	SIM_ENTER();
	struct sim_node *x = node_check(h);
	return sim_return(x ? list(x->dep, x->n_dep, out, n) : CUDA_ERROR_INVALID_VALUE);
}

SIM_API CUresult cuGraphNodeGetDependencies(CUgraphNode h, CUgraphNode *out, size_t *n) { return dependencies(h, out, n); }

SIM_API CUresult cuGraphNodeGetDependencies_v2(CUgraphNode h, CUgraphNode *out, CUgraphEdgeData *d, size_t *n)
{
	if (d && n)
		memset(d, 0, *n * sizeof *d);
	return dependencies(h, out, n);
}

static CUresult dependents(CUgraphNode h, CUgraphNode *out, size_t *count)
{
	SIM_ENTER();
	struct sim_node *x = node_check(h);
	if (!x)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	struct sim_node **found = malloc((size_t)(x->graph->n_node + 1) * sizeof(struct sim_node *));
	int n = 0;
	for (int i = 0; found && i < x->graph->n_node; i++)
		for (int k = 0; k < x->graph->node[i]->n_dep; k++)
			if (x->graph->node[i]->dep[k] == x)
				found[n++] = x->graph->node[i];
	CUresult r = list(found, n, out, count);
	free(found);
	return sim_return(r);
}

SIM_API CUresult cuGraphNodeGetDependentNodes(CUgraphNode h, CUgraphNode *out, size_t *n) { return dependents(h, out, n); }

SIM_API CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode h, CUgraphNode *out, CUgraphEdgeData *d, size_t *n)
{
	if (d && n)
		memset(d, 0, *n * sizeof *d);
	return dependents(h, out, n);
}

static CUresult add_dependencies(CUgraph h, const CUgraphNode *from, const CUgraphNode *to, size_t n)
{
	SIM_ENTER();
	struct sim_graph *g = graph_check(h);
	for (size_t i = 0; g && i < n; i++) {
		struct sim_node *a = node_check(from[i]), *b = node_check(to[i]);

		if (!a || !b || a == b || a->graph != g || b->graph != g)
			return sim_return(CUDA_ERROR_INVALID_VALUE);
		b->dep = realloc(b->dep, (size_t)(b->n_dep + 1) * sizeof(struct sim_node *));
		if (!b->dep)
			abort();
		b->dep[b->n_dep++] = a;
	}
	return sim_return(g ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

SIM_API CUresult cuGraphAddDependencies(CUgraph h, const CUgraphNode *f, const CUgraphNode *t, size_t n) { return add_dependencies(h, f, t, n); }

SIM_API CUresult cuGraphAddDependencies_v2(CUgraph h, const CUgraphNode *f, const CUgraphNode *t, const CUgraphEdgeData *d, size_t n)
{
	(void)d;
	return add_dependencies(h, f, t, n);
}

/* ---- executable graphs ---- */
static CUresult instantiate(CUgraphExec *out, CUgraph h, unsigned long long flags)
{
	SIM_ENTER();
	struct sim_graph *g = graph_check(h);
	if (!g || !out || g->capture)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
		return sim_return(CUDA_ERROR_NOT_SUPPORTED);
	struct sim_exec *e = calloc(1, sizeof *e);
	if (!e)
		return sim_return(CUDA_ERROR_OUT_OF_MEMORY);
	e->magic = EXEC_MAGIC;
	e->graph = sim_graph_clone(g);
	e->flags = flags;
	*out = (CUgraphExec)e;
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph g, unsigned long long flags) { return instantiate(out, g, flags); }

SIM_API CUresult cuGraphInstantiate_v2(CUgraphExec *out, CUgraph g, CUgraphNode *node, char *log, size_t n)
{
	(void)node;
	if (log && n)
		log[0] = 0;
	return instantiate(out, g, 0);
}

static CUresult with_params(CUgraphExec *out, CUgraph g, CUDA_GRAPH_INSTANTIATE_PARAMS *p)
{
	CUresult r = p ? instantiate(out, g, p->flags & ~(cuuint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) : CUDA_ERROR_INVALID_VALUE;

	if (p) {
		p->hErrNode_out = NULL;
		p->result_out = r == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
	}
	return r;
}

SIM_API CUresult cuGraphInstantiateWithParams(CUgraphExec *o, CUgraph g, CUDA_GRAPH_INSTANTIATE_PARAMS *p) { return with_params(o, g, p); }
SIM_API CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *o, CUgraph g, CUDA_GRAPH_INSTANTIATE_PARAMS *p) { return with_params(o, g, p); }

SIM_API CUresult cuGraphExecDestroy(CUgraphExec h)
{
	SIM_ENTER();
	struct sim_exec *e = exec_check(h);
	if (!e)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	/* A launch under way has its own copies of the work, but memory nodes belong to the graph. */
	if (e->last)
		sim_op_wait(e->last);
	sim_op_unref(e->last);
	sim_graph_free(e->graph);
	e->graph = NULL;
	e->magic = 0;
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuGraphExecGetFlags(CUgraphExec h, cuuint64_t *flags)
{
	SIM_ENTER();
	struct sim_exec *e = exec_check(h);
	if (!e || !flags)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	*flags = e->flags;
	return sim_return(CUDA_SUCCESS);
}

/* What a launch allocates and does not free is there until somebody else does. */
static void memory_of_launch(const struct sim_graph *g)
{
	for (int i = 0; i < g->n_node; i++) {
		const struct sim_work *w = &g->node[i]->work;

		if (w->kind == SIM_WORK_ALLOC && w->u.memory.graph)
			sim_graph_memory_live(w->u.memory.graph, true);
	}
	for (int i = 0; i < g->n_node; i++) {
		const struct sim_work *w = &g->node[i]->work;
		struct sim_alloc *a = w->kind == SIM_WORK_FREE ? sim_alloc_find(w->u.memory.va) : NULL;

		if (a && a->graph && a->va == w->u.memory.va)
			sim_graph_memory_live(a->graph, false);
	}
}

static struct sim_op *emit(const struct sim_graph *g, struct sim_op *start)
{
	struct sim_op **op = calloc((size_t)g->n_node + 1, sizeof(struct sim_op *));
	char *inner = calloc((size_t)g->n_node + 1, 1); /* nodes that others depend on */
	struct sim_op *end = sim_op_new();

	if (!op || !inner)
		abort();
	end->device = start->device;
	for (int i = 0; i < g->n_node; i++)
		for (int d = 0; d < g->node[i]->n_dep; d++)
			inner[g->node[i]->dep[d]->index] = 1;
	sim_op_after(end, start);
	memory_of_launch(g);
	for (int i = 0; i < g->n_node; i++) {
		const struct sim_work *w = &g->node[i]->work;

		op[i] = sim_op_new();
		op[i]->device = start->device;
		sim_op_ref(op[i]);
		if (g->node[i]->disabled || w->kind == SIM_WORK_ALLOC || w->kind == SIM_WORK_FREE || w->kind == SIM_WORK_CHILD)
			continue;
		if (w->kind == SIM_WORK_EVENT_RECORD) {
			sim_op_unref(w->u.event->op);
			w->u.event->op = op[i];
			sim_op_ref(op[i]);
		} else if (w->kind == SIM_WORK_EVENT_WAIT) {
			sim_op_after(op[i], w->u.event->op);
		} else {
			sim_work_copy(&op[i]->work, w);
		}
	}
	for (int i = 0; i < g->n_node; i++) {
		struct sim_node *n = g->node[i];

		/* A child graph starts behind its node; what depends on the node waits for the child's end. */
		if (!n->n_dep)
			sim_op_after(op[i], start);
		if (n->work.kind == SIM_WORK_CHILD && !n->disabled) {
			struct sim_op *child = emit(n->work.u.child, op[i]);

			for (int k = 0; k < g->n_node; k++)
				for (int d = 0; d < g->node[k]->n_dep; d++)
					if (g->node[k]->dep[d] == n)
						sim_op_after(op[k], child);
			sim_op_after(end, child);
			sim_op_submit(child);
		}
		for (int d = 0; d < n->n_dep; d++)
			sim_op_after(op[i], op[n->dep[d]->index]);
		if (!inner[i])
			sim_op_after(end, op[i]);
	}
	for (int i = 0; i < g->n_node; i++) {
		sim_op_submit(op[i]);
		sim_op_unref(op[i]);
	}
	free(op);
	free(inner);
	return end;
}

static CUresult launch(CUgraphExec h, CUstream sh)
{
	struct sim_stream *s;

	SIM_ENTER();
	struct sim_exec *e = exec_check(h);
	CUresult r = e ? sim_stream_get(sh, &s) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return sim_return(r);
	if (s->capture) {
		struct sim_work w = { .kind = SIM_WORK_CHILD, .u.child = sim_graph_clone(e->graph) };

		return sim_return(sim_submit(s, &w, NULL));
	}
	r = sim_capture_implicit(s);
	if (r != CUDA_SUCCESS)
		return sim_return(r);
	r = sim_stream_room(s);
	if (r != CUDA_SUCCESS)
		return sim_return(r);
	sim_record_graph(e->graph, s->id);
	struct sim_work none = { .kind = SIM_WORK_EMPTY };
	struct sim_op *start = sim_stream_op(s, &none);
	sim_op_after(start, e->last);
	sim_stream_pass(s, start);
	/* Held back until all of it is there. */
	sim_op_ref(start);
	struct sim_op *end = emit(e->graph, start);
	start->stream = NULL;
	sim_op_ref(end);
	sim_op_unref(e->last);
	e->last = end;
	end->stream = s;
	sim_stream_push(s, end);
	sim_op_submit(start);
	sim_op_unref(start);
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuGraphLaunch(CUgraphExec e, CUstream s) { return launch(e, SIM_LEGACY(s)); }
SIM_API CUresult cuGraphLaunch_ptsz(CUgraphExec e, CUstream s) { return launch(e, SIM_PTDS(s)); }

SIM_API CUresult cuGraphUpload(CUgraphExec e, CUstream s)
{
	(void)s;
	return exec_check(e) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API CUresult cuGraphUpload_ptsz(CUgraphExec e, CUstream s) { return cuGraphUpload(e, s); }

static CUgraphExecUpdateResult compare(const struct sim_graph *a, const struct sim_graph *b, struct sim_node **bad)
{
	*bad = NULL;
	if (a->n_node != b->n_node)
		return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	for (int i = 0; i < a->n_node; i++) {
		const struct sim_node *x = a->node[i], *y = b->node[i];

		*bad = b->node[i];
		if (x->work.kind != y->work.kind)
			return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
		if (x->n_dep != y->n_dep)
			return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
		for (int k = 0; k < x->n_dep; k++)
			if (x->dep[k]->index != y->dep[k]->index)
				return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
		if (x->work.kind == SIM_WORK_ALLOC || x->work.kind == SIM_WORK_FREE)
			return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
	}
	*bad = NULL;
	return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

static CUresult exec_update(CUgraphExec h, CUgraph gh, CUgraphNode *node, CUgraphExecUpdateResult *result)
{
	struct sim_node *bad;

	SIM_ENTER();
	struct sim_exec *e = exec_check(h);
	struct sim_graph *g = graph_check(gh);
	if (!e || !g)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	CUgraphExecUpdateResult r = compare(e->graph, g, &bad);
	if (result)
		*result = r;
	if (node)
		*node = (CUgraphNode)bad;
	if (r != CU_GRAPH_EXEC_UPDATE_SUCCESS)
		return sim_return(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	/* Nodes of the first graph still name their counterparts. */
	struct sim_graph *fresh = sim_graph_clone(g);
	for (int i = 0; i < fresh->n_node; i++)
		fresh->node[i]->origin = e->graph->node[i]->origin;
	sim_graph_free(e->graph);
	e->graph = fresh;
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuGraphExecUpdate_v2(CUgraphExec e, CUgraph g, CUgraphExecUpdateResultInfo *info)
{
	if (!info)
		return CUDA_ERROR_INVALID_VALUE;
	info->errorFromNode = NULL;
	return exec_update(e, g, &info->errorNode, &info->result);
}

SIM_API CUresult cuGraphExecUpdate(CUgraphExec e, CUgraph g, CUgraphNode *node, CUgraphExecUpdateResult *result)
{
	return exec_update(e, g, node, result);
}

SIM_API CUresult cuGraphNodeSetEnabled(CUgraphExec h, CUgraphNode node, unsigned on)
{
	SIM_ENTER();
	struct sim_exec *e = exec_check(h);
	for (int i = 0; e && i < e->graph->n_node; i++)
		if (e->graph->node[i]->origin == (struct sim_node *)node) {
			e->graph->node[i]->disabled = !on;
			return sim_return(CUDA_SUCCESS);
		}
	return sim_return(CUDA_ERROR_INVALID_VALUE);
}

SIM_API CUresult cuGraphNodeGetEnabled(CUgraphExec h, CUgraphNode node, unsigned *on)
{
	SIM_ENTER();
	struct sim_exec *e = exec_check(h);
	for (int i = 0; e && on && i < e->graph->n_node; i++)
		if (e->graph->node[i]->origin == (struct sim_node *)node) {
			*on = !e->graph->node[i]->disabled;
			return sim_return(CUDA_SUCCESS);
		}
	return sim_return(CUDA_ERROR_INVALID_VALUE);
}
