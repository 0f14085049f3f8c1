/* SPDX-License-Identifier: Apache-2.0 */
/* What simgpu's own tests share: checks that name what failed, and a device with the test kernels loaded. */
#ifndef TESTS_SIM_CHECK_H
#define TESTS_SIM_CHECK_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(x) \
	do { \
		if (!(x)) { \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); \
			exit(1); \
		} \
	} while (0)

#define EXPECT(want, call) \
	do { \
		CUresult got_ = (call); \
		if (got_ != (want)) { \
			const char *name_ = "?"; \
			cuGetErrorName(got_, &name_); \
			fprintf(stderr, "%s:%d: %s gave %s (%d), not %s\n", __FILE__, __LINE__, #call, name_, got_, #want); \
			exit(1); \
		} \
	} while (0)
#define OK(call) EXPECT(CUDA_SUCCESS, call)

static inline double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static inline CUcontext device_start(void)
{
	CUcontext c;

	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&c, 0));
	OK(cuCtxSetCurrent(c));
	return c;
}

static inline CUmodule kernels_load(void)
{
	char path[4096];
	CUmodule m;
	ssize_t n = readlink("/proc/self/exe", path, sizeof path - 32);

	/* The kernels lie beside the program. */
	CHECK(n > 0);
	path[n] = 0;
	strcpy(strrchr(path, '/') + 1, "test_kernels.simimg");
	OK(cuModuleLoad(&m, path));
	return m;
}

static inline CUfunction kernel(CUmodule m, const char *name)
{
	CUfunction f;

	OK(cuModuleGetFunction(&f, m, name));
	return f;
}

/* add(int *p, int n, int v): p[i] += v */
static inline CUresult launch_add(CUfunction f, CUstream s, CUdeviceptr p, int n, int v)
{
	void *args[] = { &p, &n, &v };

	return cuLaunchKernel(f, (unsigned)(n + 255) / 256, 1, 1, 256, 1, 1, 0, s, args, NULL);
}

#endif
