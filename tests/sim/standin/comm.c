/* SPDX-License-Identifier: Apache-2.0 */
/* libnccl: communicators, from the meeting of their ranks to their end. */
#define _GNU_SOURCE
#include "standin/comm.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "standin/standin.h"

static struct nccl_driver drv;
static int have_driver;

static void load(void)
{
	static const struct {
		void *to;
		const char *name;
		int version;
	} wanted[] = {
		{ &drv.init, "cuInit", 2000 },
		{ &drv.primary, "cuDevicePrimaryCtxRetain", 7000 },
		{ &drv.current, "cuCtxGetCurrent", 4000 },
		{ &drv.set, "cuCtxSetCurrent", 4000 },
		{ &drv.push, "cuCtxPushCurrent", 4000 },
		{ &drv.pop, "cuCtxPopCurrent", 4000 },
		{ &drv.device, "cuCtxGetDevice", 2000 },
		{ &drv.alloc, "cuMemAlloc", 3020 },
		{ &drv.free, "cuMemFree", 3020 },
		{ &drv.upload, "cuMemcpyHtoD", 3020 },
		{ &drv.launch, "cuLaunchKernelEx", 11060 },
		{ &drv.event, "cuEventCreate", 2000 },
		{ &drv.event_free, "cuEventDestroy", 4000 },
		{ &drv.record, "cuEventRecord", 2000 },
		{ &drv.event_wait, "cuEventSynchronize", 2000 },
		{ &drv.wait, "cuStreamWaitEvent", 3020 },
		{ &drv.capturing, "cuStreamIsCapturing", 10000 },
	};

	have_driver = 1;
	for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
		*(void **)wanted[i].to = standin_driver(wanted[i].name, wanted[i].version);
		have_driver = have_driver && *(void **)wanted[i].to;
	}
}

const struct nccl_driver *nccl_driver(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load);
	return have_driver ? &drv : NULL;
}

static __thread char said[256];

ncclResult_t comm_fail(ncclComm_t c, ncclResult_t r, const char *format, ...)
{
	va_list v;

	va_start(v, format);
	vsnprintf(said, sizeof said, format, v);
	va_end(v);
	if (comm_check(c))
		memcpy(c->said, said, sizeof said);
	return r;
}

NCCL_API const char *ncclGetLastError(ncclComm_t c)
{
	return comm_check(c) ? c->said : said;
}

bool comm_check(ncclComm_t c)
{
	return c && c->magic == COMM_MAGIC;
}

/* ---- birth ---- */
static bool enter(CUcontext ctx)
{
	return drv.push(ctx) == CUDA_SUCCESS;
}

static void leave(void)
{
	CUcontext c;

	drv.pop(&c);
}

static CUresult on_device(ncclComm_t c)
{
	struct sim_exchange_device_comm d = { .magic = SIM_EXCHANGE_MAGIC, .rank = c->rank, .ranks = c->ranks,
					      .port = (uint64_t)(uintptr_t)c->port };
	CUresult r = drv.device(&c->device);

	if (r == CUDA_SUCCESS)
		r = drv.alloc(&c->device_comm, sizeof d);
	if (r == CUDA_SUCCESS)
		r = drv.upload(c->device_comm, &d, sizeof d);
	return r == CUDA_SUCCESS ? drv.event(&c->event, CU_EVENT_DISABLE_TIMING) : r;
}

bool comm_peer_died(ncclComm_t c)
{
	for (int i = 0; i < c->ranks; i++) {
		int peer = c->peers.of[i];
		struct pollfd p = { .fd = peer < 0 ? -1 : c->peers.fd[peer], .events = POLLIN };

		if (!atomic_load(&c->shared->rank[i].left) && poll(&p, 1, 0) > 0)
			return true;
	}
	return false;
}

static ncclResult_t begin(struct comm_birth *b, struct sim_exchange_shared *shared, const struct meet_peers *peers)
{
	ncclComm_t c = calloc(1, sizeof *c);
	struct sim_exchange_port *p = calloc(1, sizeof *p);

	if (!c || !p)
		abort();
	c->magic = COMM_MAGIC;
	c->rank = p->rank = b->rank;
	c->ranks = p->ranks = b->ranks;
	c->ctx = b->ctx;
	c->shared = p->shared = shared;
	c->peers = *peers;
	c->port = p;
	p->job_rank = b->parent ? b->parent->port->job_rank : b->rank;
	pthread_mutex_init(&c->lock, NULL);
	CUresult r = enter(c->ctx) ? on_device(c) : CUDA_ERROR_INVALID_CONTEXT;
	leave();
	if (r != CUDA_SUCCESS)
		return comm_fail(NULL, ncclUnhandledCudaError, "the driver says %d", r);
	*b->out = c;
	return ncclSuccess;
}

/* ---- split: what each rank says, and the new id that the first of a colour tells the others ---- */
static ncclResult_t wait_for(ncclComm_t c, _Atomic uint32_t *word, uint32_t want)
{
	while (atomic_load(word) < want) {
		if (comm_peer_died(c))
			return comm_fail(c, ncclRemoteError, "a rank has gone");
		if (atomic_load(&c->port->stop))
			return ncclInternalError;
		usleep(200);
	}
	return ncclSuccess;
}

/* Words count two a turn: said, and read what the others said. */
static ncclResult_t split_say(struct comm_birth *b)
{
	ncclComm_t c = b->parent;
	struct sim_exchange_shared *s = c->shared;

	for (int i = 0; i < c->ranks; i++) {
		ncclResult_t r = wait_for(c, &s->split[i].said, 2 * c->splits);

		if (r != ncclSuccess)
			return r;
	}
	s->split[c->rank].color = b->color;
	s->split[c->rank].key = b->key;
	atomic_fetch_add(&s->split[c->rank].said, 1);
	return ncclSuccess;
}

static ncclResult_t split_tell(struct comm_birth *b, int *leader)
{
	ncclComm_t c = b->parent;
	struct sim_exchange_shared *s = c->shared;

	*leader = c->rank;
	b->rank = b->ranks = 0;
	for (int i = 0; i < c->ranks; i++) {
		ncclResult_t r = wait_for(c, &s->split[i].said, 2 * c->splits + 1);

		if (r != ncclSuccess)
			return r;
	}
	for (int i = 0; i < c->ranks; i++) {
		if (s->split[i].color != b->color)
			continue;
		b->ranks++;
		if (s->split[i].key < b->key || (s->split[i].key == b->key && i < c->rank))
			b->rank++;
		if (s->split[i].key < s->split[*leader].key || (s->split[i].key == s->split[*leader].key && i < *leader))
			*leader = i;
	}
	if (b->color == NCCL_SPLIT_NOCOLOR || *leader != c->rank)
		return ncclSuccess;
	ncclResult_t r = meet_open(&b->id);
	if (r == ncclSuccess) {
		memcpy(s->split[c->rank].id, b->id.internal, sizeof b->id.internal);
		atomic_store(&s->split[c->rank].told, c->splits + 1);
	}
	return r;
}

static ncclResult_t split_read(struct comm_birth *b, int leader)
{
	ncclComm_t c = b->parent;
	struct sim_exchange_shared *s = c->shared;
	ncclResult_t r = ncclSuccess;

	if (b->color == NCCL_SPLIT_NOCOLOR) {
		*b->out = NULL;
	} else if (leader != c->rank) {
		r = wait_for(c, &s->split[leader].told, c->splits + 1);
		memcpy(b->id.internal, s->split[leader].id, sizeof b->id.internal);
	}
	return r;
}

static void split_done(struct comm_birth *b)
{
	atomic_fetch_add(&b->parent->shared->split[b->parent->rank].said, 1);
	b->parent->splits++;
}

/* A step for each that has come so far. */
#define EACH(b, n, call) \
	for (struct comm_birth *x = (b); x < (b) + (n); x++) \
		if (x->result == ncclSuccess) \
	x->result = (call)

static ncclResult_t join(struct comm_birth *b)
{
	b->fd = -1;
	if (b->parent && b->color == NCCL_SPLIT_NOCOLOR)
		return ncclSuccess;
	ncclResult_t r = meet_join(&b->id, b->rank, b->ranks, &b->fd);
	return r == ncclSuccess ? r : comm_fail(NULL, r, "nobody answers behind this id");
}

static ncclResult_t arrive(struct comm_birth *b)
{
	struct sim_exchange_shared *shared;
	struct meet_peers peers;

	if (b->fd < 0)
		return ncclSuccess;
	ncclResult_t r = meet_wait(b->fd, b->ranks, &shared, &peers);
	return r == ncclSuccess ? begin(b, shared, &peers) : comm_fail(NULL, r, "the ranks did not come together");
}

void comm_make(struct comm_birth *b, int n)
{
	int *leader = calloc((size_t)n, sizeof *leader);

	if (!leader)
		abort();
	EACH(b, n, x->parent ? split_say(x) : ncclSuccess);
	EACH(b, n, x->parent ? split_tell(x, &leader[x - b]) : ncclSuccess);
	EACH(b, n, x->parent ? split_read(x, leader[x - b]) : ncclSuccess);
	EACH(b, n, join(x));
	EACH(b, n, arrive(x));
	for (int i = 0; i < n; i++)
		if (b[i].parent)
			split_done(&b[i]);
	free(leader);
}

/* ---- the end ---- */
/* `flushed`: no kernel is queued that would look at the communicator's device memory. A free would wait for those that hang. */
static void part(ncclComm_t c, bool flushed)
{
	atomic_store(&c->port->stop, 1);
	while (atomic_load(&c->port->running))
		usleep(100);
	atomic_store(&c->shared->rank[c->rank].left, 1);
	for (int i = 0; i < c->peers.n; i++)
		close(c->peers.fd[i]);
	if (enter(c->ctx)) {
		drv.event_free(c->event);
		if (flushed)
			drv.free(c->device_comm);
		leave();
	}
	munmap(c->shared, meet_bytes(c->ranks));
	c->magic = 0;
	/* The port stays: graphs may name it. The communicator's own memory stays as long, to tell a stale handle. */
}

static void flush(ncclComm_t c)
{
	pthread_mutex_lock(&c->lock);
	bool wait = c->used && enter(c->ctx);
	if (wait) {
		wait = drv.record(c->event, c->last) == CUDA_SUCCESS;
		leave();
	}
	pthread_mutex_unlock(&c->lock);
	if (wait)
		drv.event_wait(c->event);
}

NCCL_API ncclResult_t ncclCommFinalize(ncclComm_t c)
{
	if (!comm_check(c))
		return ncclInvalidArgument;
	flush(c);
	atomic_store(&c->shared->rank[c->rank].left, 1);
	return ncclSuccess;
}

NCCL_API ncclResult_t ncclCommDestroy(ncclComm_t c)
{
	if (!c)
		return ncclSuccess;
	if (!comm_check(c))
		return ncclInvalidArgument;
	flush(c);
	part(c, true);
	return ncclSuccess;
}

NCCL_API ncclResult_t ncclCommAbort(ncclComm_t c)
{
	if (!c)
		return ncclSuccess;
	if (!comm_check(c))
		return ncclInvalidArgument;
	part(c, false);
	return ncclSuccess;
}

NCCL_API ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *e)
{
	if (!comm_check(c) || !e)
		return ncclInvalidArgument;
	*e = ncclSuccess;
	if (atomic_load(&c->port->failed))
		*e = comm_fail(c, ncclSystemError, "an error of the network, as asked for by SIMGPU_FAULT");
	else if (atomic_load(&c->port->mismatched))
		*e = comm_fail(c, ncclInternalError, "ranks called different collectives");
	else if (comm_peer_died(c))
		*e = comm_fail(c, ncclRemoteError, "a rank has gone");
	return ncclSuccess;
}

NCCL_API ncclResult_t ncclCommCount(ncclComm_t c, int *n)
{
	if (!comm_check(c) || !n)
		return ncclInvalidArgument;
	*n = c->ranks;
	return ncclSuccess;
}

NCCL_API ncclResult_t ncclCommCuDevice(ncclComm_t c, int *device)
{
	if (!comm_check(c) || !device)
		return ncclInvalidArgument;
	*device = c->device;
	return ncclSuccess;
}

NCCL_API ncclResult_t ncclCommUserRank(ncclComm_t c, int *rank)
{
	if (!comm_check(c) || !rank)
		return ncclInvalidArgument;
	*rank = c->rank;
	return ncclSuccess;
}

/* ---- the profiling names ---- */
PROFILED(const char *, ncclGetLastError, (ncclComm_t));
PROFILED(ncclResult_t, ncclCommFinalize, (ncclComm_t));
PROFILED(ncclResult_t, ncclCommDestroy, (ncclComm_t));
PROFILED(ncclResult_t, ncclCommAbort, (ncclComm_t));
PROFILED(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t, ncclResult_t *));
PROFILED(ncclResult_t, ncclCommCount, (ncclComm_t, int *));
PROFILED(ncclResult_t, ncclCommCuDevice, (ncclComm_t, int *));
PROFILED(ncclResult_t, ncclCommUserRank, (ncclComm_t, int *));
