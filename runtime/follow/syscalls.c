/* SPDX-License-Identifier: Apache-2.0 */
/* Calls on paths that a library makes as system calls of its own, while the program runs forward. */
#include "config.h"

#include "runtime/follow/syscalls.h"

#if defined __x86_64__ && defined __linux__

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "runtime/base/readable.h"
#include "runtime/files/layer.h"

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif
enum { DISPATCH_OFF = 0, DISPATCH_ON = 1, ALLOW = 0, BLOCK = 1, SYS_USER_DISPATCHED = 2 };
enum { SYSCALL_BYTES = 2 }; /* of the instruction */

static char selector = ALLOW; /* the kernel reads it at each system call of a watched thread */
static bool installed;
static struct sigaction before;
static __thread __attribute__((tls_model("initial-exec"))) bool watched;

struct text {
	uintptr_t inside, from, bytes;
};

static int find_text(struct dl_phdr_info *info, size_t size, void *data)
{
	struct text *text = data;

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		uintptr_t from = info->dlpi_addr + part->p_vaddr;

		if (part->p_type == PT_LOAD && part->p_flags & PF_X && text->inside - from < part->p_memsz) {
			text->from = from;
			text->bytes = part->p_memsz;
			return 1;
		}
	}
	return 0;
}

/* Whether the paths of those below can be read; of any other call nothing is looked at afterwards. */
static bool paths_readable(long number, long a, long b, long d)
{
	switch (number) {
	case SYS_rename:
		return tpck_readable_path((const char *)a) && tpck_readable_path((const char *)b);
	case SYS_renameat:
	case SYS_renameat2:
		return tpck_readable_path((const char *)b) && tpck_readable_path((const char *)d);
	case SYS_unlinkat:
	case SYS_openat:
	case SYS_newfstatat:
	case SYS_mkdirat:
	case SYS_fchmodat:
		return tpck_readable_path((const char *)b);
	default:
		return tpck_readable_path((const char *)a);
	}
}

/* True: it was about a path, and this is what it gave. */
static bool about_path(long number, const greg_t *regs, long *result)
{
	long a = regs[REG_RDI], b = regs[REG_RSI], c = regs[REG_RDX], d = regs[REG_R10], e = regs[REG_R8];

	if (!paths_readable(number, a, b, d))
		return false;
	switch (number) {
	case SYS_rename:
		*result = tpck_layer_follow.rename(TPCK_AT(AT_FDCWD, (const char *)a), TPCK_AT(AT_FDCWD, (const char *)b), 0);
		return true;
	case SYS_renameat:
		*result = tpck_layer_follow.rename(TPCK_AT((int)a, (const char *)b), TPCK_AT((int)c, (const char *)d), 0);
		return true;
	case SYS_renameat2:
		*result = tpck_layer_follow.rename(TPCK_AT((int)a, (const char *)b), TPCK_AT((int)c, (const char *)d), (unsigned)e);
		return true;
	case SYS_unlink:
		*result = tpck_layer_follow.unlink(TPCK_AT(AT_FDCWD, (const char *)a), 0);
		return true;
	case SYS_unlinkat:
		*result = tpck_layer_follow.unlink(TPCK_AT((int)a, (const char *)b), (int)c);
		return true;
	case SYS_open:
		*result = tpck_layer_follow.open(TPCK_AT(AT_FDCWD, (const char *)a), (int)b, (mode_t)c);
		return true;
	case SYS_openat:
		*result = tpck_layer_follow.open(TPCK_AT((int)a, (const char *)b), (int)c, (mode_t)d);
		return true;
	case SYS_stat:
		*result = tpck_layer_follow.stat(TPCK_AT(AT_FDCWD, (const char *)a), (struct stat *)b, 0);
		return true;
	case SYS_lstat:
		*result = tpck_layer_follow.stat(TPCK_AT(AT_FDCWD, (const char *)a), (struct stat *)b, AT_SYMLINK_NOFOLLOW);
		return true;
	case SYS_newfstatat:
		if (d & AT_EMPTY_PATH)
			return false;
		*result = tpck_layer_follow.stat(TPCK_AT((int)a, (const char *)b), (struct stat *)c, (int)d);
		return true;
	case SYS_mkdir:
		*result = tpck_layer_follow.mkdir(TPCK_AT(AT_FDCWD, (const char *)a), (mode_t)b);
		return true;
	case SYS_mkdirat:
		*result = tpck_layer_follow.mkdir(TPCK_AT((int)a, (const char *)b), (mode_t)c);
		return true;
	case SYS_chmod:
		*result = tpck_layer_follow.chmod(TPCK_AT(AT_FDCWD, (const char *)a), (mode_t)b);
		return true;
	case SYS_fchmodat:
		*result = tpck_layer_follow.chmod(TPCK_AT((int)a, (const char *)b), (mode_t)c);
		return true;
	default:
		return false;
	}
}

static void on_syscall(int sig, siginfo_t *info, void *context)
{
	greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
	long number = regs[REG_RAX], result = -1;
	int saved = errno;

	if (info->si_code != SYS_USER_DISPATCHED) {
		/* Somebody else's filter, or kill(): the next one does what it would have done. */
		if (before.sa_flags & SA_SIGINFO) {
			before.sa_sigaction(sig, info, context);
		} else if (before.sa_handler == SIG_DFL) {
			sigaction(SIGSYS, &before, NULL);
		} else if (before.sa_handler != SIG_IGN) {
			before.sa_handler(sig);
		}
		return;
	}
	/* What needs the caller's own stack is made by the caller, whom nobody watches from there on. */
	if (number == SYS_clone || number == SYS_clone3 || number == SYS_vfork || number == SYS_rt_sigreturn) {
		tpck_syscalls_unwatch();
		regs[REG_RIP] -= SYSCALL_BYTES;
		errno = saved;
		return;
	}
	/* syscall() gives -1 for what is no error only where a call returns that as its value: none does. */
	if (!about_path(number, regs, &result))
		result = syscall(number, regs[REG_RDI], regs[REG_RSI], regs[REG_RDX], regs[REG_R10], regs[REG_R8], regs[REG_R9]);
	regs[REG_RAX] = result == -1 ? -errno : result;
	errno = saved;
}

void tpck_syscalls_watch(void)
{
	struct text text = {.inside = (uintptr_t)&getppid};
	struct sigaction ours = {.sa_sigaction = on_syscall, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART};
	sigset_t blocked;
	int saved = errno;

	if (watched || pthread_sigmask(SIG_SETMASK, NULL, &blocked) || sigismember(&blocked, SIGSYS))
		return;
	if (!installed) {
		if (sigaction(SIGSYS, &ours, &before))
			return;
		installed = true;
	}
	__atomic_store_n(&selector, BLOCK, __ATOMIC_RELAXED);
	watched = dl_iterate_phdr(find_text, &text) == 1 &&
		  prctl(PR_SET_SYSCALL_USER_DISPATCH, DISPATCH_ON, text.from, text.bytes, &selector) == 0;
	errno = saved;
}

void tpck_syscalls_unwatch(void)
{
	int saved = errno;

	if (watched)
		prctl(PR_SET_SYSCALL_USER_DISPATCH, DISPATCH_OFF, 0, 0, NULL);
	watched = false;
	errno = saved;
}

void tpck_syscalls_end(void)
{
	__atomic_store_n(&selector, ALLOW, __ATOMIC_RELAXED);
	tpck_syscalls_unwatch();
	if (installed)
		sigaction(SIGSYS, &before, NULL);
	installed = false;
}

#else

void tpck_syscalls_watch(void)
{
}

void tpck_syscalls_unwatch(void)
{
}

void tpck_syscalls_end(void)
{
}

#endif
