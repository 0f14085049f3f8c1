/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of what may make a file longer: one in memory may turn out larger than there is room for, and one that is written from
 * a device may turn out to be a checkpoint. */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "hooks/hooks.h"
#include "hooks/libc.h"
#include "runtime/files/files.h"
#include "runtime/follow/follow.h"
#include "runtime/network/network.h"
#include "runtime/programs/programs.h"
#include "shim/driver.h"

/* Not bare system calls: writing may be cancelled. */
#define REAL(name)                                               \
	static __typeof__(&name) real;                           \
	if (__builtin_expect(!real, 0))                          \
	real = (__typeof__(&name))tpck_real_dlsym(RTLD_NEXT, #name)

/* Whether what is written by it is a datagram that the first run has sent. */
static bool mutes(int fd)
{
	return tpck_network_forwards() && tpck_network_has(fd) && tpck_network_mutes(fd, NULL, 0, NULL);
}

TPCK_EXPORT ssize_t write(int fd, const void *buffer, size_t bytes)
{
	int grows;
	ssize_t done;
	bool changes;

	if (tpck_programs_drops(fd) || mutes(fd))
		return (ssize_t)bytes;
	grows = tpck_files_grows(fd, -1, bytes);
	REAL(write);
	tpck_programs_child_writing(fd, bytes);
	changes = tpck_follow_writes_to(fd);
	done = grows < 0 ? -1 : real(fd, buffer, bytes);
	tpck_follow_changed(changes);
	tpck_programs_child_wrote(fd, bytes, done);
	tpck_files_grown(grows);
	tpck_files_wrote(fd, buffer, done);
	tpck_network_wrote(fd, buffer, done);
	return done;
}

static uint64_t sum_all(const struct iovec *parts, int count)
{
	uint64_t bytes = 0;

	for (int i = 0; i < count; i++)
		bytes += parts[i].iov_len;
	return bytes;
}

static uint64_t sum(const struct iovec *parts, int count)
{
	/* The kernel's to look at, where nothing is written that concerns us. */
	if (!tpck_files_some() || count < 0 || count > IOV_MAX || !tpck_readable(parts, (size_t)count * sizeof *parts))
		return 0;
	return sum_all(parts, count);
}

TPCK_EXPORT ssize_t writev(int fd, const struct iovec *parts, int count)
{
	int grows;
	ssize_t done;
	bool changes;

	if ((tpck_programs_drops(fd) || mutes(fd)) && count >= 0 && count <= IOV_MAX && tpck_readable(parts, (size_t)count * sizeof *parts))
		return (ssize_t)sum_all(parts, count);
	grows = tpck_files_grows(fd, -1, sum(parts, count));
	REAL(writev);
	tpck_programs_child_writing(fd, 0);
	changes = tpck_follow_writes_to(fd);
	done = grows < 0 ? -1 : real(fd, parts, count);
	tpck_follow_changed(changes);
	tpck_programs_child_wrote(fd, 0, done);
	tpck_files_grown(grows);
	if (__builtin_expect(done >= TPCK_FILES_MUCH, 0))
		tpck_files_wrote_parts(fd, parts, (size_t)done);
	tpck_network_sent(fd, parts, (size_t)count, done);
	return done;
}

TPCK_EXPORT ssize_t pwrite(int fd, const void *buffer, size_t bytes, off_t at)
{
	int grows = tpck_files_grows(fd, at, bytes);
	ssize_t done;
	bool changes;

	REAL(pwrite);
	changes = tpck_follow_writes_to(fd);
	done = grows < 0 ? -1 : real(fd, buffer, bytes, at);
	tpck_follow_changed(changes);
	tpck_programs_child_wrote(fd, 0, done);
	tpck_files_grown(grows);
	tpck_files_wrote(fd, buffer, done);
	return done;
}

TPCK_EXPORT ssize_t pwrite64(int fd, const void *buffer, size_t bytes, off64_t at)
{
	return pwrite(fd, buffer, bytes, at);
}

TPCK_EXPORT ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at)
{
	int grows = tpck_files_grows(fd, at, sum(parts, count));
	ssize_t done;
	bool changes;

	REAL(pwritev);
	changes = tpck_follow_writes_to(fd);
	done = grows < 0 ? -1 : real(fd, parts, count, at);
	tpck_follow_changed(changes);
	tpck_programs_child_wrote(fd, 0, done);
	tpck_files_grown(grows);
	if (__builtin_expect(done >= TPCK_FILES_MUCH, 0))
		tpck_files_wrote_parts(fd, parts, (size_t)done);
	return done;
}

TPCK_EXPORT ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at)
{
	return pwritev(fd, parts, count, at);
}

/* Where a call that has flags begins to write. */
static int64_t begins(int fd, off_t at, int flags)
{
	int saved = errno;
	struct stat found;

	if (flags & RWF_APPEND && tpck_files_some()) {
		at = syscall(SYS_newfstatat, fd, "", &found, AT_EMPTY_PATH) ? -1 : found.st_size;
		errno = saved;
	}
	return at;
}

static ssize_t flagged(int fd, ssize_t done, int flags)
{
	return flags & (RWF_SYNC | RWF_DSYNC) ? tpck_files_wrote_synced(fd, done) : done;
}

TPCK_EXPORT ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t at, int flags)
{
	int grows = tpck_files_grows(fd, begins(fd, at, flags), sum(parts, count));
	ssize_t done;
	bool changes;

	REAL(pwritev2);
	changes = tpck_follow_writes_to(fd);
	done = grows < 0 ? -1 : real(fd, parts, count, at, flags);
	tpck_follow_changed(changes);
	tpck_files_grown(grows);
	if (__builtin_expect(done >= TPCK_FILES_MUCH, 0))
		tpck_files_wrote_parts(fd, parts, (size_t)done);
	return flagged(fd, done, flags);
}

TPCK_EXPORT ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t at, int flags)
{
	return pwritev2(fd, parts, count, at, flags);
}

/* By number a thread is not cancelled in it, as it may be in libc's function. */
long tpck_hooks_write(long number, long fd, long from, long count, long at, long high, long flags)
{
	const struct iovec *parts = (const struct iovec *)from;
	bool plain = number == SYS_write || number == SYS_pwrite64;
	uint64_t bytes = plain ? (uint64_t)count : sum(parts, count < 0 || count > IOV_MAX ? -1 : (int)count);
	int64_t begin = number == SYS_write || number == SYS_writev ? -1 : at;
	int grows;
	long done;
	bool changes;

	if (number != SYS_pwritev2)
		flags = 0;
	grows = tpck_files_grows((int)fd, begins((int)fd, begin, (int)flags), bytes);
	tpck_programs_child_writing((int)fd, plain ? bytes : 0);
	changes = tpck_follow_writes_to((int)fd);
	done = grows < 0 ? -1 : syscall(number, fd, from, count, at, high, flags);
	tpck_follow_changed(changes);
	tpck_programs_child_wrote((int)fd, plain ? bytes : 0, done);
	tpck_files_grown(grows);
	if (plain)
		tpck_files_wrote((int)fd, (const void *)from, done);
	else if (__builtin_expect(done >= TPCK_FILES_MUCH, 0))
		tpck_files_wrote_parts((int)fd, parts, (size_t)done);
	return flagged((int)fd, done, (int)flags);
}

/* What stdio writes later from its own buffer is little. */
TPCK_EXPORT size_t fwrite(const void *restrict buffer, size_t size, size_t count, FILE *restrict stream)
{
	int grows = tpck_files_stream_grows(stream, size * count);
	struct tpck_hooks_stream at;
	size_t done;

	REAL(fwrite);
	tpck_hooks_stream_begins(&at, stream);
	done = grows < 0 ? 0 : real(buffer, size, count, stream);
	/* Of a piece that is not whole some bytes may be on their way, too. */
	tpck_hooks_stream_ended(&at, done * size, done == count || size == 1);
	tpck_files_grown(grows);
	if (__builtin_expect(done * size >= TPCK_FILES_MUCH, 0))
		tpck_files_wrote_much(fileno(stream), buffer, done * size);
	return done;
}

#undef fwrite_unlocked
TPCK_EXPORT size_t fwrite_unlocked(const void *restrict buffer, size_t size, size_t count, FILE *restrict stream)
{
	int grows = tpck_files_stream_grows(stream, size * count);
	struct tpck_hooks_stream at;
	size_t done;

	REAL(fwrite_unlocked);
	tpck_hooks_stream_begins(&at, stream);
	done = grows < 0 ? 0 : real(buffer, size, count, stream);
	/* Of a piece that is not whole some bytes may be on their way, too. */
	tpck_hooks_stream_ended(&at, done * size, done == count || size == 1);
	tpck_files_grown(grows);
	if (__builtin_expect(done * size >= TPCK_FILES_MUCH, 0))
		tpck_files_wrote_much(fileno(stream), buffer, done * size);
	return done;
}

TPCK_EXPORT int ftruncate(int fd, off_t bytes)
{
	int grows = tpck_files_grows(fd, 0, bytes < 0 ? 0 : (uint64_t)bytes);
	bool changes = tpck_follow_writes_to(fd);
	int result = grows < 0 ? -1 : (int)syscall(SYS_ftruncate, fd, bytes);

	tpck_follow_changed(changes);
	tpck_files_grown(grows);
	return result;
}

TPCK_EXPORT int ftruncate64(int fd, off64_t bytes)
{
	return ftruncate(fd, bytes);
}

TPCK_EXPORT int fallocate(int fd, int mode, off_t at, off_t bytes)
{
	int grows = 0, result;

	if (!(mode & ~FALLOC_FL_KEEP_SIZE))
		grows = tpck_files_grows(fd, at < 0 ? 0 : at, bytes < 0 ? 0 : (uint64_t)bytes);
	else if (mode != (FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE))
		grows = tpck_files_leaves_memory(fd); /* to take out or put in blocks is not for memory */
	REAL(fallocate);
	result = grows < 0 ? -1 : real(fd, mode, at, bytes);
	tpck_files_grown(grows);
	return result;
}

TPCK_EXPORT int fallocate64(int fd, int mode, off64_t at, off64_t bytes)
{
	return fallocate(fd, mode, at, bytes);
}

TPCK_EXPORT int posix_fallocate(int fd, off_t at, off_t bytes)
{
	int saved = errno, grows = tpck_files_grows(fd, at < 0 ? 0 : at, bytes < 0 ? 0 : (uint64_t)bytes), result = errno;

	REAL(posix_fallocate);
	errno = saved;
	if (grows >= 0)
		result = real(fd, at, bytes);
	tpck_files_grown(grows);
	return result;
}

TPCK_EXPORT int posix_fallocate64(int fd, off64_t at, off64_t bytes)
{
	return posix_fallocate(fd, at, bytes);
}

TPCK_EXPORT ssize_t sendfile(int to, int from, off_t *at, size_t bytes)
{
	/* A Unix socket's bytes are not counted by the kernel. */
	if (tpck_network_has(to))
		tpck_network_passes(to);
	return tpck_files_send(to, from, at, bytes);
}

TPCK_EXPORT ssize_t sendfile64(int to, int from, off64_t *at, size_t bytes)
{
	/* A Unix socket's bytes are not counted by the kernel. */
	if (tpck_network_has(to))
		tpck_network_passes(to);
	return tpck_files_send(to, from, at, bytes);
}
