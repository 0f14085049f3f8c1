/* SPDX-License-Identifier: Apache-2.0 */
/* libnvidia-ml.so.1, which belongs to the driver: as much as programs ask of it in passing. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>

#define API __attribute__((visibility("default")))

enum { NVML_SUCCESS = 0, NVML_ERROR_INVALID_ARGUMENT = 2, NVML_ERROR_NOT_SUPPORTED = 3, NVML_ERROR_INSUFFICIENT_SIZE = 7 };

#define DEVICES 8

static int device[DEVICES];

API int nvmlInit_v2(void) { return NVML_SUCCESS; }
API int nvmlInitWithFlags(unsigned flags) { (void)flags; return NVML_SUCCESS; }
API int nvmlShutdown(void) { return NVML_SUCCESS; }
API const char *nvmlErrorString(int e) { return e ? "not supported by simgpu" : "success"; }

API int nvmlSystemGetCudaDriverVersion_v2(int *v)
{
	*v = CUDA_VERSION;
	return NVML_SUCCESS;
}

/* NVML counts devices that the process may not see, too. */
static unsigned count(void)
{
	const char *v = getenv("SIMGPU_DEVICES");
	int n = v ? atoi(v) : 1;

	return n < 1 ? 1 : n > DEVICES ? DEVICES : (unsigned)n;
}

API int nvmlDeviceGetCount_v2(unsigned *n)
{
	*n = count();
	return NVML_SUCCESS;
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **out)
{
	if (i >= count())
		return NVML_ERROR_INVALID_ARGUMENT;
	*out = &device[i];
	return NVML_SUCCESS;
}

API int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **out)
{
	unsigned domain, bus;

	if (!id || sscanf(id, "%x:%x:0", &domain, &bus) != 2 || domain || !bus)
		return NVML_ERROR_INVALID_ARGUMENT;
	return nvmlDeviceGetHandleByIndex_v2(bus - 1, out);
}

API int nvmlDeviceGetIndex(void *d, unsigned *i)
{
	*i = (unsigned)((int *)d - device);
	return NVML_SUCCESS;
}

/* The name that the driver gives it. */
API int nvmlDeviceGetName(void *d, char *name, unsigned size)
{
	static const char own[] = "simgpu";

	(void)d;
	if (size < sizeof own)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	memcpy(name, own, sizeof own);
	return NVML_SUCCESS;
}

/* No process is to be seen. */
API int nvmlDeviceGetComputeRunningProcesses(void *d, unsigned *n, void *infos)
{
	(void)d, (void)infos;
	*n = 0;
	return NVML_SUCCESS;
}

API int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, void *infos) { return nvmlDeviceGetComputeRunningProcesses(d, n, infos); }
API int nvmlDeviceGetNvLinkRemoteDeviceType(void *d, unsigned link, void *out) { (void)d, (void)link, (void)out; return NVML_ERROR_NOT_SUPPORTED; }
API int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *d, unsigned link, void *out) { (void)d, (void)link, (void)out; return NVML_ERROR_NOT_SUPPORTED; }
API int nvmlDeviceGetGpuFabricInfoV(void *d, void *out) { (void)d, (void)out; return NVML_ERROR_NOT_SUPPORTED; }
API int nvmlDeviceGetP2PStatus(void *a, void *b, int which, int *out) { (void)a, (void)b, (void)which; *out = 4; return NVML_SUCCESS; }
