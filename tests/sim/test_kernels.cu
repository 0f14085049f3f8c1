// SPDX-License-Identifier: Apache-2.0
// Kernels of simgpu's own tests.
#include <cuda_runtime.h>

__device__ int counter = 5;

extern "C" __global__ void add(int *p, int n, int v)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		p[i] += v;
}

extern "C" __global__ void scale(char pad, double factor, const float *__restrict__ x, float *y, int n)
{
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		y[i] = (float)(x[i] * factor) + pad;
}

extern "C" __global__ void reverse(int *p, int n)
{
	extern __shared__ int tile[];
	int t = threadIdx.x;
	if (t < n)
		tile[t] = p[t];
	__syncthreads();
	if (t < n)
		p[t] = tile[n - 1 - t];
}

extern "C" __global__ void warp_sum(const int *x, int *out)
{
	int v = x[blockIdx.x * blockDim.x + threadIdx.x];
	for (int d = 16; d; d >>= 1)
		v += __shfl_down_sync(0xffffffffu, v, d);
	if (threadIdx.x % 32 == 0)
		atomicAdd(out, v);
}

extern "C" __global__ void count() { atomicAdd(&counter, 1); }

extern "C" __global__ void index3(int *out)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y,
	    z = blockIdx.z * blockDim.z + threadIdx.z;
	int w = gridDim.x * blockDim.x, h = gridDim.y * blockDim.y;
	out[(z * h + y) * w + x] = x * 10000 + y * 100 + z;
}

// Waits for a barrier that half of the block has left for good: allowed, the rest goes on.
extern "C" __global__ void early_exit(int *p)
{
	if (threadIdx.x % 2)
		return;
	__syncthreads();
	atomicAdd(p, 1);
}

extern "C" __global__ void wild(int *p) { *p = 1; }
