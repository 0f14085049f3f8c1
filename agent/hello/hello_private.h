/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a HELLO's answer share. */
#ifndef TPCK_AGENT_HELLO_HELLO_PRIVATE_H
#define TPCK_AGENT_HELLO_HELLO_PRIVATE_H

#include "agent/hello/hello.h"
#include "agent/session/offer.h"

/* How long ranks of a launch wait for the others to start, which they do not all at once. */
#define RANKS_WAIT_NS 120000000000ull

/* One process's part in it. */
struct hello_part {
	struct client *client;
	struct tpck_hello hello;
	char *identity;
	struct memory_candidate *memory;
	size_t memory_count;
	int conflict_pid; /* a process of the same program still runs */
	/* found by the clerk */
	int rc;
	struct tpck_error error;
	struct tpck_program *program;
	struct tpck_session *session;
};

/* What the clerk does for one process, or for all ranks of a launch that ask for an offer. */
struct hello_job {
	struct job job; /* first */
	struct agent *agent;
	struct launch *launch;
	size_t count;
	struct hello_part *part;
	struct offer *offer; /* of each part */
	struct tpck_manifest *base;
	uint16_t meeting_ports[2];
	bool resume;         /* an offer is wanted, and can be made */
	bool in_parts;       /* by an accord only: nodes have parts of it */
	char obstacle[300];  /* why it cannot, or "" */
	struct own_start own; /* how they go on, asked where there is something to go on from */
	/* of a launch on several nodes */
	struct tpck_point point; /* that is tried */
	struct tpck_accord_source *sources;
	size_t source_count;
	size_t failed;       /* the part that could not go on, or count */
	bool gone;           /* since the node was gone that was to give it */
	bool begun;          /* its sessions are made */
	uint64_t generation; /* then: theirs */
};

/* hello.c */
/* A job for so many processes, or NULL. */
struct hello_job *hello_job_new(struct agent *agent, struct launch *launch, size_t room);
/* A process's part in it; `before`: an earlier process of the same program still runs. */
void hello_job_add(struct hello_job *h, struct client *client, const struct tpck_hello *hello, const char *identity, const struct live *before);
void hello_job_free(struct hello_job *h);
/* An earlier process of the same program that is not settled yet, or NULL. */
struct live *hello_predecessor(struct agent *agent, const struct client *client, const char *identity);
/* The process waits, with what it has said. False: there is no memory. */
bool hello_keep(struct client *client, const struct tpck_hello *hello, const char *identity);
void hello_done(struct agent *agent, struct job *job);

/* ready.c: the clerk's part, for ranks that are all here; as the leader says, to make them ready to go on; and to begin. */
void hello_run(struct job *job);
void hello_run_try(struct job *job);
void hello_run_go(struct job *job);
/* The first of the ranks that are here. */
struct hello_part *hello_first(const struct hello_job *h);
/* Ports of TCP that nobody listens at now; 0: there is none. */
void hello_find_ports(uint16_t ports[2]);

/* stop.c: where processes take the places of others, and what must hold then does not, nothing is offered to any. Event loop. */
void hello_check(struct agent *agent, struct hello_job *h);
/* Of ranks that are ready to go on as the leader of several nodes says: whether it holds. Else nothing is offered to them, and each notice says why. */
bool hello_holds(struct agent *agent, struct hello_job *h);

/* tell.c */
void hello_refuse_one(struct client *client, const char *why);
/*
 * From here on all of them go on so, or begin so: one that has not been told when this agent dies is told by the next one. First all is noted, since the first
 * session that says whose it is stands for all.
 */
void hello_settle(struct hello_job *h);
void hello_welcome(struct agent *agent, struct hello_job *h, size_t i);

#endif
