/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lock that leans towards the thread that uses it: once one thread has taken it many times in a row it owns it, and
 * passes with a store and a load. Another thread takes the ownership away with a heavy barrier, which costs microseconds;
 * each time that happens owning needs four times as many takings in a row, so that threads that take turns (an autograd
 * engine's) soon use the lock below it as any other.
 *
 * Why it excludes. The owner stores `passing`, then loads `owner`. Who takes the ownership away holds `lock`, stores
 * `owner`, passes the heavy barrier, then looks at `passing` until it is 0. If the owner's load came before the barrier,
 * its store of `passing` did too and is seen: it is waited for. If it came after, it sees that it owns no longer, takes
 * `passing` back and goes for the lock. Nobody but the holder of `lock` ever writes `owner`, and it is given only to the
 * holder, which still has `lock`: the first pass without it comes after the unlock. What the owner did before is seen by
 * whoever comes after it through `passing`, stored with release and read with acquire; what others did before it came to
 * own, through the lock.
 *
 * Short sections of ours only, never held across a call of the application's or the driver's, nor while waiting for the
 * gate; whoever holds it may be inside the gate.
 */
#ifndef TPCK_RUNTIME_TRACK_BIAS_H
#define TPCK_RUNTIME_TRACK_BIAS_H

#include "runtime/track/barrier.h"
#include "runtime/track/threads.h"

struct tpck_bias {
	tpck_spin lock;
	struct tpck_thread *_Atomic owner;
	const struct tpck_thread *last; /* who took `lock` last, and how often in a row */
	uint32_t row, needed;
	bool lost;                      /* the ownership can neither be used nor be taken away any more */
} __attribute__((aligned(64)));

enum { TPCK_BIAS_NEEDED = 64, TPCK_BIAS_NEVER = 1 << 24 };

/* False: the lock is lost (tpck_barrier_heavy() failed), and is not held. */
bool tpck_bias_lock_slowly(struct tpck_bias *bias, struct tpck_thread *self);
void tpck_bias_unlock_slowly(struct tpck_bias *bias);

/* A thread takes one such lock at a time. */
static inline bool tpck_bias_lock(struct tpck_bias *bias, struct tpck_thread *self)
{
	atomic_store_explicit(&self->passing, 1, memory_order_relaxed);
	tpck_barrier_light();
	if (__builtin_expect(atomic_load_explicit(&bias->owner, memory_order_acquire) == self, 1))
		return true;
	return tpck_bias_lock_slowly(bias, self);
}

static inline void tpck_bias_unlock(struct tpck_bias *bias, struct tpck_thread *self)
{
	if (__builtin_expect(atomic_load_explicit(&self->passing, memory_order_relaxed), 1))
		atomic_store_explicit(&self->passing, 0, memory_order_release);
	else
		tpck_bias_unlock_slowly(bias);
}

#endif
