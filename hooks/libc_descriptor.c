/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of what ends, copies and syncs a descriptor, for those that write the trainer's files. */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hooks/hooks.h"
#include "hooks/libc.h"
#include "runtime/base/layout.h"
#include "runtime/files/files.h"
#include "runtime/follow/follow.h"
#include "runtime/network/network.h"
#include "runtime/programs/programs.h"
#include "shim/driver.h"

#define REAL(name) ((__typeof__(&name))tpck_real_dlsym(RTLD_NEXT, #name))

TPCK_EXPORT int close(int fd)
{
	if (tpck_follow_keeps(fd))
		return 0;
	tpck_programs_output_ends(fd);
	tpck_programs_child_closes(fd);
	tpck_network_closes(fd);
	return tpck_files_close(fd);
}

TPCK_EXPORT int fclose(FILE *stream)
{
	static int (*real)(FILE *);
	uint64_t closing;
	int result, error, lost;
	bool changes;

	/* libc's waits for the program, too. */
	if (tpck_hooks_popened(stream))
		return pclose(stream);
	lost = tpck_hooks_stream_closes(stream);
	tpck_network_closes(fileno(stream));
	closing = tpck_files_closing(fileno(stream));

	if (!real)
		real = REAL(fclose);
	changes = tpck_follow_writes_to(fileno(stream));
	result = real(stream);
	tpck_follow_changed(changes);
	/* What a stream could not write is missing. */
	error = tpck_files_closed(closing, result == 0 && !lost);
	error = lost ? lost : error;
	if (!error || result)
		return result;
	errno = error;
	return EOF;
}

/* All but the descriptors that the library needs for processes that are made now. */
static int close_but_kept(unsigned first, unsigned last, int flags)
{
	unsigned kept;
	int result = 0;

	while (!result && first <= last && !(flags & CLOSE_RANGE_CLOEXEC) && tpck_follow_kept_from(first, &kept) && kept <= last) {
		if (kept > first)
			result = (int)syscall(SYS_close_range, first, kept - 1, flags);
		first = kept + 1;
	}
	return result || first > last ? result : (int)syscall(SYS_close_range, first, last, flags);
}

TPCK_EXPORT int close_range(unsigned int first, unsigned int last, int flags)
{
	int result;

	if (__builtin_expect(atomic_load_explicit(&tpck_network_any, memory_order_relaxed) != 0, 0) && !(flags & CLOSE_RANGE_CLOEXEC))
		tpck_network_closes_range(first, last);
	result = close_but_kept(first, last, flags);

	if (!result && !(flags & CLOSE_RANGE_CLOEXEC)) {
		tpck_programs_child_closed_range(first, last);
		tpck_files_close_range(first, last);
	}
	return result;
}

TPCK_EXPORT void closefrom(int first)
{
	static void (*real)(int);

	if (!real)
		real = REAL(closefrom);
	if (__builtin_expect(atomic_load_explicit(&tpck_network_any, memory_order_relaxed) != 0, 0))
		tpck_network_closes_range(first < 0 ? 0 : (unsigned)first, ~0u);
	if (tpck_follow_keeps_any())
		(void)close_but_kept(first < 0 ? 0 : (unsigned)first, ~0u, 0);
	else
		real(first);
	tpck_programs_child_closed_range(first < 0 ? 0 : (unsigned)first, ~0u);
	tpck_files_close_range(first < 0 ? 0 : (unsigned)first, ~0u);
}

static void copied(int from, int to)
{
	tpck_files_copied(from, to);
	tpck_network_copied(from, to);
	tpck_programs_child_copies(from, to);
}

/* The descriptor that another one takes the place of is closed. */
static void replaced(int from, int to)
{
	if (from == to)
		return;
	tpck_programs_output_ends(to);
	tpck_programs_child_closes(to);
	tpck_network_closes(to);
}

TPCK_EXPORT int dup(int fd)
{
	bool held = tpck_files_hold(fd, -1);
	int copy = (int)syscall(SYS_dup, fd);

	if (copy >= 0)
		copied(fd, copy);
	tpck_files_let_go(held);
	return copy;
}

TPCK_EXPORT int dup2(int from, int to)
{
	bool held = tpck_files_hold(from, to);
	int copy;

	replaced(from, to);
	copy = (int)syscall(SYS_dup2, from, to);

	if (copy >= 0)
		copied(from, to);
	tpck_files_let_go(held);
	return copy;
}

TPCK_EXPORT int dup3(int from, int to, int flags)
{
	bool held = tpck_files_hold(from, to);
	int copy;

	replaced(from, to);
	copy = (int)syscall(SYS_dup3, from, to, flags);

	if (copy >= 0)
		copied(from, to);
	tpck_files_let_go(held);
	return copy;
}

/* Whether byte ranges are locked; or unlocked, by who has locked some before. What is asked for is the kernel's to read. */
static bool locks(int command)
{
	return command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW;
}

static int control(int (*real)(int, int, ...), int fd, int command, void *argument)
{
	bool held;
	int result;

	if (locks(command))
		tpck_files_locks(fd);
	held = tpck_files_hold(fd, -1);
	result = real(fd, command, argument);
	if (result >= 0 && (command == F_DUPFD || command == F_DUPFD_CLOEXEC))
		copied(fd, result);
	tpck_files_let_go(held);
	return result;
}

TPCK_EXPORT int fcntl(int fd, int command, ...)
{
	static int (*real)(int, int, ...);
	va_list args;
	void *argument;

	va_start(args, command);
	argument = va_arg(args, void *);
	va_end(args);
	if (!real)
		real = REAL(fcntl);
	return control(real, fd, command, argument);
}

TPCK_EXPORT int fcntl64(int fd, int command, ...)
{
	static int (*real)(int, int, ...);
	va_list args;
	void *argument;

	va_start(args, command);
	argument = va_arg(args, void *);
	va_end(args);
	if (!real)
		real = REAL(fcntl64);
	return control(real, fd, command, argument);
}

/* What is asked of a disk: where the file's blocks are, to share them, its flags. */
static bool asks_disk(unsigned long request)
{
	return request == FS_IOC_FIEMAP || request == FICLONE || request == FICLONERANGE || request == FIDEDUPERANGE || request == FS_IOC_GETFLAGS ||
	       request == FS_IOC_SETFLAGS || request == FS_IOC_FSGETXATTR || request == FS_IOC_FSSETXATTR;
}

TPCK_EXPORT int ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	void *argument;

	va_start(args, request);
	argument = va_arg(args, void *);
	va_end(args);
	if (__builtin_expect(tpck_files_some(), 0) && asks_disk(request) && tpck_files_leaves_memory(fd))
		return -1;
	return (int)syscall(SYS_ioctl, fd, request, argument);
}

TPCK_EXPORT int fsync(int fd)
{
	return tpck_files_fsync(fd, false);
}

TPCK_EXPORT int fdatasync(int fd)
{
	return tpck_files_fsync(fd, true);
}

TPCK_EXPORT void sync(void)
{
	int saved = errno;

	(void)tpck_files_sync_all(-1);
	errno = saved;
	syscall(SYS_sync);
}

TPCK_EXPORT int syncfs(int fd)
{
	return tpck_files_sync_all(fd) ? -1 : (int)syscall(SYS_syncfs, fd);
}

TPCK_EXPORT int sync_file_range(int fd, off64_t at, off64_t bytes, unsigned int flags)
{
	return tpck_files_sync_range(fd, at, bytes, flags);
}

TPCK_EXPORT int msync(void *address, size_t bytes, int flags)
{
	return tpck_files_msync(address, bytes, flags);
}

TPCK_EXPORT int lockf(int fd, int command, off_t bytes)
{
	static int (*real)(int, int, off_t);

	if (!real)
		real = REAL(lockf);
	if (command == F_LOCK || command == F_TLOCK)
		tpck_files_locks(fd);
	return real(fd, command, bytes);
}

TPCK_EXPORT int lockf64(int fd, int command, off64_t bytes)
{
	return lockf(fd, command, bytes);
}

TPCK_EXPORT ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t bytes, unsigned int flags)
{
	return tpck_files_copy_range(from, from_at, to, to_at, bytes, flags);
}

static TPCK_AT_START void *map(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	bool held;
	void *at;

	if (fd >= 0 && protection & PROT_WRITE && (flags & MAP_TYPE) != MAP_PRIVATE && !(flags & MAP_ANONYMOUS))
		tpck_files_maps(fd);
	held = fd >= 0 && tpck_files_hold(fd, -1);
	at = (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
	if (fd >= 0 && at != MAP_FAILED && (flags & MAP_TYPE) != MAP_PRIVATE && !(flags & MAP_ANONYMOUS))
		tpck_files_mapped(fd, at, bytes);
	tpck_files_let_go(held);
	return at;
}

TPCK_AT_START TPCK_EXPORT void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	return map(address, bytes, protection, flags, fd, offset);
}

TPCK_EXPORT void *mmap64(void *address, size_t bytes, int protection, int flags, int fd, off64_t offset)
{
	return map(address, bytes, protection, flags, fd, offset);
}

TPCK_EXPORT int munmap(void *address, size_t bytes)
{
	int result = (int)syscall(SYS_munmap, address, bytes);

	if (!result)
		tpck_files_unmapped(address, bytes);
	return result;
}

TPCK_EXPORT void *mremap(void *address, size_t bytes, size_t wanted, int flags, ...)
{
	void *at, *place;
	va_list args;

	va_start(args, flags);
	place = flags & MREMAP_FIXED ? va_arg(args, void *) : NULL;
	va_end(args);
	at = (void *)syscall(SYS_mremap, address, bytes, wanted, flags, place);
	if (at != MAP_FAILED)
		tpck_files_remapped(address, bytes, at, wanted);
	return at;
}
