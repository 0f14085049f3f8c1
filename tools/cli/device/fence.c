/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of fences: what the program's streams wait for while a snapshot is copied has been submitted before. That streams of all kinds
 * wait for it, and that what a program does meanwhile, and the thread that copies, come to an end. */
#include "config.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/block_digest.h"
#include "runtime/base/clock.h"
#include "tools/cli/device/libcuda.h"
#include "tools/cli/device/probe.h"
#include "tools/cli/device/probes.h"

/* As long the copies in front of a fence take, and as large a copy is at most, as the library cuts them; so many are queued at most. */
#define COPY_NS 50000000ull
enum { IMAGE_BYTES = 256 << 20, PIECE_BYTES = 4 << 20, COPIES_MAX = 800 };

/* ---- a snapshot under way ------------------------------------------------------------------------------ */

static struct copier {
	struct probe_image image;
	CUdeviceptr from;
	CUstream stream;
	CUevent early, all; /* behind the first part, behind the second */
	uint32_t copies;    /* a part */
	uint64_t ns;        /* that those take, about */
	uint64_t longest;   /* call of the second part's */
	_Atomic int submitted; /* parts */
	_Atomic CUresult result;
} copier;

static size_t piece_bytes(void)
{
	return copier.image.piece < PIECE_BYTES ? copier.image.piece : PIECE_BYTES;
}

/* So many pieces of the image, over and over again. */
static CUresult submit(uint32_t copies, uint64_t *longest)
{
	uint32_t pieces = (uint32_t)(copier.image.bytes / piece_bytes());
	CUresult result = CUDA_SUCCESS;

	for (uint32_t i = 0; i < copies && result == CUDA_SUCCESS; i++) {
		size_t at = i % pieces * piece_bytes();
		uint64_t begun = tpck_clock_monotonic_ns(), ns;

		result = cuda.cuMemcpyDtoHAsync_v2(copier.image.at + at, copier.from + at, piece_bytes(), copier.stream);
		ns = tpck_clock_monotonic_ns() - begun;
		if (longest && ns > *longest)
			*longest = ns;
	}
	return result;
}

/* How many copies take as long as they are to. */
static CUresult measure(void)
{
	uint32_t pieces = (uint32_t)(copier.image.bytes / piece_bytes());
	uint64_t begun = 0, ns;
	CUresult result = CUDA_SUCCESS;

	probe_at("cuMemcpyDtoHAsync into an image");
	for (int i = 0; i < 2 && result == CUDA_SUCCESS; i++) {
		begun = tpck_clock_monotonic_ns();
		result = submit(pieces, NULL);
		if (result == CUDA_SUCCESS)
			result = cuda.cuStreamSynchronize(copier.stream);
	}
	ns = tpck_clock_monotonic_ns() - begun;
	copier.copies = (uint32_t)(COPY_NS * pieces / (ns ? ns : 1)) + 1;
	copier.copies = copier.copies > COPIES_MAX ? COPIES_MAX : copier.copies;
	copier.ns = ns * copier.copies / pieces;
	return result;
}

/* An image, device memory, and a stream of the copier's. */
static bool prepare(const char *what)
{
	CUresult result;

	if (!probe_device_open(what) || !probe_image_open(&copier.image, IMAGE_BYTES, what))
		return false;
	result = probe_map(copier.image.bytes, &copier.from);
	if (result == CUDA_SUCCESS)
		result = CALL(cuStreamCreate, &copier.stream, CU_STREAM_NON_BLOCKING);
	if (result == CUDA_SUCCESS)
		result = CALL(cuEventCreate, &copier.early, CU_EVENT_BLOCKING_SYNC);
	if (result == CUDA_SUCCESS)
		result = CALL(cuEventCreate, &copier.all, CU_EVENT_BLOCKING_SYNC);
	if (result == CUDA_SUCCESS)
		result = measure();
	if (result != CUDA_SUCCESS)
		probe_find(NOTE, what, "not tried: nothing can be copied (%s)", probe_error(result));
	return result == CUDA_SUCCESS;
}

/* ---- streams of all kinds ------------------------------------------------------------------------------ */

struct kind {
	const char *name;
	CUstream stream;
	CUresult made;
};

enum waited { WAITS, PASSES, REFUSED, UNSEEN };

/* Copies that were over before anybody could look: the next ones take longer, as far as more are to be had. */
static bool take_longer(void)
{
	bool more = copier.copies < COPIES_MAX;

	copier.copies = copier.copies * 4 < COPIES_MAX ? copier.copies * 4 : COPIES_MAX;
	return more;
}

/* Whether an event on that stream, behind a wait for the copier's, passes only behind that. */
static enum waited try_wait(const struct kind *kind, CUresult *result)
{
	CUevent behind;
	CUresult passed, copied;

	*result = kind->made;
	if (*result == CUDA_SUCCESS)
		*result = CALL(cuEventCreate, &behind, CU_EVENT_DISABLE_TIMING);
	if (*result == CUDA_SUCCESS)
		*result = submit(copier.copies, NULL);
	if (*result == CUDA_SUCCESS)
		*result = CALL(cuEventRecord, copier.early, copier.stream);
	if (*result == CUDA_SUCCESS)
		*result = CALL(cuStreamWaitEvent, kind->stream, copier.early, 0);
	if (*result == CUDA_SUCCESS)
		*result = CALL(cuEventRecord, behind, kind->stream);
	if (*result != CUDA_SUCCESS)
		return REFUSED;
	/* In this order: what is behind must not be seen to have passed before what it waits for. */
	passed = CALL(cuEventQuery, behind);
	copied = CALL(cuEventQuery, copier.early);
	*result = CALL(cuEventSynchronize, behind);
	if (*result != CUDA_SUCCESS)
		return REFUSED;
	if (passed == CUDA_SUCCESS && copied == CUDA_ERROR_NOT_READY)
		return PASSES;
	return copied == CUDA_ERROR_NOT_READY ? WAITS : UNSEEN;
}

/* Queues something on another stream while the legacy stream waits for the copies, and waits for that. *held: NOT_READY if these are not over then. */
static CUresult pass_legacy(CUdeviceptr at, CUstream other, CUevent early, CUresult *held)
{
	CUresult result = submit(copier.copies, NULL);

	if (result == CUDA_SUCCESS)
		result = CALL(cuEventRecord, copier.early, copier.stream);
	if (result == CUDA_SUCCESS)
		result = CALL(cuStreamWaitEvent, CU_STREAM_LEGACY, copier.early, 0);
	if (result == CUDA_SUCCESS)
		result = CALL(cuMemsetD8Async, at, 0, 4096, other);
	if (result == CUDA_SUCCESS)
		result = CALL(cuEventRecord, early, other);
	if (result == CUDA_SUCCESS)
		result = CALL(cuEventSynchronize, early);
	*held = result == CUDA_SUCCESS ? CALL(cuEventQuery, copier.early) : CUDA_SUCCESS;
	(void)CALL(cuCtxSynchronize);
	return result;
}

/* Whether a stream of the copier's kind goes on while the legacy stream, and all that go by it, wait. */
static void examine_legacy(void)
{
	CUstream other;
	CUevent early;
	CUresult result = CALL(cuStreamCreate, &other, CU_STREAM_NON_BLOCKING), held = CUDA_SUCCESS;
	CUdeviceptr at = 0;

	if (result == CUDA_SUCCESS)
		result = CALL(cuMemAlloc_v2, &at, 4096);
	if (result == CUDA_SUCCESS)
		result = CALL(cuEventCreate, &early, CU_EVENT_DISABLE_TIMING);
	do {
		if (result == CUDA_SUCCESS)
			result = pass_legacy(at, other, early, &held);
	} while (result == CUDA_SUCCESS && held == CUDA_SUCCESS && take_longer());
	if (result != CUDA_SUCCESS)
		probe_find(NOTE, "legacy stream", "not tried: %s", probe_error(result));
	else if (held == CUDA_SUCCESS)
		probe_find(NOTE, "legacy stream", "while it waits a stream that does not go by it waits, too (CUDA_DEVICE_MAX_CONNECTIONS may be low), or copies are too short to tell");
	else
		probe_find(GOOD, "legacy stream", "while it waits, streams that do not go by it go on");
}

/* Adds a name to a list in words. */
static void add(char *list, size_t size, const char *name)
{
	size_t length = strlen(list);

	snprintf(list + length, size - length, "%s%s", length ? ", " : "", name);
}

void probe_events_run(void)
{
	struct kind kinds[] = {
		{"the null stream", NULL, CUDA_SUCCESS}, {"the legacy stream", CU_STREAM_LEGACY, CUDA_SUCCESS},
		{"the thread's own", CU_STREAM_PER_THREAD, CUDA_SUCCESS}, {"blocking", NULL, CUDA_SUCCESS},
		{"non-blocking", NULL, CUDA_SUCCESS}, {"of high priority", NULL, CUDA_SUCCESS},
	};
	char good[300] = "", unseen[300] = "";
	int least = 0, greatest = 0;

	if (!prepare("waits for events"))
		return;
	kinds[3].made = CALL(cuStreamCreate, &kinds[3].stream, CU_STREAM_DEFAULT);
	kinds[4].made = CALL(cuStreamCreate, &kinds[4].stream, CU_STREAM_NON_BLOCKING);
	(void)CALL(cuCtxGetStreamPriorityRange, &least, &greatest);
	kinds[5].made = CALL(cuStreamCreateWithPriority, &kinds[5].stream, CU_STREAM_NON_BLOCKING, greatest);
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		enum waited waited;
		CUresult result;

		do
			waited = try_wait(&kinds[i], &result);
		while (waited == UNSEEN && take_longer());
		switch (waited) {
		case WAITS:
			add(good, sizeof good, kinds[i].name);
			break;
		case UNSEEN:
			add(unseen, sizeof unseen, kinds[i].name);
			break;
		case REFUSED:
			probe_find(NOTE, "waits for events", "%s: refused (%s); the program's thread waits for the copy instead, which takes longer", kinds[i].name,
				   probe_error(result));
			break;
		case PASSES:
			probe_find(BAD, "waits for events", "%s: does not wait for the copy, so the program would change what is being copied: no snapshot "
				   "would be whole", kinds[i].name);
			break;
		}
	}
	if (good[0])
		probe_find(GOOD, "waits for events", "streams wait for the copier's event: %s", good);
	if (unseen[0])
		probe_find(NOTE, "waits for events", "copies are too short here to see whether these wait: %s", unseen);
	examine_legacy();
}

/* ---- what a program does behind a fence ----------------------------------------------------------------- */

/* The program's thread; the main one. */
static struct program {
	CUstream stream;
	CUfunction function;
	CUdeviceptr units, sums;
	uint64_t longest;
	const char *call; /* which took that long */
	CUresult result;
} program;

/* A call of the program's, with the time that it takes. After one that failed none is made. */
#define DO(symbol, ...)                                                                     \
	do {                                                                                \
		uint64_t begun_ = tpck_clock_monotonic_ns(), ns_;                           \
		if (program.result == CUDA_SUCCESS)                                         \
			program.result = cuda.symbol(__VA_ARGS__);                          \
		ns_ = tpck_clock_monotonic_ns() - begun_;                                   \
		if (ns_ > program.longest) {                                                \
			program.longest = ns_;                                              \
			program.call = #symbol;                                             \
		}                                                                           \
	} while (0)

static void launch(void)
{
	void *parameters[] = {&program.units, &program.sums};

	DO(cuLaunchKernel, program.function, 1, 1, 1, TPCK_DIGEST_THREADS, 1, 1, 0, program.stream, parameters, NULL);
}

static void first_launch(void)
{
	probe_at("cuLaunchKernel of a kernel's first launch");
	launch();
}

static void many_launches(void)
{
	probe_at("cuLaunchKernel, one of thousands of launches");
	for (int i = 0; i < 5000 && program.result == CUDA_SUCCESS; i++)
		launch();
}

static void pageable(void)
{
	size_t bytes = 32 << 20;
	char *host = malloc(bytes);

	if (!host || probe_map(bytes, &program.units) != CUDA_SUCCESS)
		program.result = CUDA_ERROR_OUT_OF_MEMORY;
	else
		memset(host, 1, bytes);
	probe_at("a copy to memory that is not pinned");
	DO(cuMemcpyDtoHAsync_v2, host, program.units, 4, program.stream);
	DO(cuMemcpyDtoHAsync_v2, host, program.units, bytes, program.stream);
	DO(cuMemcpyHtoD_v2, program.units, host, bytes);
	free(host);
}

static void memory_calls(void)
{
	CUdeviceptr at = 0;
	void *host = NULL;

	probe_at("cuMemAlloc, cuMemFree, cuMemHostAlloc and cuMemFreeHost");
	for (int i = 0; i < 4; i++) {
		DO(cuMemAlloc_v2, &at, 8 << 20);
		DO(cuMemFree_v2, at);
	}
	DO(cuMemHostAlloc, &host, 8 << 20, CU_MEMHOSTALLOC_PORTABLE);
	DO(cuMemFreeHost, host);
}

static void waiting(void)
{
	probe_at("cuStreamSynchronize and cuCtxSynchronize");
	DO(cuMemsetD8Async, program.sums, 0, 8, program.stream);
	DO(cuStreamSynchronize, program.stream);
	DO(cuCtxSynchronize);
}

/* The second part is submitted while the program is held up, or not, by the first. */
static void *copy(void *context)
{
	CUresult result = cuda.cuCtxSetCurrent(context);

	for (int part = 0; part < 2; part++) {
		if (result == CUDA_SUCCESS)
			result = submit(copier.copies, part ? &copier.longest : NULL);
		if (result == CUDA_SUCCESS)
			result = cuda.cuEventRecord(part ? copier.all : copier.early, copier.stream);
		atomic_store(&copier.result, result);
		atomic_store(&copier.submitted, part + 1);
	}
	return NULL;
}

static bool load(const char *what)
{
	char path[TPCK_PATH_MAX];
	void *code = probe_kernel_code(path, sizeof path);
	CUmodule module;
	CUresult result = code ? CALL(cuModuleLoadData, &module, code) : CUDA_ERROR_FILE_NOT_FOUND;

	if (result == CUDA_SUCCESS)
		result = CALL(cuModuleGetFunction, &program.function, module, TPCK_DIGEST_KERNEL);
	if (result != CUDA_SUCCESS)
		probe_find(NOTE, what, "not tried: there is no kernel to launch (%s, %s)", path, probe_error(result));
	return result == CUDA_SUCCESS;
}

/* One unit of eight bytes, and a sum for it. */
static CUresult prepare_program(void)
{
	const struct tpck_digest_unit unit = {.bytes = 8};
	struct tpck_digest_unit *units = NULL;
	CUresult result = CALL(cuStreamCreate, &program.stream, CU_STREAM_DEFAULT);

	if (result == CUDA_SUCCESS)
		result = CALL(cuMemAlloc_v2, &program.sums, 4096);
	if (result == CUDA_SUCCESS)
		result = CALL(cuMemsetD8_v2, program.sums, 0, 4096);
	if (result == CUDA_SUCCESS)
		result = CALL(cuMemHostAlloc, (void **)&units, sizeof *units, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
	if (result == CUDA_SUCCESS)
		result = CALL(cuMemHostGetDevicePointer_v2, &program.units, units, 0);
	if (result == CUDA_SUCCESS) {
		*units = unit;
		units->address = program.sums + 8;
	}
	return result;
}

static double ms(uint64_t ns)
{
	return (double)ns / 1e6;
}

static void say(const char *what, uint64_t took, bool moved)
{
	CUresult copied = atomic_load(&copier.result);

	if (program.result != CUDA_SUCCESS || copied != CUDA_SUCCESS)
		probe_find(BAD, what, "while a snapshot is copied %s fails (%s)", copied != CUDA_SUCCESS ? "the copy" : program.call ? program.call : "it",
			   probe_error(copied != CUDA_SUCCESS ? copied : program.result));
	else if (took > 4 * copier.ns + 3000000000)
		probe_find(NOTE, what, "while a snapshot is copied, which takes %.0f ms, it takes %.0f ms (%s %.1f ms): longer than the copy explains",
			   ms(2 * copier.ns), ms(took), program.call, ms(program.longest));
	else
		probe_find(GOOD, what, "%s; the longest call was %s, %.1f ms, and of the copying thread's meanwhile one of %.1f ms",
			   moved ? "goes on while a snapshot is copied" : "waits for the copy of a snapshot, and ends", program.call, ms(program.longest),
			   ms(copier.longest));
}

static void behind_fence(const char *what, void (*act)(void), bool launches, bool warm)
{
	const struct timespec pause = {0, 100000};
	CUcontext context = NULL;
	uint64_t begun, took;
	pthread_t thread;
	bool moved;

	if (!prepare(what) || (launches && !load(what)))
		return;
	program.result = prepare_program();
	if (warm && launches && program.result == CUDA_SUCCESS) {
		probe_at("a launch before, and cuCtxSynchronize");
		launch();
		DO(cuCtxSynchronize);
		program.longest = 0;
		program.call = NULL;
	}
	if (program.result == CUDA_SUCCESS)
		program.result = CALL(cuCtxGetCurrent, &context);
	if (program.result != CUDA_SUCCESS || pthread_create(&thread, NULL, copy, context)) {
		probe_find(NOTE, what, "not tried: the program's side cannot be made ready (%s)", probe_error(program.result));
		return;
	}
	while (!atomic_load(&copier.submitted))
		nanosleep(&pause, NULL);
	begun = tpck_clock_monotonic_ns();
	/* As the library does where the device refuses to wait. */
	if (CALL(cuStreamWaitEvent, program.stream, copier.early, 0) != CUDA_SUCCESS)
		program.result = CALL(cuEventSynchronize, copier.early);
	act();
	took = tpck_clock_monotonic_ns() - begun;
	moved = cuda.cuEventQuery(copier.early) == CUDA_ERROR_NOT_READY;
	probe_at("the end of the copying thread");
	pthread_join(thread, NULL);
	probe_at("cuCtxSynchronize");
	if (cuda.cuCtxSynchronize() != CUDA_SUCCESS && program.result == CUDA_SUCCESS) {
		program.result = CUDA_ERROR_UNKNOWN;
		program.call = "cuCtxSynchronize";
	}
	say(what, took, moved);
}

void probe_first_launch_run(void)
{
	behind_fence("first launch", first_launch, true, false);
}

void probe_many_launches_run(void)
{
	behind_fence("many launches", many_launches, true, true);
}

void probe_pageable_run(void)
{
	behind_fence("pageable copies", pageable, false, true);
}

void probe_memory_calls_run(void)
{
	behind_fence("memory calls", memory_calls, false, true);
}

void probe_waiting_run(void)
{
	behind_fence("waiting", waiting, false, true);
}
