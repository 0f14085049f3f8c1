/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of NCCL's communicators: they are made and ended for real in every mode, and known by the program's handle. */
#include "config.h"

#include "hooks/cuda_driver.h"
#include "hooks/nccl.h"
#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/track/communicators.h"

/* ---- a communicator that begins -------------------------------------------------------------------------- */

struct birth {
	ncclComm_t *out;
	uint64_t id;
	int size, rank; /* size 0: NCCL is to be asked */
};

static int ask(const char *symbol, ncclComm_t comm, int otherwise)
{
	ncclResult_t (*real)(ncclComm_t, int *) = (__typeof__(real))tpck_nccl_symbol(symbol);
	int value = otherwise;

	return real && real(comm, &value) == ncclSuccess ? value : otherwise;
}

static void born(struct tpck_thread *self, void *argument)
{
	const struct birth *birth = argument;
	ncclComm_t comm = *birth->out;
	int size = birth->size, rank = birth->rank;

	/* A rank without a colour gets none. */
	if (!self || !comm)
		return;
	if (!size) {
		size = ask("ncclCommCount", comm, 0);
		rank = ask("ncclCommUserRank", comm, 0);
	}
	if (size < 1 || rank < 0 ||
	    tpck_communicator_add(comm, birth->id, (uint32_t)size, (uint32_t)rank, ask("ncclCommCuDevice", comm, -1)))
		tpck_engine_unresumable("not every communicator of NCCL that the program has is known");
}

static struct tpck_thread *birth_begins(void)
{
	struct tpck_thread *self = tpck_nccl_enter();

	tpck_nccl_grouped(self);
	return self;
}

static ncclResult_t birth_ends(struct tpck_thread *self, const char *symbol, ncclResult_t result, const struct birth *birth)
{
	if (result == ncclSuccess || result == ncclInProgress) {
		struct birth copy = *birth;

		if (self)
			tpck_cuda_context_seen();
		if (birth->out && tpck_nccl_grouped(self))
			tpck_nccl_at_group_end(born, birth, sizeof *birth);
		else if (birth->out)
			born(self, &copy);
	}
	tpck_nccl_result(self, NULL, symbol, result);
	tpck_nccl_leave(self);
	return result;
}

static uint64_t digest_of_ids(const ncclUniqueId *ids, int count)
{
	return ids && count > 0 ? tpck_digest64(ids, (size_t)count * sizeof *ids, 0) : 0;
}

static ncclResult_t init_rank(bool profiling, ncclComm_t *comm, int nranks, const ncclUniqueId *id, int rank)
{
	struct tpck_thread *self = birth_begins();

	return birth_ends(self, "ncclCommInitRank", TPCK_NCCL_CALL(ncclCommInitRank, profiling, comm, nranks, *id, rank),
			  &(struct birth){comm, digest_of_ids(id, 1), nranks, rank});
}

ncclResult_t tpck_hook_ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank)
{
	return init_rank(false, comm, nranks, &commId, rank);
}

ncclResult_t tpck_hook_pncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank)
{
	return init_rank(true, comm, nranks, &commId, rank);
}

static ncclResult_t init_rank_config(bool profiling, ncclComm_t *comm, int nranks, const ncclUniqueId *id, int rank,
				     ncclConfig_t *config)
{
	struct tpck_thread *self = birth_begins();

	return birth_ends(self, "ncclCommInitRankConfig",
			  TPCK_NCCL_CALL(ncclCommInitRankConfig, profiling, comm, nranks, *id, rank, config),
			  &(struct birth){comm, digest_of_ids(id, 1), nranks, rank});
}

ncclResult_t tpck_hook_ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config)
{
	return init_rank_config(false, comm, nranks, &commId, rank, config);
}

ncclResult_t tpck_hook_pncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config)
{
	return init_rank_config(true, comm, nranks, &commId, rank, config);
}

static ncclResult_t init_rank_scalable(bool profiling, ncclComm_t *newcomm, int nranks, int rank, int count, ncclUniqueId *ids,
				       ncclConfig_t *config)
{
	struct tpck_thread *self = birth_begins();

	return birth_ends(self, "ncclCommInitRankScalable",
			  TPCK_NCCL_CALL(ncclCommInitRankScalable, profiling, newcomm, nranks, rank, count, ids, config),
			  &(struct birth){newcomm, digest_of_ids(ids, count), nranks, rank});
}

ncclResult_t tpck_hook_ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId, ncclUniqueId *commIds,
						ncclConfig_t *config)
{
	return init_rank_scalable(false, newcomm, nranks, myrank, nId, commIds, config);
}

ncclResult_t tpck_hook_pncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId, ncclUniqueId *commIds,
						 ncclConfig_t *config)
{
	return init_rank_scalable(true, newcomm, nranks, myrank, nId, commIds, config);
}

/* All ranks are in this process: the id need not be known anywhere else. */
static ncclResult_t init_all(bool profiling, ncclComm_t *comm, int ndev, const int *devlist)
{
	uint64_t seed[] = {(uint64_t)(uintptr_t)comm, tpck_clock_monotonic_ns()};
	struct tpck_thread *self = birth_begins();
	ncclResult_t result = TPCK_NCCL_CALL(ncclCommInitAll, profiling, comm, ndev, devlist);

	for (int i = 1; i < ndev && result == ncclSuccess; i++)
		born(self, &(struct birth){&comm[i], tpck_digest64(seed, sizeof seed, 0), ndev, i});
	return birth_ends(self, "ncclCommInitAll", result,
			  &(struct birth){comm, tpck_digest64(seed, sizeof seed, 0), ndev, 0});
}

ncclResult_t tpck_hook_ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist)
{
	return init_all(false, comm, ndev, devlist);
}

ncclResult_t tpck_hook_pncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist)
{
	return init_all(true, comm, ndev, devlist);
}

/* Every rank of the parent makes the same calls on it, in the same order. */
static uint64_t id_of_child(ncclComm_t parent, uint64_t which)
{
	struct tpck_communicator *communicator = tpck_communicator_find(parent);
	uint64_t from[] = {communicator ? communicator->id : 0,
			   communicator ? atomic_fetch_add(&communicator->births, 1) + 1 : 0, which};

	return tpck_digest64(from, sizeof from, 0);
}

static ncclResult_t split(bool profiling, ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config)
{
	struct tpck_thread *self = birth_begins();
	struct birth birth = {color == NCCL_SPLIT_NOCOLOR ? NULL : newcomm, 0, 0, 0};
	ncclResult_t result = TPCK_NCCL_CALL(ncclCommSplit, profiling, comm, color, key, newcomm, config);

	if (self)
		birth.id = id_of_child(comm, (uint64_t)(unsigned)color);
	return birth_ends(self, "ncclCommSplit", result, &birth);
}

ncclResult_t tpck_hook_ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config)
{
	return split(false, comm, color, key, newcomm, config);
}

ncclResult_t tpck_hook_pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config)
{
	return split(true, comm, color, key, newcomm, config);
}

static ncclResult_t shrink(bool profiling, ncclComm_t comm, int *excluded, int count, ncclComm_t *newcomm, ncclConfig_t *config,
			   int flags)
{
	struct tpck_thread *self = birth_begins();
	struct birth birth = {newcomm, 0, 0, 0};
	ncclResult_t result = TPCK_NCCL_CALL(ncclCommShrink, profiling, comm, excluded, count, newcomm, config, flags);

	if (self)
		birth.id = id_of_child(comm, excluded && count > 0 ? tpck_digest64(excluded, (size_t)count * sizeof *excluded, 1) : 0);
	return birth_ends(self, "ncclCommShrink", result, &birth);
}

ncclResult_t tpck_hook_ncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm,
				      ncclConfig_t *config, int shrinkFlags)
{
	return shrink(false, comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags);
}

ncclResult_t tpck_hook_pncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm,
				       ncclConfig_t *config, int shrinkFlags)
{
	return shrink(true, comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags);
}

/* ---- the end, and errors ------------------------------------------------------------------------------------ */

/* Forgotten before the real call: the handle may be given out again at once. */
static void ends(struct tpck_thread *self, ncclComm_t comm)
{
	if (self)
		tpck_communicator_remove(comm);
}

static ncclResult_t async_error(bool profiling, ncclComm_t comm, ncclResult_t *error)
{
	struct tpck_thread *self = tpck_nccl_enter();
	ncclResult_t result = TPCK_NCCL_CALL(ncclCommGetAsyncError, profiling, comm, error);

	if (result == ncclSuccess && error)
		tpck_nccl_result(self, comm, "NCCL", *error);
	tpck_nccl_leave(self);
	return result;
}

ncclResult_t tpck_hook_ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
	return async_error(false, comm, asyncError);
}

ncclResult_t tpck_hook_pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
	return async_error(true, comm, asyncError);
}

/* ---- what is passed on, NCCL being by itself meanwhile -------------------------------------------------------- */

static void refuse(struct tpck_thread *self, const char *why)
{
	if (self)
		tpck_engine_unresumable(why);
}

TPCK_NCCL_PASS(ncclGetUniqueId, (ncclUniqueId *uniqueId), (void)0, uniqueId)
TPCK_NCCL_PASS(ncclCommFinalize, (ncclComm_t comm), (void)0, comm)
TPCK_NCCL_PASS(ncclCommDestroy, (ncclComm_t comm), ends(self, comm), comm)
TPCK_NCCL_PASS(ncclCommAbort, (ncclComm_t comm), ends(self, comm), comm)
TPCK_NCCL_PASS(ncclCommRevoke, (ncclComm_t comm, int revokeFlags), (void)0, comm, revokeFlags)
TPCK_NCCL_PASS(ncclCommSuspend, (ncclComm_t comm, int flags), (void)0, comm, flags)
TPCK_NCCL_PASS(ncclCommResume, (ncclComm_t comm), (void)0, comm)
TPCK_NCCL_PASS(ncclCommGrow, (ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank, ncclComm_t *newcomm, ncclConfig_t *config),
     refuse(self, "the program lets a communicator grow (ncclCommGrow)"), comm, nRanks, uniqueId, rank, newcomm, config)
TPCK_NCCL_PASS(ncclCommRegister, (const ncclComm_t comm, void *buff, size_t size, void **handle), (void)0, comm, buff, size, handle)
TPCK_NCCL_PASS(ncclCommDeregister, (const ncclComm_t comm, void *handle), (void)0, comm, handle)
TPCK_NCCL_PASS(ncclCommWindowRegister, (ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags), (void)0, comm, buff,
     size, win, winFlags)
TPCK_NCCL_PASS(ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t win), (void)0, comm, win)
/* It is the driver's, at an address of its choice, and the program keeps its tensors there. */
TPCK_NCCL_PASS(ncclMemAlloc, (void **ptr, size_t size), refuse(self, "the program takes memory from NCCL (ncclMemAlloc)"), ptr, size)
TPCK_NCCL_PASS(ncclMemFree, (void *ptr), (void)0, ptr)
