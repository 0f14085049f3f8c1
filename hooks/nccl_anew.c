/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program was told it has of NCCL's while it ran forward, and how that is made once the ranks have agreed to go live. Each communicator is a fresh one, of the
 * same ranks in the same order, also where it was a part of another. In the order of their names, which is the same on all ranks: ranks that wait
 * for each other then cannot wait in a circle.
 */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "hooks/cuda_driver.h"
#include "hooks/nccl_private.h"
#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/base/lock_order.h"
#include "runtime/base/log.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the lists here */
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

/* ---- configurations -------------------------------------------------------------------------- */

/* As NCCL 2.30 has it: it grows at its end, and says its size. */
struct config {
	size_t size;
	unsigned magic, version;
	int blocking, cga_cluster_size, min_ctas, max_ctas;
	const char *net_name;
	int split_share, traffic_class;
	const char *comm_name;
	int collnet, cta_policy, shrink_share, nvls_ctas, channels_per_net_peer, nvlink_centric, graph_usage, rma_contexts, p2p_peers, graph_order;
};
enum { CONFIG_MAGIC = (int)0xcafebeef, LEAST = offsetof(struct config, cga_cluster_size) };

bool tpck_nccl_config_is_known(const ncclConfig_t *opaque)
{
	const struct config *config = (const void *)opaque;

	return !config || (config->size >= LEAST && config->size <= sizeof *config && (int)config->magic == CONFIG_MAGIC);
}

ncclConfig_t *tpck_nccl_config_copy(const ncclConfig_t *opaque)
{
	const struct config *config = (const void *)opaque;
	const char *net = NULL, *name = NULL;
	struct config *copy;
	char *text;

	if (!config || !tpck_nccl_config_is_known(opaque))
		return NULL;
	if (config->size >= offsetof(struct config, net_name) + sizeof net)
		net = config->net_name;
	if (config->size >= offsetof(struct config, comm_name) + sizeof name)
		name = config->comm_name;
	copy = calloc(1, sizeof *copy + (net ? strlen(net) + 1 : 0) + (name ? strlen(name) + 1 : 0));
	if (!copy)
		return NULL;
	memcpy(copy, config, config->size);
	text = (char *)(copy + 1);
	if (net) {
		copy->net_name = strcpy(text, net);
		text += strlen(net) + 1;
	}
	if (name)
		copy->comm_name = strcpy(text, name);
	return (ncclConfig_t *)copy;
}

/* By a communicator's place; freed when the place is another's. */
static struct kept {
	struct tpck_communicator *of;
	ncclConfig_t *config;
	struct kept *next;
} *kept;

static const ncclConfig_t *config_of(const struct tpck_communicator *of)
{
	const struct kept *at = kept;

	while (at && at->of != of)
		at = at->next;
	return at ? at->config : NULL;
}

void tpck_nccl_config_keep(struct tpck_communicator *of, const ncclConfig_t *config, ncclComm_t parent)
{
	struct tpck_communicator *inherits = !config && parent ? tpck_communicator_find(parent) : NULL;
	struct kept *at;

	pthread_mutex_lock(&lock);
	for (at = kept; at && at->of != of;)
		at = at->next;
	if (!at && (at = calloc(1, sizeof *at))) {
		at->of = of;
		at->next = kept;
		kept = at;
	}
	if (at) {
		free(at->config);
		at->config = tpck_nccl_config_copy(inherits ? config_of(inherits) : config);
	}
	pthread_mutex_unlock(&lock);
}

/* ---- ids ----------------------------------------------------------------------------------------- */

/* How long a rank that has gone on waits to hear that an id is another one now. Every rank that has gone on tells of all that it gives. */
#define HEAR_NS 1000000000ull

/* Given while running forward: those of the first run, by which nobody meets any more. */
static struct given {
	uint64_t name;
	bool spent;
} *given;
static size_t given_count;

static uint64_t name_of(const ncclUniqueId *id)
{
	return tpck_digest64(id, sizeof *id, 0x6964);
}

void tpck_nccl_id_pretend(const ncclUniqueId *id)
{
	struct given *grown;

	tpck_nccl_anew_begin();
	pthread_mutex_lock(&lock);
	grown = reallocarray(given, given_count + 1, sizeof *given);
	if (grown) {
		given = grown;
		given[given_count++] = (struct given){name_of(id), false};
	}
	pthread_mutex_unlock(&lock);
}

void tpck_nccl_id_spend(const ncclUniqueId *ids, int count)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; ids && i < count; i++)
		for (size_t k = 0; k < given_count; k++)
			if (given[k].name == name_of(&ids[i]))
				given[k].spent = true;
	pthread_mutex_unlock(&lock);
}

void tpck_nccl_id_given(const ncclUniqueId *id)
{
	if (tpck_engine_went_on())
		tpck_engine_id_tell(name_of(id), id);
}

ncclUniqueId *tpck_nccl_ids_now(const ncclUniqueId *ids, int count)
{
	ncclUniqueId *now = NULL;

	if (!tpck_engine_went_on() || !ids || count < 1)
		return NULL;
	now = reallocarray(NULL, (size_t)count, sizeof *now);
	for (int i = 0; now && i < count; i++)
		if (tpck_engine_id_await(name_of(&ids[i]), &now[i], HEAR_NS))
			now[i] = ids[i];
	return now;
}

/* Whoever was given one, and has not used it, will be asked by others for what it stands for. */
static ncclResult_t ids_anew(void)
{
	ncclResult_t result = ncclSuccess;

	for (size_t i = 0; result == ncclSuccess; i++) {
		struct given one = {0, true};
		ncclUniqueId id;
		bool more;

		pthread_mutex_lock(&lock);
		more = i < given_count;
		if (more)
			one = given[i];
		pthread_mutex_unlock(&lock);
		if (!more)
			break;
		if (one.spent)
			continue;
		result = TPCK_NCCL_CALL(ncclGetUniqueId, false, &id);
		if (result == ncclSuccess)
			tpck_engine_id_tell(one.name, &id);
	}
	return result;
}

/* ---- belongings ------------------------------------------------------------------------------------ */

struct belonging {
	struct tpck_communicator *of;
	enum { BUFFER, WINDOW, OPERATION } kind;
	void *buffer;
	size_t bytes;
	int flags;
	int op, real_op; /* as the program has it */
	ncclDataType_t type;
	ncclScalarResidence_t residence;
	uint64_t scalar;
	void *real;
	struct belonging *next;
};
static struct belonging *belongings;
static _Atomic bool any; /* there ever was one */
enum { FIRST_OPERATION = 0x7e000000 };

/* At the end: windows are registered by all ranks in one order. Under the lock. */
static void append(struct belonging *one)
{
	struct belonging **at = &belongings;

	while (*at)
		at = &(*at)->next;
	*at = one;
	atomic_store(&any, true);
}

void *tpck_nccl_registered(ncclComm_t comm, void *buffer, size_t bytes, bool window, int flags)
{
	struct belonging *one = calloc(1, sizeof *one);

	if (!one)
		return NULL;
	*one = (struct belonging){.of = tpck_communicator_find(comm), .kind = window ? WINDOW : BUFFER, .buffer = buffer, .bytes = bytes, .flags = flags};
	pthread_mutex_lock(&lock);
	append(one);
	pthread_mutex_unlock(&lock);
	return one;
}

int tpck_nccl_operation(ncclComm_t comm, const void *scalar, ncclDataType_t type, ncclScalarResidence_t residence)
{
	/* Bytes of each type; the first eleven have been the same in all versions, and a later one is at most as wide. */
	static const unsigned char widths[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
	struct belonging *one = calloc(1, sizeof *one);
	static int last;

	if (!one || (unsigned)type >= sizeof widths) {
		free(one);
		return -1;
	}
	*one = (struct belonging){.of = tpck_communicator_find(comm), .kind = OPERATION, .type = type, .residence = residence,
				  .scalar = (uint64_t)(uintptr_t)scalar};
	/* ncclScalarHostImmediate */
	if (residence == 1) {
		one->scalar = 0;
		memcpy(&one->scalar, scalar, widths[type]);
	}
	pthread_mutex_lock(&lock);
	one->op = one->real_op = FIRST_OPERATION + last++ % 0x100000;
	append(one);
	pthread_mutex_unlock(&lock);
	return one->op;
}

static struct belonging **find_registration(const void *value)
{
	struct belonging **at = &belongings;

	while (*at && ((*at)->kind == OPERATION || *at != value))
		at = &(*at)->next;
	return at;
}

static struct belonging **find_operation(const struct tpck_communicator *of, int op)
{
	struct belonging **at = &belongings;

	while (*at && ((*at)->kind != OPERATION || (*at)->of != of || (*at)->op != op))
		at = &(*at)->next;
	return at;
}

/* Takes it out. Under the lock. */
static void drop(struct belonging **at)
{
	struct belonging *one = *at;

	*at = one->next;
	free(one);
}

static void *registration(void *value, bool ends)
{
	struct belonging **at;

	if (!atomic_load(&any))
		return value;
	pthread_mutex_lock(&lock);
	at = find_registration(value);
	if (*at) {
		value = (*at)->real;
		if (ends)
			drop(at);
	}
	pthread_mutex_unlock(&lock);
	return value;
}

void *tpck_nccl_registration(void *value)
{
	return registration(value, false);
}

void *tpck_nccl_registration_ends(void *value)
{
	return registration(value, true);
}

static int operation(ncclComm_t comm, int op, bool ends)
{
	struct belonging **at;

	if (op < FIRST_OPERATION || !atomic_load(&any))
		return op;
	pthread_mutex_lock(&lock);
	at = find_operation(tpck_communicator_find(comm), op);
	if (*at) {
		op = (*at)->real_op;
		if (ends)
			drop(at);
	}
	pthread_mutex_unlock(&lock);
	return op;
}

int tpck_nccl_operation_of(ncclComm_t comm, int op)
{
	return operation(comm, op, false);
}

int tpck_nccl_operation_ends(ncclComm_t comm, int op)
{
	return operation(comm, op, true);
}

void *tpck_nccl_window_buffer(void *value)
{
	void *buffer;

	pthread_mutex_lock(&lock);
	buffer = *find_registration(value) ? (*find_registration(value))->buffer : NULL;
	pthread_mutex_unlock(&lock);
	return buffer;
}

void tpck_nccl_belongings_end(ncclComm_t comm)
{
	const struct tpck_communicator *of = tpck_communicator_find(comm);

	if (!of || !atomic_load(&any))
		return;
	pthread_mutex_lock(&lock);
	for (struct belonging **at = &belongings; *at;)
		if ((*at)->of == of)
			drop(at);
		else
			at = &(*at)->next;
	pthread_mutex_unlock(&lock);
}

static ncclResult_t belonging_anew(struct belonging *one, ncclComm_t comm)
{
	if (one->kind == BUFFER)
		return TPCK_NCCL_CALL(ncclCommRegister, false, comm, one->buffer, one->bytes, &one->real);
	if (one->kind == WINDOW)
		return TPCK_NCCL_CALL(ncclCommWindowRegister, false, comm, one->buffer, one->bytes, (ncclWindow_t *)&one->real, one->flags);
	return TPCK_NCCL_CALL(ncclRedOpCreatePreMulSum, false, &one->real_op,
			      one->residence == 1 ? (void *)&one->scalar : (void *)(uintptr_t)one->scalar, one->type, one->residence, comm);
}

/* In their order; the lock is not held meanwhile. */
static ncclResult_t belongings_anew(const struct tpck_communicator *of, ncclComm_t comm)
{
	ncclResult_t result = ncclSuccess;
	bool more = true;

	for (uint32_t done = 0; more && result == ncclSuccess; done++) {
		struct belonging *at, one = {0};
		uint32_t skip = done;

		pthread_mutex_lock(&lock);
		for (at = belongings; at && (at->of != of || skip--);)
			at = at->next;
		more = at != NULL;
		if (more)
			one = *at;
		pthread_mutex_unlock(&lock);
		if (!more)
			break;
		result = belonging_anew(&one, comm);
		pthread_mutex_lock(&lock);
		for (struct belonging *still = belongings; still; still = still->next)
			if (still == at) {
				still->real = one.real;
				still->real_op = one.real_op;
			}
		pthread_mutex_unlock(&lock);
	}
	return result;
}

/* ---- communicators ------------------------------------------------------------------------------------ */

static int by_name(const void *a, const void *b)
{
	const struct tpck_communicator *const *left = a, *const *right = b;

	if ((*left)->id != (*right)->id)
		return (*left)->id < (*right)->id ? -1 : 1;
	return (*left)->rank < (*right)->rank ? -1 : (*left)->rank > (*right)->rank;
}

/* One whose making goes on beside. */
static ncclResult_t ready(ncclComm_t comm)
{
	uint64_t limit = tpck_clock_monotonic_ns() + 900000000000ull;
	ncclResult_t result = ncclInProgress;

	while (comm && TPCK_NCCL_CALL(ncclCommGetAsyncError, false, comm, &result) == ncclSuccess && result == ncclInProgress &&
	       tpck_clock_monotonic_ns() < limit)
		syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &(struct timespec){0, 1000000}, NULL);
	return result;
}

/* Makes what has one name: ranks of one communicator in this process. */
static ncclResult_t make_anew(struct tpck_communicator *const *ranks, uint32_t count, int *waited)
{
	const struct tpck_communicator *first = ranks[0];
	ncclResult_t result = ncclSuccess, end;
	ncclUniqueId id;

	/* Nobody would come, and NCCL waits for ever. */
	if (first->size > count && tpck_engine_alone()) {
		*waited = -ENXIO;
		return ncclSystemError;
	}
	if (first->rank == 0) {
		result = TPCK_NCCL_CALL(ncclGetUniqueId, false, &id);
		if (result == ncclSuccess && first->size > count)
			tpck_engine_id_tell(first->id, &id);
	} else {
		*waited = tpck_engine_id_await(first->id, &id, 0);
		result = *waited ? ncclSystemError : ncclSuccess;
	}
	if (result == ncclSuccess && count > 1)
		result = TPCK_NCCL_CALL(ncclGroupStart, false);
	for (uint32_t i = 0; i < count && result == ncclSuccess; i++) {
		ncclConfig_t *config = (ncclConfig_t *)(uintptr_t)config_of(ranks[i]);
		ncclComm_t *out = (ncclComm_t *)&ranks[i]->real;

		result = config ? TPCK_NCCL_CALL(ncclCommInitRankConfig, false, out, (int)ranks[i]->size, id, (int)ranks[i]->rank, config) :
				  TPCK_NCCL_CALL(ncclCommInitRank, false, out, (int)ranks[i]->size, id, (int)ranks[i]->rank);
		if (result == ncclInProgress)
			result = ncclSuccess;
	}
	if (count > 1) {
		end = TPCK_NCCL_CALL(ncclGroupEnd, false);
		result = result == ncclSuccess && end != ncclInProgress ? end : result;
	}
	for (uint32_t i = 0; i < count && result == ncclSuccess; i++) {
		result = ready(atomic_load(&ranks[i]->real));
		if (result == ncclSuccess)
			result = belongings_anew(ranks[i], atomic_load(&ranks[i]->real));
		if (result == ncclSuccess)
			atomic_store(&ranks[i]->pending, false);
	}
	return result;
}

static int said(const struct tpck_communicator *communicator, ncclResult_t result, int waited, char *why, size_t size)
{
	const char *(*text)(ncclResult_t) = (__typeof__(text))tpck_nccl_symbol("ncclGetErrorString");

	snprintf(why, size, "communicator %u, rank %u of %u, is not made anew: %s", communicator->index, communicator->rank, communicator->size,
		 waited == -ENXIO ? "its other ranks are none of this job's" :
		 waited		  ? "no id came from its first rank" : text ? text(result) : "an error of NCCL's");
	return waited ? waited : -EIO;
}

/* Calls the function with all ranks of each communicator that is pending, in the order of their names, as long as it says so. */
static void each_pending(bool (*call)(struct tpck_communicator *const *ranks, uint32_t count, void *with), void *with)
{
	struct tpck_communicator *all[TPCK_COMMUNICATORS_MAX];
	uint32_t count = tpck_communicators_pending(all), run;
	bool more = true;

	qsort(all, count, sizeof *all, by_name);
	for (uint32_t i = 0; i < count && more; i += run) {
		for (run = 1; i + run < count && all[i + run]->id == all[i]->id;)
			run++;
		more = call(&all[i], run, with);
	}
}

struct refusal {
	char *why;
	size_t size;
	int result;
};

static bool has_all(struct tpck_communicator *const *ranks, uint32_t count, void *with)
{
	struct refusal *refusal = with;

	if (ranks[0]->size > count && tpck_engine_alone())
		refusal->result = said(ranks[0], ncclSystemError, -ENXIO, refusal->why, refusal->size);
	return !refusal->result;
}

/* By the engine, before ranks agree to go live. */
static int check_all(char *why, size_t size)
{
	struct refusal refusal = {why, size, 0};

	each_pending(has_all, &refusal);
	return refusal.result;
}

static bool make_one(struct tpck_communicator *const *ranks, uint32_t count, void *with)
{
	uint32_t *made = with;
	char why[240];
	int waited = 0;
	ncclResult_t result = make_anew(ranks, count, &waited);

	if (result == ncclSuccess && !waited) {
		*made += count;
		return true;
	}
	(void)said(ranks[0], result, waited, why, sizeof why);
	tpck_log_warn("%s; calls on it fail", why);
	for (uint32_t i = 0; i < count; i++) {
		atomic_store(&ranks[i]->real, NULL);
		atomic_store(&ranks[i]->pending, false);
	}
	return true;
}

/* By the engine, once the ranks have agreed to go live. */
static void make_all(void)
{
	uint32_t made = 0;

	if (ids_anew() != ncclSuccess)
		tpck_log_warn("NCCL gives no id");
	pthread_mutex_lock(&making);
	each_pending(make_one, &made);
	pthread_mutex_unlock(&making);
	if (made)
		tpck_log_debug("%u communicators were made anew", made);
}

void tpck_nccl_anew_begin(void)
{
	static const struct tpck_engine_nccl_maker maker = {check_all, make_all};

	tpck_engine_nccl_maker(&maker);
}

bool tpck_nccl_make_now(struct tpck_thread *self, ncclComm_t comm)
{
	/* Memory that is allocated meanwhile is none of the capture's. */
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	struct tpck_communicator *one;
	ncclResult_t result = ncclSuccess;
	char why[240];
	int waited = 0;

	if (!tpck_nccl_pretended(comm))
		return true;
	self->elsewhere = true;
	pthread_mutex_lock(&making);
	one = tpck_nccl_pretended(comm);
	(void)TPCK_CALL(cuThreadExchangeStreamCaptureMode, &mode);
	if (one)
		result = make_anew(&one, 1, &waited);
	(void)TPCK_CALL(cuThreadExchangeStreamCaptureMode, &mode);
	pthread_mutex_unlock(&making);
	self->elsewhere = false;
	if (result == ncclSuccess && !waited)
		return true;
	(void)said(one, result, waited, why, sizeof why);
	tpck_log_warn("%s", why);
	return false;
}
