/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks of NCCL's collectives, transfers and groups. Each is one operation of its stream; a group is one operation, too,
 * since all of it is queued when it ends: a boundary inside of it would have calls on its wrong side. While running forward
 * nothing is queued. A group that begins then is kept until its end, when it is known whether the process has gone live.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "hooks/cuda_driver.h"
#include "hooks/cuda_graph.h"
#include "hooks/nccl_private.h"
#include "runtime/track/communicator_calls.h"

enum { OPS = 5 /* of NCCL's own; behind them are the program's */, GROUP_ROOM = 16 };

struct collective {
	enum tpck_collective kind;
	const void *send;
	void *recv;
	size_t count;
	ncclDataType_t type;
	ncclRedOp_t op;
	int place; /* root or peer */
	ncclComm_t comm;
	cudaStream_t stream;
	bool profiling;
};

struct later {
	struct later *next;
	void (*done)(struct tpck_thread *self, void *argument, bool good);
	char argument[];
};

/* The calling thread's group. */
struct group {
	unsigned depth;
	bool kept;      /* calls are made at its end only */
	bool begun;     /* the real group is open */
	bool profiling; /* it was begun by its profiling name */
	uint32_t calls, room;
	struct collective *call;
	struct later *later, **last;
	uint32_t births, births_room; /* communicators that are to be made, where calls are kept */
	struct tpck_birth **birth;
};
static __thread struct group *group __attribute__((tls_model("initial-exec")));

/* ---- the real calls ---------------------------------------------------------------------------------- */

static ncclResult_t queue(const struct collective *c)
{
	const ncclComm_t comm = TPCK_NCCL_HANDLE(c->comm);
	const ncclRedOp_t op = __builtin_expect(c->op < OPS, 1) ? c->op : tpck_nccl_operation_of(c->comm, c->op);

	switch (c->kind) {
	case TPCK_ALL_REDUCE:
		return TPCK_NCCL_CALL(ncclAllReduce, c->profiling, c->send, c->recv, c->count, c->type, op, comm, c->stream);
	case TPCK_REDUCE:
		return TPCK_NCCL_CALL(ncclReduce, c->profiling, c->send, c->recv, c->count, c->type, op, c->place, comm, c->stream);
	case TPCK_REDUCE_SCATTER:
		return TPCK_NCCL_CALL(ncclReduceScatter, c->profiling, c->send, c->recv, c->count, c->type, op, comm, c->stream);
	case TPCK_BROADCAST:
		return TPCK_NCCL_CALL(ncclBroadcast, c->profiling, c->send, c->recv, c->count, c->type, c->place, comm, c->stream);
	case TPCK_BCAST:
		return TPCK_NCCL_CALL(ncclBcast, c->profiling, c->recv, c->count, c->type, c->place, comm, c->stream);
	case TPCK_ALL_GATHER:
		return TPCK_NCCL_CALL(ncclAllGather, c->profiling, c->send, c->recv, c->count, c->type, comm, c->stream);
	case TPCK_ALL_TO_ALL:
		return TPCK_NCCL_CALL(ncclAlltoAll, c->profiling, c->send, c->recv, c->count, c->type, comm, c->stream);
	case TPCK_GATHER:
		return TPCK_NCCL_CALL(ncclGather, c->profiling, c->send, c->recv, c->count, c->type, c->place, comm, c->stream);
	case TPCK_SCATTER:
		return TPCK_NCCL_CALL(ncclScatter, c->profiling, c->send, c->recv, c->count, c->type, c->place, comm, c->stream);
	case TPCK_SEND:
		return TPCK_NCCL_CALL(ncclSend, c->profiling, c->send, c->count, c->type, c->place, comm, c->stream);
	case TPCK_RECV:
		return TPCK_NCCL_CALL(ncclRecv, c->profiling, c->recv, c->count, c->type, c->place, comm, c->stream);
	}
	return ncclSystemError;
}

/* The same inside of a hook: the calling thread is NCCL's meanwhile. */
static ncclResult_t queue_elsewhere(struct tpck_thread *self, const struct collective *c)
{
	ncclResult_t result;

	if (!tpck_nccl_make_now(self, c->comm))
		return ncclSystemError;
	self->elsewhere = true;
	result = queue(c);
	self->elsewhere = false;
	return result;
}

/* ---- what the engine is told --------------------------------------------------------------------------- */

static uint64_t mix(uint64_t a, uint64_t b)
{
	return (a ^ b ^ b << 29) * 0x9e3779b97f4a7c15ull ^ a >> 31;
}

/* The same on all ranks that take part: what may differ from rank to rank is left out. */
static uint64_t what(const struct collective *c)
{
	enum tpck_collective kind = c->kind == TPCK_BCAST ? TPCK_BROADCAST : c->kind;

	return mix(mix(mix((uint64_t)kind + 1, (uint64_t)c->type), c->op < OPS ? (uint64_t)c->op : OPS),
		   kind < TPCK_SEND ? (uint64_t)c->place : 0);
}

static uint64_t function(const struct collective *c)
{
	const struct tpck_communicator *communicator = tpck_communicator_find(c->comm);

	return mix(mix(what(c), (uint64_t)c->place), communicator ? communicator->index + 1ull : 0) | 1;
}

static void count(struct tpck_thread *self, const struct collective *c, bool captured)
{
	struct tpck_communicator *communicator = tpck_communicator_find(c->comm);
	struct tpck_communicator_call call;

	/* Of nothing NCCL does nothing, and does not ask the other ranks for theirs. */
	if (!communicator || !c->count)
		return;
	call = (struct tpck_communicator_call){
		.handle = c->comm, .index = communicator->index, .peer = (uint32_t)c->place, .kind = c->kind, .shown = true,
		.what = mix(what(c), c->count), .elements = c->count,
	};
	/* Running forward it is captured for real, too, and so is made at once then. */
	if (captured && !atomic_exchange(&communicator->captured, true))
		tpck_engine_nccl_captures(self, communicator->index);
	if (captured)
		tpck_cuda_graph_calls_add(&call);
	else
		tpck_communicator_count(&call);
}

static void describe(struct tpck_call *call, const struct collective *c, uint32_t calls)
{
	*call = (struct tpck_call){.stream = c->stream};
	call->token.op = TPCK_OP_COLLECTIVE;
	call->token.func = calls == 1 ? function(c) : calls;
	for (uint32_t i = 0; i < calls; i++) {
		if (calls > 1)
			call->token.func = mix(call->token.func, function(&c[i]));
		call->token.bytes += c[i].count;
	}
	call->places[0] = (uint64_t)(uintptr_t)c->recv;
	call->places[1] = c->kind == TPCK_BCAST ? 0 : (uint64_t)(uintptr_t)c->send;
}

static ncclResult_t collective(const struct collective *c)
{
	struct tpck_thread *self;
	ncclResult_t result = ncclSuccess;
	struct tpck_call call;
	enum tpck_go go;
	bool captured;

	if (group) {
		if (group->calls == group->room) {
			uint32_t room = group->room ? 2 * group->room : GROUP_ROOM;
			struct collective *grown = reallocarray(group->call, room, sizeof *grown);

			if (!grown)
				return ncclSystemError;
			group->call = grown;
			group->room = room;
		}
		group->call[group->calls++] = *c;
		if (group->kept)
			return ncclSuccess;
		self = tpck_nccl_enter();
		result = tpck_nccl_result(self, c->comm, tpck_collective_name(c->kind), queue(c));
		tpck_nccl_leave(self);
		return result;
	}
	self = tpck_engine_enter();
	if (!self)
		return queue(c);
	tpck_cuda_context_seen();
	describe(&call, c, 1);
	captured = tpck_cuda_graph_node(&call);
	go = tpck_engine_before(self, &call);
	if (go == TPCK_GO_RUN)
		result = tpck_nccl_result(self, c->comm, tpck_collective_name(c->kind), queue_elsewhere(self, c));
	if (go == TPCK_GO_ANSWERED || call.gated || captured)
		count(self, c, captured);
	tpck_engine_after(self, &call);
	tpck_engine_leave(self);
	return result;
}

/* ---- groups ---------------------------------------------------------------------------------------------- */

bool tpck_nccl_grouped(struct tpck_thread *self)
{
	(void)self;
	if (!group)
		return false;
	if (!group->begun) {
		(void)TPCK_NCCL_CALL(ncclGroupStart, group->profiling);
		group->begun = true;
	}
	return true;
}

bool tpck_nccl_grouped_now(void)
{
	return group != NULL;
}

bool tpck_nccl_group_keeps(void)
{
	return group && group->kept && !group->begun;
}

bool tpck_nccl_group_keep(struct tpck_birth *birth)
{
	if (group->births == group->births_room) {
		uint32_t room = group->births_room ? 2 * group->births_room : GROUP_ROOM;
		struct tpck_birth **grown = reallocarray(group->birth, room, sizeof(struct tpck_birth *));

		if (!grown)
			return false;
		group->birth = grown;
		group->births_room = room;
	}
	group->birth[group->births++] = birth;
	return true;
}

void tpck_nccl_at_group_end(void (*done)(struct tpck_thread *self, void *argument, bool good), const void *argument, size_t bytes)
{
	struct later *later = malloc(sizeof *later + bytes);

	if (!later)
		return;
	later->next = NULL;
	later->done = done;
	memcpy(later->argument, argument, bytes);
	*group->last = later;
	group->last = &later->next;
}

static ncclResult_t group_start(bool profiling)
{
	ncclResult_t result = ncclSuccess;
	struct tpck_thread *self;

	/* An inner group ends with the outer one. */
	if (group) {
		group->depth++;
		return ncclSuccess;
	}
	self = tpck_nccl_enter();
	if (self)
		group = calloc(1, sizeof *group);
	if (!group) {
		result = TPCK_NCCL_CALL(ncclGroupStart, profiling);
		tpck_nccl_leave(self);
		return result;
	}
	group->depth = 1;
	group->last = &group->later;
	group->profiling = profiling;
	group->kept = tpck_engine_forward();
	if (!group->kept) {
		result = TPCK_NCCL_CALL(ncclGroupStart, profiling);
		group->begun = true;
	}
	tpck_nccl_leave(self);
	return result;
}

/* Ends the real group, which may have been opened just for what was made in it. */
static ncclResult_t close_real(struct group *g, struct tpck_thread *self)
{
	ncclResult_t result = TPCK_NCCL_CALL(ncclGroupEnd, g->profiling);

	g->begun = false;
	while (g->later) {
		struct later *later = g->later;

		g->later = later->next;
		later->done(self, later->argument, result == ncclSuccess || result == ncclInProgress);
		free(later);
	}
	return result;
}

/* Makes the group's communicators, but for the first ones, and queues its calls. */
static ncclResult_t group_queue(struct group *g, struct tpck_thread *self, uint32_t from)
{
	ncclResult_t result = ncclSuccess, end;

	if (!g->kept)
		return close_real(g, self);
	for (uint32_t i = 0; self && i < g->calls; i++)
		if (!tpck_nccl_make_now(self, g->call[i].comm))
			return ncclSystemError;
	if (self)
		self->elsewhere = true;
	(void)TPCK_NCCL_CALL(ncclGroupStart, g->profiling);
	for (uint32_t i = from; i < g->births && (result == ncclSuccess || result == ncclInProgress); i++)
		result = tpck_birth_make(g->birth[i]);
	for (uint32_t i = 0; i < g->calls && (result == ncclSuccess || result == ncclInProgress); i++)
		result = queue(&g->call[i]);
	end = close_real(g, self);
	result = result == ncclSuccess || result == ncclInProgress ? end : result;
	for (uint32_t i = from; i < g->births; i++)
		tpck_birth_settle(self, g->birth[i], result == ncclSuccess || result == ncclInProgress);
	return result;
}

/* Communicators of a kept group whose calls, if there are any, are answered. */
static ncclResult_t group_births(struct group *g, struct tpck_thread *self)
{
	ncclResult_t result = ncclSuccess, one;

	for (uint32_t i = 0; i < g->births; i++) {
		if (!tpck_birth_answer(self, g->birth[i], &one)) {
			/* The process is live. The calls are behind it. */
			g->calls = 0;
			one = group_queue(g, self, i);
			i = g->births;
		}
		result = result == ncclSuccess ? one : result;
	}
	return result;
}

/* The group's calls as one operation. */
static ncclResult_t group_operation(struct group *g, struct tpck_thread *self)
{
	ncclResult_t result = ncclSuccess;
	struct tpck_call call;
	enum tpck_go go;
	bool captured;

	tpck_cuda_context_seen();
	describe(&call, g->call, g->calls);
	captured = tpck_cuda_graph_node(&call);
	go = tpck_engine_before(self, &call);
	for (uint32_t i = 1; i < g->calls && go == TPCK_GO_RUN && call.gated; i++)
		if (g->call[i].stream != g->call[i - 1].stream)
			tpck_engine_also(self, g->call[i].stream);
	if (go == TPCK_GO_RUN || !g->kept) {
		self->elsewhere = !g->kept;
		result = tpck_nccl_result(self, g->call->comm, "ncclGroupEnd", group_queue(g, self, 0));
		self->elsewhere = false;
	}
	for (uint32_t i = 0; i < g->calls && (go == TPCK_GO_ANSWERED || call.gated || captured); i++)
		count(self, &g->call[i], captured);
	tpck_engine_after(self, &call);
	if (g->births && go == TPCK_GO_ANSWERED)
		result = group_births(g, self);
	return result;
}

static ncclResult_t group_end(bool profiling)
{
	ncclResult_t result = ncclSuccess;
	struct group *g = group;
	struct tpck_thread *self;

	if (!g) {
		self = tpck_nccl_enter();
		result = TPCK_NCCL_CALL(ncclGroupEnd, profiling);
		tpck_nccl_leave(self);
		return result;
	}
	if (--g->depth)
		return ncclSuccess;
	group = NULL;
	self = tpck_engine_enter();
	if (g->begun && (g->kept || !g->calls || !self)) {
		if (self)
			self->elsewhere = true;
		result = tpck_nccl_result(self, NULL, "ncclGroupEnd", close_real(g, self));
		if (self)
			self->elsewhere = false;
	}
	if (g->calls && self)
		result = result == ncclSuccess || result == ncclInProgress ? group_operation(g, self) : result;
	else if (g->births && self)
		result = tpck_nccl_result(self, NULL, "ncclGroupEnd", group_births(g, self));
	else if ((g->calls || g->births) && g->kept)
		result = group_queue(g, NULL, 0);
	if (self) {
		self->elsewhere = false;
		tpck_engine_leave(self);
	}
	for (uint32_t i = 0; i < g->births; i++)
		tpck_birth_free(g->birth[i]);
	free(g->birth);
	free(g->call);
	free(g);
	return result;
}

ncclResult_t tpck_hook_ncclGroupStart(void)
{
	return group_start(false);
}

ncclResult_t tpck_hook_pncclGroupStart(void)
{
	return group_start(true);
}

ncclResult_t tpck_hook_ncclGroupEnd(void)
{
	return group_end(false);
}

ncclResult_t tpck_hook_pncclGroupEnd(void)
{
	return group_end(true);
}

/* ---- collectives and transfers ------------------------------------------------------------------------------ */

/* One body by both names. */
#define TWICE(symbol, params, ...)                                                      \
	ncclResult_t tpck_hook_##symbol params                                          \
	{                                                                               \
		return collective(&(struct collective){__VA_ARGS__, .profiling = false}); \
	}                                                                               \
	ncclResult_t tpck_hook_p##symbol params                                         \
	{                                                                               \
		return collective(&(struct collective){__VA_ARGS__, .profiling = true});  \
	}

TWICE(ncclAllReduce,
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
       cudaStream_t stream),
      TPCK_ALL_REDUCE, sendbuff, recvbuff, count, datatype, op, 0, comm, stream)
TWICE(ncclReduce,
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, int root,
       ncclComm_t comm, cudaStream_t stream),
      TPCK_REDUCE, sendbuff, recvbuff, count, datatype, op, root, comm, stream)
TWICE(ncclReduceScatter,
      (const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
       cudaStream_t stream),
      TPCK_REDUCE_SCATTER, sendbuff, recvbuff, recvcount, datatype, op, 0, comm, stream)
TWICE(ncclBroadcast,
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
       cudaStream_t stream),
      TPCK_BROADCAST, sendbuff, recvbuff, count, datatype, 0, root, comm, stream)
TWICE(ncclBcast, (void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream), TPCK_BCAST,
      NULL, buff, count, datatype, 0, root, comm, stream)
TWICE(ncclAllGather,
      (const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream),
      TPCK_ALL_GATHER, sendbuff, recvbuff, sendcount, datatype, 0, 0, comm, stream)
TWICE(ncclAlltoAll,
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream),
      TPCK_ALL_TO_ALL, sendbuff, recvbuff, count, datatype, 0, 0, comm, stream)
TWICE(ncclGather,
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
       cudaStream_t stream),
      TPCK_GATHER, sendbuff, recvbuff, count, datatype, 0, root, comm, stream)
TWICE(ncclScatter,
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
       cudaStream_t stream),
      TPCK_SCATTER, sendbuff, recvbuff, count, datatype, 0, root, comm, stream)
TWICE(ncclSend, (const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream),
      TPCK_SEND, sendbuff, NULL, count, datatype, 0, peer, comm, stream)
TWICE(ncclRecv, (void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream),
      TPCK_RECV, NULL, recvbuff, count, datatype, 0, peer, comm, stream)

/* ---- what is only passed on ------------------------------------------------------------------------------------ */

static void signals(struct tpck_thread *self)
{
	if (self)
		tpck_engine_unresumable("the program sends signals by NCCL (ncclPutSignal and its like)");
}

TPCK_NCCL_PASS(ncclGroupSimulateEnd, (ncclSimInfo_t *simInfo), tpck_nccl_grouped(self), simInfo)
TPCK_NCCL_PASS(ncclPutSignal,
	       (const void *localbuff, size_t count, ncclDataType_t datatype, int peer, ncclWindow_t peerWin, size_t peerWinOffset,
		int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream),
	       signals(self), localbuff, count, datatype, peer, peerWin, peerWinOffset, sigIdx, ctx, flags, TPCK_NCCL_HANDLE(comm), stream)
TPCK_NCCL_PASS(ncclSignal, (int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream), signals(self),
	       peer, sigIdx, ctx, flags, TPCK_NCCL_HANDLE(comm), stream)
TPCK_NCCL_PASS(ncclWaitSignal, (int nDesc, ncclWaitSignalDesc_t *signalDescs, ncclComm_t comm, cudaStream_t stream), signals(self),
	       nDesc, signalDescs, TPCK_NCCL_HANDLE(comm), stream)
