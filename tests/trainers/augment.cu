// SPDX-License-Identifier: Apache-2.0
// An extension that trainers load at run time: noise on a batch, drawn from a counter that lives on the device only
// and that no host code ever asks for. Built once more under another name, as extensions of one origin are.
#include <cuda_runtime.h>

#include <cstdio>

namespace augmentation_of_batches_by_noise_that_is_drawn_on_the_device
{
namespace counters_that_only_kernels_advance_and_no_checkpoint_of_the_trainer_holds
{
__device__ unsigned long long drawn = DRAWN;
}
} // namespace augmentation_of_batches_by_noise_that_is_drawn_on_the_device
using namespace augmentation_of_batches_by_noise_that_is_drawn_on_the_device::
	counters_that_only_kernels_advance_and_no_checkpoint_of_the_trainer_holds;

__global__ void augment_kernel(float *x, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n) {
		unsigned long long z = (drawn + (unsigned long long)i) * 0x9e3779b97f4a7c15ull;
		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
		x[i] += (float)(z >> 40) * (0.05f / 16777216.0f);
	}
}

__global__ void advance_kernel(int n)
{
	drawn = drawn * 3 + (unsigned long long)n;
}

extern "C" int augment(float *x, int n)
{
	augment_kernel<<<(n + 63) / 64, 64>>>(x, n);
	advance_kernel<<<1, 1>>>(n);
	return (int)cudaGetLastError();
}
