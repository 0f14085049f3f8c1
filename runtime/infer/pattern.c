/* SPDX-License-Identifier: Apache-2.0 */
/** The pattern witness: finds the run of launches that is the optimizer's, then follows it. */
#include "config.h"

#include "runtime/infer/pattern.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	SHORTEST_RUN = 6,    /* launches of one function */
	SHORTEST_TURN = 4,   /* repetitions of a cycle */
	DIFFERENT_GRIDS = 3,
	PERIODS = 5,         /* of agreement with itself before it is believed: a loss scaler may skip the first steps */
	PERIODS_TURN = 3,    /* where the turns of threads bear it out */
	PERIODS_NAMED = 2,   /* where names say that all of it is arithmetic */
	PERIODS_MEMORY = 3,  /* where memory bears it out */
	SETTLED = 64,        /* phases after which a choice is no longer doubted */
};

#define MARK_BASE UINT64_C(0x9e3779b97f4a7c15)

int tpck_pattern_init(struct tpck_pattern *pattern, bool use_names)
{
	memset(pattern, 0, sizeof *pattern);
	pattern->use_names = use_names;
	pattern->history = malloc(TPCK_INFER_HISTORY * sizeof *pattern->history);
	pattern->turn = malloc(TPCK_PATTERN_TURN * sizeof *pattern->turn);
	if (pattern->history && pattern->turn)
		return 0;
	tpck_pattern_free(pattern);
	return -ENOMEM;
}

void tpck_pattern_free(struct tpck_pattern *pattern)
{
	free(pattern->history);
	free(pattern->turn);
	pattern->history = NULL;
	pattern->turn = NULL;
}

void tpck_pattern_forget(struct tpck_pattern *pattern)
{
	pattern->run_count = 0;
	pattern->chosen.kind = TPCK_RUN_NONE;
	pattern->taken = NULL;
	pattern->last = NULL;
	pattern->length = pattern->grids = 0;
	pattern->in_turn = false;
	pattern->waiting[0] = pattern->waiting[1] = NULL;
	pattern->known_from = pattern->now;
	tpck_phase_init(&pattern->phase, false);
}

/* --- runs ---------------------------------------------------------------------------------------------------- */

static struct tpck_run *enter_run(struct tpck_pattern *pattern, enum tpck_run_kind kind, struct tpck_function **functions,
				  int cycle, uint32_t thread, uint64_t grids)
{
	struct tpck_run *run = NULL;
	for (int i = 0; i < cycle; i++)
		if (!functions[i]->used)
			return NULL; /* one that stands for many */
	for (int i = 0; i < pattern->run_count && !run; i++) {
		struct tpck_run *known = &pattern->runs[i];
		if (known->kind == kind && known->cycle == cycle && (kind != TPCK_RUN_TURN || known->thread == thread) &&
		    memcmp(known->functions, functions, (size_t)cycle * sizeof(struct tpck_function *)) == 0)
			run = known;
	}
	if (!run) {
		if (pattern->run_count == TPCK_PATTERN_RUNS)
			return NULL;
		run = &pattern->runs[pattern->run_count++];
		*run = (struct tpck_run){.kind = kind, .cycle = cycle, .thread = thread};
		memcpy(run->functions, functions, (size_t)cycle * sizeof(struct tpck_function *));
	}
	int which = 0;
	while (which < run->grid_count && run->grids[which].digest != grids)
		which++;
	if (which == TPCK_PATTERN_GRIDS) {
		run->unsteady = true;
		return run;
	}
	if (which == run->grid_count)
		run->grids[run->grid_count++].digest = grids;
	run->grids[which].seen++;
	run->seen++;
	memmove(run->recent, run->recent + 1, sizeof run->recent - sizeof *run->recent);
	run->recent[2] = which;
	return run;
}

static void note_follower(struct tpck_run *run, struct tpck_function *function)
{
	int i = 0;
	while (i < run->follower_count && run->followers[i].function != function)
		i++;
	if (i == TPCK_PATTERN_FOLLOWERS) {
		run->unsteady = true;
		return;
	}
	if (i == run->follower_count)
		run->followers[run->follower_count++].function = function;
	run->followers[i].seen++;
}

static bool only_arithmetic(const struct tpck_run *run)
{
	for (int i = 0; i < run->cycle; i++)
		if (run->functions[i]->named.role != TPCK_ROLE_POINTWISE && run->functions[i]->named.role != TPCK_ROLE_OPTIMIZER)
			return false;
	return true;
}

static bool names_object(const struct tpck_run *run)
{
	for (int i = 0; i < run->cycle; i++) {
		const struct tpck_named_kernel *named = &run->functions[i]->named;
		if (named->preparing)
			return true;
		if (run->kind == TPCK_RUN_TURN && (named->role == TPCK_ROLE_OTHER || named->role == TPCK_ROLE_NEUTRAL))
			return true;
	}
	return false;
}

/* Each of the sequences of grids that came last has come so many times. */
static bool steady(const struct tpck_run *run, uint32_t periods)
{
	for (int i = 0; i < 3; i++)
		if (run->seen > 2u - (uint32_t)i && run->grids[run->recent[i]].seen + (i < 2) < periods)
			return false;
	return !run->unsteady;
}

/* Behind every such run came the next batch, or kernels that come elsewhere too. */
static bool ends_iteration(const struct tpck_run *run)
{
	uint32_t followed = 0;
	for (int i = 0; i < run->follower_count; i++) {
		if (run->followers[i].function->run_starts <= run->followers[i].seen)
			return false;
		followed += run->followers[i].seen;
	}
	return run->fed + followed + 1 >= run->seen && run->fed + followed > 0;
}

static bool qualifies(const struct tpck_pattern *pattern, const struct tpck_run *run)
{
	uint32_t periods = run->kind == TPCK_RUN_TURN ? PERIODS_TURN : PERIODS;
	if (pattern->use_names && only_arithmetic(run))
		periods = PERIODS_NAMED;
	if (run->seen < periods || !steady(run, periods) || !ends_iteration(run))
		return false;
	if (pattern->use_names && names_object(run))
		return false;
	return run->kind == TPCK_RUN_TURN || run->functions[0]->in_runs == run->functions[0]->launches;
}

static void restart(struct tpck_pattern *pattern);

/* What was taken for the optimizer's has come to be followed by launches that come nowhere else, or the like. */
static bool refuted(const struct tpck_pattern *pattern)
{
	const struct tpck_run *run = pattern->taken;
	if (pattern->chosen.kind == TPCK_RUN_GRAPH || pattern->chosen.kind == TPCK_RUN_MEMORY)
		return false;
	return !ends_iteration(run) || run->unsteady ||
	       (run->kind == TPCK_RUN_EXCLUSIVE && run->functions[0]->in_runs != run->functions[0]->launches);
}

static void refute(struct tpck_pattern *pattern)
{
	if (pattern->taken)
		pattern->taken->unsteady = true;
	pattern->chosen.kind = TPCK_RUN_NONE;
	pattern->strayed = false;
	tpck_phase_init(&pattern->phase, false);
}

/* At the end of a run: is there now exactly one that qualifies? */
static void choose(struct tpck_pattern *pattern)
{
	struct tpck_run *best = NULL;
	if (pattern->chosen.kind != TPCK_RUN_NONE) {
		if (refuted(pattern))
			refute(pattern);
		return;
	}
	for (int i = 0; i < pattern->run_count; i++) {
		if (!qualifies(pattern, &pattern->runs[i]))
			continue;
		if (best && best->kind == pattern->runs[i].kind)
			return;
		if (!best || pattern->runs[i].kind == TPCK_RUN_EXCLUSIVE)
			best = &pattern->runs[i];
	}
	if (!best)
		return;
	pattern->taken = best;
	pattern->chosen = *best;
	restart(pattern);
}

/* --- learning ------------------------------------------------------------------------------------------------ */

static void end_run(struct tpck_pattern *pattern)
{
	if (pattern->length < SHORTEST_RUN || pattern->grids < DIFFERENT_GRIDS)
		return;
	pattern->last->in_runs += pattern->length;
	pattern->waiting[0] = enter_run(pattern, TPCK_RUN_EXCLUSIVE, &pattern->last, 1, 0, pattern->grid_digest);
	pattern->waiting_fed = false;
}

static bool turn_repeats(const struct tpck_pattern_launch *turn, uint32_t n, uint32_t cycle)
{
	for (uint32_t i = cycle; i < n; i++)
		if (turn[i].function != turn[i - cycle].function)
			return false;
	return n % cycle == 0;
}

/* Fills at the end of a turn clear gradients, and may stand on either side of a boundary. */
static void end_turn(struct tpck_pattern *pattern)
{
	struct tpck_function *functions[TPCK_PATTERN_CYCLE];
	uint32_t n = pattern->turn_length, c = 1;
	uint64_t digest = 0;
	while (pattern->use_names && n > 0 && pattern->turn[n - 1].function->named.role == TPCK_ROLE_NEUTRAL)
		n--;
	while (c <= TPCK_PATTERN_CYCLE && c * SHORTEST_TURN <= n && !turn_repeats(pattern->turn, n, c))
		c++;
	if (c > TPCK_PATTERN_CYCLE || c * SHORTEST_TURN > n)
		return;
	for (uint32_t i = 0; i < n; i++)
		digest = tpck_phase_mix(digest, pattern->turn[i].fine);
	for (uint32_t i = 0; i < c; i++)
		functions[i] = pattern->turn[i].function;
	pattern->waiting[1] = enter_run(pattern, TPCK_RUN_TURN, functions, (int)c, pattern->last_thread, digest);
	pattern->waiting_fed = false;
}

/* Gradients are cleared right behind the optimizer: no unscaling or clipping is followed by that. */
static void end_turn_by_fill(struct tpck_pattern *pattern)
{
	end_turn(pattern);
	if (pattern->waiting[1])
		pattern->waiting[1]->fed++;
	pattern->waiting[1] = NULL;
	pattern->in_turn = false;
	choose(pattern);
}

static void learn_kernel(struct tpck_pattern *pattern, const struct tpck_pattern_op *op)
{
	struct tpck_function *function = op->function;
	bool switched = pattern->thread_known && op->phase.thread != pattern->last_thread;
	function->launches++;
	pattern->kernels_since_graph++;
	if (function != pattern->last) {
		function->run_starts++;
		pattern->length = pattern->grids = 0;
		pattern->grid_digest = 0;
	}
	for (int i = 0; i < 2; i++)
		if (pattern->waiting[i] && !pattern->waiting_fed)
			note_follower(pattern->waiting[i], function);
	pattern->waiting[0] = pattern->waiting[1] = NULL;
	pattern->last = function;
	pattern->length++;
	pattern->grid_digest = tpck_phase_mix(pattern->grid_digest, op->phase.fine);
	if (pattern->grids < 3) {
		uint32_t i = 0;
		while (i < pattern->grids && pattern->met[i] != op->phase.fine)
			i++;
		if (i == pattern->grids)
			pattern->met[pattern->grids++] = op->phase.fine;
	}
	if (pattern->in_turn && !switched && function->named.fill)
		end_turn_by_fill(pattern);
	if (switched) {
		pattern->in_turn = true;
		pattern->turn_length = 0;
	}
	if (pattern->in_turn && pattern->turn_length < TPCK_PATTERN_TURN) {
		pattern->turn[pattern->turn_length++] = (struct tpck_pattern_launch){function, op->phase.fine};
	} else {
		pattern->in_turn = false;
	}
	pattern->last_thread = op->phase.thread;
	pattern->thread_known = true;
}

static void learn_graph(struct tpck_pattern *pattern, const struct tpck_pattern_op *op)
{
	if (pattern->chosen.kind != TPCK_RUN_GRAPH && pattern->training && pattern->graph == op->function && pattern->kernels_since_graph == 0) {
		pattern->chosen = (struct tpck_run){.kind = TPCK_RUN_GRAPH, .cycle = 1, .functions = {op->function}};
		restart(pattern);
	}
	pattern->graph = op->function;
	pattern->kernels_since_graph = 0;
}

static void learn(struct tpck_pattern *pattern, const struct tpck_pattern_op *op)
{
	if (op->phase.op == TPCK_OP_KERNEL) {
		learn_kernel(pattern, op);
		return;
	}
	if (op->phase.op != TPCK_OP_GRAPH && op->phase.thread != pattern->last_thread)
		return; /* a loader's copy between the launches of another thread */
	if (pattern->length > 0)
		end_run(pattern);
	if (pattern->in_turn)
		end_turn(pattern);
	if (op->phase.op == TPCK_OP_H2D && !pattern->waiting_fed) {
		pattern->waiting_fed = true;
		for (int i = 0; i < 2; i++)
			if (pattern->waiting[i])
				pattern->waiting[i]->fed++;
	}
	pattern->in_turn = false;
	pattern->last = NULL;
	pattern->length = pattern->grids = 0;
	pattern->grid_digest = 0;
	if (op->phase.op == TPCK_OP_GRAPH)
		learn_graph(pattern, op);
	else
		choose(pattern);
}

/* --- following ----------------------------------------------------------------------------------------------- */

/* The number of the mark whose last operation this is, from 1; 0: of none. */
static int completed_mark(struct tpck_pattern *pattern, const struct tpck_phase_op *op)
{
	int complete = 0;
	if (!tpck_persistent_counts(op->op))
		return 0;
	for (int i = 0; i < pattern->mark_count; i++) {
		struct tpck_mark *mark = &pattern->marks[i];
		uint64_t oldest = pattern->recent_count < mark->length ? 0 : pattern->recent[(pattern->recent_count - mark->length) % TPCK_PATTERN_GRAM];
		mark->now = (mark->now - oldest * mark->highest) * MARK_BASE + op->fine;
		if (mark->now == mark->gram && pattern->recent_count + 1 >= mark->length)
			complete = i + 1;
	}
	pattern->recent[pattern->recent_count++ % TPCK_PATTERN_GRAM] = op->fine;
	return complete;
}

static bool is_member(struct tpck_pattern *pattern, const struct tpck_pattern_op *op)
{
	const struct tpck_run *run = &pattern->chosen;
	if (run->kind == TPCK_RUN_GRAPH)
		return op->phase.op == TPCK_OP_GRAPH && op->function == run->functions[0];
	if (op->phase.op != TPCK_OP_KERNEL) {
		pattern->following = pattern->following && op->phase.thread != pattern->follow_thread;
		return false;
	}
	if (run->kind == TPCK_RUN_EXCLUSIVE)
		return op->function == run->functions[0];
	if (op->phase.thread != pattern->follow_thread) {
		pattern->follow_thread = op->phase.thread;
		pattern->following = op->phase.thread == run->thread;
		pattern->follow_at = 0;
	}
	if (pattern->following && op->function == run->functions[pattern->follow_at % (uint32_t)run->cycle]) {
		pattern->follow_at++;
	} else {
		/* Other launches where the turn used to be over: it was not the optimizer's, or is no longer. */
		pattern->strayed = pattern->strayed || (pattern->following && pattern->follow_at > 0 && !op->function->named.fill);
		pattern->following = false;
	}
	return pattern->following;
}

static unsigned follow(struct tpck_pattern *pattern, const struct tpck_pattern_op *op)
{
	struct tpck_phase_op phase = op->phase;
	int mark = pattern->chosen.kind == TPCK_RUN_MEMORY ? completed_mark(pattern, &op->phase) : 0;
	phase.member = pattern->chosen.kind == TPCK_RUN_MEMORY ? mark > 0 : is_member(pattern, op);
	/* Phases that change other memory are others, whatever is launched. */
	if (mark && pattern->marks_differ) {
		phase.coarse = tpck_phase_mix(phase.coarse, (uint64_t)mark);
		phase.fine = tpck_phase_mix(phase.fine, (uint64_t)mark);
	}
	phase.breaking = !phase.member;
	phase.update = phase.member;
	phase.whole = phase.tail = false;
	/* The memory witness's sequence is that of all threads: a last change may be another thread's than what comes behind it. */
	if (pattern->chosen.kind == TPCK_RUN_MEMORY)
		phase.thread = 0;
	if (pattern->strayed)
		return TPCK_V_NONE;
	return tpck_phase_feed(&pattern->phase, &phase);
}

/* The first operation that is remembered. */
static uint64_t history_from(const struct tpck_pattern *pattern)
{
	uint64_t from = pattern->now > TPCK_INFER_HISTORY ? pattern->now - TPCK_INFER_HISTORY : 0;
	return from < pattern->known_from ? pattern->known_from : from;
}

/* Lets the tracker see what has been, so that it need not wait for as many periods again. */
static void restart(struct tpck_pattern *pattern)
{
	uint64_t from = history_from(pattern);
	tpck_phase_init(&pattern->phase, false);
	pattern->phase.now = from;
	pattern->following = pattern->strayed = false;
	pattern->follow_thread = UINT32_MAX;
	pattern->recent_count = 0;
	for (int i = 0; i < pattern->mark_count; i++)
		pattern->marks[i].now = 0;
	for (uint64_t i = from; i < pattern->now; i++)
		follow(pattern, &pattern->history[i % TPCK_INFER_HISTORY]);
}

/* --- marks of the memory witness ------------------------------------------------------------------------------ */

/* The operations that are remembered and count for marks, and what they are in their stretch. */
enum place { ELSEWHERE, LAST, NOT_LAST };
struct remembered {
	uint64_t fine;
	enum place place;
	int kind;
};

static bool is_known(const struct tpck_persistent *persistent, int kind)
{
	return kind >= 0 && persistent->kinds[kind].seen >= PERIODS_MEMORY;
}

/* NULL without memory. */
static struct remembered *remember(const struct tpck_pattern *pattern, const struct tpck_persistent *persistent, uint64_t from, uint32_t *count)
{
	struct remembered *all = malloc(TPCK_INFER_HISTORY * sizeof *all);
	uint32_t number = 0, place = 0;
	*count = 0;
	for (uint64_t at = from; all && at < pattern->now; at++) {
		const struct tpck_phase_op *op = &pattern->history[at % TPCK_INFER_HISTORY].phase;
		const struct tpck_stretch *stretch;
		while (number < persistent->number && persistent->stretches[number].begin <= at) {
			number++;
			place = 0;
		}
		if (!tpck_persistent_counts(op->op))
			continue;
		stretch = number ? &persistent->stretches[number - 1] : NULL;
		all[*count] = (struct remembered){op->fine, ELSEWHERE, -1};
		if (stretch && stretch->begin >= from && is_known(persistent, stretch->kind))
			all[*count] = (struct remembered){op->fine,
							  persistent->phases >> stretch->kind & 1 && place == persistent->kinds[stretch->kind].low ? LAST : NOT_LAST,
							  stretch->kind};
		place++;
		++*count;
	}
	return all;
}

static bool has_mark(const struct tpck_pattern *pattern, uint64_t gram)
{
	for (int i = 0; i < pattern->mark_count && i < TPCK_PATTERN_MARKS; i++)
		if (pattern->marks[i].gram == gram)
			return true;
	return false;
}

static void add_mark(struct tpck_pattern *pattern, uint64_t gram, uint32_t length, uint64_t highest)
{
	if (pattern->mark_count < TPCK_PATTERN_MARKS)
		pattern->marks[pattern->mark_count] = (struct tpck_mark){.gram = gram, .highest = highest, .length = length};
	pattern->mark_count++;
}

/* Whether the last so many operations tell the last ones from all others: of each kind they are the same each time. */
static bool tells(struct tpck_pattern *pattern, const struct remembered *all, uint32_t count, uint32_t length)
{
	uint64_t highest = 1, gram = 0, grams[TPCK_PERSISTENT_KINDS] = {0};
	uint32_t seen[TPCK_PERSISTENT_KINDS] = {0};
	pattern->mark_count = 0;
	for (uint32_t i = 1; i < length; i++)
		highest *= MARK_BASE;
	for (int look = 0; look < 2; look++) {
		gram = 0;
		for (uint32_t i = 0; i < count; i++) {
			gram = (gram - (i < length ? 0 : all[i - length].fine * highest)) * MARK_BASE + all[i].fine;
			if (i + 1 < length)
				continue;
			if (look == 0 && all[i].place == LAST) {
				bool first = !seen[all[i].kind]++;
				if ((!first && grams[all[i].kind] != gram) || (first && pattern->marks_differ && has_mark(pattern, gram)))
					return false;
				grams[all[i].kind] = gram;
				if (!has_mark(pattern, gram))
					add_mark(pattern, gram, length, highest);
			}
			if (look == 1 && all[i].place == NOT_LAST && has_mark(pattern, gram))
				return false;
		}
		if (pattern->mark_count == 0 || pattern->mark_count > TPCK_PATTERN_MARKS)
			return false;
	}
	for (int i = 0; i < TPCK_PERSISTENT_KINDS; i++)
		if (seen[i] && seen[i] < PERIODS_MEMORY)
			return false;
	return true;
}

bool tpck_pattern_mark(struct tpck_pattern *pattern, const struct tpck_persistent *persistent)
{
	uint64_t from = history_from(pattern);
	struct remembered *all;
	uint32_t count, length = 1;
	if (pattern->chosen.kind != TPCK_RUN_NONE || (persistent->several && from > 0))
		return false;
	pattern->marks_differ = persistent->several;
	all = remember(pattern, persistent, from, &count);
	while (all && length <= TPCK_PATTERN_GRAM && !tells(pattern, all, count, length))
		length *= 2;
	free(all);
	if (!all || length > TPCK_PATTERN_GRAM)
		return false;
	pattern->chosen = (struct tpck_run){.kind = TPCK_RUN_MEMORY, .cycle = 1};
	restart(pattern);
	return true;
}

unsigned tpck_pattern_feed(struct tpck_pattern *pattern, const struct tpck_pattern_op *op)
{
	unsigned verdict = TPCK_V_NONE;
	if (pattern->chosen.kind == TPCK_RUN_NONE || pattern->phase.streak < SETTLED) {
		learn(pattern, op);
		pattern->history[pattern->now % TPCK_INFER_HISTORY] = *op;
	}
	if (pattern->chosen.kind != TPCK_RUN_NONE)
		verdict = follow(pattern, op);
	if (pattern->strayed)
		refute(pattern);
	pattern->now++;
	return verdict;
}
