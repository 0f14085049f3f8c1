/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One half of an asymmetric barrier. A side that is passed all the time stores, then loads, with nothing in between but
 * tpck_barrier_light(), which keeps the compiler from exchanging the two. The rare side stores, calls tpck_barrier_heavy(),
 * then loads: at some point within that call every running thread of the process passed a full barrier (membarrier(2),
 * private and expedited), so that of two sides that store and then look at what the other stored at least one sees it.
 */
#ifndef TPCK_RUNTIME_TRACK_BARRIER_H
#define TPCK_RUNTIME_TRACK_BARRIER_H

#include <stdatomic.h>
#include <stdbool.h>

/* Asks the kernel for it, once a process. False where it refuses (before Linux 4.14, a filter): then nobody may rely on
 * the light side. */
bool tpck_barrier_open(void);
/* Whether it was granted. */
bool tpck_barrier_there(void);
/* False: no barrier was passed (a filter that came later); the caller may conclude nothing. */
bool tpck_barrier_heavy(void);

static inline void tpck_barrier_light(void)
{
	atomic_signal_fence(memory_order_seq_cst);
}

#endif
