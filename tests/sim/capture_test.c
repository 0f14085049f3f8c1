/* SPDX-License-Identifier: Apache-2.0 */
/* Stream capture: spreading and joining, what it forbids to whom, and the graphs that come out. */
#include <pthread.h>

#include "check.h"

static CUfunction add;
static CUdeviceptr x;
static CUcontext ctx;

static int value(void)
{
	int v;

	OK(cuMemcpyDtoH(&v, x, 4));
	return v;
}

static void end_invalid(CUstream s)
{
	CUgraph g;

	EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, launch_add(add, s, x, 1, 1));
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &g));
	CHECK(!g);
	/* The stream itself is as good as before. */
	OK(launch_add(add, s, x, 1, 0));
	OK(cuStreamSynchronize(s));
}

static void replay(CUstream a, CUstream b)
{
	CUstreamCaptureStatus st;
	CUgraphNodeType type;
	CUgraphNode nodes[8];
	CUgraphExec exec;
	CUevent e, f;
	CUgraph g;
	size_t n = 8;

	OK(cuMemsetD32(x, 0, 16));
	OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	OK(cuEventCreate(&f, CU_EVENT_DISABLE_TIMING));
	OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	OK(cuStreamIsCapturing(b, &st));
	CHECK(st == CU_STREAM_CAPTURE_STATUS_NONE);
	OK(launch_add(add, a, x, 1, 1));
	OK(cuEventRecord(e, a));
	EXPECT(CUDA_SUCCESS, cuStreamWaitEvent(b, e, 0));
	OK(cuStreamIsCapturing(b, &st));
	CHECK(st == CU_STREAM_CAPTURE_STATUS_ACTIVE);
	OK(launch_add(add, b, x + 4, 1, 5));
	OK(cuMemsetD32Async(x + 8, 7, 1, b));
	OK(cuEventRecord(f, b));
	OK(launch_add(add, a, x, 1, 10));
	OK(cuStreamWaitEvent(a, f, 0));
	OK(launch_add(add, a, x + 8, 1, 1));
	OK(cuStreamEndCapture(a, &g));
	OK(cuStreamIsCapturing(b, &st));
	CHECK(st == CU_STREAM_CAPTURE_STATUS_NONE);
	CHECK(value() == 0); /* nothing has run */
	OK(cuGraphGetNodes(g, nodes, &n));
	CHECK(n == 5);
	OK(cuGraphNodeGetType(nodes[2], &type));
	CHECK(type == CU_GRAPH_NODE_TYPE_MEMSET);
	CUDA_KERNEL_NODE_PARAMS p;
	OK(cuGraphKernelNodeGetParams(nodes[0], &p));
	CHECK(p.func == add && p.blockDimX == 256 && *(int *)p.kernelParams[2] == 1);
	n = 8;
	OK(cuGraphNodeGetDependencies(nodes[4], NULL, NULL, &n));
	CHECK(n == 2);
	OK(cuGraphInstantiate(&exec, g, 0));
	for (int i = 0; i < 3; i++)
		OK(cuGraphLaunch(exec, a));
	OK(cuStreamSynchronize(a));
	int v[3];
	OK(cuMemcpyDtoH(v, x, 12));
	CHECK(v[0] == 33 && v[1] == 15 && v[2] == 8);
	/* New parameters for the same shape. */
	int by = 100;
	p.kernelParams[2] = &by;
	OK(cuGraphExecKernelNodeSetParams(exec, nodes[0], &p));
	OK(cuGraphLaunch(exec, a));
	OK(cuStreamSynchronize(a));
	CHECK(value() == 33 + 110);
	/* The events of a capture cannot be asked. */
	EXPECT(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(f));
	OK(cuGraphExecDestroy(exec));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, a));
	OK(cuGraphDestroy(g));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(g));
}

static void update(CUstream s)
{
	CUgraphExecUpdateResultInfo info;
	CUgraph g, h;
	CUgraphExec exec;

	OK(cuMemsetD32(x, 0, 16));
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(launch_add(add, s, x, 1, 1));
	OK(cuStreamEndCapture(s, &g));
	OK(cuGraphInstantiate(&exec, g, 0));
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(launch_add(add, s, x, 1, 20));
	OK(cuStreamEndCapture(s, &h));
	OK(cuGraphExecUpdate(exec, h, &info));
	CHECK(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
	OK(cuGraphLaunch(exec, s));
	OK(cuStreamSynchronize(s));
	CHECK(value() == 20);
	OK(cuGraphDestroy(h));
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(launch_add(add, s, x, 1, 20));
	OK(launch_add(add, s, x, 1, 20));
	OK(cuStreamEndCapture(s, &h));
	EXPECT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, h, &info));
	CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
	OK(cuGraphDestroy(h));
	OK(cuGraphDestroy(g));
	OK(cuGraphExecDestroy(exec));
}

static void by_hand(CUstream s)
{
	CUgraph g, child;
	CUgraphExec exec;
	CUgraphNode a, b, c, d, f;
	int n = 1, v = 3;
	void *args[] = { &x, &n, &v };
	CUDA_KERNEL_NODE_PARAMS k = { .func = add, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32, .blockDimY = 1,
				      .blockDimZ = 1, .kernelParams = args };
	CUDA_MEMSET_NODE_PARAMS m = { .dst = x, .elementSize = 4, .value = 4, .width = 4, .height = 1 };
	CUDA_MEM_ALLOC_NODE_PARAMS mem = { .poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
							  .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } }, .bytesize = 4096 };

	OK(cuGraphCreate(&child, 0));
	OK(cuGraphAddKernelNode(&a, child, NULL, 0, &k));
	OK(cuGraphAddKernelNode(&b, child, &a, 1, &k));
	OK(cuGraphCreate(&g, 0));
	OK(cuGraphAddMemsetNode(&c, g, NULL, 0, &m, ctx));
	OK(cuGraphAddChildGraphNode(&d, g, &c, 1, child));
	v = 100;
	OK(cuGraphAddKernelNode(&f, g, &d, 1, &k));
	OK(cuGraphAddMemAllocNode(&a, g, &f, 1, &mem));
	CHECK(mem.dptr);
	OK(cuGraphAddMemFreeNode(&b, g, &a, 1, mem.dptr));
	OK(cuGraphDestroy(child));
	OK(cuGraphInstantiate(&exec, g, 0));
	OK(cuGraphLaunch(exec, s));
	OK(cuGraphLaunch(exec, s));
	OK(cuStreamSynchronize(s));
	CHECK(value() == 4 + 3 + 3 + 100);
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(g));
}

static void forbidden(CUstream a, CUstream b)
{
	CUdeviceptr p;
	CUevent e, other;
	CUgraph g;

	OK(cuEventCreate(&e, 0));
	OK(cuEventCreate(&other, 0));
	OK(cuEventRecord(other, b));
	EXPECT(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(a, &g));
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_GLOBAL));

	OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	EXPECT(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc(&p, 16));
	end_invalid(a);

	/* The same call is allowed to a thread that says it knows. */
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	CHECK(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
	OK(cuMemAlloc(&p, 16));
	OK(cuEventQuery(other));
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	OK(cuStreamEndCapture(a, &g));
	OK(cuGraphDestroy(g));
	OK(cuMemFree(p));

	OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuEventQuery(other));
	end_invalid(a);
	OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(a));
	end_invalid(a);
	OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(a, other, 0));
	end_invalid(a);
	OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, launch_add(add, CU_STREAM_LEGACY, x, 1, 1));
	end_invalid(a);

	/* Forked and not joined. */
	OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(launch_add(add, a, x, 1, 1));
	OK(cuEventRecord(e, a));
	OK(cuStreamWaitEvent(b, e, 0));
	OK(launch_add(add, b, x, 1, 1));
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(a, &g));

	/* Two captures do not mix, and a capture ends where it began. */
	OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuStreamBeginCapture(b, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuEventRecord(e, a));
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(b, e, 0));
	end_invalid(a);
	end_invalid(b);
	OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuEventRecord(e, a));
	OK(cuStreamWaitEvent(b, e, 0));
	EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(b, &g));
	end_invalid(a);
}

struct other {
	CUresult alloc, end;
	CUstream stream;
};

static void *other_thread(void *arg)
{
	struct other *o = arg;
	CUdeviceptr p;
	CUgraph g;

	OK(cuCtxSetCurrent(ctx));
	o->end = cuStreamEndCapture(o->stream, &g);
	o->alloc = cuMemAlloc(&p, 16);
	return NULL;
}

static void threads(CUstream s)
{
	struct other o = { .stream = s };
	pthread_t t;
	CUgraph g;

	/* A global capture is broken by another thread's allocation. */
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	pthread_create(&t, NULL, other_thread, &o);
	pthread_join(t, NULL);
	CHECK(o.end == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
	CHECK(o.alloc == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	end_invalid(s);
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	pthread_create(&t, NULL, other_thread, &o);
	pthread_join(t, NULL);
	CHECK(o.alloc == CUDA_SUCCESS);
	OK(cuStreamEndCapture(s, &g));
	OK(cuGraphDestroy(g));
}

static void memory(CUstream s)
{
	CUdeviceptr p, q;
	CUgraph g;
	CUgraphExec exec;
	int v;

	/* Memory allocated in a capture belongs to the graph and keeps its address. */
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuMemAllocAsync(&p, 4096, s));
	OK(cuMemsetD32Async(p, 9, 1, s));
	OK(cuMemcpyDtoDAsync(x, p, 4, s));
	OK(cuMemFreeAsync(p, s));
	OK(cuStreamEndCapture(s, &g));
	OK(cuGraphInstantiate(&exec, g, 0));
	OK(cuMemAllocAsync(&q, 4096, s));
	CHECK(q != p);
	for (int i = 0; i < 2; i++) {
		OK(cuMemsetD32(x, 0, 1));
		/* The set is asynchronous, and s does not wait for the default stream. */
		OK(cuCtxSynchronize());
		OK(cuGraphLaunch(exec, s));
		OK(cuStreamSynchronize(s));
		v = value();
		CHECK(v == 9);
	}
	OK(cuMemFreeAsync(q, s));
	OK(cuGraphDestroy(g));
	OK(cuGraphExecDestroy(exec));
}

int main(void)
{
	CUstream a, b, n;

	ctx = device_start();
	add = kernel(kernels_load(), "add");
	OK(cuMemAlloc(&x, 4096));
	OK(cuStreamCreate(&a, 0));
	OK(cuStreamCreate(&b, 0));
	OK(cuStreamCreate(&n, CU_STREAM_NON_BLOCKING));
	replay(a, b);
	update(a);
	by_hand(a);
	forbidden(a, b);
	threads(a);
	memory(n);
	return 0;
}
