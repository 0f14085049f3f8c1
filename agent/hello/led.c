/* SPDX-License-Identifier: Apache-2.0 */
/* The start of ranks here as the leader of their launch says. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/hello/hello_private.h"
#include "agent/session/clerk.h"

uint32_t hello_waiting(const struct agent *agent, const struct launch *launch, uint64_t *until_ns)
{
	uint32_t waiting = 0;

	*until_ns = UINT64_MAX;
	for (const struct client *client = agent->clients; client; client = client->next)
		if (client->launch == launch && client->deferred && !client->busy) {
			waiting++;
			if (client->deferred_until_ns < *until_ns)
				*until_ns = client->deferred_until_ns;
		}
	return waiting;
}

uint64_t hello_ports(void)
{
	uint16_t ports[2] = {0};

	hello_find_ports(ports);
	return (uint64_t)ports[1] << 16 | ports[0];
}

/* Those that wait. NULL: nobody does, or there is no memory. */
static struct hello_job *job_of_waiting(struct agent *agent, struct launch *launch)
{
	uint64_t until;
	uint32_t waiting = hello_waiting(agent, launch, &until);
	struct hello_job *h = waiting ? hello_job_new(agent, launch, waiting) : NULL;
	struct client *next;

	for (struct client *client = agent->clients; h && client; client = next) {
		const char *identity = client->deferred + sizeof(struct tpck_hello);

		next = client->next;
		if (client->launch == launch && client->deferred && !client->busy)
			hello_job_add(h, client, (struct tpck_hello *)client->deferred, identity, hello_predecessor(agent, client, identity));
	}
	if (h && h->count == 0) {
		hello_job_free(h);
		h = NULL;
	}
	return h;
}

static void try_done(struct agent *agent, struct job *job)
{
	struct hello_job *h = (struct hello_job *)job;
	bool done = h->failed == h->count && hello_holds(agent, h);
	size_t i = h->failed == h->count ? 0 : h->failed;

	loop.jobs--;
	launch_apart->staged(agent, h->launch, done ? LAUNCH_STAGED_ALL : h->gone ? LAUNCH_STAGED_GONE : LAUNCH_STAGED_BAD, h->part[i].hello.rank,
			     h->part[i].rc ? h->part[i].error.text : h->offer[i].notice);
}

void hello_try(struct agent *agent, struct launch *launch, const struct tpck_point *point, const struct tpck_accord_source *sources,
	       size_t count)
{
	struct hello_job *h = launch->staged ? launch->staged : job_of_waiting(agent, launch);

	if (!h) {
		launch_apart->staged(agent, launch, LAUNCH_STAGED_BAD, 0, "none of its processes is there any more");
		return;
	}
	launch->staged = h;
	h->point = *point;
	free(h->sources);
	h->sources = count ? calloc(count, sizeof *sources) : NULL;
	h->source_count = h->sources ? count : 0;
	if (h->sources)
		memcpy(h->sources, sources, count * sizeof *sources);
	h->job.run = hello_run_try;
	h->job.done = try_done;
	loop.jobs++;
	clerk_give(&h->job);
}

void hello_go(struct agent *agent, struct launch *launch, bool staged, uint64_t ports, const char *notice)
{
	struct hello_job *h = launch->staged ? launch->staged : job_of_waiting(agent, launch);

	launch->staged = NULL;
	if (!h)
		return;
	h->resume = staged;
	h->meeting_ports[0] = (uint16_t)ports;
	h->meeting_ports[1] = (uint16_t)(ports >> 16);
	snprintf(h->obstacle, sizeof h->obstacle, "%.290s", staged ? "" : notice);
	snprintf(h->own.said, sizeof h->own.said, "%s", staged ? notice : "");
	/* Other nodes' ranks may be told already: the store, which is asked next, can take its time. */
	if (staged && h->begun && h->generation == launch->generation)
		hello_settle(h);
	h->job.run = hello_run_go;
	h->job.done = hello_done;
	loop.jobs++;
	clerk_give(&h->job);
}

void hello_each_staged(struct agent *agent, struct launch *launch,
		       void (*visit)(struct agent *agent, struct launch *launch, const struct tpck_hello *hello, const char *identity))
{
	struct hello_job *h = launch->staged;

	for (size_t i = 0; h && i < h->count; i++)
		if (!h->part[i].client->gone)
			visit(agent, launch, &h->part[i].hello, h->part[i].identity);
}

void hello_refuse(struct agent *agent, struct launch *launch, const char *why)
{
	struct client *next;

	for (struct client *client = agent->clients; client; client = next) {
		next = client->next;
		if (client->launch != launch || !client->deferred || client->busy)
			continue;
		hello_refuse_one(client, why);
		free(client->deferred);
		client->deferred = NULL;
		client->launch = NULL;
		launch->hellos--;
	}
}
