// SPDX-License-Identifier: Apache-2.0
/* A training loop with the AdamW kernel of llm.c, by its very name, a launch for each tensor. It prints where its tensors
 * lie: [address, elements] by role. The rate of learning changes every eighth step. Compiled with ANOTHER_SIZE the kernel
 * of that name has a parameter more; with ENUMERATED it is the kernel of that name in a library, a file that the second argument names, and launched by
 * the handle that the library lists it with. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
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

#ifdef ENUMERATED
static CUfunction listed(const char *path, const char *wanted)
{
	CUkernel kernels[16] = {};
	CUlibrary library;
	const char *name;
	if (cuLibraryLoadFromFile(&library, path, nullptr, nullptr, 0, nullptr, nullptr, 0) || cuLibraryEnumerateKernels(kernels, 16, library))
		exit(3);
	for (CUkernel kernel : kernels)
		if (kernel && !cuKernelGetName(&name, kernel) && !strcmp(name, wanted))
			return (CUfunction)kernel;
	exit(4);
}
#endif

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
#ifdef ENUMERATED
	CUfunction adam = listed(argv[2], "_Z13adamw_kernel2PfS_S_S_lfffffff");
#endif
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
#ifdef ENUMERATED
		float rate = 0.5f / (1 + step / 8), beta1 = 0.75f, beta2 = 0.875f, half = 0.5f, eps = 0.0625f, decay = 0.25f;
		for (int i = 0; i < TENSORS; i++) {
			void *values[] = {&p[i], &g[i], &m[i], &v[i], &n[i], &rate, &beta1, &beta2, &half, &half, &eps, &decay};
			if (cuLaunchKernel(adam, 4, 1, 1, 128, 1, 1, 0, nullptr, values, nullptr))
				exit(5);
		}
#else
		for (int i = 0; i < TENSORS; i++)
			_Z13adamw_kernel2PfS_S_S_lfffffff<<<4, 128>>>(p[i], g[i], m[i], v[i], n[i], 0.5f / (1 + step / 8), 0.75f,
								      0.875f, 0.5f, 0.5f, 0.0625f, 0.25f NO_MORE);
#endif
		cudaDeviceSynchronize();
	}
	return 0;
}
