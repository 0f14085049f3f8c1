/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of graph instantiation, and graphs by handle. */
#include "config.h"

#include "hooks/cuda_graph.h"

enum { GRAPHS = 4096 };

/* A graph or an executable one; a handle that is given out again replaces the old entry. */
static struct graph {
	const void *handle;
	uint64_t id;
	uint32_t nodes;
} graphs[GRAPHS];
static uint32_t graphs_next;
static tpck_spin lock;

/* The capture under way. One at a time has its nodes counted; more at once share its identity, which
 * is still the same in every run that captures in the same order. */
_Atomic int tpck_cuda_captures; /* how many; changed under the lock */
static struct {
	uint64_t id;
	uint32_t nodes;
} capture;

static struct graph *find(const void *handle)
{
	for (uint32_t i = 0; i < GRAPHS && i < graphs_next; i++)
		if (graphs[i].handle == handle)
			return &graphs[i];
	return NULL;
}

static void enter(const void *handle, uint64_t id, uint32_t nodes)
{
	struct graph *graph;

	tpck_spin_lock(&lock);
	graph = find(handle);
	if (!graph)
		graph = &graphs[graphs_next++ % GRAPHS];
	*graph = (struct graph){handle, id, nodes};
	tpck_spin_unlock(&lock);
}

void tpck_cuda_graph_begin(struct tpck_thread *self, CUstream stream)
{
	(void)stream;
	tpck_spin_lock(&lock);
	if (!atomic_fetch_add(&tpck_cuda_captures, 1)) {
		capture.id = (uint64_t)self->id << 32 | ++self->objects;
		capture.nodes = 0;
	}
	tpck_spin_unlock(&lock);
	tpck_engine_stream_capture(1);
}

void tpck_cuda_graph_end(struct tpck_thread *self, CUstream stream, CUgraph graph)
{
	uint64_t id;
	uint32_t nodes;

	(void)self;
	(void)stream;
	tpck_spin_lock(&lock);
	id = capture.id;
	nodes = capture.nodes;
	if (tpck_cuda_captures)
		atomic_fetch_sub(&tpck_cuda_captures, 1);
	tpck_spin_unlock(&lock);
	if (graph)
		enter(graph, id, nodes);
	tpck_engine_stream_capture(-1);
}

void tpck_cuda_graph_node_note(const struct tpck_call *call)
{
	if (!tpck_cuda_device()->is_capturing(call->stream))
		return;
	tpck_spin_lock(&lock);
	capture.nodes++;
	tpck_spin_unlock(&lock);
	tpck_engine_graph_node(capture.id, &call->token);
}

void tpck_cuda_graph_token(CUgraphExec exec, struct tpck_token *token)
{
	const struct graph *graph;

	tpck_spin_lock(&lock);
	graph = find(exec);
	token->func = graph ? graph->id : 1;
	token->grid[0] = graph ? graph->nodes : 0;
	tpck_spin_unlock(&lock);
}

static void instantiated(CUgraphExec *exec, CUgraph graph, CUresult result)
{
	struct graph known = {0};
	const struct graph *from;

	if (result != CUDA_SUCCESS || !exec)
		return;
	tpck_spin_lock(&lock);
	from = find(graph);
	if (from)
		known = *from;
	tpck_spin_unlock(&lock);
	enter(*exec, known.id ? known.id : 1, known.nodes);
}

CUresult tpck_hook_cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)
{
	CUresult result = TPCK_CALL(cuGraphInstantiateWithFlags, phGraphExec, hGraph, flags);

	instantiated(phGraphExec, hGraph, result);
	return result;
}

CUresult tpck_hook_cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
						CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
	CUresult result = TPCK_CALL(cuGraphInstantiateWithParams, phGraphExec, hGraph, instantiateParams);

	instantiated(phGraphExec, hGraph, result);
	return result;
}

CUresult tpck_hook_cuGraphInstantiateWithParams_ptsz(CUgraphExec *phGraphExec, CUgraph hGraph,
						     CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
	CUresult result = TPCK_CALL(cuGraphInstantiateWithParams_ptsz, phGraphExec, hGraph, instantiateParams);

	instantiated(phGraphExec, hGraph, result);
	return result;
}
