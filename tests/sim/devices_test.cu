// SPDX-License-Identifier: Apache-2.0
// Two devices by the runtime: the current one, a variable that each has for itself, kernels on both, copies and peers.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#define CHECK(x) \
	do { \
		if (!(x)) { \
			fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #x, cudaGetErrorName(cudaPeekAtLastError())); \
			exit(1); \
		} \
	} while (0)
#define OK(x) CHECK((x) == cudaSuccess)

__device__ int own = 5;

__global__ void add_own(int *p, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		p[i] += own;
}

static int current()
{
	int d;
	OK(cudaGetDevice(&d));
	return d;
}

int main()
{
	const int n = 1000;
	int count, value, host[n], *p[2];
	void *where[2];
	cudaPointerAttributes a;
	cudaDeviceProp prop[2];
	cudaStream_t s[2];

	OK(cudaGetDeviceCount(&count));
	CHECK(count == 2 && current() == 0);
	CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice && current() == 0);
	cudaGetLastError();
	for (int d = 0; d < 2; d++) {
		OK(cudaSetDevice(d));
		CHECK(current() == d);
		OK(cudaGetDeviceProperties(&prop[d], d));
		OK(cudaMalloc(&p[d], n * sizeof(int)));
		OK(cudaMemset(p[d], 0, n * sizeof(int)));
		OK(cudaPointerGetAttributes(&a, p[d]));
		CHECK(a.device == d && a.type == cudaMemoryTypeDevice);
		OK(cudaGetSymbolAddress(&where[d], own));
		OK(cudaStreamCreate(&s[d]));
		value = 10 * (d + 1);
		if (d)
			OK(cudaMemcpyToSymbol(own, &value, sizeof value));
	}
	CHECK(where[0] != where[1] && prop[0].pciBusID != prop[1].pciBusID);
	// Another thread begins on device 0, whatever this one uses.
	std::thread([] { CHECK(current() == 0); }).join();
	CHECK(current() == 1);
	for (int d = 0; d < 2; d++) {
		OK(cudaSetDevice(d));
		add_own<<<4, 256, 0, s[d]>>>(p[d], n);
		OK(cudaGetLastError());
		add_own<<<4, 256, 0, s[1 - d]>>>(p[d], n);
		CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle);
		OK(cudaDeviceSynchronize());
	}
	for (int d = 0; d < 2; d++) {
		OK(cudaMemcpy(host, p[d], sizeof host, cudaMemcpyDeviceToHost));
		CHECK(host[0] == (d ? 20 : 5) && host[n - 1] == host[0]);
	}
	OK(cudaMemcpyPeerAsync(p[0], 0, p[1], 1, n * sizeof(int), s[1]));
	OK(cudaStreamSynchronize(s[1]));
	OK(cudaMemcpy(host, p[0], sizeof host, cudaMemcpyDeviceToHost));
	CHECK(host[n / 2] == 20);
	OK(cudaDeviceCanAccessPeer(&value, 1, 0));
	CHECK(value == 1);
	CHECK(cudaDeviceEnablePeerAccess(1, 0) == cudaErrorInvalidDevice);
	cudaGetLastError();
	OK(cudaDeviceEnablePeerAccess(0, 0));
	CHECK(cudaDeviceEnablePeerAccess(0, 0) == cudaErrorPeerAccessAlreadyEnabled);
	cudaGetLastError();
	add_own<<<4, 256, 0, s[1]>>>(p[0], n);
	OK(cudaMemcpyAsync(host, p[0], sizeof host, cudaMemcpyDeviceToHost, s[1]));
	OK(cudaStreamSynchronize(s[1]));
	CHECK(host[1] == 40);
	OK(cudaDeviceDisablePeerAccess(0));
	CHECK(cudaDeviceDisablePeerAccess(0) == cudaErrorPeerAccessNotEnabled);
	return 0;
}
