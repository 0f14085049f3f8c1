/* SPDX-License-Identifier: Apache-2.0 */
/* Comes by dlopen and dlsym, or by the driver's own look-up function; a program, or with -DPLUGIN a library.
 * As a program it can also load one of the libraries:
 *   lookup dlsym | proc | newer SYMBOL | plugin FILE local|global|deepbind|lazy
 * where with `after` in front it opens the driver before.
 * With -DOWN_DLSYM it defines dlsym itself, as some profilers and allocators do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "alloc.h"

static void *driver;

#ifdef OWN_DLSYM
void *dlsym(void *restrict handle, const char *restrict symbol)
{
	static void *(*next)(void *, const char *);

	if (!next)
		next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
	return next(handle, symbol);
}
#endif

static void *by_dlsym(const char *symbol)
{
	return dlsym(driver, symbol);
}

#ifndef PLUGIN
static void *by_proc(const char *symbol)
{
	int (*proc)(const char *, void **, int, unsigned long long, void *) =
		(int (*)(const char *, void **, int, unsigned long long, void *))dlsym(driver, "cuGetProcAddress_v2");
	char base[64];
	void *found = NULL;

	if (!proc)
		return NULL;
	snprintf(base, sizeof base, "%s", symbol);
	if (strlen(base) > 3 && strcmp(base + strlen(base) - 3, "_v2") == 0)
		base[strlen(base) - 3] = 0;
	return proc(base, &found, 12000, 0, NULL) ? NULL : found;
}
#endif

int door_try(void);

int door_try(void)
{
	driver = dlopen("libcuda.so.1", RTLD_NOW);
	if (!driver) {
		printf("no driver\n");
		return 0;
	}
	return door_alloc(by_dlsym);
}

#ifndef PLUGIN
int main(int argc, char **argv)
{
	int (*try)(void);
	void *plugin;

	if (argc > 2 && strcmp(argv[1], "after") == 0) {
		driver = dlopen("libcuda.so.1", RTLD_NOW);
		argc--;
		argv++;
	}
	if (argc == 2 && strcmp(argv[1], "dlsym") == 0)
		return door_try();
	if (argc == 2 && strcmp(argv[1], "proc") == 0) {
		driver = dlopen("libcuda.so.1", RTLD_NOW);
		return driver ? door_alloc(by_proc) : 1;
	}
	if (argc == 3 && strcmp(argv[1], "newer") == 0) {
		driver = dlopen("libcuda.so.1", RTLD_NOW);
		(void)dlerror();
		plugin = driver ? dlsym(driver, argv[2]) : NULL;
		printf("%s, %s\n", plugin ? "there" : "not there", dlerror() ? "an error" : "no error");
		return plugin ? ((int (*)(void))plugin)() : 0;
	}
	if (argc != 4)
		return 2;
	plugin = dlopen(argv[2], (strcmp(argv[3], "lazy") == 0 ? RTLD_LAZY : RTLD_NOW) | (strcmp(argv[3], "global") == 0 ? RTLD_GLOBAL : RTLD_LOCAL) |
					 (strcmp(argv[3], "deepbind") == 0 ? RTLD_DEEPBIND : 0));
	try = plugin ? (int (*)(void))dlsym(plugin, "door_try") : NULL;
	if (!try) {
		printf("%s\n", dlerror());
		return 1;
	}
	return try();
}
#endif
