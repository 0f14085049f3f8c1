/* SPDX-License-Identifier: Apache-2.0 */
/* A tool that counts what comes to NCCL: preloaded behind the library, it writes a letter for each call into the file NCCL_CALLS, or where
 * there are several ranks NCCL_CALLS.RANK. With ALL for calls that are no work, too. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "standin/nccl.h"

static void note(char letter)
{
	static int fd = -1;
	const char *path = getenv("NCCL_CALLS"), *rank = getenv("RANK");
	char name[4096];

	if (path && rank && fd < 0) {
		snprintf(name, sizeof name, "%s.%s", path, rank);
		path = name;
	}
	/* Past libc: whoever follows files is not to see it. */
	if (fd < 0 && path)
		fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd >= 0)
		(void)!syscall(SYS_write, fd, &letter, 1);
}

#define COUNT(letter, symbol, params, ...)                                        \
	ncclResult_t symbol params                                                \
	{                                                                         \
		static __typeof__(&symbol) next;                                  \
		if (!next)                                                        \
			next = (__typeof__(next))dlsym(RTLD_NEXT, #symbol);       \
		note(letter);                                                     \
		return next(__VA_ARGS__);                                         \
	}

COUNT('I', ncclCommInitRank, (ncclComm_t *out, int ranks, ncclUniqueId id, int rank), out, ranks, id, rank)
#ifdef ALL
COUNT('C', ncclCommInitRankConfig, (ncclComm_t *out, int ranks, ncclUniqueId id, int rank, void *config), out, ranks, id, rank, config)
COUNT('S', ncclCommSplit, (ncclComm_t c, int color, int key, ncclComm_t *out, void *config), c, color, key, out, config)
COUNT('U', ncclGetUniqueId, (ncclUniqueId *id), id)
COUNT('D', ncclCommDestroy, (ncclComm_t c), c)
COUNT('E', ncclCommGetAsyncError, (ncclComm_t c, ncclResult_t *error), c, error)
COUNT('B', ncclCommRegister, (ncclComm_t c, void *buffer, size_t bytes, void **handle), c, buffer, bytes, handle)
COUNT('b', ncclCommDeregister, (ncclComm_t c, void *handle), c, handle)
COUNT('o', ncclRedOpCreatePreMulSum, (ncclRedOp_t *op, void *scalar, ncclDataType_t type, ncclScalarResidence_t where, ncclComm_t c), op, scalar,
      type, where, c)
#endif
COUNT('a', ncclAllReduce, (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t c, CUstream s), send,
      recv, count, type, op, c, s)
COUNT('r', ncclReduceScatter,
      (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t c, CUstream s), send, recv, count,
      type, op, c, s)
COUNT('g', ncclAllGather, (const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t c, CUstream s), send, recv, count,
      type, c, s)
COUNT('s', ncclSend, (const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t c, CUstream s), send, count, type, peer, c, s)
COUNT('v', ncclRecv, (void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t c, CUstream s), recv, count, type, peer, c, s)
COUNT('[', ncclGroupStart, (void))
COUNT(']', ncclGroupEnd, (void))

#ifdef NEWER
/* As a newer NCCL has functions that nobody knows yet, which take communicators: what programs have are NCCL's own then. */
int ncclCommFrobnicate(ncclComm_t c);

int ncclCommFrobnicate(ncclComm_t c)
{
	return c != NULL;
}
#endif
