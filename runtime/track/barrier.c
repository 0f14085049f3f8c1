/* SPDX-License-Identifier: Apache-2.0 */
/* The heavy half of an asymmetric barrier. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/track/barrier.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <stdint.h>
#include <unistd.h>

#include "runtime/base/log.h"

static _Atomic uint32_t there;

static bool membarrier(int command)
{
	int saved = errno;
	bool good = !tpck_sys_membarrier(command, 0, 0);

	errno = saved;
	return good;
}

bool tpck_barrier_open(void)
{
	if (!there && membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) &&
	    membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED))
		atomic_store(&there, 1);
	return there;
}

bool tpck_barrier_there(void)
{
	return atomic_load_explicit(&there, memory_order_relaxed);
}

bool tpck_barrier_heavy(void)
{
	static _Atomic uint32_t said;
	bool passed;

	atomic_thread_fence(memory_order_seq_cst);
	passed = membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
	atomic_thread_fence(memory_order_seq_cst);
	/* Threads that rely on it cannot be told in time. */
	if (!passed && !atomic_exchange(&said, 1))
		tpck_log_warn("no more snapshots: the kernel refuses membarrier(), which it gave before");
	return passed;
}
