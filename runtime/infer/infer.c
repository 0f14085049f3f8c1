/* SPDX-License-Identifier: Apache-2.0 */
/** The inference engine: turns tokens into digests, asks both witnesses, and decides. */
#include "config.h"

#include "runtime/infer/infer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/infer/function_table.h"
#include "runtime/infer/pattern.h"
#include "runtime/infer/phase.h"
#include "runtime/infer/turnover.h"

enum {
	PENDING = 16,    /* arithmetic functions since the last launch of the optimizer */
	FRONT_KNOWN = 4, /* phases after which the threads' kernels are no longer counted */
	SETTLED = 64,    /* phases after which names no longer need the pattern */
	SELF_TRUST = 4,  /* phases in a row that a witness must have got right to be followed against the other */
};

struct tpck_infer {
	struct tpck_infer_options options;
	struct tpck_functions functions;
	struct tpck_pattern pattern;
	struct tpck_phase names;
	struct tpck_turnover turnover;
	struct tpck_persistent persistent;
	bool watched; /* it has been begun */
	struct tpck_function *pending[PENDING];
	int pending_count;
	bool scalars_up, working_since_phase; /* see is_tail() */
	bool trains, first_known, backward_known; /* a backward pass has been seen, by its name or by its thread */
	uint32_t first_thread, backward_thread; /* of the first kernel, and of the last of a backward pass */
	uint32_t other_thread;                  /* of the last kernel of another thread than that */
	uint64_t backward_kernels, other_kernels;
	uint64_t now, short_ops, uploads;
	uint64_t iterations, last_boundary, period, sure_since;
	uint64_t disputes, last_dispute;
	uint32_t optimizer_ops;
	unsigned witnesses;
	bool sure, begun_phase;
	bool calm; /* see is_calm() */
	bool pattern_first; /* it has seen a phase begin before the names did */
	char text[1024];
};

struct tpck_infer *tpck_infer_new(const struct tpck_infer_options *options)
{
	struct tpck_infer *infer = calloc(1, sizeof *infer);
	if (!infer)
		return NULL;
	infer->options = options ? *options : (struct tpck_infer_options){true, true, false};
	tpck_phase_init(&infer->names, true);
	if (tpck_functions_init(&infer->functions) < 0)
		goto no_functions;
	if (tpck_pattern_init(&infer->pattern, infer->options.use_names) < 0)
		goto no_pattern;
	return infer;
no_pattern:
	tpck_functions_free(&infer->functions);
no_functions:
	free(infer);
	return NULL;
}

void tpck_infer_free(struct tpck_infer *infer)
{
	if (!infer)
		return;
	if (infer->watched)
		tpck_persistent_end(&infer->persistent);
	tpck_pattern_free(&infer->pattern);
	tpck_functions_free(&infer->functions);
	free(infer);
}

struct tpck_persistent *tpck_infer_watch(struct tpck_infer *infer)
{
	if (infer->watched || !infer->options.use_pattern || tpck_persistent_begin(&infer->persistent))
		return NULL;
	infer->watched = true;
	return &infer->persistent;
}

static inline uint64_t digest_kernel(const struct tpck_token *token, uint64_t *coarse)
{
	*coarse = tpck_phase_mix((uint64_t)TPCK_OP_KERNEL + 1, token->func);
	/* one chain of multiplications instead of four */
	return tpck_phase_mix(*coarse, (token->grid[0] | (uint64_t)token->grid[1] << 32) * 0xd6e8feb86659fd93ull +
					       (token->grid[2] | (uint64_t)token->block[0] << 32) * 0xa0761d6478bd642full +
					       (token->block[1] | (uint64_t)token->block[2] << 32) * 0xe7037ed1a0b428dbull + token->smem);
}

static void digest_token(const struct tpck_token *token, struct tpck_phase_op *op)
{
	op->op = token->op;
	if (token->op == TPCK_OP_KERNEL) {
		op->fine = digest_kernel(token, &op->coarse);
		return;
	}
	op->coarse = tpck_phase_mix((uint64_t)token->op + 1, token->func);
	op->fine = tpck_phase_mix(op->coarse, token->bytes);
}

/* What is known of the token's function; the caller may keep it for us from one launch of it to the next. */
static inline struct tpck_function *function_of(struct tpck_infer *infer, const struct tpck_token *token)
{
	struct tpck_function *known = token->memo ? *token->memo : NULL;
	if (__builtin_expect(!known, 0)) {
		known = tpck_functions_get(&infer->functions, token->func, infer->options.use_names ? token->name : NULL,
					   token->param_bytes);
		if (token->memo && known != &infer->functions.overflow)
			*token->memo = known;
	}
	return known;
}

/* --- the names witness --------------------------------------------------------------------------------------- */

/* Is the launch the optimizer's? Arithmetic between two of its launches is its own from the next phase on. */
static bool named_member(struct tpck_infer *infer, struct tpck_function *function, enum tpck_op op)
{
	if (op == TPCK_OP_GRAPH)
		return function->optimizer_node;
	if (op != TPCK_OP_KERNEL)
		return false;
	if (function->named.role == TPCK_ROLE_OPTIMIZER && (infer->trains || !function->named.common)) {
		if (infer->names.open)
			for (int i = 0; i < infer->pending_count; i++)
				infer->pending[i]->inner = true;
		infer->pending_count = 0;
		return true;
	}
	if (!infer->names.open || function->named.role != TPCK_ROLE_POINTWISE)
		return false;
	if (!function->inner && infer->pending_count < PENDING)
		infer->pending[infer->pending_count++] = function;
	return function->inner;
}

static bool named_breaking(const struct tpck_function *function, enum tpck_op op)
{
	switch (op) {
	case TPCK_OP_KERNEL:
		return function->named.role == TPCK_ROLE_OTHER || function->named.role == TPCK_ROLE_UNKNOWN;
	case TPCK_OP_D2D:
	case TPCK_OP_MEMSET:
		return false;
	default:
		return true;
	}
}

/* A graph with as many nodes as the last iteration had operations, which ended with a phase, is that iteration. */
static void look_into_graph(struct tpck_infer *infer, struct tpck_function *graph, const struct tpck_token *token)
{
	const struct tpck_phase *names = &infer->names;
	if (names->cycle == 1 && token->grid[0] > 1 && token->grid[0] == names->last_boundary - names->previous_boundary)
		graph->optimizer_node = true;
}

/* Scalars that go up to the device and then from there into lists of tensors (the averages of ASGD), before the work of
 * the next iteration. */
static bool is_tail(struct tpck_infer *infer, const struct tpck_function *function, const struct tpck_phase_op *op,
		    uint64_t bytes)
{
	if (op->op == TPCK_OP_H2D)
		infer->scalars_up = bytes <= 16 && !infer->working_since_phase;
	else if (op->member)
		infer->scalars_up = infer->working_since_phase = false;
	else if (op->op == TPCK_OP_KERNEL && op->breaking)
		infer->working_since_phase = true;
	return op->op == TPCK_OP_KERNEL && function->named.list && !op->member && infer->scalars_up &&
	       !infer->working_since_phase;
}

/* Which thread launches what? */
static void note_thread(struct tpck_infer *infer, const struct tpck_function *function, uint32_t thread)
{
	if (!infer->first_known)
		infer->first_thread = thread;
	infer->first_known = true;
	if (function->named.backward) {
		infer->backward_known = true;
		infer->backward_thread = thread;
	}
	if (infer->backward_known && infer->names.phases < FRONT_KNOWN) {
		bool backward = thread == infer->backward_thread;
		infer->backward_kernels += backward;
		infer->other_kernels += !backward;
		infer->other_thread = backward ? infer->other_thread : thread;
	}
	infer->trains = infer->trains || function->named.gradient || thread != infer->first_thread;
}

/* The thread that launches forward passes: the first, but where that launches the backward passes (it was not seen from
 * its start) and another one does about as much. */
static uint32_t front_thread(const struct tpck_infer *infer)
{
	return infer->backward_known && infer->backward_thread == infer->first_thread &&
			       infer->other_kernels * 8 > infer->backward_kernels && infer->other_kernels > 8
		       ? infer->other_thread
		       : infer->first_thread;
}

static unsigned ask_names(struct tpck_infer *infer, struct tpck_function *function, struct tpck_phase_op *op, uint64_t bytes)
{
	if (op->op == TPCK_OP_KERNEL) {
		note_thread(infer, function, op->thread);
		op->fills = function->named.fill;
		op->checks = function->named.checks;
	}
	op->bytes = bytes;
	op->front = infer->first_known && op->thread == front_thread(infer);
	op->backward_thread = infer->backward_known && op->thread == infer->backward_thread && !op->front;
	if (!infer->names.open)
		infer->pending_count = 0;
	op->member = named_member(infer, function, op->op);
	op->breaking = named_breaking(function, op->op);
	op->whole = op->member && op->op == TPCK_OP_GRAPH;
	op->update = op->member && (op->whole || function->named.update);
	op->tail = is_tail(infer, function, op, bytes);
	return tpck_phase_feed(&infer->names, op);
}

/* --- the decision -------------------------------------------------------------------------------------------- */

static bool names_speak(const struct tpck_infer *infer)
{
	return infer->options.use_names && tpck_phase_sure(&infer->names);
}

static bool pattern_speaks(const struct tpck_infer *infer)
{
	return infer->options.use_pattern && infer->pattern.chosen.kind != TPCK_RUN_NONE &&
	       tpck_phase_sure(&infer->pattern.phase);
}

/* No phase bore a known name between the pattern's last two: a graph took over, or there never was one. */
static bool names_silent(const struct tpck_infer *infer)
{
	return infer->names.phases == 0 ||
	       (!infer->names.open && infer->names.last_phase < infer->pattern.phase.previous_phase);
}

/* Neither witness has found a phase in several periods of the same operations. */
static bool turnover_speaks(const struct tpck_infer *infer)
{
	return infer->options.use_names && infer->options.use_pattern && infer->turnover.boundaries > 0 &&
	       infer->names.phases == 0 && !infer->names.whole_turn && infer->pattern.chosen.kind == TPCK_RUN_NONE;
}

/* The pattern knows the whole run, the names perhaps only some of its launches: the first to see it begin tells. */
static unsigned merge_begins(struct tpck_infer *infer, unsigned names, unsigned pattern)
{
	unsigned begin = (names | pattern) & TPCK_V_OPT_BEGIN;
	if (begin && infer->begun_phase)
		begin = 0;
	if (begin)
		infer->begun_phase = true;
	if (begin && !(names & TPCK_V_OPT_BEGIN))
		infer->pattern_first = true;
	if (!infer->names.open && !infer->pattern.phase.open)
		infer->begun_phase = false;
	return (names & ~(unsigned)TPCK_V_OPT_BEGIN) | begin;
}

static unsigned decide(struct tpck_infer *infer, unsigned names, unsigned pattern, unsigned turnover)
{
	const unsigned boundary = TPCK_V_BOUNDARY_BEFORE | TPCK_V_BOUNDARY_AFTER;
	bool both = names_speak(infer) && pattern_speaks(infer) && !names_silent(infer);
	if (both && infer->names.last_boundary != infer->pattern.phase.last_boundary && (names & boundary)) {
		/* The witnesses name different places. A witness new to its answer gives way to silence. */
		infer->disputes++;
		infer->last_dispute = infer->now;
		if (infer->names.streak < SELF_TRUST)
			return TPCK_V_NONE;
	}
	if (names_speak(infer) && !(pattern_speaks(infer) && names_silent(infer))) {
		if (names & boundary)
			infer->witnesses = TPCK_W_NAMES | (both && infer->names.last_boundary == infer->pattern.phase.last_boundary
								   ? TPCK_W_PATTERN
								   : 0);
		infer->sure = true;
		if (pattern_speaks(infer) && !names_silent(infer))
			names = merge_begins(infer, names, pattern);
		return names;
	}
	if (pattern_speaks(infer) && (!infer->options.use_names || names_silent(infer))) {
		infer->sure = true;
		if (pattern & boundary)
			infer->witnesses = TPCK_W_PATTERN;
		return pattern;
	}
	infer->sure = turnover_speaks(infer);
	if (infer->sure)
		infer->witnesses = TPCK_W_PATTERN;
	return infer->sure ? turnover : TPCK_V_NONE;
}

static void note_verdict(struct tpck_infer *infer, unsigned verdict, bool was_sure)
{
	uint64_t at = infer->now + (verdict & TPCK_V_BOUNDARY_AFTER ? 1 : 0);
	if (infer->sure && !was_sure)
		infer->sure_since = infer->now;
	if (!(verdict & (TPCK_V_BOUNDARY_BEFORE | TPCK_V_BOUNDARY_AFTER)))
		return;
	infer->iterations++;
	infer->period = infer->last_boundary ? at - infer->last_boundary : 0;
	infer->last_boundary = at;
	infer->optimizer_ops = infer->witnesses & TPCK_W_NAMES ? infer->names.last_count : infer->pattern.phase.last_count;
}

/* Once names are settled the pattern rests, unless it knows better where phases begin; a graph that may take the step
 * over wakes it, and so does doubt. */
static bool pattern_wanted(struct tpck_infer *infer, enum tpck_op op)
{
	bool settled = names_speak(infer) && infer->names.streak >= SETTLED && !infer->pattern_first && !infer->pattern.graph &&
		       op != TPCK_OP_GRAPH;
	if (!infer->options.use_pattern)
		return false;
	if (settled && infer->pattern.chosen.kind != TPCK_RUN_NONE)
		tpck_pattern_forget(&infer->pattern);
	return !settled;
}

/* Memory is looked at while nothing else tells. */
static unsigned ask_memory(struct tpck_infer *infer, const struct tpck_phase_op *op)
{
	unsigned look = tpck_persistent_feed(&infer->persistent, op, infer->now);
	if (infer->sure)
		infer->persistent.on = false;
	else if (infer->persistent.phases)
		(void)tpck_pattern_mark(&infer->pattern, &infer->persistent);
	if (!infer->persistent.on)
		tpck_persistent_end(&infer->persistent);
	return infer->persistent.on ? look : TPCK_V_NONE;
}

static unsigned feed_all(struct tpck_infer *infer, const struct tpck_token *token)
{
	struct tpck_pattern_op op = {.phase.thread = token->thread};
	unsigned names = TPCK_V_NONE, pattern = TPCK_V_NONE, turnover = TPCK_V_NONE, look = TPCK_V_NONE, verdict;
	bool was_sure = infer->sure;
	digest_token(token, &op.phase);
	if (token->op == TPCK_OP_KERNEL || token->op == TPCK_OP_GRAPH)
		op.function = function_of(infer, token);
	if (infer->options.use_names && token->op == TPCK_OP_GRAPH && !op.function->optimizer_node)
		look_into_graph(infer, op.function, token);
	if (infer->options.use_names)
		names = ask_names(infer, op.function, &op.phase, token->bytes);
	op.phase.bytes = token->bytes;
	if (__builtin_expect(infer->persistent.on, 0))
		look = ask_memory(infer, &op.phase);
	if (pattern_wanted(infer, token->op)) {
		infer->pattern.training = infer->names.boundaries >= 2 || infer->pattern.phase.boundaries >= 2;
		pattern = tpck_pattern_feed(&infer->pattern, &op);
	} else {
		tpck_pattern_pass(&infer->pattern);
	}
	if (infer->names.phases == 0 && infer->options.use_names) {
		turnover = tpck_turnover_feed(&infer->turnover, &op.phase, token->bytes, op.function && op.function->named.addition);
	}
	verdict = decide(infer, names, pattern, turnover);
	note_verdict(infer, verdict, was_sure);
	infer->now++;
	if (token->op == TPCK_OP_KERNEL && (op.phase.member || (op.function->named.list && infer->names.open)))
		verdict |= TPCK_V_LISTS;
	return verdict | look;
}

/* --- the short way ------------------------------------------------------------------------------------------- */

/* Names are sure and settled, the pattern rests, and no phase is open. All that an operation which is not the optimizer's
 * can do then is to lengthen the stretch since the last phase; the verdict is none. That is most of them, and each costs
 * the program time: they go past everything else. Whatever else they may do goes the long way; both leave the same state
 * behind, which tests compare. */
static bool is_calm(struct tpck_infer *infer)
{
	return !infer->options.no_shortcut && infer->options.use_names && infer->sure && names_speak(infer) &&
	       infer->names.phases > 1 && infer->names.streak >= SETTLED && !infer->names.open && !infer->pattern_first &&
	       !infer->pattern.graph && infer->pattern.chosen.kind == TPCK_RUN_NONE;
}

static bool pass_kernel(struct tpck_infer *infer, const struct tpck_token *token)
{
	const struct tpck_function *function = function_of(infer, token);
	uint64_t coarse, fine = digest_kernel(token, &coarse);
	if (function->named.role == TPCK_ROLE_OPTIMIZER || function->named.checks || (function->named.list && infer->scalars_up) ||
	    !tpck_phase_pass(&infer->names, TPCK_OP_KERNEL, fine, coarse, token->thread))
		return false;
	if (function->named.backward)
		infer->backward_thread = token->thread;
	if (!infer->working_since_phase)
		infer->working_since_phase = named_breaking(function, TPCK_OP_KERNEL);
	return true;
}

static bool pass_copy(struct tpck_infer *infer, const struct tpck_token *token)
{
	struct tpck_phase_op op;
	if (token->op == TPCK_OP_GRAPH)
		return false;
	digest_token(token, &op);
	if (!tpck_phase_pass(&infer->names, token->op, op.fine, op.coarse, token->thread))
		return false;
	if (token->op == TPCK_OP_H2D) {
		infer->scalars_up = token->bytes <= 16 && !infer->working_since_phase;
		infer->names.batch = infer->names.batch || token->bytes >= TPCK_PHASE_BATCH;
	}
	return true;
}

unsigned tpck_infer_feed(struct tpck_infer *infer, const struct tpck_token *token)
{
	unsigned verdict;
	infer->uploads += token->op == TPCK_OP_H2D;
	if (infer->calm && (token->op == TPCK_OP_KERNEL ? pass_kernel(infer, token) : pass_copy(infer, token))) {
		tpck_pattern_pass(&infer->pattern);
		infer->now++;
		infer->short_ops++;
		return TPCK_V_NONE;
	}
	verdict = feed_all(infer, token);
	infer->calm = is_calm(infer);
	if (infer->calm)
		infer->pending_count = 0; /* as the next operation would */
	return verdict;
}

void tpck_infer_graph_node(struct tpck_infer *infer, uint64_t graph, const struct tpck_token *node)
{
	struct tpck_function *function = tpck_functions_get(&infer->functions, graph, NULL, 0);
	if (!infer->options.use_names || node->op != TPCK_OP_KERNEL || function == &infer->functions.overflow)
		return;
	if (tpck_name_kernel(node->name, node->param_bytes).role == TPCK_ROLE_OPTIMIZER)
		function->optimizer_node = true;
}

/* --- for people ---------------------------------------------------------------------------------------------- */

static const char *why_not_sure(const struct tpck_infer *infer)
{
	if (!infer->options.use_names && !infer->options.use_pattern)
		return "both witnesses are switched off";
	if (infer->names.tailed)
		return "launches that belong to an optimizer come behind the last phase that is known for one";
	if (infer->names.phases == 1)
		return "one optimizer phase has been seen; the next one decides";
	if (infer->names.phases > 1)
		return "the optimizer phases seen so far do not repeat, or it cannot be told after which of them an iteration ends";
	if (infer->pattern.chosen.kind != TPCK_RUN_NONE)
		return "the launches that look like an optimizer's do not yet repeat";
	if (infer->pattern.run_count > 0)
		return "launches that may be an optimizer's have been seen, too few times or in too many forms to be sure";
	if (!infer->options.use_names)
		return "no run of launches, one a tensor, comes once a period, and names may not be used";
	return "no launch bears an optimizer's name, and no run of launches, one a tensor, comes once a period";
}

void tpck_infer_summary(const struct tpck_infer *infer, struct tpck_infer_summary *summary)
{
	const struct tpck_phase *phase = infer->witnesses & TPCK_W_NAMES ? &infer->names : &infer->pattern.phase;
	*summary = (struct tpck_infer_summary){
		.ops = infer->now,
		.short_ops = infer->short_ops,
		.uploads = infer->uploads,
		.iterations = infer->iterations,
		.period = infer->period,
		.sure_since = infer->sure ? infer->sure_since : infer->now,
		.optimizer_ops = infer->optimizer_ops,
		.unknown_layouts = infer->functions.unknown_layouts,
		.witnesses = infer->witnesses,
		.sure = infer->sure,
	};
	if (infer->sure) {
		double streak = phase->streak;
		summary->confidence = streak / (streak + (infer->witnesses == (TPCK_W_NAMES | TPCK_W_PATTERN) ? 0.5 : 1.0));
		snprintf(summary->reason, sizeof summary->reason, "%s; %d phase%s an iteration",
			 infer->witnesses == (TPCK_W_NAMES | TPCK_W_PATTERN) ? "names and pattern agree"
			 : infer->witnesses & TPCK_W_NAMES                   ? "by the names of kernels"
			 : infer->witnesses && infer->pattern.chosen.kind == TPCK_RUN_MEMORY ? "by the memory that launches change"
			 : infer->witnesses                                  ? "by the pattern of launches"
											     : "phases repeat, no iteration has ended since",
			 phase->cycle, phase->cycle == 1 ? "" : "s");
	} else {
		snprintf(summary->reason, sizeof summary->reason, "%s", why_not_sure(infer));
	}
}

const char *tpck_infer_explain(struct tpck_infer *infer)
{
	static const char *const kinds[] = {"none yet", "a run of one function used nowhere else",
					    "a turn of a thread between backward and the next batch", "a graph",
					    "launches up to the last that changes memory which persists"};
	struct tpck_infer_summary summary;
	tpck_infer_summary(infer, &summary);
	snprintf(infer->text, sizeof infer->text,
		 "%s: %s\n"
		 "operations %llu, iterations %llu, the last one %llu operations with %u of the optimizer\n"
		 "names: %s%llu phases, %d an iteration, %u in a row as expected\n"
		 "pattern: %s%s, %llu phases, %d an iteration, %u in a row as expected\n"
		 "disputes between the two: %llu\n",
		 infer->sure ? "sure" : "not sure", summary.reason, (unsigned long long)summary.ops,
		 (unsigned long long)summary.iterations, (unsigned long long)summary.period, summary.optimizer_ops,
		 infer->options.use_names ? "" : "(off) ", (unsigned long long)infer->names.phases, infer->names.cycle,
		 infer->names.streak, infer->options.use_pattern ? "" : "(off) ", kinds[infer->pattern.chosen.kind],
		 (unsigned long long)infer->pattern.phase.phases, infer->pattern.phase.cycle, infer->pattern.phase.streak,
		 (unsigned long long)infer->disputes);
	return infer->text;
}
