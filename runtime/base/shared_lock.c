/* SPDX-License-Identifier: Apache-2.0 */
/* A lock whose holder may be killed. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/base/processes.h"
#include "runtime/base/shared_lock.h"

/* A holder that is not gone gets on within microseconds, or, where it was put aside with the lock, once it has a processor again. */
enum { YIELDS = 2000 };
#define PAUSE_NS 200000l
/* Pauses, not time: all of a job may have been stopped meanwhile, and go on one after the other. PATIENCE is a second. */
enum { PATIENCE = 5000, STOPPED = 500 };

/* Nothing runs of it, whether somebody has waited for it or not. */
static bool is_gone(int32_t process)
{
	char path[40], target[8];

	snprintf(path, sizeof path, "/proc/%d/exe", process);
	return tpck_sys_readlink(path, target, sizeof target) < 0 && (errno == ENOENT || errno == ESRCH);
}

bool (tpck_shared_lock_take)(tpck_shared_lock *lock)
{
	const struct timespec pause = {0, PAUSE_NS};
	int32_t self = tpck_sys_getpid(), holder = 0;
	int saved = errno;
	bool taken = atomic_compare_exchange_strong(lock, &holder, self);

	for (unsigned tries = 0; !taken && tries < YIELDS; tries++) {
		tpck_sys_sched_yield();
		holder = 0;
		taken = atomic_compare_exchange_strong(lock, &holder, self);
	}
	for (unsigned pauses = 0; !taken; pauses++) {
		if (!is_gone(holder)) {
			if (pauses >= PATIENCE || (pauses >= STOPPED && tpck_process_stands(holder)))
				break;
			tpck_sys_clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
			holder = 0;
		}
		taken = atomic_compare_exchange_strong(lock, &holder, self);
	}
	errno = saved;
	return taken;
}

void (tpck_shared_lock_free)(tpck_shared_lock *lock)
{
	atomic_store(lock, 0);
}
