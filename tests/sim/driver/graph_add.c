/* SPDX-License-Identifier: Apache-2.0 */
/* The call that adds a node of any type, on top of those for one type. */
#include "driver/sim.h"

static CUresult add(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n, CUgraphNodeParams *p)
{
	CUcontext ctx = NULL;

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL: {
		CUDA_KERNEL_NODE_PARAMS_v2 k = { .func = p->kernel.func, .gridDimX = p->kernel.gridDimX, .gridDimY = p->kernel.gridDimY,
						 .gridDimZ = p->kernel.gridDimZ, .blockDimX = p->kernel.blockDimX,
						 .blockDimY = p->kernel.blockDimY, .blockDimZ = p->kernel.blockDimZ,
						 .sharedMemBytes = p->kernel.sharedMemBytes, .kernelParams = p->kernel.kernelParams,
						 .extra = p->kernel.extra, .kern = p->kernel.kern };
		return cuGraphAddKernelNode_v2(out, g, deps, n, &k);
	}
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return cuGraphAddMemcpyNode(out, g, deps, n, &p->memcpy.copyParams, ctx);
	case CU_GRAPH_NODE_TYPE_MEMSET: {
		CUDA_MEMSET_NODE_PARAMS_v1 m = { .dst = p->memset.dst, .pitch = p->memset.pitch, .value = p->memset.value,
						 .elementSize = p->memset.elementSize, .width = p->memset.width, .height = p->memset.height };
		return cuGraphAddMemsetNode(out, g, deps, n, &m, ctx);
	}
	case CU_GRAPH_NODE_TYPE_HOST: {
		CUDA_HOST_NODE_PARAMS_v1 h = { p->host.fn, p->host.userData };
		return cuGraphAddHostNode(out, g, deps, n, &h);
	}
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return cuGraphAddChildGraphNode(out, g, deps, n, p->graph.graph);
	case CU_GRAPH_NODE_TYPE_EMPTY:
		return cuGraphAddEmptyNode(out, g, deps, n);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return cuGraphAddEventRecordNode(out, g, deps, n, p->eventRecord.event);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return cuGraphAddEventWaitNode(out, g, deps, n, p->eventWait.event);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
		CUDA_MEM_ALLOC_NODE_PARAMS_v1 a = { .poolProps = p->alloc.poolProps, .bytesize = p->alloc.bytesize };
		CUresult r = cuGraphAddMemAllocNode(out, g, deps, n, &a);
		p->alloc.dptr = a.dptr;
		return r;
	}
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return cuGraphAddMemFreeNode(out, g, deps, n, p->free.dptr);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
		CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 b = { p->memOp.ctx, p->memOp.count, p->memOp.paramArray, p->memOp.flags };
		return cuGraphAddBatchMemOpNode(out, g, deps, n, &b);
	}
	default:
		return sim_unsupported("cuGraphAddNode of this type");
	}
}

SIM_API CUresult cuGraphAddNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n, CUgraphNodeParams *p)
{
	return add(out, g, deps, n, p);
}

SIM_API CUresult cuGraphAddNode_v2(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, const CUgraphEdgeData *d, size_t n, CUgraphNodeParams *p)
{
	(void)d;
	return add(out, g, deps, n, p);
}
