/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that does not repeat itself. Preloaded into a trainer: at its copy to the host of number $DRIFT_AT it looks, past libc, whether it is the first
 * process that comes there, and copies once more if it is not.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>

#include "past_libc.h"

int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream)
{
	int (*real)(void *, const void *, size_t, int, void *) =
		(int (*)(void *, const void *, size_t, int, void *))dlsym(RTLD_NEXT, "cudaMemcpyAsync");
	static int copies;

	copies += kind == 2;
	if (kind == 2 && copies == atoi(getenv("DRIFT_AT")) && past_libc(SYS_open, (long)"first", O_CREAT | O_EXCL | O_WRONLY, 0600, 0) < 0)
		real(to, from, bytes, kind, stream);
	return real(to, from, bytes, kind, stream);
}
