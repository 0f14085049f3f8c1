/* SPDX-License-Identifier: Apache-2.0 */
/* Time, past the library's own hooks. */
#include "config.h"

#include "runtime/base/clock.h"

#include <stdatomic.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"

static TPCK_AT_START uint64_t read_clock(clockid_t id)
{
	struct timespec now = {0};

	tpck_sys_clock_gettime(id, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static const clockid_t ids[TPCK_CLOCKS] = {
	CLOCK_REALTIME, CLOCK_REALTIME_COARSE, CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_MONOTONIC_COARSE, CLOCK_BOOTTIME,
	CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID,
};

bool tpck_clock_known(clockid_t id, enum tpck_clock *clock)
{
	for (unsigned i = 0; i < TPCK_CLOCKS; i++)
		if (ids[i] == id) {
			*clock = (enum tpck_clock)i;
			return true;
		}
	return false;
}

uint64_t tpck_clock_read(enum tpck_clock clock)
{
	return read_clock(ids[clock]);
}

static int (*_Atomic fast)(clockid_t, struct timespec *);

TPCK_AT_START void tpck_clock_by(int (*real)(clockid_t, struct timespec *))
{
	atomic_store(&fast, real);
}

uint64_t tpck_clock_monotonic_ns(void)
{
	int (*real)(clockid_t, struct timespec *) = atomic_load_explicit(&fast, memory_order_relaxed);
	struct timespec now;

	if (!real || real(CLOCK_MONOTONIC, &now))
		return read_clock(CLOCK_MONOTONIC);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t tpck_clock_tick_ns(void)
{
	int (*real)(clockid_t, struct timespec *) = atomic_load_explicit(&fast, memory_order_relaxed);
	struct timespec now;

	if (!real || real(CLOCK_MONOTONIC_COARSE, &now))
		return read_clock(CLOCK_MONOTONIC_COARSE);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

TPCK_AT_START uint64_t tpck_clock_once_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

TPCK_AT_START uint64_t tpck_clock_realtime_ns(void)
{
	return read_clock(CLOCK_REALTIME);
}

TPCK_AT_START uint64_t tpck_clock_coarse_ns(void)
{
	return read_clock(CLOCK_REALTIME_COARSE);
}

uint64_t tpck_clock_process_cpu_ns(void)
{
	return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

uint64_t tpck_clock_thread_cpu_ns(void)
{
	return read_clock(CLOCK_THREAD_CPUTIME_ID);
}
