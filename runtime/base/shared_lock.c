/* SPDX-License-Identifier: Apache-2.0 */
/* A lock whose holder may be killed. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/base/shared_lock.h"

enum { PATIENCE = 2000 };

/* Nothing runs of it, whether somebody has waited for it or not. */
static bool is_gone(int32_t process)
{
	char path[40], target[8];

	snprintf(path, sizeof path, "/proc/%d/exe", process);
	return tpck_sys_readlink(path, target, sizeof target) < 0 && (errno == ENOENT || errno == ESRCH);
}

bool (tpck_shared_lock_take)(tpck_shared_lock *lock)
{
	int32_t self = tpck_sys_getpid(), holder = 0;
	int saved = errno;
	bool taken = atomic_compare_exchange_strong(lock, &holder, self);

	for (unsigned tries = 0; !taken; tries++) {
		if (tries >= PATIENCE && !is_gone(holder))
			break;
		if (tries < PATIENCE)
			holder = 0;
		taken = atomic_compare_exchange_strong(lock, &holder, self);
		if (!taken)
			tpck_sys_sched_yield();
	}
	errno = saved;
	return taken;
}

void (tpck_shared_lock_free)(tpck_shared_lock *lock)
{
	atomic_store(lock, 0);
}
