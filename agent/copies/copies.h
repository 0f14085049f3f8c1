/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of snapshots and of files on other nodes, and theirs here. All of it does nothing where TRANSPCKPT_PEERS is 0. */
#ifndef TPCK_AGENT_COPIES_COPIES_H
#define TPCK_AGENT_COPIES_COPIES_H

#include <json-c/json.h>

#include "agent/peers/peers.h"
#include "agent/session/offer.h"
#include "agent/session/sessions.h"
#include "runtime/peer/erasure.h"
#include "runtime/store/publish.h"

/* Copies that are in the memory tier, which are found before the network begins; threads, which need it; and what is sent. */
extern const struct loop_part copies_found_loop, copies_loop, copies_state_loop;
/* What the network carries for them, and what they hear of it. */
struct peers_cargo;
extern const struct peers_cargo copies_cargo;
extern const struct peers_hearer copies_hears;
/* For QUERY. */
void copies_status(json_object *json);
/* All ranks of a launch have a new committed image. Of one with ranks on other nodes, too, copies_send() is told. */
void copies_committed(struct launch *launch);
/* Sends what the ranks that are here have of this step, which they hold or have committed, and which a round of all nodes of
 * the launch is about. When all have it who are to have it, or are gone, `copied` is called. False: nothing is on its
 * way, and it is not called. One round at a time. */
bool copies_send(struct launch *launch, uint64_t step);
/* On every node the copies of this step are there: called after each such round, on each node, before the next one. Copies of
 * older generations go, and those of this one that are with nodes which do not have this step or a newer one. Holders keep
 * this step until it is called again. */
void copies_settled(struct launch *launch, uint64_t step);
/* The program with this identity ended well: up to this generation nobody comes back. */
void copies_ended(const char *identity, uint64_t generation);
/* UINT64_MAX or when the agent may leave as far as others are concerned. */
uint64_t copies_leave_at(void);

/* Clerk. Gets the newest copy of a launch from other nodes, if it is newer than all that is here and in the store; the request
 * is that of its first rank, and is told of what could not be had. `store`: the first tier may be looked at. */
void copies_fetch(bool store, struct offer_request *request);
/* Adds the copy that is here, the newest of a launch on one node, to the candidates of all ranks' requests. They stay as they
 * are until copies_release(), which says whether one was bad. */
void copies_candidates(struct offer_request *requests, size_t count);
/* The same of what is here of this point: the copies of several parts, where there are some. */
void copies_candidates_at(struct offer_request *requests, size_t count, const struct tpck_point *point);
bool copies_release(struct offer_request *requests, size_t count);
/* Gets the copy of this point, to which this rank belongs, from the agent of this name (struct tpck_greeting). 0: it is here
 * now, or was. Takes as long as the other goes on giving it. */
int copies_get(const char *node, const char *identity, uint32_t rank, uint32_t ordinal,
	       const struct tpck_point *point, struct tpck_error *err);
/* The same by fragments, whoever has them. */
int copies_gather(const char *identity, uint32_t rank, uint32_t ordinal, const struct tpck_point *point,
		  struct tpck_error *err);
/* The end of a start's choice: what came for it, or was here, and is in no use may go as its owner says. */
void copies_got(void);
/* That of the first rank, which stands for all in what agents say to each other. */
struct offer_request *copies_first(struct offer_request *requests, size_t count);
/* Any thread. What is here of the rank with this identity, up to two points of each generation; *rows is malloc'd. */
struct copies_held {
	uint32_t rank, ordinal;
	struct tpck_point point;
	bool resumable;
	uint32_t form; /* its number */
	struct tpck_fragment fragment; /* data 0: the whole */
};
/* Of programs of these forms (agent/programs/identity_text.h). The rows are malloc'd. */
size_t copies_held(const char *forms, size_t size, struct copies_held **rows);
/* Event loop. Whether there are copies of parts of launches of these forms. */
bool copies_parts_held(const char *forms, size_t size);
/* Event loop. What is here of other nodes' launches, or of their parts that were there (left.c). The rows are malloc'd. */
struct copies_left {
	uint64_t generation, step; /* step: the newest */
	uint32_t world;
	bool there;                /* the owner is, and serves programs */
	uint64_t seen_ns;          /* when it was last heard to, or the copy came */
};
size_t copies_left(struct copies_left **rows);
/* Of one generation: each rank's `form` is the first rank of the part that it belongs to. */
size_t copies_left_of(uint64_t generation, struct copies_held **rows);
/* The identity of one of these ranks; malloc'd, or NULL: there is none, or no memory. */
char *copies_left_identity(uint64_t generation, uint32_t rank, uint32_t ordinal);
/* Any thread. The copy here of this point, to which this rank belongs, as something to publish; it stays as it is until it is closed. -ENOENT: there is none.
 * `bad`: it is not what its digests say, and goes. */
struct copies_shares {
	struct copy *copy;
	unsigned slot;
	const struct tpck_manifest *manifest;
	struct tpck_share *shares; /* [manifest->member_count] */
};
int copies_shares_open(struct copies_shares *shares, const char *identity, uint32_t rank, uint32_t ordinal, const struct tpck_point *point,
		       struct tpck_error *err);
void copies_shares_close(struct copies_shares *shares, bool bad);
/* Any thread: up to which order another node has put at its paths what this table owes, or is about to; 0: none has. */
uint64_t copies_taken_over(uint32_t table);
/* Event loop. A process that begins will look at what was saved: TPCK_MSG_LOOKED is sent to it when it may. */
struct client;
void copies_look(struct client *client);
/* Whether files are kept here that other nodes owe; those of a node that is gone, which are about to be put at their paths. */
bool copies_hold_files(void);
bool copies_hold_lost(void);

#endif
