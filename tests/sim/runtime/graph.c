/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs; most of it passes through. */
#include "runtime/rt.h"

RT_API cudaError_t cudaGraphCreate(cudaGraph_t *g, unsigned flags) { RT(rt_drv.cuGraphCreate(g, flags)); }
RT_API cudaError_t cudaGraphDestroy(cudaGraph_t g) { RT(rt_drv.cuGraphDestroy(g)); }
RT_API cudaError_t cudaGraphClone(cudaGraph_t *out, cudaGraph_t g) { RT(rt_drv.cuGraphClone(out, g)); }
RT_API cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t *nodes, size_t *n) { RT(rt_drv.cuGraphGetNodes(g, nodes, n)); }
RT_API cudaError_t cudaGraphNodeGetType(cudaGraphNode_t n, enum cudaGraphNodeType *t) { RT(rt_drv.cuGraphNodeGetType(n, (CUgraphNodeType *)t)); }
RT_API cudaError_t cudaGraphInstantiate(cudaGraphExec_t *e, cudaGraph_t g, unsigned long long flags) { RT(rt_drv.cuGraphInstantiateWithFlags(e, g, flags)); }
RT_API cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *e, cudaGraph_t g, unsigned long long flags) { RT(rt_drv.cuGraphInstantiateWithFlags(e, g, flags)); }
RT_API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e) { RT(rt_drv.cuGraphExecDestroy(e)); }
RT_API cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s) { RT(rt_drv.cuGraphLaunch(e, s)); }
cudaError_t cudaGraphLaunch_ptsz(cudaGraphExec_t, cudaStream_t);
RT_API cudaError_t cudaGraphLaunch_ptsz(cudaGraphExec_t e, cudaStream_t s) { RT(rt_ptd.cuGraphLaunch(e, s)); }
RT_API cudaError_t cudaGraphUpload(cudaGraphExec_t e, cudaStream_t s) { RT(rt_drv.cuGraphUpload(e, s)); }

RT_API cudaError_t cudaGraphExecUpdate(cudaGraphExec_t e, cudaGraph_t g, cudaGraphExecUpdateResultInfo *info)
{
	RT(rt_drv.cuGraphExecUpdate(e, g, (CUgraphExecUpdateResultInfo *)info));
}

#define ADD cudaGraphNode_t *out, cudaGraph_t g, const cudaGraphNode_t *deps, size_t n

RT_API cudaError_t cudaGraphAddEmptyNode(ADD) { RT(rt_drv.cuGraphAddEmptyNode(out, g, deps, n)); }
RT_API cudaError_t cudaGraphAddChildGraphNode(ADD, cudaGraph_t child) { RT(rt_drv.cuGraphAddChildGraphNode(out, g, deps, n, child)); }
RT_API cudaError_t cudaGraphAddEventRecordNode(ADD, cudaEvent_t e) { RT(rt_drv.cuGraphAddEventRecordNode(out, g, deps, n, e)); }
RT_API cudaError_t cudaGraphAddEventWaitNode(ADD, cudaEvent_t e) { RT(rt_drv.cuGraphAddEventWaitNode(out, g, deps, n, e)); }
RT_API cudaError_t cudaGraphAddHostNode(ADD, const struct cudaHostNodeParams *p) { RT(rt_drv.cuGraphAddHostNode(out, g, deps, n, (const CUDA_HOST_NODE_PARAMS *)p)); }

RT_API cudaError_t cudaGraphAddKernelNode(ADD, const struct cudaKernelNodeParams *p)
{
	CUfunction f;
	cudaError_t e = rt_init();

	if (e == cudaSuccess)
		e = rt_function_of(p->func, &f);
	if (e != cudaSuccess)
		return rt_result(e);
	CUDA_KERNEL_NODE_PARAMS x = { .func = f, .gridDimX = p->gridDim.x, .gridDimY = p->gridDim.y, .gridDimZ = p->gridDim.z,
				      .blockDimX = p->blockDim.x, .blockDimY = p->blockDim.y, .blockDimZ = p->blockDim.z,
				      .sharedMemBytes = p->sharedMemBytes, .kernelParams = p->kernelParams, .extra = p->extra };
	return rt_result((cudaError_t)rt_drv.cuGraphAddKernelNode(out, g, deps, n, &x));
}

static cudaError_t current(CUcontext *c)
{
	cudaError_t e = rt_init();

	return e == cudaSuccess ? (cudaError_t)rt_drv.cuCtxGetCurrent(c) : e;
}

RT_API cudaError_t cudaGraphAddMemcpyNode1D(ADD, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
	CUcontext c;
	cudaError_t e = current(&c);
	CUDA_MEMCPY3D x = { .srcMemoryType = CU_MEMORYTYPE_UNIFIED, .srcDevice = (CUdeviceptr)(size_t)from,
			    .dstMemoryType = CU_MEMORYTYPE_UNIFIED, .dstDevice = (CUdeviceptr)(size_t)to, .WidthInBytes = bytes, .Height = 1, .Depth = 1 };

	(void)kind;
	return rt_result(e == cudaSuccess ? (cudaError_t)rt_drv.cuGraphAddMemcpyNode(out, g, deps, n, &x, c) : e);
}

RT_API cudaError_t cudaGraphAddMemsetNode(ADD, const struct cudaMemsetParams *p)
{
	CUcontext c;
	cudaError_t e = current(&c);
	CUDA_MEMSET_NODE_PARAMS x = { .dst = (CUdeviceptr)(size_t)p->dst, .pitch = p->pitch, .value = p->value, .elementSize = p->elementSize,
				      .width = p->width, .height = p->height };

	return rt_result(e == cudaSuccess ? (cudaError_t)rt_drv.cuGraphAddMemsetNode(out, g, deps, n, &x, c) : e);
}
