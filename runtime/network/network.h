/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections to who does not belong to the job (doc/outside.md, "Connections to others"): a tracking server, a chat, a database, a store of objects. What the first
 * run sent there is not sent again. While recording, the log gets of each TCP connection that the program makes what came from the
 * other end, and behind how many bytes of the program's own. While running forward the program is connected to this library instead, by
 * a connection over loopback, and hears what it heard then. Once it is live such connections are closed, and it makes new ones.
 *
 * Bytes are those on the wire. Of what is encrypted they mean the same once more only where the program's end draws the same random
 * numbers: OpenSSL's are in the record from the first such connection on (hooks/libc_tls.c).
 *
 * Real in every mode are connections to the job's own: made by a library that ranks speak through, to a process on this machine that
 * has this library in its environment, its memory, or among its ancestors (whose.c), to where TRANSPCKPT_NETWORK_REAL says, and to the
 * job's other nodes but by the ports of HTTP and HTTPS. Agents know these nodes (runtime/wire/nodes.h). Until they have met, what is said
 * to other machines is in the record, and left out of it again once it is known to be the job's.
 */
#ifndef TPCK_RUNTIME_NETWORK_NETWORK_H
#define TPCK_RUNTIME_NETWORK_NETWORK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "runtime/base/error.h"
#include "runtime/replay/record_log.h"
#include "runtime/replay/root.h"
#include "runtime/track/threads.h"

/* Recording into the log from here on, up to `most` bytes of answers. `real`: TRANSPCKPT_NETWORK_REAL, which stays the caller's. shm, job: where the
 * agent's memory tier is, of a job with ranks on other nodes; else NULL, NULL. */
void tpck_network_record(struct tpck_log *log, uint64_t most, const char *real, const char *shm, const char *job);
/* may: this process is none of several ranks, as far as is known, so what it says may belong to another's record, which has started it. */
void tpck_started_may_be(bool may);
/* Such a process is about to speak with who does not belong to the job, or to write to a file: finds out whose it is. */
void tpck_started_asks(void);
/* The same, but where its root has no session yet it stays open: no thread is made, which programs that go into a namespace of their own cannot have. */
void tpck_started_asks_once(void);
/* Is called once that is known, with the root, during the call only but for its mail; NULL: it is nobody's, or a trainer. By any thread; with no lock held. */
void tpck_started_then(void (*belongs)(const struct tpck_root *root));
/* The log is in this session's folder from here on, where it is kept, too, what forked children and programs that were started say until it is in the log.
 * cut: of the log by which the program is run forward, or NULL. */
void tpck_network_session(const char *folder, const struct tpck_log_position *cut);
/* This process, or the one with that id, executes a program, which has this number in each run (runtime/programs/programs.h); 0: none. */
void tpck_network_executes(int pid, uint32_t number);
/* The same of a shell that this process is about to run by system(). */
void tpck_network_shell(uint32_t number);
/* Before a boundary's record: connections of which not all was seen are found. */
void tpck_network_boundary(void);
/* Behind it. */
void tpck_network_bounded(void);
/* Around a fork, in the parent before it and in the child behind it. `child`: the child's number, the same in each run; 0: it has none, and only a line
 * says what it sends while its parent runs forward. */
void tpck_network_forking(void);
void tpck_network_forked(uint32_t child);
/* 0, or -EINVAL: an entry of this TRANSPCKPT_NETWORK_REAL is no address, network or port; which one, and what would be right. */
int tpck_network_real_check(const char *text, struct tpck_error *err);

/* ---- running forward ---- */
void tpck_network_learn(const struct tpck_record *record);
/* Learns records behind the cut: answers to what was asked before it. */
void tpck_network_learn_behind(const struct tpck_record *record);
/* Learns such records once more: what was sent to others there will be sent again. tried: records of a start that had gone on from the cut and left no
 * snapshot. */
void tpck_network_learn_sent(const struct tpck_record *record);
void tpck_network_learn_tried(const struct tpck_record *record);
/* Whether the record has something that was sent to others, and may have changed something there. */
bool tpck_network_says_any(void);
/* Calls with each record that forked children and programs had, and that was not in the log yet. */
void tpck_network_left(void (*call)(const struct tpck_record *record));
void tpck_network_unlearn(void);
/* From here on; a program that begins anew never leaves this. diverged: begins it anew, from any thread, and does not return; NULL: nobody does. */
void tpck_network_forward(void (*diverged)(const char *what));
/* All threads that the record waits for stand at the boundary: others that are on their way through what was said before it are waited for, for as
 * long as they move, two seconds at most. */
void tpck_network_settle(void);
/* The program is live, at this step. Lines say what it will notice. */
void tpck_network_live(uint64_t step);
/* NULL, or a connection that cannot be answered. *at_once: nothing that is still to come may change that. */
const char *tpck_network_difference(bool *at_once);
/* The next connection, from *from on, that has nothing more to say where the first run's went on. False: there is none. *fd is the program's descriptor;
 * `text` says what it means where a thread reads from it and nothing moves any more. */
enum { TPCK_NETWORK_TEXT = 220 };
bool tpck_network_unanswered(unsigned *from, int *fd, char text[TPCK_NETWORK_TEXT]);
/* Forked children wait for this process to be live before they connect, and it does nothing: it may wait for them. They go on, for real. */
bool tpck_network_children_held(void);
void tpck_network_children_release(void);
/* Whether a thread waits for the program to be live before it connects. */
enum tpck_network_stop {
	TPCK_NETWORK_GO,
	TPCK_NETWORK_MAY_STOP, /* one that the record does not wait for */
	TPCK_NETWORK_STOP,     /* one that stands at the boundary */
};
enum tpck_network_stop tpck_network_stops(void);

extern _Atomic bool tpck_network_forwarding_now __attribute__((visibility("hidden")));
static inline bool tpck_network_forwards(void)
{
	return __builtin_expect(atomic_load_explicit(&tpck_network_forwarding_now, memory_order_acquire), 0);
}

/* Whether it is still to be found out if this process is another's (tpck_started_may_be()). */
extern _Atomic bool tpck_started_unsure __attribute__((visibility("hidden")));
static inline bool tpck_network_unsure(void)
{
	return __builtin_expect(atomic_load_explicit(&tpck_started_unsure, memory_order_relaxed), 0);
}

/* ---- what the program does ---- */
enum tpck_network_way {
	TPCK_NETWORK_REAL,     /* the call is made as it is */
	TPCK_NETWORK_NOTED,    /* the same, and tpck_network_connected() follows */
	TPCK_NETWORK_INSTEAD,  /* it is made with `instead`, and tpck_network_connected() follows */
	TPCK_NETWORK_FAILS,    /* it fails with `error` */
};
struct tpck_network_connect {
	struct sockaddr_storage instead;
	socklen_t instead_bytes;
	socklen_t bytes; /* of `address` */
	int error;
	/* the room's own */
	struct sockaddr_storage address;
	uint32_t thread, ordinal;
	int listener;
	bool elsewhere;
	void *spoken;
};
/* Before connect(). `caller`: where it was called from. self may be NULL, and is not looked at in a forked child. While running forward the thread may be
 * made to wait here. */
enum tpck_network_way tpck_network_connects(struct tpck_thread *self, int fd, const struct sockaddr *address, socklen_t bytes, const void *caller,
					    struct tpck_network_connect *state);
/* The process is a forked child whose connections are followed. */
extern _Atomic bool tpck_network_in_child __attribute__((visibility("hidden")));
/* Behind it: 0, or the errno that it set. */
void tpck_network_connected(struct tpck_network_connect *state, int fd, int error);

/* Descriptors below this may be connections that are followed. */
enum { TPCK_NETWORK_DESCRIPTORS = 65536 };
extern _Atomic uint64_t tpck_network_bits[TPCK_NETWORK_DESCRIPTORS / 64] __attribute__((visibility("hidden")));
extern _Atomic uint32_t tpck_network_any __attribute__((visibility("hidden"))); /* 0: there has been none */
static inline bool tpck_network_has(int fd)
{
	return __builtin_expect(atomic_load_explicit(&tpck_network_any, memory_order_relaxed) != 0, 0) && (unsigned)fd < TPCK_NETWORK_DESCRIPTORS &&
	       atomic_load_explicit(&tpck_network_bits[fd / 64], memory_order_relaxed) >> (fd & 63) & 1;
}
void tpck_network_received_slow(int fd, const struct iovec *parts, size_t count, ssize_t got);
/* A read from the descriptor gave `got`: bytes, 0 at the other end's end, or -1. */
static inline void tpck_network_received(int fd, const struct iovec *parts, size_t count, ssize_t got)
{
	if (tpck_network_has(fd))
		tpck_network_received_slow(fd, parts, count, got);
}
static inline void tpck_network_read(int fd, const void *bytes, ssize_t got)
{
	if (tpck_network_has(fd))
		tpck_network_received_slow(fd, &(struct iovec){(void *)bytes, got > 0 ? (size_t)got : 0}, 1, got);
}
void tpck_network_sent_slow(int fd, const struct iovec *parts, size_t count, ssize_t done);
/* A write to it took `done` bytes. */
static inline void tpck_network_sent(int fd, const struct iovec *parts, size_t count, ssize_t done)
{
	if (tpck_network_has(fd) && done > 0)
		tpck_network_sent_slow(fd, parts, count, done);
}
static inline void tpck_network_wrote(int fd, const void *bytes, ssize_t done)
{
	if (tpck_network_has(fd) && done > 0)
		tpck_network_sent_slow(fd, &(struct iovec){(void *)bytes, (size_t)done}, 1, done);
}
/* What the program gave to a library that encrypts it, and sends it by this descriptor; and what it got from there. */
void tpck_network_says(int fd, const void *bytes, size_t count);
void tpck_network_hears(int fd, const void *bytes, size_t count);
/* In a forked child a library draws numbers for what it encrypts. True: these, as in the first run. Else tpck_network_child_drawn() is told what it drew. */
bool tpck_network_child_draws(void *bytes, size_t count, uint32_t *number);
void tpck_network_child_drawn(const void *bytes, size_t count, uint32_t number);
extern _Atomic bool tpck_started_now __attribute__((visibility("hidden")));
/* Whether this is a program that another process of the job has started, whose record it speaks for, too. */
static inline bool tpck_network_is_started(void)
{
	return __builtin_expect(atomic_load_explicit(&tpck_started_now, memory_order_relaxed), 0);
}
/* Whoever this process belongs to has no session yet, as far as it is known. It is looked again when it has been told something, since it may have programs
 * do it: not in a child that shares its memory. */
extern _Atomic bool tpck_started_early __attribute__((visibility("hidden")));
void tpck_started_told_slow(void);
static inline void tpck_started_told(ssize_t got)
{
	if (__builtin_expect(atomic_load_explicit(&tpck_started_early, memory_order_relaxed), 0) && got > 0)
		tpck_started_told_slow();
}
/* In the place of a descriptor: libc's own socket, by which it tells the system's log. */
#define TPCK_NETWORK_LOG (-2)
/* A datagram was sent to this address. */
void tpck_network_datagram(int fd, const struct sockaddr *address, socklen_t bytes, const void *caller);
/* Whether the record tells of a connection. */
bool tpck_network_converses(const struct tpck_record *record);
/* Whether a datagram to this address, or NULL: to where the socket is connected, is not sent: the first run did. */
bool tpck_network_mutes(int fd, const struct sockaddr *address, socklen_t bytes, const void *caller);
/* Descriptors are passed by the connection, as nobody else can, or something is said by it that is not seen here. By a Unix socket, of which the kernel
 * does not count bytes, it is real from here on. */
void tpck_network_passes(int fd);
void tpck_network_closes_slow(int fd);
void tpck_network_closes_range(unsigned first, unsigned last);
static inline void tpck_network_closes(int fd)
{
	if (tpck_network_has(fd))
		tpck_network_closes_slow(fd);
}
void tpck_network_copied_slow(int from, int to);
static inline void tpck_network_copied(int from, int to)
{
	if (tpck_network_has(from) || tpck_network_has(to))
		tpck_network_copied_slow(from, to);
}
/* getpeername() of a connection that is answered here: where the program has connected to. False: it is another one. */
bool tpck_network_peer(int fd, struct sockaddr *address, socklen_t *bytes);

#endif
