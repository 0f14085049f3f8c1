/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The forwarder: a library whose SONAME is libcuda.so.1, so that dlopen("libcuda.so.1") and
 * DT_NEEDED find it. Every driver symbol is a jump through a table whose entries are filled in at
 * their first call, by the preloaded library; without it there is no device.
 */
#include "config.h"

#include <dlfcn.h>
#include <stddef.h>

extern void *tpck_forward_table[] __attribute__((visibility("hidden")));
extern const char *const tpck_forward_names[] __attribute__((visibility("hidden")));

void *tpck_forward_resolve(unsigned long index);

enum { NO_DEVICE = 100, NOT_SUPPORTED = 801 }; /* CUDA_ERROR_ of these names */

static int no_device(void)
{
	return NO_DEVICE;
}

static int not_supported(void)
{
	return NOT_SUPPORTED;
}

/* Called by tpck_forward_first with the application's arguments saved. */
__attribute__((visibility("hidden"))) void *tpck_forward_resolve(unsigned long index)
{
	static void *(*lookup)(const char *);
	const char *name = tpck_forward_names[index];
	void *found = NULL;

	if (!lookup)
		lookup = (void *(*)(const char *))dlsym(RTLD_DEFAULT, "tpck_forward_lookup");
	if (lookup)
		found = lookup(name);
	if (!found) /* no driver on this machine, or an older one without this call */
		found = name[2] == 'I' && name[3] == 'n' ? (void *)no_device : (void *)not_supported;
	tpck_forward_table[index] = found;
	return found;
}
