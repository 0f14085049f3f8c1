/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that saves by a second thread: with each copy to the host it takes pinned memory, or registers memory of its own, has the device copy there, and the thread
 * writes that to files of its own and gives it back at its own pace, some of it late. Preloaded into a trainer. Where the next pinned memory lies follows from what
 * the thread has given back by then.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "copied.h"
#include "past_libc.h"

enum { UNIT = 20000, MOST = 7 * UNIT, ROOM = 8, SAVED = 64 };

int cudaMalloc(void **at, size_t bytes);
int cudaMemset(void *at, int value, size_t bytes);
int cudaMallocHost(void **at, size_t bytes);
int cudaFreeHost(void *at);
int cudaHostRegister(void *at, size_t bytes, unsigned flags);
int cudaHostUnregister(void *at);

struct saved {
	char *bytes;
	size_t count;
	bool registered;
};

static struct saved queue[ROOM];
static unsigned put, taken;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* Another pace in each run, which nobody can repeat for it. */
static unsigned pace(void)
{
	struct timespec now = {0, 0};

	past_libc(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&now, 0, 0);
	return (unsigned)(now.tv_nsec / 100);
}

static void give_back(struct saved *saved)
{
	if (saved->registered) {
		cudaHostUnregister(saved->bytes);
		munmap(saved->bytes, saved->count);
	} else {
		cudaFreeHost(saved->bytes);
	}
}

static void *save_main(void *unused)
{
	struct saved late = {NULL};
	int fd = open("out/saved", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	FILE *list = fopen("out/list", "w");

	for (;;) {
		struct saved saved;

		pthread_mutex_lock(&lock);
		while (taken == put)
			pthread_cond_wait(&changed, &lock);
		saved = queue[taken % ROOM];
		pthread_mutex_unlock(&lock);
		(void)!pwrite(fd, saved.bytes + saved.count - SAVED, SAVED, taken * SAVED);
		for (int line = 0; line < 4; line++) {
			fprintf(list, "%u of %zu bytes\n", taken, saved.count);
			fflush(list);
		}
		usleep(pace() % 2000);
		/* Of three blocks one stays until later. */
		if (pace() % 3 && late.bytes) {
			give_back(&late);
			late.bytes = NULL;
		}
		if (pace() % 3 || late.bytes)
			give_back(&saved);
		else
			late = saved;
		pthread_mutex_lock(&lock);
		taken++;
		pthread_cond_signal(&changed);
		pthread_mutex_unlock(&lock);
	}
	return unused;
}

/* What is on its way at the end is saved. */
__attribute__((destructor)) static void finish(void)
{
	pthread_mutex_lock(&lock);
	while (taken < put)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static void copied(int kind)
{
	static unsigned copies;
	static bool inside;
	static void *memory;
	struct saved saved = {NULL, UNIT * (1 + copies % 7), copies % 2};
	pthread_t thread;

	if (kind != TO_HOST || inside)
		return;
	inside = true;
	if (!memory && (cudaMalloc(&memory, MOST) || pthread_create(&thread, NULL, save_main, NULL)))
		abort();
	pthread_mutex_lock(&lock);
	while (put - taken == ROOM)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	if (saved.registered) {
		saved.bytes = mmap(NULL, saved.count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (cudaHostRegister(saved.bytes, saved.count, 0))
			abort();
	} else if (cudaMallocHost((void **)&saved.bytes, saved.count)) {
		abort();
	}
	if (cudaMemset(memory, (int)(++copies % 251), saved.count) || cudaMemcpy(saved.bytes, memory, saved.count, TO_HOST))
		abort();
	pthread_mutex_lock(&lock);
	queue[put++ % ROOM] = saved;
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&lock);
	inside = false;
}
