/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs that come by a door do once they are in: one allocation. Its address tells whether
 * the call was followed, for what the library serves lies in a range of its own. */
#ifndef TESTS_PRELOAD_DOORS_ALLOC_H
#define TESTS_PRELOAD_DOORS_ALLOC_H

#include <stddef.h>
#include <stdio.h>

/* The answer of a program that came in: 0 as from main(). */
static inline int door_answer(int error, unsigned long long address)
{
	if (error)
		printf("error %d\n", error);
	else
		printf("%s\n", address >= 0x4a0000000000ull && address < 0x4a4000000000ull ? "followed" : "not followed");
	fflush(stdout);
	return 0;
}

/* Allocates by the driver's functions that `find` gives. The types are spelt out: what comes by name needs
 * no header. */
static inline int door_alloc(void *(*find)(const char *symbol))
{
	int (*init)(unsigned) = (int (*)(unsigned))find("cuInit");
	int (*retain)(void **, int) = (int (*)(void **, int))find("cuDevicePrimaryCtxRetain");
	int (*use)(void *) = (int (*)(void *))find("cuCtxSetCurrent");
	int (*alloc)(unsigned long long *, size_t) = (int (*)(unsigned long long *, size_t))find("cuMemAlloc_v2");
	unsigned long long address = 0;
	void *context;
	int error;

	if (!init || !retain || !use || !alloc) {
		printf("a function is missing\n");
		return 0;
	}
	error = init(0);
	if (!error)
		error = retain(&context, 0);
	if (!error)
		error = use(context);
	if (!error)
		error = alloc(&address, 1 << 20);
	return door_answer(error, address);
}

#endif
