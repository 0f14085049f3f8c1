/* SPDX-License-Identifier: Apache-2.0 */
/** The memory witness: finds the last launch of an iteration that changes what persists. */
#include "config.h"

#include "runtime/base/lock_order.h"
#include "runtime/infer/persistent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	COMPARED = 3,      /* stretches of a kind before anything is said of it */
	BEFORE = 2,        /* looks right before the last change, */
	CONFIRMED = 10,    /* and with these so many right behind it, in a row: what is changed again in one stretch of a few shows there */
	CONFLICTS = 4,     /* times that a last change is looked for anew */
	RECENT = 48,       /* stretches back to which kinds count */
	ROW = 32,          /* stretches by which the next one is foretold */
	PART = 8,          /* kinds that change less than such a part of the most are no phases */
	PARTLY = 4,        /* stretches that look alike and change different things may be so rare */
	TRAINING_PART = 2, /* so large a part of what persists changes, by bytes, */
	MANY = 3, MANY_OF = 4, /* or so many tensors of so many: libraries' workspaces may be larger than a small model */
	LATE = TPCK_PERSISTENT_PENDING - 2,
};

int tpck_persistent_begin(struct tpck_persistent *p)
{
	memset(p, 0, sizeof *p);
	p->stretches = calloc(TPCK_PERSISTENT_STRETCHES, sizeof *p->stretches);
	p->weights = malloc(TPCK_PERSISTENT_ROWS * sizeof *p->weights);
	p->changed_in = malloc(TPCK_PERSISTENT_ROWS * sizeof *p->changed_in);
	p->digests = malloc((size_t)2 * TPCK_PERSISTENT_PENDING * TPCK_PERSISTENT_ROWS * sizeof *p->digests);
	pthread_mutex_init(&p->lock, NULL);
	p->on = true;
	if (p->stretches && p->weights && p->changed_in && p->digests)
		return 0;
	tpck_persistent_end(p);
	return -ENOMEM;
}

void tpck_persistent_end(struct tpck_persistent *p)
{
	p->on = false;
	pthread_mutex_lock(&p->lock);
	free(p->stretches);
	free(p->weights);
	free(p->changed_in);
	free(p->digests);
	p->stretches = NULL;
	p->weights = NULL;
	p->changed_in = NULL;
	p->digests = NULL;
	p->rows = 0;
	pthread_mutex_unlock(&p->lock);
}

/* --- stretches ----------------------------------------------------------------------------------------------- */

static int kind_of(struct tpck_persistent *p)
{
	int oldest = 0;
	for (int i = 0; i < TPCK_PERSISTENT_KINDS; i++) {
		if (p->kinds[i].chain == p->chain && p->kinds[i].length == p->length)
			return i;
		if (p->kinds[i].last_seen < p->kinds[oldest].last_seen)
			oldest = i;
	}
	if (p->kinds[oldest].chain && p->number - p->kinds[oldest].last_seen < RECENT)
		return -1;
	pthread_mutex_lock(&p->lock);
	for (uint32_t i = 0; i < p->rows; i++)
		p->changed_in[i] &= ~(UINT32_C(1) << oldest);
	pthread_mutex_unlock(&p->lock);
	for (uint32_t i = 0; i < p->number; i++)
		if (p->stretches[i].kind == oldest)
			p->stretches[i].kind = -1;
	p->kinds[oldest] = (struct tpck_stretch_kind){.chain = p->chain, .length = p->length, .high = p->length};
	return oldest;
}

/* The kind that came where the longest row of stretches before was the same as now; -1: not known. */
static int expected_kind(const struct tpck_persistent *p)
{
	uint32_t best = 0;
	int kind = -1;
	for (uint32_t at = 1; at < p->number; at++) {
		uint32_t same = 0;
		while (same < at && same < ROW && p->stretches[at - 1 - same].kind == p->stretches[p->number - 1 - same].kind)
			same++;
		if (same && same >= best) {
			best = same;
			kind = p->stretches[at].kind;
		}
	}
	return kind;
}

static void end_stretch(struct tpck_persistent *p)
{
	int kind = kind_of(p);
	if (kind >= 0) {
		p->kinds[kind].seen++;
		p->kinds[kind].last_seen = p->number;
	}
	p->stretches[p->number] = (struct tpck_stretch){p->stretch_begin, p->length, kind};
	p->number++;
}

/* The kind is the only operation that can be the last change, or looks on either side bear it out. */
static bool is_found(const struct tpck_stretch_kind *kind)
{
	return kind->high - kind->low == 1 && (kind->length == 1 || kind->confirmed >= CONFIRMED);
}

/* Where to look in a stretch of that kind; 0: nowhere. */
static uint32_t place_to_look(const struct tpck_stretch_kind *kind)
{
	if (kind->high - kind->low > 1)
		return kind->low + (kind->high - kind->low) / 2;
	if (is_found(kind))
		return 0;
	return (kind->confirmed >= BEFORE || kind->low == 0) && kind->high < kind->length ? kind->high : kind->low;
}

static void begin_stretch(struct tpck_persistent *p, uint64_t now)
{
	int expected = expected_kind(p);
	p->chain = 1;
	p->length = p->middle = 0;
	p->worked = false;
	p->stretch_begin = now;
	if (expected < 0)
		return;
	pthread_mutex_lock(&p->lock);
	/* What lives for a part of a pass only is to be met there, and where it is not. */
	if (p->rows == 0)
		p->middle = 1 + (p->kinds[expected].length - 1) * (p->number * 3 % 8) / 8;
	else if (p->kinds[expected].changed)
		p->middle = place_to_look(&p->kinds[expected]);
	pthread_mutex_unlock(&p->lock);
}

/* --- evidence ------------------------------------------------------------------------------------------------ */

/* The look at the begin of a stretch, or in its middle. */
static struct tpck_look *look_of(struct tpck_persistent *p, uint32_t number, bool middle)
{
	return &p->looks[number % TPCK_PERSISTENT_PENDING * 2 + middle];
}

static const uint64_t *digests_of(const struct tpck_persistent *p, const struct tpck_look *look)
{
	return p->digests + (size_t)(look - p->looks) * TPCK_PERSISTENT_ROWS;
}

static bool has_arrived(const struct tpck_look *look, uint32_t number)
{
	return look->place && look->number == number && look->arrived;
}

/* Of what changes in all of these kinds and in none of those. */
static uint64_t weight_of(const struct tpck_persistent *p, uint32_t all_of, uint32_t none_of)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < p->rows; i++)
		if ((p->changed_in[i] & all_of) == all_of && !(p->changed_in[i] & none_of))
			sum += p->weights[i];
	return sum;
}

/* Whether anything changed from that operation of a stretch of this kind to its end. */
static void learn_place(struct tpck_stretch_kind *kind, uint32_t place, bool changed)
{
	bool found = kind->high - kind->low == 1;
	if ((changed && place >= kind->high) || (!changed && place <= kind->low)) {
		kind->conflicts++;
		kind->low = kind->confirmed = 0;
		kind->high = kind->length;
	} else if (found) {
		kind->confirmed++;
	} else if (changed) {
		kind->low = place;
	} else {
		kind->high = place;
	}
}

static void evaluate_stretch(struct tpck_persistent *p, uint32_t number)
{
	const struct tpck_look *begin = look_of(p, number, false), *middle = look_of(p, number, true), *end = look_of(p, number + 1, false);
	int at = p->stretches[number].kind;
	struct tpck_stretch_kind *kind = &p->kinds[at >= 0 ? at : 0];
	bool late = false;
	uint64_t changed = 0;
	if (at < 0 || !has_arrived(begin, number) || !has_arrived(end, number + 1))
		return;
	for (uint32_t i = 0; i < p->rows; i++)
		if (digests_of(p, begin)[i] != digests_of(p, end)[i]) {
			changed += p->weights[i];
			p->changed_in[i] |= UINT32_C(1) << at;
		}
	kind->compared++;
	kind->changed += changed > 0;
	kind->partly += changed > 0 && changed / 3 < weight_of(p, UINT32_C(1) << at, 0) / 4;
	if (!changed || !has_arrived(middle, number) || middle->place - 1 >= kind->length)
		return;
	for (uint32_t i = 0; i < p->rows && !late; i++)
		late = digests_of(p, middle)[i] != digests_of(p, end)[i];
	learn_place(kind, middle->place - 1, late);
}

static void evaluate(struct tpck_persistent *p)
{
	/* The stretch under way has its begin's look behind it. */
	while (p->evaluated < p->number) {
		if (!has_arrived(look_of(p, p->evaluated + 1, false), p->evaluated + 1) && p->number - p->evaluated < LATE)
			return;
		evaluate_stretch(p, p->evaluated++);
	}
}

/* --- the decision -------------------------------------------------------------------------------------------- */

static bool is_recent(const struct tpck_persistent *p, const struct tpck_stretch_kind *kind)
{
	return kind->chain && kind->seen >= COMPARED && p->number - kind->last_seen < RECENT;
}

/* What this kind changes is part of what another one does, which changes more. */
static bool is_part_of_other(const struct tpck_persistent *p, int kind, uint32_t kinds)
{
	uint64_t own = weight_of(p, UINT32_C(1) << kind, 0);
	for (int i = 0; i < TPCK_PERSISTENT_KINDS; i++)
		if (i != kind && kinds >> i & 1 && weight_of(p, UINT32_C(1) << kind, UINT32_C(1) << i) < own / PART &&
		    weight_of(p, UINT32_C(1) << i, UINT32_C(1) << kind) > own / PART)
			return true;
	return false;
}

/* The kinds that are phases, as bits; 0: not known yet. */
static uint32_t find_phases(struct tpck_persistent *p)
{
	uint32_t changing = 0, phases = 0;
	uint64_t all = weight_of(p, 0, 0), changed, most = 0;
	uint32_t many = 0;
	for (int i = 0; i < TPCK_PERSISTENT_KINDS; i++) {
		const struct tpck_stretch_kind *kind = &p->kinds[i];
		if (!is_recent(p, kind))
			continue;
		if (kind->compared < COMPARED)
			return 0;
		if (kind->changed * 2 > kind->compared) {
			changing |= UINT32_C(1) << i;
			if (weight_of(p, UINT32_C(1) << i, 0) > most)
				most = weight_of(p, UINT32_C(1) << i, 0);
		}
	}
	changed = 0;
	for (uint32_t i = 0; i < p->rows; i++)
		if (p->changed_in[i] & changing) {
			changed += p->weights[i];
			many++;
		}
	if (!changed || (changed * TRAINING_PART < all && (uint64_t)many * MANY_OF < (uint64_t)p->rows * MANY))
		return 0;
	for (int i = 0; i < TPCK_PERSISTENT_KINDS; i++) {
		if (!(changing >> i & 1) || weight_of(p, UINT32_C(1) << i, 0) < most / PART || is_part_of_other(p, i, changing))
			continue;
		if (!is_found(&p->kinds[i]) || p->kinds[i].partly * PARTLY > p->kinds[i].changed)
			return 0;
		phases |= UINT32_C(1) << i;
	}
	return phases;
}

static bool are_several(const struct tpck_persistent *p, uint32_t phases)
{
	for (int i = 0; i < TPCK_PERSISTENT_KINDS; i++)
		for (int k = 0; k < i; k++)
			if (phases >> i & 1 && phases >> k & 1 &&
			    weight_of(p, UINT32_C(1) << i, UINT32_C(1) << k) > weight_of(p, UINT32_C(1) << i, 0) / PART)
				return true;
	return false;
}

/* Behind the end of a stretch. False: there is no more to learn. */
static bool go_on(struct tpck_persistent *p)
{
	bool lost = p->number == TPCK_PERSISTENT_STRETCHES;
	pthread_mutex_lock(&p->lock);
	evaluate(p);
	p->phases = p->rows ? find_phases(p) : 0;
	p->several = are_several(p, p->phases);
	for (int i = 0; i < TPCK_PERSISTENT_KINDS; i++)
		lost = lost || p->kinds[i].conflicts > CONFLICTS;
	pthread_mutex_unlock(&p->lock);
	return !p->phases && !lost;
}

static unsigned ask(struct tpck_persistent *p, bool middle)
{
	pthread_mutex_lock(&p->lock);
	*look_of(p, p->number, middle) = (struct tpck_look){p->number, middle ? p->length + 1 : 1, false};
	pthread_mutex_unlock(&p->lock);
	return TPCK_V_LOOK;
}

unsigned tpck_persistent_feed(struct tpck_persistent *p, const struct tpck_phase_op *op, uint64_t now)
{
	unsigned verdict = TPCK_V_NONE;
	if (op->op == TPCK_OP_H2D && op->bytes >= TPCK_PHASE_BATCH && (p->worked || !p->begun)) {
		if (p->begun) {
			end_stretch(p);
			p->on = go_on(p);
			if (!p->on)
				return TPCK_V_NONE;
		}
		p->begun = true;
		begin_stretch(p, now);
		return ask(p, false);
	}
	if (!p->begun || !tpck_persistent_counts(op->op))
		return TPCK_V_NONE;
	if (p->middle && p->length == p->middle)
		verdict = ask(p, true);
	p->chain = tpck_phase_mix(p->chain, op->coarse);
	p->length++;
	p->worked = p->worked || op->op == TPCK_OP_KERNEL || op->op == TPCK_OP_GRAPH;
	return verdict;
}

/* --- looks --------------------------------------------------------------------------------------------------- */

bool tpck_persistent_look(struct tpck_persistent *p, uint64_t *id)
{
	const struct tpck_look *look;
	bool middle = p->length > 0, wanted;
	pthread_mutex_lock(&p->lock);
	wanted = p->rows > 0;
	/* Another thread may have launched meanwhile: then it would be another place. */
	look = look_of(p, p->number, middle);
	*id = look->number == p->number && (!middle || look->place == p->length) ? (uint64_t)p->number << 1 | middle : UINT64_MAX;
	pthread_mutex_unlock(&p->lock);
	return wanted;
}

void tpck_persistent_rows(struct tpck_persistent *p, uint32_t rows, const uint64_t *weights)
{
	pthread_mutex_lock(&p->lock);
	p->rows = p->digests && rows <= TPCK_PERSISTENT_ROWS ? rows : 0;
	p->evaluated = p->number;
	memset(p->looks, 0, sizeof p->looks);
	for (uint32_t i = 0; i < p->rows; i++) {
		p->weights[i] = weights[i];
		p->changed_in[i] = 0;
	}
	for (int i = 0; i < TPCK_PERSISTENT_KINDS; i++) {
		struct tpck_stretch_kind *kind = &p->kinds[i];
		kind->compared = kind->changed = kind->partly = kind->low = kind->confirmed = 0;
		kind->high = kind->length;
	}
	pthread_mutex_unlock(&p->lock);
}

void tpck_persistent_digests(struct tpck_persistent *p, uint64_t id, uint32_t rows, const uint64_t *digests)
{
	pthread_mutex_lock(&p->lock);
	if (p->rows && rows == p->rows) {
		struct tpck_look *look = look_of(p, (uint32_t)(id >> 1), id & 1);
		if (look->place && look->number == id >> 1) {
			memcpy(p->digests + (size_t)(look - p->looks) * TPCK_PERSISTENT_ROWS, digests, rows * sizeof *digests);
			look->arrived = true;
		}
	}
	pthread_mutex_unlock(&p->lock);
}
