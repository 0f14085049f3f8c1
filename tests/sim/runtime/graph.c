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

/* Kernels and graphs; of the others nobody has asked for one yet. */
RT_API cudaError_t cudaGraphAddNode(cudaGraphNode_t *out, cudaGraph_t g, const cudaGraphNode_t *deps, const cudaGraphEdgeData *d, size_t n,
				    struct cudaGraphNodeParams *p)
{
	CUgraphNodeParams x = { .type = (CUgraphNodeType)p->type };
	cudaError_t e = rt_init();

	if (e == cudaSuccess && p->type == cudaGraphNodeTypeKernel) {
		e = rt_function_of(p->kernel.func, &x.kernel.func);
		x.kernel.gridDimX = p->kernel.gridDim.x, x.kernel.gridDimY = p->kernel.gridDim.y, x.kernel.gridDimZ = p->kernel.gridDim.z;
		x.kernel.blockDimX = p->kernel.blockDim.x, x.kernel.blockDimY = p->kernel.blockDim.y, x.kernel.blockDimZ = p->kernel.blockDim.z;
		x.kernel.sharedMemBytes = p->kernel.sharedMemBytes;
		x.kernel.kernelParams = p->kernel.kernelParams;
		x.kernel.extra = p->kernel.extra;
	} else if (e == cudaSuccess && p->type == cudaGraphNodeTypeGraph) {
		x.graph.graph = p->graph.graph;
	} else if (e == cudaSuccess) {
		e = cudaErrorNotSupported;
	}
	return rt_result(e == cudaSuccess ? (cudaError_t)rt_drv.cuGraphAddNode(out, g, deps, (const CUgraphEdgeData *)d, n, &x) : e);
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

RT_API cudaError_t cudaGraphAddMemFreeNode(ADD, void *p) { RT(rt_drv.cuGraphAddMemFreeNode(out, g, deps, n, (CUdeviceptr)(size_t)p)); }
RT_API cudaError_t cudaGraphGetRootNodes(cudaGraph_t g, cudaGraphNode_t *nodes, size_t *n) { RT(rt_drv.cuGraphGetRootNodes(g, nodes, n)); }
RT_API cudaError_t cudaGraphDestroyNode(cudaGraphNode_t n) { RT(rt_drv.cuGraphDestroyNode(n)); }
RT_API cudaError_t cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t n, cudaGraph_t *g) { RT(rt_drv.cuGraphChildGraphNodeGetGraph(n, g)); }
RT_API cudaError_t cudaGraphNodeFindInClone(cudaGraphNode_t *out, cudaGraphNode_t n, cudaGraph_t g) { RT(rt_drv.cuGraphNodeFindInClone(out, n, g)); }
RT_API cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t e, cudaGraphNode_t n, unsigned on) { RT(rt_drv.cuGraphNodeSetEnabled(e, n, on)); }

RT_API cudaError_t cudaGraphGetEdges(cudaGraph_t g, cudaGraphNode_t *from, cudaGraphNode_t *to, cudaGraphEdgeData *d, size_t *n)
{
	RT(rt_drv.cuGraphGetEdges(g, from, to, (CUgraphEdgeData *)d, n));
}

RT_API cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *deps, cudaGraphEdgeData *d, size_t *n)
{
	RT(rt_drv.cuGraphNodeGetDependencies(node, deps, (CUgraphEdgeData *)d, n));
}

RT_API cudaError_t cudaGraphAddDependencies(cudaGraph_t g, const cudaGraphNode_t *from, const cudaGraphNode_t *to, const cudaGraphEdgeData *d, size_t n)
{
	RT(rt_drv.cuGraphAddDependencies(g, from, to, (const CUgraphEdgeData *)d, n));
}

RT_API cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t *e, cudaGraph_t g, cudaGraphInstantiateParams *p)
{
	RT(rt_drv.cuGraphInstantiateWithParams(e, g, (CUDA_GRAPH_INSTANTIATE_PARAMS *)p));
}

RT_API cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t s, cudaGraph_t g, const cudaGraphNode_t *deps, const cudaGraphEdgeData *d, size_t n,
						 enum cudaStreamCaptureMode m)
{
	RT(rt_drv.cuStreamBeginCaptureToGraph(s, g, deps, (const CUgraphEdgeData *)d, n, (CUstreamCaptureMode)m));
}

/* The function comes back as the driver knows it, which every call here takes as well. */
RT_API cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, struct cudaKernelNodeParams *p)
{
	CUDA_KERNEL_NODE_PARAMS x;
	cudaError_t e = rt_init();

	if (e == cudaSuccess)
		e = (cudaError_t)rt_drv.cuGraphKernelNodeGetParams(node, &x);
	if (e == cudaSuccess)
		*p = (struct cudaKernelNodeParams){ .func = x.func, .gridDim = { x.gridDimX, x.gridDimY, x.gridDimZ },
						    .blockDim = { x.blockDimX, x.blockDimY, x.blockDimZ }, .sharedMemBytes = x.sharedMemBytes,
						    .kernelParams = x.kernelParams };
	return rt_result(e);
}

static cudaError_t kernel_params(const struct cudaKernelNodeParams *p, CUDA_KERNEL_NODE_PARAMS *x)
{
	CUfunction f;
	cudaError_t e = rt_init();

	if (e == cudaSuccess)
		e = rt_function_of(p->func, &f);
	if (e == cudaSuccess)
		*x = (CUDA_KERNEL_NODE_PARAMS){ .func = f, .gridDimX = p->gridDim.x, .gridDimY = p->gridDim.y, .gridDimZ = p->gridDim.z,
						.blockDimX = p->blockDim.x, .blockDimY = p->blockDim.y, .blockDimZ = p->blockDim.z,
						.sharedMemBytes = p->sharedMemBytes, .kernelParams = p->kernelParams, .extra = p->extra };
	return e;
}

RT_API cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node, const struct cudaKernelNodeParams *p)
{
	CUDA_KERNEL_NODE_PARAMS x;
	cudaError_t e = kernel_params(p, &x);

	return rt_result(e == cudaSuccess ? (cudaError_t)rt_drv.cuGraphKernelNodeSetParams(node, &x) : e);
}

RT_API cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node, const struct cudaKernelNodeParams *p)
{
	CUDA_KERNEL_NODE_PARAMS x;
	cudaError_t e = kernel_params(p, &x);

	return rt_result(e == cudaSuccess ? (cudaError_t)rt_drv.cuGraphExecKernelNodeSetParams(exec, node, &x) : e);
}
