/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that comes just as far as it may. Preloaded into a trainer: before its copy to the host of number N it waits, past libc, until the file `steps`
 * says a number that is not smaller.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>

#include "past_libc.h"

static int allowed(void)
{
	char text[32] = "";
	long file = past_libc(SYS_open, (long)"steps", O_RDONLY, 0, 0);

	if (file < 0)
		return 0;
	past_libc(SYS_read, file, (long)text, sizeof text - 1, 0);
	past_libc(SYS_close, file, 0, 0, 0);
	return atoi(text);
}

int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream)
{
	int (*real)(void *, const void *, size_t, int, void *) =
		(int (*)(void *, const void *, size_t, int, void *))dlsym(RTLD_NEXT, "cudaMemcpyAsync");
	const struct timespec pause = {0, 2000000};
	static int copies, may;

	copies += kind == 2;
	while (kind == 2 && copies > may && (may = allowed()) < copies)
		past_libc(SYS_nanosleep, (long)&pause, 0, 0, 0);
	return real(to, from, bytes, kind, stream);
}
