/* SPDX-License-Identifier: Apache-2.0 */
/* HELLO: a new generation, its session folder, and what it may go on from. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/store/file.h"
#include "tools/agent/identity.h"
#include "tools/agent/offer.h"

#define GENERATION "generation"
/* How long a starting process waits for an earlier one of the same program to be quite gone. */
#define PREDECESSOR_WAIT_NS 3000000000ull

struct hello_job {
	struct job job; /* first */
	struct agent *agent;
	struct client *client;
	struct tpck_hello hello;
	char *identity;
	struct memory_candidate *memory;
	size_t memory_count;
	bool conflict;
	int conflict_pid;
	/* found by the clerk */
	int rc;
	struct tpck_error error;
	struct tpck_program *program;
	struct tpck_session *session;
	struct offer offer;
};

/* ---- generations -------------------------------------------------------------------------- */

static int greatest_of_store(void *context, const char *name)
{
	uint64_t *greatest = context;
	struct tpck_point point;

	if (tpck_checkpoint_name_parse(name, &point) == 0 && point.generation > *greatest)
		*greatest = point.generation;
	return 0;
}

static void greatest_of_text(char *text, uint64_t *greatest)
{
	uint64_t said = strtoull(text, NULL, 10);

	if (said > *greatest)
		*greatest = said;
	free(text);
}

/* One more than any generation that left a trace here or in the store, and noted in all. */
static uint64_t new_generation(struct agent *agent)
{
	char path[TPCK_PATH_MAX], text[32], *said;
	struct tpck_session_name session;
	struct tpck_error err = {0};
	uint64_t greatest = 0;
	struct dirent *entry;
	DIR *folder = opendir(agent->folder);

	while (folder && (entry = readdir(folder)))
		if (tpck_session_name_parse(entry->d_name, &session) == 0 && session.generation > greatest)
			greatest = session.generation;
	if (folder)
		closedir(folder);
	tpck_path_join(path, sizeof path, agent->folder, GENERATION);
	if (tpck_file_read(path, 64, &said, NULL, NULL) == 0)
		greatest_of_text(said, &greatest);
	for (size_t i = 0; i < agent->tiers.count; i++) {
		struct tpck_tier *tier = agent->tiers.tier[i];

		tier->operations->list(tier, "", greatest_of_store, &greatest, NULL);
		if (tier->operations->get_text(tier, GENERATION, 64, &said, NULL, NULL) == 0)
			greatest_of_text(said, &greatest);
	}
	snprintf(text, sizeof text, "%" PRIu64 "\n", greatest + 1);
	if (tpck_file_write(path, text, strlen(text), 0, &err))
		tpck_log_warn("%s", err.text);
	/* A store that cannot be written is said by what needs it. */
	for (size_t i = 0; i < agent->tiers.count; i++)
		(void)agent->tiers.tier[i]->operations->mark(agent->tiers.tier[i], GENERATION, text, NULL);
	return greatest + 1;
}

/* ---- the clerk's part --------------------------------------------------------------------- */

static void hello_run(struct job *job)
{
	struct hello_job *h = (struct hello_job *)job;
	struct agent *agent = h->agent;
	struct tpck_error store = {0};
	struct offer_request request = {
		.identity = h->identity, .rank = h->hello.rank, .ordinal = h->hello.ordinal,
		.wanted_step = h->hello.resume_step, .memory = h->memory, .memory_count = h->memory_count,
	};
	struct tpck_session_name name = {0, h->hello.rank, h->hello.ordinal};
	int store_rc = tpck_durable_tier_check(agent->tier, &store);

	h->program = program_of(agent, h->identity, &h->error);
	if (!h->program) {
		h->rc = -ENOMEM;
		return;
	}
	name.generation = new_generation(agent);
	h->rc = tpck_session_create(&h->session, agent->folder, &name, h->identity, &h->error);
	if (h->rc)
		return;
	request.program = h->program;
	request.session_path = h->session->path;
	/* What somebody else could have put there is not looked at. */
	request.store = store_rc != -EPERM;
	if ((h->hello.flags & TPCK_HELLO_RESUME) && !h->conflict)
		offer_choose(agent, &request, &h->offer);
	else if (h->conflict)
		snprintf(h->offer.notice, sizeof h->offer.notice,
			 "not resuming: process %d of the same program is still running", h->conflict_pid);
	/* From now on a start of this program may find something. */
	if (tpck_program_mark(h->program, agent->folder, store_rc ? NULL : &agent->tiers, true, &store))
		store_rc = store_rc ? store_rc : -store.code;
	if (store_rc) {
		size_t used = strlen(h->offer.notice);

		agent_complain(&store);
		snprintf(h->offer.notice + used, sizeof h->offer.notice - used, "%ssnapshots stay in memory only: %.300s",
			 used ? "; " : "", store.text);
	}
}

/* ---- the event loop's part ---------------------------------------------------------------- */

static void give_back_candidates(struct agent *agent, struct hello_job *h)
{
	for (size_t i = 0; i < h->memory_count; i++) {
		struct memory_candidate *candidate = &h->memory[i];

		candidate->live->jobs--;
		if (candidate->bad) {
			atomic_store(&candidate->live->images[candidate->image].map.header->state,
				     TPCK_IMAGE_ABANDONED);
			live_retire(agent, candidate->live);
		}
		live_unpin(agent, candidate->live, candidate->image);
	}
}

static void refuse(struct hello_job *h, const char *why)
{
	struct tpck_welcome welcome = {0};

	tpck_log_warn("process %d is not served: %s", (int)h->client->pid, why);
	snprintf(welcome.notice, sizeof welcome.notice, "%s", why);
	client_send(h->client, TPCK_MSG_WELCOME, &welcome, sizeof welcome);
}

static void welcome(struct agent *agent, struct hello_job *h)
{
	struct tpck_control *control = h->session->control;
	struct tpck_welcome w = {.generation = h->session->name.generation};
	struct live *live;

	if (h->offer.made) {
		control->parent_generation = h->offer.point.generation;
		control->resume_step = h->offer.point.step;
		w.offer = 1;
		w.offer_generation = h->offer.point.generation;
		w.offer_step = h->offer.point.step;
		w.log_sequence = h->offer.cut.sequence;
		w.log_offset = h->offer.cut.offset;
		w.tries = tpck_program_tries(h->program, &h->offer.point);
	}
	control->pid = h->client->pid;
	snprintf(w.session, sizeof w.session, "%s", h->session->path);
	snprintf(w.notice, sizeof w.notice, "%s", h->offer.notice);
	live = live_new(agent, h->session, h->client->pid);
	if (!live) {
		refuse(h, "out of memory");
		tpck_session_close(h->session);
		return;
	}
	live->program = h->program;
	live->world = h->hello.world;
	live->base = h->offer.base;
	h->offer.base = NULL;
	tpck_log_info("process %d is generation %" PRIu64 "%s%s", (int)live->pid, w.generation,
		      w.notice[0] ? "; " : "", w.notice);
	if (h->client->gone) {
		live_died(agent, live);
		return;
	}
	live_attach(live, h->client);
	client_send(h->client, TPCK_MSG_WELCOME, &w, sizeof w);
}

static void hello_done(struct agent *agent, struct job *job)
{
	struct hello_job *h = (struct hello_job *)job;

	agent->jobs--;
	h->client->busy = false;
	give_back_candidates(agent, h);
	if (h->rc)
		refuse(h, h->error.text);
	else
		welcome(agent, h);
	tpck_manifest_free(h->offer.base);
	if (h->client->gone)
		client_close(agent, h->client);
	free(h->memory);
	free(h->identity);
	free(h);
}

/* Committed images of processes that are gone, pinned. */
static void gather_candidates(struct agent *agent, struct hello_job *h)
{
	size_t room = 0;

	for (struct live *live = agent->lives; live; live = live->next)
		room += live->life == LIFE_DEAD ? live->image_count : 0;
	h->memory = calloc(room + 1, sizeof *h->memory);
	if (!h->memory)
		return;
	for (struct live *live = agent->lives; live; live = live->next) {
		for (unsigned i = 0; live->life == LIFE_DEAD && i < live->image_count; i++) {
			struct tpck_image_header *header = live->images[i].map.header;
			struct memory_candidate *candidate = &h->memory[h->memory_count];

			if (atomic_load(&header->state) != TPCK_IMAGE_COMMITTED)
				continue;
			atomic_fetch_add(&header->pins, 1);
			live->jobs++;
			candidate->live = live;
			candidate->image = i;
			candidate->point = (struct tpck_point){header->generation, header->step};
			candidate->resumable = header->resumable;
			candidate->cut = (struct tpck_cut){header->log_sequence, header->log_offset};
			candidate->identity = live->session->identity;
			candidate->identity_differs = strcmp(live->session->identity, h->identity) != 0;
			snprintf(candidate->image_path, sizeof candidate->image_path, "%s", live->images[i].path);
			snprintf(candidate->session_path, sizeof candidate->session_path, "%s", live->session->path);
			h->memory_count++;
		}
	}
}

/* An earlier process of the same program that is not settled yet, or NULL. */
static struct live *predecessor(struct agent *agent, const struct client *client, const char *identity)
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

static bool defer(struct client *client, const struct tpck_hello *hello, const char *identity)
{
	uint64_t now = tpck_clock_monotonic_ns();

	if (client->deferred)
		return now < client->deferred_until_ns;
	client->deferred = malloc(sizeof *hello + strlen(identity) + 1);
	if (!client->deferred)
		return false;
	memcpy(client->deferred, hello, sizeof *hello);
	strcpy(client->deferred + sizeof *hello, identity);
	client->deferred_until_ns = now + PREDECESSOR_WAIT_NS;
	return true;
}

void hello_begin(struct agent *agent, struct client *client, const struct tpck_hello *hello, const char *identity)
{
	struct hello_job *h;
	struct live *before;

	agent->served = true;
	agent->nobody_returns = false;
	live_poll(agent);
	before = predecessor(agent, client, identity);
	if (before && (before->life == LIFE_SETTLING || (hello->flags & TPCK_HELLO_RESUME)) &&
	    defer(client, hello, identity))
		return;
	h = calloc(1, sizeof *h);
	if (h)
		h->identity = strdup(identity);
	if (!h || !h->identity) {
		free(h);
		client_close(agent, client);
		return;
	}
	h->job.run = hello_run;
	h->job.done = hello_done;
	h->agent = agent;
	h->client = client;
	h->hello = *hello;
	h->conflict = before != NULL;
	h->conflict_pid = before ? (int)before->pid : 0;
	if (hello->flags & TPCK_HELLO_RESUME)
		gather_candidates(agent, h);
	free(client->deferred);
	client->deferred = NULL;
	client->busy = true;
	agent->jobs++;
	worker_give(&agent->clerk, &h->job);
}

void hello_consider(struct agent *agent)
{
	struct client *next;

	for (struct client *client = agent->clients; client; client = next) {
		next = client->next;
		if (client->deferred && !client->busy)
			hello_begin(agent, client, (struct tpck_hello *)client->deferred,
				    client->deferred + sizeof(struct tpck_hello));
	}
}

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
		live->world = hello->world;
		w.images = live->image_count;
		snprintf(w.session, sizeof w.session, "%s", live->session->path);
		client_send(client, TPCK_MSG_WELCOME, &w, sizeof w);
		for (unsigned i = 0; i < live->image_count; i++)
			live_held(agent, live, i);
		return;
	}
	snprintf(w.notice, sizeof w.notice, "generation %" PRIu64 " is not known to the agent any more",
		 hello->generation);
	w.generation = 0;
	client_send(client, TPCK_MSG_WELCOME, &w, sizeof w);
}
