// SPDX-License-Identifier: Apache-2.0
// What calls cost in a program whose iterations are all alike: launches, allocations, small copies. Prints one line a
// kind of call: name, median nanoseconds. Run it plain and preloaded, on a device that executes nothing.
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
static double now_ns(clockid_t clock = CLOCK_THREAD_CPUTIME_ID)
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

int main(int argc, char **argv)
{
    int iterations = argc > 1 ? atoi(argv[1]) : 300;
    float *p, *g, *m, *v, *x, *pinned;
    CHECK(cudaMalloc((void **)&p, SIZE * 4));
    CHECK(cudaMalloc((void **)&g, SIZE * 4));
    CHECK(cudaMalloc((void **)&m, SIZE * 4));
    CHECK(cudaMalloc((void **)&v, SIZE * 4));
    CHECK(cudaMalloc((void **)&x, SIZE * 4));
    CHECK(cudaMallocHost((void **)&pinned, SIZE * 4));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    std::vector<double> launch, upload, download, allocate, pool;

    for (int it = 0; it < iterations; it++) {
        double begun = now_ns();
        for (int k = 0; k < CALLS; k++)
            forward_kernel<<<8, 128, 0, stream>>>(g, x, SIZE);
        launch.push_back((now_ns() - begun) / CALLS);
        CHECK(cudaStreamSynchronize(stream));
        begun = now_ns();
        for (int k = 0; k < CALLS; k++)
            CHECK(cudaMemcpyAsync(x, pinned, 64, cudaMemcpyHostToDevice, stream));
        upload.push_back((now_ns() - begun) / CALLS);
        CHECK(cudaStreamSynchronize(stream));
        begun = now_ns();
        for (int k = 0; k < CALLS / 10; k++)
            CHECK(cudaMemcpyAsync(pinned, x, 64, cudaMemcpyDeviceToHost, stream));
        download.push_back((now_ns() - begun) / (CALLS / 10));
        CHECK(cudaStreamSynchronize(stream));
        begun = now_ns(CLOCK_MONOTONIC);
        for (int k = 0; k < CALLS / 10; k++) {
            void *at;
            CHECK(cudaMalloc(&at, 4096));
            CHECK(cudaFree(at));
        }
        allocate.push_back((now_ns(CLOCK_MONOTONIC) - begun) / (CALLS / 10));
        begun = now_ns(CLOCK_MONOTONIC);
        for (int k = 0; k < CALLS / 10; k++) {
            void *at;
            CHECK(cudaMallocAsync(&at, 4096, stream));
            CHECK(cudaFreeAsync(at, stream));
        }
        pool.push_back((now_ns(CLOCK_MONOTONIC) - begun) / (CALLS / 10));
        adamw_kernel<<<8, 128, 0, stream>>>(p, g, m, v, SIZE);
        CHECK(cudaStreamSynchronize(stream));
    }
    printf("launch %.1f\nupload %.1f\ndownload %.1f\nmalloc+free %.1f\nmallocasync+freeasync %.1f\n", median(launch),
           median(upload), median(download), median(allocate), median(pool));
    return 0;
}
