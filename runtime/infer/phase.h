/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The tracker of phases: given which operations are an optimizer's launches, it learns the phases that they form and
 * after which phase an iteration ends.
 *
 * A phase is a group of such launches, with nothing but arithmetic, fills and device copies between them. Its
 * identity is the launches with their grids, together with the kernels before it: grids of an optimizer depend on the
 * parameters only, and two optimizers of equal networks still follow different backward passes. An iteration ends
 * after every phase, or, where phases differ in turn, after the last of the cycle: that before the only stretch with a
 * host-to-device copy, else the last in order since the process began.
 *
 * A group without a launch that writes parameters is no phase. Where such a group comes behind a phase, before any
 * other thread launches, the optimizer was not over (Muon behind AdamW): then nothing is told.
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
};

struct tpck_phase_shape {
    uint64_t digest; /* of the launches in order, up to the last that writes parameters */
    uint32_t count;
    uint32_t seen;
    uint32_t ended;  /* boundaries in a row behind it */
    bool trailed;    /* launches that do not write parameters have followed it */
    bool prefix;     /* a longer phase begins in the same way: its end is not known before the next operation */
};

struct tpck_phase_record {
    int shape;
    int extends;       /* a shape that it begins with, or -1 */
    uint64_t last;     /* fine digest of the last launch */
    uint64_t context[TPCK_PHASE_SLACK]; /* of the kernels before the phase, the last 0, 1, 2 left out */
    uint64_t reach;    /* of the functions of more of them */
    uint64_t gap;      /* coarse digest of all kernels since the phase before */
    uint32_t gap_kernels;
    uint64_t before, after; /* fine digest of the operations on either side */
    enum tpck_op before_op;
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
    bool fed;
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
    bool doubted;           /* a cycle was given up: ask for more before the next */
    uint64_t last_phase, previous_phase; /* where the last phases were found to have ended */
    uint64_t boundaries, last_boundary, previous_boundary, sure_since;
    uint32_t last_count;    /* launches of the phases of the last iteration */
};

void tpck_phase_init(struct tpck_phase *phase);

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
    return phase->prev_op == TPCK_OP_D2H && expected->before_op == TPCK_OP_D2H && phase->prev == expected->before &&
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
