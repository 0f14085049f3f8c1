/* SPDX-License-Identifier: Apache-2.0 */
/* Other nodes' agents: who is there, what they say, and how long this one stays for them. All of it does nothing where TRANSPCKPT_PEERS is 0. */
#ifndef TPCK_AGENT_PEERS_PEERS_H
#define TPCK_AGENT_PEERS_PEERS_H

#include <json-c/json.h>

#include "agent/session/sessions.h"
#include "runtime/peer/accord.h"

/* The network and its thread; and what that is to know of the rest of the agent, and who waits for it. */
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
	/* A round of copies_send() (agent/copies) is through, with so many copies. */
	void (*copied)(struct agent *agent, struct launch *launch, uint64_t step, unsigned copies);
	/* A start, here or elsewhere, asks for what is here. */
	void (*asked)(void);
	/* Whether copies of a generation are to stay, however long ago their owner was there. */
	bool (*needs)(uint64_t generation);
};
/* Before the beginning. The list is the caller's, and stays; who stands first in it hears first. */
void peers_heard_by(const struct peers_hearer *const *list, size_t count);
/* Before the beginning: what the network carries for others (links.h). */
struct peers_cargo;
void peers_carry(const struct peers_cargo *cargo);
/* A start here asks. */
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
/* Any thread. An address of this node, or of one that is a peer, as the others reach it, without a port: the first of those that it has said. False: none
 * is known. */
bool peers_address(const char *node, char *address, size_t size);
/* When something came from an agent of this host last, by CLOCK_MONOTONIC; 0: it is no peer. Any thread. */
uint64_t peers_heard_ns(const char *host);
/* This node is a peer. Any thread. */
bool peers_has(const char *node);

/* The greatest generation that a peer was heard to have. */
uint64_t peers_generation(void);
/* Any thread: somebody has it. */
void peers_heard(uint64_t generation);

#endif
