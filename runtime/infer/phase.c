/* SPDX-License-Identifier: Apache-2.0 */
/** The tracker of phases: groups of optimizer launches, and after which of them an iteration ends. */
#include "config.h"

#include "runtime/infer/phase.h"

#include <stdlib.h>
#include <string.h>

enum {
	LONGEST_PAUSE = 8192, /* operations between two launches of one phase */
	GAPS = 8,             /* phases back to one that was reached by the same kernels */
	FIRM = 6,             /* phases in a row after which a stranger does not unsettle the cycle */
};

void tpck_phase_init(struct tpck_phase *phase, bool wide)
{
	memset(phase, 0, sizeof *phase);
	phase->wide = wide;
	phase->matched = -1;
	phase->prev_op = TPCK_OP_KERNEL;
}

static struct tpck_phase_record *recall(struct tpck_phase *phase, uint64_t back)
{
	return &phase->recall[(phase->phases - 1 - back) % TPCK_PHASE_RECALL];
}

/* Of the last count kernels in a ring, skip of them left out. */
static uint64_t ring_digest(const struct tpck_phase *phase, const uint64_t *ring, uint32_t count, uint32_t skip)
{
	uint64_t digest = 1;
	for (uint32_t i = 0; i < count; i++)
		digest = tpck_phase_mix(digest, ring[(phase->context_at - skip - count + i) % TPCK_PHASE_REACH]);
	return digest;
}

static bool same_surroundings(const struct tpck_phase_record *a, const struct tpck_phase_record *b)
{
	for (int i = 0; i < TPCK_PHASE_SLACK; i++)
		if (a->context[0] == b->context[i] || a->context[i] == b->context[0])
			return true;
	return a->reach == b->reach || (a->gap == b->gap && a->gap_kernels == b->gap_kernels);
}

/* A first phase, which makes its state, differs from later ones but for its last launch. Now and then a phase may do
 * more than usual (slow weights), after what it always does. */
static bool same_phase(const struct tpck_phase_record *a, const struct tpck_phase_record *b)
{
	return (a->shape == b->shape || a->last == b->last || a->extends == b->shape || b->extends == a->shape) &&
	       same_surroundings(a, b);
}

static int find_shape(const struct tpck_phase *phase, uint64_t digest, uint32_t count)
{
	for (int i = 0; i < phase->shape_count; i++)
		if (phase->shapes[i].digest == digest && phase->shapes[i].count == count)
			return i;
	return -1;
}

static int add_shape(struct tpck_phase *phase, uint64_t digest, uint32_t count)
{
	int at = phase->shape_count;
	if (at == TPCK_PHASE_SHAPES) {
		at = 0;
		for (int i = 1; i < TPCK_PHASE_SHAPES; i++)
			if (phase->shapes[i].seen < phase->shapes[at].seen)
				at = i;
	} else {
		phase->shape_count++;
	}
	phase->shapes[at] = (struct tpck_phase_shape){.digest = digest, .count = count};
	return at;
}

/* --- after which phase does an iteration end? ---------------------------------------------------------------- */

static void give_up_cycle(struct tpck_phase *phase)
{
	phase->cycle = 0;
	phase->doubted = true;
	phase->streak = phase->strangers = 0;
	phase->sure_since = 0;
}

static uint64_t follower_of(const struct tpck_phase_op *op)
{
	return op->op == TPCK_OP_H2D || op->op == TPCK_OP_D2H ? TPCK_PHASE_HOST : op->coarse | 2;
}

static bool followed_by(const struct tpck_phase_shape *shape, uint64_t follower)
{
	for (int i = 0; i < TPCK_PHASE_FOLLOWERS; i++)
		if (shape->followers[i] == follower)
			return true;
	return false;
}

static void note_follower(struct tpck_phase_shape *shape, uint64_t follower)
{
	if (!follower || followed_by(shape, follower))
		return;
	memmove(shape->followers + 1, shape->followers, sizeof shape->followers - sizeof *shape->followers);
	shape->followers[0] = follower;
}

/* Each with a batch of its own, with the same launches or the same last one, and the same behind them: what came before
 * may differ (lengths, micro-batches, first iterations). */
static bool plain(const struct tpck_phase_record *a, const struct tpck_phase_record *b)
{
	return a->fed && b->fed && a->follower && a->follower == b->follower && (a->shape == b->shape || a->last == b->last);
}

static bool followers_differ(const struct tpck_phase_record *a, const struct tpck_phase_record *b)
{
	return a->follower && b->follower && a->follower != b->follower;
}

/* Two networks of one shape in turn look alike but for the batch, which only the first is given. */
static bool may_be_in_turn(const struct tpck_phase_record *now, const struct tpck_phase_record *before)
{
	if (followers_differ(now, before))
		return true; /* what comes behind decides */
	return now->fed ? !before->fed : before->fed && now->gap_kernels > before->gap_kernels;
}

static bool repeats(struct tpck_phase *phase, uint64_t by, uint64_t phases)
{
	if (phase->phases < phases || phases > TPCK_PHASE_RECALL)
		return false;
	for (uint64_t i = 0; i + by < phases; i++)
		if (!same_phase(recall(phase, i), recall(phase, i + by)))
			return false;
	return true;
}

/* Equal launches whose surroundings hardly ever come back: lengths that change, kernels chosen anew. Two optimizers
 * of equal shape have two surroundings. */
static bool equal_launches(struct tpck_phase *phase, uint64_t phases)
{
	int distinct = 1;
	if (phase->phases < phases)
		return false;
	for (uint64_t i = 1; i < phases; i++) {
		bool met = false;
		if (recall(phase, 0)->shape != recall(phase, i)->shape)
			return false;
		for (uint64_t j = 0; j < i; j++)
			met = met || same_surroundings(recall(phase, i), recall(phase, j));
		distinct += !met;
	}
	return distinct >= 4;
}

/* Which of the last k phases, counted back, ends the iteration; -1 if it cannot be told. Phases without a batch of their
 * own go on with that of the phases before them. */
static int end_of_cycle(struct tpck_phase *phase, uint64_t k)
{
	int fed = 0, ends = 0, end = -1;
	for (uint64_t i = 0; i < k; i++) {
		fed += recall(phase, i)->fed;
		if (recall(phase, i)->fed && !recall(phase, (i + 1) % k)->fed) {
			ends++;
			end = (int)((i + 1) % k);
		}
	}
	if (ends == 1)
		return end;
	if (fed > 0 && (uint64_t)fed < k)
		return -1;
	if (phase->phases > TPCK_PHASE_RECALL || phase->whole_turn)
		return -1; /* the first one known is not the first of all */
	for (uint64_t i = 0; i + 2 * k < phase->phases; i++)
		if (!same_phase(recall(phase, i), recall(phase, i + k)))
			return -1;
	return (int)(phase->phases % k);
}

static int compare_digests(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

/* A process's first iteration is rarely like the second: gradients are not yet added to anything, algorithms are tried
 * out. But nearly all kernels that led to the first phase lead to the second too, as many times; between two optimizers
 * in turn that is not so. */
static bool second_is_like_first(struct tpck_phase *phase)
{
	uint32_t have[2], n, met = 0;
	if (phase->phases != 2 ||
	    (recall(phase, 0)->shape != recall(phase, 1)->shape && recall(phase, 0)->last != recall(phase, 1)->last))
		return false;
	for (int i = 0; i < 2; i++)
		have[i] = phase->first_count[i] < TPCK_PHASE_FIRST ? phase->first_count[i] : TPCK_PHASE_FIRST;
	n = (have[0] < have[1] ? have[0] : have[1]) / 10 * 9;
	if (n < 10)
		return false;
	/* the last n of the first stretch, against all of the second */
	uint64_t *first = phase->first[0], *second = phase->first[1];
	uint32_t start = phase->first_count[0] - n;
	for (uint32_t i = 0; i < n; i++)
		phase->scratch[i] = first[(start + i) % TPCK_PHASE_FIRST];
	qsort(phase->scratch, n, sizeof *phase->scratch, compare_digests);
	qsort(second, have[1], sizeof *second, compare_digests);
	for (uint32_t i = 0, j = 0; i < n && j < have[1];) {
		if (phase->scratch[i] == second[j])
			met++, i++, j++;
		else if (phase->scratch[i] < second[j])
			i++;
		else
			j++;
	}
	return met >= n - n / 50;
}

/* Another optimizer, which has come before, with launches, a batch and a way to it of its own. */
static bool is_another(const struct tpck_phase *phase, const struct tpck_phase_record *record, const struct tpck_phase_record *known)
{
	return record->shape != known->shape && phase->shapes[record->shape].seen >= 2 && phase->shapes[known->shape].seen >= 2 && record->fed &&
	       known->fed && record->extends != known->shape && known->extends != record->shape && !same_surroundings(record, known);
}

static bool has_another(struct tpck_phase *phase)
{
	for (uint64_t i = 1; i < 2 * TPCK_PHASE_CYCLE && i < phase->phases; i++)
		if (is_another(phase, recall(phase, 0), recall(phase, i)))
			return true;
	return false;
}

static bool adopt_single(struct tpck_phase *phase)
{
	uint64_t most = phase->phases < TPCK_PHASE_RECALL ? phase->phases : TPCK_PHASE_RECALL, row = 1;
	if (has_another(phase))
		return false;
	while (row < most && plain(recall(phase, row - 1), recall(phase, row)))
		row++;
	/* Two optimizers in turn whose last tensors are alike have launches of their own. */
	if ((row >= (phase->doubted ? 3u : 2u) && recall(phase, 0)->shape == recall(phase, 1)->shape) || equal_launches(phase, 6))
		return true;
	if (phase->phases < 2 || (phase->phases == 2 && may_be_in_turn(recall(phase, 0), recall(phase, 1))) ||
	    (phase->phases > 2 && (recall(phase, 0)->fed != recall(phase, 1)->fed || followers_differ(recall(phase, 0), recall(phase, 1)))))
		return false;
	return repeats(phase, 1, phase->doubted ? 4 : 2) || second_is_like_first(phase);
}

/* Of one kind of phase there is no cycle. */
static bool phases_differ(struct tpck_phase *phase, uint64_t k)
{
	for (uint64_t i = 1; i < k; i++)
		if (!same_phase(recall(phase, 0), recall(phase, i)) || recall(phase, 0)->fed != recall(phase, i)->fed)
			return true;
	return false;
}

static bool adopt_cycle(struct tpck_phase *phase)
{
	if (phase->tailed)
		return false;
	if (adopt_single(phase)) {
		phase->cycle = 1;
		phase->members[0] = *recall(phase, 0);
		phase->streak = 2;
		return true;
	}
	for (int k = 2; k <= TPCK_PHASE_CYCLE; k++) {
		int back;
		if (!repeats(phase, (uint64_t)k, 2 * (uint64_t)k) || !phases_differ(phase, (uint64_t)k) || (back = end_of_cycle(phase, (uint64_t)k)) < 0)
			continue;
		for (int i = 0; i < k; i++)
			phase->members[i] = *recall(phase, (uint64_t)(k - 1 - i));
		phase->cycle = k;
		phase->position = 0;
		phase->end = k - 1 - back;
		phase->streak = 2;
		return true;
	}
	return false;
}

static bool fits_single(struct tpck_phase *phase, const struct tpck_phase_record *record)
{
	const struct tpck_phase_record *known = &phase->members[0];
	bool taken_over = phase->strangers > 0 && same_phase(record, recall(phase, 1));
	bool astray = known->follower == TPCK_PHASE_HOST && record->follower && record->follower != TPCK_PHASE_HOST &&
		      !followed_by(&phase->shapes[record->shape], record->follower);
	/* Other parameters are trained from now on. */
	bool other = phase->streak >= FIRM && record->fed && known->fed && record->last_function == known->last_function &&
		     record->follower && record->follower == known->follower;
	if (is_another(phase, record, known) && !record->whole) {
		give_up_cycle(phase);
		return false;
	}
	if (same_phase(record, known) || plain(record, known) || other || (record->shape == known->shape && phase->streak >= FIRM) || record->whole || taken_over) {
		phase->members[0] = *record;
		phase->streak += phase->streak < 1000;
		phase->strangers = 0;
		return !astray; /* work follows where always a batch or a read-back did */
	}
	if (phase->streak < FIRM || ++phase->strangers > 3)
		give_up_cycle(phase);
	return false;
}

static bool fits_cycle(struct tpck_phase *phase, const struct tpck_phase_record *record)
{
	for (int i = 0; i < phase->cycle; i++) {
		int at = (phase->position + i) % phase->cycle;
		if (!same_phase(record, &phase->members[at]))
			continue;
		phase->members[at] = *record;
		phase->position = (at + 1) % phase->cycle;
		phase->streak += phase->streak < 1000;
		phase->strangers = 0;
		return at == phase->end;
	}
	if (++phase->strangers > 3)
		give_up_cycle(phase);
	return false;
}

/* Takes in the phase just ended; true if the iteration ends with it. */
static bool judge_phase(struct tpck_phase *phase, const struct tpck_phase_record *record)
{
	bool known = phase->cycle > 0, ends;
	phase->phases++;
	*recall(phase, 0) = *record;
	if (known) {
		ends = phase->cycle == 1 ? fits_single(phase, record) : fits_cycle(phase, record);
		if (phase->cycle > 0)
			return ends;
	}
	if (!adopt_cycle(phase))
		return false;
	phase->sure_since = phase->now;
	return phase->cycle == 1 || phase->end == phase->cycle - 1;
}

static void note_boundary(struct tpck_phase *phase, uint64_t at)
{
	phase->boundaries++;
	phase->previous_boundary = phase->last_boundary;
	phase->last_boundary = at;
}

/* --- one phase ----------------------------------------------------------------------------------------------- */

/* Phases so far were parts of one. What is learnt begins anew, but for the phase under way. */
static void take_whole_turns(struct tpck_phase *phase)
{
	if (phase->cycle > 0)
		give_up_cycle(phase);
	phase->whole_turn = true;
	phase->fed = phase->fed || (phase->phases > 0 && recall(phase, 0)->fed);
	phase->doubted = phase->tailed = false;
	phase->shape_count = 0;
	phase->phases = 0;
	phase->first_count[0] = phase->first_count[1] = 0;
	phase->follower_due = false;
}

static void note_tail(struct tpck_phase *phase)
{
	if (phase->threaded && !phase->whole_turn) {
		take_whole_turns(phase);
		return;
	}
	phase->tailed = true;
	if (phase->cycle > 0)
		give_up_cycle(phase);
}

static bool end_phase(struct tpck_phase *phase, int shape)
{
	struct tpck_phase_shape *known = &phase->shapes[shape];
	bool ends;
	phase->current.shape = shape;
	known->seen++;
	phase->open = false;
	phase->gap = 0;
	phase->gap_kernels = 0;
	phase->fed = phase->batch = false;
	phase->last_count = phase->count;
	phase->previous_phase = phase->last_phase;
	phase->last_phase = phase->now;
	ends = judge_phase(phase, &phase->current);
	note_follower(known, phase->current.follower);
	phase->follower_due = false;
	phase->others = phase->tailed = false;
	known->ended = ends ? known->ended + 1 : 0;
	return ends;
}

static unsigned begin_phase(struct tpck_phase *phase, const struct tpck_phase_op *op)
{
	if (phase->phases > 0 && phase->now == phase->last_phase + 1)
		phase->shapes[recall(phase, 0)->shape].prefix = true; /* what was told to be its end was not */
	phase->in_hooks = phase->wide && op->backward_thread;
	phase->threaded = phase->wide && (phase->threaded || phase->others);
	if (phase->phases > 0 && phase->threaded && !phase->others && !phase->batch && !op->whole && !phase->in_hooks &&
	    !phase->whole_turn)
		take_whole_turns(phase);
	phase->follower_due = false;
	phase->begun = true;
	phase->inside = phase->outside = 0;
	phase->open = true;
	phase->home = op->thread;
	phase->digest = 0;
	phase->count = 0;
	phase->matched = -1;
	phase->updates = 0;
	phase->current = (struct tpck_phase_record){
		.shape = -1,
		.extends = -1,
		.reach = ring_digest(phase, phase->reach, TPCK_PHASE_REACH, 0),
		.gap = phase->gap,
		.gap_kernels = phase->gap_kernels,
		.before = phase->prev,
		.before_op = phase->prev_op,
		.fed = phase->fed,
		.checked = phase->checked_at > 0 && phase->context_at - phase->checked_at < TPCK_PHASE_CONTEXT,
	};
	for (uint32_t i = 0; i < TPCK_PHASE_SLACK; i++)
		phase->current.context[i] = ring_digest(phase, phase->context, TPCK_PHASE_CONTEXT, i);
	return phase->cycle > 0 ? TPCK_V_OPT_BEGIN : TPCK_V_NONE;
}

/* Before what comes behind is seen. */
static unsigned end_early(struct tpck_phase *phase)
{
	bool ends;
	phase->current.after = phase->members[phase->cycle == 1 ? 0 : phase->position].after;
	phase->current.follower = phase->shapes[phase->matched].followers[0]; /* most likely */
	ends = end_phase(phase, phase->matched);
	phase->follower_due = true;
	if (!ends)
		return TPCK_V_NONE;
	note_boundary(phase, phase->now + 1);
	return TPCK_V_BOUNDARY_AFTER;
}

/* Where the way to the phase is a new one, the phase may be longer than ever. */
static bool gap_is_known(struct tpck_phase *phase)
{
	for (uint64_t i = 0; i < GAPS && i < phase->phases; i++)
		if (recall(phase, i)->gap == phase->current.gap && recall(phase, i)->gap_kernels == phase->current.gap_kernels)
			return true;
	return false;
}

/* Whether a whole turn has come to where it ended the last times. */
static bool tail_is_known(const struct tpck_phase *phase)
{
	const struct tpck_phase_shape *shape = &phase->shapes[phase->matched];
	return shape->tail_seen >= 1 && shape->tail == phase->tail && shape->tail_count == phase->tail_count;
}

static unsigned feed_member(struct tpck_phase *phase, const struct tpck_phase_op *op)
{
	struct tpck_phase_shape *shape;
	unsigned verdict = TPCK_V_NONE;
	if (!phase->open)
		verdict |= begin_phase(phase, op);
	phase->digest = tpck_phase_mix(phase->digest, op->fine);
	phase->count++;
	phase->since_member = 0;
	phase->current.follower = 0;
	phase->inside |= phase->outside;
	phase->outside = phase->tail = 0;
	phase->worked = false;
	phase->tail_count = 0;
	phase->scalars_last = false;
	phase->echoes = 0;
	phase->last_updates = op->update || phase->whole_turn;
	phase->current.whole = phase->current.whole || op->whole;
	if (!phase->last_updates)
		return verdict;
	/* The identity reaches to the last launch that writes parameters: an average of weights may follow now and then. */
	if (phase->matched >= 0) {
		phase->shapes[phase->matched].prefix = true;
		phase->current.extends = phase->matched;
	}
	phase->updates = phase->count;
	phase->update_digest = phase->digest;
	phase->current.last = op->fine;
	phase->current.last_function = op->coarse;
	phase->matched = find_shape(phase, phase->digest, phase->count);
	if (phase->matched < 0)
		return verdict;
	shape = &phase->shapes[phase->matched];
	if (shape->ended >= 2 && !shape->prefix && !shape->trailed && gap_is_known(phase) && (!phase->whole_turn || tail_is_known(phase)))
		verdict |= end_early(phase);
	return verdict;
}

/* The first operation that breaks off a group of launches. Whether what lies between the last launch and it belongs to
 * the phase is not known: unless it follows at once, the place is learnt and not told. */
static bool break_off(struct tpck_phase *phase, const struct tpck_phase_op *op, bool at_once)
{
	/* Not the writing of parameters came last, and work follows: it belongs to an optimizer of which only a part is known. */
	bool unfinished = !phase->last_updates && op->op == TPCK_OP_KERNEL && !phase->in_hooks;
	bool echoed = phase->echoes >= TPCK_PHASE_ECHO && phase->echoes_differ && phase->threaded && !phase->whole_turn;
	bool ends;
	if (phase->updates == 0) {
		phase->open = false;
		if (unfinished && phase->phases > 0 && !phase->others)
			note_tail(phase);
		return false;
	}
	if (phase->matched < 0)
		phase->matched = add_shape(phase, phase->update_digest, phase->updates);
	phase->shapes[phase->matched].trailed = phase->shapes[phase->matched].trailed || !phase->last_updates;
	ends = end_phase(phase, phase->matched);
	if (unfinished || echoed)
		note_tail(phase);
	return ends && at_once && !unfinished && !echoed;
}

static bool in_filter(const uint64_t *filter, uint64_t coarse)
{
	return filter[(coarse >> 58) % TPCK_PHASE_FILTER] >> ((coarse >> 52) & 63) & 1;
}

static void put_in_filter(uint64_t *filter, uint64_t coarse)
{
	filter[(coarse >> 58) % TPCK_PHASE_FILTER] |= UINT64_C(1) << ((coarse >> 52) & 63);
}

/* Where the turn's optimizer ended is not known. It counts as a phase, behind which no end can be told. */
static void abandon_turn(struct tpck_phase *phase)
{
	if (phase->updates == 0) {
		phase->open = false;
		return;
	}
	if (phase->matched < 0)
		phase->matched = add_shape(phase, phase->update_digest, phase->updates);
	end_phase(phase, phase->matched);
	if (phase->cycle == 1)
		give_up_cycle(phase);
}

/* Another thread has gone on with its work: a pass is over and so is what its hooks did; a turn had no end. */
static bool feed_other_in_phase(struct tpck_phase *phase, const struct tpck_phase_op *op)
{
	if (phase->in_hooks) {
		if (!op->front)
			return false;
		phase->current.after = op->fine;
		phase->current.follower = follower_of(op);
		return break_off(phase, op, true);
	}
	if (phase->whole_turn && op->op == TPCK_OP_KERNEL)
		abandon_turn(phase);
	return false;
}

static void note_turn_tail(struct tpck_phase *phase)
{
	struct tpck_phase_shape *shape;
	if (phase->matched < 0)
		phase->matched = add_shape(phase, phase->update_digest, phase->updates);
	shape = &phase->shapes[phase->matched];
	shape->tail_seen = !phase->scalars_last && shape->tail == phase->tail && shape->tail_count == phase->tail_count ? shape->tail_seen + 1 : 0;
	shape->tail = phase->tail;
	shape->tail_count = phase->tail_count;
}

static void note_work_in_turn(struct tpck_phase *phase, uint64_t coarse)
{
	uint64_t bit = UINT64_C(1) << (coarse >> 58);
	phase->outside |= bit;
	phase->worked = phase->worked || (!(phase->inside & bit) && in_filter(phase->elsewhere, coarse));
}

/* The next batch ends it; or it is at its known end now, which *early says. */
static bool feed_stranger_in_turn(struct tpck_phase *phase, const struct tpck_phase_op *op, bool *early)
{
	if (op->op == TPCK_OP_H2D && op->bytes >= TPCK_PHASE_BATCH) {
		if (phase->updates == 0 || phase->worked) {
			abandon_turn(phase);
			return false;
		}
		note_turn_tail(phase);
		phase->current.after = op->fine;
		phase->current.follower = TPCK_PHASE_HOST;
		phase->last_updates = true;
		return break_off(phase, op, true);
	}
	if (op->op == TPCK_OP_KERNEL && op->breaking)
		note_work_in_turn(phase, op->coarse);
	phase->scalars_last = op->op == TPCK_OP_H2D;
	if (phase->scalars_last)
		return false;
	phase->tail = tpck_phase_mix(phase->tail, op->coarse);
	phase->tail_count++;
	*early = phase->matched >= 0 && phase->shapes[phase->matched].ended >= 2 && !phase->shapes[phase->matched].prefix &&
		 !phase->worked && gap_is_known(phase) && tail_is_known(phase);
	return false;
}

/* Clearing gradients is none. */
static void note_echo(struct tpck_phase *phase, const struct tpck_phase_op *op, bool next)
{
	if (op->op != TPCK_OP_KERNEL || op->fills)
		return;
	if (next) {
		phase->echo_function = op->coarse;
		phase->first_echo = op->fine;
		phase->echoes_differ = false;
	}
	if (op->coarse != phase->echo_function)
		return;
	phase->echoes++;
	phase->echoes_differ = phase->echoes_differ || op->fine != phase->first_echo;
}

/* The same behind a phase whose end has been told. */
static void note_echo_behind(struct tpck_phase *phase, const struct tpck_phase_op *op)
{
	if (phase->last_phase == phase->now)
		return; /* it is the first, which has been noted */
	if (op->op != TPCK_OP_KERNEL || op->breaking) {
		phase->echoes = 0;
		return;
	}
	note_echo(phase, op, false);
	if (phase->echoes >= TPCK_PHASE_ECHO && phase->echoes_differ && phase->threaded && !phase->whole_turn)
		take_whole_turns(phase);
}

/* A phase that is met for the first time, and yet known to be over: behind one that only made its state, or a graph. */
static bool complete_at_once(struct tpck_phase *phase)
{
	return (phase->phases == 1 && plain(&phase->current, recall(phase, 0))) ||
	       (phase->cycle == 1 && phase->current.whole && phase->count == 1);
}

static bool feed_stranger_in_phase(struct tpck_phase *phase, const struct tpck_phase_op *op, bool *early)
{
	bool next = phase->since_member++ == 0;
	if (phase->in_hooks && phase->since_member < LONGEST_PAUSE)
		return false;
	if (phase->whole_turn)
		return feed_stranger_in_turn(phase, op, early);
	note_echo(phase, op, next);
	if (next) {
		phase->current.after = op->fine;
		phase->current.follower = follower_of(op);
	}
	if (next && phase->last_updates && phase->matched >= 0 && !phase->shapes[phase->matched].prefix &&
	    (op->breaking || followed_by(&phase->shapes[phase->matched], phase->current.follower)))
		return end_phase(phase, phase->matched);
	if (next && phase->last_updates && phase->matched < 0 && complete_at_once(phase))
		return end_phase(phase, add_shape(phase, phase->update_digest, phase->updates));
	if (!op->breaking && phase->since_member < LONGEST_PAUSE)
		return false;
	return break_off(phase, op, next);
}

/* The CPU read a flag and left the phase out: what stood before the phase is followed by what stands behind it. */
static bool left_out(struct tpck_phase *phase, const struct tpck_phase_op *op)
{
	struct tpck_phase_record *expected = tpck_phase_expected(phase);
	if (!tpck_phase_may_be_left_out(phase, expected, op->fine) || phase->gap_kernels == 0 ||
	    ring_digest(phase, phase->context, TPCK_PHASE_CONTEXT, 0) != expected->context[0])
		return false;
	phase->gap = 0;
	phase->gap_kernels = 0;
	phase->fed = false;
	if (phase->cycle == 1)
		return true;
	phase->position = (phase->position + 1) % phase->cycle;
	return (phase->position + phase->cycle - 1) % phase->cycle == phase->end;
}

/* Behind a phase whose end was told with its last launch. If it is not what it used to be, the next is not told so early. */
static void note_late_follower(struct tpck_phase *phase, const struct tpck_phase_op *op)
{
	struct tpck_phase_record *last = recall(phase, 0);
	struct tpck_phase_shape *shape = &phase->shapes[last->shape];
	last->follower = follower_of(op);
	if (!followed_by(shape, last->follower) || (phase->whole_turn && last->follower != TPCK_PHASE_HOST))
		shape->ended = shape->tail_seen = 0;
	note_follower(shape, last->follower);
	if (phase->cycle == 1)
		phase->members[0].follower = last->follower;
	phase->follower_due = false;
}

unsigned tpck_phase_feed(struct tpck_phase *phase, const struct tpck_phase_op *op)
{
	unsigned verdict = TPCK_V_NONE;
	if (phase->now == 0)
		phase->home = op->thread; /* until there is a phase: the first thread's launches are no other thread's */
	if (op->member) {
		verdict = feed_member(phase, op);
	} else {
		bool ends = false, early = false;
		if (phase->follower_due && op->thread == phase->home)
			note_late_follower(phase, op);
		if (op->thread != phase->home)
			ends = phase->open && feed_other_in_phase(phase, op);
		else if (phase->open)
			ends = feed_stranger_in_phase(phase, op, &early);
		else if (phase->prev_op == TPCK_OP_D2H && phase->cycle > 0)
			ends = left_out(phase, op);
		if (ends) {
			note_boundary(phase, phase->now);
			verdict = TPCK_V_BOUNDARY_BEFORE;
		} else if (early) {
			verdict = end_early(phase);
		}
		if (!phase->open && phase->echoes > 0 && op->thread == phase->home)
			note_echo_behind(phase, op);
		if (op->tail && !phase->open && !phase->others && phase->phases > 0)
			note_tail(phase);
		if (op->op == TPCK_OP_GRAPH)
			phase->others = true; /* it may hold a backward pass */
		if (op->op == TPCK_OP_KERNEL) {
			if (phase->phases < 2)
				phase->first[phase->phases][phase->first_count[phase->phases]++ % TPCK_PHASE_FIRST] = op->fine;
			tpck_phase_add_kernel(phase, op->fine, op->coarse, op->thread);
			if (op->checks)
				phase->checked_at = phase->context_at;
			if (op->breaking && (!phase->begun || (phase->whole_turn && phase->batch && !phase->open)))
				put_in_filter(phase->elsewhere, op->coarse);
		} else if (op->op == TPCK_OP_H2D) {
			phase->fed = true;
			phase->batch = phase->batch || op->bytes >= TPCK_PHASE_BATCH;
		}
	}
	tpck_phase_move_on(phase, op->fine, op->op, op->thread);
	return verdict;
}
