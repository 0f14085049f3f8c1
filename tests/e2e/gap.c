/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that has another one do something right behind an iteration, before anything comes on the device again. Preloaded into a trainer: before its
 * copy to the host of number $GAP_AT it goes the way that $GAP names. What is started notes in the file `calls` that it was, and waits until there is a
 * file `go`, or its parent is gone; what the trainer heard, and how it ended, goes to the file `told`.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char script[] = "echo called >> calls; while [ ! -e go ] && kill -0 $PPID 2>/dev/null; do sleep 0.02; done; echo heard; exit 3";
static pid_t child;

static pid_t started(void)
{
	pid_t made = fork();

	if (made == 0) {
		freopen("/dev/null", "w", stdout);
		execl("/bin/sh", "sh", "-c", script, (char *)NULL);
		_exit(127);
	}
	return made;
}

static void *asks(void *status)
{
	*(int *)status = system(script);
	return NULL;
}

static int goes(const char *way, char *heard, size_t size)
{
	pthread_t thread;
	int status = -1;
	FILE *from;

	if (strcmp(way, "system") == 0)
		return system(script);
	if (strcmp(way, "read") == 0) {
		from = popen(script, "r");
		if (!from || !fgets(heard, (int)size, from))
			return -1;
		return pclose(from);
	}
	if (strcmp(way, "thread") == 0 && pthread_create(&thread, NULL, asks, &status) == 0) {
		pthread_join(thread, NULL);
		return status;
	}
	if (!child)
		child = started();
	while (strcmp(way, "poll") == 0 && waitpid(child, &status, WNOHANG) == 0)
		usleep(20000);
	while (strcmp(way, "spin") == 0 && waitpid(child, &status, WNOHANG) == 0)
		;
	if (strcmp(way, "wait") == 0 || strcmp(way, "ahead") == 0)
		waitpid(child, &status, 0);
	return status;
}

int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream)
{
	int (*real)(void *, const void *, size_t, int, void *) =
		(int (*)(void *, const void *, size_t, int, void *))dlsym(RTLD_NEXT, "cudaMemcpyAsync");
	static int copies;
	char heard[40] = "";
	int at = atoi(getenv("GAP_AT"));
	FILE *told;

	copies += kind == 2;
	/* A busy machine needs a while for a snapshot, and the last one in front of the wait is asked for. */
	if (kind == 2 && copies >= at - 4 && copies < at)
		usleep(150000);
	if (kind == 2 && copies == at - 2 && strcmp(getenv("GAP"), "ahead") == 0)
		child = started();
	if (kind == 2 && copies == at) {
		int status = goes(getenv("GAP"), heard, sizeof heard);

		told = fopen("told", "w");
		if (told)
			fprintf(told, "%d %s\n", status, heard);
		if (told)
			fclose(told);
	}
	return real(to, from, bytes, kind, stream);
}
