/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime's view of the driver: entry points found by name and version, the thread's context and last error. */
#ifndef TESTS_SIM_RUNTIME_RT_H
#define TESTS_SIM_RUNTIME_RT_H

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>

#define RT_API __attribute__((visibility("default")))

struct rt_driver {
#define RT_DRIVER(base, version) PFN_##base##_v##version base;
#include "runtime/driver.def"
#undef RT_DRIVER
};

/* For the legacy default stream, and for the per-thread one. */
extern struct rt_driver rt_drv, rt_ptd;

/* Loads the driver and gives the thread a context. */
cudaError_t rt_init(void);
#define RT_DEVICES 8
/* The primary context of a device, held from the first time on. */
cudaError_t rt_primary(int device, CUcontext *out);
/* Of the thread's context, 0 before it has one. */
int rt_device(void);
/* The driver alone, for questions that need no context. */
cudaError_t rt_load(void);
/* Remembers a failure for cudaGetLastError. */
cudaError_t rt_result(cudaError_t e);
int rt_unsupported(const char *symbol);

cudaError_t rt_kernel_of(const void *entry, CUkernel *out);
cudaError_t rt_symbol_of(const void *symbol, CUdeviceptr *address, size_t *bytes);
/* A function for attribute calls: a host entry or a cudaKernel_t. */
cudaError_t rt_function_of(const void *entry, CUfunction *out);

#define RT(call) \
	do { \
		cudaError_t rt_e = rt_init(); \
		if (rt_e == cudaSuccess) \
			rt_e = (cudaError_t)(call); \
		return rt_result(rt_e); \
	} while (0)

#endif
