/* SPDX-License-Identifier: Apache-2.0 */
/* libnccl: groups, collectives and transfers, each a kernel on the caller's stream with the name and the parameter that NCCL's have. */
#define _GNU_SOURCE
#include "standin/nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin/comm.h"
#include "standin/meet.h"
#include "standin/standin.h"

/* ---- what belongs to no communicator ---- */
NCCL_API ncclResult_t ncclGetVersion(int *version)
{
	if (!version)
		return ncclInvalidArgument;
	*version = NCCL_VERSION_CODE;
	return ncclSuccess;
}

NCCL_API const char *ncclGetErrorString(ncclResult_t r)
{
	static const char *const text[ncclNumResults] = {
		"no error", "unhandled cuda error", "unhandled system error", "internal error", "invalid argument", "invalid usage",
		"remote process exited or there was a network error", "operation in progress", "operation timed out",
	};

	return (unsigned)r < ncclNumResults ? text[r] : "unknown result code";
}

NCCL_API ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	return id ? meet_open(id) : ncclInvalidArgument;
}

NCCL_API ncclResult_t ncclMemAlloc(void **out, size_t bytes)
{
	const struct nccl_driver *d = nccl_driver();

	return out && d && d->alloc((CUdeviceptr *)out, bytes) == CUDA_SUCCESS ? ncclSuccess : ncclUnhandledCudaError;
}

NCCL_API ncclResult_t ncclMemFree(void *p)
{
	const struct nccl_driver *d = nccl_driver();

	return d && d->free((CUdeviceptr)(uintptr_t)p) == CUDA_SUCCESS ? ncclSuccess : ncclUnhandledCudaError;
}

/* Registration makes hardware faster and nothing else. */
NCCL_API ncclResult_t ncclCommRegister(ncclComm_t c, void *buffer, size_t bytes, void **handle)
{
	if (!comm_check(c) || !buffer || !bytes || !handle)
		return ncclInvalidArgument;
	*handle = buffer;
	return ncclSuccess;
}

NCCL_API ncclResult_t ncclCommDeregister(ncclComm_t c, void *handle)
{
	return comm_check(c) && handle ? ncclSuccess : ncclInvalidArgument;
}

/* ---- groups ---- */
#define GROUP_MAX 4096

static __thread struct {
	int depth;
	ncclResult_t result; /* the first that went wrong */
	struct comm_work **work;
	struct comm_birth *birth;
	int n_work, n_birth;
} group;

bool group_open(void)
{
	return group.depth > 0;
}

NCCL_API ncclResult_t ncclGroupStart(void)
{
	group.depth++;
	return ncclSuccess;
}

static ncclResult_t remember(ncclResult_t r)
{
	if (group.depth && group.result == ncclSuccess && r != ncclSuccess)
		group.result = r;
	return r;
}

static ncclResult_t births_end(void)
{
	ncclResult_t r = ncclSuccess;

	comm_make(group.birth, group.n_birth);
	for (int i = 0; i < group.n_birth; i++)
		if (r == ncclSuccess)
			r = group.birth[i].result;
	return r;
}

NCCL_API ncclResult_t ncclGroupEnd(void)
{
	if (!group.depth)
		return comm_fail(NULL, ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
	if (--group.depth)
		return ncclSuccess;
	ncclResult_t r = group.result;
	if (r == ncclSuccess && group.n_birth)
		r = births_end();
	if (r == ncclSuccess && group.n_work)
		r = comm_launch(group.work, group.n_work);
	for (int i = 0; i < group.n_work; i++)
		free(group.work[i]);
	free(group.work);
	free(group.birth);
	memset(&group, 0, sizeof group);
	return r;
}

ncclResult_t comm_enqueue(const struct comm_work *w)
{
	struct comm_work *copy = malloc(sizeof *copy);

	if (!copy)
		return ncclSystemError;
	*copy = *w;
	if (!group.depth) {
		ncclResult_t r = comm_launch(&copy, 1);

		free(copy);
		return r;
	}
	if (!group.work)
		group.work = calloc(GROUP_MAX, sizeof(struct comm_work *));
	if (!group.work || group.n_work == GROUP_MAX) {
		free(copy);
		return remember(comm_fail(w->comm, ncclInvalidUsage, "more than %d calls in a group", GROUP_MAX));
	}
	group.work[group.n_work++] = copy;
	return ncclSuccess;
}

static ncclResult_t born(const struct comm_birth *b)
{
	struct comm_birth one = *b;

	if (!group.depth) {
		comm_make(&one, 1);
		return one.result;
	}
	if (!group.birth)
		group.birth = calloc(SIM_EXCHANGE_RANKS, sizeof *group.birth);
	if (!group.birth || group.n_birth == SIM_EXCHANGE_RANKS)
		return remember(ncclInvalidUsage);
	group.birth[group.n_birth++] = one;
	return ncclSuccess;
}

/* ---- communicators that begin here ---- */
static ncclResult_t current_context(CUcontext *out)
{
	const struct nccl_driver *d = nccl_driver();

	if (!d)
		return comm_fail(NULL, ncclUnhandledCudaError, "no driver");
	if (d->init(0) != CUDA_SUCCESS || d->current(out) != CUDA_SUCCESS)
		return comm_fail(NULL, ncclUnhandledCudaError, "the driver does not start");
	if (!*out && (d->primary(out, 0) != CUDA_SUCCESS || d->set(*out) != CUDA_SUCCESS))
		return comm_fail(NULL, ncclUnhandledCudaError, "no device");
	return ncclSuccess;
}

NCCL_API ncclResult_t ncclCommInitRank(ncclComm_t *out, int ranks, ncclUniqueId id, int rank)
{
	struct comm_birth b = { .out = out, .id = id, .rank = rank, .ranks = ranks };

	if (!out || ranks < 1 || rank < 0 || rank >= ranks)
		return remember(comm_fail(NULL, ncclInvalidArgument, "rank %d of %d", rank, ranks));
	if (ranks > SIM_EXCHANGE_RANKS)
		return remember(comm_fail(NULL, ncclInvalidUsage, "simgpu's NCCL has no more than %d ranks", SIM_EXCHANGE_RANKS));
	ncclResult_t r = current_context(&b.ctx);
	return remember(r == ncclSuccess ? born(&b) : r);
}

/* A communicator that need not block may. */
NCCL_API ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank, void *config)
{
	(void)config;
	return ncclCommInitRank(out, ranks, id, rank);
}

NCCL_API ncclResult_t ncclCommInitRankScalable(ncclComm_t *out, int ranks, int rank, int ids, ncclUniqueId *id, void *config)
{
	return ids > 0 && id ? ncclCommInitRankConfig(out, ranks, id[0], rank, config) : ncclInvalidArgument;
}

NCCL_API ncclResult_t ncclCommInitAll(ncclComm_t *out, int n, const int *devices)
{
	const struct nccl_driver *d = nccl_driver();
	CUcontext before = NULL, ctx;
	ncclUniqueId id;

	if (!out || n < 1)
		return ncclInvalidArgument;
	ncclResult_t r = d && d->init(0) == CUDA_SUCCESS ? ncclGetUniqueId(&id) : ncclUnhandledCudaError;
	if (r != ncclSuccess)
		return r;
	d->current(&before);
	ncclGroupStart();
	for (int i = 0; i < n; i++) {
		if (d->primary(&ctx, devices ? devices[i] : i) != CUDA_SUCCESS || d->set(ctx) != CUDA_SUCCESS)
			remember(comm_fail(NULL, ncclInvalidArgument, "no device %d", devices ? devices[i] : i));
		else
			ncclCommInitRank(&out[i], n, id, i);
	}
	d->set(before);
	return ncclGroupEnd();
}

NCCL_API ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *out, void *config)
{
	(void)config;
	if (!comm_check(c) || !out || (color < 0 && color != NCCL_SPLIT_NOCOLOR))
		return remember(ncclInvalidArgument);
	return remember(born(&(struct comm_birth){ .out = out, .ctx = c->ctx, .parent = c, .color = color, .key = key }));
}

/* ---- reductions that scale ---- */
NCCL_API ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type, ncclScalarResidence_t where, ncclComm_t c)
{
	uint32_t bytes = sim_exchange_type_bytes(type);
	ncclResult_t r = ncclInternalError;

	if (!comm_check(c) || !op || !scalar || !bytes)
		return ncclInvalidArgument;
	pthread_mutex_lock(&c->lock);
	for (int i = 0; i < COMM_OPS && r != ncclSuccess; i++) {
		if (c->op[i].taken)
			continue;
		c->op[i].taken = true;
		c->op[i].type = type;
		c->op[i].in_memory = where == ncclScalarDevice;
		c->op[i].scalar = (uint64_t)(uintptr_t)scalar;
		if (where == ncclScalarHostImmediate) {
			c->op[i].scalar = 0;
			memcpy(&c->op[i].scalar, scalar, bytes);
		}
		*op = (ncclRedOp_t)(ncclNumOps + i);
		r = ncclSuccess;
	}
	pthread_mutex_unlock(&c->lock);
	return r;
}

NCCL_API ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t c)
{
	unsigned i = (unsigned)op - ncclNumOps;

	if (!comm_check(c) || i >= COMM_OPS || !c->op[i].taken)
		return ncclInvalidArgument;
	c->op[i].taken = false;
	return ncclSuccess;
}

static bool set_op(ncclComm_t c, struct sim_exchange_args *a, ncclRedOp_t op)
{
	unsigned i = (unsigned)op - ncclNumOps;

	a->op = op;
	if (op < ncclNumOps)
		return true;
	if (i >= COMM_OPS || !c->op[i].taken || c->op[i].type != a->type)
		return false;
	a->op = SIM_EXCHANGE_PREMUL;
	a->scalar = c->op[i].scalar;
	a->scalar_in_memory = c->op[i].in_memory;
	return true;
}

/* ---- launches ---- */
static const char *const type_name[SIM_EXCHANGE_TYPES] = { "u8", "u8", "u32", "u32", "u64", "u64", "f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2" };

/* One kernel serves all operations on a type, signed or not; it is named after the sum. */
static void kernel_name(const struct sim_exchange_args *a, char *out, size_t n)
{
	static const char *const reducing[] = { "AllReduce", "Reduce", "ReduceScatter" };
	char plain[128];

	if (a->kind <= SIM_EXCHANGE_REDUCE_SCATTER)
		snprintf(plain, sizeof plain, "ncclDevKernel_%s_Sum_%s_RING_LL", reducing[a->kind], type_name[a->type]);
	else
		snprintf(plain, sizeof plain, "ncclDevKernel_%s", a->kind == SIM_EXCHANGE_BROADCAST ? "Broadcast_RING_LL" :
								  a->kind == SIM_EXCHANGE_ALL_GATHER ? "AllGather_RING_LL" : "SendRecv");
	snprintf(out, n, "_Z%zu%s24ncclDevKernelArgsStorageILm4096EE", strlen(plain), plain);
}

static bool captures(CUstream s)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	nccl_driver()->capturing(s, &status);
	return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static CUresult order(ncclComm_t c, CUstream before, CUstream after)
{
	const struct nccl_driver *d = nccl_driver();

	if (before == after || captures(before) || captures(after))
		return CUDA_SUCCESS;
	CUresult r = d->record(c->event, before);
	/* A stream that is gone has nothing left to wait for that could be named. */
	return r == CUDA_SUCCESS ? d->wait(after, c->event, 0) : CUDA_SUCCESS;
}

/* A rank that is alone moves its data, which takes no kernel of ours unless numbers change. */
static bool alone(const struct comm_work *w, CUresult *r)
{
	const struct sim_exchange_args *a = &w->args;

	if (w->comm->ranks > 1 || a->kind == SIM_EXCHANGE_SEND_RECV || (a->kind <= SIM_EXCHANGE_REDUCE_SCATTER && a->op == SIM_EXCHANGE_PREMUL))
		return false;
	if (a->send != a->recv)
		*r = standin_copy((void *)(uintptr_t)a->recv, (void *)(uintptr_t)a->send, a->count * sim_exchange_type_bytes(a->type), w->stream);
	return true;
}

static CUresult launch(struct comm_work *w)
{
	CUlaunchConfig config = { .gridDimX = w->args.kind == SIM_EXCHANGE_SEND_RECV ? 2 : 1, .gridDimY = 1, .gridDimZ = 1,
				  .blockDimX = 256, .blockDimY = 1, .blockDimZ = 1, .hStream = w->stream };
	void *params[] = { &w->args };
	ncclComm_t c = w->comm;
	CUresult r = CUDA_SUCCESS;
	char name[192];
	CUfunction f;

	if (alone(w, &r))
		return r;
	w->args.comm = c->device_comm;
	kernel_name(&w->args, name, sizeof name);
	r = standin_exchange_kernel(name, sizeof w->args, &f);
	/* Kernels of a communicator run in the order of the calls, whatever stream they are on. */
	if (r == CUDA_SUCCESS && c->used)
		r = order(c, c->last, w->stream);
	if (r == CUDA_SUCCESS)
		r = nccl_driver()->launch(&config, f, params, NULL);
	if (r == CUDA_SUCCESS && !captures(w->stream)) {
		c->last = w->stream;
		c->used = true;
	}
	return r;
}

static CUresult launch_on(struct comm_work *w)
{
	const struct nccl_driver *d = nccl_driver();
	CUcontext before = NULL;
	CUresult r;

	d->current(&before);
	r = before == w->comm->ctx ? CUDA_SUCCESS : d->push(w->comm->ctx);
	pthread_mutex_lock(&w->comm->lock);
	if (r == CUDA_SUCCESS)
		r = launch(w);
	pthread_mutex_unlock(&w->comm->lock);
	if (before != w->comm->ctx)
		d->pop(&before);
	return r;
}

/* All transfers of a group on one communicator go into one kernel, on the stream of the first: they wait for each other. */
static ncclResult_t merge(struct comm_work **work, int n, int first)
{
	struct comm_work *w = work[first];

	for (int i = first + 1; i < n; i++) {
		struct comm_work *o = work[i];

		if (!o || o->comm != w->comm || o->args.kind != SIM_EXCHANGE_SEND_RECV)
			continue;
		if (w->args.n + o->args.n > SIM_EXCHANGE_TRANSFERS)
			return comm_fail(w->comm, ncclInvalidUsage, "more than %d transfers in a group", SIM_EXCHANGE_TRANSFERS);
		memcpy(w->args.transfer + w->args.n, o->args.transfer, o->args.n * sizeof *o->args.transfer);
		w->args.n += o->args.n;
		o->args.n = 0;
		order(w->comm, o->stream, w->stream);
	}
	return ncclSuccess;
}

ncclResult_t comm_launch(struct comm_work **work, int n)
{
	CUresult r = CUDA_SUCCESS;

	/* Collectives first, on every rank; then transfers. */
	for (int i = 0; i < n && r == CUDA_SUCCESS; i++)
		if (work[i]->args.kind != SIM_EXCHANGE_SEND_RECV)
			r = launch_on(work[i]);
	for (int i = 0; i < n && r == CUDA_SUCCESS; i++) {
		struct comm_work *w = work[i];

		if (w->args.kind != SIM_EXCHANGE_SEND_RECV || !w->args.n)
			continue;
		ncclResult_t e = merge(work, n, i);
		if (e != ncclSuccess)
			return e;
		r = launch_on(w);
		for (int k = i + 1; k < n && r == CUDA_SUCCESS; k++)
			if (work[k]->comm == w->comm && work[k]->args.kind == SIM_EXCHANGE_SEND_RECV && !work[k]->args.n)
				r = order(w->comm, w->stream, work[k]->stream);
	}
	return r == CUDA_SUCCESS ? ncclSuccess : comm_fail(work[0]->comm, ncclUnhandledCudaError, "the driver says %d to a launch", r);
}

/* ---- collectives ---- */
static ncclResult_t collective(enum sim_exchange_kind kind, const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
			       int root, ncclComm_t c, CUstream s)
{
	struct comm_work w = { .comm = c, .stream = s, .args = { .kind = kind, .type = type, .root = root, .count = count,
								 .send = (uint64_t)(uintptr_t)send, .recv = (uint64_t)(uintptr_t)recv } };

	if (!comm_check(c))
		return remember(comm_fail(NULL, ncclInvalidArgument, "no communicator"));
	if (!sim_exchange_type_bytes(type) || root < 0 || root >= c->ranks || !set_op(c, &w.args, op))
		return remember(comm_fail(c, ncclInvalidArgument, "type %d, operation %d, root %d", type, op, root));
	if (!count)
		return ncclSuccess;
	bool sends = kind != SIM_EXCHANGE_BROADCAST || c->rank == root, receives = kind != SIM_EXCHANGE_REDUCE || c->rank == root;
	if ((sends && !send) || (receives && !recv))
		return remember(comm_fail(c, ncclInvalidArgument, "no buffer"));
	return remember(comm_enqueue(&w));
}

NCCL_API ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t c, CUstream s)
{
	return collective(SIM_EXCHANGE_ALL_REDUCE, send, recv, count, type, op, 0, c, s);
}

NCCL_API ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t c, CUstream s)
{
	return collective(SIM_EXCHANGE_REDUCE, send, recv, count, type, op, root, c, s);
}

NCCL_API ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t c, CUstream s)
{
	return collective(SIM_EXCHANGE_REDUCE_SCATTER, send, recv, count, type, op, 0, c, s);
}

NCCL_API ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t c, CUstream s)
{
	return collective(SIM_EXCHANGE_BROADCAST, send, recv, count, type, ncclSum, root, c, s);
}

NCCL_API ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t c, CUstream s)
{
	return ncclBroadcast(buffer, buffer, count, type, root, c, s);
}

NCCL_API ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t c, CUstream s)
{
	return collective(SIM_EXCHANGE_ALL_GATHER, send, recv, count, type, ncclSum, 0, c, s);
}

/* ---- transfers ---- */
static ncclResult_t transfer(const void *address, size_t count, ncclDataType_t type, int peer, ncclComm_t c, CUstream s, bool receive)
{
	struct comm_work w = { .comm = c, .stream = s, .args = { .kind = SIM_EXCHANGE_SEND_RECV, .n = 1 } };

	if (!comm_check(c))
		return remember(comm_fail(NULL, ncclInvalidArgument, "no communicator"));
	if (!sim_exchange_type_bytes(type) || peer < 0 || peer >= c->ranks || (count && !address))
		return remember(comm_fail(c, ncclInvalidArgument, "type %d, peer %d", type, peer));
	if (!count)
		return ncclSuccess;
	w.args.transfer[0] = (struct sim_exchange_transfer){ .address = (uint64_t)(uintptr_t)address, .peer = peer, .receive = receive,
							     .bytes = count * sim_exchange_type_bytes(type) };
	return remember(comm_enqueue(&w));
}

NCCL_API ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t c, CUstream s)
{
	return transfer(send, count, type, peer, c, s, false);
}

NCCL_API ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t c, CUstream s)
{
	return transfer(recv, count, type, peer, c, s, true);
}

/* From every rank of `from` to every rank of `to`; -1 is all of them. */
static ncclResult_t spread(const void *send, void *recv, size_t count, ncclDataType_t type, int from, int to, ncclComm_t c, CUstream s)
{
	size_t bytes = count * sim_exchange_type_bytes(type);

	if (!comm_check(c) || from >= c->ranks || to >= c->ranks)
		return remember(ncclInvalidArgument);
	ncclGroupStart();
	for (int r = 0; r < c->ranks; r++) {
		if ((from < 0 || from == c->rank) && (to < 0 || to == r))
			ncclSend((const char *)send + (to < 0 ? (size_t)r * bytes : 0), count, type, r, c, s);
		if ((to < 0 || to == c->rank) && (from < 0 || from == r))
			ncclRecv((char *)recv + (from < 0 ? (size_t)r * bytes : 0), count, type, r, c, s);
	}
	return ncclGroupEnd();
}

NCCL_API ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t c, CUstream s)
{
	return spread(send, recv, count, type, -1, -1, c, s);
}

NCCL_API ncclResult_t ncclGather(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t c, CUstream s)
{
	return root < 0 ? remember(ncclInvalidArgument) : spread(send, recv, count, type, -1, root, c, s);
}

NCCL_API ncclResult_t ncclScatter(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t c, CUstream s)
{
	return root < 0 ? remember(ncclInvalidArgument) : spread(send, recv, count, type, root, -1, c, s);
}

/* ---- the profiling names, which are the functions themselves unless a tool has its own ---- */
PROFILED(ncclResult_t, ncclAllReduce, (const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, CUstream));
PROFILED(ncclResult_t, ncclReduce, (const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t, CUstream));
PROFILED(ncclResult_t, ncclReduceScatter, (const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, CUstream));
PROFILED(ncclResult_t, ncclBroadcast, (const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, CUstream));
PROFILED(ncclResult_t, ncclBcast, (void *, size_t, ncclDataType_t, int, ncclComm_t, CUstream));
PROFILED(ncclResult_t, ncclAllGather, (const void *, void *, size_t, ncclDataType_t, ncclComm_t, CUstream));
PROFILED(ncclResult_t, ncclAlltoAll, (const void *, void *, size_t, ncclDataType_t, ncclComm_t, CUstream));
PROFILED(ncclResult_t, ncclGather, (const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, CUstream));
PROFILED(ncclResult_t, ncclScatter, (const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, CUstream));
PROFILED(ncclResult_t, ncclSend, (const void *, size_t, ncclDataType_t, int, ncclComm_t, CUstream));
PROFILED(ncclResult_t, ncclRecv, (void *, size_t, ncclDataType_t, int, ncclComm_t, CUstream));
PROFILED(ncclResult_t, ncclGetVersion, (int *));
PROFILED(const char *, ncclGetErrorString, (ncclResult_t));
PROFILED(ncclResult_t, ncclGetUniqueId, (ncclUniqueId *));
PROFILED(ncclResult_t, ncclCommInitRank, (ncclComm_t *, int, ncclUniqueId, int));
PROFILED(ncclResult_t, ncclCommInitRankConfig, (ncclComm_t *, int, ncclUniqueId, int, void *));
PROFILED(ncclResult_t, ncclCommInitRankScalable, (ncclComm_t *, int, int, int, ncclUniqueId *, void *));
PROFILED(ncclResult_t, ncclCommInitAll, (ncclComm_t *, int, const int *));
PROFILED(ncclResult_t, ncclCommSplit, (ncclComm_t, int, int, ncclComm_t *, void *));
PROFILED(ncclResult_t, ncclCommRegister, (ncclComm_t, void *, size_t, void **));
PROFILED(ncclResult_t, ncclCommDeregister, (ncclComm_t, void *));
PROFILED(ncclResult_t, ncclMemAlloc, (void **, size_t));
PROFILED(ncclResult_t, ncclMemFree, (void *));
PROFILED(ncclResult_t, ncclRedOpCreatePreMulSum, (ncclRedOp_t *, void *, ncclDataType_t, ncclScalarResidence_t, ncclComm_t));
PROFILED(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t, ncclComm_t));
PROFILED(ncclResult_t, ncclGroupStart, (void));
PROFILED(ncclResult_t, ncclGroupEnd, (void));
