/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks of clocks, and of waits until a point in time. What a program is told of a clock and what the kernel waits by are apart while
 * running forward, and after it (engine.h): a wait that names a point in time is given the one that the program means. Waits that name
 * how long are the kernel's.
 */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "hooks/hooks.h"
#include "hooks/libc.h"
#include "runtime/base/clock.h"
#include "runtime/base/layout.h"
#include "runtime/engine/engine.h"
#include "shim/driver.h"

#define NS_PER_SEC 1000000000

static int bare(clockid_t clock, struct timespec *now)
{
	return (int)syscall(SYS_clock_gettime, clock, now);
}

/* libc's own, which goes by the vDSO. */
static int (*_Atomic real_clock)(clockid_t, struct timespec *) = bare;

TPCK_AT_START void tpck_hooks_time(void)
{
	int (*found)(clockid_t, struct timespec *) = (int (*)(clockid_t, struct timespec *))tpck_real_dlsym(RTLD_NEXT, "clock_gettime");

	if (found) {
		real_clock = found;
		tpck_clock_by(found);
	}
}

/* ---- looks --------------------------------------------------------------------------------------------- */

/* What stands in *now becomes what the program is told. */
static inline void tell(clockid_t id, struct timespec *now, const void *caller)
{
	enum tpck_clock clock;
	uint64_t ns;

	if (!tpck_engine_clocks() || !tpck_clock_known(id, &clock) || tpck_driver_has(caller))
		return;
	ns = tpck_engine_look(clock, (uint64_t)now->tv_sec * NS_PER_SEC + (uint64_t)now->tv_nsec);
	now->tv_sec = (time_t)(ns / NS_PER_SEC);
	now->tv_nsec = (long)(ns % NS_PER_SEC);
}

TPCK_EXPORT int clock_gettime(clockid_t clock, struct timespec *now)
{
	int result = real_clock(clock, now);

	TPCK_MAYBE_NULL(now);
	if (!result && now)
		tell(clock, now, __builtin_return_address(0));
	return result;
}

static bool wall_clock(struct timespec *now, const void *caller)
{
	if (real_clock(CLOCK_REALTIME, now))
		return false;
	tell(CLOCK_REALTIME, now, caller);
	return true;
}

TPCK_EXPORT int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	struct timespec precise;

	TPCK_MAYBE_NULL(now);
	if (zone)
		memset(zone, 0, sizeof(struct timezone));
	if (!now)
		return 0;
	if (!wall_clock(&precise, __builtin_return_address(0)))
		return -1;
	now->tv_sec = precise.tv_sec;
	now->tv_usec = precise.tv_nsec / 1000;
	return 0;
}

TPCK_EXPORT time_t time(time_t *seconds)
{
	struct timespec now = {0};

	(void)wall_clock(&now, __builtin_return_address(0));
	if (seconds)
		*seconds = now.tv_sec;
	return now.tv_sec;
}

TPCK_EXPORT clock_t clock(void)
{
	struct timespec now;

	if (real_clock(CLOCK_PROCESS_CPUTIME_ID, &now))
		return (clock_t)-1;
	tell(CLOCK_PROCESS_CPUTIME_ID, &now, __builtin_return_address(0));
	return now.tv_sec * CLOCKS_PER_SEC + now.tv_nsec / (NS_PER_SEC / CLOCKS_PER_SEC);
}

/* ---- waits --------------------------------------------------------------------------------------------- */

/* Seconds since 1970 are above this, and no machine is up for so long. */
#define CALENDAR_SEC 1000000000

/* The clock of a wait that is not asked which one it waits by. */
static clockid_t by_size(const struct timespec *until)
{
	return until && until->tv_sec < CALENDAR_SEC ? CLOCK_MONOTONIC : CLOCK_REALTIME;
}

static inline bool apart(void)
{
	return __builtin_expect(atomic_load_explicit(&tpck_engine_clocks_moved, memory_order_relaxed), 0);
}

/* The point in time by the kernel's clock, in *real, or as it was asked for. */
static const struct timespec *real_time(clockid_t id, const struct timespec *asked, struct timespec *real, const void *caller)
{
	enum tpck_clock clock;
	uint64_t ns;

	/* What is no time is libc's to refuse, and one in centuries is as good as any. */
	if (!asked || asked->tv_nsec < 0 || asked->tv_nsec >= NS_PER_SEC || asked->tv_sec < 0 || asked->tv_sec >> 33 ||
	    !tpck_clock_known(id, &clock) || tpck_driver_has(caller))
		return asked;
	ns = tpck_engine_deadline(clock, (uint64_t)asked->tv_sec * NS_PER_SEC + (uint64_t)asked->tv_nsec);
	real->tv_sec = (time_t)(ns / NS_PER_SEC);
	real->tv_nsec = (long)(ns % NS_PER_SEC);
	return real;
}

/* libc has two of some, of which the older one is for programs of the last century. */
static void *newest(const char *symbol)
{
	void *found = dlvsym(RTLD_NEXT, symbol, "GLIBC_2.3.2");

	return found ? found : tpck_real_dlsym(RTLD_NEXT, symbol);
}

TPCK_EXPORT int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex, const struct timespec *restrict until)
{
	static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
	struct timespec moved;

	if (!real)
		real = (__typeof__(real))newest("pthread_cond_timedwait");
	if (apart())
		until = real_time(by_size(until), until, &moved, __builtin_return_address(0));
	return real(condition, mutex, until);
}

TPCK_EXPORT int pthread_cond_clockwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex, clockid_t clock, const struct timespec *restrict until)
{
	static int (*real)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
	struct timespec moved;

	if (!real)
		real = (__typeof__(real))newest("pthread_cond_clockwait");
	if (apart())
		until = real_time(clock, until, &moved, __builtin_return_address(0));
	return real(condition, mutex, clock, until);
}

TPCK_EXPORT int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict until)
{
	static int (*real)(pthread_mutex_t *, const struct timespec *);
	struct timespec moved;

	if (!real)
		real = (__typeof__(real))newest("pthread_mutex_timedlock");
	if (apart())
		until = real_time(CLOCK_REALTIME, until, &moved, __builtin_return_address(0));
	return real(mutex, until);
}

TPCK_EXPORT int pthread_mutex_clocklock(pthread_mutex_t *restrict mutex, clockid_t clock, const struct timespec *restrict until)
{
	static int (*real)(pthread_mutex_t *, clockid_t, const struct timespec *);
	struct timespec moved;

	if (!real)
		real = (__typeof__(real))newest("pthread_mutex_clocklock");
	if (apart())
		until = real_time(clock, until, &moved, __builtin_return_address(0));
	return real(mutex, clock, until);
}

TPCK_EXPORT int pthread_rwlock_timedrdlock(pthread_rwlock_t *restrict lock, const struct timespec *restrict until)
{
	static int (*real)(pthread_rwlock_t *, const struct timespec *);
	struct timespec moved;

	if (!real)
		real = (__typeof__(real))newest("pthread_rwlock_timedrdlock");
	if (apart())
		until = real_time(CLOCK_REALTIME, until, &moved, __builtin_return_address(0));
	return real(lock, until);
}

TPCK_EXPORT int pthread_rwlock_timedwrlock(pthread_rwlock_t *restrict lock, const struct timespec *restrict until)
{
	static int (*real)(pthread_rwlock_t *, const struct timespec *);
	struct timespec moved;

	if (!real)
		real = (__typeof__(real))newest("pthread_rwlock_timedwrlock");
	if (apart())
		until = real_time(CLOCK_REALTIME, until, &moved, __builtin_return_address(0));
	return real(lock, until);
}

TPCK_EXPORT int pthread_rwlock_clockrdlock(pthread_rwlock_t *restrict lock, clockid_t clock, const struct timespec *restrict until)
{
	static int (*real)(pthread_rwlock_t *, clockid_t, const struct timespec *);
	struct timespec moved;

	if (!real)
		real = (__typeof__(real))newest("pthread_rwlock_clockrdlock");
	if (apart())
		until = real_time(clock, until, &moved, __builtin_return_address(0));
	return real(lock, clock, until);
}

TPCK_EXPORT int pthread_rwlock_clockwrlock(pthread_rwlock_t *restrict lock, clockid_t clock, const struct timespec *restrict until)
{
	static int (*real)(pthread_rwlock_t *, clockid_t, const struct timespec *);
	struct timespec moved;

	if (!real)
		real = (__typeof__(real))newest("pthread_rwlock_clockwrlock");
	if (apart())
		until = real_time(clock, until, &moved, __builtin_return_address(0));
	return real(lock, clock, until);
}

TPCK_EXPORT int pthread_timedjoin_np(pthread_t thread, void **result, const struct timespec *until)
{
	static int (*real)(pthread_t, void **, const struct timespec *);
	struct timespec moved;

	if (!real)
		real = (__typeof__(real))newest("pthread_timedjoin_np");
	if (apart())
		until = real_time(CLOCK_REALTIME, until, &moved, __builtin_return_address(0));
	return real(thread, result, until);
}

TPCK_EXPORT int pthread_clockjoin_np(pthread_t thread, void **result, clockid_t clock, const struct timespec *until)
{
	static int (*real)(pthread_t, void **, clockid_t, const struct timespec *);
	struct timespec moved;

	if (!real)
		real = (__typeof__(real))newest("pthread_clockjoin_np");
	if (apart())
		until = real_time(clock, until, &moved, __builtin_return_address(0));
	return real(thread, result, clock, until);
}

TPCK_EXPORT int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until)
{
	static int (*real)(sem_t *, const struct timespec *);
	struct timespec moved;

	if (!real)
		real = (__typeof__(real))newest("sem_timedwait");
	if (apart())
		until = real_time(CLOCK_REALTIME, until, &moved, __builtin_return_address(0));
	return real(semaphore, until);
}

TPCK_EXPORT int sem_clockwait(sem_t *restrict semaphore, clockid_t clock, const struct timespec *restrict until)
{
	static int (*real)(sem_t *, clockid_t, const struct timespec *);
	struct timespec moved;

	if (!real)
		real = (__typeof__(real))newest("sem_clockwait");
	if (apart())
		until = real_time(clock, until, &moved, __builtin_return_address(0));
	return real(semaphore, clock, until);
}

/* What follows is system calls, which say EFAULT of a bad pointer: it is looked at with care. */
static const struct timespec *real_time_at(clockid_t clock, const struct timespec *asked, struct timespec *real, const void *caller)
{
	return tpck_readable(asked, sizeof *asked) ? real_time(clock, asked, real, caller) : asked;
}

TPCK_EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *asked, struct timespec *left)
{
	static int (*real)(clockid_t, int, const struct timespec *, struct timespec *);
	struct timespec moved;

	if (!real)
		real = (__typeof__(real))newest("clock_nanosleep");
	if (flags & TIMER_ABSTIME && apart())
		asked = real_time_at(clock, asked, &moved, __builtin_return_address(0));
	return real(clock, flags, asked, left);
}

/* The first time that a timer is set to, where that is a point in time; it has its clock from its birth. */
static const struct itimerspec *real_timer(const struct itimerspec *asked, struct itimerspec *real, const void *caller)
{
	if (!tpck_readable(asked, sizeof *asked) || (!asked->it_value.tv_sec && !asked->it_value.tv_nsec))
		return asked;
	*real = *asked;
	real->it_value = *real_time(by_size(&asked->it_value), &asked->it_value, &real->it_value, caller);
	/* All zero would stop it. */
	if (!real->it_value.tv_sec && !real->it_value.tv_nsec)
		real->it_value.tv_nsec = 1;
	return real;
}

TPCK_EXPORT int timerfd_settime(int fd, int flags, const struct itimerspec *asked, struct itimerspec *before)
{
	struct itimerspec moved;

	if (flags & TFD_TIMER_ABSTIME && apart())
		asked = real_timer(asked, &moved, __builtin_return_address(0));
	return (int)syscall(SYS_timerfd_settime, fd, flags, asked, before);
}

/* libc's name for a timer is not the kernel's. */
TPCK_EXPORT int timer_settime(timer_t timer, int flags, const struct itimerspec *restrict asked, struct itimerspec *restrict before)
{
	static int (*real)(timer_t, int, const struct itimerspec *, struct itimerspec *);
	struct itimerspec moved;

	if (!real)
		real = (__typeof__(real))newest("timer_settime");
	if (flags & TIMER_ABSTIME && apart())
		asked = real_timer(asked, &moved, __builtin_return_address(0));
	return real(timer, flags, asked, before);
}

/* ---- by syscall() -------------------------------------------------------------------------------------- */

/* FUTEX_WAIT alone says how long. */
static bool names_a_time(int operation)
{
	int command = operation & FUTEX_CMD_MASK;

	return command == FUTEX_WAIT_BITSET || command == FUTEX_LOCK_PI || command == FUTEX_LOCK_PI2 || command == FUTEX_WAIT_REQUEUE_PI;
}

/* The result of a libc function that gives the error itself. */
static long as_call(int error)
{
	if (!error)
		return 0;
	errno = error;
	return -1;
}

long tpck_hooks_time_call(long number, long a, long b, long c, long d, long e, long f)
{
	const void *caller = NULL; /* the driver's code has no syscall() of its own accord */
	struct timespec now, moved;
	struct itimerspec timer;
	clockid_t clock;

	switch (number) {
	case SYS_futex:
		if (!apart() || !d || !names_a_time((int)b))
			return syscall(number, a, b, c, d, e, f);
		clock = b & FUTEX_CLOCK_REALTIME || (b & FUTEX_CMD_MASK) == FUTEX_LOCK_PI ? CLOCK_REALTIME : CLOCK_MONOTONIC;
		return syscall(number, a, b, c, real_time_at(clock, (const struct timespec *)d, &moved, caller), e, f);
	case SYS_clock_gettime:
		if (syscall(number, a, b))
			return -1;
		now = *(struct timespec *)b;
		tell((clockid_t)a, &now, caller);
		*(struct timespec *)b = now;
		return 0;
	case SYS_gettimeofday:
		if (syscall(number, a, b))
			return -1;
		return a ? gettimeofday((struct timeval *)a, NULL) : 0;
	case SYS_time:
		if (syscall(number, a) == -1)
			return -1;
		return time((time_t *)a);
	case SYS_clock_nanosleep:
		return as_call(clock_nanosleep((clockid_t)a, (int)b, (const struct timespec *)c, (struct timespec *)d));
	case SYS_timerfd_settime:
		return timerfd_settime((int)a, (int)b, (const struct itimerspec *)c, (struct itimerspec *)d);
	default:
		if (b & TIMER_ABSTIME && apart())
			return syscall(number, a, b, real_timer((const struct itimerspec *)c, &timer, caller), d);
		return syscall(number, a, b, c, d);
	}
}
