/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The tracker of phases: given which operations are an optimizer's launches, it learns the phases that they form and
 * after which phase an iteration ends.
 *
 * A phase is a group of such launches, with nothing but arithmetic, fills and device copies between them. Its
 * identity is the launches with their grids, together with the kernels before it: grids of an optimizer depend on the
 * parameters only, and two optimizers of equal networks still follow different backward passes. Where what comes before
 * changes (lengths, micro-batches), a batch copied before it and the same operation behind it do as well. An iteration
 * ends after every phase, or, where phases differ in turn, after the last of the cycle: the last of those without a
 * host-to-device copy before them, if they come in one row, else the last in order since the process began.
 *
 * A group without a launch that writes parameters is no phase. The end is not told with the last launch, but by the
 * operation behind it, where other kernels than usual have led to the phase: it may have become longer.
 *
 * Two kinds of phase are wider than that, and are known where another thread launches backward passes:
 * - in hooks: that thread launches the optimizer in the middle of the pass; the phase ends when the pass does.
 * - a whole turn: another group, or launches of one more function tensor by tensor, came behind a phase before any other
 *   thread launched, so that only part of the optimizer bears names (Muon). From then on a phase reaches to the copy of
 *   the next batch, if no kernel of a forward or backward pass that does not lie between its launches too stands before
 *   that copy; otherwise its end is not known and not told.
 */
#ifndef TPCK_RUNTIME_INFER_PHASE_H
#define TPCK_RUNTIME_INFER_PHASE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/infer/infer.h"

enum {
	TPCK_PHASE_CONTEXT = 16, /* kernels before a phase that are part of its identity */
	TPCK_PHASE_SLACK = 3,    /* a kernel or two next to the phase may come only now and then (clipping) */
	TPCK_PHASE_REACH = 64,   /* or so many of them by their functions alone */
	TPCK_PHASE_FIRST = 2048, /* kernels before the first and the second phase that are compared one by one */
	TPCK_PHASE_SHAPES = 16,  /* different groups of launches that are told apart */
	TPCK_PHASE_RECALL = 32,  /* phases remembered */
	TPCK_PHASE_CYCLE = 6,    /* most phases in turn in one iteration */
	TPCK_PHASE_FOLLOWERS = 3, /* operations right behind phases of one shape that are remembered */
	TPCK_PHASE_BATCH = 64,   /* bytes copied to the device that are no scalar */
	TPCK_PHASE_ECHO = 4,     /* launches of one function right behind a phase, one a tensor, that belong to it */
	TPCK_PHASE_FILTER = 64,  /* words of a filter of functions */
};

/* What the tracker is told of an operation. */
struct tpck_phase_op {
	uint64_t fine;   /* digest of all that the token says but thread and stream */
	uint64_t coarse; /* digest of operation and function only */
	enum tpck_op op;
	uint32_t thread;
	bool member;     /* an optimizer's launch */
	bool breaking;   /* cannot stand within a phase */
	bool whole;      /* a graph that is known to hold an optimizer */
	bool update;     /* a member that writes parameters */
	bool tail;       /* betrays that the optimizer was not over with the last phase */
	bool backward_thread; /* launched by the thread that launches backward passes, which is not the only one */
	bool front;      /* launched by the thread that launched first of all */
	bool fills;      /* a kernel that writes a constant */
	bool checks;     /* a kernel that looks for values that are not finite */
	uint64_t bytes;  /* of copies and sets */
};

struct tpck_phase_shape {
	uint64_t digest; /* of the launches in order, up to the last that writes parameters */
	uint32_t count;
	uint32_t seen;
	uint32_t ended;  /* boundaries in a row behind it */
	bool trailed;    /* launches that do not write parameters have followed it */
	uint64_t tail;   /* of a whole turn: digest and number of the operations behind its last launch, */
	uint32_t tail_count, tail_seen; /* and how often they were the same again in a row */
	bool prefix;     /* a longer phase begins in the same way: its end is not known before the next operation */
	uint64_t followers[TPCK_PHASE_FOLLOWERS]; /* see tpck_phase_record */
};

struct tpck_phase_record {
	int shape;
	int extends;       /* a shape that it begins with, or -1 */
	uint64_t last, last_function; /* fine and coarse digest of the last launch */
	uint64_t context[TPCK_PHASE_SLACK]; /* of the kernels before the phase, the last 0, 1, 2 left out */
	uint64_t reach;    /* of the functions of more of them */
	uint64_t gap;      /* coarse digest of all kernels since the phase before */
	uint32_t gap_kernels;
	uint64_t before, after; /* fine digest of the operations on either side */
	uint64_t follower; /* what came behind it: TPCK_PHASE_HOST for a copy from or to the host, else coarse; 0: not known */
	enum tpck_op before_op;
	bool checked;      /* one of the last kernels before it looked for values that are not finite */
	bool fed;          /* a host-to-device copy in the gap */
	bool whole;
};

struct tpck_phase {
	uint64_t now; /* operations seen */
	struct tpck_phase_shape shapes[TPCK_PHASE_SHAPES];
	int shape_count;
	struct tpck_phase_record recall[TPCK_PHASE_RECALL]; /* ring by phases */
	uint64_t phases;
	/* the phase under way */
	bool open;
	struct tpck_phase_record current;
	uint64_t digest;
	uint32_t count, since_member;
	uint32_t updates;       /* launches up to and with the last that writes parameters; 0: none does */
	uint64_t update_digest; /* of these */
	bool last_updates;      /* the last launch is one of them */
	int matched; /* the shape that is complete now, or -1 */
	/* the stretch since the last phase */
	uint64_t gap;
	uint32_t gap_kernels;
	bool fed, batch; /* a copy to the device, and one that is no scalar */
	uint64_t context[TPCK_PHASE_REACH];
	uint64_t reach[TPCK_PHASE_REACH];
	uint32_t context_at; /* in both rings */
	uint64_t first[2][TPCK_PHASE_FIRST]; /* rings of fine digests: the kernels before the first phases */
	uint32_t first_count[2];
	uint64_t scratch[TPCK_PHASE_FIRST];
	uint64_t prev;
	enum tpck_op prev_op;
	uint32_t home; /* the thread that launches the phases; what others do meanwhile (loading batches) is not looked at */
	/* the cycle */
	int cycle;              /* phases an iteration; 0: not known */
	int position, end;      /* the next phase expected, the one that ends the iteration (of cycle > 1) */
	struct tpck_phase_record members[TPCK_PHASE_CYCLE];
	uint32_t streak;        /* phases in a row that fitted */
	uint32_t strangers;     /* phases in a row that did not */
	bool others;            /* another thread has launched since the last phase: the next iteration has begun */
	bool tailed;            /* launches of an optimizer came behind the last phase */
	bool wide;              /* phases may be in hooks or whole turns */
	bool threaded;          /* phases have been seen with the launches of another thread before them */
	bool whole_turn;        /* phases are whole turns */
	bool in_hooks;          /* the phase under way is in hooks */
	bool follower_due;      /* the next operation is the follower of the last phase */
	bool begun;             /* a phase has been seen */
	bool worked;            /* the turn under way has a kernel of another pass behind its last launch */
	uint64_t inside, outside; /* filters: functions between the launches of the phase under way, and since its last */
	uint32_t checked_at;    /* context_at behind the last kernel that checks */
	uint64_t tail;          /* digest and number of the operations since then, but for scalars copied to the device */
	bool scalars_last;      /* which came last */
	uint32_t tail_count;
	uint64_t elsewhere[TPCK_PHASE_FILTER]; /* filter: functions of the first stretch of all, and of those between turns */
	uint64_t echo_function, first_echo; /* coarse digest of the kernel right behind the last launch, and its fine one */
	uint32_t echoes;        /* launches of it since then */
	bool echoes_differ;
	bool doubted;           /* a cycle was given up: ask for more before the next */
	uint64_t last_phase, previous_phase; /* where the last phases were found to have ended */
	uint64_t boundaries, last_boundary, previous_boundary, sure_since;
	uint32_t last_count;    /* launches of the phases of the last iteration */
};

/** The follower that a copy from or to the host is. */
#define TPCK_PHASE_HOST UINT64_C(1)

/** wide: members are known by names, so that phases may be wider than they are. */
void tpck_phase_init(struct tpck_phase *phase, bool wide);

/** Flags of enum tpck_verdict. */
unsigned tpck_phase_feed(struct tpck_phase *phase, const struct tpck_phase_op *op);

static inline bool tpck_phase_sure(const struct tpck_phase *phase)
{
	return phase->cycle > 0;
}

static inline uint64_t tpck_phase_mix(uint64_t digest, uint64_t value)
{
	digest = (digest ^ value) * 0x9fb21c651e98df25ull;
	return digest ^ (digest >> 32);
}

static inline struct tpck_phase_record *tpck_phase_expected(struct tpck_phase *phase)
{
	return phase->cycle == 1 ? &phase->members[0] : &phase->members[phase->position];
}

/* Whether the phase that is expected stands between a copy to the host like the last operation and one like this. */
static inline bool tpck_phase_may_be_left_out(const struct tpck_phase *phase, const struct tpck_phase_record *expected,
					      uint64_t fine)
{
	return phase->prev_op == TPCK_OP_D2H && expected->before_op == TPCK_OP_D2H && expected->checked && phase->prev == expected->before &&
	       fine == expected->after;
}

/* A kernel between the second phase and the next. */
static inline void tpck_phase_add_kernel(struct tpck_phase *phase, uint64_t fine, uint64_t coarse, uint32_t thread)
{
	phase->others = phase->others || thread != phase->home;
	phase->context[phase->context_at % TPCK_PHASE_REACH] = fine;
	phase->reach[phase->context_at++ % TPCK_PHASE_REACH] = coarse;
	phase->gap = tpck_phase_mix(phase->gap, coarse);
	phase->gap_kernels++;
}

/* What came last on the thread that launches the phases. */
static inline void tpck_phase_move_on(struct tpck_phase *phase, uint64_t fine, enum tpck_op op, uint32_t thread)
{
	if (thread == phase->home) {
		phase->prev = fine;
		phase->prev_op = op;
	}
	phase->now++;
}

/**
 * Takes in an operation that is neither member nor tail, after the second phase, while none is open and the cycle is
 * known, as tpck_phase_feed() does: the verdict is none. False, and nothing was done: it may end an iteration.
 */
static inline bool tpck_phase_pass(struct tpck_phase *phase, enum tpck_op op, uint64_t fine, uint64_t coarse, uint32_t thread)
{
	if (__builtin_expect(phase->follower_due, 0) && thread == phase->home)
		return false;
	if (__builtin_expect(phase->prev_op == TPCK_OP_D2H, 0) && thread == phase->home &&
	    tpck_phase_may_be_left_out(phase, tpck_phase_expected(phase), fine))
		return false;
	if (op == TPCK_OP_KERNEL)
		tpck_phase_add_kernel(phase, fine, coarse, thread);
	else if (op == TPCK_OP_H2D)
		phase->fed = true;
	tpck_phase_move_on(phase, fine, op, thread);
	return true;
}

#endif
