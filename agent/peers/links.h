/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The network, for those who carry something over it: connections to other nodes' agents, what is sent by them, and who hears of what comes. One thread,
 * `tpck-peers`, does all that concerns it; the courier, a worker, does what takes time.
 */
#ifndef TPCK_AGENT_PEERS_LINKS_H
#define TPCK_AGENT_PEERS_LINKS_H

#include <pthread.h>
#include <stdatomic.h>

#include "agent/peers/peers.h"
#include "runtime/peer/protocol.h"
#include "runtime/peer/transport.h"

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
	char first[TPCK_TRANSPORT_ADDRESS]; /* the first of those that it has said by NODE; "": none yet. Under the lock */
	uint64_t begun_ns, heard_ns;
	size_t window;             /* bytes of chunks that may be under way to it: what the link takes in a second (outgoing.c) */
	struct peer *next;
};

/* Something for the thread to do. */
struct errand {
	void (*run)(struct errand *errand);
	struct errand *next;
};

/* What the network carries for others (peers_carry()). The thread's; none is NULL. */
struct peers_cargo {
	/* The peer is known now, under the lock; it is gone; it serves programs, under the lock. */
	void (*known)(struct peer *peer);
	void (*gone)(struct peer *peer);
	void (*serves)(const struct peer *peer);
	/* False: it is a message of nobody's. `text` has `count` bytes and a NUL behind them. */
	bool (*message)(struct peer *peer, const struct tpck_peer_message *head, char *text, size_t count);
	/* Bytes of a CHUNK: where a piece goes (NULL: nowhere), and that it is there, or that the rest does not come. */
	void *(*place)(struct peer *peer, const struct tpck_peer_message *head, size_t bytes);
	void (*arrived)(struct peer *peer, void *bytes, size_t count, bool whole);
	/* What was given to peer_send() with this token, which is even, is on its way, or will not be. */
	void (*sent)(void *token);
	/* Every second; and always: goes on with what was held back, and says when there is more to do, or UINT64_MAX. */
	void (*tick)(uint64_t now);
	uint64_t (*resume)(void);
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
	uint64_t generation;       /* greatest heard of */
	bool working;              /* this agent serves programs */
	bool staying;              /* it does not want to end */
	uint64_t willing_ns;       /* since when it does; 0: it does not */
	bool left;                 /* one of those that end together has left already */
	bool ending;               /* it is told to, and so are all that mpirun has started */
	bool tick_now;             /* the others are to hear it at once */
} peers;

/* links (links.c): the thread's unless a line says else */
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

/* Any thread: sends a message to the peer of this serial, or to all (0). */
void peers_say(uint64_t serial, enum tpck_peer_type type, const struct tpck_peer_message *fields, const void *bytes, size_t count);

/* who hears of what was carried (struct peers_hearer): the event loop's */
void hearers_copied(struct agent *agent, struct launch *launch, uint64_t step, unsigned copies);
bool hearers_need(uint64_t generation);

#endif
