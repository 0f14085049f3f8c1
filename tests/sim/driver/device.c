/* SPDX-License-Identifier: Apache-2.0 */
/* The devices, all alike, and what they say about themselves. */
#include <stdio.h>
#include <string.h>

#include "driver/sim.h"

#define NAME "simgpu"

static CUresult ok(CUdevice d)
{
	CUresult r = sim_enter_no_ctx();

	if (r != CUDA_SUCCESS)
		return r;
	sim_leave();
	return d >= 0 && d < sim_settings.devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

SIM_API CUresult cuDriverGetVersion(int *v)
{
	if (!v)
		return CUDA_ERROR_INVALID_VALUE;
	*v = CUDA_VERSION;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetCount(int *n)
{
	CUresult r = ok(0);

	if (r == CUDA_SUCCESS)
		*n = sim_settings.devices;
	return r;
}

SIM_API CUresult cuDeviceGet(CUdevice *d, int ordinal)
{
	CUresult r = ok(ordinal);

	if (r == CUDA_SUCCESS)
		*d = ordinal;
	return r;
}

SIM_API CUresult cuDeviceGetName(char *name, int n, CUdevice d)
{
	CUresult r = ok(d);

	if (r == CUDA_SUCCESS)
		snprintf(name, (size_t)n, "%s", NAME);
	return r;
}

static CUresult uuid(CUuuid *u, CUdevice d)
{
	CUresult r = ok(d);

	char text[17];

	if (r == CUDA_SUCCESS) {
		snprintf(text, sizeof text, "simgpu-device-%02d", sim_settings.physical[d]);
		memcpy(u->bytes, text, 16);
	}
	return r;
}

SIM_API CUresult cuDeviceGetUuid(CUuuid *u, CUdevice d) { return uuid(u, d); }
SIM_API CUresult cuDeviceGetUuid_v2(CUuuid *u, CUdevice d) { return uuid(u, d); }

SIM_API CUresult cuDeviceTotalMem_v2(size_t *n, CUdevice d)
{
	CUresult r = ok(d);

	if (r == CUDA_SUCCESS)
		*n = sim_settings.memory;
	return r;
}

SIM_API CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice d)
{
	*major = 9;
	*minor = 0;
	return ok(d);
}

static int value_of(CUdevice_attribute a, CUdevice d)
{
	switch (a) {
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
	case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
	case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: return 1024;
	case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: return 64;
	case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: return 0x7fffffff;
	case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
	case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: return 65535;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: return 49152;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: return 232448;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: return 233472;
	case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK: return 1024;
	case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY: return 65536;
	case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return 32;
	case CU_DEVICE_ATTRIBUTE_MAX_PITCH: return 0x7fffffff;
	case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
	case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: return 65536;
	case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: return 1000000;
	case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: return 1000000;
	case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT: return 512;
	case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT: return 32;
	case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP: return 1;
	case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: return 2;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return 4;
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: return 2048;
	case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: return 32;
	case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: return 4 << 20;
	case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: return 4096;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return 9;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return 0;
	case CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO: return 2;
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: return sim_settings.physical[d] + 1;
	case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1:
	case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
	case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR: return !sim_settings.no_memops;
	case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS: return sim_settings.pageable_access;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE: return CU_COMPUTEMODE_DEFAULT;
	case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
	case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
	case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
	case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
	case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
	case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: return 1;
	default: return 0;
	}
}

SIM_API CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d)
{
	CUresult r = ok(d);

	if (r == CUDA_SUCCESS && (!v || (int)a <= 0 || a >= CU_DEVICE_ATTRIBUTE_MAX))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*v = value_of(a, d);
	return r;
}

SIM_API CUresult cuDeviceGetPCIBusId(char *id, int n, CUdevice d)
{
	CUresult r = ok(d);

	if (r == CUDA_SUCCESS)
		snprintf(id, (size_t)n, "0000:%02x:00.0", sim_settings.physical[d] + 1);
	return r;
}

SIM_API CUresult cuDeviceGetByPCIBusId(CUdevice *d, const char *id)
{
	unsigned domain = 0, bus = 0;
	CUresult r = ok(0);

	if (r == CUDA_SUCCESS && (!d || !id))
		return CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS || (sscanf(id, "%x:%x:0", &domain, &bus) != 2 && sscanf(id, "%x:0", &bus) != 1) || domain)
		return r == CUDA_SUCCESS ? CUDA_ERROR_INVALID_DEVICE : r;
	for (int i = 0; i < sim_settings.devices; i++)
		if (sim_settings.physical[i] + 1 == (int)bus) {
			*d = i;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_INVALID_DEVICE;
}

SIM_API CUresult cuDeviceCanAccessPeer(int *can, CUdevice a, CUdevice b)
{
	CUresult r = ok(a);

	if (r == CUDA_SUCCESS)
		r = can ? ok(b) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*can = a != b;
	return r;
}

SIM_API CUresult cuDeviceGetP2PAttribute(int *v, CUdevice_P2PAttribute a, CUdevice x, CUdevice y)
{
	if (ok(x) != CUDA_SUCCESS || ok(y) != CUDA_SUCCESS || x == y)
		return CUDA_ERROR_INVALID_DEVICE;
	*v = a == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED || a == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetProperties(CUdevprop *p, CUdevice d)
{
	*p = (CUdevprop){ .maxThreadsPerBlock = 1024, .maxThreadsDim = { 1024, 1024, 64 }, .maxGridSize = { 0x7fffffff, 65535, 65535 },
			  .sharedMemPerBlock = 49152, .totalConstantMemory = 65536, .SIMDWidth = 32, .memPitch = 0x7fffffff,
			  .regsPerBlock = 65536, .clockRate = 1000000, .textureAlign = 512 };
	return ok(d);
}

/* Nobody outside the vendor can answer for these tables. */
SIM_API CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
	(void)id;
	if (table)
		*table = NULL;
	return CUDA_ERROR_NOT_FOUND;
}

SIM_API CUresult cuProfilerStart(void) { return CUDA_SUCCESS; }
SIM_API CUresult cuProfilerStop(void) { return CUDA_SUCCESS; }
