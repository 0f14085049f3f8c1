/* SPDX-License-Identifier: Apache-2.0 */
/* Functions by handle: an open-addressing table that only grows. */
#include "config.h"

#include "runtime/track/functions.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/digest.h"
#include "runtime/base/layout.h"
#include "runtime/track/threads.h"

enum { BITS = 17 }; /* a large framework has some 25,000 kernels */

static struct entry {
	_Atomic(const void *) handle;
	_Atomic(struct tpck_function *) function;
} table[1 << BITS] TPCK_LARGE;
static uint32_t used;
static tpck_spin lock;

static uint32_t slot_of(const void *handle)
{
	return (uint32_t)(((uintptr_t)handle >> 3) * 0x9e3779b97f4a7c15ull >> (64 - BITS));
}

int tpck_functions_add(const void *handle, const struct tpck_function *known)
{
	struct tpck_function *function = malloc(sizeof *function);
	uint32_t slot = slot_of(handle);
	int result = 0;

	if (!function)
		return -ENOSPC;
	*function = *known;
	function->name = known->name ? strdup(known->name) : NULL;
	function->id = known->name ? tpck_digest64(known->name, strlen(known->name), 0) : 0;
	function->memo = NULL;
	tpck_spin_lock(&lock);
	while (atomic_load(&table[slot].handle) && atomic_load(&table[slot].handle) != handle)
		slot = (slot + 1) & ((1u << BITS) - 1);
	if (!atomic_load(&table[slot].handle) && used >= (1u << BITS) * 3 / 4) {
		result = -ENOSPC;
	} else {
		if (!atomic_load(&table[slot].handle))
			used++;
		/* A replaced description stays allocated: another thread may be reading it. */
		atomic_store(&table[slot].function, function);
		atomic_store(&table[slot].handle, handle);
	}
	tpck_spin_unlock(&lock);
	return result;
}

struct tpck_function *tpck_functions_find(const void *handle)
{
	uint32_t slot = slot_of(handle);

	for (;;) {
		const void *found = atomic_load_explicit(&table[slot].handle, memory_order_acquire);

		if (found == handle)
			return atomic_load_explicit(&table[slot].function, memory_order_acquire);
		if (!found)
			return NULL;
		slot = (slot + 1) & ((1u << BITS) - 1);
	}
}
