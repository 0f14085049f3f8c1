/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program's own allocator on top of the driver's virtual memory management, as PyTorch's expandable segments are. Preloaded
 * into a trainer: cudaMalloc reserves addresses, maps memory there in pieces of a granule, and lets the device use it;
 * cudaFree takes all of it back.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <stdlib.h>

#define PIECE (2ull << 20)
enum { MOST = 4096, OUT_OF_MEMORY = 2 };

static struct block {
	CUdeviceptr at;
	size_t pieces;
	CUmemGenericAllocationHandle *handle;
} blocks[MOST];

/* The driver's function, found as a library finds it that is not linked to the driver. */
static void *driver(const char *name)
{
	static void *library;

	library = library ? library : dlopen("libcuda.so.1", RTLD_NOW);
	return library ? dlsym(library, name) : NULL;
}

#define MUST(call, ...) \
	do { \
		__typeof__(call) *function = (__typeof__(call) *)driver(#call); \
		if (!function || function(__VA_ARGS__) != CUDA_SUCCESS) \
			abort(); \
	} while (0)

int cudaMalloc(void **at, size_t bytes);
int cudaMalloc(void **at, size_t bytes)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	int (*free_nothing)(void *) = (int (*)(void *))dlsym(RTLD_NEXT, "cudaFree");
	struct block *block = blocks;

	if (!free_nothing || free_nothing(NULL)) /* makes the context */
		return OUT_OF_MEMORY;
	while (block < blocks + MOST && block->at)
		block++;
	if (block == blocks + MOST)
		return OUT_OF_MEMORY;
	block->pieces = (bytes + PIECE - 1) / PIECE;
	block->handle = calloc(block->pieces + 1, sizeof *block->handle);
	MUST(cuMemAddressReserve, &block->at, block->pieces * PIECE, 0, 0, 0);
	for (size_t i = 0; i < block->pieces; i++) {
		MUST(cuMemCreate, &block->handle[i], PIECE, &prop, 0);
		MUST(cuMemMap, block->at + i * PIECE, PIECE, 0, block->handle[i], 0);
	}
	MUST(cuMemSetAccess, block->at, block->pieces * PIECE, &access, 1);
	*at = (void *)block->at;
	return 0;
}

int cudaFree(void *at);
int cudaFree(void *at)
{
	int (*real)(void *) = (int (*)(void *))dlsym(RTLD_NEXT, "cudaFree");

	for (struct block *block = blocks; at && block < blocks + MOST; block++) {
		if (block->at != (CUdeviceptr)at)
			continue;
		MUST(cuCtxSynchronize);
		for (size_t i = 0; i < block->pieces; i++) {
			MUST(cuMemUnmap, block->at + i * PIECE, PIECE);
			MUST(cuMemRelease, block->handle[i]);
		}
		MUST(cuMemAddressFree, block->at, block->pieces * PIECE);
		free(block->handle);
		block->at = 0;
		return 0;
	}
	return real ? real(at) : 0;
}
