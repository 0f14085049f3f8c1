/* SPDX-License-Identifier: Apache-2.0 */
/* Worker threads of the agent. */
#include "config.h"

#include "agent/loop/worker.h"
#include "runtime/base/lock_order.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void queue_init(struct job_queue *queue)
{
	queue->head = NULL;
	queue->tail = &queue->head;
}

static void queue_put(struct job_queue *queue, struct job *job)
{
	job->next = NULL;
	*queue->tail = job;
	queue->tail = &job->next;
}

static struct job *queue_take(struct job_queue *queue)
{
	struct job *job = queue->head;

	if (job) {
		queue->head = job->next;
		if (!queue->head)
			queue->tail = &queue->head;
	}
	return job;
}

static struct {
	pthread_mutex_t lock;
	struct job_queue finished;
	int event;
} outbox = {.lock = PTHREAD_MUTEX_INITIALIZER};

int outbox_make(void)
{
	queue_init(&outbox.finished);
	outbox.event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return outbox.event < 0 ? -errno : outbox.event;
}

void outbox_deliver(struct agent *agent)
{
	uint64_t count;
	struct job *job;

	(void)!read(outbox.event, &count, sizeof count);
	for (;;) {
		pthread_mutex_lock(&outbox.lock);
		job = queue_take(&outbox.finished);
		pthread_mutex_unlock(&outbox.lock);
		if (!job)
			return;
		job->done(agent, job);
	}
}

void outbox_post(struct job *job)
{
	uint64_t one = 1;

	pthread_mutex_lock(&outbox.lock);
	queue_put(&outbox.finished, job);
	pthread_mutex_unlock(&outbox.lock);
	(void)!write(outbox.event, &one, sizeof one);
}

static void *work(void *argument)
{
	struct worker *worker = argument;

	pthread_mutex_lock(&worker->lock);
	while (!worker->stop) {
		struct job *job = queue_take(&worker->waiting);

		if (!job) {
			pthread_cond_wait(&worker->wake, &worker->lock);
			continue;
		}
		pthread_mutex_unlock(&worker->lock);
		job->run(job);
		outbox_post(job);
		pthread_mutex_lock(&worker->lock);
	}
	pthread_mutex_unlock(&worker->lock);
	return NULL;
}

int worker_start(struct worker *worker)
{
	sigset_t all, before;
	int rc;

	memset(worker, 0, sizeof *worker);
	pthread_mutex_init(&worker->lock, NULL);
	pthread_cond_init(&worker->wake, NULL);
	queue_init(&worker->waiting);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&worker->thread, NULL, work, worker);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -rc;
}

void worker_give(struct worker *worker, struct job *job)
{
	pthread_mutex_lock(&worker->lock);
	queue_put(&worker->waiting, job);
	pthread_cond_signal(&worker->wake);
	pthread_mutex_unlock(&worker->lock);
}

void worker_stop(struct worker *worker)
{
	pthread_mutex_lock(&worker->lock);
	worker->stop = true;
	pthread_cond_signal(&worker->wake);
	pthread_mutex_unlock(&worker->lock);
	pthread_join(worker->thread, NULL);
}
