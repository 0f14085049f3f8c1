/* SPDX-License-Identifier: Apache-2.0 */
/* SIMGPU_TOGETHER_US: kernels that follow each other cross to the device together, and take their time all the same. */
#include <sys/resource.h>

#include "check.h"

static long sleeps(void)
{
	struct rusage r;

	CHECK(getrusage(RUSAGE_SELF, &r) == 0);
	return r.ru_nvcsw;
}

int main(void)
{
	enum { KERNELS = 200, N = 16 };
	uint32_t values[N];
	CUstream s;
	CUdeviceptr x;

	setenv("SIMGPU_KERNEL_US", "1000", 1);
	setenv("SIMGPU_TOGETHER_US", "10000", 1);
	device_start();
	CUfunction add = kernel(kernels_load(), "add");

	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cuMemAlloc(&x, sizeof values));
	OK(cuMemsetD32(x, 0, N));
	OK(launch_add(add, s, x, N, 1));
	OK(cuStreamSynchronize(s));
	long before = sleeps();
	double t = now_ms();
	for (int i = 0; i < KERNELS; i++)
		OK(launch_add(add, s, x, N, 1));
	OK(cuStreamSynchronize(s));
	t = now_ms() - t;
	before = sleeps() - before;
	/* Two each where they go one by one: for the device, and for the time. */
	if (before >= KERNELS)
		fprintf(stderr, "%ld sleeps\n", before);
	CHECK(before < KERNELS);
	if (t < KERNELS)
		fprintf(stderr, "%f ms\n", t);
	CHECK(t >= KERNELS);
	OK(cuMemcpyDtoH(values, x, sizeof values));
	for (int i = 0; i < N; i++)
		CHECK(values[i] == KERNELS + 1);
	OK(cuMemFree(x));
	OK(cuStreamDestroy(s));
	return 0;
}
