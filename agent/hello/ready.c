/* SPDX-License-Identifier: Apache-2.0 */
/* What the clerk makes ready for processes that have said HELLO: a generation, sessions, and what they may go on from. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/copies/copies.h"
#include "agent/hello/hello_private.h"
#include "agent/loop/trouble.h"
#include "agent/peers/peers.h"
#include "agent/programs/met_programs.h"
#include "runtime/base/free_port.h"
#include "runtime/base/log.h"
#include "runtime/store/file.h"
#include "runtime/store/stage.h"

#define GENERATION "generation"

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
uint64_t hello_generation(void)
{
	char path[TPCK_PATH_MAX], text[32], *said;
	struct tpck_session_name session;
	struct tpck_error err = {0};
	uint64_t greatest = peers_generation();
	struct dirent *entry;
	DIR *folder = opendir(home.folder);

	while (folder && (entry = readdir(folder)))
		if (tpck_session_name_parse(entry->d_name, &session) == 0 && session.generation > greatest)
			greatest = session.generation;
	if (folder)
		closedir(folder);
	tpck_path_join(path, sizeof path, home.folder, GENERATION);
	if (tpck_file_read(path, 64, &said, NULL, NULL) == 0)
		greatest_of_text(said, &greatest);
	for (size_t i = 0; i < home.tiers.count; i++) {
		struct tpck_tier *tier = home.tiers.tier[i];

		tier->operations->list(tier, "", greatest_of_store, &greatest, NULL);
		if (tier->operations->get_text(tier, GENERATION, 64, &said, NULL, NULL) == 0)
			greatest_of_text(said, &greatest);
	}
	snprintf(text, sizeof text, "%" PRIu64 "\n", greatest + 1);
	if (tpck_file_write(path, text, strlen(text), 0, &err))
		tpck_log_warn("%s", err.text);
	/* A store that cannot be written is said by what needs it. */
	for (size_t i = 0; i < home.tiers.count; i++)
		(void)home.tiers.tier[i]->operations->mark(home.tiers.tier[i], GENERATION, text, NULL);
	return greatest + 1;
}

/* ---- the clerk's part --------------------------------------------------------------------- */

static void add_notice(struct offer *offer, const char *text)
{
	size_t used = strlen(offer->notice);

	snprintf(offer->notice + used, sizeof offer->notice - used, "%s%s", used ? "; " : "", text);
}

static void begin_session(struct hello_job *h, struct hello_part *part)
{
	struct tpck_session_name name = {h->launch->generation, part->hello.rank, part->hello.ordinal};

	part->program = program_of(part->identity, &part->error);
	part->rc = part->program ? tpck_session_create(&part->session, home.folder, &name, part->identity, &part->error)
				 : -ENOMEM;
	if (part->rc)
		return;
	part->session->control->world = h->launch->world;
	part->session->control->apart = h->launch->apart;
	part->session->control->launch = h->launch->key;
}

/* A start that an earlier one did not end well before says what it goes on from, or why from nothing. One line is enough for all ranks. */
static void say_left(struct hello_job *h, size_t i)
{
	const struct hello_part *part = &h->part[i];
	uint64_t before = tpck_program_marked(part->program, home.folder, &home.tiers);
	char text[360];

	if ((part->hello.flags & (TPCK_HELLO_RESUME | TPCK_HELLO_TAKES_OVER)) != TPCK_HELLO_RESUME || part->hello.rank || part->hello.ordinal ||
	    h->offer[i].made || h->offer[i].notice[0] || before >= h->launch->generation)
		return;
	if (tpck_program_say_left(part->program, before, h->offer[i].any, text, sizeof text))
		add_notice(&h->offer[i], text);
}

/* From now on a start of this program may find something. */
static void mark_program(struct hello_job *h, size_t i, int store_rc, struct tpck_error *store)
{
	char text[340];

	if (tpck_program_mark(h->part[i].program, h->launch->generation, home.folder, store_rc ? NULL : &home.tiers, store))
		store_rc = store_rc ? store_rc : -store->code;
	if (!store_rc)
		return;
	trouble_complain(store);
	snprintf(text, sizeof text, "snapshots stay in memory only: %.300s", store->text);
	add_notice(&h->offer[i], text);
}

static struct offer_request request_of(const struct hello_part *part)
{
	return (struct offer_request){
		.identity = part->identity, .rank = part->hello.rank, .ordinal = part->hello.ordinal,
		.wanted_step = part->hello.resume_step, .program = part->program, .memory = part->memory,
		.memory_count = part->memory_count, .session_path = part->session ? part->session->path : NULL,
		.compares = part->hello.flags & TPCK_HELLO_TAKES_OVER,
	};
}

struct hello_part *hello_first(const struct hello_job *h)
{
	struct hello_part *first = h->part;

	for (struct hello_part *part = h->part; part < h->part + h->count; part++)
		if (part->hello.rank < first->hello.rank)
			first = part;
	return first;
}

static void choose(struct hello_job *h, bool store, struct offer_request *requests)
{
	struct hello_part *first = hello_first(h);
	bool bad = true;

	for (size_t i = 0; i < h->count; i++) {
		if (h->part[i].rc || !requests[i].program)
			return;
		requests[i].session_path = h->part[i].session->path;
	}
	h->own = own_start_of(&first->hello, first->program);
	/* A copy here that turns out bad may be good elsewhere, one that comes is compared as it comes. */
	for (int tries = 0; bad && tries < 2; tries++) {
		if (tries)
			copies_fetch(store, copies_first(requests, h->count));
		copies_candidates(requests, h->count);
		offer_choose(store, requests, h->offer, h->count, &h->own, &h->base);
		bad = copies_release(requests, h->count) && !h->offer[0].made && !h->own.chosen;
		/* Grown at its end only: what the sessions' were is as before. */
		for (size_t i = 0; i < h->count; i++)
			h->part[i].memory = requests[i].memory;
	}
	/* One line is enough for all. */
	if (h->own.chosen)
		add_notice(&h->offer[first - h->part], h->own.said);
}

/* Of ranks that did not expect anything to go on from the first one hears what there is of the program as it was started
 * otherwise, as with other ranks. */
static bool is_to_be_told(const struct hello_job *h, const struct hello_part *part)
{
	return !h->resume && h->launch->world > 1 && part->hello.rank == 0 && (part->hello.flags & TPCK_HELLO_RESUME) &&
	       (part->hello.flags & TPCK_HELLO_LATE);
}

/* What other nodes know and have of the program comes here before a generation is chosen. */
static void ask_others(struct hello_job *h, bool store, struct offer_request *requests)
{
	for (size_t i = 0; i < h->count; i++) {
		struct hello_part *part = &h->part[i];

		part->program = program_of(part->identity, &part->error);
		if (!part->program)
			return;
		/* The rank may have run on another node since this one met it. */
		if (home.settings.peers.count)
			tpck_program_refresh(part->program, &home.tiers);
		requests[i] = request_of(part);
		requests[i].told_only = is_to_be_told(h, part);
	}
	if (h->resume || copies_first(requests, h->count)->told_only)
		copies_fetch(store, copies_first(requests, h->count));
	h->in_parts = h->resume && h->launch->world > 1 && !h->launch->apart && copies_first(requests, h->count)->in_parts;
}

void hello_find_ports(uint16_t ports[2])
{
	/* Both at once, so that they are two. */
	int fd[2] = {tpck_free_port(&ports[0]), tpck_free_port(&ports[1])};

	for (int i = 0; i < 2; i++)
		if (fd[i] >= 0)
			close(fd[i]);
}

void hello_run(struct job *job)
{
	struct hello_job *h = (struct hello_job *)job;
	struct offer_request *requests = calloc(h->count, sizeof *requests);
	struct tpck_error store = {0};
	int store_rc = tpck_tier_check(home.tier, &store);

	if (requests)
		ask_others(h, store_rc != -EPERM, requests);
	if (h->in_parts) {
		copies_got();
		free(copies_first(requests, h->count)->other_identity);
		free(requests);
		return;
	}
	if (!h->launch->generation)
		h->launch->generation = hello_generation();
	for (size_t i = 0; i < h->count; i++)
		begin_session(h, &h->part[i]);
	/* What somebody else could have put there is not looked at. */
	if (h->resume && requests)
		choose(h, store_rc != -EPERM, requests);
	copies_got();
	for (size_t i = 0; requests && i < h->count; i++) {
		if (requests[i].told_only)
			offer_tell(store_rc != -EPERM, &requests[i], &h->offer[i]);
		free(requests[i].other_identity);
	}
	free(requests);
	if (h->count > 1)
		hello_find_ports(h->meeting_ports);
	for (size_t i = 0; i < h->count; i++) {
		if (h->obstacle[0])
			add_notice(&h->offer[i], h->obstacle);
		if (h->part[i].rc)
			continue;
		say_left(h, i);
		mark_program(h, i, store_rc, &store);
	}
}

/* ---- the clerk's part where ranks are on several nodes ------------------------------------ */

/* What is there was made for a leader that is gone. */
static void discard_sessions(struct hello_job *h)
{
	char path[TPCK_PATH_MAX];

	for (size_t i = 0; i < h->count; i++) {
		if (!h->part[i].session)
			continue;
		snprintf(path, sizeof path, "%s", h->part[i].session->path);
		tpck_session_close(h->part[i].session);
		h->part[i].session = NULL;
		(void)tpck_session_remove(path);
	}
}

static void begin_all(struct hello_job *h)
{
	if (!h->launch->generation)
		h->launch->generation = hello_generation();
	if (h->begun && h->generation == h->launch->generation)
		return;
	discard_sessions(h);
	h->begun = true;
	h->generation = h->launch->generation;
	for (size_t i = 0; i < h->count; i++)
		begin_session(h, &h->part[i]);
}

/* What is neither here nor in the store; it is among the copies here then. */
static bool get_all(struct hello_job *h)
{
	for (size_t i = 0; i < h->count; i++) {
		struct hello_part *part = &h->part[i];
		struct tpck_error err = {0};

		for (size_t s = 0; s < h->source_count; s++) {
			const struct tpck_accord_source *source = &h->sources[s];

			if (source->rank != part->hello.rank || source->ordinal != part->hello.ordinal)
				continue;
			if (source->node[0] ? copies_get(source->node, part->identity, source->rank, source->ordinal, &h->point, &err)
					    : copies_gather(part->identity, source->rank, source->ordinal, &h->point, &err)) {
				h->failed = i;
				h->gone = source->node[0] && !peers_has(source->node);
				snprintf(h->offer[i].notice, sizeof h->offer[i].notice, "step %" PRIu64 " cannot be resumed: %.400s",
					 h->point.step, err.text);
				return false;
			}
		}
	}
	return true;
}

void hello_run_try(struct job *job)
{
	struct hello_job *h = (struct hello_job *)job;
	struct offer_request *requests = calloc(h->count, sizeof *requests);
	struct tpck_error store = {0};
	int store_rc = tpck_tier_check(home.tier, &store);

	begin_all(h);
	h->failed = 0;
	h->gone = false;
	if (!requests)
		return;
	for (size_t i = 0; i < h->count; i++) {
		if (h->part[i].rc) {
			h->failed = i;
			free(requests);
			return;
		}
		tpck_program_refresh(h->part[i].program, &home.tiers);
		requests[i] = request_of(&h->part[i]);
		requests[i].only = h->point;
		tpck_stage_clear(requests[i].session_path);
	}
	tpck_manifest_free(h->base);
	h->base = NULL;
	if (get_all(h)) {
		copies_candidates_at(requests, h->count, &h->point);
		offer_choose(store_rc != -EPERM, requests, h->offer, h->count, NULL, &h->base);
		copies_release(requests, h->count);
		h->failed = h->count;
		for (size_t i = h->count; i-- > 0;) {
			h->part[i].memory = requests[i].memory;
			/* The others say that it was this one. */
			if (!h->offer[i].made && strncmp(h->offer[i].notice, "rank ", 5) != 0)
				h->failed = i;
			else if (!h->offer[i].made && h->failed == h->count)
				h->failed = 0;
		}
	}
	copies_got();
	free(requests);
}

void hello_run_go(struct job *job)
{
	struct hello_job *h = (struct hello_job *)job;
	struct tpck_error store = {0};
	int store_rc = tpck_tier_check(home.tier, &store);

	begin_all(h);
	for (size_t i = 0; i < h->count; i++) {
		struct hello_part *part = &h->part[i];

		if (!h->resume) {
			h->offer[i].made = false;
			h->offer[i].notice[0] = '\0';
			if (!part->rc)
				tpck_stage_clear(part->session->path);
			if (!part->rc && is_to_be_told(h, part)) {
				struct offer_request request = request_of(part);

				offer_tell(store_rc != -EPERM, &request, &h->offer[i]);
			}
		}
		if (h->obstacle[0])
			add_notice(&h->offer[i], h->obstacle);
		if (part->rc)
			continue;
		if (!h->resume)
			say_left(h, i);
		mark_program(h, i, store_rc, &store);
	}
}
