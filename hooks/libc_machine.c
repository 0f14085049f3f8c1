/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of what the machine tells of itself: use of processors and memory, load, counts of processors, and bytes that seed tables. */
#include "config.h"

#include "hooks/libc_machine.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/times.h>
#include <unistd.h>

#include "hooks/hooks.h"
#include "hooks/libc.h"
#include "runtime/base/digest.h"
#include "runtime/base/layout.h"
#include "runtime/engine/engine.h"
#include "shim/driver.h"

/* Larger answers than any of these calls has. */
enum { SAID_BYTES = 1024, AT_RANDOM_BYTES = 16 };
#define MILLION 1000000

#define REAL(name) ((__typeof__(&name))tpck_real_dlsym(RTLD_NEXT, #name))
#define CALLER __builtin_return_address(0)

uint32_t tpck_machine_key(const char *what, const char *of)
{
	return (uint32_t)tpck_digest64(of, strlen(of), tpck_digest64(what, strlen(what), 0));
}

TPCK_AT_START struct tpck_thread *tpck_machine_enter(const void *caller)
{
	if (!tpck_engine_clocks() || tpck_driver_has(caller))
		return NULL;
	return tpck_engine_reading();
}

int tpck_machine_say(uint32_t key, const void *caller, int result, void *bytes, size_t count)
{
	struct tpck_thread *self = tpck_machine_enter(caller);
	struct {
		int32_t result, error;
		unsigned char bytes[SAID_BYTES];
	} now;
	const unsigned char *then;
	uint32_t size;

	if (!self)
		return result;
	now.result = result;
	now.error = result < 0 ? errno : 0;
	then = tpck_engine_reading_answer(self, key, &size);
	if (then && size >= offsetof(__typeof__(now), bytes)) {
		memcpy(&now, then, offsetof(__typeof__(now), bytes));
		if (now.result < 0)
			errno = now.error;
		else if (size - offsetof(__typeof__(now), bytes) == count)
			memcpy(bytes, then + offsetof(__typeof__(now), bytes), count);
		result = now.result;
	} else if (count <= sizeof now.bytes) {
		size = offsetof(__typeof__(now), bytes);
		if (result >= 0 && count) {
			memcpy(now.bytes, bytes, count);
			size += (uint32_t)count;
		}
		tpck_engine_reading_note(self, key, &now, size);
	}
	tpck_engine_leave(self);
	return result;
}

/* Of a number. */
static long say_number(const char *what, const char *of, long number, const void *caller)
{
	/* Where the thread is in no record a digest would cost more than the call. */
	if (!tpck_engine_clocks())
		return number;
	(void)tpck_machine_say(tpck_machine_key(what, of), caller, 0, &number, sizeof number);
	return number;
}

/* ---- use of processors ---- */

/* Microseconds of use that the program is told more than the kernel says, so that no use gets less after a resume: of the process, and of
 * children that have ended. Those of a thread are the kernel's. */
static struct more {
	_Atomic int64_t user, system;
} more_of_process, more_of_children;
static _Atomic int64_t more_ticks;

static int64_t grown(_Atomic int64_t *more, int64_t by)
{
	int64_t before = atomic_load(more);

	while (by > before && !atomic_compare_exchange_weak(more, &before, by))
		;
	return atomic_load(more);
}

static void time_add(struct timeval *time, int64_t more)
{
	int64_t sum = time->tv_sec * (int64_t)MILLION + time->tv_usec + more;

	time->tv_sec = sum / MILLION;
	time->tv_usec = sum % MILLION;
}

static int64_t time_since(const struct timeval *time, const struct timeval *before)
{
	return (time->tv_sec - before->tv_sec) * (int64_t)MILLION + time->tv_usec - before->tv_usec;
}

static int usage(int who, struct rusage *found, const void *caller)
{
	struct more *more = who == RUSAGE_SELF ? &more_of_process : who == RUSAGE_CHILDREN ? &more_of_children : NULL;
	bool forward = tpck_engine_forward();
	struct rusage real;
	int result = (int)syscall(SYS_getrusage, who, found);

	if (result || !tpck_engine_clocks())
		return result;
	real = *found;
	if (more) {
		time_add(&found->ru_utime, atomic_load(&more->user));
		time_add(&found->ru_stime, atomic_load(&more->system));
	}
	result = tpck_machine_say(tpck_machine_key("getrusage", who == RUSAGE_SELF ? "self" : more ? "children" : "thread"), caller, 0, found, sizeof *found);
	if (more && forward && !result) {
		(void)grown(&more->user, time_since(&found->ru_utime, &real.ru_utime));
		(void)grown(&more->system, time_since(&found->ru_stime, &real.ru_stime));
	}
	return result;
}

TPCK_EXPORT int getrusage(__rusage_who_t who, struct rusage *found)
{
	return usage((int)who, found, CALLER);
}

static clock_t ticks_of(int64_t microseconds)
{
	return microseconds / (MILLION / 100); /* USER_HZ */
}

TPCK_EXPORT clock_t times(struct tms *found)
{
	bool forward = tpck_engine_forward();
	int saved = errno;
	struct {
		struct tms use;
		clock_t ticks;
	} now, real;

	now.ticks = syscall(SYS_times, &now.use);
	errno = saved; /* what looks like an error is a time like another */
	if (tpck_engine_clocks()) {
		real = now;
		now.ticks += atomic_load(&more_ticks);
		now.use.tms_utime += ticks_of(atomic_load(&more_of_process.user));
		now.use.tms_stime += ticks_of(atomic_load(&more_of_process.system));
		now.use.tms_cutime += ticks_of(atomic_load(&more_of_children.user));
		now.use.tms_cstime += ticks_of(atomic_load(&more_of_children.system));
		(void)tpck_machine_say(tpck_machine_key("times", ""), CALLER, 0, &now, sizeof now);
		if (forward) {
			(void)grown(&more_ticks, now.ticks - real.ticks);
			(void)grown(&more_of_process.user, (now.use.tms_utime - real.use.tms_utime) * (MILLION / 100));
			(void)grown(&more_of_process.system, (now.use.tms_stime - real.use.tms_stime) * (MILLION / 100));
			(void)grown(&more_of_children.user, (now.use.tms_cutime - real.use.tms_cutime) * (MILLION / 100));
			(void)grown(&more_of_children.system, (now.use.tms_cstime - real.use.tms_cstime) * (MILLION / 100));
		}
	}
	TPCK_MAYBE_NULL(found);
	if (found)
		*found = now.use;
	return now.ticks;
}

/* ---- load and memory ---- */

TPCK_EXPORT int sysinfo(struct sysinfo *found)
{
	int result = (int)syscall(SYS_sysinfo, found);

	return result ? result : tpck_machine_say(tpck_machine_key("sysinfo", ""), CALLER, 0, found, sizeof *found);
}

TPCK_EXPORT int getloadavg(double *found, int count)
{
	static int (*real)(double *, int);
	int result;

	if (!real)
		real = REAL(getloadavg);
	result = real(found, count);
	return tpck_machine_say(tpck_machine_key("getloadavg", ""), CALLER, result, found, result > 0 ? (size_t)result * sizeof *found : 0);
}

TPCK_EXPORT long get_phys_pages(void)
{
	static long (*real)(void);

	if (!real)
		real = REAL(get_phys_pages);
	return say_number("get_phys_pages", "", real(), CALLER);
}

TPCK_EXPORT long get_avphys_pages(void)
{
	static long (*real)(void);

	if (!real)
		real = REAL(get_avphys_pages);
	return say_number("get_avphys_pages", "", real(), CALLER);
}

/* ---- processors ---- */

TPCK_EXPORT int sched_getcpu(void)
{
	static int (*real)(void);
	int result;

	if (!real)
		real = REAL(sched_getcpu);
	result = real();
	return (int)say_number("sched_getcpu", "", result, CALLER);
}

static int processor(unsigned *processor, unsigned *node, const void *caller)
{
	unsigned both[2] = {0, 0};
	int result = (int)syscall(SYS_getcpu, &both[0], &both[1], NULL);

	if (!result && tpck_engine_clocks())
		result = tpck_machine_say(tpck_machine_key("getcpu", ""), caller, 0, both, sizeof both);
	TPCK_MAYBE_NULL(processor);
	TPCK_MAYBE_NULL(node);
	if (!result && processor)
		*processor = both[0];
	if (!result && node)
		*node = both[1];
	return result;
}

TPCK_EXPORT int getcpu(unsigned *at, unsigned *node)
{
	return processor(at, node, CALLER);
}

TPCK_EXPORT int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
	static int (*real)(pid_t, size_t, cpu_set_t *);
	int result;

	if (!real)
		real = REAL(sched_getaffinity);
	result = real(pid, size, set);
	if (pid && pid != getpid())
		return result;
	return tpck_machine_say(tpck_machine_key("sched_getaffinity", ""), CALLER, result, set, result ? 0 : size);
}

TPCK_EXPORT int pthread_getaffinity_np(pthread_t thread, size_t size, cpu_set_t *set)
{
	static int (*real)(pthread_t, size_t, cpu_set_t *);
	int result;

	if (!real)
		real = REAL(pthread_getaffinity_np);
	result = real(thread, size, set);
	return tpck_machine_say(tpck_machine_key("pthread_getaffinity_np", ""), CALLER, result, set, result ? 0 : size);
}

TPCK_EXPORT int get_nprocs(void)
{
	static int (*real)(void);

	if (!real)
		real = REAL(get_nprocs);
	return (int)say_number("get_nprocs", "", real(), CALLER);
}

TPCK_EXPORT int get_nprocs_conf(void)
{
	static int (*real)(void);

	if (!real)
		real = REAL(get_nprocs_conf);
	return (int)say_number("get_nprocs_conf", "", real(), CALLER);
}

TPCK_EXPORT long sysconf(int name)
{
	static long (*real)(int);

	if (!real)
		real = REAL(sysconf);
	switch (name) {
	case _SC_NPROCESSORS_CONF:
		return say_number("sysconf", "configured", real(name), CALLER);
	case _SC_NPROCESSORS_ONLN:
		return say_number("sysconf", "online", real(name), CALLER);
	case _SC_PHYS_PAGES:
		return say_number("sysconf", "memory", real(name), CALLER);
	case _SC_AVPHYS_PAGES:
		return say_number("sysconf", "free", real(name), CALLER);
	default:
		return real(name);
	}
}

/* ---- by syscall() ---- */

long tpck_hooks_machine_call(long number, long a, long b, long c)
{
	struct tms use;
	long result;

	switch (number) {
	case SYS_getrusage:
		return usage((int)a, (struct rusage *)b, NULL);
	case SYS_times:
		if (a && syscall(SYS_times, a) == -1)
			return -1;
		return times(a ? (struct tms *)a : &use);
	case SYS_sysinfo:
		return sysinfo((struct sysinfo *)a);
	case SYS_getcpu:
		if (syscall(SYS_getcpu, a, b, NULL))
			return -1;
		return processor((unsigned *)a, (unsigned *)b, NULL);
	default:
		/* The kernel says how many bytes it has set, which are fewer than there is room for. */
		result = syscall(SYS_sched_getaffinity, a, b, c);
		if (a && a != getpid())
			return result;
		return tpck_machine_say(tpck_machine_key("sched_getaffinity", "by number"), NULL, (int)result, (void *)c, result > 0 ? (size_t)result : 0);
	}
}

/* ---- at the start ---- */

TPCK_AT_START void tpck_hooks_machine(void)
{
	unsigned char *random = (void *)getauxval(AT_RANDOM);
	struct tpck_thread *self = random ? tpck_machine_enter(NULL) : NULL;
	const void *then;
	uint32_t size;

	if (!self)
		return;
	/* libc has taken what it needs of them; what is left seeds tables of programs that ask getauxval(). */
	then = tpck_engine_reading_answer(self, tpck_machine_key("AT_RANDOM", ""), &size);
	if (then && size == AT_RANDOM_BYTES)
		memcpy(random, then, AT_RANDOM_BYTES);
	else
		tpck_engine_reading_note_once(self, tpck_machine_key("AT_RANDOM", ""), random, AT_RANDOM_BYTES);
	tpck_engine_leave(self);
}
