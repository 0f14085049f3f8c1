/* SPDX-License-Identifier: Apache-2.0 */
/* Between the parts of network: whose.c (who is at the other end), talks.c (what the log gets) and played.c (what is answered from it). */
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
	/* of what is encrypted, where handshakes and tickets come as well: */
	TPCK_TALK_ASKED,    /* what comes next is a request */
	TPCK_TALK_ANSWERED, /* and what came last an answer to it */
	TPCK_TALK_CUT,      /* it ended behind the last request that has an answer: the program was live before one came */
	TPCK_TALK_OWN,      /* the other end is a node of the job, as is known by now: no more of it comes */
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
};

/* A text as 10.0.0.1:80 or [fd00::1]:80. */
enum { TPCK_PEER_TEXT = 64 };
const char *tpck_peer_text(const struct tpck_record_peer *peer, char text[TPCK_PEER_TEXT]);
/* False: of another family. */
bool tpck_peer_of(const struct sockaddr *address, socklen_t bytes, struct tpck_record_peer *peer);
uint64_t tpck_network_digest(const void *bytes, size_t count);

/* ---- whose.c ---- */
enum tpck_whose {
	TPCK_WHOSE_OWN,     /* the job's own */
	TPCK_WHOSE_NODE,    /* on another node of the job: the job's own, too */
	TPCK_WHOSE_OTHER,   /* somebody else's */
	/* on another machine: */
	TPCK_WHOSE_AWAY,    /* which is no node of the job, as far as is known by now: somebody else's */
	TPCK_WHOSE_UNKNOWN, /* and no other node of the job is known yet */
};
/* Who is there. `stream`: TCP, else UDP. Keeps errno. */
enum tpck_whose tpck_whose(const struct tpck_record_peer *peer, bool stream, const void *caller);
/* The same where it is known to be another machine, and by no library that ranks speak through. */
enum tpck_whose tpck_whose_elsewhere(const struct tpck_record_peer *peer);
void tpck_whose_real(const char *real);
/* Ranks of the job are on other nodes; its agent says which (runtime/wire/nodes.h). */
void tpck_whose_nodes(const char *shm, const char *job);
bool tpck_whose_has_nodes(void);
/* In a forked child: another thread of the parent's may have been looking. */
void tpck_whose_forked(void);

/* ---- talks.c ---- */
enum tpck_talk_kind { TPCK_TALK_NOTED = 1, TPCK_TALK_PLAYED, TPCK_TALK_MUTE };
/* The descriptor is followed. False: there is no room. */
bool tpck_talk_begin(int fd, enum tpck_talk_kind kind, const struct tpck_network_connect *state, const struct tpck_record_peer *peer);
bool tpck_talk_kind_is(int fd, enum tpck_talk_kind kind);
/* Whether it is followed already. */
bool tpck_talk_known(int fd);
/* All of a kind are left alone from here on. */
void tpck_talks_leave(enum tpck_talk_kind kind);
bool tpck_network_recording(void);
void tpck_talk_note(uint16_t detail, const struct tpck_record_talk *record, const void *bytes, size_t count);

/* The descriptor is looked at by hooks, or is not; none is. */
void tpck_talk_bit(int fd, bool on);
void tpck_talks_none(void);
/* Whether a request begins here by a method of HTTP that changes nothing. */
bool tpck_talk_is_safe(const void *bytes, size_t count);

/* ---- children.c ---- */
/* Forked children send for real from here on; and the program is live: a line says what may have been sent twice. */
void tpck_network_children_forward(void);
void tpck_network_children_live(uint64_t step);
void tpck_network_children_forked(void);
/* In such a child. `told`: who encrypts it says what it is. */
void tpck_network_child_sends(int fd, const void *bytes, size_t count, bool told);
void tpck_network_child_closes(int fd);

/* ---- played.c ---- */
enum tpck_network_way tpck_played_connects(struct tpck_thread *self, int fd, const struct tpck_record_peer *peer, struct tpck_network_connect *state);
void tpck_played_connected(struct tpck_network_connect *state, int fd, int error);

#endif
