/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hands communicators to every function that takes one, and prints what each says; with an argument, "key" or "own" before that: whether
 * what the program has is NCCL's own handle. argument deep: a library is opened with RTLD_DEEPBIND before.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "standin/comm.h"

int cudaMalloc(void **at, size_t bytes);
int cudaDeviceSynchronize(void);

static float *memory;

static void tell(const char *what, ncclComm_t c)
{
	int count = -1, rank = -1, device = -1;
	ncclResult_t error = ncclNumResults, results[4];

	results[0] = ncclCommCount(c, &count);
	results[1] = ncclCommUserRank(c, &rank);
	results[2] = ncclCommCuDevice(c, &device);
	results[3] = ncclCommGetAsyncError(c, &error);
	printf("%s: %d %d %d %d: %d ranks, rank %d, device %d, error %d\n", what, results[0], results[1], results[2], results[3], count, rank,
	       device, error);
}

static void use(const char *what, ncclComm_t c)
{
	float factor = 2;
	void *handle;
	ncclRedOp_t op;
	int results[16], n = 0;

	results[n++] = ncclCommRegister(c, memory, 64, &handle);
	results[n++] = ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, ncclScalarHostImmediate, c);
	results[n++] = ncclAllReduce(memory, memory, 4, ncclFloat32, op, c, NULL);
	results[n++] = ncclRedOpDestroy(op, c);
	results[n++] = ncclReduce(memory, memory, 4, ncclFloat32, ncclSum, 0, c, NULL);
	results[n++] = ncclReduceScatter(memory, memory, 4, ncclFloat32, ncclSum, c, NULL);
	results[n++] = ncclBroadcast(memory, memory, 4, ncclFloat32, 0, c, NULL);
	results[n++] = ncclBcast(memory, 4, ncclFloat32, 0, c, NULL);
	results[n++] = ncclAllGather(memory, memory, 4, ncclFloat32, c, NULL);
	results[n++] = ncclAlltoAll(memory, memory + 8, 4, ncclFloat32, c, NULL);
	results[n++] = ncclGather(memory, memory + 8, 4, ncclFloat32, 0, c, NULL);
	results[n++] = ncclScatter(memory, memory + 8, 4, ncclFloat32, 0, c, NULL);
	results[n++] = ncclGroupStart();
	results[n++] = ncclSend(memory, 4, ncclFloat32, 0, c, NULL) + 10 * ncclRecv(memory + 8, 4, ncclFloat32, 0, c, NULL);
	results[n++] = ncclGroupEnd();
	results[n++] = ncclCommDeregister(c, handle);
	printf("%s:", what);
	for (int i = 0; i < n; i++)
		printf(" %d", results[i]);
	printf(", device %d\n", cudaDeviceSynchronize());
	results[0] = ncclAllReduce(memory, memory, 4, (ncclDataType_t)99, ncclSum, c, NULL);
	printf("%s: %d %s\n", what, results[0], ncclGetLastError(c));
}

int main(int argc, char **argv)
{
	ncclComm_t one = NULL, parts[2] = {NULL, NULL}, grouped = NULL, all[1] = {NULL}, none = (ncclComm_t)&one, wrong = (ncclComm_t)&one;
	ncclUniqueId id;

	if (argc > 1 && strcmp(argv[1], "deep") == 0 && !dlopen("libm.so.6", RTLD_NOW | RTLD_DEEPBIND))
		return 9;
	if (cudaMalloc((void **)&memory, 256) || ncclGetUniqueId(&id) || ncclCommInitRank(&one, 1, id, 0))
		return 1;
	if (argc > 1)
		puts(*(unsigned *)one == COMM_MAGIC ? "own" : "key");
	tell("one", one);
	use("one", one);
	printf("split: %d %d %d\n", ncclCommSplit(one, 3, 0, &parts[0], NULL), ncclCommSplit(one, 4, 0, &parts[1], NULL),
	       ncclCommSplit(one, NCCL_SPLIT_NOCOLOR, 0, &none, NULL));
	tell("part", parts[0]);
	use("other part", parts[1]);
	printf("no colour: %s\n", none ? "something" : "nothing");
	if (ncclGetUniqueId(&id) || ncclGroupStart() || ncclCommInitRank(&grouped, 1, id, 0) || ncclGroupEnd() || ncclCommInitAll(all, 1, NULL))
		return 2;
	tell("grouped", grouped);
	use("all", all[0]);
	printf("wrong: %d %s\n", ncclCommInitRank(&wrong, 1, id, 1), wrong == (ncclComm_t)&one ? "as it was" : "changed");
	printf("finalize: %d, destroy: %d, abort: %d\n", ncclCommFinalize(parts[0]), ncclCommDestroy(parts[0]), ncclCommAbort(parts[1]));
	/* The places of those that are gone are others' now. */
	printf("split: %d\n", ncclCommSplit(one, 5, 0, &parts[1], NULL));
	use("a later part", parts[1]);
	printf("destroy: %d %d %d %d %d\n", ncclCommDestroy(parts[1]), ncclCommDestroy(grouped), ncclCommDestroy(all[0]), ncclCommDestroy(one),
	       ncclCommDestroy(NULL));
	return 0;
}
