/* SPDX-License-Identifier: Apache-2.0 */
/* For a library that is preloaded into a trainer and does something now and then: copied(kind) is called behind each copy, of cudaMemcpyKind. */
#ifndef TPCK_TESTS_E2E_COPIED_H
#define TPCK_TESTS_E2E_COPIED_H

#include <dlfcn.h>
#include <stddef.h>

enum { TO_HOST = 2 };

static void copied(int kind);

int cudaMemcpy(void *to, const void *from, size_t bytes, int kind)
{
	int (*real)(void *, const void *, size_t, int) = (int (*)(void *, const void *, size_t, int))dlsym(RTLD_NEXT, "cudaMemcpy");
	int result = real(to, from, bytes, kind);

	copied(kind);
	return result;
}

int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream)
{
	int (*real)(void *, const void *, size_t, int, void *) =
		(int (*)(void *, const void *, size_t, int, void *))dlsym(RTLD_NEXT, "cudaMemcpyAsync");
	int result = real(to, from, bytes, kind, stream);

	copied(kind);
	return result;
}

#endif
