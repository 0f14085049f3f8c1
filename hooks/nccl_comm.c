/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of NCCL's communicators: they are made and ended for real in every mode, and known by the program's handle, a key. */
#include "config.h"

#include "hooks/cuda_driver.h"
#include "hooks/nccl.h"
#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/track/communicators.h"

/* ---- a communicator that begins -------------------------------------------------------------------------- */

struct birth {
	ncclComm_t *out;                 /* the program's */
	struct tpck_communicator *place; /* NULL: the program is given NCCL's own handle, by NCCL */
	uint64_t id;
	int size, rank;                  /* size 0: NCCL is to be asked */
};

static int ask(const char *symbol, ncclComm_t comm, int otherwise)
{
	ncclResult_t (*real)(ncclComm_t, int *) = (__typeof__(real))tpck_nccl_symbol(symbol);
	int value = otherwise;

	return real && real(comm, &value) == ncclSuccess ? value : otherwise;
}

/* What NCCL has written, or NULL. */
static ncclComm_t made(const struct birth *birth)
{
	void *real = birth->place ? atomic_load(&birth->place->real) : *birth->out;

	return real == birth->place ? NULL : real;
}

static void born(struct tpck_thread *self, void *argument, bool good)
{
	const struct birth *birth = argument;
	int size = birth->size, rank = birth->rank, device;
	ncclComm_t comm = good ? made(birth) : NULL;

	/* A rank without a colour gets none. */
	if (!comm) {
		if (birth->place)
			tpck_communicator_release(birth->place);
		return;
	}
	if (!self)
		return;
	if (!size) {
		size = ask("ncclCommCount", comm, 0);
		rank = ask("ncclCommUserRank", comm, 0);
	}
	device = ask("ncclCommCuDevice", comm, -1);
	/* A key is one, even where nothing is known of what is behind it. */
	if (size < 1 || rank < 0)
		size = 0;
	else if (birth->place)
		tpck_communicator_begin(birth->place, birth->id, (uint32_t)size, (uint32_t)rank, device);
	else if (tpck_communicator_add(comm, birth->id, (uint32_t)size, (uint32_t)rank, device))
		size = 0;
	if (!size)
		tpck_engine_unresumable("not every communicator of NCCL that the program has is known");
}

/* Where NCCL is to write the handle. */
static ncclComm_t *where(const struct birth *birth)
{
	return birth->place ? (ncclComm_t *)&birth->place->real : birth->out;
}

/* `out` NULL: nothing will be there, or not yet. */
static struct tpck_thread *birth_begins(struct birth *birth, enum tpck_nccl_function function, bool profiling, ncclComm_t *out)
{
	struct tpck_thread *self = tpck_nccl_enter();

	tpck_nccl_grouped(self);
	birth->out = out;
	birth->place = self && out && tpck_nccl_keys(function, profiling) ? tpck_communicator_reserve() : NULL;
	return self;
}

static ncclResult_t birth_ends(struct tpck_thread *self, const char *symbol, ncclResult_t result, struct birth *birth)
{
	bool good = result == ncclSuccess || result == ncclInProgress, grouped = good && tpck_nccl_grouped(self);
	struct tpck_communicator *place = birth->place;
	void *left = place ? atomic_load(&place->real) : NULL;

	if (good && self)
		tpck_cuda_context_seen();
	/* In a group it is made at the end. A program may look for it before, as NCCL has its handle there by then. */
	if (place && good && (grouped || (left && left != place)))
		*birth->out = (ncclComm_t)place;
	else if (place && left != place)
		*birth->out = left;
	if (self && grouped && birth->out)
		tpck_nccl_at_group_end(born, birth, sizeof *birth);
	else if (birth->out && (good || place))
		born(self, birth, good);
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
	struct birth birth = {.id = digest_of_ids(id, 1), .size = nranks, .rank = rank};
	struct tpck_thread *self = birth_begins(&birth, TPCK_NCCL_ncclCommInitRank, profiling, comm);

	return birth_ends(self, "ncclCommInitRank", TPCK_NCCL_CALL(ncclCommInitRank, profiling, where(&birth), nranks, *id, rank), &birth);
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
	struct birth birth = {.id = digest_of_ids(id, 1), .size = nranks, .rank = rank};
	struct tpck_thread *self = birth_begins(&birth, TPCK_NCCL_ncclCommInitRankConfig, profiling, comm);

	return birth_ends(self, "ncclCommInitRankConfig",
			  TPCK_NCCL_CALL(ncclCommInitRankConfig, profiling, where(&birth), nranks, *id, rank, config), &birth);
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
	struct birth birth = {.id = digest_of_ids(ids, count), .size = nranks, .rank = rank};
	struct tpck_thread *self = birth_begins(&birth, TPCK_NCCL_ncclCommInitRankScalable, profiling, newcomm);

	return birth_ends(self, "ncclCommInitRankScalable",
			  TPCK_NCCL_CALL(ncclCommInitRankScalable, profiling, where(&birth), nranks, rank, count, ids, config), &birth);
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
	struct birth none = {0};
	struct tpck_thread *self = birth_begins(&none, TPCK_NCCL_ncclCommInitAll, profiling, NULL);
	ncclResult_t result = TPCK_NCCL_CALL(ncclCommInitAll, profiling, comm, ndev, devlist);
	bool grouped = tpck_nccl_grouped(self);
	/* NCCL fills the program's array in; in an outer group perhaps not before that ends, and its handles stay there. */
	bool keys = self && comm && result == ncclSuccess && !grouped && tpck_nccl_keys(TPCK_NCCL_ncclCommInitAll, profiling);

	for (int i = 0; self && comm && i < ndev && result == ncclSuccess; i++) {
		struct birth birth = {&comm[i], keys ? tpck_communicator_reserve() : NULL, tpck_digest64(seed, sizeof seed, 0), ndev, i};

		if (birth.place) {
			atomic_store(&birth.place->real, comm[i]);
			comm[i] = (ncclComm_t)birth.place;
		}
		if (grouped)
			tpck_nccl_at_group_end(born, &birth, sizeof birth);
		else
			born(self, &birth, true);
	}
	return birth_ends(self, "ncclCommInitAll", result, &none);
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
	struct birth birth = {0};
	/* Without a colour there will be none, and NCCL says so. */
	struct tpck_thread *self = birth_begins(&birth, TPCK_NCCL_ncclCommSplit, profiling, color == NCCL_SPLIT_NOCOLOR ? NULL : newcomm);
	ncclResult_t result = TPCK_NCCL_CALL(ncclCommSplit, profiling, TPCK_NCCL_HANDLE(comm), color, key,
					     birth.place ? where(&birth) : newcomm, config);

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
	struct birth birth = {0};
	struct tpck_thread *self = birth_begins(&birth, TPCK_NCCL_ncclCommShrink, profiling, newcomm);
	ncclResult_t result = TPCK_NCCL_CALL(ncclCommShrink, profiling, TPCK_NCCL_HANDLE(comm), excluded, count, where(&birth), config, flags);

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
static ncclResult_t ends(bool profiling, enum tpck_nccl_function function, ncclComm_t comm)
{
	struct tpck_thread *self = tpck_nccl_enter();
	ncclResult_t (*real)(ncclComm_t) = (__typeof__(real))tpck_nccl_real(function, profiling);
	ncclComm_t handle = TPCK_NCCL_HANDLE(comm);
	ncclResult_t result;

	/* A key whose communicator is gone is nobody's, whoever follows. */
	if (self || handle != comm)
		tpck_communicator_remove(comm);
	result = real ? real(handle) : ncclSystemError;
	tpck_nccl_leave(self);
	return result;
}

ncclResult_t tpck_hook_ncclCommDestroy(ncclComm_t comm)
{
	return ends(false, TPCK_NCCL_ncclCommDestroy, comm);
}

ncclResult_t tpck_hook_pncclCommDestroy(ncclComm_t comm)
{
	return ends(true, TPCK_NCCL_ncclCommDestroy, comm);
}

ncclResult_t tpck_hook_ncclCommAbort(ncclComm_t comm)
{
	return ends(false, TPCK_NCCL_ncclCommAbort, comm);
}

ncclResult_t tpck_hook_pncclCommAbort(ncclComm_t comm)
{
	return ends(true, TPCK_NCCL_ncclCommAbort, comm);
}

static ncclResult_t async_error(bool profiling, ncclComm_t comm, ncclResult_t *error)
{
	struct tpck_thread *self = tpck_nccl_enter();
	ncclResult_t result = TPCK_NCCL_CALL(ncclCommGetAsyncError, profiling, TPCK_NCCL_HANDLE(comm), error);

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

static ncclResult_t grow(bool profiling, ncclComm_t comm, int ranks, const ncclUniqueId *id, int rank, ncclComm_t *newcomm, ncclConfig_t *config)
{
	struct birth birth = {0};
	struct tpck_thread *self = birth_begins(&birth, TPCK_NCCL_ncclCommGrow, profiling, newcomm);
	ncclResult_t result;

	if (self) {
		birth.id = id_of_child(comm, (uint64_t)(unsigned)ranks);
		tpck_engine_unresumable("the program lets a communicator grow (ncclCommGrow)");
	}
	result = TPCK_NCCL_CALL(ncclCommGrow, profiling, TPCK_NCCL_HANDLE(comm), ranks, id, rank, where(&birth), config);
	return birth_ends(self, "ncclCommGrow", result, &birth);
}

ncclResult_t tpck_hook_ncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank, ncclComm_t *newcomm, ncclConfig_t *config)
{
	return grow(false, comm, nRanks, uniqueId, rank, newcomm, config);
}

ncclResult_t tpck_hook_pncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank, ncclComm_t *newcomm, ncclConfig_t *config)
{
	return grow(true, comm, nRanks, uniqueId, rank, newcomm, config);
}

/* ---- what is passed on, NCCL being by itself meanwhile -------------------------------------------------------- */

static void refuse(struct tpck_thread *self, const char *why)
{
	if (self)
		tpck_engine_unresumable(why);
}

#define H TPCK_NCCL_HANDLE
TPCK_NCCL_PASS(ncclGetUniqueId, (ncclUniqueId *uniqueId), (void)0, uniqueId)
TPCK_NCCL_PASS(ncclCommGetUniqueId, (ncclComm_t comm, ncclUniqueId *uniqueId), (void)0, H(comm), uniqueId)
TPCK_NCCL_PASS(ncclCommFinalize, (ncclComm_t comm), (void)0, H(comm))
TPCK_NCCL_PASS(ncclCommRevoke, (ncclComm_t comm, int revokeFlags), (void)0, H(comm), revokeFlags)
TPCK_NCCL_PASS(ncclCommSuspend, (ncclComm_t comm, int flags), (void)0, H(comm), flags)
TPCK_NCCL_PASS(ncclCommResume, (ncclComm_t comm), (void)0, H(comm))
TPCK_NCCL_PASS_AS(const char *, NULL, ncclGetLastError, (ncclComm_t comm), (void)0, H(comm))
TPCK_NCCL_PASS(ncclCommCount, (const ncclComm_t comm, int *count), (void)0, H(comm), count)
TPCK_NCCL_PASS(ncclCommCuDevice, (const ncclComm_t comm, int *device), (void)0, H(comm), device)
TPCK_NCCL_PASS(ncclCommUserRank, (const ncclComm_t comm, int *rank), (void)0, H(comm), rank)
TPCK_NCCL_PASS(ncclCommMemStats, (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value), (void)0, H(comm), stat, value)
TPCK_NCCL_PASS(ncclRedOpCreatePreMulSum,
     (ncclRedOp_t *op, void *scalar, ncclDataType_t datatype, ncclScalarResidence_t residence, ncclComm_t comm), (void)0, op, scalar, datatype,
     residence, H(comm))
TPCK_NCCL_PASS(ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm), (void)0, op, H(comm))
TPCK_NCCL_PASS(ncclCommRegister, (const ncclComm_t comm, void *buff, size_t size, void **handle), (void)0, H(comm), buff, size, handle)
TPCK_NCCL_PASS(ncclCommDeregister, (const ncclComm_t comm, void *handle), (void)0, H(comm), handle)
TPCK_NCCL_PASS(ncclCommWindowRegister, (ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags), (void)0, H(comm), buff,
     size, win, winFlags)
TPCK_NCCL_PASS(ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t win), (void)0, H(comm), win)
TPCK_NCCL_PASS(ncclWinGetUserPtr, (ncclComm_t comm, ncclWindow_t win, void **outUserPtr), (void)0, H(comm), win, outUserPtr)
/* It is the driver's, at an address of its choice, and the program keeps its tensors there. */
TPCK_NCCL_PASS(ncclMemAlloc, (void **ptr, size_t size), refuse(self, "the program takes memory from NCCL (ncclMemAlloc)"), ptr, size)
TPCK_NCCL_PASS(ncclMemFree, (void *ptr), (void)0, ptr)

/* Kernels of the program's that use it exchange data behind everybody's back. */
TPCK_NCCL_PASS(ncclDevCommCreate, (ncclComm_t comm, const ncclDevCommRequirements_t *reqs, ncclDevComm_t *outDevComm),
     refuse(self, "the program's kernels use a communicator (ncclDevCommCreate)"), H(comm), reqs, outDevComm)
TPCK_NCCL_PASS(ncclDevCommDestroy, (ncclComm_t comm, const ncclDevComm_t *devComm), (void)0, H(comm), devComm)
TPCK_NCCL_PASS(ncclCommQueryProperties, (ncclComm_t comm, ncclCommProperties_t *props), (void)0, H(comm), props)
TPCK_NCCL_PASS(ncclGinBarrierCreateRequirement,
     (ncclComm_t comm, ncclTeam_t team, int nBarriers, ncclGinBarrierHandle_t *outHandle, ncclDevResourceRequirements_t *outReq), (void)0,
     H(comm), team, nBarriers, outHandle, outReq)
TPCK_NCCL_PASS_AS(ncclTeam_t, (ncclTeam_t){0}, ncclTeamWorld, (ncclComm_t comm), (void)0, H(comm))
TPCK_NCCL_PASS_AS(ncclTeam_t, (ncclTeam_t){0}, ncclTeamLsa, (ncclComm_t comm), (void)0, H(comm))
TPCK_NCCL_PASS_AS(ncclTeam_t, (ncclTeam_t){0}, ncclTeamRail, (ncclComm_t comm), (void)0, H(comm))
TPCK_NCCL_PASS_AS(int, -1, ncclTeamRankToWorld, (ncclComm_t comm, ncclTeam_t team, int rank), (void)0, H(comm), team, rank)
TPCK_NCCL_PASS_AS(int, -1, ncclTeamRankToLsa, (ncclComm_t comm, ncclTeam_t team, int rank), (void)0, H(comm), team, rank)
