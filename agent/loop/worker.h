/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that does jobs in order, so that the event loop always answers quickly. */
#ifndef TPCK_AGENT_LOOP_WORKER_H
#define TPCK_AGENT_LOOP_WORKER_H

#include <pthread.h>
#include <stdbool.h>

struct agent;

/* First member of every job. `run` is called on the worker, then `done` in the event loop. Whoever gives a job owns it again then. */
struct job {
	void (*run)(struct job *job);
	void (*done)(struct agent *agent, struct job *job);
	struct job *next;
};

struct job_queue {
	struct job *head, **tail;
};

struct worker {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct job_queue waiting;
	bool stop;
};

/* 0 or -errno. */
int worker_start(struct worker *worker);
void worker_give(struct worker *worker, struct job *job);
/* Waits for the job it is at; jobs that wait are dropped. */
void worker_stop(struct worker *worker);

/* Where finished jobs wait for the event loop (loop.c): an eventfd, which is readable when there are some; or -errno. */
int outbox_make(void);
/* Calls `done` of what is finished. */
void outbox_deliver(struct agent *agent);
/* Hands a job in as finished. Any thread. */
void outbox_post(struct job *job);

#endif
