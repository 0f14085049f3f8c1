/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where one thread's launches follow another's, the first one may still have something to do that the second one's next
 * steps depend on by chance: PyTorch's backward thread tells the loop that it is done, and only then takes the
 * interpreter's lock once more to give back what it copied for the backward pass. Whether that comes before or after the
 * loop's next allocations decides what Python's collector counts, when it runs, and so where later tensors lie. The thread
 * that launches next waits here until the other one rests: it sleeps in the kernel. That a thread is inside of a launch
 * is a good moment for it: PyTorch has given the interpreter's lock back by then.
 */
#ifndef TPCK_RUNTIME_TRACK_SETTLE_H
#define TPCK_RUNTIME_TRACK_SETTLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/track/threads.h"

extern struct tpck_thread *_Atomic tpck_settle_last __attribute__((visibility("hidden")));

/* Waits for the thread that launched last, at most limit_ns. A wait that was in vain makes the next one come after twice
 * as many changes between threads, up to 1024, unless `always`. Keeps errno. */
void tpck_settle_wait(struct tpck_thread *self, uint64_t limit_ns, bool always);

/* Before an operation of a thread that launches. */
static inline void tpck_settle(struct tpck_thread *self, uint64_t limit_ns, bool always)
{
	if (__builtin_expect(atomic_load_explicit(&tpck_settle_last, memory_order_relaxed) != self, 0))
		tpck_settle_wait(self, limit_ns, always);
}

#endif
