/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of calls on paths. */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>
#include <utime.h>

#include "hooks/hooks.h"
#include "hooks/libc.h"
#include "runtime/engine/engine.h"
#include "runtime/files/files.h"
#include "runtime/files/layer.h"
#include "runtime/follow/follow.h"
#include "runtime/programs/programs.h"
#include "shim/driver.h"

/* The shape of every hook here: the thread enters the engine, the call goes down the layers (files/layer.h), which pass by the record where
 * tpck_engine_enter() has given NULL, and behind it comes this. */
#define AT(folder, path) TPCK_AT_RECORDED(folder, path, self != NULL)
static int left(struct tpck_thread *self, long result)
{
	if (self)
		tpck_engine_leave(self);
	return (int)result;
}

TPCK_EXPORT int rename(const char *from, const char *to)
{
	struct tpck_thread *self;

	if (tpck_unreadable(from))
		return (int)syscall(SYS_rename, from, to);
	if (tpck_unreadable(to))
		return (int)syscall(SYS_rename, from, to);
	tpck_programs_takes(AT_FDCWD, from);
	self = tpck_engine_enter();
	return left(self, tpck_layer_top.rename(AT(AT_FDCWD, from), AT(AT_FDCWD, to), 0));
}

TPCK_EXPORT int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
	struct tpck_thread *self;

	if (tpck_unreadable(from))
		return (int)syscall(SYS_renameat, from_folder, from, to_folder, to);
	if (tpck_unreadable(to))
		return (int)syscall(SYS_renameat, from_folder, from, to_folder, to);
	tpck_programs_takes(from_folder, from);
	self = tpck_engine_enter();
	return left(self, tpck_layer_top.rename(AT(from_folder, from), AT(to_folder, to), 0));
}

TPCK_EXPORT int unlink(const char *path)
{
	struct tpck_thread *self;

	if (tpck_unreadable(path))
		return (int)syscall(SYS_unlink, path);
	tpck_programs_takes(AT_FDCWD, path);
	self = tpck_engine_enter();
	return left(self, tpck_layer_top.unlink(AT(AT_FDCWD, path), 0));
}

TPCK_EXPORT int unlinkat(int folder, const char *path, int flags)
{
	struct tpck_thread *self;

	if (tpck_unreadable(path))
		return (int)syscall(SYS_unlinkat, folder, path, flags);
	tpck_programs_takes(folder, path);
	self = tpck_engine_enter();
	return left(self, tpck_layer_top.unlink(AT(folder, path), flags));
}

TPCK_EXPORT int rmdir(const char *path)
{
	struct tpck_thread *self;

	if (tpck_unreadable(path))
		return (int)syscall(SYS_rmdir, path);
	self = tpck_engine_enter();
	return left(self, tpck_layer_top.unlink(AT(AT_FDCWD, path), AT_REMOVEDIR));
}

TPCK_EXPORT int remove(const char *path)
{
	/* As the C library does it: a file, else a folder; errno is what the first said. */
	if (unlink(path) == 0)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -1;
	return rmdir(path);
}

/* `result`: of making it. */
static int made_folder(int folder, const char *path, int result)
{
	if (!result)
		tpck_programs_child_made(folder, path);
	else if (errno == EEXIST && tpck_programs_child_made_before(folder, path))
		result = 0;
	return result;
}

TPCK_EXPORT int mkdir(const char *path, mode_t mode)
{
	struct tpck_thread *self;

	if (tpck_unreadable(path))
		return (int)syscall(SYS_mkdir, path, mode);
	self = tpck_engine_enter();
	return left(self, made_folder(AT_FDCWD, path, tpck_layer_top.mkdir(AT(AT_FDCWD, path), mode)));
}

TPCK_EXPORT int mkdirat(int folder, const char *path, mode_t mode)
{
	struct tpck_thread *self;

	if (tpck_unreadable(path))
		return (int)syscall(SYS_mkdirat, folder, path, mode);
	self = tpck_engine_enter();
	return left(self, made_folder(folder, path, tpck_layer_top.mkdir(AT(folder, path), mode)));
}

static int make_node(int folder, const char *path, mode_t mode, dev_t device)
{
	if (tpck_unreadable(path))
		return (int)syscall(SYS_mknodat, folder, path, mode, (unsigned)device);
	/* The kernel's numbers have 32 bits. */
	if ((unsigned)device != device) {
		errno = EINVAL;
		return -1;
	}
	if (S_ISFIFO(mode) && tpck_engine_forward()) {
		struct tpck_thread *self = tpck_engine_enter();
		int result = self ? tpck_follow_pipe(folder, path) : 1;

		if (result > 0) {
			result = tpck_files_mknod(folder, path, mode, device);
			if (self && !result)
				tpck_follow_made_pipe(folder, path);
		}
		return left(self, result);
	}
	return tpck_files_mknod(folder, path, mode, device);
}

TPCK_EXPORT int mknod(const char *path, mode_t mode, dev_t device)
{
	return make_node(AT_FDCWD, path, mode, device);
}

TPCK_EXPORT int mknodat(int folder, const char *path, mode_t mode, dev_t device)
{
	return make_node(folder, path, mode, device);
}

TPCK_EXPORT int mkfifo(const char *path, mode_t mode)
{
	return make_node(AT_FDCWD, path, mode | S_IFIFO, 0);
}

TPCK_EXPORT int mkfifoat(int folder, const char *path, mode_t mode)
{
	return make_node(folder, path, mode | S_IFIFO, 0);
}

/* A local socket's name is one in a folder, with or without a NUL behind it: in a buffer of a byte more than it may have. False: it is
 * none. */
static bool local_name(const struct sockaddr *address, socklen_t bytes, char *path)
{
	const struct sockaddr_un *local = (const void *)address;

	if (bytes <= offsetof(struct sockaddr_un, sun_path) || bytes > sizeof *local || !tpck_readable(local, bytes) ||
	    local->sun_family != AF_UNIX || !local->sun_path[0])
		return false;
	bytes -= offsetof(struct sockaddr_un, sun_path);
	memcpy(path, local->sun_path, bytes);
	path[bytes] = '\0';
	return true;
}

static socklen_t bytes_of(const struct sockaddr_un *address)
{
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(address->sun_path) + 1);
}

/* Beside a process that has the name. */
static int bind_beside(int fd, const char *path)
{
	struct tpck_thread *self = tpck_engine_enter();
	struct sockaddr_un own;
	int result = -1;

	if (tpck_own_socket_begins(fd, path, &own)) {
		result = (int)syscall(SYS_bind, fd, &own, bytes_of(&own));
		if (result)
			tpck_follow_hide(path);
	} else {
		errno = EADDRINUSE;
	}
	return left(self, result);
}

static int bind_real(int fd, const struct sockaddr *address, socklen_t bytes, const char *path)
{
	return tpck_files_owes() ? tpck_files_bind(fd, address, bytes, path) : (int)syscall(SYS_bind, fd, address, bytes);
}

/* While the program runs forward: its calls on paths find the socket. */
static int bind_forward(int fd, const struct sockaddr *address, socklen_t bytes, const char *path)
{
	struct tpck_thread *self = tpck_engine_enter();
	int result = -1, saved = errno;

	if (!self)
		return bind_real(fd, address, bytes, path);
	if (tpck_follow_socket_may(path))
		result = bind_real(fd, address, bytes, path);
	if (!result) {
		(void)tpck_follow_socket(path, NULL);
		errno = saved;
	}
	return left(self, result);
}

TPCK_EXPORT int bind(int fd, const struct sockaddr *address, socklen_t bytes)
{
	char path[sizeof((struct sockaddr_un *)0)->sun_path + 1];

	bool local = (tpck_files_owes() || tpck_forward_stands_beside() || tpck_engine_forward()) && local_name(address, bytes, path);

	if (!local && tpck_follow_held() && tpck_readable(address, bytes))
		tpck_follow_listens(address, bytes);
	if (local && !tpck_follow_may_listen(path))
		return bind_beside(fd, path);
	if (local && tpck_engine_forward())
		return bind_forward(fd, address, bytes, path);
	return local ? bind_real(fd, address, bytes, path) : (int)syscall(SYS_bind, fd, address, bytes);
}

/* A point of cancellation, which only the C library's own is. */
TPCK_EXPORT int connect(int fd, const struct sockaddr *address, socklen_t bytes)
{
	static int (*real)(int, const struct sockaddr *, socklen_t);
	char path[sizeof((struct sockaddr_un *)0)->sun_path + 1];
	struct sockaddr_un own;
	int result;
	bool local;

	if (!real)
		real = (int (*)(int, const struct sockaddr *, socklen_t))tpck_real_dlsym(RTLD_NEXT, "connect");
	if (tpck_forward_stands_beside() && local_name(address, bytes, path) && tpck_own_socket_at(path, &own)) {
		address = (const struct sockaddr *)&own;
		bytes = bytes_of(&own);
	}
	local = tpck_files_owes() && local_name(address, bytes, path);
	result = local && tpck_files_connects(fd, path) ? -1 : tpck_hooks_connect(fd, address, bytes, __builtin_return_address(0), real);
	if (local && result < 0)
		tpck_files_through(AT_FDCWD, path, TPCK_THROUGH_PATH);
	return result;
}

/* Nothing of a folder is pending: where the program is is the kernel's. Before that changes, and behind it. */
static struct tpck_thread *leaves_folder(void)
{
	struct tpck_thread *self = tpck_engine_enter();

	if (self)
		tpck_follow_leaves();
	return self;
}

static int left_folder(struct tpck_thread *self, long result)
{
	if (self)
		tpck_follow_left();
	return left(self, result);
}

static int change_folder(const char *path)
{
	int result = (int)syscall(SYS_chdir, path);

	/* The path may be of a file that is pending. */
	if (result)
		tpck_files_through(AT_FDCWD, path, TPCK_THROUGH_ALL);
	return result;
}

TPCK_EXPORT int chdir(const char *path)
{
	struct tpck_thread *self = leaves_folder();

	return left_folder(self, change_folder(path));
}

/* What the program has saved is at its paths before nobody can tell it where they are. Another name of the root that it has is no
 * change. */
static int change_root(const char *path, bool *changed)
{
	struct stat before, after;
	int saved = errno, result;
	bool known;

	(void)tpck_files_settle();
	known = !syscall(SYS_newfstatat, AT_FDCWD, "/", &before, 0);
	errno = saved;
	result = (int)syscall(SYS_chroot, path);
	if (result) {
		tpck_files_through(AT_FDCWD, path, TPCK_THROUGH_ALL);
		return result;
	}
	*changed = !known || syscall(SYS_newfstatat, AT_FDCWD, "/", &after, 0) || before.st_dev != after.st_dev || before.st_ino != after.st_ino;
	if (*changed)
		tpck_files_leave_root();
	errno = saved;
	return result;
}

TPCK_EXPORT int chroot(const char *path)
{
	struct tpck_thread *self = tpck_engine_enter();
	bool changed = false;
	int result;

	if (self)
		tpck_follow_leaves();
	result = change_root(path, &changed);
	if (self) {
		tpck_follow_left();
		if (changed)
			tpck_engine_unresumable("the program has changed its root (chroot)");
		tpck_engine_leave(self);
	}
	return result;
}

TPCK_EXPORT int fchdir(int folder)
{
	struct tpck_thread *self = leaves_folder();

	return left_folder(self, syscall(SYS_fchdir, folder));
}

static int kernel_access(int folder, const char *path, int mode, int flags)
{
	return flags ? (int)syscall(439 /* faccessat2 */, folder, path, mode, flags) : (int)syscall(SYS_faccessat, folder, path, mode);
}

static int access_at(int folder, const char *path, int mode, int flags)
{
	struct tpck_thread *self;

	if (tpck_follow_asks_first(folder)) {
		self = tpck_engine_enter();
		return left(self, self ? tpck_follow_first_access(path, mode, flags) : kernel_access(folder, path, mode, flags));
	}
	if (tpck_unreadable(path))
		return kernel_access(folder, path, mode, flags);
	self = tpck_engine_enter();
	return left(self, tpck_layer_top.access(AT(folder, path), mode, flags));
}

TPCK_EXPORT int access(const char *path, int mode)
{
	return access_at(AT_FDCWD, path, mode, 0);
}

TPCK_EXPORT int faccessat(int folder, const char *path, int mode, int flags)
{
	return access_at(folder, path, mode, flags);
}

TPCK_EXPORT int truncate(const char *path, off_t bytes)
{
	struct tpck_thread *self;

	if (tpck_unreadable(path))
		return (int)syscall(SYS_truncate, path, bytes);
	self = tpck_engine_enter();
	return left(self, tpck_layer_top.truncate(AT(AT_FDCWD, path), bytes));
}

TPCK_EXPORT int truncate64(const char *path, off64_t bytes)
{
	struct tpck_thread *self;

	if (tpck_unreadable(path))
		return (int)syscall(SYS_truncate, path, bytes);
	self = tpck_engine_enter();
	return left(self, tpck_layer_top.truncate(AT(AT_FDCWD, path), bytes));
}

TPCK_EXPORT int symlink(const char *target, const char *path)
{
	struct tpck_thread *self;

	if (tpck_unreadable(target))
		return (int)syscall(SYS_symlink, target, path);
	if (tpck_unreadable(path))
		return (int)syscall(SYS_symlink, target, path);
	self = tpck_engine_enter();
	return left(self, tpck_layer_top.symlink(target, AT(AT_FDCWD, path)));
}

TPCK_EXPORT int symlinkat(const char *target, int folder, const char *path)
{
	struct tpck_thread *self;

	if (tpck_unreadable(target))
		return (int)syscall(SYS_symlinkat, target, folder, path);
	if (tpck_unreadable(path))
		return (int)syscall(SYS_symlinkat, target, folder, path);
	self = tpck_engine_enter();
	return left(self, tpck_layer_top.symlink(target, AT(folder, path)));
}

/* A link by a name that cannot be read. The kernel asks for what is linked first, which the job may see where the kernel has
 * nothing: what it says of the name is what it says with anything that is there. */
static int link_nowhere(int from_folder, const char *from, int to_folder, const char *to, int flags)
{
	struct stat found;

	if (tpck_files_owes() && !tpck_layer_pending.stat(TPCK_AT(from_folder, from), &found, flags & AT_SYMLINK_FOLLOW ? 0 : AT_SYMLINK_NOFOLLOW))
		return (int)syscall(SYS_linkat, AT_FDCWD, "/", to_folder, to, 0);
	return (int)syscall(SYS_linkat, from_folder, from, to_folder, to, flags);
}

TPCK_EXPORT int link(const char *from, const char *to)
{
	struct tpck_thread *self;

	if (tpck_unreadable(from))
		return (int)syscall(SYS_link, from, to);
	if (tpck_unreadable(to))
		return link_nowhere(AT_FDCWD, from, AT_FDCWD, to, 0);
	self = tpck_engine_enter();
	return left(self, tpck_layer_top.link(AT(AT_FDCWD, from), AT(AT_FDCWD, to), 0));
}

TPCK_EXPORT int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags)
{
	struct tpck_thread *self;

	if (tpck_unreadable(from))
		return (int)syscall(SYS_linkat, from_folder, from, to_folder, to, flags);
	if (tpck_unreadable(to))
		return link_nowhere(from_folder, from, to_folder, to, flags);
	self = tpck_engine_enter();
	return left(self, tpck_layer_top.link(AT(from_folder, from), AT(to_folder, to), flags));
}

TPCK_EXPORT int chmod(const char *path, mode_t mode)
{
	struct tpck_thread *self;

	if (tpck_unreadable(path))
		return (int)syscall(SYS_chmod, path, mode);
	self = tpck_engine_enter();
	return left(self, tpck_layer_top.chmod(AT(AT_FDCWD, path), mode));
}

TPCK_EXPORT int fchmodat(int folder, const char *path, mode_t mode, int flags)
{
	struct tpck_thread *self;

	if (flags) {
		static int (*real)(int, const char *, mode_t, int);

		if (!real)
			real = (int (*)(int, const char *, mode_t, int))tpck_real_dlsym(RTLD_NEXT, "fchmodat");
		return real(folder, path, mode, flags);
	}
	if (tpck_unreadable(path))
		return (int)syscall(SYS_fchmodat, folder, path, mode);
	self = tpck_engine_enter();
	return left(self, tpck_layer_top.chmod(AT(folder, path), mode));
}

static int set_times(int folder, const char *path, const struct timespec times[2], int flags)
{
	struct tpck_thread *self;

	if (tpck_unreadable(path))
		return (int)syscall(SYS_utimensat, folder, path, times, flags);
	self = tpck_engine_enter();
	return left(self, tpck_layer_top.times(AT(folder, path), times, flags));
}

TPCK_EXPORT int utimensat(int folder, const char *path, const struct timespec times[2], int flags)
{
	/* To the kernel it would mean the descriptor itself. */
	TPCK_MAYBE_NULL(path);
	if (!path) {
		errno = EINVAL;
		return -1;
	}
	return set_times(folder, path, times, flags);
}

TPCK_EXPORT int utimes(const char *path, const struct timeval times[2])
{
	struct timespec precise[2];

	TPCK_MAYBE_NULL(times);
	for (int i = 0; times && i < 2; i++)
		precise[i] = (struct timespec){times[i].tv_sec, times[i].tv_usec * 1000};
	return set_times(AT_FDCWD, path, times ? precise : NULL, 0);
}

TPCK_EXPORT int lutimes(const char *path, const struct timeval times[2])
{
	struct timespec precise[2];

	TPCK_MAYBE_NULL(times);
	for (int i = 0; times && i < 2; i++)
		precise[i] = (struct timespec){times[i].tv_sec, times[i].tv_usec * 1000};
	return set_times(AT_FDCWD, path, times ? precise : NULL, AT_SYMLINK_NOFOLLOW);
}

TPCK_EXPORT int futimesat(int folder, const char *path, const struct timeval times[2])
{
	struct timespec precise[2];

	TPCK_MAYBE_NULL(times);
	for (int i = 0; times && i < 2; i++)
		precise[i] = (struct timespec){times[i].tv_sec, times[i].tv_usec * 1000};
	return set_times(folder, path, times ? precise : NULL, 0);
}

TPCK_EXPORT int utime(const char *path, const struct utimbuf *times)
{
	struct timespec precise[2];

	TPCK_MAYBE_NULL(times);
	if (times) {
		precise[0] = (struct timespec){times->actime, 0};
		precise[1] = (struct timespec){times->modtime, 0};
	}
	return set_times(AT_FDCWD, path, times ? precise : NULL, 0);
}

static ssize_t read_link(int folder, const char *path, char *target, size_t size)
{
	struct tpck_thread *self;
	ssize_t got;

	if (tpck_unreadable(path))
		return syscall(SYS_readlinkat, folder, path, target, size);
	self = tpck_engine_enter();
	got = tpck_layer_top.readlink(AT(folder, path), target, size);
	if (self)
		tpck_engine_leave(self);
	return got;
}

TPCK_EXPORT ssize_t readlink(const char *restrict path, char *restrict target, size_t size)
{
	return read_link(AT_FDCWD, path, target, size);
}

TPCK_EXPORT ssize_t readlinkat(int folder, const char *restrict path, char *restrict target, size_t size)
{
	return read_link(folder, path, target, size);
}

/* As calls are compiled with _FORTIFY_SOURCE. */
ssize_t __readlink_chk(const char *path, char *target, size_t size, size_t room);
TPCK_EXPORT ssize_t __readlink_chk(const char *path, char *target, size_t size, size_t room)
{
	return read_link(AT_FDCWD, path, target, size < room ? size : room);
}

ssize_t __readlinkat_chk(int folder, const char *path, char *target, size_t size, size_t room);
TPCK_EXPORT ssize_t __readlinkat_chk(int folder, const char *path, char *target, size_t size, size_t room)
{
	return read_link(folder, path, target, size < room ? size : room);
}

TPCK_EXPORT int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned int flags)
{
	struct tpck_thread *self;

	if (tpck_unreadable(from))
		return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
	if (tpck_unreadable(to))
		return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
	if (!flags)
		return renameat(from_folder, from, to_folder, to);
	self = tpck_engine_enter();
	if (self) {
		tpck_engine_unresumable("the program exchanges files, or renames none over another (renameat2)");
		tpck_engine_leave(self);
	}
	return tpck_layer_pending.rename(TPCK_AT(from_folder, from), TPCK_AT(to_folder, to), flags);
}

static int stat_at(int folder, const char *path, struct stat *found, int flags)
{
	struct tpck_thread *self;

	if (tpck_follow_asks_first(folder)) {
		self = tpck_engine_enter();
		return left(self, self ? tpck_follow_first_stat(path, found, flags) : syscall(SYS_newfstatat, folder, path, found, flags));
	}
	if (tpck_unreadable(path))
		return (int)syscall(SYS_newfstatat, folder, path, found, flags);
	self = tpck_engine_enter();
	return left(self, tpck_layer_top.stat(AT(folder, path), found, flags));
}

TPCK_EXPORT int stat(const char *restrict path, struct stat *restrict found)
{
	return stat_at(AT_FDCWD, path, (struct stat *)found, 0);
}

TPCK_EXPORT int stat64(const char *restrict path, struct stat64 *restrict found)
{
	return stat_at(AT_FDCWD, path, (struct stat *)found, 0);
}

TPCK_EXPORT int lstat(const char *restrict path, struct stat *restrict found)
{
	return stat_at(AT_FDCWD, path, (struct stat *)found, AT_SYMLINK_NOFOLLOW);
}

TPCK_EXPORT int lstat64(const char *restrict path, struct stat64 *restrict found)
{
	return stat_at(AT_FDCWD, path, (struct stat *)found, AT_SYMLINK_NOFOLLOW);
}

TPCK_EXPORT int fstatat(int folder, const char *restrict path, struct stat *restrict found, int flags)
{
	return stat_at(folder, path, (struct stat *)found, flags);
}

TPCK_EXPORT int fstatat64(int folder, const char *restrict path, struct stat64 *restrict found, int flags)
{
	return stat_at(folder, path, (struct stat *)found, flags);
}

/* Of a descriptor's nothing is followed: only who it is. */
static int descriptor_stat(int fd, struct stat *found)
{
	int result = (int)syscall(SYS_fstat, fd, found);

	if (!result && tpck_follow_shows())
		tpck_follow_shown(found);
	return result;
}

TPCK_EXPORT int fstat(int fd, struct stat *found)
{
	return descriptor_stat(fd, found);
}

TPCK_EXPORT int fstat64(int fd, struct stat64 *found)
{
	return descriptor_stat(fd, (struct stat *)found);
}

/* Before glibc 2.33 the functions above were inline and called these, with the version of the structure:
 * on x86-64 there is only one (0 is the kernel's, which is the same). */
static int bad_version(int version)
{
	if (version == 0 || version == 1)
		return 0;
	errno = EINVAL;
	return -1;
}

/* Where 0 is the version of a node's number, which they point to. */
int __xmknod(int version, const char *path, mode_t mode, dev_t *device);
TPCK_EXPORT int __xmknod(int version, const char *path, mode_t mode, dev_t *device)
{
	return version ? bad_version(-1) : make_node(AT_FDCWD, path, mode, *device);
}

int __xmknodat(int version, int folder, const char *path, mode_t mode, dev_t *device);
TPCK_EXPORT int __xmknodat(int version, int folder, const char *path, mode_t mode, dev_t *device)
{
	return version ? bad_version(-1) : make_node(folder, path, mode, *device);
}

int __xstat(int version, const char *path, struct stat *found);
TPCK_EXPORT int __xstat(int version, const char *path, struct stat *found)
{
	return bad_version(version) ? -1 : stat(path, found);
}

int __xstat64(int version, const char *path, struct stat64 *found);
TPCK_EXPORT int __xstat64(int version, const char *path, struct stat64 *found)
{
	return bad_version(version) ? -1 : stat64(path, found);
}

int __lxstat(int version, const char *path, struct stat *found);
TPCK_EXPORT int __lxstat(int version, const char *path, struct stat *found)
{
	return bad_version(version) ? -1 : lstat(path, found);
}

int __lxstat64(int version, const char *path, struct stat64 *found);
TPCK_EXPORT int __lxstat64(int version, const char *path, struct stat64 *found)
{
	return bad_version(version) ? -1 : lstat64(path, found);
}

int __fxstat(int version, int fd, struct stat *found);
TPCK_EXPORT int __fxstat(int version, int fd, struct stat *found)
{
	return bad_version(version) ? -1 : fstat(fd, found);
}

int __fxstat64(int version, int fd, struct stat64 *found);
TPCK_EXPORT int __fxstat64(int version, int fd, struct stat64 *found)
{
	return bad_version(version) ? -1 : fstat64(fd, found);
}

int __fxstatat(int version, int folder, const char *path, struct stat *found, int flags);
TPCK_EXPORT int __fxstatat(int version, int folder, const char *path, struct stat *found, int flags)
{
	return bad_version(version) ? -1 : fstatat(folder, path, found, flags);
}

int __fxstatat64(int version, int folder, const char *path, struct stat64 *found, int flags);
TPCK_EXPORT int __fxstatat64(int version, int folder, const char *path, struct stat64 *found, int flags)
{
	return bad_version(version) ? -1 : fstatat64(folder, path, found, flags);
}

TPCK_EXPORT int statx(int folder, const char *restrict path, int flags, unsigned int mask, struct statx *restrict found)
{
	struct tpck_thread *self;

	if (tpck_unreadable(path))
		return (int)syscall(SYS_statx, folder, path, flags, mask, found);
	self = tpck_engine_enter();
	return left(self, tpck_layer_top.statx(AT(folder, path), flags, mask, found));
}
