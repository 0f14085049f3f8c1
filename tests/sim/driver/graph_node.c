/* SPDX-License-Identifier: Apache-2.0 */
/* Adding nodes to graphs by hand, and reading and changing what they do. */
#include <stdlib.h>
#include <string.h>

#include "driver/sim.h"
#include "image.h"

static struct sim_graph *graph_check(CUgraph h)
{
	struct sim_graph *g = (struct sim_graph *)h;

	return g && g->magic == SIM_GRAPH_MAGIC ? g : NULL;
}

static CUresult add(CUgraphNode *out, CUgraph h, const CUgraphNode *deps, size_t n, struct sim_work *w)
{
	struct sim_graph *g = graph_check(h);
	struct sim_node *node;

	if (!g || !out || (n && !deps)) {
		sim_work_clear(w);
		return CUDA_ERROR_INVALID_VALUE;
	}
	CUresult r = sim_node_new(g, (struct sim_node **)(uintptr_t)deps, (int)n, w, &node);
	if (r == CUDA_SUCCESS)
		*out = (CUgraphNode)node;
	return r;
}

#define ADD_PARAMS CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n

static CUresult kernel_work(struct sim_work *w, const CUDA_KERNEL_NODE_PARAMS_v1 *p, CUkernel kern)
{
	struct sim_kernel *k = sim_kernel_check(p->func ? (const void *)p->func : (const void *)kern);

	if (!k)
		return CUDA_ERROR_INVALID_VALUE;
	*w = (struct sim_work){ .kind = SIM_WORK_KERNEL };
	w->u.launch = (struct sim_launch){ .grid = { p->gridDimX, p->gridDimY, p->gridDimZ },
					   .block = { p->blockDimX, p->blockDimY, p->blockDimZ },
					   .shared = p->sharedMemBytes };
	return sim_launch_pack(&w->u.launch, k, p->kernelParams, p->extra);
}

static CUDA_KERNEL_NODE_PARAMS_v1 first_version(const CUDA_KERNEL_NODE_PARAMS_v2 *p)
{
	return (CUDA_KERNEL_NODE_PARAMS_v1){ p->func, p->gridDimX, p->gridDimY, p->gridDimZ, p->blockDimX, p->blockDimY,
					     p->blockDimZ, p->sharedMemBytes, p->kernelParams, p->extra };
}

SIM_API CUresult cuGraphAddKernelNode(ADD_PARAMS, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	struct sim_work w;

	SIM_ENTER();
	CUresult r = p ? kernel_work(&w, p, NULL) : CUDA_ERROR_INVALID_VALUE;
	return sim_return(r == CUDA_SUCCESS ? add(out, g, deps, n, &w) : r);
}

SIM_API CUresult cuGraphAddKernelNode_v2(ADD_PARAMS, const CUDA_KERNEL_NODE_PARAMS_v2 *p)
{
	struct sim_work w;

	SIM_ENTER();
	if (!p)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	CUDA_KERNEL_NODE_PARAMS_v1 v1 = first_version(p);
	CUresult r = kernel_work(&w, &v1, p->kern);
	return sim_return(r == CUDA_SUCCESS ? add(out, g, deps, n, &w) : r);
}

static CUresult copy_work(struct sim_work *w, const CUDA_MEMCPY3D *c)
{
	if (!c || c->srcMemoryType == CU_MEMORYTYPE_ARRAY || c->dstMemoryType == CU_MEMORYTYPE_ARRAY)
		return CUDA_ERROR_INVALID_VALUE;
	struct sim_rect r = { .dst_pitch = c->dstPitch ? c->dstPitch : c->WidthInBytes,
			     .src_pitch = c->srcPitch ? c->srcPitch : c->WidthInBytes,
			      .width = c->WidthInBytes, .height = c->Height, .depth = c->Depth };
	uint64_t dst = c->dstMemoryType == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)c->dstHost : c->dstDevice;
	uint64_t src = c->srcMemoryType == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)c->srcHost : c->srcDevice;
	r.dst_slice = r.dst_pitch * (c->dstHeight ? c->dstHeight : c->Height);
	r.src_slice = r.src_pitch * (c->srcHeight ? c->srcHeight : c->Height);
	r.dst = dst + c->dstZ * r.dst_slice + c->dstY * r.dst_pitch + c->dstXInBytes;
	r.src = src + c->srcZ * r.src_slice + c->srcY * r.src_pitch + c->srcXInBytes;
	CUresult e = sim_copy_prepare(&r);
	*w = (struct sim_work){ .kind = SIM_WORK_COPY, .u.copy.rect = r };
	return e;
}

SIM_API CUresult cuGraphAddMemcpyNode(ADD_PARAMS, const CUDA_MEMCPY3D *c, CUcontext ctx)
{
	struct sim_work w;

	(void)ctx;
	SIM_ENTER();
	CUresult r = copy_work(&w, c);
	return sim_return(r == CUDA_SUCCESS ? add(out, g, deps, n, &w) : r);
}

static struct sim_work set_work(const CUDA_MEMSET_NODE_PARAMS *p)
{
	return (struct sim_work){ .kind = SIM_WORK_MEMSET,
				  .u.set = { .dst = p->dst, .pitch = p->pitch, .width = p->width, .height = p->height,
					     .value = p->value, .element = p->elementSize } };
}

SIM_API CUresult cuGraphAddMemsetNode(ADD_PARAMS, const CUDA_MEMSET_NODE_PARAMS *p, CUcontext ctx)
{
	(void)ctx;
	SIM_ENTER();
	if (!p || (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4))
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	struct sim_work w = set_work(p);
	return sim_return(add(out, g, deps, n, &w));
}

SIM_API CUresult cuGraphAddHostNode(ADD_PARAMS, const CUDA_HOST_NODE_PARAMS *p)
{
	SIM_ENTER();
	if (!p || !p->fn)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	struct sim_work w = { .kind = SIM_WORK_HOST, .u.host = { p->fn, p->userData } };
	return sim_return(add(out, g, deps, n, &w));
}

SIM_API CUresult cuGraphAddEmptyNode(ADD_PARAMS)
{
	struct sim_work w = { .kind = SIM_WORK_EMPTY };

	SIM_ENTER();
	return sim_return(add(out, g, deps, n, &w));
}

SIM_API CUresult cuGraphAddChildGraphNode(ADD_PARAMS, CUgraph child)
{
	SIM_ENTER();
	if (!graph_check(child))
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	struct sim_work w = { .kind = SIM_WORK_CHILD, .u.child = sim_graph_clone(graph_check(child)) };
	return sim_return(add(out, g, deps, n, &w));
}

static CUresult add_event(ADD_PARAMS, CUevent e, enum sim_work_kind kind)
{
	SIM_ENTER();
	struct sim_work w = { .kind = kind, .u.event = sim_event_check(e) };
	if (w.u.event && w.u.event->shared)
		return sim_return(CUDA_ERROR_NOT_SUPPORTED);
	return sim_return(w.u.event ? add(out, g, deps, n, &w) : CUDA_ERROR_INVALID_HANDLE);
}

SIM_API CUresult cuGraphAddEventRecordNode(ADD_PARAMS, CUevent e) { return add_event(out, g, deps, n, e, SIM_WORK_EVENT_RECORD); }
SIM_API CUresult cuGraphAddEventWaitNode(ADD_PARAMS, CUevent e) { return add_event(out, g, deps, n, e, SIM_WORK_EVENT_WAIT); }

SIM_API CUresult cuGraphAddMemAllocNode(ADD_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	struct sim_work w;

	SIM_ENTER();
	CUresult r = p && p->bytesize ? sim_graph_memory_new(p->bytesize, &w) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS) {
		p->dptr = w.u.memory.va;
		r = add(out, g, deps, n, &w);
	}
	return sim_return(r);
}

SIM_API CUresult cuGraphAddMemFreeNode(ADD_PARAMS, CUdeviceptr va)
{
	struct sim_work w = { .kind = SIM_WORK_FREE, .u.memory.va = va };

	SIM_ENTER();
	struct sim_alloc *a = sim_alloc_find(va);
	return sim_return(a && a->va == va && a->kind == SIM_ALLOC_GRAPH ? add(out, g, deps, n, &w) : CUDA_ERROR_INVALID_VALUE);
}

/* A batch of several is a chain, of which the program gets the last: the driver has one node of it. */
SIM_API CUresult cuGraphAddBatchMemOpNode(ADD_PARAMS, const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	CUresult r = p && p->count && p->paramArray && !p->flags && out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	CUgraphNode last = NULL;
	struct sim_work w;

	SIM_ENTER();
	for (unsigned i = 0; r == CUDA_SUCCESS && i < p->count; i++) {
		CUgraphNode before = last;

		r = sim_memop_work(&p->paramArray[i], &w);
		if (r == CUDA_SUCCESS)
			r = add(&last, g, before ? &before : deps, before ? 1 : n, &w);
	}
	if (r == CUDA_SUCCESS)
		*out = last;
	return sim_return(r);
}

/* ---- reading ---- */
static struct sim_node *of_kind(CUgraphNode h, enum sim_work_kind kind)
{
	struct sim_node *n = (struct sim_node *)h;

	return n && n->graph && n->work.kind == kind ? n : NULL;
}

SIM_API CUresult cuGraphNodeGetType(CUgraphNode h, CUgraphNodeType *out)
{
	static const CUgraphNodeType types[] = {
		[SIM_WORK_EMPTY] = CU_GRAPH_NODE_TYPE_EMPTY,
		[SIM_WORK_KERNEL] = CU_GRAPH_NODE_TYPE_KERNEL,
		[SIM_WORK_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,
		[SIM_WORK_MEMSET] = CU_GRAPH_NODE_TYPE_MEMSET,
		[SIM_WORK_HOST] = CU_GRAPH_NODE_TYPE_HOST,
		[SIM_WORK_CALLBACK] = CU_GRAPH_NODE_TYPE_HOST,
		[SIM_WORK_WAIT_VALUE] = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
		[SIM_WORK_WRITE_VALUE] = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
		[SIM_WORK_EVENT_RECORD] = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
		[SIM_WORK_EVENT_WAIT] = CU_GRAPH_NODE_TYPE_WAIT_EVENT,
		[SIM_WORK_ALLOC] = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
		[SIM_WORK_FREE] = CU_GRAPH_NODE_TYPE_MEM_FREE,
		[SIM_WORK_CHILD] = CU_GRAPH_NODE_TYPE_GRAPH,
	};

	SIM_ENTER();
	struct sim_node *n = (struct sim_node *)h;
	if (!n || !out)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	*out = types[n->work.kind];
	return sim_return(CUDA_SUCCESS);
}

static CUresult kernel_params(CUgraphNode h, CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	struct sim_node *n = of_kind(h, SIM_WORK_KERNEL);

	if (!n || !p)
		return CUDA_ERROR_INVALID_VALUE;
	const struct sim_launch *l = &n->work.u.launch;
	free(n->param_list);
	n->param_list = calloc(l->kernel->n_params + 1, sizeof *n->param_list);
	if (!n->param_list)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t i = 0; i < l->kernel->n_params; i++)
		n->param_list[i] = l->params + l->kernel->params[i].offset;
	*p = (CUDA_KERNEL_NODE_PARAMS_v1){ (CUfunction)l->kernel, l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1],
					   l->block[2], l->shared, n->param_list, NULL };
	return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphKernelNodeGetParams(CUgraphNode h, CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	SIM_ENTER();
	return sim_return(kernel_params(h, p));
}

SIM_API CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode h, CUDA_KERNEL_NODE_PARAMS_v2 *p)
{
	CUDA_KERNEL_NODE_PARAMS_v1 v1;

	SIM_ENTER();
	CUresult r = kernel_params(h, &v1);
	if (r == CUDA_SUCCESS)
		*p = (CUDA_KERNEL_NODE_PARAMS_v2){ .func = v1.func, .gridDimX = v1.gridDimX, .gridDimY = v1.gridDimY, .gridDimZ = v1.gridDimZ,
						   .blockDimX = v1.blockDimX, .blockDimY = v1.blockDimY, .blockDimZ = v1.blockDimZ,
						   .sharedMemBytes = v1.sharedMemBytes, .kernelParams = v1.kernelParams };
	return sim_return(r);
}

SIM_API CUresult cuGraphMemcpyNodeGetParams(CUgraphNode h, CUDA_MEMCPY3D *c)
{
	SIM_ENTER();
	struct sim_node *n = of_kind(h, SIM_WORK_COPY);
	if (!n || !c)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	const struct sim_rect *r = &n->work.u.copy.rect;
	*c = (CUDA_MEMCPY3D){ .srcMemoryType = r->src_kind == SIM_DEVICE ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
			      .srcHost = (const void *)(uintptr_t)r->src, .srcDevice = r->src, .srcPitch = r->src_pitch, .srcHeight = r->height,
			     .dstMemoryType = r->dst_kind == SIM_DEVICE ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
			      .dstHost = (void *)(uintptr_t)r->dst, .dstDevice = r->dst, .dstPitch = r->dst_pitch, .dstHeight = r->height,
			      .WidthInBytes = r->width, .Height = r->height, .Depth = r->depth };
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuGraphMemsetNodeGetParams(CUgraphNode h, CUDA_MEMSET_NODE_PARAMS *p)
{
	SIM_ENTER();
	struct sim_node *n = of_kind(h, SIM_WORK_MEMSET);
	if (!n || !p)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	*p = (CUDA_MEMSET_NODE_PARAMS){ .dst = n->work.u.set.dst, .pitch = n->work.u.set.pitch, .value = n->work.u.set.value,
					.elementSize = n->work.u.set.element, .width = n->work.u.set.width, .height = n->work.u.set.height };
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuGraphHostNodeGetParams(CUgraphNode h, CUDA_HOST_NODE_PARAMS *p)
{
	SIM_ENTER();
	struct sim_node *n = of_kind(h, SIM_WORK_HOST);
	if (!n || !p)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	*p = (CUDA_HOST_NODE_PARAMS){ n->work.u.host.fn, n->work.u.host.data };
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode h, CUgraph *out)
{
	SIM_ENTER();
	struct sim_node *n = of_kind(h, SIM_WORK_CHILD);
	if (!n || !out)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	*out = (CUgraph)n->work.u.child;
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode h, CUevent *out)
{
	SIM_ENTER();
	struct sim_node *n = of_kind(h, SIM_WORK_EVENT_RECORD);
	if (!n || !out)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	*out = (CUevent)n->work.u.event;
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode h, CUevent *out)
{
	SIM_ENTER();
	struct sim_node *n = of_kind(h, SIM_WORK_EVENT_WAIT);
	if (!n || !out)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	*out = (CUevent)n->work.u.event;
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuGraphMemAllocNodeGetParams(CUgraphNode h, CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	SIM_ENTER();
	struct sim_node *n = of_kind(h, SIM_WORK_ALLOC);
	if (!n || !p)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	*p = (CUDA_MEM_ALLOC_NODE_PARAMS){ .poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
							  .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } },
					   .bytesize = n->work.u.memory.bytes, .dptr = n->work.u.memory.va };
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuGraphMemFreeNodeGetParams(CUgraphNode h, CUdeviceptr *out)
{
	SIM_ENTER();
	struct sim_node *n = of_kind(h, SIM_WORK_FREE);
	if (!n || !out)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	*out = n->work.u.memory.va;
	return sim_return(CUDA_SUCCESS);
}

/* ---- changing ---- */
static CUresult replace(struct sim_node *n, CUresult r, struct sim_work *w)
{
	if (r == CUDA_SUCCESS && (!n || n->work.kind != w->kind)) {
		sim_work_clear(w);
		r = CUDA_ERROR_INVALID_VALUE;
	}
	if (r == CUDA_SUCCESS) {
		sim_work_clear(&n->work);
		n->work = *w;
	}
	return r;
}

static struct sim_node *in_exec(CUgraphExec h, CUgraphNode node)
{
	struct sim_exec *e = (struct sim_exec *)h;

	for (int i = 0; e && e->graph && i < e->graph->n_node; i++)
		if (e->graph->node[i]->origin == (struct sim_node *)node)
			return e->graph->node[i];
	return NULL;
}

static CUresult set_kernel(struct sim_node *n, const CUDA_KERNEL_NODE_PARAMS_v2 *p)
{
	struct sim_work w;

	if (!p || !n)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_KERNEL_NODE_PARAMS_v1 v1 = first_version(p);
	CUresult r = kernel_work(&w, &v1, p->kern);
	return replace(n, r, &w);
}

SIM_API CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode h, const CUDA_KERNEL_NODE_PARAMS_v2 *p)
{
	SIM_ENTER();
	return sim_return(set_kernel((struct sim_node *)h, p));
}

SIM_API CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec e, CUgraphNode h, const CUDA_KERNEL_NODE_PARAMS_v2 *p)
{
	SIM_ENTER();
	return sim_return(set_kernel(in_exec(e, h), p));
}

static CUresult set_copy(struct sim_node *n, const CUDA_MEMCPY3D *c)
{
	struct sim_work w;
	CUresult r = copy_work(&w, c);

	return replace(n, r, &w);
}

SIM_API CUresult cuGraphMemcpyNodeSetParams(CUgraphNode h, const CUDA_MEMCPY3D *c)
{
	SIM_ENTER();
	return sim_return(set_copy((struct sim_node *)h, c));
}

SIM_API CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec e, CUgraphNode h, const CUDA_MEMCPY3D *c, CUcontext ctx)
{
	(void)ctx;
	SIM_ENTER();
	return sim_return(set_copy(in_exec(e, h), c));
}

SIM_API CUresult cuGraphMemsetNodeSetParams(CUgraphNode h, const CUDA_MEMSET_NODE_PARAMS *p)
{
	SIM_ENTER();
	struct sim_work w = set_work(p);
	return sim_return(replace((struct sim_node *)h, CUDA_SUCCESS, &w));
}

SIM_API CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec e, CUgraphNode h, const CUDA_MEMSET_NODE_PARAMS *p, CUcontext ctx)
{
	(void)ctx;
	SIM_ENTER();
	struct sim_work w = set_work(p);
	return sim_return(replace(in_exec(e, h), CUDA_SUCCESS, &w));
}

SIM_API CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec e, CUgraphNode h, const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	struct sim_work w;

	SIM_ENTER();
	CUresult r = !p || !p->count || !p->paramArray || p->flags ? CUDA_ERROR_INVALID_VALUE : p->count > 1 ? CUDA_ERROR_NOT_SUPPORTED : sim_memop_work(p->paramArray, &w);
	return sim_return(r == CUDA_SUCCESS ? replace(in_exec(e, h), CUDA_SUCCESS, &w) : r);
}

SIM_API CUresult cuGraphExecHostNodeSetParams(CUgraphExec e, CUgraphNode h, const CUDA_HOST_NODE_PARAMS *p)
{
	SIM_ENTER();
	struct sim_work w = { .kind = SIM_WORK_HOST, .u.host = { p->fn, p->userData } };
	return sim_return(replace(in_exec(e, h), CUDA_SUCCESS, &w));
}
