/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of reading from pipes and sockets otherwise than by read(): what a program that was started has said is in the record. */
#include "config.h"

#include "hooks/hooks.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "hooks/libc.h"
#include "runtime/engine/engine.h"
#include "runtime/network/network.h"
#include "runtime/programs/programs.h"
#include "shim/driver.h"

/* Not bare system calls: reading may be cancelled. */
#define REAL(name) \
	static __typeof__(&name) real; \
	if (__builtin_expect(!real, 0)) \
	real = (__typeof__(&name))tpck_real_dlsym(RTLD_NEXT, #name)

static void got_list(int fd, const struct iovec *list, size_t count, ssize_t got)
{
	for (size_t i = 0; i < count && got > 0; i++) {
		size_t bytes = list[i].iov_len < (size_t)got ? list[i].iov_len : (size_t)got;

		tpck_programs_read(fd, list[i].iov_base, (ssize_t)bytes);
		got -= (ssize_t)bytes;
	}
}

/* Whether there is room for a byte: nothing that is read is the end, then. */
static bool is_asked(const struct iovec *list, size_t count)
{
	size_t room = 0;

	for (size_t i = 0; i < count; i++)
		room += list[i].iov_len;
	return room > 0;
}

TPCK_EXPORT ssize_t readv(int fd, const struct iovec *list, int count)
{
	ssize_t got;

	REAL(readv);
	got = real(fd, list, count);
	if (got > 0)
		got_list(fd, list, (size_t)count, got);
	else if (!got)
		tpck_programs_read(fd, NULL, is_asked(list, (size_t)count) ? 0 : -1);
	tpck_network_received(fd, list, (size_t)count, got);
	return got;
}

/* What is only looked at comes again; more than there was room for is gone. */
static void received(int fd, const void *buffer, size_t bytes, int flags, ssize_t got)
{
	if (flags & MSG_PEEK)
		return;
	if (got > 0 && (size_t)got > bytes)
		got = (ssize_t)bytes;
	tpck_programs_read(fd, buffer, bytes ? got : -1);
	tpck_started_told(got);
	if (got || bytes)
		tpck_network_read(fd, buffer, got);
}

TPCK_EXPORT ssize_t recv(int fd, void *buffer, size_t bytes, int flags)
{
	ssize_t got;

	REAL(recv);
	got = real(fd, buffer, bytes, flags);
	received(fd, buffer, bytes, flags, got);
	return got;
}

TPCK_EXPORT ssize_t recvfrom(int fd, void *restrict buffer, size_t bytes, int flags, struct sockaddr *restrict from, socklen_t *restrict length)
{
	ssize_t got;

	REAL(recvfrom);
	got = real(fd, buffer, bytes, flags, from, length);
	received(fd, buffer, bytes, flags, got);
	return got;
}

TPCK_EXPORT ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	ssize_t got;

	REAL(recvmsg);
	got = real(fd, message, flags);
	if (got > 0 && !(flags & MSG_PEEK))
		got_list(fd, message->msg_iov, message->msg_iovlen, got);
	else if (!got && !(flags & MSG_PEEK))
		tpck_programs_read(fd, NULL, is_asked(message->msg_iov, message->msg_iovlen) ? 0 : -1);
	if (got > 0 && tpck_network_has(fd) && tpck_passes_descriptors(message))
		tpck_network_passes(fd);
	if (!(flags & MSG_PEEK) && tpck_network_has(fd))
		tpck_network_received(fd, got > 0 ? message->msg_iov : NULL, got > 0 ? message->msg_iovlen : 0, got);
	return got;
}

TPCK_EXPORT int socketpair(int domain, int type, int protocol, int ends[2])
{
	int result = (int)syscall(SYS_socketpair, domain, type, protocol, ends);

	if (!result && tpck_programs_followed())
		tpck_programs_paired(ends[0], ends[1]);
	return result;
}

/* As calls are compiled with _FORTIFY_SOURCE. More than there is room for is libc's, which ends the program. */
ssize_t __recv_chk(int fd, void *buffer, size_t bytes, size_t room, int flags);
TPCK_EXPORT ssize_t __recv_chk(int fd, void *buffer, size_t bytes, size_t room, int flags)
{
	REAL(__recv_chk);
	return bytes <= room ? recv(fd, buffer, bytes, flags) : real(fd, buffer, bytes, room, flags);
}

ssize_t __recvfrom_chk(int fd, void *buffer, size_t bytes, size_t room, int flags, struct sockaddr *from, socklen_t *length);
TPCK_EXPORT ssize_t __recvfrom_chk(int fd, void *buffer, size_t bytes, size_t room, int flags, struct sockaddr *from, socklen_t *length)
{
	REAL(__recvfrom_chk);
	return bytes <= room ? recvfrom(fd, buffer, bytes, flags, from, length) : real(fd, buffer, bytes, room, flags, from, length);
}

/* ---- streams: libc reads inside, where no symbol of ours is asked. One of a pipe or a socket reads by these functions ---- */

/* A cookie is the descriptor and 1. */
static int of_cookie(const void *cookie)
{
	return (int)(intptr_t)cookie - 1;
}

static ssize_t stream_read(void *cookie, char *buffer, size_t bytes)
{
	return read(of_cookie(cookie), buffer, bytes);
}

static int stream_seek(void *cookie, off64_t *at, int from)
{
	off64_t found = lseek64(of_cookie(cookie), *at, from);

	if (found < 0)
		return -1;
	*at = found;
	return 0;
}

static int stream_close(void *cookie)
{
	return (int)syscall(SYS_close, of_cookie(cookie));
}

static bool is_pipe(int fd)
{
	struct stat found;
	int saved = errno;
	bool pipe = !syscall(SYS_newfstatat, fd, "", &found, 0x1000 /* AT_EMPTY_PATH */) && (S_ISFIFO(found.st_mode) || S_ISSOCK(found.st_mode));

	errno = saved;
	return pipe;
}

TPCK_EXPORT FILE *fdopen(int fd, const char *mode)
{
	FILE *stream;

	REAL(fdopen);
	/* What is written to a stream libc moves itself; what is only read comes by way of read(), below. */
	if (tpck_readable_path(mode) && (mode[0] != 'r' || strchr(mode, '+')) && tpck_network_has(fd))
		tpck_network_passes(fd);
	if (!tpck_programs_followed() || !tpck_readable_path(mode) || mode[0] != 'r' || strchr(mode, '+') || strchr(mode, ',') || !is_pipe(fd))
		return real(fd, mode);
	stream = fopencookie((void *)(intptr_t)(fd + 1), "r", (cookie_io_functions_t){stream_read, NULL, stream_seek, stream_close});
	if (!stream)
		return NULL;
	if (strchr(mode, 'e'))
		(void)syscall(SYS_fcntl, fd, F_SETFD, FD_CLOEXEC);
	/* What fileno() says: to such a stream the number means nothing else. */
	stream->_fileno = fd;
	return stream;
}
