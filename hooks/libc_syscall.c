/* SPDX-License-Identifier: Apache-2.0 */
/* System calls that a program makes by syscall(): those that have a hook under a name of their own are that hook's. */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

#include "hooks/hooks.h"
#include "hooks/libc.h"
#include "runtime/base/layout.h"
#include "runtime/files/files.h"
#include "shim/driver.h"

/* Numbers that headers of 2020 do not have. */
enum { NR_CLOSE_RANGE = 436, NR_OPENAT2 = 437, NR_FACCESSAT2 = 439, NR_FCHMODAT2 = 452, NUMBERS = 512 };

/* struct open_how of linux/openat2.h */
struct how {
	uint64_t flags, mode, resolve;
};

/* What the assembly looks at, and calls. */
extern const unsigned char tpck_syscall_hooked[NUMBERS] __attribute__((visibility("hidden")));
extern void *tpck_syscall_next __attribute__((visibility("hidden")));
long tpck_syscall_seen(long number, long a, long b, long c, long d, long e, long f) __attribute__((visibility("hidden")));

const unsigned char tpck_syscall_hooked[NUMBERS] = {
	[SYS_open] = 1, [SYS_openat] = 1, [NR_OPENAT2] = 1, [SYS_creat] = 1, [SYS_close] = 1, [NR_CLOSE_RANGE] = 1,
	[SYS_dup] = 1, [SYS_dup2] = 1, [SYS_dup3] = 1, [SYS_fcntl] = 1, [SYS_fsync] = 1, [SYS_fdatasync] = 1, [SYS_sync] = 1, [SYS_syncfs] = 1, [SYS_sync_file_range] = 1, [SYS_msync] = 1, [SYS_copy_file_range] = 1,
	[SYS_write] = 1, [SYS_pwrite64] = 1, [SYS_writev] = 1, [SYS_pwritev] = 1, [SYS_pwritev2] = 1, [SYS_sendfile] = 1, [SYS_sendto] = 1, [SYS_sendmsg] = 1, [SYS_sendmmsg] = 1,
	[SYS_mmap] = 1, [SYS_munmap] = 1, [SYS_mremap] = 1, [SYS_rename] = 1, [SYS_renameat] = 1, [SYS_renameat2] = 1,
	[SYS_unlink] = 1, [SYS_unlinkat] = 1, [SYS_rmdir] = 1, [SYS_mkdir] = 1, [SYS_mkdirat] = 1, [SYS_link] = 1, [SYS_linkat] = 1,
	[SYS_symlink] = 1, [SYS_symlinkat] = 1, [SYS_readlink] = 1, [SYS_readlinkat] = 1, [SYS_stat] = 1, [SYS_lstat] = 1,
	[SYS_fstat] = 1, [SYS_newfstatat] = 1, [SYS_statx] = 1, [SYS_access] = 1, [SYS_faccessat] = 1, [NR_FACCESSAT2] = 1,
	[SYS_truncate] = 1, [SYS_chmod] = 1, [SYS_fchmodat] = 1, [NR_FCHMODAT2] = 1, [SYS_utimensat] = 1, [SYS_chown] = 1, [SYS_lchown] = 1,
	[SYS_fchownat] = 1, [SYS_listxattr] = 1, [SYS_llistxattr] = 1, [SYS_getxattr] = 1, [SYS_lgetxattr] = 1, [SYS_setxattr] = 1,
	[SYS_lsetxattr] = 1, [SYS_removexattr] = 1, [SYS_lremovexattr] = 1, [SYS_statfs] = 1, [SYS_chdir] = 1, [SYS_fchdir] = 1,
	[SYS_mknod] = 1, [SYS_mknodat] = 1, [SYS_bind] = 1, [SYS_connect] = 1, [SYS_chroot] = 1, [SYS_fstatfs] = 1, [SYS_ioctl] = 1, [SYS_execve] = 1, [SYS_execveat] = 1, [SYS_fallocate] = 1, [SYS_ftruncate] = 1, [SYS_futimesat] = 1, [SYS_utime] = 1, [SYS_utimes] = 1,
	[SYS_futex] = 1, [SYS_clock_gettime] = 1, [SYS_gettimeofday] = 1, [SYS_time] = 1, [SYS_clock_nanosleep] = 1, [SYS_timerfd_settime] = 1, [SYS_timer_settime] = 1,
	[SYS_getrandom] = 1, [SYS_getrusage] = 1, [SYS_times] = 1, [SYS_sysinfo] = 1, [SYS_getcpu] = 1, [SYS_sched_getaffinity] = 1,
};

TPCK_AT_START void tpck_hooks_syscall(void)
{
	void *next = tpck_real_dlsym(RTLD_NEXT, "syscall");

	/* While running forward some threads' system calls are free from libc's text alone (runtime/follow/syscalls.c). */
	if (next)
		tpck_syscall_next = next;
}

/* One that says how a path is to be resolved is the kernel's, once what is pending is where it looks. */
static long open_how(long number, int folder, const char *path, const struct how *how, size_t size)
{
	if (!tpck_readable_path(path) || !tpck_readable(how, size < sizeof *how ? size : sizeof *how))
		return syscall(number, folder, path, how, size);
	if (size >= sizeof *how && !how->resolve && how->flags <= INT32_MAX)
		return openat(folder, path, (int)how->flags, (mode_t)how->mode);
	(void)tpck_files_settle();
	return syscall(number, folder, path, how, size);
}

/* An argument of the call, as what it is there. */
#define NUMBER(x) ((int)(x))
#define TEXT(x) ((const char *)(x))
#define AT(type, x) ((type *)(x))

static long about_name(long number, long a, long b, long c, long d, long e)
{
	switch (number) {
	case SYS_rename:
		return rename(TEXT(a), TEXT(b));
	case SYS_renameat:
		return renameat(NUMBER(a), TEXT(b), NUMBER(c), TEXT(d));
	case SYS_renameat2:
		return renameat2(NUMBER(a), TEXT(b), NUMBER(c), TEXT(d), (unsigned)e);
	case SYS_unlink:
		return unlink(TEXT(a));
	case SYS_unlinkat:
		return unlinkat(NUMBER(a), TEXT(b), NUMBER(c));
	case SYS_rmdir:
		return rmdir(TEXT(a));
	case SYS_mkdir:
		return mkdir(TEXT(a), (mode_t)b);
	case SYS_chdir:
		return chdir(TEXT(a));
	case SYS_fchdir:
		return fchdir(NUMBER(a));
	case SYS_mkdirat:
		return mkdirat(NUMBER(a), TEXT(b), (mode_t)c);
	case SYS_mknod:
		return mknod(TEXT(a), (mode_t)b, (unsigned)c);
	case SYS_mknodat:
		return mknodat(NUMBER(a), TEXT(b), (mode_t)c, (unsigned)d);
	case SYS_link:
		return link(TEXT(a), TEXT(b));
	case SYS_linkat:
		return linkat(NUMBER(a), TEXT(b), NUMBER(c), TEXT(d), NUMBER(e));
	case SYS_symlink:
		return symlink(TEXT(a), TEXT(b));
	case SYS_symlinkat:
		return symlinkat(TEXT(a), NUMBER(b), TEXT(c));
	case SYS_readlink:
		return readlink(TEXT(a), AT(char, b), (size_t)NUMBER(c));
	default:
		return readlinkat(NUMBER(a), TEXT(b), AT(char, c), (size_t)NUMBER(d));
	}
}

static long about_attribute(long number, long a, long b, long c, long d, long e)
{
	switch (number) {
	case SYS_stat:
		return stat(TEXT(a), AT(struct stat, b));
	case SYS_lstat:
		return lstat(TEXT(a), AT(struct stat, b));
	case SYS_fstat:
		return fstat(NUMBER(a), AT(struct stat, b));
	case SYS_newfstatat:
		return fstatat(NUMBER(a), TEXT(b), AT(struct stat, c), NUMBER(d));
	case SYS_statx:
		return statx(NUMBER(a), TEXT(b), NUMBER(c), (unsigned)d, AT(struct statx, e));
	case SYS_access:
		return access(TEXT(a), NUMBER(b));
	case SYS_faccessat:
		return faccessat(NUMBER(a), TEXT(b), NUMBER(c), 0);
	case NR_FACCESSAT2:
		return faccessat(NUMBER(a), TEXT(b), NUMBER(c), NUMBER(d));
	case SYS_truncate:
		return truncate(TEXT(a), b);
	case SYS_chmod:
		return chmod(TEXT(a), (mode_t)b);
	case SYS_fchmodat:
		return fchmodat(NUMBER(a), TEXT(b), (mode_t)c, 0);
	case SYS_chown:
		return chown(TEXT(a), (uid_t)b, (gid_t)c);
	case SYS_lchown:
		return lchown(TEXT(a), (uid_t)b, (gid_t)c);
	case SYS_fchownat:
		return fchownat(NUMBER(a), TEXT(b), (uid_t)c, (gid_t)d, NUMBER(e));
	case SYS_listxattr:
		return listxattr(TEXT(a), AT(char, b), (size_t)c);
	case SYS_llistxattr:
		return llistxattr(TEXT(a), AT(char, b), (size_t)c);
	case SYS_getxattr:
		return getxattr(TEXT(a), TEXT(b), AT(void, c), (size_t)d);
	case SYS_lgetxattr:
		return lgetxattr(TEXT(a), TEXT(b), AT(void, c), (size_t)d);
	case SYS_setxattr:
		return setxattr(TEXT(a), TEXT(b), AT(void, c), (size_t)d, NUMBER(e));
	case SYS_lsetxattr:
		return lsetxattr(TEXT(a), TEXT(b), AT(void, c), (size_t)d, NUMBER(e));
	case SYS_removexattr:
		return removexattr(TEXT(a), TEXT(b));
	case SYS_lremovexattr:
		return lremovexattr(TEXT(a), TEXT(b));
	default:
		return statfs(TEXT(a), AT(struct statfs, b));
	}
}

long tpck_syscall_seen(long number, long a, long b, long c, long d, long e, long f)
{
	switch (number) {
	case SYS_open:
		return open(TEXT(a), NUMBER(b), (mode_t)c);
	case SYS_openat:
		return openat(NUMBER(a), TEXT(b), NUMBER(c), (mode_t)d);
	case NR_OPENAT2:
		return open_how(number, NUMBER(a), TEXT(b), AT(const struct how, c), (size_t)d);
	case SYS_creat:
		return creat(TEXT(a), (mode_t)b);
	case SYS_close:
		return close(NUMBER(a));
	case NR_CLOSE_RANGE:
		return close_range((unsigned)a, (unsigned)b, NUMBER(c));
	case SYS_dup:
		return dup(NUMBER(a));
	case SYS_dup2:
		return dup2(NUMBER(a), NUMBER(b));
	case SYS_dup3:
		return dup3(NUMBER(a), NUMBER(b), NUMBER(c));
	case SYS_fcntl:
		return fcntl(NUMBER(a), NUMBER(b), c);
	case SYS_fsync:
		return fsync(NUMBER(a));
	case SYS_fdatasync:
		return fdatasync(NUMBER(a));
	case SYS_sync:
		sync();
		return 0;
	case SYS_syncfs:
		return syncfs(NUMBER(a));
	case SYS_sync_file_range:
		return sync_file_range(NUMBER(a), b, c, (unsigned)d);
	case SYS_msync:
		return msync(AT(void, a), (size_t)b, NUMBER(c));
	case SYS_copy_file_range:
		return copy_file_range(NUMBER(a), AT(off_t, b), NUMBER(c), AT(off_t, d), (size_t)e, (unsigned)f);
	case SYS_write:
	case SYS_pwrite64:
	case SYS_writev:
	case SYS_pwritev:
	case SYS_pwritev2:
		return tpck_hooks_write(number, a, b, c, d, e, f);
	case SYS_sendfile:
		return sendfile(NUMBER(a), NUMBER(b), AT(off_t, c), (size_t)d);
	case SYS_sendto:
		return sendto(NUMBER(a), AT(void, b), (size_t)c, NUMBER(d), AT(struct sockaddr, e), (socklen_t)f);
	case SYS_sendmsg:
		return sendmsg(NUMBER(a), AT(struct msghdr, b), NUMBER(c));
	case SYS_sendmmsg:
		return sendmmsg(NUMBER(a), AT(struct mmsghdr, b), (unsigned)c, NUMBER(d));
	case SYS_mmap:
		return (long)mmap(AT(void, a), (size_t)b, NUMBER(c), NUMBER(d), NUMBER(e), f);
	case SYS_munmap:
		return munmap(AT(void, a), (size_t)b);
	case SYS_mremap:
		return (long)mremap(AT(void, a), (size_t)b, (size_t)c, NUMBER(d), AT(void, e));
	case SYS_utimensat:
		/* Of a descriptor. */
		if (!b)
			return syscall(number, a, b, c, d);
		return utimensat(NUMBER(a), TEXT(b), AT(const struct timespec, c), NUMBER(d));
	case SYS_fstatfs:
		return fstatfs(NUMBER(a), AT(struct statfs, b));
	case SYS_chroot:
		return chroot(TEXT(a));
	case SYS_execve:
		return execve(TEXT(a), AT(char *const, b), AT(char *const, c));
	case SYS_execveat:
		return execveat(NUMBER(a), TEXT(b), AT(char *const, c), AT(char *const, d), NUMBER(e));
	case SYS_ioctl:
		return ioctl(NUMBER(a), (unsigned long)b, c);
	case SYS_fallocate:
		return fallocate(NUMBER(a), NUMBER(b), c, d);
	case SYS_ftruncate:
		return ftruncate(NUMBER(a), b);
	case SYS_futimesat:
		return futimesat(NUMBER(a), TEXT(b), AT(const struct timeval, c));
	case SYS_utime:
		return utime(TEXT(a), AT(const struct utimbuf, b));
	case SYS_utimes:
		return utimes(TEXT(a), AT(const struct timeval, b));
	case SYS_bind:
		return bind(NUMBER(a), AT(const struct sockaddr, b), (socklen_t)c);
	case SYS_connect:
		return connect(NUMBER(a), AT(const struct sockaddr, b), (socklen_t)c);
	case SYS_futex:
	case SYS_clock_gettime:
	case SYS_gettimeofday:
	case SYS_time:
	case SYS_clock_nanosleep:
	case SYS_timerfd_settime:
	case SYS_timer_settime:
		return tpck_hooks_time_call(number, a, b, c, d, e, f);
	case SYS_getrandom:
		return getrandom(AT(void, a), (size_t)b, (unsigned)c);
	case SYS_getrusage:
	case SYS_times:
	case SYS_sysinfo:
	case SYS_getcpu:
	case SYS_sched_getaffinity:
		return tpck_hooks_machine_call(number, a, b, c);
	case NR_FCHMODAT2:
		if (d)
			return syscall(number, a, b, c, d);
		return fchmodat(NUMBER(a), TEXT(b), (mode_t)c, 0);
	case SYS_rename:
	case SYS_renameat:
	case SYS_renameat2:
	case SYS_unlink:
	case SYS_unlinkat:
	case SYS_rmdir:
	case SYS_mkdir:
	case SYS_mkdirat:
	case SYS_mknod:
	case SYS_mknodat:
	case SYS_chdir:
	case SYS_fchdir:
	case SYS_link:
	case SYS_linkat:
	case SYS_symlink:
	case SYS_symlinkat:
	case SYS_readlink:
	case SYS_readlinkat:
		return about_name(number, a, b, c, d, e);
	default:
		return about_attribute(number, a, b, c, d, e);
	}
}
