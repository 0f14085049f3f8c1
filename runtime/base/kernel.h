/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the library asks the kernel itself, with the types of the manual's section 2: libc's functions of these names are hooked, and would take the library's
 * own files and waits for the program's. Like those they return -1 and set errno.
 */
#ifndef TPCK_RUNTIME_BASE_KERNEL_H
#define TPCK_RUNTIME_BASE_KERNEL_H

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* ---- processes ---- */
static inline pid_t tpck_sys_getpid(void)
{
	return (pid_t)syscall(SYS_getpid);
}
static inline pid_t tpck_sys_getppid(void)
{
	return (pid_t)syscall(SYS_getppid);
}
static inline pid_t tpck_sys_gettid(void)
{
	return (pid_t)syscall(SYS_gettid);
}
static inline uid_t tpck_sys_geteuid(void)
{
	return (uid_t)syscall(SYS_geteuid);
}
static inline int tpck_sys_kill(pid_t process, int signal)
{
	return (int)syscall(SYS_kill, process, signal);
}
static inline pid_t tpck_sys_wait4(pid_t child, int *status, int options, struct rusage *usage)
{
	return (pid_t)syscall(SYS_wait4, child, status, options, usage);
}
static inline int tpck_sys_waitid(int kind, pid_t id, siginfo_t *info, int options, struct rusage *usage)
{
	return (int)syscall(SYS_waitid, kind, id, info, options, usage);
}
static inline int tpck_sys_execve(const char *path, char *const *arguments, char *const *variables)
{
	return (int)syscall(SYS_execve, path, arguments, variables);
}
static inline void __attribute__((noreturn)) tpck_sys_exit(int status)
{
	syscall(SYS_exit, status);
	__builtin_unreachable();
}
static inline void __attribute__((noreturn)) tpck_sys_exit_group(int status)
{
	syscall(SYS_exit_group, status);
	__builtin_unreachable();
}
static inline mode_t tpck_sys_umask(mode_t mask)
{
	return (mode_t)syscall(SYS_umask, mask);
}
static inline int tpck_sys_prctl(int what, unsigned long argument)
{
	return (int)syscall(SYS_prctl, what, argument);
}
static inline int tpck_sys_kcmp(pid_t one, pid_t other, int what, unsigned long index_of_one, unsigned long index_of_other)
{
	return (int)syscall(SYS_kcmp, one, other, what, index_of_one, index_of_other);
}
static inline pid_t tpck_sys_getpgid(pid_t process)
{
	return (pid_t)syscall(SYS_getpgid, process);
}
/* The kernel counts from 20 down. */
static inline int tpck_sys_getpriority(int which, id_t who)
{
	long found = syscall(SYS_getpriority, which, who);

	return found < 0 ? -1 : 20 - (int)found;
}
static inline int tpck_sys_setpriority(int which, id_t who, int priority)
{
	return (int)syscall(SYS_setpriority, which, who, priority);
}
/* glibc has neither these nor their constants. */
static inline int tpck_sys_ioprio_get(int which, int who)
{
	return (int)syscall(SYS_ioprio_get, which, who);
}
static inline int tpck_sys_ioprio_set(int which, int who, int priority)
{
	return (int)syscall(SYS_ioprio_set, which, who, priority);
}
static inline int tpck_sys_prlimit(pid_t process, int resource, const struct rlimit *limit, struct rlimit *before)
{
	return (int)syscall(SYS_prlimit64, process, resource, limit, before);
}
static inline int tpck_sys_sched_yield(void)
{
	return (int)syscall(SYS_sched_yield);
}
static inline int tpck_sys_membarrier(int command, unsigned flags, int processor)
{
	return (int)syscall(SYS_membarrier, command, flags, processor);
}
static inline int tpck_sys_sysinfo(struct sysinfo *found)
{
	return (int)syscall(SYS_sysinfo, found);
}
static inline ssize_t tpck_sys_getrandom(void *bytes, size_t count, unsigned flags)
{
	return (ssize_t)syscall(SYS_getrandom, bytes, count, flags);
}

/* ---- names ---- */
static inline int tpck_sys_openat(int folder, const char *path, int flags, mode_t mode)
{
	return (int)syscall(SYS_openat, folder, path, flags, mode);
}
static inline int tpck_sys_openat2(int folder, const char *path, const void *how, size_t bytes)
{
	return (int)syscall(SYS_openat2, folder, path, how, bytes);
}
static inline int tpck_sys_fstatat(int folder, const char *path, struct stat *found, int flags)
{
	return (int)syscall(SYS_newfstatat, folder, path, found, flags);
}
static inline int tpck_sys_statx(int folder, const char *path, int flags, unsigned mask, struct statx *found)
{
	return (int)syscall(SYS_statx, folder, path, flags, mask, found);
}
static inline int tpck_sys_faccessat(int folder, const char *path, int mode)
{
	return (int)syscall(SYS_faccessat, folder, path, mode);
}
/* Linux 5.8; older headers do not have its number. */
static inline int tpck_sys_faccessat2(int folder, const char *path, int mode, int flags)
{
	return (int)syscall(439, folder, path, mode, flags);
}
static inline int tpck_sys_unlinkat(int folder, const char *path, int flags)
{
	return (int)syscall(SYS_unlinkat, folder, path, flags);
}
static inline int tpck_sys_mkdirat(int folder, const char *path, mode_t mode)
{
	return (int)syscall(SYS_mkdirat, folder, path, mode);
}
static inline int tpck_sys_mknodat(int folder, const char *path, mode_t mode, unsigned device)
{
	return (int)syscall(SYS_mknodat, folder, path, mode, device);
}
static inline int tpck_sys_linkat(int from_folder, const char *from, int to_folder, const char *to, int flags)
{
	return (int)syscall(SYS_linkat, from_folder, from, to_folder, to, flags);
}
static inline int tpck_sys_symlinkat(const char *target, int folder, const char *path)
{
	return (int)syscall(SYS_symlinkat, target, folder, path);
}
static inline ssize_t tpck_sys_readlink(const char *path, char *target, size_t bytes)
{
	return (ssize_t)syscall(SYS_readlink, path, target, bytes);
}
static inline ssize_t tpck_sys_readlinkat(int folder, const char *path, char *target, size_t bytes)
{
	return (ssize_t)syscall(SYS_readlinkat, folder, path, target, bytes);
}
static inline int tpck_sys_rename(const char *from, const char *to)
{
	return (int)syscall(SYS_rename, from, to);
}
static inline int tpck_sys_renameat(int from_folder, const char *from, int to_folder, const char *to)
{
	return (int)syscall(SYS_renameat, from_folder, from, to_folder, to);
}
static inline int tpck_sys_renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
	return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}
static inline int tpck_sys_fchmodat(int folder, const char *path, mode_t mode)
{
	return (int)syscall(SYS_fchmodat, folder, path, mode);
}
static inline int tpck_sys_utimensat(int folder, const char *path, const struct timespec *times, int flags)
{
	return (int)syscall(SYS_utimensat, folder, path, times, flags);
}
static inline int tpck_sys_truncate(const char *path, off_t bytes)
{
	return (int)syscall(SYS_truncate, path, bytes);
}
static inline int tpck_sys_statfs(const char *path, struct statfs *found)
{
	return (int)syscall(SYS_statfs, path, found);
}
static inline long tpck_sys_getcwd(char *path, size_t bytes)
{
	return syscall(SYS_getcwd, path, bytes);
}
static inline int tpck_sys_chdir(const char *path)
{
	return (int)syscall(SYS_chdir, path);
}
static inline ssize_t tpck_sys_listxattr(const char *path, char *names, size_t bytes)
{
	return (ssize_t)syscall(SYS_listxattr, path, names, bytes);
}
static inline ssize_t tpck_sys_getxattr(const char *path, const char *name, void *value, size_t bytes)
{
	return (ssize_t)syscall(SYS_getxattr, path, name, value, bytes);
}

/* ---- descriptors ---- */
static inline int tpck_sys_close(int fd)
{
	return (int)syscall(SYS_close, fd);
}
static inline int tpck_sys_close_range(unsigned first, unsigned last, unsigned flags)
{
	return (int)syscall(SYS_close_range, first, last, flags);
}
static inline int tpck_sys_dup(int fd)
{
	return (int)syscall(SYS_dup, fd);
}
static inline int tpck_sys_dup2(int from, int to)
{
	return (int)syscall(SYS_dup2, from, to);
}
static inline int tpck_sys_dup3(int from, int to, int flags)
{
	return (int)syscall(SYS_dup3, from, to, flags);
}
static inline int tpck_sys_fcntl(int fd, int what, long argument)
{
	return (int)syscall(SYS_fcntl, fd, what, argument);
}
static inline int tpck_sys_ioctl(int fd, unsigned long what, void *argument)
{
	return (int)syscall(SYS_ioctl, fd, what, argument);
}
static inline ssize_t tpck_sys_read(int fd, void *bytes, size_t count)
{
	return (ssize_t)syscall(SYS_read, fd, bytes, count);
}
static inline ssize_t tpck_sys_write(int fd, const void *bytes, size_t count)
{
	return (ssize_t)syscall(SYS_write, fd, bytes, count);
}
static inline void *tpck_sys_mremap(void *at, size_t bytes, size_t to_bytes, int flags, void *to)
{
	return (void *)syscall(SYS_mremap, at, bytes, to_bytes, flags, to);
}
static inline ssize_t tpck_sys_pread(int fd, void *bytes, size_t count, off_t at)
{
	return (ssize_t)syscall(SYS_pread64, fd, bytes, count, at);
}
static inline ssize_t tpck_sys_pwrite(int fd, const void *bytes, size_t count, off_t at)
{
	return (ssize_t)syscall(SYS_pwrite64, fd, bytes, count, at);
}
static inline off_t tpck_sys_lseek(int fd, off_t at, int from)
{
	return (off_t)syscall(SYS_lseek, fd, at, from);
}
static inline ssize_t tpck_sys_getdents(int folder, void *entries, size_t bytes)
{
	return (ssize_t)syscall(SYS_getdents64, folder, entries, bytes);
}
static inline int tpck_sys_ftruncate(int fd, off_t bytes)
{
	return (int)syscall(SYS_ftruncate, fd, bytes);
}
static inline int tpck_sys_fallocate(int fd, int mode, off_t at, off_t bytes)
{
	return (int)syscall(SYS_fallocate, fd, mode, at, bytes);
}
static inline int tpck_sys_fchmod(int fd, mode_t mode)
{
	return (int)syscall(SYS_fchmod, fd, mode);
}
static inline int tpck_sys_fchown(int fd, uid_t owner, gid_t group)
{
	return (int)syscall(SYS_fchown, fd, owner, group);
}
static inline int tpck_sys_fstatfs(int fd, struct statfs *found)
{
	return (int)syscall(SYS_fstatfs, fd, found);
}
static inline int tpck_sys_flock(int fd, int how)
{
	return (int)syscall(SYS_flock, fd, how);
}
static inline int tpck_sys_fsync(int fd)
{
	return (int)syscall(SYS_fsync, fd);
}
static inline int tpck_sys_fdatasync(int fd)
{
	return (int)syscall(SYS_fdatasync, fd);
}
static inline int tpck_sys_sync_file_range(int fd, off_t at, off_t bytes, unsigned flags)
{
	return (int)syscall(SYS_sync_file_range, fd, at, bytes, flags);
}
static inline ssize_t tpck_sys_copy_file_range(int from, loff_t *from_at, int to, loff_t *to_at, size_t count, unsigned flags)
{
	return (ssize_t)syscall(SYS_copy_file_range, from, from_at, to, to_at, count, flags);
}
static inline ssize_t tpck_sys_sendfile(int to, int from, off_t *at, size_t count)
{
	return (ssize_t)syscall(SYS_sendfile, to, from, at, count);
}
static inline ssize_t tpck_sys_flistxattr(int fd, char *names, size_t bytes)
{
	return (ssize_t)syscall(SYS_flistxattr, fd, names, bytes);
}
static inline ssize_t tpck_sys_fgetxattr(int fd, const char *name, void *value, size_t bytes)
{
	return (ssize_t)syscall(SYS_fgetxattr, fd, name, value, bytes);
}
static inline int tpck_sys_fsetxattr(int fd, const char *name, const void *value, size_t bytes, int flags)
{
	return (int)syscall(SYS_fsetxattr, fd, name, value, bytes, flags);
}
static inline int tpck_sys_pipe2(int *ends, int flags)
{
	return (int)syscall(SYS_pipe2, ends, flags);
}
static inline int tpck_sys_memfd_create(const char *name, unsigned flags)
{
	return (int)syscall(SYS_memfd_create, name, flags);
}
static inline int tpck_sys_eventfd(unsigned value, int flags)
{
	return (int)syscall(SYS_eventfd2, value, flags);
}
static inline int tpck_sys_ppoll(struct pollfd *ends, unsigned long count, const struct timespec *limit, const void *set, size_t bytes)
{
	return (int)syscall(SYS_ppoll, ends, count, limit, set, bytes);
}

/* Moves a descriptor of the library's own, which is closed at an execve, out of the way of the numbers that the program gets. The descriptor that it is by
 * then; a negative one, as of a call that has failed, stays as it is. */
int tpck_sys_high(int fd);
/* Until there are so many, or the file ends. How many; -1: an error, also behind some. A signal is none. */
ssize_t tpck_sys_read_full(int fd, void *bytes, size_t count);
ssize_t tpck_sys_pread_full(int fd, void *bytes, size_t count, off_t at);

/* ---- sockets ---- */
static inline int tpck_sys_socket(int domain, int type, int protocol)
{
	return (int)syscall(SYS_socket, domain, type, protocol);
}
static inline int tpck_sys_bind(int fd, const void *address, socklen_t bytes)
{
	return (int)syscall(SYS_bind, fd, address, bytes);
}
static inline int tpck_sys_connect(int fd, const void *address, socklen_t bytes)
{
	return (int)syscall(SYS_connect, fd, address, bytes);
}
static inline int tpck_sys_listen(int fd, int most)
{
	return (int)syscall(SYS_listen, fd, most);
}
static inline int tpck_sys_accept4(int fd, void *address, socklen_t *bytes, int flags)
{
	return (int)syscall(SYS_accept4, fd, address, bytes, flags);
}
static inline int tpck_sys_getpeername(int fd, void *address, socklen_t *bytes)
{
	return (int)syscall(SYS_getpeername, fd, address, bytes);
}
static inline int tpck_sys_getsockname(int fd, void *address, socklen_t *bytes)
{
	return (int)syscall(SYS_getsockname, fd, address, bytes);
}
static inline int tpck_sys_getsockopt(int fd, int level, int option, void *value, socklen_t *bytes)
{
	return (int)syscall(SYS_getsockopt, fd, level, option, value, bytes);
}
static inline int tpck_sys_setsockopt(int fd, int level, int option, const void *value, socklen_t bytes)
{
	return (int)syscall(SYS_setsockopt, fd, level, option, value, bytes);
}
static inline ssize_t tpck_sys_sendto(int fd, const void *bytes, size_t count, int flags, const void *address, socklen_t length)
{
	return (ssize_t)syscall(SYS_sendto, fd, bytes, count, flags, address, length);
}
static inline ssize_t tpck_sys_recvfrom(int fd, void *bytes, size_t count, int flags, void *address, socklen_t *length)
{
	return (ssize_t)syscall(SYS_recvfrom, fd, bytes, count, flags, address, length);
}
static inline ssize_t tpck_sys_sendmsg(int fd, const struct msghdr *message, int flags)
{
	return (ssize_t)syscall(SYS_sendmsg, fd, message, flags);
}
static inline ssize_t tpck_sys_recvmsg(int fd, struct msghdr *message, int flags)
{
	return (ssize_t)syscall(SYS_recvmsg, fd, message, flags);
}
static inline int tpck_sys_shutdown(int fd, int how)
{
	return (int)syscall(SYS_shutdown, fd, how);
}

/* ---- memory ---- */
static inline void *tpck_sys_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t at)
{
	return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, at);
}
static inline int tpck_sys_munmap(void *address, size_t bytes)
{
	return (int)syscall(SYS_munmap, address, bytes);
}
static inline int tpck_sys_msync(void *address, size_t bytes, int flags)
{
	return (int)syscall(SYS_msync, address, bytes, flags);
}
static inline int tpck_sys_madvise(void *address, size_t bytes, int advice)
{
	return (int)syscall(SYS_madvise, address, bytes, advice);
}
static inline int tpck_sys_mincore(void *address, size_t bytes, unsigned char *resident)
{
	return (int)syscall(SYS_mincore, address, bytes, resident);
}

/* ---- time and signals ---- */
static inline int tpck_sys_clock_gettime(clockid_t clock, struct timespec *now)
{
	return (int)syscall(SYS_clock_gettime, clock, now);
}
static inline int tpck_sys_clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left)
{
	return (int)syscall(SYS_clock_nanosleep, clock, flags, until, left);
}
static inline int tpck_sys_nanosleep(const struct timespec *pause, struct timespec *left)
{
	return (int)syscall(SYS_nanosleep, pause, left);
}
static inline int tpck_sys_futex(_Atomic uint32_t *word, int what, uint32_t value, const struct timespec *limit, _Atomic uint32_t *other, uint32_t mask)
{
	return (int)syscall(SYS_futex, word, what, value, limit, other, mask);
}
static inline int tpck_sys_setitimer(int which, const struct itimerval *value, struct itimerval *before)
{
	return (int)syscall(SYS_setitimer, which, value, before);
}
static inline int tpck_sys_sigprocmask(int how, const void *set, void *before, size_t bytes)
{
	return (int)syscall(SYS_rt_sigprocmask, how, set, before, bytes);
}
static inline int tpck_sys_sigpending(void *set, size_t bytes)
{
	return (int)syscall(SYS_rt_sigpending, set, bytes);
}
static inline int tpck_sys_sigtimedwait(const void *set, siginfo_t *info, const struct timespec *limit, size_t bytes)
{
	return (int)syscall(SYS_rt_sigtimedwait, set, info, limit, bytes);
}

#endif
