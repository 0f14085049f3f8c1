/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the network share (links.h). */
#ifndef TPCK_AGENT_PEERS_PEERS_PRIVATE_H
#define TPCK_AGENT_PEERS_PEERS_PRIVATE_H

#include "agent/peers/links.h"

extern const struct tpck_transport_events peers_events;
/* The network's thread (links.c). */
void *peers_thread(void *unused);

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
void nodes_said(struct peer *peer, const char *text, size_t count);
/* The event loop's: ranks that wait for other nodes, and need not any more. */
void meeting_consider(struct agent *agent);
/* When somebody who waits so is to be looked after. */
uint64_t meeting_deadline(const struct agent *agent);

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

/* who hears of it (hearers.c): the event loop's */
void hearers_met(struct agent *agent, const char *node);
void hearers_lost(struct agent *agent, const char *node, const char *host);
void hearers_said(struct agent *agent, const char *node, const char *host, const struct tpck_accord_message *message, const char *more, size_t size);
void hearers_ending(struct agent *agent, const char *host);
void hearers_alone(struct agent *agent, const char *host);

#endif
