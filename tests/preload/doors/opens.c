/* SPDX-License-Identifier: Apache-2.0 */
/* A preloaded library of somebody else's that hooks dlopen, and says once that the driver was opened through it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

void *dlopen(const char *path, int flags)
{
	void *(*next)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
	static const char said[] = "opened, ";
	static int done;

	if (path && strstr(path, "libcuda.so") && !done++ && write(STDOUT_FILENO, said, sizeof said - 1) < 0)
		return NULL;
	return next(path, flags);
}
