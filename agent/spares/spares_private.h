/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of spare nodes share. */
#ifndef TPCK_AGENT_SPARES_SPARES_PRIVATE_H
#define TPCK_AGENT_SPARES_SPARES_PRIVATE_H

#include "agent/spares/spares.h"
#include "runtime/peer/protocol.h"

#define SEC 1000000000ull
/* A node that has not heard from a majority of the job's agents for so long ends its ranks; nobody else starts them before the second time is over, which is
 * longer by what looking and clocks take. */
#define LEASE_NS (12 * SEC)
#define LOST_NS (14 * SEC)
/* A vote counts for less than what lies between these two, since whoever has agreed may hear the node again; and who has agreed with one spare node, which asks
 * every second, does so with no other one for as long as that vote could count, and longer. */
#define VOTE_NS (3 * SEC / 2)
#define AGREED_NS (3 * SEC)
/* A host that has said nothing for so long may be lost: agents speak with each other every second. */
#define SILENT_NS (5 * SEC / 2)
/* Whether a spare node takes over is waited for so long by ranks that end meanwhile. */
#define AWAY_NS (45 * SEC)
/* A host that is not there for so long, and whose ranks nobody has taken over, does not count any more. */
#define FORGET_NS (60 * SEC)
#define LOOK_NS (SEC / 2)

/* Another host of the job's: its agent has said something. */
struct host {
	char name[TPCK_PEER_NAME], node[TPCK_PEER_NAME];
	bool there;
	uint64_t lost_ns, heard_ns;         /* CLOCK_MONOTONIC: since when it is not there; when something came from it last */
	bool spare;
	uint64_t room;                      /* ranks that can be started there */
	uint32_t ranks;                     /* that run there, and have supervisors */
	uint32_t begins;                    /* ranks that it starts in the place of others, until some run there */
	char candidate[TPCK_PEER_NAME];     /* who may start its ranks, as far as this node is concerned; "": nobody has asked */
	uint64_t agreed_ns;                 /* when this node agreed with that one last */
	char voted[TPCK_PEER_NAME];         /* the host whose ranks may be started here, as far as this one is concerned */
	uint64_t voted_ns;                  /* when it said so */
	uint64_t ballot_ns;                 /* when it was asked last whether its ranks may be started here; 0: never */
	struct host *next;
};

extern struct spares {
	struct host *hosts;
	bool spare;                         /* this node is a spare one, */
	uint64_t room;                      /* where so many ranks can be started */
	uint64_t begun_ns;
	uint32_t most;                      /* agents that it has known at one time */
	uint64_t lapsed;                    /* the newest generation whose ranks here have been told to end; 0: none */
} spares;

/* The host of that name; NULL: it is not known, or, to be made, there is no memory. */
struct host *host_find(const char *name);
struct host *host_make(const char *name);
void host_drop(struct host *host);
/* Whether ranks of a node that is lost may be started somewhere. */
bool host_any_spare(void);
struct tpck_accord_message spares_message(enum tpck_accord_kind kind);

/* The ranks of this node, told to spare nodes (wards.c). */
void wards_tell(void);
/* How one of another node's was started. */
void wards_note(const char *host, const struct tpck_accord_message *message, const char *text, size_t size);
/* Of that host's: how many there are here; the newest of their generations goes to *generation. */
size_t wards_count(const char *host, uint64_t *generation);
/* Wards of one host are another host's from here on. */
void wards_move(const char *from, const char *to);
/* The host's wards are started here. */
void wards_start(struct agent *agent, const char *host);

/* Who may take over (ballots.c). */
void ballots_consider(struct agent *agent);
void ballots_take(struct agent *agent, const char *host, const struct tpck_accord_message *message, const char *more, size_t size);

/* How long this node's ranks may run (lease.c). */
void lease_consider(uint64_t now);

#endif
