/* SPDX-License-Identifier: Apache-2.0 */
/* A lock in memory that processes share, of which any may be killed while it holds it: the next one takes it over then. What the lock guards is
 * to be right at every instant. Held for microseconds. */
#ifndef TPCK_RUNTIME_BASE_SHARED_LOCK_H
#define TPCK_RUNTIME_BASE_SHARED_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/lock_order.h"

typedef _Atomic int32_t tpck_shared_lock; /* the process that holds it, or 0 */

/* Waits for who holds it, a second at most. False: that one is there, and was stopped, or does not get on. Keeps errno. */
bool (tpck_shared_lock_take)(tpck_shared_lock *lock);
void (tpck_shared_lock_free)(tpck_shared_lock *lock);

#endif
