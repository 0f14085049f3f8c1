/* SPDX-License-Identifier: Apache-2.0 */
/* Faults on demand, each in a process of its own. */
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static CUfunction add;
static CUdeviceptr x;

static void start(const char *fault)
{
	setenv("SIMGPU_FAULT", fault, 1);
	device_start();
	add = kernel(kernels_load(), "add");
	OK(cuMemAlloc(&x, 4096));
}

static void out_of_memory(void)
{
	CUdeviceptr p;

	/* The module's variable and x are the first two. */
	start("oom@4");
	OK(cuMemAlloc(&p, 16));
	EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&p, 16));
	OK(cuMemAlloc(&p, 16));
}

static CUcontext context;

static void *allocate(void *name)
{
	CUdeviceptr p;
	static char registered[4096] __attribute__((aligned(4096)));

	pthread_setname_np(pthread_self(), name);
	OK(cuCtxSetCurrent(context));
	if (!strcmp(name, "poor")) {
		EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&p, 16));
		EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemHostRegister(registered, sizeof registered, 0));
	} else {
		OK(cuMemAlloc(&p, 16));
		OK(cuMemHostRegister(registered, sizeof registered, 0));
	}
	return NULL;
}

static void poor_thread(void)
{
	static char *const names[] = { "poor", "rich" };
	pthread_t thread;

	start("oom_thread@poor");
	OK(cuCtxGetCurrent(&context));
	for (int i = 0; i < 2; i++) {
		pthread_create(&thread, NULL, allocate, names[i]);
		pthread_join(thread, NULL);
	}
}

static void memops(const char *fault)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
	CUmemAccessDesc access = { .location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle handle;
	CUdeviceptr mapped;
	CUstream s;
	int has;

	start(fault);
	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0));
	CHECK(has == (*fault == 'd'));
	if (!has) {
		EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuStreamWaitValue32(s, x, 0, CU_STREAM_WAIT_VALUE_EQ));
		EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuStreamWriteValue32(s, x, 0, 0));
		return;
	}
	OK(cuMemAddressReserve(&mapped, 2 << 20, 0, 0, 0));
	OK(cuMemCreate(&handle, 2 << 20, &prop, 0));
	OK(cuMemMap(mapped, 2 << 20, 0, handle, 0));
	OK(cuMemSetAccess(mapped, 2 << 20, &access, 1));
	OK(cuMemsetD32(mapped, 7, 1));
	OK(cuMemsetD32(x, 7, 1));
	OK(cuStreamWaitValue32(s, x, 7, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuStreamSynchronize(s));
	OK(cuStreamWaitValue32(s, mapped, 7, CU_STREAM_WAIT_VALUE_EQ));
	usleep(50000);
	EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
}

static void no_memops(void)
{
	memops("no_memops");
}

static void dead_memops(void)
{
	memops("dead_memops");
	_exit(0); /* what waits for ever waits at the end, too */
}

static void launch(void)
{
	start("launch@2");
	OK(launch_add(add, NULL, x, 1, 1));
	EXPECT(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, launch_add(add, NULL, x, 1, 1));
	OK(launch_add(add, NULL, x, 1, 1));
	OK(cuCtxSynchronize());
}

static void sticky(void)
{
	start("sticky@2");
	OK(launch_add(add, NULL, x, 1, 1));
	OK(cuCtxSynchronize());
	OK(launch_add(add, NULL, x, 1, 1));
	EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
	EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemFree(x));
	EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, launch_add(add, NULL, x, 1, 1));
}

static void lost(void)
{
	int v;

	start("lost@1");
	OK(launch_add(add, NULL, x, 1, 1));
	EXPECT(CUDA_ERROR_DEVICE_UNAVAILABLE, cuMemcpyDtoH(&v, x, 4));
	EXPECT(CUDA_ERROR_DEVICE_UNAVAILABLE, cuCtxSynchronize());
}

static void stall(void)
{
	double t;

	start("stall@2:150");
	OK(launch_add(add, NULL, x, 1, 1));
	OK(cuCtxSynchronize());
	t = now_ms();
	OK(launch_add(add, NULL, x, 1, 1));
	OK(cuCtxSynchronize());
	CHECK(now_ms() - t > 149);
}

static void refuse(void)
{
	CUdeviceptr va;

	start("refuse_hint");
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&va, 2 << 20, 0, 0x300000000000ull, 0));
	OK(cuMemAddressReserve(&va, 2 << 20, 0, 0, 0));
}

static void move(void)
{
	CUdeviceptr va;

	start("move_hint");
	OK(cuMemAddressReserve(&va, 2 << 20, 0, 0x300000000000ull, 0));
	CHECK(va != 0x300000000000ull);
}

static void wild(void)
{
	CUdeviceptr nowhere = 0x1000;
	void *args[] = { &nowhere };
	CUmodule m;

	start("");
	m = kernels_load();
	OK(cuLaunchKernel(kernel(m, "wild"), 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
	EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
	EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc(&x, 16));
}

static void no_execute(void)
{
	int v = 1;

	setenv("SIMGPU_EXECUTE", "0", 1);
	start("");
	OK(cuMemsetD32(x, 0, 1));
	OK(launch_add(add, NULL, x, 1, 5));
	OK(cuMemcpyDtoH(&v, x, 4));
	CHECK(v == 0);
}

int main(void)
{
	static void (*const cases[])(void) = { out_of_memory, poor_thread, no_memops, dead_memops, launch, sticky, lost, stall, refuse, move, wild, no_execute };

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		pid_t child = fork();
		int status;

		if (child == 0) {
			cases[i]();
			exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child);
		if (status) {
			fprintf(stderr, "case %zu failed\n", i);
			return 1;
		}
	}
	return 0;
}
