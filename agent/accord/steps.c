/* SPDX-License-Identifier: Apache-2.0 */
/* A running launch on several nodes: which steps are captured, committed and copied, and how it ends. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/accord/accord_private.h"
#include "agent/copies/copies.h"
#include "agent/durable/flush.h"
#include "agent/programs/identity_text.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"

/* How long it takes at most until the processes of all nodes know what boundary was named. */
#define NAMED_AHEAD_NS 150000000ull
/* A boundary that was named may not come to be held; after so long the next is named all the same. */
#define NAMED_NS 1000000000ull

bool accord_newest(const struct launch *launch, uint64_t *step)
{
	const struct live *first = launch_first(launch);

	*step = launch->accord->committed;
	return *step && first && live_image_of(first, *step) >= 0;
}

/* Of the rows behind a HELD, or SIZE_MAX: there are none so many. */
static size_t counted_bytes(const struct tpck_accord_message *message)
{
	if (message->value > UINT32_MAX || message->value2 > UINT32_MAX)
		return SIZE_MAX;
	return message->value * sizeof(struct tpck_counted) + message->value2 * sizeof(struct tpck_transferred);
}

/* ---- what ranks hold ---------------------------------------------------------------------- */

/* There is something of this rank. */
static bool is_here(const struct live *live)
{
	return live && live->life != LIFE_GONE;
}

/* All ranks that are here hold a step, and the leader has not heard so. */
static bool is_to_tell(const struct launch *launch, uint64_t step, uint32_t *ranks)
{
	const struct live *live;
	uint32_t at = 0;
	bool told = true;

	*ranks = 0;
	while ((live = launch_next(launch, &at))) {
		int i = is_here(live) ? live_image_of(live, step) : 0;

		if (i < 0)
			return false;
		if (!is_here(live))
			continue;
		told = told && live->images[i].told_step == step;
		++*ranks;
	}
	return !told;
}

static void note_told(struct launch *launch, uint64_t step)
{
	struct live *live;
	uint32_t at = 0;

	while ((live = launch_next(launch, &at))) {
		int i = is_here(live) ? live_image_of(live, step) : -1;

		if (i >= 0)
			live->images[i].told_step = step;
	}
}

static void tell_held(struct agent *agent, struct launch *launch, uint64_t step)
{
	struct tpck_accord_message message = accord_message(launch, TPCK_ACCORD_HELD);
	struct tpck_counts counts = {0};
	size_t size;
	char *rows;

	if (!launch->accord->leader[0] || !is_to_tell(launch, step, &message.ordinal))
		return;
	if (launch_counts(launch, step, &counts) == 0) {
		tpck_counts_merge(&counts);
		message.step = step;
		message.value = counts.counted_count;
		message.value2 = counts.transferred_count;
		size = counted_bytes(&message);
		rows = malloc(size + 1);
		if (rows) {
			if (message.value)
				memcpy(rows, counts.counted, message.value * sizeof *counts.counted);
			if (message.value2)
				memcpy(rows + message.value * sizeof *counts.counted, counts.transferred,
				       message.value2 * sizeof *counts.transferred);
			note_told(launch, step);
			accord_tell_leader(agent, launch, &message, rows, size);
			free(rows);
		}
	}
	tpck_counts_free(&counts);
}

/* The newest that it holds and the leader is to hear of; 0: none. */
static uint64_t newest_held(const struct live *live)
{
	uint64_t newest = 0;

	for (unsigned i = 0; i < live->image_count; i++)
		if (live->images[i].good && live->images[i].good_step > newest && live_image_of(live, live->images[i].good_step) == (int)i)
			newest = live->images[i].good_step;
	return newest;
}

static void tell_missed(struct agent *agent, struct launch *launch, uint64_t step)
{
	struct tpck_accord_message message = accord_message(launch, TPCK_ACCORD_MISSED);

	/* What is older than the newest that is committed is kept for copies, or about to go. */
	if (step <= launch->accord->committed)
		return;
	message.step = step;
	accord_tell_leader(agent, launch, &message, NULL, 0);
}

/* What one rank here holds and another, which holds a newer one, does not: nobody needs it. */
static void tell_what_is_missed(struct agent *agent, struct launch *launch, const struct live *live)
{
	uint64_t newest = newest_held(live);
	const struct live *other;
	uint32_t at = 0;

	while ((other = launch_next(launch, &at))) {
		uint64_t others = is_here(other) && other != live ? newest_held(other) : 0;

		for (unsigned i = 0; others && i < other->image_count; i++) {
			uint64_t step = other->images[i].good_step;

			if (step < newest && live_image_of(other, step) == (int)i && live_image_of(live, step) < 0)
				tell_missed(agent, launch, step);
		}
		for (unsigned i = 0; others && i < live->image_count; i++) {
			uint64_t step = live->images[i].good_step;

			if (step < others && live_image_of(live, step) == (int)i && live_image_of(other, step) < 0)
				tell_missed(agent, launch, step);
		}
	}
}

void accord_held(struct agent *agent, struct live *live)
{
	struct launch *launch = live->launch;

	if (launch->accord->broken || !launch->accord->leader[0])
		return;
	for (unsigned i = 0; i < live->image_count; i++) {
		const struct live_image *image = &live->images[i];

		if (image->good && image->told_step != image->good_step && live_image_of(live, image->good_step) == (int)i &&
		    atomic_load(&image->map.header->state) == TPCK_IMAGE_HELD)
			tell_held(agent, launch, image->good_step);
	}
	tell_what_is_missed(agent, launch, live);
}

void accord_rejoin(struct agent *agent, struct launch *launch)
{
	struct live *live;

	/* Who leads now has not heard of it. */
	launch->stalled_ns = 0;
	launch->accord->injected_said = false;
	for (uint32_t at = 0; (live = launch_next(launch, &at));) {
		struct tpck_accord_message member = accord_message(launch, TPCK_ACCORD_MEMBER);

		if (live->life == LIFE_GONE)
			continue;
		member.rank = live->session->name.rank;
		member.ordinal = live->session->name.ordinal;
		member.step = UINT64_MAX;
		accord_say_member(agent, launch, &member, live->session->identity);
	}
	for (uint32_t at = 0; (live = launch_next(launch, &at));)
		for (unsigned i = 0; is_here(live) && i < live->image_count; i++)
			live->images[i].told_step = 0;
	for (uint32_t at = 0; (live = launch_next(launch, &at));) {
		if (!is_here(live))
			continue;
		/* The last leader may have told some only. */
		if (live->newest >= 0 && atomic_load(&live->images[live->newest].map.header->state) == TPCK_IMAGE_COMMITTED)
			tell_held(agent, launch, live->newest_step);
		accord_held(agent, live);
		if (live->life == LIFE_DEAD)
			accord_ended(agent, live);
	}
	launch_injected(agent, launch);
}

/* ---- the leader's decisions --------------------------------------------------------------- */

static bool one_cut(struct launch *launch, uint64_t step)
{
	struct tpck_counts counts = {0};
	bool is_one = tpck_ledger_counts(launch->accord->ledger, step, &counts) == 0 && launch_is_one_cut(launch, &counts, step);

	tpck_counts_free(&counts);
	return is_one;
}

static void say_step(struct agent *agent, struct launch *launch, enum tpck_accord_kind kind, uint64_t step)
{
	struct tpck_accord_message message = accord_message(launch, kind);

	message.step = step;
	accord_tell_all(agent, launch, &message, NULL, 0);
}

/* One after another: a step is copied when what was copied before has settled, so that all nodes keep the same one. */
static void consider_copying(struct agent *agent, struct launch *launch)
{
	struct accord *accord = launch->accord;

	if (accord->copying || accord->committed <= accord->kept || !tpck_ledger_is_complete(accord->ledger))
		return;
	tpck_ledger_begin(accord->ledger, TPCK_ROUND_COPY);
	accord->fewest_copies = UINT32_MAX;
	say_step(agent, launch, TPCK_ACCORD_COPY, accord->committed);
}

void accord_catch_up(struct agent *agent, struct launch *launch, const char *node)
{
	struct tpck_accord_message message = accord_message(launch, TPCK_ACCORD_COPY);

	message.step = launch->accord->copying;
	if (message.step && strcmp(node, peers_node()) != 0)
		peers_talk(node, &message, NULL, 0);
	if (tpck_ledger_is_complete(launch->accord->ledger))
		tpck_log_info("the agents of all %u ranks of generation %" PRIu64 " are there", launch->world, launch->generation);
	consider_copying(agent, launch);
}

static void decide(struct agent *agent, struct launch *launch)
{
	struct tpck_ledger *ledger = launch->accord->ledger;
	uint64_t step;

	if (!tpck_ledger_is_complete(ledger))
		return;
	while ((step = tpck_ledger_whole(ledger))) {
		bool good = one_cut(launch, step);

		if (good)
			tpck_ledger_committed(ledger, step);
		else
			tpck_ledger_give_up(ledger, step);
		say_step(agent, launch, good ? TPCK_ACCORD_COMMIT : TPCK_ACCORD_ABANDON, step);
	}
	while ((step = tpck_ledger_missed(ledger))) {
		tpck_ledger_give_up(ledger, step);
		say_step(agent, launch, TPCK_ACCORD_ABANDON, step);
	}
	consider_copying(agent, launch);
}

static void hear_held(struct agent *agent, struct launch *launch, const char *node, const struct tpck_accord_message *message,
		      const char *more, size_t size)
{
	const struct tpck_transferred *transferred;
	struct tpck_counted *counted;

	/* What is committed is not asked for again. */
	if (message->step <= launch->accord->committed || size != counted_bytes(message))
		return;
	counted = malloc(size + 1);
	if (!counted)
		return;
	if (size)
		memcpy(counted, more, size);
	transferred = (struct tpck_transferred *)(counted + message->value);
	if (tpck_ledger_held(launch->accord->ledger, node, message->step, message->ordinal, counted, message->value, transferred,
			     message->value2) == 0)
		decide(agent, launch);
	free(counted);
}

/* Images of each rank that are in use, or about to be. */
static unsigned images_used(const struct accord *accord)
{
	unsigned used = accord->kept != 0;

	used += accord->copying && accord->copying != accord->kept;
	used += accord->committed && accord->committed != accord->kept && accord->committed != accord->copying;
	return used + (accord->named > accord->committed && tpck_clock_monotonic_ns() < accord->named_ns + NAMED_NS);
}

static void name_next(struct agent *agent, struct launch *launch)
{
	struct accord *accord = launch->accord;
	struct tpck_pace pace;

	/* One is named already that somebody has yet to reach. */
	if (!tpck_ledger_is_complete(accord->ledger) || accord->named > tpck_ledger_furthest(accord->ledger))
		return;
	pace = tpck_ledger_pace_of_all(accord->ledger);
	accord->due = images_used(accord) >= pace.images;
	if (accord->due)
		return;
	accord->named = pace.furthest + 2 + (pace.iteration_ns ? NAMED_AHEAD_NS / pace.iteration_ns : 0);
	accord->named_ns = tpck_clock_monotonic_ns();
	say_step(agent, launch, TPCK_ACCORD_CAPTURE, accord->named);
}

void accord_retire(struct agent *agent, uint64_t generation, const char *forms, size_t size)
{
	for (struct live *live = agent->lives; live; live = live->next)
		if (live->life == LIFE_DEAD && live->session->name.generation < generation &&
		    identity_form_among(live->session->identity, forms, size) >= 0)
			live_retire(live);
}

/* On whatever nodes ranks were before: in another order of the nodes another rank is where they were. */
static void say_retire(struct agent *agent, const struct launch *launch)
{
	struct tpck_accord_message message = accord_message(launch, TPCK_ACCORD_RETIRE);
	size_t size;
	char *forms = accord_forms(launch, &size);

	if (!forms)
		return;
	accord_retire(agent, message.generation, forms, size);
	peers_talk(NULL, &message, forms, size);
	free(forms);
}

/* Once there is something of this start that outlives a node: until then what earlier ones left could be all. */
static void retire_others(struct agent *agent, struct launch *launch)
{
	if (launch->accord->settled_any)
		return;
	launch->accord->settled_any = true;
	say_retire(agent, launch);
}

static void hear_copied(struct agent *agent, struct launch *launch, const char *node, const struct tpck_accord_message *message)
{
	struct tpck_accord_message said = accord_message(launch, TPCK_ACCORD_SETTLED);
	struct accord *accord = launch->accord;

	if (message->step != accord->copying)
		return;
	said.step = message->step;
	if (message->value2 < accord->fewest_copies)
		accord->fewest_copies = (unsigned)message->value2;
	if (!tpck_ledger_done(accord->ledger, TPCK_ROUND_COPY, node))
		return;
	tpck_log_debug("step %" PRIu64 " of %u ranks has %u copies on other nodes, of generation %" PRIu64, message->step, launch->world,
		       accord->fewest_copies, launch->generation);
	said.value = accord->fewest_copies;
	accord_tell_all(agent, launch, &said, NULL, 0);
	if (accord->fewest_copies)
		retire_others(agent, launch);
	consider_copying(agent, launch);
	if (accord->due)
		name_next(agent, launch);
}

static void hear_flushed(struct agent *agent, struct launch *launch, const char *node, const struct tpck_accord_message *message,
			 const char *why)
{
	struct accord *accord = launch->accord;

	if (message->step != accord->flushing)
		return;
	if (message->value && !accord->flush_why[0])
		snprintf(accord->flush_why, sizeof accord->flush_why, "%s", why[0] ? why : "a node could not write its part");
	if (!tpck_ledger_done(accord->ledger, TPCK_ROUND_FLUSH, node))
		return;
	if (accord->flush_why[0])
		accord_joined(agent, launch, message->step, accord->flush_why);
	else
		flush_join(agent, launch, message->step, accord->flush_began_ns);
}

static void hear_ended(struct agent *agent, struct launch *launch, const struct tpck_accord_message *message)
{
	launch->closed = true;
	if (!tpck_roll_ended(launch->accord->roll, message->rank, message->value == 1))
		return;
	say_step(agent, launch, TPCK_ACCORD_RELEASE, 0);
	say_retire(agent, launch);
}

void accord_steps_hear(struct agent *agent, struct launch *launch, const char *node, const struct tpck_accord_message *message,
		       const char *more, size_t size)
{
	struct accord *accord = launch->accord;

	if (accord->broken || message->generation != launch->generation)
		return;
	switch ((enum tpck_accord_kind)message->kind) {
	case TPCK_ACCORD_DUE:
		tpck_ledger_pace(accord->ledger, node, &(struct tpck_pace){message->step, message->value, (uint32_t)message->value2});
		name_next(agent, launch);
		break;
	case TPCK_ACCORD_HELD:
		hear_held(agent, launch, node, message, more, size);
		break;
	case TPCK_ACCORD_MISSED:
		if (message->step > accord->committed) {
			tpck_ledger_give_up(accord->ledger, message->step);
			say_step(agent, launch, TPCK_ACCORD_ABANDON, message->step);
		}
		break;
	case TPCK_ACCORD_COPIED:
		hear_copied(agent, launch, node, message);
		break;
	case TPCK_ACCORD_FLUSHED:
		hear_flushed(agent, launch, node, message, size ? more : "");
		break;
	case TPCK_ACCORD_HASTE:
		accord->haste = true;
		break;
	case TPCK_ACCORD_ENDED:
		hear_ended(agent, launch, message);
		break;
	default:
		break;
	}
}

/* ---- as the leader says ------------------------------------------------------------------- */

static void commit(struct agent *agent, struct launch *launch, uint64_t step)
{
	struct live *live;
	uint32_t at = 0;

	launch->accord->committed = step;
	while ((live = launch_next(launch, &at))) {
		int i = live_image_of(live, step);

		if (i < 0)
			continue;
		live_image_state(live, (unsigned)i, TPCK_IMAGE_HELD, TPCK_IMAGE_COMMITTED);
		atomic_store(&live->session->control->committed_step, step);
		for (unsigned k = 0; k < live->image_count; k++)
			if (live->images[k].good && live->images[k].good_step < step)
				live_image_state(live, k, TPCK_IMAGE_HELD, TPCK_IMAGE_ABANDONED);
		live_committed(agent, live, (unsigned)i);
	}
	tpck_log_debug("committed step %" PRIu64 " of generation %" PRIu64, step, launch->generation);
}

static void abandon(struct launch *launch, uint64_t step)
{
	struct live *live;
	uint32_t at = 0;

	while ((live = launch_next(launch, &at))) {
		int i = live_image_of(live, step);

		if (i >= 0 && live_image_state(live, (unsigned)i, TPCK_IMAGE_HELD, TPCK_IMAGE_ABANDONED))
			tpck_log_debug("step %" PRIu64 " of rank %u is abandoned", step, live->session->name.rank);
	}
}

/* Images of a step stay until their pins go. */
static void pin(struct launch *launch, uint64_t step, bool down)
{
	struct live *live;
	uint32_t at = 0;

	while ((live = launch_next(launch, &at))) {
		int i = step ? live_image_of(live, step) : -1;

		if (i >= 0 && down)
			live_unpin(live, (unsigned)i);
		else if (i >= 0)
			atomic_fetch_add(&live->images[i].map.header->pins, 1);
	}
}

static void tell_copied(struct agent *agent, struct launch *launch)
{
	struct tpck_accord_message message = accord_message(launch, TPCK_ACCORD_COPIED);

	message.step = launch->accord->copying;
	message.value2 = launch->accord->copies;
	accord_tell_leader(agent, launch, &message, NULL, 0);
}

static void copy(struct agent *agent, struct launch *launch, uint64_t step)
{
	struct accord *accord = launch->accord;

	if (accord->copying == step) {
		accord->copy_next = 0;
		/* Who led may have heard nothing of it. */
		if (accord->copied)
			tell_copied(agent, launch);
		return;
	}
	if (accord->copying && !accord->copied) {
		accord->copy_next = step;
		return;
	}
	/* Of a round that nobody ended. */
	pin(launch, accord->copying, true);
	pin(launch, step, false);
	accord->copying = step;
	accord->copied = false;
	accord->copy_next = 0;
	if (!copies_send(launch, step))
		accord_copied(agent, launch, step, 0);
}

static void unpin_adopted(struct launch *launch)
{
	struct live *live;
	uint32_t at = 0;

	while ((live = launch_next(launch, &at))) {
		for (unsigned i = 0; i < live->image_count; i++)
			if (live->images[i].adopted) {
				live->images[i].adopted = false;
				live_unpin(live, i);
			}
	}
}

static void settle(struct launch *launch, uint64_t step, bool has_copies)
{
	struct accord *accord = launch->accord;
	uint64_t before = accord->kept;

	if (accord->copying != step)
		return;
	accord->kept = step;
	accord->copying = 0;
	pin(launch, before, true);
	unpin_adopted(launch);
	/* Where one has none, older ones of the others are all that there is elsewhere. */
	if (has_copies)
		copies_settled(launch, step);
}

void accord_steps_obey(struct agent *agent, struct launch *launch, const struct tpck_accord_message *message, const char *more, size_t size)
{
	if (message->generation != launch->generation)
		return;
	switch ((enum tpck_accord_kind)message->kind) {
	case TPCK_ACCORD_CAPTURE:
		launch_name(launch, message->step);
		break;
	case TPCK_ACCORD_COMMIT:
		commit(agent, launch, message->step);
		break;
	case TPCK_ACCORD_ABANDON:
		abandon(launch, message->step);
		break;
	case TPCK_ACCORD_COPY:
		copy(agent, launch, message->step);
		break;
	case TPCK_ACCORD_SETTLED:
		settle(launch, message->step, message->value != 0);
		break;
	case TPCK_ACCORD_FLUSH:
		flush_part(agent, launch, message->step, accord_flushed);
		break;
	case TPCK_ACCORD_DURABLE:
		flush_stored(agent, launch, message->step);
		break;
	case TPCK_ACCORD_UNSTORED:
		flush_failed(message->step, size ? more : "");
		break;
	case TPCK_ACCORD_RELEASE:
		live_release_all(agent, launch);
		break;
	default:
		break;
	}
}

/* ---- what happens here -------------------------------------------------------------------- */

void accord_due(struct agent *agent, struct launch *launch)
{
	struct tpck_accord_message message = accord_message(launch, TPCK_ACCORD_DUE);
	const struct live *live;
	uint32_t at = 0;

	if (launch->accord->broken || launch->accord->phase != ACCORD_RUNNING)
		return;
	launch_pace(launch, &message.step, &message.value);
	message.value2 = TPCK_IMAGES_MAX;
	while ((live = launch_next(launch, &at)))
		if (live->image_count && live->image_count < message.value2)
			message.value2 = live->image_count;
	accord_tell_leader(agent, launch, &message, NULL, 0);
}

void accord_copied(struct agent *agent, struct launch *launch, uint64_t step, unsigned copies)
{
	struct accord *accord = launch->accord;

	if (accord->copying != step)
		return;
	accord->copied = true;
	accord->copies = copies;
	/* Who led that round may be gone. */
	if (accord->copy_next)
		copy(agent, launch, accord->copy_next);
	else
		tell_copied(agent, launch);
}

void accord_flush(struct agent *agent, struct launch *launch, uint64_t step)
{
	struct accord *accord = launch->accord;

	if (accord->flushing || accord->broken)
		return;
	accord->flushing = step;
	accord->flush_began_ns = tpck_clock_monotonic_ns();
	accord->flush_why[0] = '\0';
	tpck_ledger_begin(accord->ledger, TPCK_ROUND_FLUSH);
	say_step(agent, launch, TPCK_ACCORD_FLUSH, step);
}

void accord_flushed(struct agent *agent, struct launch *launch, uint64_t step, int rc, const char *why)
{
	struct tpck_accord_message message = accord_message(launch, TPCK_ACCORD_FLUSHED);

	message.step = step;
	message.value = (uint64_t)-rc;
	accord_tell_leader(agent, launch, &message, why, rc ? strlen(why) + 1 : 0);
}

void accord_joined(struct agent *agent, struct launch *launch, uint64_t step, const char *why)
{
	struct tpck_accord_message unstored = accord_message(launch, TPCK_ACCORD_UNSTORED);

	launch->accord->flushing = 0;
	if (why && why[0]) {
		/* All that have ranks: those that are to end must not wait for what the leader does not try now. */
		unstored.step = step;
		accord_tell_all(agent, launch, &unstored, why, strlen(why) + 1);
	} else if (!why && !launch->accord->broken) {
		say_step(agent, launch, TPCK_ACCORD_DURABLE, step);
		retire_others(agent, launch);
	} else if (!why) {
		flush_stored(agent, launch, step);
	}
}

bool accord_may_flush(const struct launch *launch)
{
	return launch->accord->leads && !launch->accord->flushing && !accord_is_broken(launch);
}

bool accord_leads(const struct launch *launch)
{
	return launch->accord->leads;
}

bool accord_hurries(const struct launch *launch)
{
	return launch->accord->haste;
}

bool accord_is_broken(const struct launch *launch)
{
	const struct accord *accord = launch->accord;

	return accord->broken || !accord->leader[0] || (accord->leads ? !tpck_ledger_is_complete(accord->ledger) : accord->lacks);
}

void accord_ended(struct agent *agent, struct live *live)
{
	struct tpck_accord_message message = accord_message(live->launch, TPCK_ACCORD_ENDED);

	message.rank = live->session->name.rank;
	message.value = live->ended_well;
	accord_tell_leader(agent, live->launch, &message, NULL, 0);
}
