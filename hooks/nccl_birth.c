/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks of NCCL's that make communicators. Live each is made for real, and what it turned out to be is in the record. Running forward it is
 * what the record says, and nothing is made: at going live hooks/nccl_anew.c does that.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "hooks/cuda_driver.h"
#include "hooks/nccl_private.h"
#include "runtime/base/clock.h"
#include "runtime/base/digest.h"

/* A call that makes one, in the record. */
struct born {
	uint64_t id;     /* the same in all its ranks, whatever their ids say when they run forward */
	int32_t result;
	uint32_t made;   /* 0: a rank without a colour got none, or the call failed */
	uint32_t size, rank;
	int32_t device;
	uint32_t reserved;
};

static bool is_good(ncclResult_t result)
{
	return result == ncclSuccess || result == ncclInProgress;
}

/* A rank without a colour gets none, and NCCL says so. */
static bool is_none(const struct tpck_birth *birth)
{
	return birth->kind == TPCK_BIRTH_SPLIT && birth->color == NCCL_SPLIT_NOCOLOR;
}

static int ask(const char *symbol, ncclComm_t comm, int otherwise)
{
	ncclResult_t (*real)(ncclComm_t, int *) = (__typeof__(real))tpck_nccl_symbol(symbol);
	int value = otherwise;

	return real && real(comm, &value) == ncclSuccess ? value : otherwise;
}

/* ---- names -------------------------------------------------------------------------------------- */

/* Every rank of the parent makes the same calls on it, in the same order. */
static uint64_t id_of_child(const struct tpck_birth *birth)
{
	struct tpck_communicator *parent = tpck_communicator_find(birth->parent);
	uint64_t which = (uint64_t)(unsigned)birth->color, from[3];

	if (birth->kind == TPCK_BIRTH_SHRINK)
		which = birth->excluded && birth->excluded_count > 0 ?
				tpck_digest64(birth->excluded, (size_t)birth->excluded_count * sizeof *birth->excluded, 1) : 0;
	from[0] = parent ? parent->id : 0;
	from[1] = parent ? atomic_fetch_add(&parent->births, 1) + 1 : 0;
	from[2] = which;
	return tpck_digest64(from, sizeof from, 0);
}

static uint64_t id_of(const struct tpck_birth *birth)
{
	if (!birth->ids)
		return id_of_child(birth);
	return birth->ids_count > 0 ? tpck_digest64(birth->ids, (size_t)birth->ids_count * sizeof *birth->ids, 0) : 0;
}

/* ---- for real ------------------------------------------------------------------------------------ */

/* Where NCCL is to write the handle. */
static ncclComm_t *where(const struct tpck_birth *birth)
{
	return birth->place ? (ncclComm_t *)&birth->place->real : birth->out;
}

static ncclResult_t make_rank(const struct tpck_birth *b, const ncclUniqueId *ids)
{
	switch (b->kind) {
	case TPCK_BIRTH_RANK:
		return TPCK_NCCL_CALL(ncclCommInitRank, b->profiling, where(b), b->size, *ids, b->rank);
	case TPCK_BIRTH_CONFIG:
		return TPCK_NCCL_CALL(ncclCommInitRankConfig, b->profiling, where(b), b->size, *ids, b->rank, b->config);
	default:
		return TPCK_NCCL_CALL(ncclCommInitRankScalable, b->profiling, where(b), b->size, b->rank, b->ids_count,
				      (ncclUniqueId *)(uintptr_t)ids, b->config);
	}
}

static ncclResult_t make(const struct tpck_birth *b)
{
	ncclUniqueId *ids;
	ncclResult_t result;

	switch (b->kind) {
	case TPCK_BIRTH_SPLIT:
		return TPCK_NCCL_CALL(ncclCommSplit, b->profiling, TPCK_NCCL_HANDLE(b->parent), b->color, b->key, where(b), b->config);
	case TPCK_BIRTH_SHRINK:
		return TPCK_NCCL_CALL(ncclCommShrink, b->profiling, TPCK_NCCL_HANDLE(b->parent), (int *)(uintptr_t)b->excluded, b->excluded_count,
				      where(b), b->config, b->flags);
	case TPCK_BIRTH_GROW:
		return TPCK_NCCL_CALL(ncclCommGrow, b->profiling, TPCK_NCCL_HANDLE(b->parent), b->size, b->grown, b->rank, where(b), b->config);
	default:
		break;
	}
	ids = tpck_nccl_ids_now(b->ids, b->ids_count);
	result = make_rank(b, ids ? ids : b->ids);
	free(ids);
	return result;
}

/* What NCCL has written, or NULL. */
static ncclComm_t made(const struct tpck_birth *birth)
{
	void *real = birth->place ? atomic_load(&birth->place->real) : *birth->out;

	return real == birth->place ? NULL : real;
}

/* A call on which nothing more is done: what came of it. */
static void settle(struct tpck_thread *self, const struct tpck_birth *birth, ncclResult_t result)
{
	ncclComm_t comm = is_good(result) && birth->out && !is_none(birth) ? made(birth) : NULL;
	struct born born = {.id = birth->id, .result = result, .made = comm != NULL, .size = (uint32_t)birth->size, .rank = (uint32_t)birth->rank, .device = -1};
	bool known = true;

	if (!comm && birth->place)
		tpck_communicator_release(birth->place);
	if (!self)
		return;
	if (comm) {
		if (!birth->ids) {
			born.size = (uint32_t)ask("ncclCommCount", comm, 0);
			born.rank = (uint32_t)ask("ncclCommUserRank", comm, 0);
		}
		born.device = ask("ncclCommCuDevice", comm, -1);
		/* A key is one, even where nothing is known of what is behind it. */
		known = (int)born.size > 0 && (int)born.rank >= 0;
		if (known && birth->place)
			tpck_communicator_begin(birth->place, birth->id, born.size, born.rank, born.device);
		else if (known && tpck_communicator_add(comm, birth->id, born.size, born.rank, born.device))
			known = false;
	}
	tpck_engine_nccl_note(self, &born, sizeof born);
	if (!known)
		tpck_engine_unresumable("not every communicator of NCCL that the program has is known");
	if (comm && !tpck_nccl_config_is_known(birth->config))
		tpck_engine_unresumable("a communicator is configured in a way that only a newer NCCL knows");
}

/* At the end of a group. */
static void settle_later(struct tpck_thread *self, void *birth, bool good)
{
	settle(self, birth, good ? ncclSuccess : ncclSystemError);
}

/* Gives the program its handle. grouped: NCCL makes it at the group's end. */
static void give(const struct tpck_birth *birth, ncclResult_t result, bool grouped)
{
	struct tpck_communicator *place = birth->place;
	void *left = place ? atomic_load(&place->real) : NULL;

	/* A program may look for it before the group's end, as NCCL has its handle there by then. */
	if (place && is_good(result) && (grouped || (left && left != place)))
		*birth->out = (ncclComm_t)place;
	else if (place && left != place)
		*birth->out = left;
}

static ncclResult_t for_real(struct tpck_thread *self, struct tpck_birth *birth, bool keys)
{
	bool grouped = tpck_nccl_grouped(self);
	ncclResult_t result;

	birth->place = keys && birth->out && !is_none(birth) ? tpck_communicator_reserve() : NULL;
	result = make(birth);
	if (is_good(result) && self)
		tpck_cuda_context_seen();
	grouped = grouped && is_good(result);
	give(birth, result, grouped);
	if (self && grouped)
		tpck_nccl_at_group_end(settle_later, birth, sizeof *birth);
	else
		settle(self, birth, result);
	return tpck_nccl_result(self, NULL, birth->called, result);
}

/* ---- running forward --------------------------------------------------------------------------------- */

/* As the first run had it. */
static ncclResult_t pretend(struct tpck_thread *self, struct tpck_birth *birth, const struct born *born)
{
	struct tpck_communicator *place = birth->place;

	if (!place && born->made)
		place = tpck_communicator_reserve();
	if (place && born->made) {
		tpck_nccl_config_keep(place, birth->config, birth->parent);
		tpck_nccl_anew_begin();
		atomic_store(&place->pending, true);
		atomic_store(&place->real, NULL);
		tpck_communicator_begin(place, born->id, born->size, born->rank, born->device);
		tpck_nccl_id_spend(birth->ids, birth->ids_count);
		*birth->out = (ncclComm_t)place;
		/* A graph that captures calls on it is made for real, and cannot wait; nor can a communicator be made while one is captured. */
		if (tpck_engine_nccl_will_capture(place->index) && !tpck_nccl_make_now(self, *birth->out))
			return ncclSystemError;
		return born->result;
	}
	if (place)
		tpck_communicator_release(place);
	if (is_good(born->result) && !born->made && birth->out)
		*birth->out = NULL;
	return is_good(born->result) && born->made ? ncclSystemError : born->result;
}

bool tpck_birth_answer(struct tpck_thread *self, struct tpck_birth *birth, ncclResult_t *result)
{
	struct born born;

	if (!tpck_engine_nccl_answer(self, &born, sizeof born))
		return false;
	*result = pretend(self, birth, &born);
	return true;
}

ncclResult_t tpck_birth_make(struct tpck_birth *birth)
{
	return make(birth);
}

void tpck_birth_settle(struct tpck_thread *self, struct tpck_birth *birth, bool good)
{
	settle_later(self, birth, good);
}

/* Everything that the call's arguments point to is the caller's. */
static struct tpck_birth *copy_of(const struct tpck_birth *birth)
{
	size_t ids = birth->ids ? (size_t)birth->ids_count * sizeof *birth->ids : 0;
	size_t excluded = birth->excluded && birth->excluded_count > 0 ? (size_t)birth->excluded_count * sizeof *birth->excluded : 0;
	struct tpck_birth *copy = malloc(sizeof *copy + ids + excluded);
	char *more = (char *)(copy + 1);

	if (!copy)
		return NULL;
	*copy = *birth;
	if (ids)
		copy->ids = memcpy(more, birth->ids, ids);
	if (excluded)
		copy->excluded = memcpy(more + ids, birth->excluded, excluded);
	copy->config = tpck_nccl_config_copy(birth->config);
	return copy;
}

void tpck_birth_free(struct tpck_birth *birth)
{
	free(birth->config);
	free(birth);
}

/* In a group that was begun while running forward: whether it is made, or is in the record, is known at its end. */
static ncclResult_t keep(struct tpck_birth *birth)
{
	struct tpck_birth *copy = copy_of(birth);

	if (!copy)
		return ncclSystemError;
	if (birth->out && !is_none(birth))
		copy->place = tpck_communicator_reserve();
	if ((birth->out && !is_none(birth) && !copy->place) || !tpck_nccl_group_keep(copy)) {
		if (copy->place)
			tpck_communicator_release(copy->place);
		tpck_birth_free(copy);
		return ncclSystemError;
	}
	if (copy->place)
		*birth->out = (ncclComm_t)copy->place;
	else if (birth->out)
		*birth->out = NULL;
	return ncclSuccess;
}

/* ---- the calls ------------------------------------------------------------------------------------------ */

static ncclResult_t birth(const struct tpck_birth *call)
{
	struct tpck_thread *self = tpck_engine_enter();
	struct tpck_birth b = *call;
	bool keys = self && tpck_nccl_keys();
	ncclResult_t result;

	if (self)
		b.id = id_of(&b);
	if (b.kind == TPCK_BIRTH_GROW && self) {
		tpck_engine_unresumable("the program lets a communicator grow (ncclCommGrow)");
		tpck_engine_nccl_await(self);
	}
	if (keys && tpck_nccl_group_keeps()) {
		result = keep(&b);
	} else if (!keys || tpck_nccl_grouped_now() || !tpck_birth_answer(self, &b, &result)) {
		/* Without keys it is made while running forward, too, and the record's answer is left. */
		if (self && !keys && !tpck_nccl_grouped_now())
			(void)tpck_engine_nccl_answer(self, &(struct born){0}, sizeof(struct born));
		if (self)
			self->elsewhere = true;
		result = for_real(self, &b, keys);
	}
	tpck_nccl_leave(self);
	return result;
}

#define BOTH(symbol, params, ...)                                                                 \
	ncclResult_t tpck_hook_##symbol params                                                    \
	{                                                                                         \
		return birth(&(struct tpck_birth){.called = #symbol, .profiling = false, __VA_ARGS__}); \
	}                                                                                         \
	ncclResult_t tpck_hook_p##symbol params                                                   \
	{                                                                                         \
		return birth(&(struct tpck_birth){.called = #symbol, .profiling = true, __VA_ARGS__});  \
	}

BOTH(ncclCommInitRank, (ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank), .kind = TPCK_BIRTH_RANK, .out = comm, .size = nranks,
     .rank = rank, .ids = &commId, .ids_count = 1)
BOTH(ncclCommInitRankConfig, (ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config), .kind = TPCK_BIRTH_CONFIG,
     .out = comm, .size = nranks, .rank = rank, .ids = &commId, .ids_count = 1, .config = config)
BOTH(ncclCommInitRankScalable, (ncclComm_t *newcomm, int nranks, int myrank, int nId, ncclUniqueId *commIds, ncclConfig_t *config),
     .kind = TPCK_BIRTH_SCALABLE, .out = newcomm, .size = nranks, .rank = myrank, .ids = commIds, .ids_count = nId, .config = config)
BOTH(ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config), .kind = TPCK_BIRTH_SPLIT, .out = newcomm,
     .parent = comm, .color = color, .key = key, .config = config)
BOTH(ncclCommShrink,
     (ncclComm_t comm, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm, ncclConfig_t *config, int shrinkFlags),
     .kind = TPCK_BIRTH_SHRINK, .out = newcomm, .parent = comm, .excluded = excludeRanksList, .excluded_count = excludeRanksCount,
     .flags = shrinkFlags, .config = config)
BOTH(ncclCommGrow, (ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank, ncclComm_t *newcomm, ncclConfig_t *config),
     .kind = TPCK_BIRTH_GROW, .out = newcomm, .parent = comm, .size = nRanks, .grown = uniqueId, .rank = rank, .config = config)

/* All ranks are in this process: the id need not be known anywhere else. */
static ncclResult_t init_all(bool profiling, ncclComm_t *comm, int ndev, const int *devlist)
{
	uint64_t seed[] = {(uint64_t)(uintptr_t)comm, tpck_clock_monotonic_ns()};
	struct tpck_thread *self = tpck_engine_enter();
	bool grouped = tpck_nccl_grouped_now(), keys = self && !grouped && tpck_nccl_keys(), forward = false;
	struct tpck_birth b = {.kind = TPCK_BIRTH_RANK, .profiling = profiling, .ids = &(ncclUniqueId){""}, .id = tpck_digest64(seed, sizeof seed, 0),
			       .size = ndev};
	ncclResult_t result = ncclSuccess;

	if (self && grouped)
		tpck_engine_unresumable("the program calls ncclCommInitAll in a group of its own");
	for (int i = 0; comm && keys && i < ndev && result == ncclSuccess; i++) {
		b.out = &comm[i];
		b.rank = i;
		forward = tpck_birth_answer(self, &b, &result);
		if (!forward)
			break;
	}
	if (forward) {
		tpck_nccl_leave(self);
		return result;
	}
	if (self)
		self->elsewhere = true;
	tpck_nccl_grouped(self);
	result = TPCK_NCCL_CALL(ncclCommInitAll, profiling, comm, ndev, devlist);
	if (result == ncclSuccess && self)
		tpck_cuda_context_seen();
	/* NCCL fills the program's array in; in an outer group perhaps not before that ends, and its handles stay there. */
	for (int i = 0; self && comm && i < ndev && result == ncclSuccess; i++) {
		b.out = &comm[i];
		b.rank = i;
		b.place = keys ? tpck_communicator_reserve() : NULL;
		if (b.place) {
			atomic_store(&b.place->real, comm[i]);
			comm[i] = (ncclComm_t)b.place;
		}
		if (grouped)
			tpck_nccl_at_group_end(settle_later, &b, sizeof b);
		else
			settle(self, &b, result);
	}
	tpck_nccl_result(self, NULL, "ncclCommInitAll", result);
	tpck_nccl_leave(self);
	return result;
}

ncclResult_t tpck_hook_ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist)
{
	return init_all(false, comm, ndev, devlist);
}

ncclResult_t tpck_hook_pncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist)
{
	return init_all(true, comm, ndev, devlist);
}
