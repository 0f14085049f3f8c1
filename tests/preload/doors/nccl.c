/* SPDX-License-Identifier: Apache-2.0 */
/* Comes to NCCL by its functions' names or their profiling names (-DPROFILING): linked to it (-DLINKED; with -DPLUGIN as a
 * library), or by dlopen and dlsym. As a program it can also load such a library: nccl [FILE]
 * One rank, one sum that multiplies, which shall meet an error of the network (SIMGPU_FAULT): whoever follows the calls hears
 * of it. Prints what it got. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#include "standin/nccl.h"

int cudaMalloc(void **at, size_t bytes);

#ifdef PROFILING
#define NAME(symbol) "p" #symbol
#define LINK(symbol) p##symbol
ncclResult_t pncclGetUniqueId(ncclUniqueId *id);
ncclResult_t pncclCommInitRank(ncclComm_t *out, int ranks, ncclUniqueId id, int rank);
ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type, ncclScalarResidence_t where, ncclComm_t c);
ncclResult_t pncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t c, CUstream s);
ncclResult_t pncclCommGetAsyncError(ncclComm_t c, ncclResult_t *error);
ncclResult_t pncclCommAbort(ncclComm_t c);
ncclResult_t pncclMemAlloc(void **out, size_t bytes);
#else
#define NAME(symbol) #symbol
#define LINK(symbol) symbol
#endif

#ifdef LINKED
#define FIND(symbol) (&LINK(symbol))
#else
static void *library;
#define FIND(symbol) ((__typeof__(&symbol))dlsym(library, NAME(symbol)))
#endif

int door_try(void);

int door_try(void)
{
	ncclResult_t error = ncclSuccess;
	void *memory = NULL, *its = NULL;
	float factor = 2;
	ncclUniqueId id;
	ncclComm_t comm;
	ncclRedOp_t op;

#ifndef LINKED
	library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return 1;
#endif
	if (cudaMalloc(&memory, 64) || FIND(ncclGetUniqueId)(&id) || FIND(ncclCommInitRank)(&comm, 1, id, 0) ||
	    FIND(ncclRedOpCreatePreMulSum)(&op, &factor, ncclFloat32, ncclScalarHostImmediate, comm) ||
	    FIND(ncclAllReduce)(memory, memory, 8, ncclFloat32, op, comm, NULL) || FIND(ncclMemAlloc)(&its, 64))
		return 2;
	for (int patience = 5000; !error && patience--; usleep(1000))
		FIND(ncclCommGetAsyncError)(comm, &error);
	FIND(ncclCommGetAsyncError)(comm, &error);
	printf("error %d, its memory is %s\n", (int)error,
	       (size_t)its >= 0x4a0000000000ull && (size_t)its < 0x4a4000000000ull ? "followed" : "its own");
	fflush(stdout);
	FIND(ncclCommAbort)(comm);
	_exit(0);
}

#ifndef PLUGIN
int main(int argc, char **argv)
{
	void *plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	int (*try)(void) = plugin ? (int (*)(void))dlsym(plugin, "door_try") : NULL;

	return argc == 1 ? door_try() : try ? try() : 3;
}
#endif
