/* SPDX-License-Identifier: Apache-2.0 */
/* Between the parts of network: socket_address.c, whose.c (who is at the other end), connects.c (connections that are made), datagrams.c, talks.c (what the log gets) and
 * played.c (what is answered from it). */
#ifndef TPCK_RUNTIME_NETWORK_NETWORK_PRIVATE_H
#define TPCK_RUNTIME_NETWORK_NETWORK_PRIVATE_H

#include <netinet/in.h>

#include "runtime/network/network.h"

/* Payload of TPCK_RECORD_TALK. The connection is the ordinal-th that the thread made to who does not belong to the job. */
enum {
	TPCK_TALK_OPENED,   /* a struct tpck_record_peer follows */
	TPCK_TALK_RECEIVED, /* bytes from the other end follow */
	TPCK_TALK_ENDED,    /* the other end has nothing more to say */
	TPCK_TALK_CLOSED,   /* the program has closed it */
	TPCK_TALK_FAILED,   /* it never came to be */
	TPCK_TALK_LOST,     /* not all that came is here */
	TPCK_TALK_SAFE,     /* a request by a method of HTTP that changes nothing (RFC 9110, 9.2.1) */
	TPCK_TALK_UNSAFE,   /* something else was sent */
	/* of HTTP/1, and of what is encrypted, where handshakes and tickets come as well: */
	TPCK_TALK_ASKED,    /* what comes next is a request */
	TPCK_TALK_ANSWERED, /* and what came last the end of the answer to it */
	TPCK_TALK_CUT,      /* it ended behind the last request that has an answer: the program was live before one came */
	TPCK_TALK_OWN,      /* the other end is a node of the job, as is known by now, or descriptors are passed, as nobody else can: no more of it comes */
	/* of a forked child, whose `thread` is a number of the child's and its thread's: */
	TPCK_TALK_CHILD,    /* as TPCK_TALK_OPENED */
	TPCK_TALK_DATAGRAM, /* of no connection: datagrams were sent, to the struct tpck_record_peer that follows, which is as long as it has to be */
	TPCK_TALK_DRAWN,    /* a struct tpck_record_drawn follows, and what was drawn behind this connection by the thread that made it */
};
struct tpck_record_talk {
	uint32_t thread, ordinal;
	uint64_t sent;   /* bytes that the program has sent since the record before */
	uint64_t digest; /* of the first TPCK_TALK_FIRST of those; 0: not known */
};
enum { TPCK_TALK_FIRST = 2048 };
struct tpck_record_peer {
	int32_t error; /* what connect() said, or 0 */
	uint16_t family, port; /* port: host byte order */
	uint8_t address[16];
	char path[108];        /* AF_UNIX: as connect() gets it, and `port` its length; begins with a zero: an abstract name (unix(7)) */
};

/* A text as 10.0.0.1:80, [fd00::1]:80, /run/name or @name. */
enum { TPCK_PEER_TEXT = 120, TPCK_PEER_NAMES = 160 };
bool tpck_peer_same(const struct tpck_record_peer *one, const struct tpck_record_peer *other);
const char *tpck_peer_text(const struct tpck_record_peer *peer, char text[TPCK_PEER_TEXT]);
/* Adds such a text to a list, unless it is there. */
void tpck_peer_name_add(char names[TPCK_PEER_NAMES], const struct tpck_record_peer *peer);
/* False: of another family. */
bool tpck_peer_of(const struct sockaddr *address, socklen_t bytes, struct tpck_record_peer *peer);
uint64_t tpck_network_digest(const void *bytes, size_t count);

/* ---- whose.c ---- */
struct tpck_spoken;
enum tpck_whose {
	TPCK_WHOSE_OWN,     /* the job's own */
	TPCK_WHOSE_NODE,    /* on another node of the job: the job's own, too */
	TPCK_WHOSE_OTHER,   /* somebody else's */
	/* on another machine: */
	TPCK_WHOSE_AWAY,    /* which is no node of the job, as far as is known by now: somebody else's */
	TPCK_WHOSE_UNKNOWN, /* and no other node of the job is known yet */
	TPCK_WHOSE_LOCAL,   /* at a Unix socket: tpck_whose_connected() says it */
};
/* Who is there. `stream`: TCP, else UDP. Keeps errno. */
enum tpck_whose tpck_whose(const struct tpck_record_peer *peer, bool stream, const void *caller);
/* OWN or OTHER: who is at the other end of this Unix socket. */
enum tpck_whose tpck_whose_connected(int fd);
/* The same where it is known to be another machine, and by no library that ranks speak through. */
enum tpck_whose tpck_whose_elsewhere(const struct tpck_record_peer *peer);
void tpck_whose_real(const char *real);
/* Ranks of the job are on other nodes; its agent says which (runtime/wire/nodes.h). */
void tpck_whose_nodes(const char *shm, const char *job);
bool tpck_whose_has_nodes(void);
/* In a forked child: another thread of the parent's may have been looking. */
void tpck_whose_forked(void);

/* ---- talks.c ---- */
enum tpck_talk_kind {
	TPCK_TALK_NOTED = 1,
	TPCK_TALK_PLAYED,
	TPCK_TALK_DATAGRAMS, /* which are not sent while running forward */
	TPCK_TALK_TOLD, /* a child's that speaks for real while its parent runs forward: a line will say so */
};
/* The descriptor is followed. False: there is no room. */
bool tpck_talk_begin(int fd, enum tpck_talk_kind kind, const struct tpck_network_connect *state, const struct tpck_record_peer *peer);
bool tpck_talk_kind_is(int fd, enum tpck_talk_kind kind);
/* Whether it is followed already. */
bool tpck_talk_known(int fd);
/* Whether the caller is the process itself, and no child that shares its memory. */
bool tpck_network_home(void);
int tpck_network_process(void);
/* Whether there is a log, and this process is its own; and what is said goes into it now. */
bool tpck_network_has_log(void);
bool tpck_network_records(void);
bool tpck_network_recording(void);
/* False: it is lost. */
bool tpck_talk_note(uint16_t detail, const struct tpck_record_talk *record, const void *bytes, size_t count);
/* There is no room to follow a connection. */
void tpck_talk_lost(const struct tpck_network_connect *state, const struct tpck_record_talk *record, const struct tpck_record_peer *peer);
/* Whether a request begins here by a method of HTTP that changes nothing. */
bool tpck_talk_is_safe(const void *bytes, size_t count);

/* ---- datagrams.c ---- */
/* A datagram was sent to who does not belong to the job. Keeps errno. */
void tpck_datagram_sent(const struct tpck_record_peer *peer);
/* The address that the record says datagrams were sent to. False: it says something else. */
bool tpck_datagram_peer(const struct tpck_record *record, struct tpck_record_peer *peer);

/* ---- started.c ---- */
struct tpck_speakers_of;
/* Where it is known that it is one, and not yet whose: looks again, from time to time. No lock is held. */
void tpck_started_looks(void);
/* A record of this process, as tpck_mail_send() gets it: `first` begins with a struct tpck_record_talk, and is changed. */
bool tpck_started_tells(uint16_t detail, void *first, size_t first_bytes, const void *bytes, size_t count);
/* This process is a trainer. */
void tpck_started_leaves(void);
/* In a forked child. Whether the process that it was forked from belongs to a root. */
bool tpck_started_forked(void);

/* ---- descendants.c ---- */
/* This process, which was started, belongs to that root, by this number; and no more. follows: the root ran forward when it started this process. */
void tpck_network_child_begins(const struct tpck_speakers_of *of, uint32_t number, bool follows);
void tpck_network_child_ends(void);
/* The thread of such a process is about to connect; and what the root knows it as. */
void tpck_network_child_speaks(uint32_t thread);
uint32_t tpck_network_child_known_as(uint32_t thread);
/* The root runs forward from here on; and is live: a line says what may have been sent twice. */
void tpck_network_children_forward(void);
void tpck_network_children_live(uint64_t step);
/* How many boundaries the root of this process has come to. */
uint32_t tpck_network_child_boundaries(void);
void tpck_network_children_bounded(void);
/* Before a boundary's record: what children have said goes into the log. */
void tpck_network_children_boundary(struct tpck_log *log);
/* In the child: `child` as for tpck_network_forked(). False: what it says cannot be followed. */
bool tpck_network_children_forked(uint32_t child, bool recording);
/* Not the job's first process, which has the log, but a forked child of it, or, while that runs forward, a program that it has started. */
static inline bool tpck_network_is_child(void)
{
	return __builtin_expect(atomic_load_explicit(&tpck_network_in_child, memory_order_relaxed), 0);
}
/* In such a child: whether the process at the root runs forward. Notices that it does not any more. */
bool tpck_network_child_forwards(void);
/* Whether such a process was made while that one ran forward: what the record has of it is not said again, whether the root is live by then or not. */
bool tpck_network_child_trails(void);
/* Whether such a process is behind for so long that what it says is said again. */
bool tpck_network_child_is_late(void);
/* The number of this thread, and where it counts its connections. */
uint32_t tpck_network_child_thread(uint32_t **made, bool local);
/* The thread's newest connection is noted, or answered by `of`, or neither. */
void tpck_network_child_newest(bool noted, uint32_t ordinal, const struct tpck_spoken *of);
/* The other end of a connection that is made for real while the root runs forward is sent this. `told`: who encrypts it says what it is. */
void tpck_network_child_sends(const struct tpck_record_peer *peer, const void *bytes, size_t count, bool told);
/* The same as for other connections (played.c), for the root to say. */
void tpck_network_child_differs(const char *what);
void tpck_network_child_sent_other(const struct tpck_record_peer *peer);
/* Waits until the process is live, or others wait for it. */
void tpck_network_child_waits(const struct tpck_record_peer *peer);
bool tpck_network_child_note(uint16_t detail, const struct tpck_record_talk *record, const void *bytes, size_t count);
/* For the root: NULL, or what differs; what else was sent; whether a child waits. */
const char *tpck_network_children_differ(void);
const struct tpck_record_peer *tpck_network_children_sent_other(void);
bool tpck_network_children_wait(void);

/* ---- played.c ---- */
/* self: NULL in a forked child. */
/* The same in a forked child, or a program that was started, that was behind when the root became live: TPCK_NETWORK_NOTED where the record does not have it. */
enum tpck_network_way tpck_played_behind(const struct tpck_record_peer *peer, struct tpck_network_connect *state);
enum tpck_network_way tpck_played_connects(struct tpck_thread *self, int fd, const struct tpck_record_peer *peer, struct tpck_network_connect *state);
void tpck_played_connected(struct tpck_network_connect *state, int fd, int error);
/* A connection is made, and the log does not have it: the thread waits until the program is live, or others wait for it. */
void tpck_played_unknown(struct tpck_thread *self, const struct tpck_record_peer *peer);
void tpck_played_forked(void);

#endif
