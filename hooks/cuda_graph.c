/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of graph instantiation, and graphs by handle. */
#include "config.h"

#include "hooks/cuda_graph.h"

#include "runtime/base/digest.h"
#include "runtime/base/layout.h"

enum { GRAPHS = 4096 };

/* A graph or an executable one; a handle that is given out again replaces the old entry. */
static struct graph {
	const void *handle;
	uint64_t id;
	uint64_t work; /* digest of what its nodes do, in whatever order they were captured, and of changes to them since */
	uint32_t nodes;
	const void *within; /* the graph that owns this one, as the body of a condition is owned, or NULL */
	struct tpck_communicator_calls *calls;
} graphs[GRAPHS] TPCK_LARGE;
static uint32_t graphs_next;
static tpck_spin lock;

/* The capture under way. One at a time has its nodes counted; more at once share its identity, which
 * is still the same in every run that captures in the same order. */
_Atomic int tpck_cuda_captures; /* how many; changed under the lock */
static struct {
	uint64_t id, work;
	uint32_t nodes;
	struct tpck_communicator_calls *calls;
} capture;

static struct graph *find(const void *handle)
{
	for (uint32_t i = 0; i < GRAPHS && i < graphs_next; i++)
		if (graphs[i].handle == handle)
			return &graphs[i];
	return NULL;
}

/* The reference to the calls becomes the entry's. */
static void enter(const struct graph *entry)
{
	struct tpck_communicator_calls *before;
	struct graph *graph;

	tpck_spin_lock(&lock);
	graph = find(entry->handle);
	if (!graph)
		graph = &graphs[graphs_next++ % GRAPHS];
	before = graph->calls;
	*graph = *entry;
	tpck_spin_unlock(&lock);
	tpck_communicator_calls_drop(before);
}

/* The entry of a graph that is being built or changed, or of the one that owns it; made where there is none. NULL: its place is taken by one that has calls on
 * communicators. Called with the lock held. */
static struct graph *built(const void *handle)
{
	struct graph *graph = find(handle);

	for (int depth = 0; graph && graph->within && depth < 16; depth++)
		handle = graph->within, graph = find(handle);
	if (graph)
		return graph;
	graph = &graphs[graphs_next % GRAPHS];
	if (graph->calls)
		return NULL;
	graphs_next++;
	*graph = (struct graph){.handle = handle, .id = 1};
	return graph;
}

static void mix(struct graph *graph, uint64_t work)
{
	graph->work = (graph->work ^ work) * 0x9e3779b97f4a7c15ull + work;
}

/* Adds what a part does to a graph. Called with the lock held. */
static void take(struct graph *graph, uint64_t work, uint32_t nodes, struct tpck_communicator_calls *calls)
{
	mix(graph, work);
	graph->nodes += nodes;
	(void)tpck_communicator_calls_append(&graph->calls, calls);
}

void tpck_cuda_graph_begin(struct tpck_thread *self, CUstream stream)
{
	struct tpck_communicator_calls *before = NULL;

	(void)stream;
	tpck_spin_lock(&lock);
	if (!atomic_fetch_add(&tpck_cuda_captures, 1)) {
		capture.id = (uint64_t)self->id << 32 | ++self->objects;
		capture.nodes = 0;
		capture.work = 0;
		before = capture.calls;
		capture.calls = NULL;
	}
	tpck_spin_unlock(&lock);
	tpck_communicator_calls_drop(before);
	tpck_engine_graphs();
	tpck_engine_stream_capture(1);
}

void tpck_cuda_graph_end(struct tpck_thread *self, CUstream stream, CUgraph graph)
{
	struct graph known = {.handle = graph}, *owned;

	(void)self;
	(void)stream;
	tpck_spin_lock(&lock);
	known.id = capture.id;
	known.nodes = capture.nodes;
	known.work = capture.work;
	owned = graph ? find(graph) : NULL;
	if (owned && owned->within && (owned = built(graph)))
		take(owned, known.work, known.nodes, capture.calls);
	else
		owned = NULL;
	if (graph && !owned)
		known.calls = tpck_communicator_calls_hold(capture.calls);
	if (tpck_cuda_captures)
		atomic_fetch_sub(&tpck_cuda_captures, 1);
	tpck_spin_unlock(&lock);
	if (graph && !owned)
		enter(&known);
	tpck_engine_stream_capture(-1);
}

/* Of one node: which function or kind of copy, how large, and the numbers and addresses that it is given. */
static uint64_t work_of(const struct tpck_call *call)
{
	const struct tpck_token *token = &call->token;
	uint64_t words[] = {token->func, (uint64_t)token->op, (uint64_t)token->grid[0] << 32 | token->grid[1], (uint64_t)token->grid[2] << 32 | token->block[0],
			    (uint64_t)token->block[1] << 32 | token->block[2], token->bytes, call->numbers, call->addresses};

	return tpck_digest64(words, sizeof words, 0);
}

bool tpck_cuda_graph_node_note(const struct tpck_call *call)
{
	uint64_t work;

	if (!tpck_cuda_device()->is_capturing(call->stream))
		return false;
	work = work_of(call);
	tpck_spin_lock(&lock);
	capture.nodes++;
	capture.work += work;
	tpck_spin_unlock(&lock);
	tpck_engine_graph_node(capture.id, &call->token);
	return true;
}

void tpck_cuda_graph_calls_add(const struct tpck_communicator_call *call)
{
	tpck_spin_lock(&lock);
	(void)tpck_communicator_calls_add(&capture.calls, call);
	tpck_spin_unlock(&lock);
}

struct tpck_communicator_calls *tpck_cuda_graph_token(CUgraphExec exec, struct tpck_call *call)
{
	struct tpck_token *token = &call->token;
	struct tpck_communicator_calls *calls;
	const struct graph *graph;

	tpck_spin_lock(&lock);
	graph = find(exec);
	token->func = graph ? graph->id : 1;
	token->grid[0] = graph ? graph->nodes : 0;
	call->numbers = graph ? graph->work : 0;
	calls = graph ? tpck_communicator_calls_hold(graph->calls) : NULL;
	tpck_spin_unlock(&lock);
	return calls;
}

void tpck_cuda_graph_node_is(const void *handle, const struct tpck_call *call)
{
	uint64_t work = work_of(call);
	struct graph *graph;

	tpck_spin_lock(&lock);
	graph = built(handle);
	if (graph)
		mix(graph, work);
	tpck_spin_unlock(&lock);
}

void tpck_cuda_graph_holds(const void *handle, const void *child, enum tpck_cuda_graph_part part)
{
	struct graph *graph, *of;

	tpck_spin_lock(&lock);
	graph = built(handle);
	of = find(child);
	if (graph && of && part == TPCK_PART_CHANGED)
		mix(graph, of->work);
	else if (graph && of)
		take(graph, of->work, of->nodes, of->calls);
	of = part == TPCK_PART_OWNED ? built(child) : NULL;
	if (of && of->handle == child)
		of->within = handle;
	tpck_spin_unlock(&lock);
}

/* What gets its handle next is another one, and may come in a way that is not followed. */
static void forget(const void *handle)
{
	struct tpck_communicator_calls *calls = NULL;
	struct graph *graph;

	tpck_spin_lock(&lock);
	graph = find(handle);
	if (graph) {
		calls = graph->calls;
		*graph = (struct graph){.handle = handle, .id = 1};
	}
	for (uint32_t i = 0; graph && i < GRAPHS && i < graphs_next; i++)
		if (graphs[i].within == handle)
			graphs[i].within = NULL, graphs[i].work = 0;
	tpck_spin_unlock(&lock);
	tpck_communicator_calls_drop(calls);
}

CUresult tpck_hook_cuGraphDestroy(CUgraph hGraph)
{
	forget(hGraph);
	return TPCK_CALL(cuGraphDestroy, hGraph);
}

CUresult tpck_hook_cuGraphExecDestroy(CUgraphExec hGraphExec)
{
	forget(hGraphExec);
	return TPCK_CALL(cuGraphExecDestroy, hGraphExec);
}

void tpck_cuda_graph_copied(const void *to, const void *graph)
{
	struct graph known = {0};
	const struct graph *from;

	tpck_spin_lock(&lock);
	from = find(graph);
	if (from)
		known = *from;
	tpck_communicator_calls_hold(known.calls);
	tpck_spin_unlock(&lock);
	known.handle = to;
	known.id = known.id ? known.id : 1;
	known.within = NULL;
	enter(&known);
}

void tpck_cuda_graph_updated(const void *exec, const void *graph)
{
	struct tpck_communicator_calls *before = NULL;
	struct graph *known;
	const struct graph *from;

	tpck_spin_lock(&lock);
	known = find(exec);
	from = find(graph);
	if (known && from) {
		before = known->calls;
		known->work = from->work;
		known->calls = tpck_communicator_calls_hold(from->calls);
	}
	tpck_spin_unlock(&lock);
	tpck_communicator_calls_drop(before);
}

static void instantiated(CUgraphExec *exec, CUgraph graph, CUresult result)
{
	if (result == CUDA_SUCCESS && exec)
		tpck_cuda_graph_copied(*exec, graph);
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
