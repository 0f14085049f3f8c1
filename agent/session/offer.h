/* SPDX-License-Identifier: Apache-2.0 */
/* What a starting process is offered: the newest checkpoint of its program that verifies. */
#ifndef TPCK_AGENT_SESSION_OFFER_H
#define TPCK_AGENT_SESSION_OFFER_H

#include "agent/session/own_start.h"
#include "agent/session/sessions.h"

/* A committed image of a session whose process is gone; pinned while the clerk looks at it. */
struct memory_candidate {
	struct live *live;  /* or */
	struct copy *copy;  /* of another node's session (peers/peers.h) */
	unsigned image;
	struct tpck_point point;
	bool resumable, bad;
	bool compared; /* with the device's digests, by this agent, when it was held */
	char identity_differs; /* not this program's: only of use for the notice */
	struct tpck_cut cut;
	char image_path[TPCK_PATH_MAX];
	char session_path[TPCK_NAME_MAX];
	const char *identity;
};

/* What one rank asks. */
struct offer_request {
	const char *identity;
	uint32_t rank, ordinal;
	uint64_t wanted_step; /* UINT64_MAX: the newest */
	struct tpck_point only; /* generation 0: any; nothing but this point: others have agreed on it */
	struct tpck_program *program;
	struct memory_candidate *memory;
	size_t memory_count;
	const char *session_path; /* of the new session */
	bool compares;            /* the process compares what it is offered itself (TPCK_HELLO_TAKES_OVER) */
	bool told_only;           /* nothing can be taken: peers are asked, and nothing is got from them */
	/* What peers have, and cannot be gone on from: the newest of another start of the program only, and one that could
	 * not be had. */
	char *other_identity; /* malloc'd, or NULL */
	struct tpck_point other_point, lost; /* generation 0: none */
	bool in_parts;        /* there is something newer, parts of which are on several nodes */
	char lost_why[300];
};

struct offer {
	bool made;
	bool any;         /* there was something of this program, and of this rank in it */
	const char *from; /* "memory", or a tier's name */
	struct tpck_point point;
	struct tpck_cut cut;
	char notice[512];
};

/*
 * Offers all ranks of a launch the newest point that each of them can be given, or nothing; so it is, too, where `own` (NULL: nobody
 * is asked) says that they are to begin without. `store`: the first tier may be looked at. *base, where not NULL behind it, is what the first tier has of that point; the caller's to free. Runs in the
 * clerk's thread. Candidates that turn out bad are marked so.
 */
void offer_choose(bool store, const struct offer_request *requests, struct offer *offers, size_t count,
		  struct own_start *own, struct tpck_manifest **base);
/* To a process that can take none: only what there is of its program as it was started otherwise. */
void offer_tell(bool store, const struct offer_request *request, struct offer *offer);

#endif
