/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program with a second thread that takes and frees device memory all the time, as a cache of data does. Preloaded into a
 * trainer. cudaFree() waits for the device, so the thread is inside of it when most iterations end.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

enum { KEPT = 5, UNIT = 40000 };

static int (*take)(void **, size_t), (*give)(void *);

static void *main_loop(void *unused)
{
	void *kept[KEPT] = {NULL};

	for (unsigned i = 0;; i++) {
		if (kept[i % KEPT])
			give(kept[i % KEPT]);
		if (take(&kept[i % KEPT], UNIT * (1 + i % 7)))
			return unused;
		usleep(500);
	}
}

int cudaMalloc(void **at, size_t bytes);
int cudaMalloc(void **at, size_t bytes)
{
	static bool begun;
	pthread_t thread;

	if (!take) {
		take = (int (*)(void **, size_t))dlsym(RTLD_NEXT, "cudaMalloc");
		give = (int (*)(void *))dlsym(RTLD_NEXT, "cudaFree");
	}
	if (!begun) {
		begun = true;
		pthread_create(&thread, NULL, main_loop, NULL);
	}
	return take(at, bytes);
}
