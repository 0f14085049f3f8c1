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
	struct graph known = {.handle = graph};

	(void)self;
	(void)stream;
	tpck_spin_lock(&lock);
	known.id = capture.id;
	known.nodes = capture.nodes;
	known.work = capture.work;
	if (graph)
		known.calls = tpck_communicator_calls_hold(capture.calls);
	if (tpck_cuda_captures)
		atomic_fetch_sub(&tpck_cuda_captures, 1);
	tpck_spin_unlock(&lock);
	if (graph)
		enter(&known);
	tpck_engine_stream_capture(-1);
}

/* Of one node: which function or kind of copy, how large, and the numbers that it is given. */
static uint64_t work_of(const struct tpck_call *call)
{
	const struct tpck_token *token = &call->token;
	uint64_t words[] = {token->func, (uint64_t)token->op, (uint64_t)token->grid[0] << 32 | token->grid[1], (uint64_t)token->grid[2] << 32 | token->block[0],
			    (uint64_t)token->block[1] << 32 | token->block[2], token->bytes, call->numbers};

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

/* A kernel's node of this graph, or executable graph, is made or changed, outside of a capture. */
static void node_is(const void *handle, const CUDA_KERNEL_NODE_PARAMS *node)
{
	struct tpck_thread *self = tpck_engine_enter();
	struct tpck_call call = {.stream = NULL};
	struct graph *graph;
	uint64_t work;

	if (!self)
		return;
	tpck_cuda_node_call(&call, node);
	work = work_of(&call);
	tpck_spin_lock(&lock);
	graph = find(handle);
	if (!graph) {
		graph = &graphs[graphs_next++ % GRAPHS];
		if (graph->calls)
			graph = NULL; /* another one's, which has calls on communicators: that one stays */
		else
			*graph = (struct graph){.handle = handle, .id = 1};
	}
	if (graph)
		graph->work = (graph->work ^ work) * 0x9e3779b97f4a7c15ull + work;
	tpck_spin_unlock(&lock);
	tpck_engine_leave(self);
}

/* As programs give it that were made with CUDA 11. */
static void older_node_is(const void *handle, const CUDA_KERNEL_NODE_PARAMS_v1 *node)
{
	CUDA_KERNEL_NODE_PARAMS now = {
		.func = node->func, .gridDimX = node->gridDimX, .gridDimY = node->gridDimY, .gridDimZ = node->gridDimZ, .blockDimX = node->blockDimX,
		.blockDimY = node->blockDimY, .blockDimZ = node->blockDimZ, .sharedMemBytes = node->sharedMemBytes, .kernelParams = node->kernelParams,
		.extra = node->extra,
	};

	node_is(handle, &now);
}

CUresult tpck_hook_cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies,
					const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	CUresult result = TPCK_CALL(cuGraphAddKernelNode, phGraphNode, hGraph, dependencies, numDependencies, nodeParams);

	if (result == CUDA_SUCCESS)
		older_node_is(hGraph, nodeParams);
	return result;
}

CUresult tpck_hook_cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	CUresult result = TPCK_CALL(cuGraphExecKernelNodeSetParams, hGraphExec, hNode, nodeParams);

	if (result == CUDA_SUCCESS)
		older_node_is(hGraphExec, nodeParams);
	return result;
}

CUresult tpck_hook_cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies,
					   const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	CUresult result = TPCK_CALL(cuGraphAddKernelNode_v2, phGraphNode, hGraph, dependencies, numDependencies, nodeParams);

	if (result == CUDA_SUCCESS)
		node_is(hGraph, nodeParams);
	return result;
}

CUresult tpck_hook_cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	CUresult result = TPCK_CALL(cuGraphExecKernelNodeSetParams_v2, hGraphExec, hNode, nodeParams);

	if (result == CUDA_SUCCESS)
		node_is(hGraphExec, nodeParams);
	return result;
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
	tpck_communicator_calls_hold(known.calls);
	tpck_spin_unlock(&lock);
	known.handle = *exec;
	known.id = known.id ? known.id : 1;
	enter(&known);
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
