/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The pattern witness: which launches are the optimizer's, told without names.
 *
 * What is looked for is a run of launches, one a tensor:
 * - of one function that is launched nowhere else, six times or more, on at least three different grids;
 * - or of a short cycle of functions, four times or more, that is all that a thread launches between another thread's
 *   launches (backward) and an operation that is no kernel.
 * What comes behind it must look like the next iteration: a host-to-device copy before any kernel, or kernels that
 * also come elsewhere. (A run that unscales gradients is followed by the optimizer, which comes nowhere else.)
 * And where a graph is launched again with no kernel in between, in a process that is known to train, the graph.
 * And where the memory witness knows which launch is the last that changes what persists, the launches up to that one.
 * A run must come with the same grids every time. Of two runs that qualify, neither is taken; nor is one again behind
 * which, where the turn used to be over, the thread has launched more.
 */
#ifndef TPCK_RUNTIME_INFER_PATTERN_H
#define TPCK_RUNTIME_INFER_PATTERN_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/infer/function_table.h"
#include "runtime/infer/persistent.h"
#include "runtime/infer/phase.h"

enum {
	TPCK_PATTERN_RUNS = 16,   /* runs looked at side by side */
	TPCK_PATTERN_CYCLE = 16,  /* longest cycle of functions, one tensor's worth */
	TPCK_PATTERN_GRIDS = 4,   /* different sequences of grids of one run */
	TPCK_PATTERN_FOLLOWERS = 4,
	TPCK_PATTERN_TURN = 1 << 16, /* longest turn of a thread */
	TPCK_PATTERN_MARKS = 4,
	TPCK_PATTERN_GRAM = 64,   /* longest mark, in operations */
};

enum tpck_run_kind { TPCK_RUN_NONE, TPCK_RUN_EXCLUSIVE, TPCK_RUN_TURN, TPCK_RUN_GRAPH, TPCK_RUN_MEMORY };

/* The operations up to an iteration's last, as a polynomial of their digests, and that of those which came last. */
struct tpck_mark {
	uint64_t gram, now, highest; /* highest: factor of the oldest operation */
	uint32_t length;
};

struct tpck_run {
	enum tpck_run_kind kind;
	int cycle;
	struct tpck_function *functions[TPCK_PATTERN_CYCLE];
	uint32_t thread;
	uint32_t seen, fed; /* fed: a host-to-device copy came before the next kernel */
	struct {
		uint64_t digest;
		uint32_t seen;
	} grids[TPCK_PATTERN_GRIDS];
	int grid_count, recent[3]; /* recent: which of them came last */
	bool unsteady;             /* more than TPCK_PATTERN_GRIDS of them, or taken once and given up: never again */
	struct {
		struct tpck_function *function;
		uint32_t seen;
	} followers[TPCK_PATTERN_FOLLOWERS];
	int follower_count;
};

struct tpck_pattern_op {
	struct tpck_phase_op phase;
	struct tpck_function *function; /* of kernels and graphs, else NULL */
};

struct tpck_pattern_launch {
	struct tpck_function *function;
	uint64_t fine;
};

struct tpck_pattern {
	struct tpck_run runs[TPCK_PATTERN_RUNS];
	int run_count;
	struct tpck_run chosen;       /* kind NONE while learning */
	struct tpck_run *taken;       /* which of runs it is; what it does further is still learnt for a while */
	struct tpck_phase phase;      /* of the chosen run */
	struct tpck_pattern_op *history;
	uint64_t now, known_from; /* operations seen; those from known_from on are in the history */
	/* the run of one function under way */
	struct tpck_function *last;
	uint32_t length, grids;
	uint64_t grid_digest, met[3];
	/* the turn of a thread under way */
	struct tpck_pattern_launch *turn;
	uint32_t turn_length, last_thread;
	bool in_turn, thread_known;
	struct tpck_run *waiting[2]; /* for the kernel behind it: a run of one function, a turn */
	bool waiting_fed;
	/* following the chosen turn */
	bool following, strayed;
	uint32_t follow_at, follow_thread;
	/* the memory's marks, and the digests of the last operations that count for them */
	struct tpck_mark marks[TPCK_PATTERN_MARKS];
	int mark_count;
	bool marks_differ; /* they are of phases that change different memory */
	uint64_t recent[TPCK_PATTERN_GRAM], recent_count;
	/* graphs */
	struct tpck_function *graph;
	uint32_t kernels_since_graph;
	bool training; /* told from outside: an optimizer has been seen at work in this process */
	bool use_names;
};

/** 0 or -ENOMEM. */
int tpck_pattern_init(struct tpck_pattern *pattern, bool use_names);
void tpck_pattern_free(struct tpck_pattern *pattern);

/** Flags of enum tpck_verdict. The op's member and breaking are ignored. */
unsigned tpck_pattern_feed(struct tpck_pattern *pattern, const struct tpck_pattern_op *op);

/** The memory witness knows where iterations end. False: the launches there come elsewhere too, or too little is known of them. */
bool tpck_pattern_mark(struct tpck_pattern *pattern, const struct tpck_persistent *persistent);

/** Back to learning, with nothing learnt. */
void tpck_pattern_forget(struct tpck_pattern *pattern);

/** An operation that the witness need not see. Not while a run is chosen. */
static inline void tpck_pattern_pass(struct tpck_pattern *pattern)
{
	pattern->known_from = ++pattern->now;
}

#endif
