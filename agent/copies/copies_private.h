/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of copies share. What is the thread's is done by the network's (peers/links.h), and the lock is its. */
#ifndef TPCK_AGENT_COPIES_COPIES_PRIVATE_H
#define TPCK_AGENT_COPIES_COPIES_PRIVATE_H

#include <stdatomic.h>

#include "agent/copies/copies.h"
#include "agent/peers/links.h"
#include "runtime/peer/replica.h"
#include "runtime/policy/bandwidth.h"
#include "runtime/store/publish.h"

/* Copies of one launch, or of the part of it that was on one node, that are here, or fragments of one index. Under the lock; the slot that is being
 * filled is the courier's and the thread's. */
struct copy {
	struct tpck_replica *replica;
	/* By rank; the first one's is the name of the copy's folders. */
	struct copy_member {
		char *identity;
		uint32_t rank, ordinal;
	} *member;
	uint32_t ranks;
	bool part;                 /* the launch's other ranks were on other nodes */
	/* Two snapshots at most; a whole one stays as it is while somebody has a pin of it, though another may be coming. */
	struct copy_slot {
		bool whole;
		struct tpck_point point;
		unsigned pins;
	} slot[TPCK_REPLICA_SLOTS];
	bool filling;
	unsigned to;               /* the slot that is */
	uint64_t keep;             /* the OFFER's */
	bool doomed;               /* goes when nobody uses it */
	uint64_t left_ns;          /* since then some of a first snapshot is here, the rest of which somebody may still bring; 0: it is not so */
	bool detached;             /* its files are gone; freed when it is not filled any more */
	char owner[TPCK_PEER_NAME];
	uint64_t seen_ns;          /* it was brought up to date, or its owner was there */
	struct copy *next;
};

/* One rank's part of a parcel. */
struct parcel_part {
	struct tpck_image image;
	char log_folder[TPCK_NAME_MAX];
	struct live *live;         /* whose image is pinned, or NULL: the image is a copy's, opened for the parcel */
	unsigned live_image;
	uint64_t step;             /* of it */
};

/* A snapshot of a launch's ranks that are, or were, on one node, on its way to some peers: images that are pinned, or a copy. */
enum { PARCEL_TARGETS = TPCK_FRAGMENTS_MAX };
struct parcel {
	struct job job;            /* first: back to the event loop at its end */
	struct tpck_manifest *manifest;
	char *text;
	size_t size;
	struct parcel_part *part;  /* by member of the manifest */
	uint32_t parts;            /* of fragments that are held here there are none */
	uint64_t target[PARCEL_TARGETS]; /* serials */
	char hosts[PARCEL_TARGETS][TPCK_PEER_NAME];
	bool has[PARCEL_TARGETS];
	struct tpck_fragment fragment[PARCEL_TARGETS]; /* that each gets; data 0: the whole */
	unsigned targets, pending;
	uint64_t begun_ns, sent_bytes;
	/* of a launch, which stays while its sessions are in use */
	struct launch *launch;
	uint64_t until_ns;         /* it is spread over the time until then; 0: it is not */
	_Atomic bool hurry;        /* not any more */
	bool behind;               /* there is a newer snapshot already */
	bool damaged;              /* a chunk is not what its digest says: no fragment of it counts */
	bool round;                /* all nodes of the launch send theirs: it is told (struct peers_hearer) */
	uint64_t keep;             /* see TPCK_PEER_OFFER */
	struct tpck_error error;
	int rc;
	struct tpck_publication publication;
	/* of a copy */
	struct copy *copy;
	unsigned slot;
	uint64_t transfer;         /* of the GET that it answers */
};

/* What a start asks of others. A node says what it has of two steps, of up to as many nodes as there are fragments, and some more. */
enum { ASK_ANSWERS = 8 * TPCK_FRAGMENTS_MAX };
#define ASK_HERE UINT64_MAX
struct ask {
	struct errand errand;
	const char *identity;
	uint32_t rank, ordinal;
	uint64_t number;
	bool posted;               /* the thread has it */
	unsigned asked, answered;
	struct ask_answer {
		uint64_t serial;   /* 0: it is of no use; or ASK_HERE */
		struct tpck_point point;
		struct tpck_fragment fragment; /* data 0: the whole */
		bool part;
		char host[TPCK_PEER_NAME];
	} answers[ASK_ANSWERS];
	unsigned count;
	/* the newest that somebody has of another start of the program only */
	char *other_identity;      /* malloc'd */
	struct tpck_point other_point;
	/* what could not be had last */
	char why[200], why_host[TPCK_PEER_NAME];
	struct ask *next;
};

/* What is here of other nodes', and what starts here ask for. Under the lock. */
extern struct copies_here {
	struct copy *list;
	struct ask *asks;
} copies_here;

/* sending (sending.c): the event loop's */
/* A node's agent has come: it hears of the programs that there is something of here. */
void sending_met(struct agent *agent, const char *node);
void owned_status(json_object *given);
/* Takes from the images of the ranks here what a copy wants; how many wants are left, and bytes that were found. */
size_t sending_twins(struct tpck_replica *replica, struct tpck_peer_want *want, size_t count, uint64_t *bytes);
void owned_consider(struct agent *agent);

/* copies.c: what a fragment is, where it is one. */
void copies_fragment_status(json_object *row, const struct tpck_fragment *fragment);

/* What is asked by this number, or NULL; under the lock (asking.c). */
struct ask *ask_of(uint64_t number);
/* A transfer's that this side asks for. */
uint64_t ask_number(void);

/* what a start gets (pulling.c). Its own call, which waits: from those that have said to have this snapshot, whole or fragments of it. 0, or a negative errno and why,
 * in the ask. */
int pull_snapshot(struct ask *ask, const struct ask_answer *answers, unsigned count);
/* The thread's. True: it is a pull's. */
bool pulling_offer(struct peer *peer, const struct tpck_peer_message *head, const char *text, size_t count);
bool pulling_fail(const struct peer *peer, uint64_t number, const char *why);
void pulling_gone(const struct peer *peer);
bool pulling_place(struct peer *peer, const struct tpck_peer_message *head, size_t bytes, void **place);
bool pulling_arrived(struct peer *peer, void *bytes, size_t count, bool whole);
void pulling_tick(uint64_t now);

/* A session whose process is gone may be what somebody asks for: answered by the event loop (sending.c). */
struct inquiry {
	struct job job;            /* first */
	struct errand errand;
	uint64_t serial;
	struct tpck_peer_message head, answer;
	char *other;               /* what goes with the answer, or NULL */
	size_t other_size;
	bool get;
	char identity[];
};
void copies_inquire(struct peer *peer, const struct tpck_peer_message *head, const struct tpck_peer_message *answer,
		    const char *identity, char *other, size_t other_size, bool get);

/* pace (pace.c): of one parcel to one peer; the thread's unless a line says else */
struct pace {
	const struct parcel *parcel;
	bool recovery;             /* a start waits for it: nothing holds it back */
	struct tpck_spread spread;
	uint64_t begun_ns;
	uint64_t held_ns;          /* since when it is held back; 0: it is not */
	enum pace_by { PACE_SPREAD, PACE_CEILING, PACE_OTHERS } by; /* then: by what */
	uint64_t yields_ns;        /* not before then: others use the network */
	uint64_t yields_most_ns;   /* of this piece, and no longer; 0: it has not waited for them */
};
void pace_begin(struct pace *pace, const struct parcel *parcel, uint64_t bytes);
/* When the next piece may go: what is not later than now is at once. */
uint64_t pace_next(const struct pace *pace);
/* Whether something does not let it go as fast as the link takes it. */
bool pace_is_held_back(const struct pace *pace);
/* Whether the next piece may go now. */
bool pace_may(struct pace *pace, uint64_t now);
void pace_sent(struct pace *pace, uint64_t now, uint64_t bytes);
void pace_end(struct pace *pace, bool has);
/* The event loop's: until when a parcel of this launch is to be spread; 0: it is not. And whenever something has happened. */
uint64_t pace_until(const struct parcel *parcel);
void pace_consider(struct agent *agent, struct parcel *parcel, bool again);
/* Any thread. */
void pace_status(json_object *json);

/* what is said of snapshots (transfer.c) */
void transfer_gone(struct peer *peer);
void transfer_message(struct peer *peer, const struct tpck_peer_message *head, char *text, size_t count);
void transfer_greet(struct peer *peer); /* under the lock; it is known now: it gets what is being asked */

/* snapshots on their way to peers (outgoing.c) */
/* Any thread: gives a parcel to the thread. */
void outgoing_send(struct parcel *parcel);
/* Goes on with what was held back; when there is more to do, or UINT64_MAX. */
uint64_t outgoing_resume(void);
/* Somebody looks for what is on its way, or waits for the link: nothing is held back any more. */
void outgoing_hurry(void);
void outgoing_sent(void *token);
void outgoing_gone(const struct peer *peer);
/* What the peer says of a transfer: these chunks it wants; it has all of it; it takes nothing (false: of none of ours). */
void outgoing_want(const struct peer *peer, uint64_t transfer, const char *bytes, size_t count);
void outgoing_have(const struct peer *peer, uint64_t transfer);
bool outgoing_fail(const struct peer *peer, uint64_t transfer, const char *why);
void parcel_free(struct parcel *parcel);

/* copies that come from peers (incoming.c) */
void incoming_offer(struct peer *peer, const struct tpck_peer_message *head, const char *text, size_t count);
void incoming_fail(const struct peer *peer, uint64_t transfer, const char *why);
void incoming_gone(const struct peer *peer);
void *incoming_place(struct peer *peer, const struct tpck_peer_message *head, size_t bytes);
void incoming_arrived(struct peer *peer, void *bytes, size_t count, bool whole);

/* files that this node owes, on their way to peers (sent_files.c): the thread's unless a line says else */
void owed_gone(const struct peer *peer);
void owed_sent(void *token);
void owed_message(struct peer *peer, const struct tpck_peer_message *head, char *bytes, size_t count);
/* Any thread: PATH of what is told of this table in the folder that all nodes see. */
void owed_mark_path(char path[TPCK_PATH_MAX], const char *what, uint32_t table);
/* Of what a "files" mark says: its first line is the owner's host, and each other one a folder that the owner's files were in. */
enum { OWED_MARK_MAX = 8 << 20 };
const char *owed_mark_folders(const char *text);
/* The event loop's. */
void owed_consider_alone(void); /* nobody has copies: who waits is told */
void owed_begin(void);
void owed_end(void);

/* files that other nodes owe, which are kept here (held_files.c): the thread's unless a line says else */
void held_gone(const struct peer *peer);
void held_message(struct peer *peer, const struct tpck_peer_message *head, char *bytes, size_t count);
/* The event loop's. */
void held_consider(const struct agent *agent);
json_object *held_status(void);
void held_begin(void);
void held_end(void);

/* copies (replicas.c): any thread */
void copies_here_find(void);
void copies_here_close(void);
/* The copy that a snapshot goes to, or this fragment of it (data 0: the whole), and in it the slot; no other can begin until copy_filled(). `keep` is that of the OFFER,
 * `wanted`: this node asked for it, which may be older than what is here. -EALREADY: it is here (no error text). */
int copy_for(const struct tpck_manifest *manifest, const struct tpck_fragment *fragment, const char *owner, uint64_t keep, bool wanted,
	     struct copy **copy, struct tpck_error *err);
void copy_filled(struct copy *copy, bool whole);
/* The courier's, or a start's: whether there is room for so many slots of it, or why not. */
bool copy_room(const struct copy *copy, const struct tpck_manifest *manifest, unsigned slots, char *reason, size_t size);
/* Under the lock: the slot of the newest snapshot; -1: none is whole. */
int copy_newest(const struct copy *copy);
/* The copy here of this point that has this rank, pinned, or NULL; *slot says where in it. Without a point the newest of a
 * launch that was on one node. */
struct copy *copy_pin(const char *identity, uint32_t rank, uint32_t ordinal, const struct tpck_point *point, unsigned *slot);
/* The same of a fragment, always of a point. */
struct copy *copy_pin_fragment(const char *identity, uint32_t rank, uint32_t ordinal, const struct tpck_point *point,
			       const struct tpck_fragment *fragment, unsigned *slot);
/* All fragments here that have this rank, and all that is of a launch on several nodes; malloc'd, or NULL. */
struct tpck_peer_told *copies_here_pieces(const char *identity, uint32_t rank, uint32_t ordinal, size_t *count);
void copy_pin_again(struct copy *copy, unsigned slot);
void copy_unpin(struct copy *copy, unsigned slot);
/* What is there is bad; the caller's pin goes. Its place is free at once, if nobody else has one: who fills it may be gone
 * without a word. */
void copy_discard(struct copy *copy, unsigned slot);
bool copy_is_detached(struct copy *copy);
/* The newest that is not of this launch, but of the program as it was with other arguments, variables or ranks: its
 * identity, malloc'd, or NULL. */
char *copies_here_other(const char *identity, uint32_t rank, struct tpck_point *point);
/* Of all ranks that there are whole copies of, a NUL behind each; malloc'd, or NULL. */
char *copies_here_identities(size_t *size);
void copies_here_drop(const char *identity, uint64_t generation);
/* What is only some of a snapshot goes, of this rank, or (NULL) of all. */
void copies_here_drop_left(const char *identity, uint32_t rank, uint32_t ordinal);
void copies_here_sweep(void);
/* A start here is about to go on from this point of this rank: a copy of it, here or on its way, can be pinned although its owner has said that it may go, and
 * stays until there is no such start any more. The clerk makes one start ready at a time. */
void copies_here_want(const char *identity, uint32_t rank, uint32_t ordinal, const struct tpck_point *point);
void copies_here_want_none(void);
/* Under the lock. An agent that comes back to a host is another one, and serves nobody: what was there is lost (left.c). */
bool copies_owner_is_there(const char *host);
uint64_t copies_here_until(void);

#endif
