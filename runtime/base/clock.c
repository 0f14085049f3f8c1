/* SPDX-License-Identifier: Apache-2.0 */
/* Time, past our own hooks: glibc's clock_gettime is asked for by the alias that nobody interposes,
 * CLOCK_MONOTONIC is not hooked at all. */
#include "config.h"

#include "runtime/base/clock.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/layout.h"

static TPCK_AT_START uint64_t read_clock(clockid_t id)
{
	struct timespec now = {0};

	syscall(SYS_clock_gettime, id, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t tpck_clock_monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
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
