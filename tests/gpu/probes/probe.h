/* SPDX-License-Identifier: Apache-2.0 */
/* What the probes of a driver share: its functions, found by name, and results as lines of JSON on standard output. The library
 * is in none of them. A function that the driver lacks, or an error of one, is a result and no failure. */
#ifndef TPCK_TESTS_GPU_PROBES_PROBE_H
#define TPCK_TESTS_GPU_PROBES_PROBE_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define PROBE_DRIVER(ROW) \
	ROW(cuInit) ROW(cuDriverGetVersion) ROW(cuDeviceGet) ROW(cuDeviceGetName) ROW(cuDeviceGetAttribute) ROW(cuDeviceTotalMem) \
		ROW(cuDevicePrimaryCtxRetain) ROW(cuDevicePrimaryCtxRelease) ROW(cuCtxSetCurrent) ROW(cuCtxSynchronize) ROW(cuGetErrorName) \
			ROW(cuModuleLoadData) ROW(cuModuleGetFunction) ROW(cuModuleGetLoadingMode) ROW(cuLaunchKernel) \
				ROW(cuLibraryLoadData) ROW(cuLibraryGetKernel) ROW(cuKernelGetFunction) ROW(cuKernelGetName) ROW(cuKernelGetParamInfo) \
					ROW(cuFuncGetName) ROW(cuFuncGetParamInfo) ROW(cuFuncGetAttribute) \
						ROW(cuStreamCreate) ROW(cuStreamSynchronize) ROW(cuStreamQuery) ROW(cuStreamWaitEvent) ROW(cuStreamWaitValue32) ROW(cuStreamWriteValue32) \
							ROW(cuStreamBeginCapture) ROW(cuStreamEndCapture) ROW(cuGraphInstantiateWithFlags) ROW(cuGraphLaunch) \
								ROW(cuEventCreate) ROW(cuEventRecord) ROW(cuEventSynchronize) ROW(cuEventElapsedTime) \
									ROW(cuMemAlloc) ROW(cuMemFree) ROW(cuMemGetInfo) ROW(cuMemHostAlloc) ROW(cuMemFreeHost) ROW(cuMemHostGetDevicePointer) \
										ROW(cuMemHostRegister) ROW(cuMemHostUnregister) ROW(cuMemcpyDtoHAsync) ROW(cuMemcpyHtoDAsync) ROW(cuMemsetD32Async) \
											ROW(cuMemcpyHtoD) ROW(cuMemcpyDtoH) ROW(cuMemAllocAsync) ROW(cuMemFreeAsync) \
												ROW(cuMemAddressReserve) ROW(cuMemAddressFree) ROW(cuMemCreate) ROW(cuMemRelease) ROW(cuMemMap) ROW(cuMemUnmap) ROW(cuMemSetAccess) \
													ROW(cuMemGetAllocationGranularity) ROW(cuPointerGetAttribute)

/* cuda.h renames some functions by macros: a member is called as the driver exports it. */
struct probe_driver {
#define PROBE_MEMBER(function) __typeof__(&function) function;
	PROBE_DRIVER(PROBE_MEMBER)
#undef PROBE_MEMBER
};
extern struct probe_driver driver;

/* The call that a thread is in, for who finds that it does not come back. */
struct probe_place {
	_Atomic(const char *) call;
	double longest_ms;
	const char *longest_call;
};
extern _Thread_local struct probe_place *probe_here;

/* Opens the driver, initialises it and makes the first device's primary context current. Ends the process with a result otherwise. */
void probe_begin(CUdevice *device, CUcontext *context);

/* Milliseconds since some moment. */
double probe_ms(void);
void probe_sleep_ms(double ms);

/* Ends the process with status 0 and the result "refused", unless the call succeeded. */
void probe_check(CUresult result, const char *call);
const char *probe_error(CUresult result);
/* Notes that a call begins, and how long it took. */
double probe_enter(const char *call);
CUresult probe_leave(double begun, CUresult result);

/* One call of the driver: a missing function ends the process with the result "refused". */
#define TRY(function, ...) \
	({ \
		double begun_ = probe_enter(#function); \
		if (!driver.function) \
			probe_missing(#function); \
		probe_leave(begun_, driver.function(__VA_ARGS__)); \
	})
#define DO(function, ...) probe_check(TRY(function, __VA_ARGS__), #function)
_Noreturn void probe_missing(const char *function);

/* A whole file, with a zero behind it. Ends the process otherwise. */
void *probe_file(const char *path, size_t *size);

/* A line of JSON; strings in it need no quoting. */
void probe_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void probe_refused(const char *what, const char *why);

#endif
