/* SPDX-License-Identifier: Apache-2.0 */
/* What the rest of the agent knows of other nodes' agents. All of it does nothing where TRANSPCKPT_PEERS is 0. */
#ifndef TPCK_AGENT_PEERS_PEERS_H
#define TPCK_AGENT_PEERS_PEERS_H

#include <json-c/json.h>

#include "agent/session/offer.h"
#include "agent/session/sessions.h"
#include "runtime/peer/accord.h"
#include "runtime/peer/erasure.h"
#include "runtime/store/publish.h"

/* The network and its threads; and what these are to know of the rest of the agent, and who waits for them. */
extern const struct loop_part peers_loop, peers_state_loop;
/* Who hears what happens between nodes. What is NULL is not heard. Event loop; texts and messages are theirs who call. */
struct peers_hearer {
	/* A node's agent is there, or is gone. */
	void (*met)(struct agent *agent, const char *node);
	void (*lost)(struct agent *agent, const char *node, const char *host);
	/* A node's agent has said something by peers_talk(); a NUL is behind `more`. */
	void (*said)(struct agent *agent, const char *node, const char *host, const struct tpck_accord_message *message, const char *more, size_t size);
	/* The agent of this host is told to end, and so are all that mpirun has started; or it has died, and its next one works alone. */
	void (*ending)(struct agent *agent, const char *host);
	void (*alone)(struct agent *agent, const char *host);
	/* A round of peers_copy() is through, with so many copies. */
	void (*copied)(struct agent *agent, struct launch *launch, uint64_t step, unsigned copies);
	/* A start, here or elsewhere, asks for what is here. */
	void (*asked)(void);
	/* Whether copies of a generation are to stay, however long ago their owner was there. */
	bool (*needs)(uint64_t generation);
};
/* Before the beginning. The list is the caller's, and stays; who stands first in it hears first. */
void peers_heard_by(const struct peers_hearer *const *list, size_t count);
/* A start here does. */
void peers_asked(void);
/* Whether this agent is one of those that mpirun starts together; at the start, before all else. */
bool peers_launched(bool foreground);
/* The last call of an agent that ends well, by the thread that started it. May wait for the others. */
void peers_finish(void);
/* Where nodes are found by Slurm's list: waits, for some 1.5 s at most, until those that are there have said of what programs they
 * have something. A rank that starts here looks for that once, and no folder tells it. */
void peers_meet(void);
/* Of a start: the host at which its ranks meet; "": nobody says. */
void peers_master(const char *host);
/* The process waits until those of its launch's other nodes are known. */
void peers_meet_for(struct client *client, const struct tpck_meet *meet);
/* All ranks of a launch have a new committed image. Of one with ranks on other nodes, too, peers_copy() is told. */
void peers_committed(struct launch *launch);
/* Sends what the ranks that are here have of this step, which they hold or have committed, and which a round of all nodes of
 * the launch is about. When all have it who are to have it, or are gone, `copied` is called. False: nothing is on its
 * way, and it is not called. One round at a time. */
bool peers_copy(struct launch *launch, uint64_t step);
/* On every node the copies of this step are there: called after each such round, on each node, before the next one. Copies of
 * older generations go, and those of this one that are with nodes which do not have this step or a newer one. Holders keep
 * this step until it is called again. */
void peers_settled(struct launch *launch, uint64_t step);
/* The program with this identity ended well: up to this generation nobody comes back. */
void peers_ended(const char *identity, uint64_t generation);
/* UINT64_MAX or when the agent may leave as far as others are concerned. */
uint64_t peers_leave_at(void);
/* Whether it leaves now, if it would: those that mpirun has started end together, since it takes one that is gone for a failure. */
bool peers_may_leave(bool willing);
void peers_status(json_object *json);

/* Event loop. To a node's agent, or to all (NULL); one that is gone hears nothing. */
void peers_talk(const char *node, const struct tpck_accord_message *message, const void *more, size_t size);
/* This one, as others name it, and as users do. */
const char *peers_node(void);
const char *peers_host(void);
bool peers_on(void);
/* This agent speaks with nobody, and an agent that mpirun starts is to come in its place. */
bool peers_awaited(void);
/* Others may be there whom this one does not know yet, or whom the event loop has not heard of. */
bool peers_settling(void);
/* This node is a peer. Any thread. */
bool peers_has(const char *node);

/* Clerk. Gets the newest copy of a launch from other nodes, if it is newer than all that is here and in the store; the request
 * is that of its first rank, and is told of what could not be had. `store`: the first tier may be looked at. */
void peers_fetch(bool store, struct offer_request *request);
/* Adds the copy that is here, the newest of a launch on one node, to the candidates of all ranks' requests. They stay as they
 * are until peers_release(), which says whether one was bad. */
void peers_candidates(struct offer_request *requests, size_t count);
/* The same of what is here of this point: the copies of several parts, where there are some. */
void peers_candidates_at(struct offer_request *requests, size_t count, const struct tpck_point *point);
bool peers_release(struct offer_request *requests, size_t count);
/* Gets the copy of this point, to which this rank belongs, from the agent of this name (struct tpck_greeting). 0: it is here
 * now, or was. Takes as long as the other goes on giving it. */
int peers_get(const char *node, const char *identity, uint32_t rank, uint32_t ordinal,
	      const struct tpck_point *point, struct tpck_error *err);
/* The same by fragments, whoever has them. */
int peers_gather(const char *identity, uint32_t rank, uint32_t ordinal, const struct tpck_point *point,
		 struct tpck_error *err);
/* The end of a start's choice: what came for it, or was here, and is in no use may go as its owner says. */
void peers_got(void);
/* That of the first rank, which stands for all in what agents say to each other. */
struct offer_request *peers_first(struct offer_request *requests, size_t count);
/* Any thread. What is here of the rank with this identity, up to two points of each generation; *rows is malloc'd. */
struct peers_held {
	uint32_t rank, ordinal;
	struct tpck_point point;
	bool resumable;
	uint32_t form; /* its number */
	struct tpck_fragment fragment; /* data 0: the whole */
};
/* Of programs of these forms (agent/programs/identity_text.h). The rows are malloc'd. */
size_t peers_copies_held(const char *forms, size_t size, struct peers_held **rows);
/* Event loop. Whether there are copies of parts of launches of these forms. */
bool peers_parts_held(const char *forms, size_t size);
/* Event loop. What is here of other nodes' launches, or of their parts that were there (left.c). The rows are malloc'd. */
struct peers_left {
	uint64_t generation, step; /* step: the newest */
	uint32_t world;
	bool there;                /* the owner is, and serves programs */
	uint64_t seen_ns;          /* when it was last heard to, or the copy came */
};
size_t peers_left(struct peers_left **rows);
/* Of one generation: each rank's `form` is the first rank of the part that it belongs to. */
size_t peers_left_of(uint64_t generation, struct peers_held **rows);
/* The identity of one of these ranks; malloc'd, or NULL: there is none, or no memory. */
char *peers_left_identity(uint64_t generation, uint32_t rank, uint32_t ordinal);
/* Any thread. The copy here of this point, to which this rank belongs, as something to publish; it stays as it is until it is closed. -ENOENT: there is none.
 * `bad`: it is not what its digests say, and goes. */
struct peers_shares {
	struct copy *copy;
	unsigned slot;
	const struct tpck_manifest *manifest;
	struct tpck_share *shares; /* [manifest->member_count] */
};
int peers_shares_open(struct peers_shares *shares, const char *identity, uint32_t rank, uint32_t ordinal, const struct tpck_point *point,
		      struct tpck_error *err);
void peers_shares_close(struct peers_shares *shares, bool bad);
/* Any thread: up to which order another node has put at its paths what this table owes, or is about to; 0: none has. */
uint64_t peers_taken_over(uint32_t table);
/* Event loop. A process that begins will look at what was saved: TPCK_MSG_LOOKED is sent to it when it may. */
struct client;
void peers_look(struct client *client);
/* Whether files are kept here that other nodes owe; those of a node that is gone, which are about to be put at their paths. */
bool peers_hold_files(void);
bool peers_hold_lost(void);
/* The greatest generation that a peer was heard to have. */
uint64_t peers_generation(void);
/* Any thread: somebody has it. */
void peers_heard(uint64_t generation);

#endif
