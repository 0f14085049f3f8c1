/* SPDX-License-Identifier: Apache-2.0 */
/* The slow side of a lock that leans towards its user. */
#include "config.h"

#include "runtime/track/bias.h"

#include <sched.h>

/* Called with the lock held. */
static void take_away(struct tpck_bias *bias, const struct tpck_thread *self)
{
	struct tpck_thread *owner = atomic_load_explicit(&bias->owner, memory_order_relaxed);

	if (!owner)
		return;
	atomic_store_explicit(&bias->owner, NULL, memory_order_relaxed);
	if (!tpck_barrier_heavy()) {
		bias->lost = true;
		return;
	}
	while (atomic_load_explicit(&owner->passing, memory_order_acquire))
		sched_yield();
	/* A thread of the library's that looks in now and then says nothing of how threads take turns. */
	if (!self->ours && bias->needed < TPCK_BIAS_NEVER)
		bias->needed *= 4;
}

bool tpck_bias_lock_slowly(struct tpck_bias *bias, struct tpck_thread *self)
{
	atomic_store_explicit(&self->passing, 0, memory_order_release);
	tpck_spin_lock(&bias->lock);
	take_away(bias, self);
	if (bias->lost) {
		tpck_spin_unlock(&bias->lock);
		return false;
	}
	if (!bias->needed)
		bias->needed = TPCK_BIAS_NEEDED;
	bias->row = bias->last == self ? bias->row + 1 : 0;
	bias->last = self;
	if (bias->row >= bias->needed && bias->needed < TPCK_BIAS_NEVER && !self->ours && tpck_barrier_there())
		atomic_store_explicit(&bias->owner, self, memory_order_relaxed);
	return true;
}

void tpck_bias_unlock_slowly(struct tpck_bias *bias)
{
	tpck_spin_unlock(&bias->lock);
}
