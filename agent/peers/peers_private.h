/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the agent's peers share. One thread, `tpck-peers`, does all that concerns the network; the courier,
 * a worker, does what takes time. */
#ifndef TPCK_AGENT_PEERS_PEERS_PRIVATE_H
#define TPCK_AGENT_PEERS_PEERS_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "agent/peers/peers.h"
#include "runtime/peer/protocol.h"
#include "runtime/peer/replica.h"
#include "runtime/peer/transport.h"
#include "runtime/policy/bandwidth.h"
#include "runtime/store/publish.h"

/* Another agent, as one connection to it. The thread's; the list is changed under the lock. */
enum peer_state { PEER_CONNECTING, PEER_GREETED, PEER_KNOWN, PEER_REFUSED };
struct peer {
	struct tpck_link *link;
	uint64_t serial;
	enum peer_state state;
	bool mine;                 /* this side connected */
	bool again;                /* to one that had been a peer, and is lost */
	char address[TPCK_TRANSPORT_ADDRESS];
	struct tpck_greeting self, other;
	uint8_t kept[TPCK_NONCE_BYTES]; /* of this side's nonce */
	enum tpck_seal_level level; /* how what is sent is sealed, and by which cipher; off before it is agreed on */
	uint32_t cipher;
	bool working;              /* it serves programs */
	bool staying;              /* it does not want to end; of those that mpirun has started */
	bool ending;               /* it is told to */
	char *where;               /* its addresses, where it has said them */
	uint64_t begun_ns, heard_ns;
	size_t window;             /* bytes of chunks that may be under way to it: what the link takes in a second (outgoing.c) */
	struct peer *next;
};

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

/* Something for the thread to do. */
struct errand {
	void (*run)(struct errand *errand);
	struct errand *next;
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

extern struct peers {
	bool on;
	bool awaited;              /* mpirun is to start one in this one's place */
	struct agent *agent;
	char node[TPCK_PEER_NAME], host[TPCK_PEER_NAME], domain[TPCK_PEER_NAME];
	char folder[TPCK_PATH_MAX]; /* rendezvous; "": there is none */
	uint8_t secret[TPCK_SECRETS][TPCK_SECRET_BYTES];
	bool listed;               /* Slurm's list of nodes, or the node at which the ranks meet, is looked at, and there is a user's secret */
	const struct tpck_transport_operations *ops;
	struct tpck_transport *transport; /* NULL: it is to be started anew */
	uint16_t port; /* that it is asked to listen at; 0: any */
	enum tpck_seal_level level; /* the least that is agreed to */
	struct worker courier;
	pthread_t thread;
	int wake;
	uint64_t begun_ns;
	pthread_mutex_t lock;      /* all that follows */
	pthread_cond_t changed;
	bool stop, scanned;        /* the first look for others is over */
	bool ended;                /* the thread looks at nothing any more */
	struct errand *errands, **errands_end;
	struct peer *list;
	uint64_t met;              /* how often one became known */
	uint64_t met_ns;           /* when the last one did */
	unsigned unheard;          /* the event loop has not heard of so many of these */
	struct copy *copies;
	struct ask *asks;
	uint64_t generation;       /* greatest heard of */
	bool working;              /* this agent serves programs */
	bool staying;              /* it does not want to end */
	uint64_t willing_ns;       /* since when it does; 0: it does not */
	bool left;                 /* one of those that end together has left already */
	bool ending;               /* it is told to, and so are all that mpirun has started */
	bool tick_now;             /* the others are to hear it at once */
} peers;

extern const struct tpck_transport_events peers_events;

/* Whether some are on their way that have never been met, or the event loop has not heard of them. Under the lock. */
bool peers_unmet(void);

/* Nodes that the environment names (listed.c): those of Slurm's list, or else the one at which the ranks meet. Before there is a thread:
 * reads what there is, if it is to be looked at, and the user's secret, and says at which port agents of this job are. False: it
 * is not looked at. */
bool listed_begin(uint16_t *port);
/* Any thread: the ranks of a start, which began at this time of CLOCK_REALTIME, meet at this host. Whether that is new. */
bool listed_follow(const char *host, uint64_t since_ns);
/* Tells the peer of this serial, or all (0), where the ranks of the newest start meet, if one has said so. */
void listed_say(uint64_t serial);
/* Whether all that is named is where the ranks meet: that node tells the others of each other. */
bool listed_is_master(void);
/* The thread's: the nodes that it is time to look for, and their addresses. Takes not much longer than a name that cannot be
 * resolved. */
void listed_look(uint64_t now, void (*visit)(const char *name, const char *addresses));
/* The thread's: whether the ranks meet on this node, as far as has been looked. */
bool listed_here(void);

/* Nodes that are told of each other (meeting.c): the thread's. A peer is known now; it says where it is. */
void meeting_known(struct peer *peer);
void meeting_where(struct peer *peer, const char *text, size_t count);
/* Of a THERE: the node and its addresses. False: it is none. */
bool meeting_there(char *text, size_t count, char **addresses);
/* Which addresses are the job's own (own_addresses.c): the thread's. A peer is known now: it is told this node's; and what one has said of its own. */
void nodes_known(struct peer *peer);
void nodes_said(const char *text, size_t count);
/* The event loop's: ranks that wait for other nodes, and need not any more. */
void meeting_consider(struct agent *agent);
/* When somebody who waits so is to be looked after. */
uint64_t meeting_deadline(const struct agent *agent);

/* sending (sending.c): the event loop's */
/* A node's agent has come: it hears of the programs that there is something of here. */
void sending_met(struct agent *agent, const char *node);
void owned_status(json_object *given);
/* Takes from the images of the ranks here what a copy wants; how many wants are left, and bytes that were found. */
size_t sending_twins(struct tpck_replica *replica, struct tpck_peer_want *want, size_t count, uint64_t *bytes);
void owned_consider(struct agent *agent);

/* this_node.c: what a fragment is, where it is one. */
void peers_fragment_status(json_object *row, const struct tpck_fragment *fragment);

/* links (links.c): the thread's unless a line says else */
void *peers_thread(void *unused);
/* Any thread. */
void peers_errand(struct errand *errand);
struct peer *peer_of_serial(uint64_t serial);
int peer_send(struct peer *peer, enum tpck_peer_type type, const struct tpck_peer_message *fields, const void *bytes,
	      size_t count, void *token);
/* Sends a copy of a text. */
int peer_send_text(struct peer *peer, enum tpck_peer_type type, const struct tpck_peer_message *fields, const char *text,
		   size_t count);
void peer_say_failed(struct peer *peer, uint64_t transfer, const char *why);
static inline struct tpck_peer_message peer_about(uint64_t transfer, const struct tpck_point *point)
{
	return (struct tpck_peer_message){
		.transfer = transfer, .generation = point ? point->generation : 0, .step = point ? point->step : 0,
	};
}

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
void peers_inquire(struct peer *peer, const struct tpck_peer_message *head, const struct tpck_peer_message *answer,
		   const char *identity, char *other, size_t other_size, bool get);

/* launches on several nodes (talk.c): what the event loop is to know of a peer, in order */
enum peers_news { PEERS_MET, PEERS_LOST, PEERS_SAID, PEERS_ENDING, PEERS_ALONE };
void peers_news(const struct peer *peer, enum peers_news what, const void *bytes, size_t size);
/* The same of a host whose agent is no peer. */
void peers_news_of(const char *host, enum peers_news what);
/* Any thread. Others may be there whom this one does not know yet. */
bool peers_connecting(void);

/* Agents that work alone where mpirun is to have one (alone.c). Before there is a thread, and at the end: this one does, or does not any more; whatever
 * was said of this node before does not hold. */
void alone_say(void);
void alone_end(void);
void alone_clear(void);
/* The thread's: whether one does on this host. */
bool alone_is(const char *host);

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
/* Any thread: sends a message to the peer of this serial, or to all (0). */
void owed_say(uint64_t serial, enum tpck_peer_type type, const struct tpck_peer_message *fields, const void *bytes, size_t count);
/* Files of the folder that all nodes see, by their paths (agents_folder.c); any thread. 0 or -errno: shared_look() -ENOENT only where there is none for sure.
 * shared_open(): a descriptor for reading. */
int shared_write(const char *path, const char *text, int flags, struct tpck_error *err);
int shared_read(const char *path, size_t limit, char **text);
int shared_look(const char *path);
int shared_open(const char *path);
void shared_remove(const char *path);
void shared_rename(const char *path, const char *to);
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

/* who hears of it (hearers.c): the event loop's */
void hearers_met(struct agent *agent, const char *node);
void hearers_lost(struct agent *agent, const char *node, const char *host);
void hearers_said(struct agent *agent, const char *node, const char *host, const struct tpck_accord_message *message, const char *more, size_t size);
void hearers_ending(struct agent *agent, const char *host);
void hearers_alone(struct agent *agent, const char *host);
void hearers_copied(struct agent *agent, struct launch *launch, uint64_t step, unsigned copies);
bool hearers_need(uint64_t generation);

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
bool peers_owner_is_there(const char *host);
uint64_t copies_here_until(void);

#endif
