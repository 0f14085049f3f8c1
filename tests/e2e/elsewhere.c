/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program whose tensors lie where chance has it, by a way that nobody can repeat for it. Preloaded into a trainer: of two
 * blocks of one size it gives out the first or the second, and keeps the other, so that what lives on the device is the same
 * either way. The file ELSEWHERE says how many more starts give out the second one. With ELSEWHERE_NTH it does so of that one of the large blocks, and sets
 * both to zero in place of the trainer: from there on only kernels work on it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <stdlib.h>
#include <unistd.h>

#include "past_libc.h"

enum { LARGE = 1 << 14 };

/* Past the C library, as a runtime of some other language reads. */
static int second(void)
{
	int fd = (int)past_libc(SYS_openat, AT_FDCWD, (long)getenv("ELSEWHERE"), O_RDWR, 0);
	char count = '0';

	if (fd < 0)
		return 0;
	past_libc(SYS_pread64, fd, (long)&count, 1, 0);
	if (count > '0') {
		count--;
		past_libc(SYS_pwrite64, fd, (long)&count, 1, 0);
		count++;
	}
	past_libc(SYS_close, fd, 0, 0, 0);
	return count > '0';
}

static void *given;

int cudaMemset(void *at, int value, size_t bytes);
int cudaMemset(void *at, int value, size_t bytes)
{
	int (*real)(void *, int, size_t) = (int (*)(void *, int, size_t))dlsym(RTLD_NEXT, "cudaMemset");

	return given && at == given && !value ? 0 : real(at, value, bytes);
}

int cudaMalloc(void **at, size_t bytes);
int cudaMalloc(void **at, size_t bytes)
{
	int (*real)(void **, size_t) = (int (*)(void **, size_t))dlsym(RTLD_NEXT, "cudaMalloc");
	static int which = -1, large;
	const char *nth = getenv("ELSEWHERE_NTH");
	void *both[2];
	int result;

	if (bytes < LARGE || which >= 0 || large++ < (nth ? atoi(nth) : 0))
		return real(at, bytes);
	which = second();
	result = real(&both[0], bytes);
	if (!result)
		result = real(&both[1], bytes);
	for (int i = 0; i < 2 && nth && !result; i++)
		result = cudaMemset(both[i], 0, bytes);
	if (!result)
		*at = both[which];
	if (!result && nth)
		given = *at;
	return result;
}
