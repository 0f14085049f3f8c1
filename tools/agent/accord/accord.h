/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches whose ranks are on several nodes. Each node's agent has the ranks that are there; the agent of rank 0 leads, and what
 * it says is what all do (runtime/peer/accord.h). Without it, or without one of the others, nothing more is agreed on in this
 * start. All is the event loop's.
 */
#ifndef TPCK_TOOLS_AGENT_ACCORD_ACCORD_H
#define TPCK_TOOLS_AGENT_ACCORD_ACCORD_H

#include "runtime/peer/accord.h"
#include "tools/agent/agent.h"
#include "tools/agent/peers/peers.h"

struct accord;

/* That of a new launch, or NULL: no memory. */
struct accord *accord_new(void);
void accord_free(struct launch *launch);

/* One of its ranks has said HELLO, and waits. */
void accord_came(struct agent *agent, struct launch *launch, const struct tpck_hello *hello, const char *identity);
/* hello_try() is through. */
enum accord_staged {
	ACCORD_STAGED_ALL,  /* all ranks here can go on */
	ACCORD_STAGED_BAD,  /* one cannot */
	ACCORD_STAGED_GONE, /* nor can it, since the node is gone that was to give its part */
};
void accord_staged(struct agent *agent, struct launch *launch, enum accord_staged how, uint32_t rank, const char *why);
/* Ranks of it were welcomed. */
void accord_welcomed(struct launch *launch);
/* What may have waited for anything. */
extern const struct loop_part accord_loop;

/* An image of one of its ranks turned out good. */
void accord_held(struct agent *agent, struct live *live);
/* The launch's sessions are a dead agent's: what was committed is known by them. */
void accord_adopt(struct launch *launch);
/* The newest that is committed on all. */
bool accord_newest(const struct launch *launch, uint64_t *step);
/* One of its ranks would capture. */
void accord_due(struct agent *agent, struct launch *launch);
/* Whether this node's agent decides, and nothing is being made durable. */
bool accord_may_flush(const struct launch *launch);
/* Another node's agent is to end: what it has is to be made durable first. */
bool accord_hurries(const struct launch *launch);
/* By the leader: a step is to be made durable. */
void accord_flush(struct agent *agent, struct launch *launch, uint64_t step);
/* flush_part(), as the leader said, and flush_join() are through. The latter's why, NULL: it is durable; "": it may not be any more, and nothing is wrong. */
void accord_flushed(struct agent *agent, struct launch *launch, uint64_t step, int rc, const char *why);
void accord_joined(struct agent *agent, struct launch *launch, uint64_t step, const char *why);
/* Nothing is agreed on, for now or for good. */
bool accord_is_broken(const struct launch *launch);
/* A rank here has told the others here of an id. */
void accord_pass_id(struct agent *agent, struct launch *launch, const struct tpck_communicator_id *id);
/* All ranks here are ready to go live. */
void accord_injected(struct agent *agent, struct launch *launch);
/* One of its ranks cannot go on. */
void accord_over(struct agent *agent, struct live *live, bool again);
/* No rank here has ended an iteration for so long: rows of runtime/peer/waiting.h; size 0: they get on again. */
void accord_stalled(struct agent *agent, struct launch *launch, uint64_t age_ns, const char *rows, size_t size);
/* One of its ranks is gone. */
void accord_ended(struct agent *agent, struct live *live);

/* All other nodes that are there. */
void accord_each_node(void (*visit)(void *context, const char *node), void *context);
/* What is held here of a step that others have committed was agreed on. */
void accord_promote(struct agent *agent, const struct tpck_point *point);
/* Snapshots here of a generation, be they committed or held; each rank's form is the first rank here. malloc'd. */
size_t accord_holdings_of(const struct launch *launch, struct tpck_accord_holding **rows);
bool accord_leads(const struct launch *launch);

/* What happens between nodes. */
extern const struct peers_hearer accord_hears;

#endif
