/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of waiting for children: how a program ended is in the record, and how often it was asked before. */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "hooks/libc.h"
#include "runtime/programs/programs.h"
#include "shim/driver.h"

#define REAL(name) ((__typeof__(&name))tpck_real_dlsym(RTLD_NEXT, #name))

static bool watched(void)
{
	return __builtin_expect(atomic_load_explicit(&tpck_programs_places, memory_order_relaxed) != 0, 0);
}

/* The caller's options, as they are to be passed on, and the child. *not_yet: it has not ended, and nobody is asked. */
static int before(pid_t *child, int options, bool *not_yet)
{
	enum tpck_programs_wait wait = watched() ? tpck_programs_waits(child, options & WNOHANG) : TPCK_PROGRAMS_ASK;

	*not_yet = wait == TPCK_PROGRAMS_NOT_YET;
	return wait == TPCK_PROGRAMS_ENDS ? options & ~WNOHANG : options;
}

static pid_t after(pid_t child, int options, pid_t ended, int status)
{
	if (watched() && ended >= 0)
		tpck_programs_waited(child, options & WNOHANG, ended, status);
	return ended;
}

TPCK_EXPORT pid_t waitpid(pid_t child, int *status, int options)
{
	static pid_t (*real)(pid_t, int *, int);
	int unasked, *told = status ? status : &unasked, passed;
	bool not_yet;
	pid_t ended;

	if (!real)
		real = REAL(waitpid);
	passed = before(&child, options, &not_yet);
	if (not_yet)
		return 0;
	ended = real(child, told, passed);
	return after(child, options, ended, ended > 0 ? *told : 0);
}

TPCK_EXPORT pid_t wait(int *status)
{
	return waitpid(-1, status, 0);
}

TPCK_EXPORT pid_t wait4(pid_t child, int *status, int options, struct rusage *usage)
{
	static pid_t (*real)(pid_t, int *, int, struct rusage *);
	int unasked, *told = status ? status : &unasked, passed;
	bool not_yet;
	pid_t ended;

	if (!real)
		real = REAL(wait4);
	passed = before(&child, options, &not_yet);
	if (not_yet)
		return 0;
	ended = real(child, told, passed, usage);
	return after(child, options, ended, ended > 0 ? *told : 0);
}

TPCK_EXPORT pid_t wait3(int *status, int options, struct rusage *usage)
{
	return wait4(-1, status, options, usage);
}

static int status_of(const siginfo_t *info)
{
	return info->si_code == CLD_EXITED ? info->si_status << 8 : info->si_status | (info->si_code == CLD_DUMPED ? 0x80 : 0);
}

TPCK_EXPORT int waitid(idtype_t kind, id_t id, siginfo_t *info, int options)
{
	static int (*real)(idtype_t, id_t, siginfo_t *, int);
	pid_t child = kind == P_PID ? (pid_t)id : kind == P_ALL ? -1 : 0;
	siginfo_t unasked, *told = info ? info : &unasked;
	int result, passed;
	bool not_yet;

	if (!real)
		real = REAL(waitid);
	/* What is only looked at is waited for later. */
	if (!watched() || !(options & WEXITED))
		return real(kind, id, info, options);
	passed = before(&child, options, &not_yet);
	if (not_yet) {
		if (info)
			info->si_pid = 0;
		return 0;
	}
	told->si_pid = 0;
	result = child > 0 ? real(P_PID, (id_t)child, told, passed) : real(kind, id, told, passed);
	if (!result && !(options & WNOWAIT) &&
	    (!told->si_pid || told->si_code == CLD_EXITED || told->si_code == CLD_KILLED || told->si_code == CLD_DUMPED))
		after(child, options, told->si_pid, told->si_pid ? status_of(told) : 0);
	return result;
}
