/* SPDX-License-Identifier: Apache-2.0 */
/* What a history says of each start of a program: how far it came, how it ended, and what the next one went on from. */
#ifndef TPCK_RUNTIME_STORE_RUNS_H
#define TPCK_RUNTIME_STORE_RUNS_H

#include "runtime/policy/interval.h"
#include "runtime/store/history.h"

/* Texts are the history's. */
struct tpck_run {
	uint64_t generation, rank, ordinal;
	const char *program, *host, *executable;
	const char *how;              /* it died: "failed" or "was killed" */
	uint64_t begun_ns, end_ns;    /* since 1970; the end is the last that was heard of it where neither flag holds */
	bool died, ended;
	bool diverged;                /* it could not go on from where it was to, and says so */
	bool offered, resumed;
	bool by_twin;                 /* a twin of the one before took over */
	bool in_place;                /* the supervisor of the one before forked it once more */
	const char *after;            /* either: the class of the failure (runtime/wire/failures.def); "": nobody knows */
	const char *from;             /* where the offer lay */
	uint64_t from_level;          /* 0 memory, 1 the first durable tier, and so on */
	uint64_t from_generation, from_step;
	double forward_sec, inject_sec;
	uint64_t iterations, lost, captured, skipped;
	uint64_t kept_step;           /* it died and left this in memory; 0: nothing */
	double iteration_sec, waited_sec;
	size_t next;                  /* of the same program, rank and ordinal; SIZE_MAX: none */
};

struct tpck_runs {
	struct tpck_run *run; /* in the order of their begin */
	size_t count;
};

/* The history must stay. */
int tpck_runs_of(struct tpck_runs *runs, const struct tpck_history *history);
void tpck_runs_free(struct tpck_runs *runs);

/* The least level of what survived the end of this run: 0 where its process alone was lost, 1 where memory was, 2 where the
 * first durable tier was. What the agent wrote after a death, before memory was lost, was not lost with it. -1: it was no
 * failure, or it goes on. */
int tpck_run_failure(const struct tpck_runs *runs, const struct tpck_run *run);
/* Failures that took everything below this level, and the running time in which they happened. Ranks of one program fail
 * together: those of rank 0 count. */
void tpck_runs_rate(const struct tpck_runs *runs, int level, struct tpck_interval_history *rate);

#endif
