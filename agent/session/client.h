/* SPDX-License-Identifier: Apache-2.0 */
/* Connections of processes: packets in, packets out, whose they are. Event loop. */
#ifndef TPCK_AGENT_SESSION_CLIENT_H
#define TPCK_AGENT_SESSION_CLIENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/loop/loop.h"
#include "runtime/wire/message.h"

struct live;
struct launch;

/* One connection. */
struct client {
	struct watch watch; /* first: the event loop hands this back */
	pid_t pid;          /* by SO_PEERCRED */
	struct live *live;  /* its session, once welcomed */
	bool busy;          /* HELLO is with the clerk */
	char *deferred;     /* a HELLO that waits until an earlier process of the program is settled, or for the other ranks */
	uint64_t deferred_until_ns;
	struct launch *launch; /* that the HELLO belongs to; NULL: not yet */
	bool gone;          /* closed while busy */
	uint64_t look;      /* the number of its LOOK; 0: none is to be answered */
	uint64_t meets_until_ns; /* it waits for others' agents until then; 0: it does not */
	uint32_t meets;     /* of so many nodes; 0: it does not say */
	bool spare;         /* it starts ranks of other nodes, so many at most: */
	uint32_t spare_ranks;
	bool files, ended;  /* it writes files; it is at its end, and has not failed */
	struct client *next;
};

/* The socket. */
extern const struct loop_part clients_loop;

/* False: the connection is broken (it is closed by its own event). */
bool client_send(struct client *client, enum tpck_message_type type, const void *payload, size_t size);
void client_close(struct agent *agent, struct client *client);
/* What a process said before it died and nobody has read yet: how it ended, and where it went on. */
void client_last_words(struct agent *agent, struct client *client);

#endif
