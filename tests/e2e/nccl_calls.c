/* SPDX-License-Identifier: Apache-2.0 */
/* A tool that counts what comes to NCCL: preloaded behind the library, it writes a letter for each call into the file NCCL_CALLS. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "standin/nccl.h"

static void note(char letter)
{
	static int fd = -1;
	const char *path = getenv("NCCL_CALLS");

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
