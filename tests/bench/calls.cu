// SPDX-License-Identifier: Apache-2.0
// What calls cost in a program whose iterations are all alike: launches, allocations, small copies. Prints one line a
// kind of call: name, median nanoseconds. Run it plain and preloaded, on a device that executes nothing. Each kind has a
// function of its own for the iterations that count, so that callgrind can tell what was spent in it: steady_NAME.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#define CHECK(call)                                                                                                    \
	do {                                                                                                               \
		cudaError_t e_ = (call);                                                                                       \
		if (e_ != cudaSuccess) {                                                                                       \
			fprintf(stderr, "calls.cu:%d: %s\n", __LINE__, cudaGetErrorString(e_));                                    \
			exit(1);                                                                                                   \
		}                                                                                                              \
	} while (0)

#define SIZE 1024
#define CALLS 200
#define FEW (CALLS / 10)

__global__ void forward_kernel(float *out, const float *in, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		out[i] = in[i] + 1.0f;
}

__global__ void adamw_kernel(float *p, const float *g, float *m, float *v, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		p[i] -= g[i] + m[i] * v[i];
}

// Of calls that wait for nothing, the calling thread's time: on a busy machine the wall clock tells of others.
static double now_ns(clockid_t clock)
{
	timespec t;
	clock_gettime(clock, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double median(std::vector<double> &x)
{
	std::nth_element(x.begin(), x.begin() + (long)x.size() / 2, x.end());
	return x[x.size() / 2];
}

static float *p, *g, *m, *v, *x, *pinned;
static cudaStream_t stream;

static void launch()
{
	for (int k = 0; k < CALLS; k++)
		forward_kernel<<<8, 128, 0, stream>>>(g, x, SIZE);
}

static void upload()
{
	for (int k = 0; k < CALLS; k++)
		CHECK(cudaMemcpyAsync(x, pinned, 64, cudaMemcpyHostToDevice, stream));
}

static void download()
{
	for (int k = 0; k < FEW; k++)
		CHECK(cudaMemcpyAsync(pinned, x, 64, cudaMemcpyDeviceToHost, stream));
}

static void allocate()
{
	for (int k = 0; k < FEW; k++) {
		void *at;
		CHECK(cudaMalloc(&at, 4096));
		CHECK(cudaFree(at));
	}
}

static void allocate_async()
{
	for (int k = 0; k < FEW; k++) {
		void *at;
		CHECK(cudaMallocAsync(&at, 4096, stream));
		CHECK(cudaFreeAsync(at, stream));
	}
}

#define STEADY(name)                                                                                                   \
	extern "C" __attribute__((noinline)) void steady_##name()                                                          \
	{                                                                                                                  \
		name();                                                                                                        \
		asm volatile("");                                                                                              \
	}
STEADY(launch)
STEADY(upload)
STEADY(download)
STEADY(allocate)
STEADY(allocate_async)

struct kind {
	const char *name;
	void (*learning)(), (*steady)();
	int calls;
	clockid_t clock;
	std::vector<double> took;
};

int main(int argc, char **argv)
{
	kind kinds[] = {
		{"launch", launch, steady_launch, CALLS, CLOCK_THREAD_CPUTIME_ID, {}},
		{"upload", upload, steady_upload, CALLS, CLOCK_THREAD_CPUTIME_ID, {}},
		{"download", download, steady_download, FEW, CLOCK_THREAD_CPUTIME_ID, {}},
		{"malloc+free", allocate, steady_allocate, FEW, CLOCK_MONOTONIC, {}},
		{"mallocasync+freeasync", allocate_async, steady_allocate_async, FEW, CLOCK_MONOTONIC, {}},
	};
	int iterations = argc > 1 ? atoi(argv[1]) : 400, learning = argc > 2 ? atoi(argv[2]) : 100;
	for (float **array : {&p, &g, &m, &v, &x})
		CHECK(cudaMalloc((void **)array, SIZE * 4));
	CHECK(cudaMallocHost((void **)&pinned, SIZE * 4));
	CHECK(cudaStreamCreate(&stream));

	for (int it = 0; it < iterations; it++) {
		for (kind &k : kinds) {
			double begun = now_ns(k.clock);
			(it < learning ? k.learning : k.steady)();
			if (it >= learning)
				k.took.push_back((now_ns(k.clock) - begun) / k.calls);
			CHECK(cudaStreamSynchronize(stream));
		}
		adamw_kernel<<<8, 128, 0, stream>>>(p, g, m, v, SIZE);
		CHECK(cudaStreamSynchronize(stream));
	}
	for (kind &k : kinds)
		printf("%s %.1f %d\n", k.name, median(k.took), k.calls);
	return 0;
}
