/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that does jobs in order, so that the event loop always answers quickly. */
#ifndef TPCK_TOOLS_AGENT_WORKER_H
#define TPCK_TOOLS_AGENT_WORKER_H

#include <pthread.h>
#include <stdbool.h>

struct agent;

/* First member of every job. `run` is called on the worker, then `done` in the event loop. */
struct job {
	void (*run)(struct job *job);
	void (*done)(struct agent *agent, struct job *job);
	struct job *next;
};

struct job_queue {
	struct job *head, **tail;
};

/* Where finished jobs wait for the event loop. */
struct outbox {
	pthread_mutex_t lock;
	struct job_queue finished;
	int event; /* eventfd: readable when there are some */
};

struct worker {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct job_queue waiting;
	struct outbox *outbox;
	bool stop;
};

int outbox_make(struct outbox *outbox);
/* Calls `done` of what is finished. */
void outbox_deliver(struct outbox *outbox, struct agent *agent);
/* Hands a job in as finished. Any thread. */
void outbox_post(struct outbox *outbox, struct job *job);

int worker_start(struct worker *worker, struct outbox *outbox);
void worker_give(struct worker *worker, struct job *job);
/* Waits for the job it is at; jobs that wait are dropped. */
void worker_stop(struct worker *worker);

#endif
