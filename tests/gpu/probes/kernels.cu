// SPDX-License-Identifier: Apache-2.0
// Kernels that the probes launch. Each of the second kind is launched once at most: a driver that loads lazily loads it then.
extern "C" __global__ void probe_touch(unsigned *words, int count)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < count)
		words[i] += 1;
}

extern "C" __global__ void probe_first(unsigned *words, int count)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < count)
		words[i] ^= 0x5a5a5a5a;
}

// Parameters of several sizes, for what the driver says of them.
extern "C" __global__ void probe_parameters(unsigned char a, short b, int c, double d, unsigned *words)
{
	words[0] = a + b + c + (int)d;
}
