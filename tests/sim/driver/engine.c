/* SPDX-License-Identifier: Apache-2.0 */
/* Operations, what they wait for, and the threads that carry them out: two compute queues, a copy engine per direction, callbacks, polling, and exchanges with other ranks. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "driver/sim.h"

pthread_mutex_t sim_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t sim_progress = PTHREAD_COND_INITIALIZER;
int sim_room_waiters;

/* No more than the ring of the device process holds. */
#define BATCH 32

struct queue {
	pthread_cond_t work;
	struct sim_op *head, **tail;
};

static struct queue queues[SIM_ENGINES];
static CUresult sticky;
static uint64_t submitted;
static struct sim_op *oldest, *youngest; /* unfinished operations */

CUresult sim_sticky(void)
{
	return sticky;
}

void sim_set_sticky(CUresult r)
{
	if (sticky == CUDA_SUCCESS && r != CUDA_SUCCESS)
		sticky = r;
}

struct sim_op *sim_op_new(void)
{
	struct sim_op *op = calloc(1, sizeof *op);

	if (!op)
		abort();
	op->refs = 1;
	op->waits = 1; /* its submission */
	return op;
}

void sim_op_ref(struct sim_op *op)
{
	op->refs++;
}

void sim_op_unref(struct sim_op *op)
{
	if (!op || --op->refs)
		return;
	sim_work_clear(&op->work);
	free(op->next);
	free(op);
}

void sim_op_after(struct sim_op *op, struct sim_op *before)
{
	if (!before || before->done || before == op)
		return;
	if (before->n_next == before->cap_next) {
		before->cap_next = before->cap_next ? before->cap_next * 2 : 4;
		before->next = realloc(before->next, (size_t)before->cap_next * sizeof(struct sim_op *));
		if (!before->next)
			abort();
	}
	before->next[before->n_next++] = op;
	op->waits++;
	op->refs++;
}

enum sim_engine sim_op_engine(const struct sim_op *op)
{
	const struct sim_rect *r = &op->work.u.copy.rect;

	switch (op->work.kind) {
	case SIM_WORK_KERNEL:
		return op->work.u.launch.kernel->exchange && sim_settings.execute ? SIM_ENGINE_EXCHANGE : SIM_ENGINE_COMPUTE;
	case SIM_WORK_MEMSET:
		return SIM_ENGINE_COMPUTE;
	case SIM_WORK_COPY:
		if (r->dst_kind == SIM_DEVICE && r->src_kind != SIM_DEVICE)
			return SIM_ENGINE_H2D;
		return r->dst_kind == SIM_DEVICE ? SIM_ENGINE_COMPUTE : SIM_ENGINE_D2H;
	case SIM_WORK_HOST:
	case SIM_WORK_CALLBACK:
		return SIM_ENGINE_CALLBACK;
	case SIM_WORK_WAIT_VALUE:
	case SIM_WORK_AWAIT:
		return SIM_ENGINE_POLL;
	default:
		return SIM_ENGINE_NONE;
	}
}

static void push(struct queue *q, struct sim_op *op)
{
	op->queue_next = NULL;
	*q->tail = op;
	q->tail = &op->queue_next;
	pthread_cond_signal(&q->work);
}

static void finish(struct sim_op *op);
static void wake_waiters(void);

static void release(struct sim_op *op);

/* The operation's channel comes to the next one. */
static void pass(struct sim_op *op)
{
	struct sim_op *next = op->channel_next;

	op->passed = true;
	op->channel_next = NULL;
	if (next) {
		release(next);
		sim_op_unref(next);
	}
}

static void op_ready(struct sim_op *op)
{
	enum sim_engine e = sim_op_engine(op);

	op->ready_ns = sim_now();
	if (e != SIM_ENGINE_NONE) {
		push(&queues[e], op);
		/* A channel waits for a value in memory itself. */
		if (e != SIM_ENGINE_POLL)
			pass(op);
		return;
	}
	/* Records, allocations and writes take no engine. */
	if (sticky == CUDA_SUCCESS)
		sim_set_sticky(sim_work_do(&op->work, NULL));
	op->end_ns = sim_now();
	finish(op);
}

static void release(struct sim_op *op)
{
	if (--op->waits == 0)
		op_ready(op);
}

/* Gives up the engine's reference. */
static void finish(struct sim_op *op)
{
	op->done = true;
	*(op->older ? &op->older->younger : &oldest) = op->younger;
	*(op->younger ? &op->younger->older : &youngest) = op->older;
	if (op->counted && op->stream)
		op->stream->depth--;
	op->stream = NULL;
	/* Detach first: what becomes ready may finish at once, and recursion must not meet half a list. */
	struct sim_op **next = op->next;
	int n = op->n_next;
	op->next = NULL;
	op->n_next = op->cap_next = 0;
	sim_work_clear(&op->work);
	pass(op);
	for (int i = 0; i < n; i++) {
		struct sim_op *o = next[i];

		release(o);
		sim_op_unref(o);
	}
	free(next);
	sim_op_unref(op);
	wake_waiters();
}

void sim_op_submit(struct sim_op *op)
{
	op->order = ++submitted;
	op->older = youngest;
	*(youngest ? &youngest->younger : &oldest) = op;
	youngest = op;
	release(op);
}

/* Of the context `current`, if it is one of that device. */
static bool busy(int device, uint64_t upto, const struct sim_ctx *current)
{
	for (struct sim_op *op = oldest; op && op->order <= upto; op = op->younger)
		if (op->device == device && (!current || current->device != device || !op->stream || op->stream->ctx == current))
			return true;
	return false;
}

/* A thread that waits for operations to end. It is woken when the last of them has: a switch for each costs more than what they do. */
struct waiter {
	const struct sim_op *op; /* NULL: those of a device, up to a number */
	int device;
	uint64_t upto;
	const struct sim_ctx *current;
	struct waiter *next;
};

static struct waiter *waiters;

static bool has_to_wait(const struct waiter *w)
{
	return w->op ? !w->op->done : busy(w->device, w->upto, w->current);
}

static void wait_until_done(struct waiter *w)
{
	struct waiter **link = &waiters;

	w->next = waiters;
	waiters = w;
	while (has_to_wait(w))
		pthread_cond_wait(&sim_progress, &sim_lock);
	while (*link != w)
		link = &(*link)->next;
	*link = w->next;
}

static void wake_waiters(void)
{
	bool wake = sim_room_waiters > 0;

	for (const struct waiter *w = waiters; w && !wake; w = w->next)
		wake = !has_to_wait(w);
	if (wake)
		pthread_cond_broadcast(&sim_progress);
}

void sim_op_wait(struct sim_op *op)
{
	sim_op_ref(op);
	wait_until_done(&(struct waiter){ .op = op });
	sim_op_unref(op);
}

void sim_wait_device(int device)
{
	wait_until_done(&(struct waiter){ .device = device, .upto = submitted, .current = sim_current() });
}

static void sleep_until(uint64_t t)
{
	struct timespec ts = { .tv_sec = (time_t)(t / 1000000000ull), .tv_nsec = (long)(t % 1000000000ull) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
		;
}

static struct sim_op *pop(struct queue *q)
{
	struct sim_op *op;

	while (!q->head)
		pthread_cond_wait(&q->work, &sim_lock);
	op = q->head;
	q->head = op->queue_next;
	if (!q->head)
		q->tail = &q->head;
	return op;
}

/* A run of kernels that wait for nothing but each other crosses to the device process at once, as many as take no longer together than may be. Each must be all
 * that waits for the one before, or others would wait for the whole run. */
static int follow(struct sim_op *op, struct sim_op **run)
{
	uint64_t ns = op->work.kind == SIM_WORK_KERNEL ? op->work.u.launch.kernel->ns : 0;
	int n = 0;

	run[n++] = op;
	while (n < BATCH && sim_work_batches(&op->work) && op->n_next == 1 && op->next[0]->waits == 1 &&
	       sim_work_batches(&op->next[0]->work) && (ns += op->next[0]->work.u.launch.kernel->ns) <= sim_settings.together_ns) {
		op = op->next[0];
		run[n++] = op;
	}
	for (int i = 1; i < n; i++)
		pass(run[i]);
	return n;
}

/* The run ends as if its parts had ended one by one: each is taken off the next before that would become ready. */
static void finish_run(struct sim_op **run, int n)
{
	for (int i = 0; i < n; i++) {
		if (i + 1 < n)
			run[i + 1]->waits++;
		run[i]->end_ns = sim_now();
		finish(run[i]);
		if (i + 1 < n)
			run[i + 1]->waits = 0;
	}
}

/* An operation takes its modelled time from `begin` on. Where others wait for a copy engine that comes after a time slice, and then it goes behind them:
 * true. An engine that was late starts the next piece where this one should have ended. */
static bool take_time(struct queue *q, struct sim_op *op, uint64_t begin, uint64_t model, uint64_t *free_at)
{
	const bool sliced = sim_settings.slice_ns && (q == &queues[SIM_ENGINE_H2D] || q == &queues[SIM_ENGINE_D2H]);

	*free_at = model ? begin : sim_now();
	while (model) {
		uint64_t now = sliced && model > sim_settings.slice_ns ? sim_settings.slice_ns : model;

		*free_at += now;
		model -= now;
		if (*free_at > sim_now()) {
			pthread_mutex_unlock(&sim_lock);
			sleep_until(*free_at);
			pthread_mutex_lock(&sim_lock);
		}
		if (model && q->head && sticky == CUDA_SUCCESS) {
			op->left_ns = model;
			push(q, op);
			return true;
		}
	}
	if (*free_at + 200000 < sim_now())
		*free_at = sim_now();
	return false;
}

static void *engine_main(void *arg)
{
	struct queue *q = arg;
	uint64_t free_at = 0;

	prctl(PR_SET_NAME, "simgpu-engine");
	prctl(PR_SET_TIMERSLACK, 1000);
	sim_in_callback = q == &queues[SIM_ENGINE_CALLBACK];
	pthread_mutex_lock(&sim_lock);
	for (;;) {
		struct sim_op *op = pop(q), *run[BATCH];
		uint64_t model = 0;
		int n = follow(op, run);

		if (op->left_ns) {
			/* What it does is done; the rest of its time comes by and by. */
			if (take_time(q, op, op->ready_ns > free_at ? op->ready_ns : free_at, op->left_ns, &free_at))
				continue;
		} else if (sticky == CUDA_SUCCESS || op->work.kind == SIM_WORK_CALLBACK) {
			uint64_t begin = op->ready_ns > free_at ? op->ready_ns : free_at;

			pthread_mutex_unlock(&sim_lock);
			CUresult r = n > 1 ? sim_work_do_batch(run, n, &model) : sim_work_do(&op->work, &model);
			pthread_mutex_lock(&sim_lock);
			sim_set_sticky(r);
			if (take_time(q, op, begin, model, &free_at))
				continue;
		}
		finish_run(run, n);
	}
	return NULL;
}

/* Sleeps between two looks at what another process does: an eighth of the time that has been waited for it since `since`, so that
 * whoever waits long costs little and hears of it little later. */
static void sleep_between_looks(uint64_t since)
{
	uint64_t ns = (sim_now() - since) / 8;
	struct timespec t = { .tv_nsec = ns < 10000 ? 10000 : ns > 500000 ? 500000 : (long)ns };

	nanosleep(&t, NULL);
}

/* Memory waits are polled, the way a channel polls its semaphore. */
static void *poll_main(void *arg)
{
	struct queue *q = arg;
	struct sim_op *waiting = NULL;
	uint64_t since = 0;

	prctl(PR_SET_NAME, "simgpu-poll");
	prctl(PR_SET_TIMERSLACK, 1000);
	pthread_mutex_lock(&sim_lock);
	for (;;) {
		if (!waiting) {
			waiting = pop(q);
			waiting->queue_next = NULL;
			since = sim_now();
		}
		while (q->head) {
			struct sim_op *op = pop(q), **end = &waiting;

			op->queue_next = NULL;
			while (*end)
				end = &(*end)->queue_next;
			*end = op;
			since = sim_now();
		}
		for (struct sim_op **link = &waiting; *link;) {
			struct sim_op *op = *link;

			if (sticky == CUDA_SUCCESS && !sim_wait_holds(&op->work)) {
				link = &op->queue_next;
				continue;
			}
			*link = op->queue_next;
			op->end_ns = sim_now();
			since = sim_now();
			finish(op);
			link = &waiting;
		}
		if (!waiting)
			continue;
		pthread_mutex_unlock(&sim_lock);
		sleep_between_looks(since);
		pthread_mutex_lock(&sim_lock);
	}
	return NULL;
}

/* A kernel that waits for other ranks holds up its stream and nothing else. */
struct exchanging {
	struct sim_op *op;
	struct sim_exchange *x;
	uint64_t from, until; /* when it may begin, and how long it takes at least */
	struct exchanging *next;
};

static struct exchanging *exchange_new(struct sim_op *op)
{
	struct exchanging *e = calloc(1, sizeof *e);
	CUresult r = CUDA_SUCCESS;

	if (!e)
		abort();
	e->op = op;
	e->until = op->ready_ns + op->work.u.launch.kernel->ns;
	switch (sim_fault_launch()) {
	case SIM_FAULT_STICKY:
		r = CUDA_ERROR_ILLEGAL_ADDRESS;
		break;
	case SIM_FAULT_LOST:
		r = CUDA_ERROR_DEVICE_UNAVAILABLE;
		break;
	case SIM_FAULT_DROP:
		return e;
	case SIM_FAULT_STALL:
		e->from = sim_settings.stall_ns == UINT64_MAX ? UINT64_MAX : op->ready_ns + sim_settings.stall_ns;
		break;
	default:
		break;
	}
	if (r == CUDA_SUCCESS)
		e->x = sim_exchange_begin(&op->work.u.launch, &r);
	sim_set_sticky(r);
	switch (e->x ? sim_fault_exchange(sim_exchange_job_rank(e->x)) : SIM_FAULT_NONE) {
	case SIM_FAULT_STALL:
		e->from = sim_settings.nccl_stall_ns == UINT64_MAX ? UINT64_MAX : op->ready_ns + sim_settings.nccl_stall_ns;
		break;
	case SIM_FAULT_ERROR:
		sim_exchange_fail(e->x);
		e->from = UINT64_MAX;
		break;
	default:
		break;
	}
	return e;
}

static bool waits_behind(const struct exchanging *list, const struct exchanging *e)
{
	while (list != e && !(list->x && sim_exchange_port(list->x) == sim_exchange_port(e->x)))
		list = list->next;
	return list != e;
}

static void *exchange_main(void *arg)
{
	struct queue *q = arg;
	struct exchanging *list = NULL;
	uint64_t since = 0;
	bool first = true;

	prctl(PR_SET_NAME, "simgpu-exchange");
	prctl(PR_SET_TIMERSLACK, 1000);
	pthread_mutex_lock(&sim_lock);
	for (;;) {
		while (q->head || !list) {
			struct exchanging **end = &list;

			while (*end)
				end = &(*end)->next;
			*end = exchange_new(pop(q));
			first = true;
		}
		for (struct exchanging **link = &list, *e; (e = *link);) {
			bool over = !e->x, moved = false;
			CUresult r = sticky;

			pthread_mutex_unlock(&sim_lock);
			if (e->x && r == CUDA_SUCCESS && (sim_now() >= e->from || sim_exchange_stopped(e->x)) && !waits_behind(list, e))
				over = sim_exchange_step(e->x, &moved, &r);
			if (over && r == CUDA_SUCCESS && e->until > sim_now())
				over = false;
			pthread_mutex_lock(&sim_lock);
			sim_set_sticky(r);
			if (moved)
				first = true;
			if (!over && r == CUDA_SUCCESS) {
				link = &e->next;
				continue;
			}
			*link = e->next;
			sim_exchange_end(e->x);
			e->op->end_ns = sim_now();
			finish(e->op);
			free(e);
			first = true;
		}
		if (!list)
			continue;
		pthread_mutex_unlock(&sim_lock);
		if (first)
			since = sim_now();
		else
			sleep_between_looks(since);
		first = false;
		pthread_mutex_lock(&sim_lock);
	}
	return NULL;
}

int sim_engine_start(void)
{
	static const struct {
		enum sim_engine engine;
		void *(*main)(void *);
	} threads[] = {
		{ SIM_ENGINE_COMPUTE, engine_main }, { SIM_ENGINE_COMPUTE, engine_main }, { SIM_ENGINE_H2D, engine_main },
		{ SIM_ENGINE_D2H, engine_main },     { SIM_ENGINE_CALLBACK, engine_main }, { SIM_ENGINE_POLL, poll_main },
		{ SIM_ENGINE_EXCHANGE, exchange_main },
	};
	sigset_t all, old;
	int e = 0;

	for (int i = 0; i < SIM_ENGINES; i++) {
		pthread_cond_init(&queues[i].work, NULL);
		queues[i].head = NULL;
		queues[i].tail = &queues[i].head;
	}
	/* The host's signals are for the host's threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	for (size_t i = 0; i < sizeof threads / sizeof *threads && !e; i++) {
		pthread_t t;

		e = pthread_create(&t, NULL, threads[i].main, &queues[threads[i].engine]);
		if (!e)
			pthread_detach(t);
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -e;
}
