/* SPDX-License-Identifier: Apache-2.0 */
/* What there is on this node of a launch's ranks, and what it answers when a leader asks. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/accord/accord_private.h"
#include "agent/copies/copies.h"
#include "agent/programs/identity_text.h"
#include "runtime/base/clock.h"

/* How long a node that is asked waits for processes of the last start to be quite gone, before it says what they left. */
#define GOING_NS 2000000000ull

static void add_holding(struct accord_holdings *all, const struct tpck_accord_holding *row)
{
	if (all->count == all->room) {
		size_t room = all->room ? 2 * all->room : 16;
		struct tpck_accord_holding *grown = reallocarray(all->row, room, sizeof *grown);

		if (!grown)
			return;
		all->row = grown;
		all->room = room;
	}
	all->row[all->count++] = *row;
}

static void holdings_of_session(struct live *live, uint32_t form, struct accord_holdings *all)
{
	for (unsigned i = 0; i < live->image_count; i++) {
		struct tpck_image_header *header = live->images[i].map.header;
		uint32_t state = atomic_load(&header->state);

		if (state == TPCK_IMAGE_COMMITTED || (state == TPCK_IMAGE_HELD && live->images[i].good))
			add_holding(all, &(struct tpck_accord_holding){
						 .generation = header->generation, .step = header->step, .rank = live->session->name.rank,
						 .ordinal = live->session->name.ordinal, .resumable = header->resumable,
						 .kind = state == TPCK_IMAGE_COMMITTED ? TPCK_HOLDING_COMMITTED : TPCK_HOLDING_HELD,
						 .form = form,
					 });
	}
}

static void holdings_of_sessions(struct agent *agent, const char *forms, size_t size, struct accord_holdings *all)
{
	for (struct live *live = agent->lives; live; live = live->next) {
		int form = live->life == LIFE_DEAD ? identity_form_among(live->session->identity, forms, size) : -1;

		if (form >= 0)
			holdings_of_session(live, (uint32_t)form, all);
	}
}

size_t accord_holdings_of(const struct launch *launch, struct tpck_accord_holding **rows)
{
	const struct live *first = launch_first(launch);
	struct accord_holdings all = {0};
	struct live *live;
	uint32_t at = 0;

	while ((live = launch_next(launch, &at)))
		if (live->life != LIFE_GONE)
			holdings_of_session(live, first->session->name.rank, &all);
	*rows = all.row;
	return all.count;
}

static void holdings_of_copies(const char *forms, size_t size, struct accord_holdings *all)
{
	struct copies_held *rows = NULL;
	size_t count = copies_held(forms, size, &rows);

	for (size_t i = 0; i < count; i++)
		add_holding(all, &(struct tpck_accord_holding){
					 .generation = rows[i].point.generation, .step = rows[i].point.step, .rank = rows[i].rank,
					 .ordinal = rows[i].ordinal, .resumable = rows[i].resumable,
					 .kind = rows[i].fragment.data ? TPCK_HOLDING_FRAGMENT : TPCK_HOLDING_COPY, .form = rows[i].form,
					 .data = (uint8_t)rows[i].fragment.data, .parity = (uint8_t)rows[i].fragment.parity,
					 .index = (uint8_t)rows[i].fragment.index,
				 });
	free(rows);
}

struct accord_holdings accord_holdings_here(struct agent *agent, const char *forms, size_t size)
{
	struct accord_holdings all = {0};

	live_poll(agent);
	holdings_of_sessions(agent, forms, size, &all);
	holdings_of_copies(forms, size, &all);
	return all;
}

bool accord_are_going(struct agent *agent, uint32_t ordinal, const char *forms, size_t size)
{
	live_poll(agent);
	for (struct live *live = agent->lives; live; live = live->next)
		if ((live->life == LIFE_RUNNING || live->life == LIFE_SETTLING) && live->session->name.ordinal == ordinal &&
		    identity_form_among(live->session->identity, forms, size) >= 0)
			return true;
	return false;
}

/* An ASK that is not answered yet. */
struct question {
	char node[TPCK_PEER_NAME];
	struct tpck_accord_message message;
	uint64_t until_ns;
	struct question *next;
	size_t size;
	char forms[];
};

static struct question *questions;

static void answer(struct agent *agent, const struct question *question)
{
	struct tpck_accord_message said = question->message;
	struct accord_holdings all = accord_holdings_here(agent, question->forms, question->size);

	said.kind = TPCK_ACCORD_HOLDS;
	said.value = peers_generation();
	peers_talk(question->node, &said, all.row, all.count * sizeof *all.row);
	free(all.row);
}

void accord_answer_all(struct agent *agent)
{
	for (struct question **place = &questions; *place;) {
		struct question *question = *place;

		if (tpck_clock_monotonic_ns() < question->until_ns &&
		    accord_are_going(agent, question->message.ordinal, question->forms, question->size)) {
			place = &question->next;
			continue;
		}
		answer(agent, question);
		*place = question->next;
		free(question);
	}
}

uint64_t accord_answer_deadline(void)
{
	uint64_t soonest = UINT64_MAX;

	for (const struct question *question = questions; question; question = question->next)
		if (question->until_ns < soonest)
			soonest = question->until_ns;
	return soonest;
}

void accord_answer(struct agent *agent, const char *node, const struct tpck_accord_message *message, const char *forms, size_t size)
{
	struct question *question = size && !forms[size - 1] ? calloc(1, sizeof *question + size) : NULL;

	if (!question)
		return;
	snprintf(question->node, sizeof question->node, "%s", node);
	question->message = *message;
	question->until_ns = tpck_clock_monotonic_ns() + GOING_NS;
	question->size = size;
	memcpy(question->forms, forms, size);
	question->next = questions;
	questions = question;
	accord_answer_all(agent);
}
