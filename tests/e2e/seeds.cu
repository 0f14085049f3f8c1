// SPDX-License-Identifier: Apache-2.0
// A linear model of many small layers as a library, for programs of other languages: each call of step() is an iteration, in which the device does as much
// more as the text $WORK says, and which prints its loss.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#define CHECK(call) check_cuda((call), #call, __LINE__)

enum { LAYERS = 24, SIZE = 2048, BLOCK = 128 };

static void check_cuda(cudaError_t e, const char *call, int line)
{
	if (e != cudaSuccess) {
		fprintf(stderr, "seeds.cu:%d: %s: %s\n", line, call, cudaGetErrorString(e));
		exit(1);
	}
}

// What the layer should be, seen through noise.
__global__ void gradient(const float *w, float *g, int n, unsigned batch)
{
	int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
	if (i < n)
		g[i] = w[i] - (float)(i % 7) + 0.01f * (float)((batch * 2654435761u + (unsigned)i * 40503u) >> 24);
}

__global__ void add_loss(float *loss, const float *g, int n)
{
	float sum = 0;
	for (int i = 0; i < n; i++)
		sum += g[i] * g[i];
	*loss += sum / (float)n;
}

__global__ void adam(float *w, const float *g, float *m, float *v, int n, float rate)
{
	int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
	if (i >= n)
		return;
	m[i] = 0.9f * m[i] + 0.1f * g[i];
	v[i] = 0.999f * v[i] + 0.001f * g[i] * g[i];
	w[i] -= rate * m[i] / (sqrtf(v[i]) + 1e-8f);
}

struct Layer {
	float *w, *g, *m, *v;
};

extern "C" void step()
{
	static Layer layers[LAYERS];
	static float *loss;
	static char *memory;
	static int number;
	const char *text = getenv("WORK");
	unsigned work = 1, grid = (SIZE + BLOCK - 1) / BLOCK;
	float now;

	if (!loss) {
		CHECK(cudaMalloc((void **)&loss, sizeof *loss));
		CHECK(cudaMalloc((void **)&memory, 65536));
		for (Layer &l : layers)
			for (float **p : {&l.w, &l.g, &l.m, &l.v}) {
				CHECK(cudaMalloc((void **)p, SIZE * sizeof(float)));
				CHECK(cudaMemset(*p, 0, SIZE * sizeof(float)));
			}
	}
	number++;
	for (const char *at = text ? text : ""; *at; at++)
		work = work * 31 + (unsigned char)*at;
	// Of the device's work the size is known, so another one would be found.
	CHECK(cudaMemset(memory, 0, 4 * (1 + work % 10000)));
	CHECK(cudaMemsetAsync(loss, 0, sizeof *loss, 0));
	for (Layer &l : layers)
		gradient<<<grid, BLOCK>>>(l.w, l.g, SIZE, (unsigned)number);
	for (Layer &l : layers)
		add_loss<<<1, 1>>>(loss, l.g, 64);
	for (Layer &l : layers)
		adam<<<grid, BLOCK>>>(l.w, l.g, l.m, l.v, SIZE, 0.01f);
	CHECK(cudaMemcpy(&now, loss, sizeof now, cudaMemcpyDeviceToHost));
	printf("step %d loss %.6f\n", number, (double)now);
	fflush(stdout);
}
