/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that goes by clocks. Preloaded into a trainer: with every fifth copy to the host it looks at all of them, polls one until a
 * time has come and has the device do as much as it polled, and waits until points in time by each way that libc has. The file
 * `looks` gets what clocks said, `waits` what became of the waits. A thread of its own that has nothing to do with the device asks
 * whether the main thread's last turn was hours ago.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "copied.h"

enum { EVERY = 5, WAIT_NS = 3000000, HOURS = 3600 };

int cudaMalloc(void **at, size_t bytes);
int cudaMemset(void *at, int value, size_t bytes);

static _Atomic uint64_t turn_ns;

static uint64_t look(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The kernel's own time, past libc: only how long something takes is asked of it. */
static uint64_t true_ns(void)
{
	struct timespec now;
	long result;

	__asm__ volatile("syscall" : "=a"(result) : "0"(SYS_clock_gettime), "D"(CLOCK_MONOTONIC), "S"(&now) : "rcx", "r11", "memory");
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct timespec ahead(clockid_t clock)
{
	uint64_t until = look(clock) + WAIT_NS;

	return (struct timespec){(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
}

static void tell(const char *name, const char *line)
{
	FILE *to = fopen(name, "a");

	if (to)
		fputs(line, to);
	if (to)
		fclose(to);
}

/* What a wait gave, and whether it was too short. How long it took at most nobody can say on a busy machine, but not hours. */
static void waited(char *line, const char *way, int result, uint64_t begun)
{
	uint64_t took = true_ns() - begun;

	/* The time of the look is before the wait's beginning. */
	sprintf(line + strlen(line), " %s %d%s", way, result, took < WAIT_NS / 2 ? " early" : "");
}

static void waits(int number)
{
	static pthread_cond_t steady, calendar = PTHREAD_COND_INITIALIZER;
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	static sem_t semaphore;
	struct itimerspec timer = {{0}};
	pthread_condattr_t attributes;
	struct timespec until;
	uint64_t begun, expired = 0;
	char line[400];
	int fd, word = 0, result;

	if (number == 1) {
		pthread_condattr_init(&attributes);
		pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
		pthread_cond_init(&steady, &attributes);
		sem_init(&semaphore, 0, 0);
	}
	sprintf(line, "%d:", number);
	pthread_mutex_lock(&mutex);
	until = ahead(CLOCK_MONOTONIC), begun = true_ns();
	waited(line, "condition", pthread_cond_timedwait(&steady, &mutex, &until), begun);
	until = ahead(CLOCK_REALTIME), begun = true_ns();
	waited(line, "calendar", pthread_cond_timedwait(&calendar, &mutex, &until), begun);
	until = ahead(CLOCK_MONOTONIC), begun = true_ns();
	waited(line, "clockwait", pthread_cond_clockwait(&calendar, &mutex, CLOCK_MONOTONIC, &until), begun);
	pthread_mutex_unlock(&mutex);
	until = ahead(CLOCK_MONOTONIC), begun = true_ns();
	waited(line, "semaphore", sem_clockwait(&semaphore, CLOCK_MONOTONIC, &until), begun);
	until = ahead(CLOCK_MONOTONIC), begun = true_ns();
	waited(line, "sleep", clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL), begun);
	until = ahead(CLOCK_MONOTONIC), begun = true_ns();
	result = (int)syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 0, &until, NULL, FUTEX_BITSET_MATCH_ANY);
	waited(line, "futex", result ? errno : 0, begun);
	fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	timer.it_value = ahead(CLOCK_MONOTONIC), begun = true_ns();
	timerfd_settime(fd, TFD_TIMER_ABSTIME, &timer, NULL);
	(void)!read(fd, &expired, sizeof expired);
	waited(line, "timer", (int)expired, begun);
	close(fd);
	strcat(line, "\n");
	tell("waits", line);
}

static void *watch(void *unused)
{
	for (;;) {
		uint64_t last = turn_ns, now = look(CLOCK_MONOTONIC);

		if (last && now > last && now - last > HOURS * 1000000000ull)
			tell("alarm", "the main thread has done nothing for hours\n");
		usleep(2000);
	}
	return unused;
}

static void go_by_clocks(int number)
{
	static void *memory;
	pthread_t thread;
	struct timeval day;
	char line[400];
	uint64_t end;
	int polls = 0;

	if (number == 1) {
		cudaMalloc(&memory, 4096);
		pthread_create(&thread, NULL, watch, NULL);
	}
	turn_ns = look(CLOCK_MONOTONIC);
	for (end = look(CLOCK_MONOTONIC) + 200000; look(CLOCK_MONOTONIC) < end;)
		polls++;
	/* Of the device's work the size is known, so another one would be found. */
	cudaMemset(memory, 0, 4 * (1 + (size_t)polls % 1000));
	gettimeofday(&day, NULL);
	sprintf(line, "%d: %d %llu %llu %llu %llu %llu %llu %llu\n", number, polls, (unsigned long long)look(CLOCK_MONOTONIC), (unsigned long long)look(CLOCK_MONOTONIC_RAW),
		(unsigned long long)look(CLOCK_BOOTTIME), (unsigned long long)look(CLOCK_PROCESS_CPUTIME_ID),
		(unsigned long long)look(CLOCK_THREAD_CPUTIME_ID), (unsigned long long)look(CLOCK_MONOTONIC_COARSE),
		(unsigned long long)day.tv_sec * 1000000 + (unsigned long long)day.tv_usec);
	tell("looks", line);
	waits(number);
}

static void copied(int kind)
{
	static int copies, inside;

	if (kind != TO_HOST || inside || !getenv("TIMES"))
		return;
	inside = 1;
	if (++copies % EVERY == 0)
		go_by_clocks(copies / EVERY);
	inside = 0;
}
