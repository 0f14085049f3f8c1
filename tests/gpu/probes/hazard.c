/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One cell of the matrix of hazards: a program's streams wait for copies of another thread, and the program goes on with calls that
 * a driver may block in. Does all of it move?
 *
 *   hazard KERNELS FENCE ACTION STREAMS [MIB [MILLISECONDS]]
 *
 * FENCE: `value`: the streams wait for a word in host memory, which the copier's thread writes after it has submitted its copies and
 * has waited for them, piece by piece, while the program goes on. `event`: they wait for an event behind copies that were all
 * submitted before. MIB is how much is copied.
 * The last line says whether it moved within MILLISECONDS, else three seconds; if not, in which calls the threads were, and whether it moved once the
 * CPU had written the word.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/gpu/probes/probe.h"

enum { MOST_STREAMS = 64, PIECE = 4 << 20, LANDING = 64 << 20 };

struct cell {
	const char *image;
	bool by_value;
	const char *action;
	int streams;
	double patience_ms;
	size_t copied;
	CUcontext context;
	CUfunction touch;
	CUmodule unused;    /* loaded, and none of its kernels launched */
	CUstream stream[MOST_STREAMS], copier;
	CUevent before, done;
	CUdeviceptr words, source, flag_on_device, bulk;
	volatile unsigned *flag;
	char *landing, *pageable;
	size_t bulk_bytes;
	struct probe_place program, copying;
	atomic_int submitted, begun, moved, stuck;
};

static void launch(struct cell *c, CUfunction function, CUstream stream)
{
	int count = 256;
	void *arguments[] = {&c->words, &count};

	DO(cuLaunchKernel, function, 1, 1, 1, 256, 1, 1, 0, stream, arguments, NULL);
}

/* ---- the copier ---------------------------------------------------------------------------- */

static void submit(struct cell *c, bool waiting)
{
	CUevent event;
	size_t at = 0;

	DO(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
	DO(cuStreamWaitEvent, c->copier, c->before, 0);
	for (int i = 0; at < c->copied; i++, at += PIECE) {
		DO(cuMemcpyDtoHAsync, c->landing + at % LANDING, c->source + at, PIECE, c->copier);
		if (waiting && i % 2) {
			DO(cuEventRecord, event, c->copier);
			DO(cuEventSynchronize, event);
		}
	}
	DO(cuEventRecord, c->done, c->copier);
}

static void *copy(void *argument)
{
	struct cell *c = argument;

	probe_here = &c->copying;
	DO(cuCtxSetCurrent, c->context);
	if (!c->by_value) {
		submit(c, false);
		atomic_store(&c->submitted, 1);
		DO(cuEventSynchronize, c->done);
		return NULL;
	}
	while (!atomic_load(&c->begun))
		probe_sleep_ms(0.1);
	probe_sleep_ms(20); /* the program is in its call by now */
	submit(c, true);
	DO(cuEventSynchronize, c->done);
	*c->flag = 1;
	return NULL;
}

/* ---- what the program does behind the fence ------------------------------------------------- */

static void act_load(struct cell *c)
{
	CUmodule module;
	CUfunction first;

	DO(cuModuleLoadData, &module, c->image);
	DO(cuModuleGetFunction, &first, module, "probe_first");
	launch(c, first, c->stream[0]);
}

static void act_lazy(struct cell *c)
{
	CUfunction first;

	DO(cuModuleGetFunction, &first, c->unused, "probe_first");
	launch(c, first, c->stream[0]);
}

static void act_launches(struct cell *c)
{
	for (int i = 0; i < 5000; i++)
		launch(c, c->touch, c->stream[i % c->streams]);
}

static void act_one_queue(struct cell *c)
{
	for (int i = 0; i < 5000; i++)
		launch(c, c->touch, c->stream[0]);
}

static void act_d2h_small(struct cell *c)
{
	DO(cuMemcpyDtoHAsync, c->pageable, c->bulk, 4, c->stream[0]);
}

static void act_h2d_small(struct cell *c)
{
	DO(cuMemcpyHtoDAsync, c->bulk, c->pageable, 4, c->stream[0]);
}

static void act_d2h_large(struct cell *c)
{
	DO(cuMemcpyDtoHAsync, c->pageable, c->bulk, c->bulk_bytes, c->stream[0]);
}

static void act_h2d_large(struct cell *c)
{
	DO(cuMemcpyHtoDAsync, c->bulk, c->pageable, c->bulk_bytes, c->stream[0]);
}

static void act_null_copy(struct cell *c)
{
	DO(cuMemcpyDtoH, c->pageable, c->bulk, 4);
}

static void act_malloc(struct cell *c)
{
	(void)c;
	for (int i = 0; i < 4; i++) {
		CUdeviceptr memory;

		DO(cuMemAlloc, &memory, (size_t)64 << 20);
		DO(cuMemFree, memory);
	}
}

static void act_hostalloc(struct cell *c)
{
	void *memory;

	(void)c;
	DO(cuMemHostAlloc, &memory, (size_t)64 << 20, 0);
	DO(cuMemFreeHost, memory);
}

static void act_register(struct cell *c)
{
	DO(cuMemHostRegister, c->pageable, (size_t)4 << 20, 0);
	DO(cuMemHostUnregister, c->pageable);
}

static void act_sync_other(struct cell *c)
{
	CUstream other;

	DO(cuStreamCreate, &other, CU_STREAM_NON_BLOCKING);
	launch(c, c->touch, other);
	DO(cuStreamSynchronize, other);
}

static void act_graph(struct cell *c)
{
	CUgraph graph;
	CUgraphExec ready;
	CUstream captured;

	DO(cuStreamCreate, &captured, CU_STREAM_NON_BLOCKING);
	DO(cuStreamBeginCapture, captured, CU_STREAM_CAPTURE_MODE_RELAXED);
	for (int i = 0; i < 20; i++)
		launch(c, c->touch, captured);
	DO(cuStreamEndCapture, captured, &graph);
	DO(cuGraphInstantiateWithFlags, &ready, graph, 0);
	DO(cuGraphLaunch, ready, c->stream[0]);
}

/* With CUDA_LAUNCH_BLOCKING=1 in its environment it waits for the kernel. */
static void act_launch(struct cell *c)
{
	launch(c, c->touch, c->stream[0]);
}

static void act_ctx_sync(struct cell *c)
{
	(void)c;
	DO(cuCtxSynchronize);
}

static const struct action {
	const char *name;
	void (*act)(struct cell *);
} actions[] = {
	{"load", act_load}, {"lazy", act_lazy}, {"launches", act_launches}, {"one-queue", act_one_queue},
	{"d2h-4B", act_d2h_small}, {"h2d-4B", act_h2d_small}, {"d2h-1G", act_d2h_large}, {"h2d-1G", act_h2d_large},
	{"null-copy", act_null_copy}, {"malloc", act_malloc}, {"hostalloc", act_hostalloc}, {"register", act_register},
	{"sync-other", act_sync_other}, {"graph", act_graph}, {"blocking", act_launch}, {"ctx-sync", act_ctx_sync},
};

/* ---- who looks after them ------------------------------------------------------------------- */

static bool moves_within(struct cell *c, double ms)
{
	for (double end = probe_ms() + ms; probe_ms() < end; probe_sleep_ms(1))
		if (atomic_load(&c->moved))
			return true;
	return false;
}

static void *watch(void *argument)
{
	struct cell *c = argument;
	bool released = false;

	if (moves_within(c, c->patience_ms))
		return NULL;
	atomic_store(&c->stuck, 1);
	probe_say("{\"result\": \"stuck\", \"moved\": false, \"program_in\": \"%s\", \"copier_in\": \"%s\"}",
		  atomic_load(&c->program.call), atomic_load(&c->copying.call));
	if (c->by_value) {
		*c->flag = 1;
		released = moves_within(c, c->patience_ms);
		probe_say("{\"released_by_store\": %s}", released ? "true" : "false");
	}
	_exit(0); /* what hangs cannot be taken back */
}

/* ---- the program ---------------------------------------------------------------------------- */

static void prepare(struct cell *c)
{
	CUmodule module;
	CUdevice device;
	int flags = CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE;

	probe_begin(&device, &c->context);
	DO(cuModuleLoadData, &module, c->image);
	DO(cuModuleGetFunction, &c->touch, module, "probe_touch");
	DO(cuModuleLoadData, &c->unused, c->image);
	DO(cuMemAlloc, &c->words, 4096);
	DO(cuMemAlloc, &c->source, c->copied);
	DO(cuMemHostAlloc, (void **)&c->landing, LANDING, CU_MEMHOSTALLOC_PORTABLE);
	DO(cuMemHostAlloc, (void **)&c->flag, 4096, (unsigned)flags);
	*c->flag = 0;
	DO(cuMemHostGetDevicePointer, &c->flag_on_device, (void *)c->flag, 0);
	c->bulk_bytes = strstr(c->action, "-1G") ? c->copied : (size_t)PIECE;
	DO(cuMemAlloc, &c->bulk, c->bulk_bytes);
	c->pageable = aligned_alloc(2 << 20, c->bulk_bytes);
	if (!c->pageable)
		probe_refused("aligned_alloc", "no memory");
	memset(c->pageable, 1, c->bulk_bytes);
	for (int i = 0; i < c->streams; i++) {
		DO(cuStreamCreate, &c->stream[i], CU_STREAM_NON_BLOCKING);
		launch(c, c->touch, c->stream[i]);
	}
	DO(cuStreamCreate, &c->copier, CU_STREAM_NON_BLOCKING);
	DO(cuEventCreate, &c->before, CU_EVENT_DISABLE_TIMING);
	DO(cuEventCreate, &c->done, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);
	DO(cuCtxSynchronize);
}

static void fence(struct cell *c)
{
	if (c->by_value) {
		for (int i = 0; i < c->streams; i++)
			DO(cuStreamWaitValue32, c->stream[i], c->flag_on_device, 1, CU_STREAM_WAIT_VALUE_GEQ);
		return;
	}
	while (!atomic_load(&c->submitted))
		probe_sleep_ms(0.05);
	for (int i = 0; i < c->streams; i++)
		DO(cuStreamWaitEvent, c->stream[i], c->done, 0);
}

int main(int argc, char **argv)
{
	static struct cell c;
	const struct action *action = NULL;
	pthread_t copier, watcher;
	double begun, acted, longest;
	const char *longest_in;

	if (argc < 5)
		return 2;
	c.image = probe_file(argv[1], NULL);
	c.by_value = strcmp(argv[2], "value") == 0;
	c.action = argv[3];
	c.streams = atoi(argv[4]);
	c.copied = (size_t)(argc > 5 ? atoi(argv[5]) : 1024) << 20;
	c.patience_ms = argc > 6 ? atoi(argv[6]) : 3000;
	for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
		if (strcmp(actions[i].name, c.action) == 0)
			action = &actions[i];
	if (!action || c.streams < 1 || c.streams > MOST_STREAMS)
		return 2;
	prepare(&c);
	c.copying.call = c.program.call = "";
	probe_here = &c.program;
	c.program.longest_call = c.copying.longest_call = "";
	begun = probe_ms();
	if (pthread_create(&watcher, NULL, watch, &c))
		return 2;
	DO(cuEventRecord, c.before, c.stream[0]);
	if (c.by_value)
		fence(&c);
	if (pthread_create(&copier, NULL, copy, &c))
		return 2;
	if (!c.by_value)
		fence(&c);
	c.program.longest_ms = 0;
	atomic_store(&c.begun, 1);
	acted = probe_ms();
	action->act(&c);
	acted = probe_ms() - acted;
	longest = c.program.longest_ms;
	longest_in = c.program.longest_call;
	for (int i = 0; i < c.streams; i++)
		DO(cuStreamSynchronize, c.stream[i]);
	pthread_join(copier, NULL);
	atomic_store(&c.moved, 1);
	if (!atomic_load(&c.stuck))
		probe_say("{\"result\": \"moved\", \"moved\": true, \"ms\": %.1f, \"action_ms\": %.1f, \"longest_ms\": %.1f, \"longest_in\": \"%s\", "
			  "\"copier_longest_ms\": %.1f, \"copier_longest_in\": \"%s\"}",
			  probe_ms() - begun, acted, longest, longest_in, c.copying.longest_ms, c.copying.longest_call);
	pthread_join(watcher, NULL);
	return 0;
}
