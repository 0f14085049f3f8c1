// SPDX-License-Identifier: Apache-2.0
// The plain speed of copies from page-locked host memory to the device, in GiB/s. Argument: MiB.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

int main(int argc, char **argv)
{
	size_t bytes = (size_t)(argc > 1 ? atol(argv[1]) : 256) << 20;
	void *host, *device;
	double best = 0;
	if (cudaMallocHost(&host, bytes) != cudaSuccess || cudaMalloc(&device, bytes) != cudaSuccess)
		return 1;
	memset(host, 1, bytes);
	for (int i = 0; i < 5; i++) {
		timespec a, b;
		clock_gettime(CLOCK_MONOTONIC, &a);
		if (cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice) != cudaSuccess)
			return 1;
		clock_gettime(CLOCK_MONOTONIC, &b);
		double rate = (double)bytes / ((double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9) / (1 << 30);
		// The first copy finds the device's memory untouched, as a resume does; it is reported apart.
		if (i == 0)
			printf("{\"first_gib_s\": %.3f, ", rate);
		else if (rate > best)
			best = rate;
	}
	printf("\"gib_s\": %.3f}\n", best);
	return 0;
}
