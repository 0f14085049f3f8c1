/* SPDX-License-Identifier: Apache-2.0 */
/* libnvidia-ml.so.1, which belongs to the driver: as much as programs ask of it in passing. */
#include <stddef.h>
#include <string.h>

#include <cuda.h>

#define API __attribute__((visibility("default")))

enum { NVML_SUCCESS = 0, NVML_ERROR_INVALID_ARGUMENT = 2, NVML_ERROR_NOT_SUPPORTED = 3, NVML_ERROR_INSUFFICIENT_SIZE = 7 };

static int device;

API int nvmlInit_v2(void) { return NVML_SUCCESS; }
API int nvmlInitWithFlags(unsigned flags) { (void)flags; return NVML_SUCCESS; }
API int nvmlShutdown(void) { return NVML_SUCCESS; }
API const char *nvmlErrorString(int e) { return e ? "not supported by simgpu" : "success"; }

API int nvmlSystemGetCudaDriverVersion_v2(int *v)
{
	*v = CUDA_VERSION;
	return NVML_SUCCESS;
}

API int nvmlDeviceGetCount_v2(unsigned *n)
{
	*n = 1;
	return NVML_SUCCESS;
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **out)
{
	*out = &device;
	return i ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

API int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **out)
{
	*out = &device;
	return id && strstr(id, "01:00") ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

API int nvmlDeviceGetIndex(void *d, unsigned *i)
{
	(void)d;
	*i = 0;
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
