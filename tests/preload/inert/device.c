/* SPDX-License-Identifier: Apache-2.0 */
/* A program that uses the driver well and badly, and prints every result: the codes and their order are to be
 * the same with and without a preloaded library.
 *   device KERNELS errors | capture | loop | fork | full | memory | contexts | release | peers | pools | heap | mapped | waits
 * With CLOSE_FROM=N in its environment it closes all descriptors from N on every ten iterations. */
#define _GNU_SOURCE
#include <cuda.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *kernels;
static CUmodule module;
static CUfunction add;
static CUstream stream;

#define TRY(call)                                                     \
	do {                                                          \
		CUresult got_ = (call);                               \
		const char *name_ = "?";                              \
		cuGetErrorName(got_, &name_);                         \
		printf("%s: %s\n", #call, name_ ? name_ : "no name"); \
	} while (0)

static CUresult launch(CUdeviceptr p, int n)
{
	int v = 1;
	void *arguments[] = {&p, &n, &v};

	return cuLaunchKernel(add, (unsigned)(n + 255) / 256, 1, 1, 256, 1, 1, 0, stream, arguments, NULL);
}

static void begin(void)
{
	CUcontext context;

	TRY(cuInit(0));
	TRY(cuDevicePrimaryCtxRetain(&context, 0));
	TRY(cuCtxSetCurrent(context));
	TRY(cuModuleLoad(&module, kernels));
	TRY(cuModuleGetFunction(&add, module, "add"));
	TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static void before_anything(void)
{
	CUdeviceptr p = 0;
	CUcontext context = NULL;
	int n = -1;

	TRY(cuMemAlloc(&p, 100));
	TRY(cuDeviceGetCount(&n));
	TRY(cuInit(7));
	TRY(cuInit(0));
	TRY(cuMemAlloc(&p, 100));
	TRY(cuMemAllocAsync(&p, 100, NULL));
	TRY(cuMemFree(0));
	TRY(cuCtxGetCurrent(&context));
	TRY(cuCtxSynchronize());
	TRY(cuMemGetInfo(NULL, NULL));
	TRY(cuDevicePrimaryCtxRetain(&context, 99));
	TRY(cuDevicePrimaryCtxRetain(NULL, 0));
}

static void bad_memory(void)
{
	CUdeviceptr p = 0, q = 0, range = 0;
	size_t bytes = 0, available, total, pitch;
	char host[64] = "";
	void *data = NULL;

	TRY(cuMemAlloc(NULL, 100));
	TRY(cuMemAlloc(&p, 0));
	TRY(cuMemAlloc(&p, SIZE_MAX));
	TRY(cuMemAlloc(&p, 1ull << 50));
	TRY(cuMemAlloc(&p, 5ull << 30));
	printf("untouched: %d\n", p == 0);
	TRY(cuMemAllocPitch(&p, &pitch, 100, 10, 3));
	TRY(cuMemAllocPitch(&p, &pitch, 0, 10, 4));
	TRY(cuMemAllocPitch(&p, NULL, 100, 10, 4));
	TRY(cuMemAllocPitch(&p, &pitch, 100, 10, 16));
	printf("pitch %zu\n", pitch);
	TRY(cuMemFree(p));
	TRY(cuMemAlloc(&p, 4096));
	printf("aligned: %d\n", p % 256 == 0);
	TRY(cuMemFree(p + 256));
	TRY(cuMemFree(12345));
	TRY(cuMemFree((CUdeviceptr)(uintptr_t)host));
	TRY(cuMemFree(0));
	TRY(cuMemGetAddressRange(&range, &bytes, p + 100));
	printf("range: %d %zu\n", range == p, bytes);
	TRY(cuMemGetAddressRange(&range, &bytes, 12345));
	TRY(cuMemGetAddressRange(NULL, NULL, p));
	TRY(cuPointerGetAttribute(&data, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
	printf("type %d\n", *(int *)&data);
	TRY(cuPointerGetAttribute(&data, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 12345));
	TRY(cuPointerGetAttribute(&data, CU_POINTER_ATTRIBUTE_CONTEXT, p));
	TRY(cuPointerGetAttribute(&data, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p + 8));
	printf("pointer %d\n", data == (void *)(uintptr_t)(p + 8));
	TRY(cuPointerGetAttribute(&data, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p + 8));
	printf("size %zu\n", (size_t)data);
	data = NULL;
	TRY(cuPointerGetAttribute(&data, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, p));
	printf("for a network's adapter: %d\n", *(int *)&data);
	TRY(cuPointerGetAttribute(&data, (CUpointer_attribute)999, p));
	TRY(cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
	TRY(cuMemcpyHtoD(p, host, 64));
	TRY(cuMemcpyHtoD(12345, host, 64));
	TRY(cuMemcpyHtoD(p, NULL, 64));
	TRY(cuMemcpyHtoD(p, host, 0));
	TRY(cuMemcpyDtoH(host, p, 64));
	TRY(cuMemcpyDtoH(NULL, p, 64));
	TRY(cuMemcpyDtoH(host, 12345, 64));
	TRY(cuMemcpyDtoHAsync(host, 12345, 64, stream));
	TRY(cuMemcpyDtoD(p, 12345, 64));
	TRY(cuMemcpyDtoDAsync(12345, p, 64, stream));
	TRY(cuMemcpyAsync(p, p + 128, 64, stream));
	TRY(cuMemsetD8(12345, 1, 10));
	TRY(cuMemsetD32(p + 1, 1, 10));
	TRY(cuMemsetD32Async(p, 1, 10, stream));
	TRY(cuMemsetD8(p, 1, 0));
	TRY(cuMemGetInfo(&available, &total));
	printf("of all: %d\n", available < total);
	TRY(cuMemAllocAsync(NULL, 100, stream));
	TRY(cuMemAllocAsync(&q, 0, stream));
	TRY(cuMemAllocAsync(&q, 1 << 20, stream));
	TRY(cuMemFreeAsync(q + 512, stream));
	TRY(cuMemFreeAsync(12345, stream));
	TRY(cuMemFreeAsync(q, stream));
	TRY(cuMemAllocAsync(&q, 1 << 20, stream));
	TRY(cuMemFree(q));
	TRY(cuStreamSynchronize(stream));
	TRY(cuMemHostRegister(NULL, 4096, 0));
	TRY(cuMemHostUnregister(host));
	TRY(cuMemFreeHost(host));
	TRY(cuMemAllocHost(NULL, 100));
	TRY(cuMemFree(p));
	TRY(cuMemFree(p));
}

static void bad_launches(void)
{
	CUfunction none;
	CUdeviceptr p, global;
	CUevent event = NULL;
	CUmodule missing;
	size_t bytes;
	float ms;

	TRY(cuMemAlloc(&p, 4096));
	TRY(cuModuleGetFunction(&none, module, "nothing"));
	TRY(cuModuleGetGlobal(&global, &bytes, module, "nothing"));
	TRY(cuModuleLoad(&missing, "/nonexistent"));
	TRY(cuModuleLoadData(&missing, "rubbish, and long enough to be looked at as an image of some kind"));
	TRY(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
	TRY(cuLaunchKernel(add, 0, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
	TRY(cuLaunchKernel(add, 1, 1, 1, 4096, 1, 1, 0, stream, NULL, NULL));
	TRY(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 1 << 30, stream, NULL, NULL));
	TRY(launch(p, 100));
	TRY(cuStreamSynchronize(stream));
	TRY(cuEventCreate(NULL, 0));
	TRY(cuEventCreate(&event, 0xffff));
	TRY(cuEventCreate(&event, 0));
	TRY(cuEventRecord(NULL, stream));
	TRY(cuEventQuery(NULL));
	TRY(cuEventElapsedTime(&ms, event, event));
	TRY(cuEventRecord(event, stream));
	TRY(cuEventSynchronize(event));
	TRY(cuEventElapsedTime(&ms, event, event));
	TRY(cuEventElapsedTime(NULL, event, event));
	TRY(cuStreamWaitEvent(stream, NULL, 0));
	TRY(cuStreamWaitEvent(stream, event, 0));
	TRY(cuEventDestroy(event));
	TRY(cuEventDestroy(NULL));
	TRY(cuStreamCreate(NULL, 0));
	TRY(cuStreamCreate(&stream, 0xffff));
	TRY(cuStreamDestroy(NULL));
	TRY(cuGraphLaunch(NULL, stream));
	TRY(cuStreamEndCapture(stream, NULL));
	TRY(cuFuncSetAttribute(add, (CUfunction_attribute)999, 1));
	TRY(cuModuleUnload(NULL));
	TRY(cuMemFree(p));
}

/* A thread's context goes and comes back. */
static void no_context(void)
{
	CUcontext context = NULL, none = NULL;
	CUdeviceptr p = 0, q = 0;

	TRY(cuMemAlloc(&p, 4096));
	TRY(cuCtxGetCurrent(&context));
	TRY(cuCtxSetCurrent(NULL));
	TRY(cuCtxGetCurrent(&none));
	TRY(cuMemAlloc(&q, 4096));
	TRY(cuMemAlloc(&q, 64 << 20));
	TRY(cuMemFree(p));
	TRY(cuMemsetD8(p, 1, 10));
	TRY(cuCtxSynchronize());
	TRY(launch(p, 10));
	TRY(cuCtxSetCurrent(context));
	TRY(cuMemFree(p));
	if (q)
		TRY(cuMemFree(q));
}

static int do_errors(void)
{
	before_anything();
	begin();
	no_context();
	bad_memory();
	bad_launches();
	return 0;
}

/* What is forbidden while a stream captures breaks the capture, and says so, the same way. */
static int do_capture(void)
{
	static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
						    CU_STREAM_CAPTURE_MODE_RELAXED};
	CUdeviceptr p, q;
	CUgraph graph;
	CUgraphExec executable;
	int host[16];

	begin();
	TRY(cuMemAlloc(&p, 4096));
	TRY(cuMemsetD8(p, 0, 4096));
	TRY(cuCtxSynchronize()); /* the stream does not wait for the default one */
	for (int m = 0; m < 3; m++) {
		graph = NULL;
		printf("mode %d, well behaved\n", m);
		TRY(cuStreamBeginCapture(stream, modes[m]));
		TRY(launch(p, 16));
		TRY(cuMemsetD32Async(p + 1024, 5, 16, stream));
		TRY(launch(p, 16));
		TRY(cuStreamEndCapture(stream, &graph));
		TRY(cuGraphInstantiate(&executable, graph, 0));
		for (int i = 0; i < 3; i++)
			TRY(cuGraphLaunch(executable, stream));
		TRY(cuStreamSynchronize(stream));
		TRY(cuMemcpyDtoH(host, p, sizeof host));
		printf("value %d\n", host[3]);
		TRY(cuGraphExecDestroy(executable));
		TRY(cuGraphDestroy(graph));
		printf("mode %d, an allocation inside\n", m);
		TRY(cuStreamBeginCapture(stream, modes[m]));
		TRY(cuMemAlloc(&q, 4096));
		TRY(launch(p, 16));
		TRY(cuStreamEndCapture(stream, &graph));
		printf("mode %d, a wait inside\n", m);
		TRY(cuStreamBeginCapture(stream, modes[m]));
		TRY(cuStreamSynchronize(stream));
		TRY(launch(p, 16));
		TRY(cuStreamEndCapture(stream, &graph));
		printf("mode %d, a free inside\n", m);
		TRY(cuMemAlloc(&q, 4096));
		TRY(cuStreamBeginCapture(stream, modes[m]));
		TRY(cuMemFree(q));
		TRY(cuStreamEndCapture(stream, &graph));
		TRY(cuStreamQuery(stream));
	}
	return 0;
}

/* An iteration as trainers have them, with results at every place where the device may fail. */
static CUresult iteration(CUdeviceptr weights, int *host, int step)
{
	CUdeviceptr activations = 0;
	CUresult result = cuMemAlloc(&activations, 1 << 20);

	printf("%d: %d", step, (int)result);
	if (!result) {
		printf(" %d", (int)(result = cuMemcpyHtoD(activations, host, 4096)));
		/* Each waited for: a failed kernel is seen at the same call in every run. */
		for (int i = 0; i < 3 && !result; i++)
			printf(" %d %d", (int)launch(activations, 1024), (int)(result = cuStreamSynchronize(stream)));
		printf(" %d", (int)launch(weights, 1024));
		printf(" %d", (int)cuStreamSynchronize(stream));
		printf(" %d", (int)cuMemcpyDtoH(host, weights, 4096));
		printf(" %d", (int)cuMemFree(activations));
	}
	printf(" value %d\n", host[7]);
	return result;
}

static int do_loop(void)
{
	CUdeviceptr weights = 0;
	static int host[1024];
	const char *closed = getenv("CLOSE_FROM");

	begin();
	TRY(cuMemAlloc(&weights, 4096));
	if (!weights)
		TRY(cuMemAlloc(&weights, 4096));
	TRY(cuMemsetD8(weights, 0, 4096));
	TRY(cuCtxSynchronize());
	for (int step = 0; step < 60; step++) {
		iteration(weights, host, step);
		for (int fd = closed && step % 10 == 5 ? atoi(closed) : 4096; fd < 4096; fd++)
			close(fd);
	}
	TRY(cuMemFree(weights));
	TRY(cuCtxSynchronize());
	TRY(cuStreamDestroy(stream));
	return 0;
}

static int do_fork(void)
{
	CUdeviceptr p = 0;
	pid_t pid;
	int status;

	begin();
	TRY(cuMemAlloc(&p, 4096));
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		TRY(cuMemAlloc(&p, 4096));
		TRY(cuInit(0));
		TRY(cuCtxSynchronize());
		TRY(launch(p, 10));
		exit(7);
	}
	waitpid(pid, &status, 0);
	printf("child %d\n", WEXITSTATUS(status));
	TRY(cuMemFree(p));
	fflush(stdout);
	if (!(pid = fork()))
		_exit(8);
	waitpid(pid, &status, 0);
	printf("child %d\n", WEXITSTATUS(status));
	return do_loop();
}

static int do_full(void)
{
	struct rlimit limit = {256, 256};
	int last = -1, fd;

	begin();
	setrlimit(RLIMIT_NOFILE, &limit);
	while ((fd = open("/dev/null", O_RDONLY)) >= 0)
		last = fd;
	printf("full: %d\n", last >= 0 && errno == EMFILE);
	return do_loop();
}

/* Whether about as much is free as before. */
static void look(const char *when, size_t before, size_t used)
{
	size_t available = 0, total = 0, expected = before - used, slack = 24 << 20;

	TRY(cuMemGetInfo(&available, &total));
	printf("%s: %s\n", when, available + slack < expected ? "less" : available > expected + slack ? "more" : "as it should be");
}

static void CUDA_CB late(void *flag)
{
	usleep(100000);
	*(volatile int *)flag = 1;
}

static int do_memory(void)
{
	const size_t big = 512 << 20;
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr p = 0, q = 0, warm = 0;
	size_t before = 0, total = 0;
	static volatile int flag;

	begin();
	TRY(cuMemAlloc(&warm, 4096));
	TRY(cuMemGetInfo(&before, &total));
	TRY(cuMemAlloc(&p, big));
	look("allocated", before, big);
	TRY(cuMemFree(p));
	look("freed", before, 0);
	TRY(cuMemAllocAsync(&p, 32 << 20, stream));
	TRY(cuMemAlloc(&q, big));
	TRY(cuMemFreeAsync(p, stream));
	TRY(cuStreamSynchronize(stream));
	TRY(cuMemFree(q));
	look("freed again", before, 0);
	for (int i = 0; i < 40; i++) {
		if (cuMemAlloc(&p, big / 8) || cuMemAllocAsync(&q, 4096, stream) || cuMemFree(p) || cuMemFreeAsync(q, stream))
			printf("round %d failed\n", i);
	}
	TRY(cuCtxSynchronize());
	look("after rounds", before, 0);
	/* Most of it for somebody else than the allocator. */
	before = (before - (32 << 20)) >> 21 << 21;
	TRY(cuMemCreate(&handle, before, &prop, 0));
	TRY(cuMemRelease(handle));
	TRY(cuMemAlloc(&p, before));
	TRY(cuMemFree(p));
	/* A free waits for all that was queued, whatever it is. */
	TRY(cuCtxSynchronize());
	TRY(cuMemAlloc(&p, 4096));
	TRY(cuLaunchHostFunc(stream, late, (void *)&flag));
	TRY(cuMemFree(p));
	printf("host function: %d\n", flag);
	TRY(cuMemFree(warm));
	return 0;
}

static void check(const char *what, CUdeviceptr p, int value)
{
	int host[16] = {0};

	TRY(cuMemcpyDtoH(host, p, sizeof host));
	printf("%s: %d\n", what, host[9] == value);
}

/* A context beside the one that all is in comes and goes; then that one goes, by a reset or by the last of its users, and the program goes on in the
 * next. */
static int end_contexts(bool by_release)
{
	CUdeviceptr first = 0, second = 0, large = 0;
	CUcontext context = NULL, other = NULL;
	static int host[1024];
	void *pinned = NULL;
	int n = -1;

	begin();
	TRY(cuMemAlloc(&first, 4096));
	TRY(cuMemsetD32(first, 11, 1024));
	TRY(cuCtxGetCurrent(&context));
	TRY(cuCtxDestroy(context));
	TRY(cuCtxCreate(&other, NULL, 0, 0));
	TRY(cuMemAlloc(&large, 8 << 20));
	TRY(cuMemsetD32(large, 22, 1024));
	check("the other context's memory", large, 22);
	TRY(cuMemFree(large));
	TRY(cuCtxDestroy(other));
	TRY(cuCtxSetCurrent(context));
	check("the first context's memory", first, 11);
	TRY(cuMemAlloc(&second, 4096));
	TRY(cuMemsetD32(second, 33, 1024));
	printf("apart: %d\n", first != second);
	check("the first context's memory", first, 11);
	TRY(cuCtxSynchronize());
	for (int step = 0; step < 30; step++)
		iteration(first, host, step);
	TRY(cuMemHostAlloc(&pinned, 4096, 0));
	if (by_release) {
		TRY(cuDevicePrimaryCtxRetain(&other, 0));
		TRY(cuDevicePrimaryCtxRelease(0));
		check("there is one user", second, 33);
		TRY(cuMemFree(second));
		TRY(cuDevicePrimaryCtxRelease(0));
		TRY(cuDevicePrimaryCtxRelease(0));
		TRY(cuDevicePrimaryCtxRetain(&context, 0));
		TRY(cuCtxSetCurrent(context));
	} else {
		TRY(cuDevicePrimaryCtxReset(0));
	}
	TRY(cuMemFree(first));
	if (!by_release)
		TRY(cuMemcpyDtoH(host, second, 64));
	TRY(cuStreamSynchronize(stream));
	TRY(cuModuleLoad(&module, kernels));
	TRY(cuModuleGetFunction(&add, module, "add"));
	TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	TRY(cuMemAlloc(&first, 4096));
	TRY(cuMemsetD8(first, 0, 4096));
	TRY(cuCtxSynchronize());
	memset(host, 0, sizeof host);
	for (int step = 0; step < 60; step++)
		iteration(first, host, step);
	TRY(cuDeviceGetCount(&n));
	TRY(cuMemFree(first));
	TRY(cuDevicePrimaryCtxReset(0));
	return 0;
}

static int do_contexts(void)
{
	return end_contexts(false);
}

static int do_release(void)
{
	return end_contexts(true);
}

static void access_of(const char *what, CUdeviceptr p)
{
	for (int device = 0; device < 2; device++) {
		CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
		unsigned long long flags = 99;

		TRY(cuMemGetAccess(&flags, &location, p));
		printf("%s, device %d: %llu\n", what, device, flags);
	}
}

/* One device is given access to what the other has, has later, and gets again. */
static int do_peers(void)
{
	CUdeviceptr before = 0, behind = 0, large = 0;
	CUcontext first = NULL, second = NULL;

	begin();
	TRY(cuCtxGetCurrent(&first));
	TRY(cuMemAlloc(&before, 4096));
	access_of("before", before);
	TRY(cuDevicePrimaryCtxRetain(&second, 1));
	TRY(cuCtxEnablePeerAccess(second, 0));
	access_of("the other way round", before);
	TRY(cuCtxSetCurrent(second));
	TRY(cuCtxEnablePeerAccess(first, 0));
	TRY(cuCtxEnablePeerAccess(first, 0));
	TRY(cuCtxSetCurrent(first));
	access_of("what was there", before);
	TRY(cuMemAlloc(&behind, 4096));
	TRY(cuMemAlloc(&large, 64 << 20));
	access_of("what came behind it", behind);
	access_of("and what is large", large);
	TRY(cuMemFree(large));
	TRY(cuMemAlloc(&large, 512 << 20));
	access_of("and comes again", large);
	TRY(cuMemFree(large));
	TRY(cuMemFree(behind));
	TRY(cuMemFree(before));
	return 0;
}

/* A pool's memory is given to the other device, before there is any and while there is some. */
static int do_pools(void)
{
	CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
	CUdeviceptr before = 0, behind = 0;
	CUmemoryPool pool = NULL;
	bool late = getenv("LATE") != NULL;

	begin();
	TRY(cuMemPoolCreate(&pool, &props));
	if (late) {
		TRY(cuMemAllocFromPoolAsync(&before, 4096, pool, stream));
		access_of("before", before);
	}
	access.location.id = 0;
	TRY(cuMemPoolSetAccess(pool, &access, 1));
	access.location.id = 7;
	TRY(cuMemPoolSetAccess(pool, &access, 1));
	access.location.id = 1;
	TRY(cuMemPoolSetAccess(pool, &access, 1));
	if (late)
		access_of("what was there", before);
	TRY(cuMemAllocFromPoolAsync(&behind, 64 << 20, pool, stream));
	access_of("what came behind it", behind);
	if (late)
		TRY(cuMemFreeAsync(before, stream));
	TRY(cuMemFreeAsync(behind, stream));
	TRY(cuStreamSynchronize(stream));
	TRY(cuMemPoolDestroy(pool));
	return 0;
}

/* The wait in a graph: as a node of its own kind, one of any kind, or one that waited elsewhere before. */
static CUresult wait_in_graph(int how, CUstreamBatchMemOpParams *one)
{
	static int elsewhere[1024] __attribute__((aligned(4096))), registered;
	CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {.count = 1, .paramArray = one};
	CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, .memOp = {.count = 1, .paramArray = one}};
	CUdeviceptr wanted = one->waitValue.address;
	CUgraphExec ready = NULL;
	CUgraphNode node;
	CUgraph graph;
	CUresult result = cuGraphCreate(&graph, 0);

	if (how == 2 && !registered++)
		result = cuMemHostRegister(elsewhere, sizeof elsewhere, 0);
	if (how == 2)
		one->waitValue.address = (CUdeviceptr)(uintptr_t)elsewhere;
	if (result == CUDA_SUCCESS)
		result = how == 1 ? cuGraphAddNode(&node, graph, NULL, NULL, 0, &any) : cuGraphAddBatchMemOpNode(&node, graph, NULL, 0, &batch);
	if (result == CUDA_SUCCESS)
		result = cuGraphInstantiate(&ready, graph, 0);
	one->waitValue.address = wanted;
	if (result == CUDA_SUCCESS && how == 2)
		result = cuGraphExecBatchMemOpNodeSetParams(ready, node, &batch);
	if (result == CUDA_SUCCESS)
		result = cuGraphLaunch(ready, stream);
	(void)cuGraphDestroy(graph);
	return result; /* to end what waits would wait for it */
}

/* A stream waits for a value in memory; where that is refused, in other memory. */
static int do_waits(void)
{
	const char *graphs = getenv("GRAPHS");
	CUstreamBatchMemOpParams one = {.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32, .value = 1, .flags = CU_STREAM_WAIT_VALUE_GEQ}};
	CUdeviceptr p = 0, large = 0;
	CUstream writes;
	CUresult result;

	begin();
	TRY(cuStreamCreate(&writes, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 6; i++) {
		do {
			(void)cuMemAlloc(&p, 4096);
			(void)cuMemsetD32(p, 0, 1024);
			(void)cuCtxSynchronize();
			one.waitValue.address = p;
			result = graphs ? wait_in_graph((i + atoi(graphs)) % 3, &one)
				 : i % 2 == (getenv("BATCH") != NULL) ? cuStreamWaitValue32(stream, p, 1, CU_STREAM_WAIT_VALUE_GEQ)
								      : cuStreamBatchMemOp(stream, 1, &one, 0);
		} while (result == CUDA_ERROR_NOT_SUPPORTED);
		printf("%d: %d\n", i, (int)result);
		TRY(cuStreamWriteValue32(writes, p, 1, 0));
		TRY(cuStreamSynchronize(stream));
	}
	TRY(cuMemAlloc(&large, 64 << 20));
	TRY(cuMemsetD8(large, 1, 64 << 20));
	TRY(cuMemFree(large));
	return 0;
}

/* More room for what kernels take themselves. */
static int do_heap(void)
{
	size_t got = 0;
	CUdeviceptr p = 0;

	begin();
	TRY(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048));
	TRY(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20));
	if (getenv("HEAP"))
		TRY(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 64 << 20));
	TRY(cuCtxGetLimit(&got, CU_LIMIT_MALLOC_HEAP_SIZE));
	printf("%zu\n", got);
	TRY(cuMemAlloc(&p, 4096));
	TRY(cuMemsetD8(p, 1, 4096));
	TRY(cuMemFree(p));
	return 0;
}

/* Host memory that a kernel may write to, and does where MAPPED says so. */
static int do_mapped(void)
{
	int *host = NULL;
	CUdeviceptr p = 0;

	begin();
	TRY(cuMemHostAlloc((void **)(void *)&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	TRY(cuMemHostGetDevicePointer(&p, host, 0));
	memset(host, 0, 4096);
	TRY(launch(0, 0));
	if (getenv("MAPPED"))
		TRY(launch(p, 10));
	TRY(cuStreamSynchronize(stream));
	printf("%d\n", host[9]);
	TRY(cuMemFreeHost(host));
	TRY(cuCtxSynchronize());
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(void);
	} habits[] = {{"errors", do_errors}, {"capture", do_capture}, {"loop", do_loop}, {"fork", do_fork}, {"full", do_full},
		      {"memory", do_memory}, {"contexts", do_contexts}, {"release", do_release}, {"peers", do_peers}, {"heap", do_heap},
		      {"mapped", do_mapped}, {"pools", do_pools}, {"waits", do_waits}};

	if (argc != 3)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	kernels = argv[1];
	for (size_t i = 0; i < sizeof habits / sizeof *habits; i++)
		if (strcmp(argv[2], habits[i].name) == 0)
			return habits[i].run();
	return 2;
}
