/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order in which locks are taken: runtime/base/locks.def lists them, outermost first. In a build with --enable-lock-order (`make check-lock-order`)
 * each lock that is taken is compared with those that the thread holds, and the process ends where one is taken out of order, or is not in the list.
 * Otherwise nothing of this is there. What is taken without waiting (a trylock) may be taken in any order, and is not looked at.
 */
#ifndef TPCK_RUNTIME_BASE_LOCK_ORDER_H
#define TPCK_RUNTIME_BASE_LOCK_ORDER_H

#include <pthread.h>

enum tpck_lock_rank {
#define TPCK_LOCK(name, file, lock) TPCK_RANK_##name,
#define TPCK_LOCK_ALSO(name, file, lock)
#include "runtime/base/locks.def"
#undef TPCK_LOCK
#undef TPCK_LOCK_ALSO
	TPCK_RANKS
};

/* Before the lock is waited for, and behind its release. `lock`: as the source calls it. */
void tpck_lock_order_takes(const void *at, const char *file, const char *lock);
void tpck_lock_order_gives(const void *at);

#ifdef TPCK_LOCK_ORDER
/* A lock that is waited for in another way. */
#define TPCK_LOCK_WAITS(lock) tpck_lock_order_takes(lock, __FILE__, #lock)
#define pthread_mutex_lock(mutex) (tpck_lock_order_takes(mutex, __FILE__, #mutex), (pthread_mutex_lock)(mutex))
#define pthread_mutex_unlock(mutex) (tpck_lock_order_gives(mutex), (pthread_mutex_unlock)(mutex))
#define tpck_spin_lock(lock) (tpck_lock_order_takes(lock, __FILE__, #lock), (tpck_spin_lock)(lock))
#define tpck_spin_unlock(lock) (tpck_lock_order_gives(lock), (tpck_spin_unlock)(lock))
#define tpck_shared_lock_take(lock) (tpck_lock_order_takes(lock, __FILE__, #lock), (tpck_shared_lock_take)(lock) || (tpck_lock_order_gives(lock), 0))
#define tpck_shared_lock_free(lock) (tpck_lock_order_gives(lock), (tpck_shared_lock_free)(lock))
#else
#define TPCK_LOCK_WAITS(lock) (void)(lock)
#endif

#endif
