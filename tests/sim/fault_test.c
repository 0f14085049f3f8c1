/* SPDX-License-Identifier: Apache-2.0 */
/* Faults on demand, each in a process of its own. */
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
	static void (*const cases[])(void) = { out_of_memory, launch, sticky, lost, stall, refuse, move, wild, no_execute };

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
