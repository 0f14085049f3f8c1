// SPDX-License-Identifier: Apache-2.0
// The runtime as nvcc's host code uses it: registration, launches, symbols, templates, errors.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#define CHECK(x) \
	do { \
		if (!(x)) { \
			fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #x, cudaGetErrorName(cudaPeekAtLastError())); \
			exit(1); \
		} \
	} while (0)
#define OK(x) CHECK((x) == cudaSuccess)

struct wide {
	float v[30];
	short which;
};

__constant__ float table[8];
__device__ int hits = 3;
static __device__ unsigned long long total;
namespace inner {
__device__ float offset[2] = {1.5f, 2.5f};
}
__device__ int *where = &hits;

__host__ __device__ static inline float twice(float x) { return 2 * x; }
__device__ float from_table(int i) { return table[i] + inner::offset[1]; }

template <typename T, int N> __global__ void fill(T *p, const T value)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < N)
		p[i] = value + (T)i;
}

static __global__ void pick(float *out, wide w, char c)
{
	*out = w.v[w.which] + c + from_table(3);
	atomicAdd(&total, 5ull);
	atomicAdd(where, 1);
}

namespace {
__global__ void __launch_bounds__(256) block_sum(const float *__restrict__ x, float *out, int n)
{
	__shared__ float part[256];
	float sum = 0;
	for (int i = threadIdx.x; i < n; i += blockDim.x)
		sum += twice(x[i]);
	part[threadIdx.x] = sum;
	__syncthreads();
	for (int s = blockDim.x / 2; s > 0; s >>= 1) {
		if ((int)threadIdx.x < s)
			part[threadIdx.x] += part[threadIdx.x + s];
		__syncthreads();
	}
	if (threadIdx.x == 0)
		*out = part[0];
}
}

static void graphs(float *d)
{
	cudaStream_t s;
	cudaGraph_t g;
	cudaGraphExec_t e;
	float h[4];
	OK(cudaStreamCreate(&s));
	OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
	fill<float, 4><<<1, 32, 0, s>>>(d, 7.f);
	OK(cudaGetLastError());
	OK(cudaStreamEndCapture(s, &g));
	OK(cudaGraphInstantiate(&e, g, 0));
	OK(cudaMemset(d, 0, 16));
	OK(cudaGraphLaunch(e, s));
	OK(cudaMemcpyAsync(h, d, 16, cudaMemcpyDeviceToHost, s));
	CHECK(h[0] == 7 && h[3] == 10);
	OK(cudaGraphExecDestroy(e));
	OK(cudaGraphDestroy(g));
}

int main()
{
	float *d, h[100], sum = 0, want = 0;
	int n = 0, v = 0;

	OK(cudaGetDeviceCount(&n));
	CHECK(n == 1);
	OK(cudaMalloc(&d, sizeof h));
	fill<float, 100><<<dim3(4), 32>>>(d, 0.5f);
	fill<int, 3><<<1, 32>>>((int *)d, 40);
	OK(cudaGetLastError());
	OK(cudaMemcpy(h, d, sizeof h, cudaMemcpyDeviceToHost));
	CHECK(h[99] == 99.5f && h[3] == 3.5f);
	memcpy(&v, &h[2], 4);
	CHECK(v == 42);

	float t[8] = {0, 1, 2, 3, 4, 5, 6, 7};
	OK(cudaMemcpyToSymbol(table, t, sizeof t));
	wide w = {};
	w.v[29] = 10;
	w.which = 29;
	pick<<<1, 1>>>(d, w, 'a');
	OK(cudaMemcpy(h, d, 4, cudaMemcpyDeviceToHost));
	CHECK(h[0] == 10 + 'a' + 3 + 2.5f);
	OK(cudaMemcpyFromSymbol(&v, hits, sizeof v));
	CHECK(v == 4);
	unsigned long long all;
	OK(cudaMemcpyFromSymbol(&all, total, sizeof all));
	CHECK(all == 5);
	void *address;
	size_t size;
	OK(cudaGetSymbolAddress(&address, hits));
	OK(cudaGetSymbolSize(&size, inner::offset));
	CHECK(size == 8);

	for (int i = 0; i < 100; i++) {
		h[i] = (float)i;
		want += 2.f * i;
	}
	OK(cudaMemcpy(d, h, sizeof h, cudaMemcpyHostToDevice));
	float *out;
	OK(cudaMallocAsync(&out, 4, nullptr));
	block_sum<<<1, 256>>>(d, out, 100);
	OK(cudaMemcpy(&sum, out, 4, cudaMemcpyDeviceToHost));
	CHECK(sum == want);
	OK(cudaFreeAsync(out, nullptr));

	// By the host's function pointer, as frameworks launch.
	float five = 5;
	void *args[] = {&d, &five};
	OK(cudaLaunchKernel((const void *)fill<float, 100>, dim3(4), dim3(32), args, 0, nullptr));
	OK(cudaMemcpy(h, d, 4, cudaMemcpyDeviceToHost));
	CHECK(h[0] == 5);
	cudaFuncAttributes a;
	OK(cudaFuncGetAttributes(&a, (const void *)pick));
	const char *name;
	OK(cudaFuncGetName(&name, (const void *)fill<int, 3>));
	CHECK(!strcmp(name, "_Z4fillIiLi3EEvPT_S0_"));
	graphs(d);

	// An error stays until it is asked for.
	pick<<<1, 2000>>>(d, w, 'a');
	CHECK(cudaPeekAtLastError() == cudaErrorInvalidConfiguration);
	CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
	CHECK(cudaGetLastError() == cudaSuccess);
	CHECK(cudaMemcpyToSymbol(five, t, 4) == cudaErrorInvalidSymbol);
	cudaGetLastError();
	void *entry = nullptr;
	cudaDriverEntryPointQueryResult st;
	OK(cudaGetDriverEntryPointByVersion("cuMemAlloc", &entry, 12000, cudaEnableDefault, &st));
	CHECK(entry && st == cudaDriverEntryPointSuccess);
	OK(cudaFree(d));
	CHECK(cudaFree(d) == cudaErrorInvalidValue);
	OK(cudaDeviceReset());
	return 0;
}
