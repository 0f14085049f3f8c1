/* SPDX-License-Identifier: Apache-2.0 */
/* What hooks/start.c calls of the other files here. */
#ifndef TPCK_HOOKS_HOOKS_H
#define TPCK_HOOKS_HOOKS_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/socket.h>

#include "runtime/follow/follow.h"
#include "runtime/programs/programs.h"

void tpck_hooks_cuda(void);
void tpck_hooks_nccl(void);
/* The real syscall() is looked up. */
void tpck_hooks_syscall(void);
/* write(2), pwrite64(2), writev(2), pwritev(2) or pwritev2(2), by number. */
long tpck_hooks_write(long number, long fd, long from, long count, long at, long high, long flags);
/* So is the real clock_gettime(). */
void tpck_hooks_time(void);
/* futex(2), clock_nanosleep(2), clock_gettime(2) and the like, by number. */
long tpck_hooks_time_call(long number, long a, long b, long c, long d, long e, long f);
/* The random bytes that the kernel gave the program at its start. */
void tpck_hooks_machine(void);
/* getrusage(2), times(2), sysinfo(2), getcpu(2) and sched_getaffinity(2), by number. */
long tpck_hooks_machine_call(long number, long a, long b, long c);
/* So is the real execve(). */
void tpck_hooks_execute(void);
/* Whether popen() made the stream here. */
bool tpck_hooks_popened(FILE *stream);
/* Around a function that adds `more` bytes to what a stream has to write, and may write some: `good`: it has added them. */
struct tpck_hooks_stream {
	FILE *stream;
	size_t held_back;
	int fd, cancels; /* -1: nobody counts */
	bool unsure;     /* it is not known how many bytes it held back */
	bool changes;    /* tpck_follow_changed() gets it */
};
void tpck_hooks_stream_begins_slow(struct tpck_hooks_stream *at, FILE *stream);
void tpck_hooks_stream_ended_slow(const struct tpck_hooks_stream *at, size_t more, bool good);
static inline void tpck_hooks_stream_begins(struct tpck_hooks_stream *at, FILE *stream)
{
	at->fd = -1;
	at->changes = tpck_follow_writes_to(stream->_fileno);
	if (tpck_programs_child_some())
		tpck_hooks_stream_begins_slow(at, stream);
}
static inline void tpck_hooks_stream_ended(const struct tpck_hooks_stream *at, size_t more, bool good)
{
	if (__builtin_expect(at->fd >= 0, 0))
		tpck_hooks_stream_ended_slow(at, more, good);
	tpck_follow_changed(at->changes);
}
/* How many bytes the characters are in a file. False: some are none. */
bool tpck_hooks_wide_bytes(const wchar_t *text, size_t count, size_t *bytes);
/* The stream is about to be closed, or to become another file's. 0, or the errno by which what it held back is lost. */
int tpck_hooks_stream_closes(FILE *stream);
/* NULL, or which launcher the program has joined, for tpck_restart_launcher(). */
const char *tpck_launcher_joined(void);

/* Whether a message carries descriptors. */
bool tpck_passes_descriptors(const struct msghdr *message);
/* connect(), with libc's own function. `caller`: where it was called from. */
int tpck_hooks_connect(int fd, const struct sockaddr *address, socklen_t bytes, const void *caller, int (*real)(int, const struct sockaddr *, socklen_t));
/* A connection is made by which a TLS library may speak: the random numbers of those that are there are drawn from the record, or go there. */
void tpck_hooks_tls(void);
/* In a forked child, which has no other threads. */
void tpck_hooks_tls_forked(void);

#endif
