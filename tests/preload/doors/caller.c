/* SPDX-License-Identifier: Apache-2.0 */
/* What the loader knows of a caller: which library comes next after it, and where its RUNPATH leads. One
 * source for the program and its libraries: -DPART=1 (in front), 2 (behind), 3 (found by RUNPATH only). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

const char *caller_name(void);
void caller_show(void);

#if PART == 1
const char *caller_name(void)
{
	return "the first library";
}

void caller_show(void)
{
	const char *(*next)(void) = (const char *(*)(void))dlsym(RTLD_NEXT, "caller_name");
	void *here = dlopen("libcaller_found.so", RTLD_NOW), *none;
	const char *(*found)(void) = here ? (const char *(*)(void))dlsym(here, "caller_found") : NULL;

	printf("next: %s\n", next ? next() : "none");
	printf("by RUNPATH: %s\n", found ? found() : "nothing");
	printf("default: %s\n", ((const char *(*)(void))dlsym(RTLD_DEFAULT, "caller_name"))());
	none = dlsym(RTLD_NEXT, "caller_nothing");
	printf("no such symbol: %s\n", none ? "found" : dlerror() ? "an error" : "no error");
	none = dlopen("libcaller_nothing.so", RTLD_NOW);
	printf("no such library: %s\n", none ? "found" : dlerror());
	printf("itself: %s\n", dlopen(NULL, RTLD_NOW) ? "opened" : "not opened");
	printf("null symbol handle: %s\n", dlsym(RTLD_DEFAULT, "malloc") ? "found" : "none");
}
#elif PART == 2
const char *caller_name(void)
{
	return "the second library";
}
#elif PART == 3
const char *caller_found(void);

const char *caller_found(void)
{
	return "found";
}
#else
int main(void)
{
	caller_show();
	return 0;
}
#endif
