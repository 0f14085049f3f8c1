/* SPDX-License-Identifier: Apache-2.0 */
/* Time as it is, past the hooks of clocks; and the clocks that those hooks know. */
#ifndef TPCK_RUNTIME_BASE_CLOCK_H
#define TPCK_RUNTIME_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Clocks that programs look at and that the record has. The numbers are in logs. */
enum tpck_clock {
	TPCK_CLOCK_REAL, TPCK_CLOCK_REAL_COARSE, TPCK_CLOCK_MONOTONIC, TPCK_CLOCK_RAW, TPCK_CLOCK_COARSE, TPCK_CLOCK_BOOT,
	TPCK_CLOCK_PROCESS, TPCK_CLOCK_THREAD, TPCK_CLOCKS,
};

/* The clock that clock_gettime() calls so. False: it is none of these. */
bool tpck_clock_known(clockid_t id, enum tpck_clock *clock);
/* The clock in nanoseconds, by system call. */
uint64_t tpck_clock_read(enum tpck_clock clock);
/* From here on CLOCK_MONOTONIC is read by this function, which is libc's, and until then by system call. */
void tpck_clock_by(int (*real)(clockid_t, struct timespec *));

/* Nanoseconds of CLOCK_MONOTONIC. */
uint64_t tpck_clock_monotonic_ns(void);
/* CLOCK_MONOTONIC as of the kernel's last tick, 10 ms ago at most, for a quarter of the time: for who asks whether something is lately known. */
uint64_t tpck_clock_tick_ns(void);
/* CLOCK_MONOTONIC by system call, for who asks once: the first call by the vDSO costs a process more. */
uint64_t tpck_clock_once_ns(void);
/* Nanoseconds since 1970 of CLOCK_REALTIME. */
uint64_t tpck_clock_realtime_ns(void);
/* The same as file systems tell it: never later than the birth of a file that is made next. */
uint64_t tpck_clock_coarse_ns(void);
/* CPU nanoseconds used by the process, by the calling thread. */
uint64_t tpck_clock_process_cpu_ns(void);
uint64_t tpck_clock_thread_cpu_ns(void);

#endif
