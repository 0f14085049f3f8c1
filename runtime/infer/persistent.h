/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The memory witness: which launch is the last in an iteration that changes memory which persists, told without names.
 *
 * A stretch reaches from the copy of one batch to the device to the next. Stretches with the same functions in the same
 * order are of one kind. While it learns, the witness asks for digests of the memory that persists at the begin of each
 * stretch, and at one place within: that place is moved, from one stretch of a kind to the next, to where the last change
 * is. The launches up to there are the kind's mark, if they come nowhere else.
 *
 * Kinds that change nothing (evaluation, copies in the middle of a pass), or less than another one and nothing else (micro-batches that add
 * up gradients), have no mark. Nothing is told of a program that changes less than half of what persists: it may not be
 * training.
 *
 * Digests come by another thread, any time later or never. All else is the caller's one sequence. Memory is bounded by
 * the numbers below.
 */
#ifndef TPCK_RUNTIME_INFER_PERSISTENT_H
#define TPCK_RUNTIME_INFER_PERSISTENT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/infer/phase.h"

enum {
	TPCK_PERSISTENT_ROWS = 4096,     /* pieces of memory that digests are of */
	TPCK_PERSISTENT_KINDS = 8,       /* kinds of stretches */
	TPCK_PERSISTENT_PENDING = 16,    /* stretches whose digests may be under way */
	TPCK_PERSISTENT_STRETCHES = 512, /* then it is given up */
};

struct tpck_stretch_kind {
	uint64_t chain;     /* digest of its functions; 0: none */
	uint32_t length;    /* operations that do something on the device */
	uint32_t seen, last_seen; /* the stretch that was the last one */
	uint32_t compared, changed, partly; /* partly: not most of what changes in stretches of this kind */
	uint32_t low, high; /* the last change is between the states before these operations */
	uint32_t confirmed, conflicts;
};

struct tpck_persistent {
	bool on;            /* it learns */
	uint32_t phases;    /* once it knows: bits of the kinds whose stretches have a last change */
	bool several;       /* these change different things, in turn: their order since the start matters */

	struct tpck_stretch_kind kinds[TPCK_PERSISTENT_KINDS];
	struct tpck_stretch {
		uint64_t begin; /* number of the operation that it begins with */
		uint32_t length;
		int kind;       /* -1: too many kinds */
	} *stretches;       /* by number */
	uint32_t number;    /* of the stretch under way */
	uint32_t evaluated; /* stretches before this one have been looked at */
	uint64_t chain, stretch_begin;
	uint32_t length, middle; /* operations of the stretch under way so far; before which to look */
	bool worked, begun;

	pthread_mutex_t lock;    /* of what follows */
	uint32_t rows;           /* 0: it is not known what persists */
	uint64_t *weights, *digests;
	uint32_t *changed_in;    /* bits of kinds, by row */
	struct tpck_look {
		uint32_t number, place; /* stretch and operation + 1; 0: free */
		bool arrived;
	} looks[2 * TPCK_PERSISTENT_PENDING]; /* of each stretch its begin and its middle */
};

/** 0 or -ENOMEM. */
int tpck_persistent_begin(struct tpck_persistent *persistent);
void tpck_persistent_end(struct tpck_persistent *persistent);

/** TPCK_V_LOOK where a look is wanted before this operation, which is the now-th. */
unsigned tpck_persistent_feed(struct tpck_persistent *persistent, const struct tpck_phase_op *op, uint64_t now);

/** Number of the look that was asked for last; while nothing is fed. False: what persists is to be found, no digests are wanted. */
bool tpck_persistent_look(struct tpck_persistent *persistent, uint64_t *id);
/** Rows of the digests to come, with the bytes that each stands for; none: it is to be found anew what persists. */
void tpck_persistent_rows(struct tpck_persistent *persistent, uint32_t rows, const uint64_t *weights);
/** Digests of a look, by any thread. */
void tpck_persistent_digests(struct tpck_persistent *persistent, uint64_t id, uint32_t rows, const uint64_t *digests);

/** Operations that marks are made of: what does something on the device. */
static inline bool tpck_persistent_counts(enum tpck_op op)
{
	return op != TPCK_OP_H2D && op != TPCK_OP_D2H;
}

#endif
