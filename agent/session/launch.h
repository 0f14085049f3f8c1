/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A launch: the processes of one start of a job, one a rank, which share a generation. A step is committed, made durable
 * and offered for all of them or for none. A job of one process is a launch of one rank.
 */
#ifndef TPCK_AGENT_SESSION_LAUNCH_H
#define TPCK_AGENT_SESSION_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/session/ranks_here.h"
#include "runtime/base/tier_settings.h"
#include "runtime/store/cut.h"
#include "runtime/store/manifest.h"
#include "runtime/store/tiers.h"
#include "runtime/wire/message.h"

struct agent;
struct live;

struct launch {
	uint64_t key;          /* the same in all its ranks, by their launcher's variables */
	_Atomic uint64_t generation; /* 0: its first process is not welcomed yet; written by the clerk's thread */
	uint32_t world;
	bool apart;            /* some of its ranks are on other nodes */
	struct accord *accord; /* then */
	struct hello_job *staged; /* of its ranks here, which wait for the others */
	struct ranks_here here; /* those that have said HELLO on this node */
	uint32_t hellos;       /* HELLOs of it that wait or that the clerk has */
	bool closed;           /* one of its processes is gone: who comes now belongs to another launch */
	bool alone_any;        /* one of its ranks runs without having been offered anything */
	bool began_anew;       /* its ranks were told to start over */
	uint32_t over;         /* then: TPCK_GO_OVER or TPCK_GO_AGAIN, for those that are welcomed later */
	bool died_any;         /* one of them did not end well */
	uint32_t began;        /* so many of its ranks here have come to a first boundary */
	bool loaded;           /* of which one had loaded what the job had saved */
	char meeting_host[64]; /* where its ranks meet, if that is not where their launcher has said; "" else */
	bool own;              /* there was something to go on from, which stays, and they began as they would without the library */

	uint64_t stalled_ns;   /* when it was said that no rank gets on; 0: they do */
	bool cut_said;         /* it has been said that the ranks' communicators do not match */

	bool durable_any;
	uint64_t durable_step; /* newest step published, if durable_any */
	uint64_t in_tier[TPCK_TIERS_MAX]; /* one more than the newest step that each tier has; 0: none (watermark.h) */
	uint64_t salvaged;     /* the newest step when all that could be was, since nodes of it are lost; 0: it is not */
	struct tpck_manifest *base; /* what that looks like */
	bool flushing;
	uint64_t flush_begun_ns, begun_ns;
	uint64_t capture_step; /* the boundary that was named last */
	struct launch *next;
};

/* How hello_try() ended. */
enum launch_staged {
	LAUNCH_STAGED_ALL,  /* all ranks here can go on */
	LAUNCH_STAGED_BAD,  /* one cannot */
	LAUNCH_STAGED_GONE, /* nor can it, since the node is gone that was to give its part */
};

/* What a launch goes by whose ranks are on several nodes (`apart`), beside what is here: main() says what that is before the beginning. None is NULL. */
struct launch_apart {
	/* That of a new launch, or NULL: no memory. It is the launch's `accord`. */
	struct accord *(*create)(void);
	void (*free)(struct launch *launch);
	/* One of its ranks has said HELLO, and waits; hello_try() is through; its ranks were welcomed. */
	void (*came)(struct agent *agent, struct launch *launch, const struct tpck_hello *hello, const char *identity);
	void (*staged)(struct agent *agent, struct launch *launch, enum launch_staged how, uint32_t rank, const char *why);
	void (*welcomed)(struct launch *launch);
	/* An image of one of its ranks turned out good. */
	void (*held)(struct agent *agent, struct live *live);
	/* The launch's sessions are a dead agent's: what was committed is known by them. */
	void (*adopt)(struct launch *launch);
	/* The newest that is committed on all. */
	bool (*newest)(const struct launch *launch, uint64_t *step);
	/* One of its ranks would capture. */
	void (*due)(struct agent *agent, struct launch *launch);
	/* Whether this node's agent decides, and nothing is being made durable. */
	bool (*may_flush)(const struct launch *launch);
	/* Another node's agent is to end: what it has is to be made durable first. */
	bool (*hurries)(const struct launch *launch);
	/* By who decides: a step is to be made durable. */
	void (*flush)(struct agent *agent, struct launch *launch, uint64_t step);
	/* flush_join() is through. why, NULL: it is durable; "": it may not be any more, and nothing is wrong. */
	void (*joined)(struct agent *agent, struct launch *launch, uint64_t step, const char *why);
	/* Nothing is agreed on, for now or for good. */
	bool (*is_broken)(const struct launch *launch);
	/* A rank here has told the others here of an id. */
	void (*pass_id)(struct agent *agent, struct launch *launch, const struct tpck_communicator_id *id);
	/* All ranks here are ready to go live. */
	void (*injected)(struct agent *agent, struct launch *launch);
	/* One of its ranks cannot go on. */
	void (*over)(struct agent *agent, struct live *live, bool again);
	/* No rank here has ended an iteration for so long: rows of runtime/peer/waiting.h; size 0: they get on again. */
	void (*stalled)(struct agent *agent, struct launch *launch, uint64_t age_ns, const char *rows, size_t size);
	/* One of its ranks is gone. */
	void (*ended)(struct agent *agent, struct live *live);
};
extern const struct launch_apart *launch_apart;

/* The launch that a HELLO belongs to, made if there is none; the rank is taken. NULL: no memory, or a number that cannot
 * be. `was_apart`: what there is of the program is parts of several nodes, so that a launch that is made goes by an accord even if all of
 * its ranks are here. */
struct launch *launch_join(struct agent *agent, const struct tpck_hello *hello, bool was_apart);
/* That of an adopted session. */
struct launch *launch_adopt(struct agent *agent, uint64_t key, uint64_t generation, uint32_t world, bool apart);
/* A rank that is here and was welcomed, or NULL. */
struct live *launch_rank(const struct launch *launch, uint32_t rank);
/* The next of its ranks that are here, in order, with *at 0 at first; NULL: there are no more. */
struct live *launch_next(const struct launch *launch, uint32_t *at);
/* The first of its ranks that is here, or NULL. */
struct live *launch_first(const struct launch *launch);
/* Whether all of its ranks are here. */
bool launch_is_whole(const struct launch *launch);
/* The newest step that is committed on all ranks. */
bool launch_newest(const struct launch *launch, uint64_t *step);
/* Whether that is durable, or as much of it as can be, or there is none. */
bool launch_settled(const struct launch *launch);
/* None of its processes runs, or is being looked at, any more. */
bool launch_is_dead(const struct launch *launch);
/* All of its processes have ended well. */
bool launch_ended_well(const struct launch *launch);
/* Image `i` of a session turned out good: commits what all ranks hold, and gives up what one of them missed. */
void launch_held(struct agent *agent, struct live *live);
/* After adoption: what was being committed when the last agent died is held again. */
void launch_settle_adopted(struct agent *agent);
/* Whether what all its ranks have counted on their communicators makes one cut of them; said once where it does not. */
bool launch_is_one_cut(struct launch *launch, struct tpck_counts *counts, uint64_t step);
/* Adds what the ranks here have counted at a step. 0 or -ENOMEM. */
int launch_counts(const struct launch *launch, uint64_t step, struct tpck_counts *counts);
/* One of its ranks is ready to go live: once all are, they do. */
void launch_injected(struct agent *agent, struct launch *launch);
/* A rank tells the others of its launch how a communicator's ranks meet, or asks. */
void launch_pass_id(struct agent *agent, const struct live *from, const struct tpck_communicator_id *id);
/* The ranks here are told; from NULL: by one of another node. */
void launch_tell_id(const struct launch *launch, const struct live *from, const struct tpck_communicator_id *id);
/* All ranks here do. */
void launch_live(struct launch *launch);
/* One rank (NULL: of another node) cannot resume: the others here start over, too, or try once more. */
void launch_start_over(struct launch *launch, const struct live *live, bool again);
/* One of its ranks would capture: a boundary that none has reached yet is named to all. */
void launch_capture(struct agent *agent, struct launch *launch);
/* How far the ranks here have come, and the shortest of their iterations; 0: not known. */
void launch_pace(const struct launch *launch, uint64_t *furthest, uint64_t *iteration_ns);
/* The ranks here capture this boundary. */
void launch_name(struct launch *launch, uint64_t step);
/* Takes a session out; a launch without sessions is freed. */
void launch_leave(struct agent *agent, struct live *live);
/* A HELLO of it is answered, or its sender is gone. */
void launch_said(struct agent *agent, struct launch *launch, uint32_t hellos);

#endif
