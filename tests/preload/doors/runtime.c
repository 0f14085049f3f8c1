/* SPDX-License-Identifier: Apache-2.0 */
/* Comes by the CUDA runtime, shared or static; a program, or with -DPLUGIN a library. */
#include <cuda_runtime_api.h>

#include "alloc.h"

int door_try(void);

int door_try(void)
{
	void *p = NULL;
	cudaError_t error = cudaMalloc(&p, 1 << 20);

	return door_answer(error, (unsigned long long)(size_t)p);
}

#ifndef PLUGIN
int main(void)
{
	return door_try();
}
#endif
