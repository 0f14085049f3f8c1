/* SPDX-License-Identifier: Apache-2.0 */
/* HELLO: who comes, waits for whom, and what becomes of it. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/copies/copies.h"
#include "agent/hello/hello_private.h"
#include "agent/peers/peers.h"
#include "agent/programs/identity_text.h"
#include "agent/session/clerk.h"
#include "agent/session/own_known.h"
#include "agent/session/welcome.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"

/* How long a starting process waits for an earlier one of the same program to be quite gone. */
#define PREDECESSOR_WAIT_NS 3000000000ull
#define SETTLES_LOOK_NS 100000000ull
/* A process that runs already does not wait that long for another node, since the library gives up soon behind it; nor does anybody for mpirun. */
#define APART_WAIT_NS 25000000000ull

static void give_back_candidates(struct hello_part *part)
{
	for (size_t i = 0; i < part->memory_count; i++) {
		struct memory_candidate *candidate = &part->memory[i];

		candidate->live->jobs--;
		if (candidate->bad) {
			atomic_store(&candidate->live->images[candidate->image].map.header->state,
				     TPCK_IMAGE_ABANDONED);
			live_retire(candidate->live);
		}
		live_unpin(candidate->live, candidate->image);
	}
}

void hello_job_free(struct hello_job *h)
{
	for (size_t i = 0; i < h->count; i++) {
		free(h->part[i].memory);
		free(h->part[i].identity);
	}
	tpck_manifest_free(h->base);
	free(h->sources);
	free(h->part);
	free(h->offer);
	free(h);
}

bool hello_keep(struct client *client, const struct tpck_hello *hello, const char *identity)
{
	if (client->deferred)
		return true;
	client->deferred = malloc(sizeof *hello + strlen(identity) + 1);
	if (!client->deferred)
		return false;
	memcpy(client->deferred, hello, sizeof *hello);
	strcpy(client->deferred + sizeof *hello, identity);
	return true;
}

/* All ranks are here, and what they can go on from is in parts on several nodes: as if some of them were elsewhere. */
static void begin_accord(struct agent *agent, struct hello_job *h)
{
	struct launch *launch = h->launch;
	struct client *next;

	launch->hellos++; /* it stays till the end of this */
	if (!launch->apart) {
		launch->accord = launch_apart->create();
		launch->apart = launch->accord != NULL;
	}
	for (size_t i = 0; i < h->count; i++) {
		struct hello_part *part = &h->part[i];

		part->client->busy = false;
		give_back_candidates(part);
		if (part->client->gone || !launch->apart || !hello_keep(part->client, &part->hello, part->identity))
			client_close(agent, part->client);
		else
			part->client->deferred_until_ns = tpck_clock_monotonic_ns() + RANKS_WAIT_NS;
	}
	hello_job_free(h);
	for (struct client *client = agent->clients; client; client = next) {
		next = client->next;
		if (client->launch == launch && client->deferred)
			launch_apart->came(agent, launch, (struct tpck_hello *)client->deferred, client->deferred + sizeof(struct tpck_hello));
	}
	launch_said(agent, launch, 1);
}

void hello_done(struct agent *agent, struct job *job)
{
	struct hello_job *h = (struct hello_job *)job;
	struct hello_part *first;

	loop.jobs--;
	if (h->in_parts) {
		begin_accord(agent, h);
		return;
	}
	if (h->base) {
		tpck_manifest_free(h->launch->base);
		h->launch->base = h->base;
		h->base = NULL;
	}
	h->launch->own = h->launch->own || h->own.chosen;
	hello_check(agent, h);
	first = hello_first(h);
	if (h->launch->own && first->program && !(first->hello.flags & TPCK_HELLO_OWN))
		own_tried(first->program);
	hello_settle(h);
	for (size_t i = 0; i < h->count; i++) {
		struct hello_part *part = &h->part[i];

		part->client->busy = false;
		part->client->launch = NULL;
		give_back_candidates(part);
		if (part->rc)
			hello_refuse_one(part->client, part->error.text);
		else
			hello_welcome(agent, h, i);
		if (part->client->gone)
			client_close(agent, part->client);
	}
	if (h->launch->apart)
		launch_apart->welcomed(h->launch);
	launch_said(agent, h->launch, (uint32_t)h->count);
	hello_job_free(h);
}

/* Committed images of processes that are gone, pinned. */
static void gather_candidates(const struct hello_job *h, struct hello_part *part)
{
	struct agent *agent = h->agent;
	size_t room = 0;

	for (struct live *live = agent->lives; live; live = live->next)
		room += live->life == LIFE_DEAD ? live->image_count : 0;
	part->memory = calloc(room + 1, sizeof *part->memory);
	if (!part->memory)
		return;
	for (struct live *live = agent->lives; live; live = live->next) {
		for (unsigned i = 0; live->life == LIFE_DEAD && i < live->image_count; i++) {
			struct tpck_image_header *header = live->images[i].map.header;
			struct memory_candidate *candidate = &part->memory[part->memory_count];

			/* Of what only is held the leader may learn that it was committed elsewhere. */
			if (live_image_of(live, header->step) != (int)i ||
			    (!h->launch->apart && atomic_load(&header->state) != TPCK_IMAGE_COMMITTED))
				continue;
			atomic_fetch_add(&header->pins, 1);
			live->jobs++;
			candidate->live = live;
			candidate->image = i;
			candidate->point = (struct tpck_point){header->generation, header->step};
			candidate->resumable = header->resumable;
			candidate->compared = live->images[i].good && live->images[i].good_step == header->step;
			candidate->cut = (struct tpck_cut){header->log_sequence, header->log_offset};
			candidate->identity = live->session->identity;
			candidate->identity_differs = strcmp(live->session->identity, part->identity) != 0;
			snprintf(candidate->image_path, sizeof candidate->image_path, "%s", live->images[i].path);
			snprintf(candidate->session_path, sizeof candidate->session_path, "%s", live->session->path);
			part->memory_count++;
		}
	}
}

struct live *hello_predecessor(struct agent *agent, const struct client *client, const char *identity)
{
	for (struct live *live = agent->lives; live; live = live->next) {
		if (strcmp(live->session->identity, identity) != 0)
			continue;
		/* The same process, new program text: execve ended what it was. */
		if (live->life == LIFE_RUNNING && live->pid == client->pid)
			live_died(agent, live);
		if (live->life == LIFE_RUNNING || live->life == LIFE_SETTLING)
			return live;
	}
	return NULL;
}

/* settles: whoever was there before has died, and its last snapshots are being checked, which takes as long as they are large. */
static bool defer(struct client *client, const struct tpck_hello *hello, const char *identity, bool settles)
{
	uint64_t now = tpck_clock_monotonic_ns();

	if (client->deferred && settles && now >= client->deferred_until_ns)
		client->deferred_until_ns = now + SETTLES_LOOK_NS;
	if (client->deferred)
		return now < client->deferred_until_ns;
	client->deferred_until_ns = now + PREDECESSOR_WAIT_NS;
	return hello_keep(client, hello, identity);
}

/* Whether a process can take an offer. */
static bool asks(const struct tpck_hello *hello)
{
	return (hello->flags & (TPCK_HELLO_RESUME | TPCK_HELLO_LATE)) == TPCK_HELLO_RESUME;
}

struct hello_job *hello_job_new(struct agent *agent, struct launch *launch, size_t room)
{
	struct hello_job *h = calloc(1, sizeof *h);

	if (!h)
		return NULL;
	h->part = calloc(room, sizeof *h->part);
	h->offer = calloc(room, sizeof *h->offer);
	if (!h->part || !h->offer) {
		hello_job_free(h);
		return NULL;
	}
	h->job.run = hello_run;
	h->job.done = hello_done;
	h->agent = agent;
	h->launch = launch;
	return h;
}

void hello_job_add(struct hello_job *h, struct client *client, const struct tpck_hello *hello, const char *identity,
		   const struct live *before)
{
	struct hello_part *part = &h->part[h->count];

	part->identity = strdup(identity);
	if (!part->identity) {
		client_close(h->agent, client);
		return;
	}
	h->count++;
	part->client = client;
	part->hello = *hello;
	part->conflict_pid = before ? (int)before->pid : 0;
	if (before)
		snprintf(h->obstacle, sizeof h->obstacle, "not resuming: process %d of the same program is still running",
			 part->conflict_pid);
	if (hello->flags & TPCK_HELLO_RESUME)
		gather_candidates(h, part);
	free(client->deferred);
	client->deferred = NULL;
	client->busy = true;
}

static void job_give(struct hello_job *h)
{
	h->resume = h->resume && !h->obstacle[0];
	if (h->count == 0) {
		hello_job_free(h);
		return;
	}
	loop.jobs++;
	clerk_give(&h->job);
}

/* The ranks of a launch whose HELLOs wait for one another. */
static void gather_ranks(struct agent *agent, struct launch *launch)
{
	uint64_t now = tpck_clock_monotonic_ns();
	uint32_t here = 0, missing = 0;
	bool late = false;
	struct hello_job *h;
	struct client *next;

	for (struct client *client = agent->clients; client; client = client->next)
		if (client->launch == launch && client->deferred) {
			here++;
			late = late || now >= client->deferred_until_ns;
		}
	/* Who began without asking will not come to any step but its own. */
	if (here == 0 || (here < launch->world && !late && !launch->alone_any))
		return;
	h = hello_job_new(agent, launch, here);
	if (!h)
		return;
	h->resume = here == launch->world;
	while (missing < launch->world - 1 && ranks_here_find(&launch->here, missing))
		missing++;
	if (launch->alone_any)
		snprintf(h->obstacle, sizeof h->obstacle, "not resuming: another rank of this job has begun from its beginning");
	else if (here < launch->world)
		snprintf(h->obstacle, sizeof h->obstacle, "not resuming: rank %u did not come within %.0f s", missing,
			 (double)RANKS_WAIT_NS / 1e9);
	for (struct client *client = agent->clients; client; client = next) {
		next = client->next;
		if (client->launch == launch && client->deferred)
			hello_job_add(h, client, (struct tpck_hello *)client->deferred, client->deferred + sizeof(struct tpck_hello),
				      hello_predecessor(agent, client, client->deferred + sizeof(struct tpck_hello)));
	}
	job_give(h);
}

/* Whether what is here of this program's ranks is of a launch that was on several nodes: one node's agent alone does not put that
 * together. */
static bool was_apart(struct agent *agent, const char *identity)
{
	char form[IDENTITY_FORM];

	identity_form(identity, form);
	for (const struct live *live = agent->lives; live; live = live->next)
		if (live->session->control->apart && identity_form_among(live->session->identity, form, sizeof form) >= 0)
			return true;
	return peers_on() && copies_parts_held(form, sizeof form);
}

void hello_begin(struct agent *agent, struct client *client, const struct tpck_hello *hello, const char *identity)
{
	struct hello_job *h;
	struct live *before;

	agent->served = true;
	agent->nobody_returns = false;
	peers_asked();
	live_poll(agent);
	peers_master(hello->master);
	if (welcome_again(agent, client, hello, identity))
		return;
	before = hello_predecessor(agent, client, identity);
	if (before && before->life == LIFE_SETTLING) {
		live_hurry(agent, before);
		before = hello_predecessor(agent, client, identity);
	}
	if (before && (before->life == LIFE_SETTLING || (hello->flags & TPCK_HELLO_RESUME)) &&
	    defer(client, hello, identity, before->life == LIFE_SETTLING))
		return;
	client->launch = launch_join(agent, hello, hello->world > 1 && asks(hello) && was_apart(agent, identity));
	if (!client->launch) {
		tpck_log_warn("process %d says that it is rank %u of %u", (int)client->pid, hello->rank, hello->world);
		client_close(agent, client);
		return;
	}
	client->launch->hellos++;
	if (client->launch->apart) {
		uint64_t wait_ns = asks(hello) && !peers_awaited() ? RANKS_WAIT_NS : APART_WAIT_NS;

		if (hello_keep(client, hello, identity)) {
			client->deferred_until_ns = tpck_clock_monotonic_ns() + wait_ns;
			launch_apart->came(agent, client->launch, hello, identity);
			return;
		}
		client_close(agent, client);
		return;
	}
	if (client->launch->world > 1 && asks(hello)) {
		if (hello_keep(client, hello, identity)) {
			client->deferred_until_ns = tpck_clock_monotonic_ns() + RANKS_WAIT_NS;
			return;
		}
		client_close(agent, client);
		return;
	}
	if (client->launch->world > 1)
		client->launch->alone_any = true;
	h = hello_job_new(agent, client->launch, 1);
	if (!h) {
		client_close(agent, client);
		return;
	}
	/* An offer that a process of many could not take is not made. */
	h->resume = (hello->flags & TPCK_HELLO_RESUME) && client->launch->world == 1;
	hello_job_add(h, client, hello, identity, before);
	job_give(h);
}

static void consider(struct agent *agent)
{
	struct client *next;

	for (struct client *client = agent->clients; client; client = next) {
		next = client->next;
		if (client->deferred && !client->busy && !client->launch)
			hello_begin(agent, client, (struct tpck_hello *)client->deferred,
				    client->deferred + sizeof(struct tpck_hello));
	}
	for (struct launch *launch = agent->launches; launch; launch = launch->next)
		if (launch->world > 1 && !launch->apart)
			gather_ranks(agent, launch);
}

static uint64_t deadline(const struct agent *agent)
{
	uint64_t soonest = UINT64_MAX;

	for (const struct client *client = agent->clients; client; client = client->next)
		if (client->deferred && client->deferred_until_ns < soonest)
			soonest = client->deferred_until_ns;
	return soonest;
}

const struct loop_part hello_loop = {.consider = consider, .deadline = deadline};

/* ------------------------------------------------------------------------------------------- */

void hello_adopt(struct agent *agent, struct client *client, const struct tpck_hello *hello)
{
	struct tpck_welcome w = {.generation = hello->generation};

	agent->served = true;
	agent->nobody_returns = false;
	for (struct live *live = agent->lives; live; live = live->next) {
		const struct tpck_session_name *name = &live->session->name;

		if (name->generation != hello->generation || name->rank != hello->rank ||
		    name->ordinal != hello->ordinal || live->life != LIFE_RUNNING || live->client)
			continue;
		live_attach(live, client);
		w.images = live->image_count;
		snprintf(w.session, sizeof w.session, "%s", live->session->path);
		client_send(client, TPCK_MSG_WELCOME, &w, sizeof w);
		for (unsigned i = 0; i < live->image_count; i++)
			live_held(live, i);
		launch_injected(agent, live->launch);
		return;
	}
	snprintf(w.notice, sizeof w.notice, "generation %" PRIu64 " is not known to the agent any more",
		 hello->generation);
	w.generation = 0;
	client_send(client, TPCK_MSG_WELCOME, &w, sizeof w);
}
