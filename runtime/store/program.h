/* SPDX-License-Identifier: Apache-2.0 */
/* What the store remembers of a program beyond its checkpoints: that it ended, which timelines are
 * fenced off, where it died, what must not be offered again. */
#ifndef TPCK_RUNTIME_STORE_PROGRAM_H
#define TPCK_RUNTIME_STORE_PROGRAM_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/store/file_names.h"
#include "runtime/store/own.h"
#include "runtime/store/tiers.h"

/* Folder "programs" of the job, in all durable tiers and in the memory tier: file ID, the marker, exists while a
 * start of the program may be offered something, and holds "generation N" of the newest start and the identity text;
 * ID.state is kept. NAMES.names/ID (tpck_identity_names()) exists as long as the marker, by which a start finds it that has another key. */
#define TPCK_PROGRAMS "programs"
/* So many deaths in a row make a point be passed over: right after going live there, when its state may be
 * the cause; and before that, which is most often somebody who ends jobs. */
enum { TPCK_PROGRAM_STATE_FORMAT = 1, TPCK_CRASH_LOOP_DEATHS = 2, TPCK_CRASH_LOOP_STARTS = 4 };

/* A point with something to it: a fence's step, deaths, or the first step of a bad log. */
struct tpck_program_note {
	struct tpck_point point;
	uint64_t count;
};
struct tpck_program_notes {
	struct tpck_program_note *rows;
	size_t count;
};

/* How the newest start that did not end well ended, as its first process here. */
struct tpck_program_last {
	uint64_t generation; /* 0: nothing is known */
	uint64_t iterations; /* that were seen to end in it */
	uint64_t kept_step;  /* of its newest snapshot */
	bool kept;           /* it had one */
	char why[192];       /* why none, or "" */
};

struct tpck_program {
	pthread_mutex_t lock; /* everything below; held for moments only */
	char id[TPCK_PROGRAM_ID];
	char *identity;
	uint64_t serial;      /* of the newest saved state; the highest of all copies counts */
	uint64_t ended;       /* generations up to this one belong to runs that ended with status 0 */
	struct tpck_program_notes fences;  /* generation `point.generation` went live at point.step */
	struct tpck_program_notes deaths;  /* `count` deaths within an iteration of resuming at point */
	struct tpck_program_notes starts;  /* `count` deaths on the way to point */
	struct tpck_program_notes refused; /* from point.step on, generation's log cannot be run forward */
	struct tpck_program_last last;
	struct tpck_own own;               /* its own checkpoints, and how long its starts take; stays when a run has ended well */
};

/* One of which nothing is known; NULL: no memory. */
struct tpck_program *tpck_program_new(const char *id);
/* Adopts a state's text that is newer. One that cannot be read counts as none: what it says only narrows what is offered, and
 * every offer is verified all the same. */
void tpck_program_parse_state(struct tpck_program *program, const char *text);
/* The generation that a marker's text is of; 0: it does not say. */
uint64_t tpck_program_parse_mark(const char *text);
/* The state of the program with this identity, from the place where it is newest; none is fine. tiers NULL: memory
 * alone, here and below. */
int tpck_program_load(struct tpck_program **program, const char *memory_job, const struct tpck_tiers *tiers,
		      const char *identity, struct tpck_error *err);
/* The same of one whose id is known only; for asking, not for tpck_program_mark(). */
int tpck_program_load_id(struct tpck_program **program, const char *memory_job, const struct tpck_tiers *tiers, const char *id,
			 struct tpck_error *err);
/* Takes over what another agent has saved in a tier since, if that is newer. */
void tpck_program_refresh(struct tpck_program *program, const struct tpck_tiers *tiers);
void tpck_program_free(struct tpck_program *program);
/* Saves everywhere, memory first; the error is the first tier's or, without one, memory's. */
int tpck_program_save(struct tpck_program *program, const char *memory_job, const struct tpck_tiers *tiers,
		      struct tpck_error *err);
/* Makes the marker file everywhere. */
int tpck_program_mark(struct tpck_program *program, uint64_t generation, const char *memory_job, const struct tpck_tiers *tiers,
		      struct tpck_error *err);
/* The newest generation that a marker anywhere is of; 0: there is none, or none that says. Who hears late that a run has
 * ended well leaves the marker of a newer one alone. */
uint64_t tpck_program_marked(struct tpck_program *program, const char *memory_job, const struct tpck_tiers *tiers);
/* Removes it everywhere. */
int tpck_program_unmark(struct tpck_program *program, const char *memory_job, const struct tpck_tiers *tiers,
			struct tpck_error *err);

enum tpck_allowed {
	TPCK_ALLOWED,
	TPCK_ALLOWED_NOT_ENDED,  /* its run ended by itself */
	TPCK_ALLOWED_NOT_FENCED, /* a newer generation went on from an earlier step */
	TPCK_ALLOWED_NOT_REFUSED,/* its log diverged */
	TPCK_ALLOWED_NOT_LOOP,   /* dead too often on the way there, or within an iteration of resuming there */
};
/* Whether a checkpoint may be offered. Publishing asks too: ENDED and FENCED forbid that. */
enum tpck_allowed tpck_program_allows(struct tpck_program *program, const struct tpck_point *point);

/* `generation` went live at `step`. */
void tpck_program_resumed(struct tpck_program *program, uint64_t generation, uint64_t step);
/* A run that had resumed at `from`, or was on the way there (generation 0: neither), died. Returns how many
 * such deaths there were in a row at this point. */
enum tpck_death {
	TPCK_DEATH_STARTING, /* before it was live */
	TPCK_DEATH_NEAR,     /* within an iteration of `from` */
	TPCK_DEATH_FAR,      /* it got somewhere: nothing is held against any point any more */
};
uint64_t tpck_program_died(struct tpck_program *program, const struct tpck_point *from, enum tpck_death death);
/* How a start ended; an older one's is forgotten. */
void tpck_program_left(struct tpck_program *program, const struct tpck_program_last *last);
/* Why a start that finds nothing to go on from does so, where the start before it, of this generation (0: there was none), did not
 * end well: a line for the user. `any`: there are snapshots, and none may be gone on from. False: there is nothing to say. */
bool tpck_program_say_left(struct tpck_program *program, uint64_t generation, bool any, char *text, size_t size);
/* Deaths on the way to this point so far. */
uint64_t tpck_program_tries(struct tpck_program *program, const struct tpck_point *point);
/* How many resume points are given up because of repeated deaths. */
size_t tpck_program_loops(struct tpck_program *program);
/* What is noted of generations up to this one goes. */
void tpck_program_ended(struct tpck_program *program, uint64_t generation);
void tpck_program_refuse(struct tpck_program *program, const struct tpck_point *from);

/* What is known of its own way to go on, under the lock until it is done with: for moments. */
struct tpck_own *tpck_program_own(struct tpck_program *program);
void tpck_program_own_done(struct tpck_program *program);
/* A copy, to be freed by tpck_own_free() and free(). NULL: no memory. */
struct tpck_own *tpck_program_own_copy(struct tpck_program *program);

/* What the program's stashes (runtime/wire/segment.h) take up in a tier. */
uint64_t tpck_program_stashed(struct tpck_tier *tier, const char *id);

#endif
