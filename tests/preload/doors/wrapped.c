/* SPDX-License-Identifier: Apache-2.0 */
/* A preloaded library that hooks dlsym and dlopen the way that does not work: as C functions, which become
 * the caller that the loader sees. The test of the caller's view must fail with it. */
#define _GNU_SOURCE
#include <dlfcn.h>

void *dlsym(void *restrict handle, const char *restrict symbol)
{
	void *(*next)(void *, const char *) = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
	void *volatile found = next(handle, symbol);

	return found;
}

void *dlopen(const char *path, int flags)
{
	void *(*next)(const char *, int) = (void *(*)(const char *, int))dlvsym(RTLD_NEXT, "dlopen", "GLIBC_2.2.5");
	void *volatile found = next(path, flags);

	return found;
}
