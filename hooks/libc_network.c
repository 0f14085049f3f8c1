/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of connections to other programs, and of what is sent by them otherwise than by write(). */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hooks/hooks.h"
#include "hooks/libc.h"
#include "runtime/engine/engine.h"
#include "runtime/network/network.h"
#include "runtime/programs/programs.h"
#include "shim/driver.h"

/* Not bare system calls: sending may be cancelled. */
#define REAL(name)                                      \
	static __typeof__(&name) real;                  \
	if (__builtin_expect(!real, 0))                 \
	real = (__typeof__(&name))tpck_real_dlsym(RTLD_NEXT, #name)

int tpck_hooks_connect(int fd, const struct sockaddr *address, socklen_t bytes, const void *caller, int (*real)(int, const struct sockaddr *, socklen_t))
{
	struct tpck_network_connect state;
	struct tpck_thread *self = tpck_engine_enter();
	enum tpck_network_way way;
	int result, error;

	if (!self && !__builtin_expect(atomic_load_explicit(&tpck_network_in_child, memory_order_relaxed), 0))
		return real(fd, address, bytes);
	way = tpck_readable(address, bytes) ? tpck_network_connects(self, fd, address, bytes, caller, &state) : TPCK_NETWORK_REAL;
	if (self)
		tpck_engine_leave(self);
	if (way == TPCK_NETWORK_REAL)
		return real(fd, address, bytes);
	if (way == TPCK_NETWORK_FAILS) {
		errno = state.error;
		return -1;
	}
	tpck_hooks_tls();
	if (way == TPCK_NETWORK_INSTEAD)
		result = real(fd, (const struct sockaddr *)&state.instead, state.instead_bytes);
	else
		result = real(fd, address, bytes);
	error = result ? errno : 0;
	self = tpck_engine_enter();
	tpck_network_connected(&state, fd, error);
	if (self)
		tpck_engine_leave(self);
	if (result)
		errno = error;
	return result;
}

/* Whether what this process sends may be answered from a record. */
static inline bool may_mute(void)
{
	return tpck_network_forwards() || tpck_network_unsure();
}

TPCK_EXPORT ssize_t send(int fd, const void *buffer, size_t bytes, int flags)
{
	ssize_t done;

	REAL(send);
	if (may_mute() && tpck_network_mutes(fd, NULL, 0, NULL))
		return (ssize_t)bytes;
	done = real(fd, buffer, bytes, flags);
	tpck_network_wrote(fd, buffer, done);
	return done;
}

TPCK_EXPORT ssize_t sendto(int fd, const void *buffer, size_t bytes, int flags, const struct sockaddr *to, socklen_t length)
{
	ssize_t done;

	REAL(sendto);
	if (may_mute() && (!to || tpck_readable(to, length)) && tpck_network_mutes(fd, to, length, __builtin_return_address(0)))
		return (ssize_t)bytes;
	done = real(fd, buffer, bytes, flags, to, length);
	tpck_network_wrote(fd, buffer, done);
	if (to && done >= 0)
		tpck_network_datagram(fd, to, length, __builtin_return_address(0));
	return done;
}

bool tpck_passes_descriptors(const struct msghdr *message)
{
	for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at; at = CMSG_NXTHDR((struct msghdr *)message, at))
		if (at->cmsg_level == SOL_SOCKET && at->cmsg_type == SCM_RIGHTS)
			return true;
	return false;
}

static size_t bytes_of(const struct msghdr *message)
{
	size_t bytes = 0;

	for (size_t i = 0; i < message->msg_iovlen; i++)
		bytes += message->msg_iov[i].iov_len;
	return bytes;
}

/* The kernel's to refuse, where it cannot be read. */
static bool mutes(int fd, const struct msghdr *message, const void *caller)
{
	return may_mute() && tpck_readable(message, sizeof *message) && message->msg_iovlen <= 1024 &&
	       tpck_readable(message->msg_iov, message->msg_iovlen * sizeof *message->msg_iov) &&
	       (!message->msg_name || tpck_readable(message->msg_name, message->msg_namelen)) &&
	       tpck_network_mutes(fd, message->msg_name, message->msg_namelen, caller);
}

TPCK_EXPORT ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	ssize_t done;

	REAL(sendmsg);
	if (mutes(fd, message, __builtin_return_address(0)))
		return (ssize_t)bytes_of(message);
	done = real(fd, message, flags);
	if (done > 0 && tpck_network_has(fd)) {
		if (tpck_passes_descriptors(message))
			tpck_network_passes(fd);
		tpck_network_sent(fd, message->msg_iov, message->msg_iovlen, done);
	}
	if (done >= 0 && message->msg_name)
		tpck_network_datagram(fd, message->msg_name, message->msg_namelen, __builtin_return_address(0));
	return done;
}

TPCK_EXPORT int sendmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags)
{
	int done;

	REAL(sendmmsg);
	if (count && may_mute() && tpck_readable(messages, sizeof *messages) && mutes(fd, &messages[0].msg_hdr, __builtin_return_address(0))) {
		messages[0].msg_len = (unsigned)bytes_of(&messages[0].msg_hdr);
		return 1;
	}
	done = real(fd, messages, count, flags);
	for (int i = 0; i < done; i++) {
		tpck_network_sent(fd, messages[i].msg_hdr.msg_iov, messages[i].msg_hdr.msg_iovlen, (ssize_t)messages[i].msg_len);
		if (messages[i].msg_hdr.msg_name)
			tpck_network_datagram(fd, messages[i].msg_hdr.msg_name, messages[i].msg_hdr.msg_namelen, __builtin_return_address(0));
	}
	return done;
}

TPCK_EXPORT int getpeername(int fd, struct sockaddr *restrict address, socklen_t *restrict bytes)
{
	if (tpck_network_has(fd) && tpck_readable(bytes, sizeof *bytes) && tpck_readable(address, *bytes) && tpck_network_peer(fd, address, bytes))
		return 0;
	if (tpck_readable(bytes, sizeof *bytes) && tpck_readable(address, *bytes) && tpck_own_socket_name(fd, true, address, bytes))
		return 0;
	return (int)syscall(SYS_getpeername, fd, address, bytes);
}

TPCK_EXPORT int getsockname(int fd, struct sockaddr *restrict address, socklen_t *restrict bytes)
{
	if (tpck_readable(bytes, sizeof *bytes) && tpck_readable(address, *bytes) && tpck_own_socket_name(fd, false, address, bytes))
		return 0;
	return (int)syscall(SYS_getsockname, fd, address, bytes);
}
