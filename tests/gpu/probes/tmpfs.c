/* SPDX-License-Identifier: Apache-2.0 */
/* Files of a tmpfs as page-locked memory: how long registering takes, which copies a driver takes, and what launches of another
 * thread cost meanwhile: tmpfs KERNELS FILE [PIECES]. A piece has 64 MiB; the file is made, and removed. */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/gpu/probes/probe.h"

enum { PIECE = 64 << 20, MOST_LAUNCHES = 1 << 20 };

struct launcher {
	CUcontext context;
	CUfunction touch;
	CUdeviceptr words;
	atomic_int end;
	struct probe_place place;
	float *ms; /* of each launch */
	size_t count;
};

static void *launch_all_the_time(void *argument)
{
	struct launcher *l = argument;
	int count = 256;
	void *arguments[] = {&l->words, &count};
	CUstream stream;

	probe_here = &l->place;
	DO(cuCtxSetCurrent, l->context);
	DO(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	for (l->count = 0; l->count < MOST_LAUNCHES && !atomic_load(&l->end); l->count++) {
		double begun = probe_ms();

		DO(cuLaunchKernel, l->touch, 1, 1, 1, 256, 1, 1, 0, stream, arguments, NULL);
		l->ms[l->count] = (float)(probe_ms() - begun);
		/* Few at a time, so that none waits for room in a queue. */
		if (l->count % 64 == 63)
			DO(cuStreamSynchronize, stream);
	}
	DO(cuStreamSynchronize, stream);
	return NULL;
}

static int by_size(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

static void say_launches(const char *when, struct launcher *l)
{
	if (l->count == 0)
		return;
	qsort(l->ms, l->count, sizeof *l->ms, by_size);
	probe_say("{\"launches_%s\": {\"count\": %zu, \"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f}}", when, l->count,
		  l->ms[l->count / 2] * 1e3, l->ms[l->count * 99 / 100] * 1e3, l->ms[l->count - 1] * 1e3);
}

/* A copy to host memory, as the copier makes them: the driver's answer, and whether the call waited for the bytes. */
static void copy(const char *what, void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	double begun = probe_ms(), called;
	CUresult result = TRY(cuMemcpyDtoHAsync, to, from, bytes, stream);

	called = probe_ms() - begun;
	if (!result)
		result = TRY(cuStreamSynchronize, stream);
	probe_say("{\"copy_%s\": {\"answer\": \"%s\", \"MiB\": %zu, \"call_ms\": %.3f, \"ms\": %.3f}}", what, result ? probe_error(result) : "taken",
		  bytes >> 20, called, probe_ms() - begun);
}

int main(int argc, char **argv)
{
	int pieces = argc > 3 ? atoi(argv[3]) : 32, registered = 0, fd;
	size_t bytes = (size_t)pieces * PIECE;
	struct launcher l = {0};
	pthread_t thread;
	CUdevice device;
	CUmodule module;
	CUdeviceptr source;
	CUstream stream;
	double begun, longest = 0, all = 0;
	CUresult result = CUDA_SUCCESS;
	char *image;

	if (argc < 3 || pieces < 4)
		return 2;
	probe_begin(&device, &l.context);
	DO(cuModuleLoadData, &module, probe_file(argv[1], NULL));
	DO(cuModuleGetFunction, &l.touch, module, "probe_touch");
	DO(cuMemAlloc, &l.words, 4096);
	DO(cuMemAlloc, &source, 2 * PIECE);
	DO(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	l.ms = calloc(MOST_LAUNCHES, sizeof *l.ms);
	fd = open(argv[2], O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || unlink(argv[2]) || posix_fallocate(fd, 0, (off_t)bytes) || !l.ms)
		probe_refused("posix_fallocate", "the file cannot be made");
	image = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (image == MAP_FAILED)
		probe_refused("mmap", "the file cannot be mapped");
	pthread_create(&thread, NULL, launch_all_the_time, &l);
	probe_sleep_ms(300);
	atomic_store(&l.end, 1);
	pthread_join(thread, NULL);
	say_launches("quiet", &l);
	atomic_store(&l.end, 0);
	pthread_create(&thread, NULL, launch_all_the_time, &l);
	for (; registered < pieces - 1 && !result; registered += !result) {
		begun = probe_ms();
		result = TRY(cuMemHostRegister, image + (size_t)registered * PIECE, PIECE, 0);
		longest = probe_ms() - begun > longest ? probe_ms() - begun : longest;
		all += probe_ms() - begun;
	}
	atomic_store(&l.end, 1);
	pthread_join(thread, NULL);
	probe_say("{\"registered\": %d, \"of\": %d, \"answer\": \"%s\", \"ms\": %.1f, \"longest_ms\": %.1f, \"GB_per_s\": %.2f}", registered,
		  pieces - 1, result ? probe_error(result) : "taken", all, longest, all > 0 ? (double)registered * PIECE / all / 1e6 : 0);
	say_launches("while_registering", &l);
	copy("inside", image, source, PIECE, stream);
	copy("across", image + PIECE / 2, source, PIECE, stream);
	copy("half_registered", image + bytes - PIECE - PIECE / 2, source, PIECE, stream);
	copy("not_registered", image + bytes - PIECE, source, PIECE, stream);
	begun = probe_ms();
	for (int i = 0; i < registered; i++)
		DO(cuMemHostUnregister, image + (size_t)i * PIECE);
	probe_say("{\"result\": \"passed\", \"unregister_ms\": %.1f}", probe_ms() - begun);
	return 0;
}
