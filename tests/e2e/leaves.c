/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that executes another one in its place. Preloaded into a trainer: at its copy to the host of number $LEAVES_AT it becomes a shell, which writes
 * the file `left` and is ended by a signal.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream)
{
	int (*real)(void *, const void *, size_t, int, void *) =
		(int (*)(void *, const void *, size_t, int, void *))dlsym(RTLD_NEXT, "cudaMemcpyAsync");
	static int copies;

	copies += kind == 2;
	if (kind == 2 && copies == atoi(getenv("LEAVES_AT")))
		execl("/bin/sh", "sh", "-c", "echo left >> left; sleep 1; kill -SEGV $$", (char *)NULL);
	return real(to, from, bytes, kind, stream);
}
