/* SPDX-License-Identifier: Apache-2.0 */
/* Where the ranks of a communicator meet: the process that made the id gives each of them the same memory. */
#ifndef TESTS_SIM_STANDIN_MEET_H
#define TESTS_SIM_STANDIN_MEET_H

#include <stdint.h>

#include "exchange.h"
#include "standin/nccl.h"

/* The other processes. Ranks may be where no process number of another rank means anything. */
struct meet_peers {
	int n;
	int fd[SIM_EXCHANGE_RANKS]; /* of each a pidfd */
	int of[SIM_EXCHANGE_RANKS]; /* which of them a rank is in, or -1: in this process */
};

/* Makes an id and waits behind it, in a thread of its own, until all ranks have come. */
ncclResult_t meet_open(ncclUniqueId *id);
/* Says that this rank is there; `fd` is for meet_wait(). */
ncclResult_t meet_join(const ncclUniqueId *id, int rank, int ranks, int *fd);
/* Waits until all are there. ncclRemoteError: the process that made the id has gone. */
ncclResult_t meet_wait(int fd, int ranks, struct sim_exchange_shared **out, struct meet_peers *peers);
uint64_t meet_bytes(int ranks);

#endif
