/* SPDX-License-Identifier: Apache-2.0 */
/** The tracker of phases: groups of optimizer launches, and after which of them an iteration ends. */
#include "config.h"

#include "runtime/infer/phase.h"

#include <stdlib.h>
#include <string.h>

enum {
    LONGEST_PAUSE = 8192, /* operations between two launches of one phase */
    FIRM = 6,             /* phases in a row after which a stranger does not unsettle the cycle */
};

void tpck_phase_init(struct tpck_phase *phase)
{
    memset(phase, 0, sizeof *phase);
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

/* Which of the last k phases, counted back, ends the iteration; -1 if it cannot be told. */
static int end_of_cycle(struct tpck_phase *phase, uint64_t k)
{
    int fed = 0, before = -1;
    for (uint64_t i = 0; i < k; i++)
        if (recall(phase, i)->fed) {
            fed++;
            before = (int)((i + 1) % k);
        }
    if (fed == 1)
        return before;
    if (phase->phases > TPCK_PHASE_RECALL)
        return -1;
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

static bool adopt_cycle(struct tpck_phase *phase)
{
    if (phase->tailed)
        return false;
    if (repeats(phase, 1, phase->doubted ? 4 : 2) || equal_launches(phase, 6) || second_is_like_first(phase)) {
        phase->cycle = 1;
        phase->members[0] = *recall(phase, 0);
        phase->streak = 2;
        return true;
    }
    for (int k = 2; k <= TPCK_PHASE_CYCLE; k++) {
        int back;
        if (!repeats(phase, (uint64_t)k, 2 * (uint64_t)k) || (back = end_of_cycle(phase, (uint64_t)k)) < 0)
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
    if (same_phase(record, known) || (record->shape == known->shape && phase->streak >= FIRM) || record->whole || taken_over) {
        phase->members[0] = *record;
        phase->streak += phase->streak < 1000;
        phase->strangers = 0;
        return true;
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

static void note_tail(struct tpck_phase *phase)
{
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
    phase->fed = false;
    phase->last_count = phase->count;
    phase->previous_phase = phase->last_phase;
    phase->last_phase = phase->now;
    ends = judge_phase(phase, &phase->current);
    phase->others = phase->tailed = false;
    known->ended = ends ? known->ended + 1 : 0;
    return ends;
}

static unsigned begin_phase(struct tpck_phase *phase, const struct tpck_phase_op *op)
{
    if (phase->phases > 0 && phase->now == phase->last_phase + 1)
        phase->shapes[recall(phase, 0)->shape].prefix = true; /* what was told to be its end was not */
    phase->open = true;
    phase->home = op->thread;
    phase->digest = 0;
    phase->count = 0;
    phase->matched = -1;
    phase->updates = 0;
    phase->current = (struct tpck_phase_record){
        .extends = -1,
        .reach = ring_digest(phase, phase->reach, TPCK_PHASE_REACH, 0),
        .gap = phase->gap,
        .gap_kernels = phase->gap_kernels,
        .before = phase->prev,
        .before_op = phase->prev_op,
        .fed = phase->fed,
    };
    for (uint32_t i = 0; i < TPCK_PHASE_SLACK; i++)
        phase->current.context[i] = ring_digest(phase, phase->context, TPCK_PHASE_CONTEXT, i);
    return phase->cycle > 0 ? TPCK_V_OPT_BEGIN : TPCK_V_NONE;
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
    phase->last_updates = op->update;
    phase->current.whole = phase->current.whole || op->whole;
    if (!op->update)
        return verdict;
    /* The identity reaches to the last launch that writes parameters: an average of weights may follow now and then. */
    if (phase->matched >= 0) {
        phase->shapes[phase->matched].prefix = true;
        phase->current.extends = phase->matched;
    }
    phase->updates = phase->count;
    phase->update_digest = phase->digest;
    phase->current.last = op->fine;
    phase->matched = find_shape(phase, phase->digest, phase->count);
    if (phase->matched < 0)
        return verdict;
    shape = &phase->shapes[phase->matched];
    if (shape->ended >= 2 && !shape->prefix && !shape->trailed) {
        phase->current.after = phase->members[phase->cycle == 1 ? 0 : phase->position].after;
        if (end_phase(phase, phase->matched)) {
            note_boundary(phase, phase->now + 1);
            verdict |= TPCK_V_BOUNDARY_AFTER;
        }
    }
    return verdict;
}

/* The first operation that breaks off a group of launches. Whether what lies between the last launch and it belongs to
 * the phase is not known: unless it follows at once, the place is learnt and not told. */
static bool break_off(struct tpck_phase *phase, const struct tpck_phase_op *op, bool at_once)
{
    /* Not the writing of parameters came last, and work follows: it belongs to an optimizer of which only a part is known. */
    bool unfinished = !phase->last_updates && op->op == TPCK_OP_KERNEL;
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
    if (unfinished)
        note_tail(phase);
    return ends && at_once && !unfinished;
}

static bool feed_stranger_in_phase(struct tpck_phase *phase, const struct tpck_phase_op *op)
{
    bool next = phase->since_member++ == 0;
    if (next)
        phase->current.after = op->fine;
    if (next && phase->last_updates && phase->matched >= 0 && !phase->shapes[phase->matched].prefix)
        return end_phase(phase, phase->matched);
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

unsigned tpck_phase_feed(struct tpck_phase *phase, const struct tpck_phase_op *op)
{
    unsigned verdict = TPCK_V_NONE;
    if (op->member) {
        verdict = feed_member(phase, op);
    } else {
        bool ends = false;
        if (op->thread != phase->home)
            ends = false;
        else if (phase->open)
            ends = feed_stranger_in_phase(phase, op);
        else if (phase->prev_op == TPCK_OP_D2H && phase->cycle > 0)
            ends = left_out(phase, op);
        if (ends) {
            note_boundary(phase, phase->now);
            verdict = TPCK_V_BOUNDARY_BEFORE;
        }
        if (op->tail && !phase->open && !phase->others && phase->phases > 0)
            note_tail(phase);
        if (op->op == TPCK_OP_KERNEL) {
            if (phase->phases < 2)
                phase->first[phase->phases][phase->first_count[phase->phases]++ % TPCK_PHASE_FIRST] = op->fine;
            tpck_phase_add_kernel(phase, op->fine, op->coarse, op->thread);
        } else if (op->op == TPCK_OP_H2D) {
            phase->fed = true;
        }
    }
    tpck_phase_move_on(phase, op->fine, op->op, op->thread);
    return verdict;
}
