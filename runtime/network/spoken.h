/* SPDX-License-Identifier: Apache-2.0 */
/* Connections as the log has them: turns, of which each is what the program sends and what the other end says behind it. Nothing is given back. */
#ifndef TPCK_RUNTIME_NETWORK_SPOKEN_H
#define TPCK_RUNTIME_NETWORK_SPOKEN_H

#include "runtime/network/network_private.h"

/* What the program sends, and what the other end says behind it. */
struct tpck_turn {
	uint64_t sent, digest; /* as in struct tpck_record_talk */
	struct tpck_chunk {
		const void *bytes;
		size_t count;
		struct tpck_chunk *next;
	} *chunks, **chunks_end;
	struct tpck_turn *next;
};

/* A connection that the log has. */
struct tpck_spoken {
	uint32_t thread, ordinal;
	struct tpck_record_peer peer;
	bool child;    /* a forked child has made it, and nobody else is told it */
	bool failed, lost, safe, unsafe;
	bool own;      /* the other end is a node of the job, as came to be known later, or was passed descriptors */
	bool answered; /* something has come behind its first request */
	bool asks;     /* the log says where requests begin and are answered */
	bool asking;   /* the newest one is not answered */
	bool cut;      /* it ends behind the last request that has an answer */
	bool over;    /* one of both has ended it */
	bool ended;   /* the other end has */
	bool taken;   /* it is the program's again */
	_Atomic bool whole; /* all of it has been said */
	struct tpck_turn *turns, **turns_end, *last;
	struct tpck_turn *known; /* the last one that has its answer; NULL: none */
	struct tpck_late {
		struct tpck_late *next;
		bool counts;
		_Alignas(16) struct tpck_record record; /* its payload follows */
	} *late, **late_end; /* records from behind the cut */
	struct tpck_spoken_draw {
		uint32_t number, count;
		const void *bytes;
		struct tpck_spoken_draw *next;
	} *draws; /* of a child's: what a library drew for it, the last first */
	struct tpck_spoken *next, *bucket;
};

extern struct tpck_spoken *tpck_spoken_all __attribute__((visibility("hidden")));

/* The connection of that number, or NULL. */
struct tpck_spoken *tpck_spoken_of(uint32_t thread, uint32_t ordinal);
/* All has been learned: what lies behind the cut and counts is added, and what threads of their own pace have asked without an answer is taken away:
 * the connection ends in front of it, and they ask by a new one. */
void tpck_spoken_settle(void);
/* Whether all has been said that counts as made. */
bool tpck_spoken_all_said(void);
/* Whether its first request has no answer in the log: it counts as not made. */
bool tpck_spoken_is_question(const struct tpck_spoken *of);
/* Whether it begins with so many bytes of this digest. */
bool tpck_spoken_opens_with(const struct tpck_spoken *of, uint64_t got, uint64_t digest);
/* Which connection of the log this one of the thread is, of those that are not taken, or NULL; until something is sent that may change. any: it may be
 * another thread's, too. */
struct tpck_spoken *tpck_spoken_find(uint32_t thread, uint32_t ordinal, const struct tpck_record_peer *peer, bool any);
/* Whether all that was said there, by forked children or by others, changed nothing. */
bool tpck_spoken_all_safe(const struct tpck_record_peer *peer, bool child);
/* What was drawn for the connection as the number-th, of so many bytes, or NULL. */
const void *tpck_spoken_drawn(const struct tpck_spoken *of, uint32_t number, size_t count);
/* The log goes on at the cut, without what lay behind it: it gets that of taken connections once more. */
void tpck_spoken_note_late(void);

/* ---- again.c ---- */
/* The program is live: lines say to whom something is sent again. */
void tpck_again_say(uint64_t step);
void tpck_again_unlearn(void);

#endif
