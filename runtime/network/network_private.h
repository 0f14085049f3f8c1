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
/* Whether who is there does not belong to the job. `stream`: TCP, else UDP. Keeps errno. */
bool tpck_whose_other(const struct tpck_record_peer *peer, bool stream, const void *caller);
void tpck_whose_real(const char *real, bool nodes);

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

/* ---- played.c ---- */
enum tpck_network_way tpck_played_connects(struct tpck_thread *self, int fd, const struct tpck_record_peer *peer, struct tpck_network_connect *state);
void tpck_played_connected(struct tpck_network_connect *state, int fd, int error);

#endif
