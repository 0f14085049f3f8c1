/* SPDX-License-Identifier: Apache-2.0 */
/* Time by system call or vDSO under a private name, so that it never meets our own clock hooks. */
#ifndef TPCK_RUNTIME_BASE_CLOCK_H
#define TPCK_RUNTIME_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds of CLOCK_MONOTONIC. */
uint64_t tpck_clock_monotonic_ns(void);
/* The same by system call, for who asks once: the first call by the vDSO costs a process more. */
uint64_t tpck_clock_once_ns(void);
/* Nanoseconds since 1970 of CLOCK_REALTIME. */
uint64_t tpck_clock_realtime_ns(void);
/* The same as file systems tell it: never later than the birth of a file that is made next. */
uint64_t tpck_clock_coarse_ns(void);
/* CPU nanoseconds used by the process, by the calling thread. */
uint64_t tpck_clock_process_cpu_ns(void);
uint64_t tpck_clock_thread_cpu_ns(void);

#endif
