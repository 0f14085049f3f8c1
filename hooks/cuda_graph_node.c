/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of graphs that are built node by node, and of changes to nodes. */
#include "config.h"

#include "hooks/cuda_graph.h"

static void kernel_is(const void *handle, const CUDA_KERNEL_NODE_PARAMS *node)
{
	struct tpck_thread *self = tpck_engine_enter();
	struct tpck_call call = {.stream = NULL};

	if (!self)
		return;
	tpck_cuda_node_call(&call, node);
	tpck_cuda_graph_node_is(handle, &call);
	tpck_engine_leave(self);
}

/* As programs give it that were made with CUDA 11. */
static void older_kernel_is(const void *handle, const CUDA_KERNEL_NODE_PARAMS_v1 *node)
{
	CUDA_KERNEL_NODE_PARAMS now = {
		.func = node->func, .gridDimX = node->gridDimX, .gridDimY = node->gridDimY, .gridDimZ = node->gridDimZ, .blockDimX = node->blockDimX,
		.blockDimY = node->blockDimY, .blockDimZ = node->blockDimZ, .sharedMemBytes = node->sharedMemBytes, .kernelParams = node->kernelParams,
		.extra = node->extra,
	};

	kernel_is(handle, &now);
}

static void copy_is(const CUDA_MEMCPY3D *copy)
{
	if (tpck_cuda_copies_to_host(copy))
		tpck_cuda_refuse("a graph of the program copies to the host");
}

static void child_is(const void *handle, CUgraph child, enum tpck_cuda_graph_part part)
{
	struct tpck_thread *self = tpck_engine_enter();

	if (!self)
		return;
	tpck_cuda_graph_holds(handle, child, part);
	tpck_engine_leave(self);
}

/* A node of any type is made, or changed where the graph is an executable one. */
static void node_is(const void *handle, const CUgraphNodeParams *node, bool changed)
{
	switch (node->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL: {
		const CUDA_KERNEL_NODE_PARAMS_v3 *kernel = &node->kernel;
		CUDA_KERNEL_NODE_PARAMS now = {
			.func = kernel->func, .gridDimX = kernel->gridDimX, .gridDimY = kernel->gridDimY, .gridDimZ = kernel->gridDimZ,
			.blockDimX = kernel->blockDimX, .blockDimY = kernel->blockDimY, .blockDimZ = kernel->blockDimZ,
			.sharedMemBytes = kernel->sharedMemBytes, .kernelParams = kernel->kernelParams, .extra = kernel->extra, .kern = kernel->kern,
		};

		kernel_is(handle, &now);
		break;
	}
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		copy_is(&node->memcpy.copyParams);
		break;
	case CU_GRAPH_NODE_TYPE_GRAPH:
		child_is(handle, node->graph.graph,
			 changed ? TPCK_PART_CHANGED : node->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE ? TPCK_PART_OWNED : TPCK_PART_COPIED);
		break;
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		for (unsigned i = 0; !changed && node->conditional.phGraph_out && i < node->conditional.size; i++)
			child_is(handle, node->conditional.phGraph_out[i], TPCK_PART_OWNED);
		break;
	case CU_GRAPH_NODE_TYPE_MEMSET:
	case CU_GRAPH_NODE_TYPE_EMPTY:
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
	case CU_GRAPH_NODE_TYPE_MEM_FREE: /* of memory whose node marks */
		break;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: /* looked at before */
		break;
	case CU_GRAPH_NODE_TYPE_HOST:
		tpck_cuda_refuse("a graph of the program calls host functions");
		break;
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		tpck_cuda_refuse("a graph of the program owns memory");
		break;
	default:
		tpck_cuda_refuse("the program builds graphs of what is not followed (cuGraphAddNode)");
		break;
	}
}

/* Before the call: nodes that wait for values in memory may not be made where such waits never end. */
static bool is_refused(const CUDA_BATCH_MEM_OP_NODE_PARAMS *operations)
{
	return operations && tpck_cuda_waits_refused(operations->paramArray, operations->count, "a graph of the program waits for values in memory, or writes them");
}

static bool node_is_refused(const CUgraphNodeParams *node)
{
	CUDA_BATCH_MEM_OP_NODE_PARAMS operations;

	if (!node || node->type != CU_GRAPH_NODE_TYPE_BATCH_MEM_OP)
		return false;
	operations = (CUDA_BATCH_MEM_OP_NODE_PARAMS){node->memOp.ctx, node->memOp.count, node->memOp.paramArray, node->memOp.flags};
	return is_refused(&operations);
}

CUresult tpck_hook_cuGraphAddBatchMemOpNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies,
					    const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
	return is_refused(nodeParams) ? CUDA_ERROR_NOT_SUPPORTED : TPCK_CALL(cuGraphAddBatchMemOpNode, phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

CUresult tpck_hook_cuGraphExecBatchMemOpNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
	return is_refused(nodeParams) ? CUDA_ERROR_NOT_SUPPORTED : TPCK_CALL(cuGraphExecBatchMemOpNodeSetParams, hGraphExec, hNode, nodeParams);
}

CUresult tpck_hook_cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	CUresult result = node_is_refused(nodeParams) ? CUDA_ERROR_NOT_SUPPORTED : TPCK_CALL(cuGraphAddNode, phGraphNode, hGraph, dependencies, numDependencies, nodeParams);

	if (result == CUDA_SUCCESS)
		node_is(hGraph, nodeParams, false);
	return result;
}

CUresult tpck_hook_cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
				     size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	CUresult result = node_is_refused(nodeParams) ? CUDA_ERROR_NOT_SUPPORTED : TPCK_CALL(cuGraphAddNode_v2, phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams);

	if (result == CUDA_SUCCESS)
		node_is(hGraph, nodeParams, false);
	return result;
}

CUresult tpck_hook_cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
	CUresult result = node_is_refused(nodeParams) ? CUDA_ERROR_NOT_SUPPORTED : TPCK_CALL(cuGraphExecNodeSetParams, hGraphExec, hNode, nodeParams);

	if (result == CUDA_SUCCESS)
		node_is(hGraphExec, nodeParams, true);
	return result;
}

CUresult tpck_hook_cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies,
					const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	CUresult result = TPCK_CALL(cuGraphAddKernelNode, phGraphNode, hGraph, dependencies, numDependencies, nodeParams);

	if (result == CUDA_SUCCESS)
		older_kernel_is(hGraph, nodeParams);
	return result;
}

CUresult tpck_hook_cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies,
					   const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	CUresult result = TPCK_CALL(cuGraphAddKernelNode_v2, phGraphNode, hGraph, dependencies, numDependencies, nodeParams);

	if (result == CUDA_SUCCESS)
		kernel_is(hGraph, nodeParams);
	return result;
}

CUresult tpck_hook_cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	CUresult result = TPCK_CALL(cuGraphExecKernelNodeSetParams, hGraphExec, hNode, nodeParams);

	if (result == CUDA_SUCCESS)
		older_kernel_is(hGraphExec, nodeParams);
	return result;
}

CUresult tpck_hook_cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	CUresult result = TPCK_CALL(cuGraphExecKernelNodeSetParams_v2, hGraphExec, hNode, nodeParams);

	if (result == CUDA_SUCCESS)
		kernel_is(hGraphExec, nodeParams);
	return result;
}

CUresult tpck_hook_cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies,
					const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
	CUresult result = TPCK_CALL(cuGraphAddMemcpyNode, phGraphNode, hGraph, dependencies, numDependencies, copyParams, ctx);

	if (result == CUDA_SUCCESS)
		copy_is(copyParams);
	return result;
}

CUresult tpck_hook_cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
	CUresult result = TPCK_CALL(cuGraphExecMemcpyNodeSetParams, hGraphExec, hNode, copyParams, ctx);

	if (result == CUDA_SUCCESS)
		copy_is(copyParams);
	return result;
}

CUresult tpck_hook_cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies, CUgraph childGraph)
{
	CUresult result = TPCK_CALL(cuGraphAddChildGraphNode, phGraphNode, hGraph, dependencies, numDependencies, childGraph);

	if (result == CUDA_SUCCESS)
		child_is(hGraph, childGraph, TPCK_PART_COPIED);
	return result;
}

CUresult tpck_hook_cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph)
{
	CUresult result = TPCK_CALL(cuGraphExecChildGraphNodeSetParams, hGraphExec, hNode, childGraph);

	if (result == CUDA_SUCCESS)
		child_is(hGraphExec, childGraph, TPCK_PART_CHANGED);
	return result;
}

CUresult tpck_hook_cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
	CUresult result = TPCK_CALL(cuGraphClone, phGraphClone, originalGraph);

	if (result == CUDA_SUCCESS)
		tpck_cuda_graph_copied(*phGraphClone, originalGraph);
	return result;
}

CUresult tpck_hook_cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out, CUgraphExecUpdateResult *updateResult_out)
{
	CUresult result = TPCK_CALL(cuGraphExecUpdate, hGraphExec, hGraph, hErrorNode_out, updateResult_out);

	if (result == CUDA_SUCCESS)
		tpck_cuda_graph_updated(hGraphExec, hGraph);
	return result;
}

CUresult tpck_hook_cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo)
{
	CUresult result = TPCK_CALL(cuGraphExecUpdate_v2, hGraphExec, hGraph, resultInfo);

	if (result == CUDA_SUCCESS)
		tpck_cuda_graph_updated(hGraphExec, hGraph);
	return result;
}
