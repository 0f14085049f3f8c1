/* SPDX-License-Identifier: Apache-2.0 */
/* What processes that have said HELLO are told. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "agent/hello/hello_private.h"
#include "agent/session/events.h"
#include "agent/session/own_known.h"
#include "agent/session/welcome.h"
#include "agent/twins/twin_sets.h"
#include "runtime/base/log.h"
#include "runtime/wire/failures.h"

void hello_refuse_one(struct client *client, const char *why)
{
	struct tpck_welcome welcome = {0};

	tpck_log_warn("process %d is not served: %s", (int)client->pid, why);
	snprintf(welcome.notice, sizeof welcome.notice, "%s", why);
	client_send(client, TPCK_MSG_WELCOME, &welcome, sizeof welcome);
}

/* What one process is told, by what its session says of it. */
static struct tpck_welcome welcome_of(const struct hello_job *h, size_t i)
{
	const struct hello_part *part = &h->part[i];
	const struct offer *offer = &h->offer[i];
	struct tpck_welcome w = {.generation = part->session->name.generation, .kept = h->launch->own};

	if (offer->made) {
		w.offer = 1;
		w.offer_generation = offer->point.generation;
		w.offer_step = offer->point.step;
		w.log_sequence = offer->cut.sequence;
		w.log_offset = offer->cut.offset;
		w.tries = tpck_program_tries(part->program, &offer->point);
		memcpy(w.meeting_ports, h->meeting_ports, sizeof w.meeting_ports);
		snprintf(w.meeting_host, sizeof w.meeting_host, "%s", h->launch->meeting_host);
		w.expected_ns = h->own.expected_ns;
		snprintf(w.choice, sizeof w.choice, "%s", h->own.said);
	}
	snprintf(w.session, sizeof w.session, "%s", part->session->path);
	snprintf(w.notice, sizeof w.notice, "%s", offer->notice);
	return w;
}

void hello_settle(struct hello_job *h)
{
	for (size_t i = 0; i < h->count; i++) {
		struct hello_part *part = &h->part[i];
		struct tpck_welcome w;

		if (part->rc)
			continue;
		if (h->offer[i].made) {
			part->session->control->parent_generation = h->offer[i].point.generation;
			part->session->control->resume_step = h->offer[i].point.step;
			part->session->control->resume_sequence = h->offer[i].cut.sequence;
			part->session->control->resume_offset = h->offer[i].cut.offset;
		}
		w = welcome_of(h, i);
		if (h->launch->world > 1)
			welcome_note(part->session, part->client->pid, &w);
	}
	atomic_thread_fence(memory_order_seq_cst);
	for (size_t i = 0; i < h->count; i++)
		if (!h->part[i].rc)
			h->part[i].session->control->pid = h->part[i].client->pid;
}

/* What had failed of all ranks here. Those of which no more is known were ended for it, and an error of NCCL may follow from another rank's failure. */
static uint32_t failure_of(const struct hello_job *h, size_t i)
{
	uint32_t found = h->part[i].hello.failure;

	for (size_t k = 0; k < h->count; k++) {
		uint32_t failure = h->part[k].hello.failure;

		if (failure != TPCK_FAILURE_NONE && failure != TPCK_FAILURE_RANK && (found == TPCK_FAILURE_RANK || found == TPCK_FAILURE_COMMUNICATOR))
			found = failure;
	}
	return found;
}

void hello_welcome(struct agent *agent, struct hello_job *h, size_t i)
{
	struct hello_part *part = &h->part[i];
	const struct offer *offer = &h->offer[i];
	struct tpck_welcome w = welcome_of(h, i);
	struct live *live;

	/* Another node's rank may have given up before this one is told to go. */
	if (offer->made && h->launch->began_anew)
		atomic_store(&part->session->control->go, h->launch->over);
	live = live_new(agent, part->session, part->client->pid);
	if (!live) {
		hello_refuse_one(part->client, "out of memory");
		tpck_session_close(part->session);
		return;
	}
	live->program = part->program;
	live->launch = h->launch;
	live->offered_from = offer->from;
	live->by_twin = part->hello.flags & TPCK_HELLO_TAKES_OVER;
	live->in_place = part->hello.flags & TPCK_HELLO_IN_PLACE;
	live->after = part->hello.rank == 0 ? failure_of(h, i) : part->hello.failure;
	own_belongs(live);
	ranks_here_find(&h->launch->here, part->hello.rank)->live = live;
	if (h->launch->world > 1 && part->hello.flags & TPCK_HELLO_SUPERVISED)
		twins_seat(agent, live);
	if (h->launch->world > 1)
		tpck_log_info("process %d is rank %u of generation %" PRIu64 "%s%s", (int)live->pid, part->hello.rank, w.generation,
			      w.notice[0] ? "; " : "", w.notice);
	else
		tpck_log_info("process %d is generation %" PRIu64 "%s%s", (int)live->pid, w.generation, w.notice[0] ? "; " : "",
			      w.notice);
	if (part->hello.rank == 0)
		history_started(live);
	if (part->client->gone) {
		live_died(agent, live);
		return;
	}
	live_attach(live, part->client);
	client_send(part->client, TPCK_MSG_WELCOME, &w, sizeof w);
}
