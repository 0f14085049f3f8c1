/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a call costs that writes by a stream of libc's, in nanoseconds of the thread's CPU time: by the program itself, and by a forked child of it, of which it is
 * noted how much it appends to a file.
 *
 *   streams FILE COUNT ROUNDS    a line for each: "WHO CALL NS"
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

static double now(void)
{
	struct timespec at;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
	return (double)at.tv_sec * 1e9 + (double)at.tv_nsec;
}

#define TIMED(name, call)                                                             \
	for (int round = 0; round < rounds; round++) {                                \
		double from = now();                                                  \
		for (int i = 0; i < count; i++)                                       \
			(void)(call);                                                 \
		printf("%s " name " %.2f\n", who, (now() - from) / count);            \
	}

static void measure(const char *who, const char *path, int count, int rounds)
{
	FILE *to = fopen(path, "a"), *wide = fopen(path, "a");

	if (!to || !wide)
		exit(1);
	TIMED("putc", putc('x', to));
	TIMED("fputs", fputs("a row of a log\n", to));
	TIMED("fprintf", fprintf(to, "row %d loss %.6f\n", i, 0.5));
	TIMED("fputwc", fputwc(L'x', wide));
	TIMED("flushed", fputs("a row of a log\n", to) + fflush(to));
	fclose(to);
	fclose(wide);
}

int main(int argc, char **argv)
{
	int count = argc > 3 ? atoi(argv[2]) : 0, rounds = argc > 3 ? atoi(argv[3]) : 0;
	pid_t child;

	if (!count)
		return 1;
	measure("program", argv[1], count, rounds);
	fflush(stdout);
	child = fork();
	if (!child) {
		measure("child", argv[1], count, rounds);
		exit(0);
	}
	waitpid(child, NULL, 0);
	return 0;
}
