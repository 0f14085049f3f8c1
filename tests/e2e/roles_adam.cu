// SPDX-License-Identifier: Apache-2.0
/* A training loop with the AdamW kernel of llm.c, by its very name, a launch for each tensor. It prints where its tensors
 * lie: [address, elements] by role. The rate of learning changes every eighth step. Compiled with ANOTHER_SIZE the kernel
 * of that name has a parameter more. */
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#ifdef ANOTHER_SIZE
#define MORE , long unused
#define NO_MORE , 0L
#else
#define MORE
#define NO_MORE
#endif

enum { TENSORS = 6 };

__global__ void forward_kernel(const float *p, float *out, long n)
{
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = p[i] * 0.5f + 1.0f;
}

__global__ void backward_kernel(const float *out, float *g, long n, int step)
{
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n)
        g[i] = out[i] - (float)((i + step) % 7) * 0.125f;
}

extern "C" __global__ void _Z13adamw_kernel2PfS_S_S_lfffffff(float *p, float *g, float *m, float *v, long n, float lr,
                                                              float beta1, float beta2, float correction1,
                                                              float correction2, float eps, float decay MORE)
{
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    m[i] = beta1 * m[i] + (1.0f - beta1) * g[i];
    v[i] = beta2 * v[i] + (1.0f - beta2) * g[i] * g[i];
    p[i] -= lr * (m[i] / correction1 / (sqrtf(v[i] / correction2) + eps) + decay * p[i]);
}

static void list(const char *role, float *const *tensors, const long *sizes, const char *end)
{
    printf("\"%s\": [", role);
    for (int i = 0; i < TENSORS; i++)
        printf("[%llu, %ld]%s", (unsigned long long)tensors[i], sizes[i], i + 1 < TENSORS ? ", " : "]");
    printf("%s", end);
}

int main(int argc, char **argv)
{
    int steps = argc > 1 ? atoi(argv[1]) : 10;
    long n[TENSORS];
    float *p[TENSORS], *g[TENSORS], *m[TENSORS], *v[TENSORS], *out, *lists[4][TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        n[i] = 100 + 37 * i;
        for (int list = 0; list < 4; list++) {
            cudaMalloc((void **)&lists[list][i], n[i] * sizeof(float));
            cudaMemset(lists[list][i], 0, n[i] * sizeof(float));
        }
        p[i] = lists[0][i], g[i] = lists[1][i], m[i] = lists[2][i], v[i] = lists[3][i];
    }
    cudaMalloc((void **)&out, 4096);
    printf("{");
    list("parameters", p, n, ", ");
    list("gradients", g, n, ", ");
    list("first moments", m, n, ", ");
    list("second moments", v, n, "}\n");
    fflush(stdout);
    for (int step = 0; step < steps; step++) {
        for (int i = 0; i < TENSORS; i++) {
            forward_kernel<<<4, 128>>>(p[i], out, n[i]);
            backward_kernel<<<4, 128>>>(out, g[i], n[i], step);
        }
        for (int i = 0; i < TENSORS; i++)
            _Z13adamw_kernel2PfS_S_S_lfffffff<<<4, 128>>>(p[i], g[i], m[i], v[i], n[i], 0.5f / (1 + step / 8), 0.75f,
                                                          0.875f, 0.5f, 0.5f, 0.0625f, 0.25f NO_MORE);
        cudaDeviceSynchronize();
    }
    return 0;
}
