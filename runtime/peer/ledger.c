/* SPDX-License-Identifier: Apache-2.0 */
/* A leader's ledger. Nodes are found by their names, steps are few. */
#include "config.h"

#include "runtime/peer/ledger.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/peer/node_names.h"
#include "runtime/store/file_names.h"

/* What a node holds of a step. */
struct held {
	uint64_t step; /* 0: nothing */
	uint32_t ranks;
	struct tpck_counts counts;
};

struct node {
	uint32_t number;       /* of its name */
	uint32_t ranks, first; /* its ranks: a chain, from 1; 0: the end */
	bool done[TPCK_ROUNDS];
	struct tpck_pace pace;
	struct held held[TPCK_IMAGES_MAX];
};

/* What all nodes hold of one. What was given up stays known as missed, for those who have yet to say that they hold it. */
struct step {
	uint64_t step;
	uint32_t ranks;
	bool missed;
};
enum { STEPS_KNOWN = 64 };

struct tpck_ledger {
	uint32_t world, joined;
	uint32_t done[TPCK_ROUNDS]; /* ranks of the nodes that are */
	uint64_t furthest;
	bool live;                  /* all are told to go live */
	uint32_t *where;            /* [world]: their node, from 1; 0: nowhere */
	uint32_t *next;             /* [world]: the next rank of the same node, from 1; 0: none */
	struct tpck_names names;
	struct node **nodes;        /* [names.count] */
	size_t node_room;
	struct step *steps;
	size_t step_count, step_room;
};

struct tpck_ledger *tpck_ledger_new(uint32_t world)
{
	struct tpck_ledger *ledger = calloc(1, sizeof *ledger);

	if (!ledger)
		return NULL;
	ledger->world = world;
	ledger->where = calloc(world, sizeof *ledger->where);
	ledger->next = calloc(world, sizeof *ledger->next);
	if (!ledger->where || !ledger->next) {
		tpck_ledger_free(ledger);
		return NULL;
	}
	return ledger;
}

void tpck_ledger_free(struct tpck_ledger *ledger)
{
	if (!ledger)
		return;
	for (size_t n = 0; n < ledger->names.count; n++) {
		for (unsigned i = 0; i < TPCK_IMAGES_MAX; i++)
			tpck_counts_free(&ledger->nodes[n]->held[i].counts);
		free(ledger->nodes[n]);
	}
	free(ledger->nodes);
	tpck_names_free(&ledger->names);
	free(ledger->where);
	free(ledger->next);
	free(ledger->steps);
	free(ledger);
}

/* ---- nodes -------------------------------------------------------------------------------- */

static struct node *find(const struct tpck_ledger *ledger, const char *name)
{
	uint32_t number = tpck_names_find(&ledger->names, name);

	return number == TPCK_NO_NAME ? NULL : ledger->nodes[number];
}

static struct node *find_or_add(struct tpck_ledger *ledger, const char *name)
{
	struct node *node = find(ledger, name), **nodes;

	if (node)
		return node;
	if (ledger->names.count == ledger->node_room) {
		size_t room = 2 * ledger->node_room + 8;

		nodes = reallocarray(ledger->nodes, room, sizeof(struct node *));
		if (!nodes)
			return NULL;
		ledger->nodes = nodes;
		ledger->node_room = room;
	}
	node = calloc(1, sizeof *node);
	if (!node)
		return NULL;
	node->number = tpck_names_add(&ledger->names, name);
	if (node->number == TPCK_NO_NAME) {
		free(node);
		return NULL;
	}
	return ledger->nodes[node->number] = node;
}

static void add_rank(struct tpck_ledger *ledger, struct node *node, uint32_t rank)
{
	uint32_t *place = &node->first;

	/* Mostly they come in order, and a node has few. */
	while (*place && *place < rank + 1)
		place = &ledger->next[*place - 1];
	ledger->next[rank] = *place;
	*place = rank + 1;
}

static void remove_rank(struct tpck_ledger *ledger, struct node *node, uint32_t rank)
{
	uint32_t *place = &node->first;

	while (*place != rank + 1)
		place = &ledger->next[*place - 1];
	*place = ledger->next[rank];
}

static void count_rank(struct tpck_ledger *ledger, struct node *node, bool here)
{
	uint32_t one = here ? 1 : UINT32_MAX;

	node->ranks += one;
	ledger->joined += one;
	for (unsigned i = 0; i < TPCK_ROUNDS; i++)
		if (node->done[i])
			ledger->done[i] += one;
}

static struct node *node_of(const struct tpck_ledger *ledger, uint32_t rank)
{
	return ledger->where[rank] ? ledger->nodes[ledger->where[rank] - 1] : NULL;
}

int tpck_ledger_join(struct tpck_ledger *ledger, uint32_t rank, const char *name)
{
	struct node *node = find_or_add(ledger, name), *before = node_of(ledger, rank);

	if (!node)
		return -ENOMEM;
	if (before) {
		remove_rank(ledger, before, rank);
		count_rank(ledger, before, false);
	}
	ledger->where[rank] = node->number + 1;
	add_rank(ledger, node, rank);
	count_rank(ledger, node, true);
	return 0;
}

static void drop(struct tpck_ledger *ledger, struct held *held);

bool tpck_ledger_leave(struct tpck_ledger *ledger, const char *name)
{
	struct node *node = find(ledger, name);

	if (!node || !node->ranks)
		return false;
	for (unsigned i = 0; i < TPCK_IMAGES_MAX; i++)
		drop(ledger, &node->held[i]);
	while (node->first) {
		uint32_t rank = node->first - 1;

		remove_rank(ledger, node, rank);
		ledger->where[rank] = 0;
		count_rank(ledger, node, false);
	}
	memset(node->done, 0, sizeof node->done);
	node->pace = (struct tpck_pace){0};
	return true;
}

bool tpck_ledger_is_complete(const struct tpck_ledger *ledger)
{
	return ledger->joined == ledger->world;
}

const char *tpck_ledger_where(const struct tpck_ledger *ledger, uint32_t rank)
{
	return ledger->where[rank] ? ledger->names.name[ledger->where[rank] - 1] : NULL;
}

const char *tpck_ledger_node(const struct tpck_ledger *ledger, size_t *at)
{
	while (*at < ledger->names.count) {
		size_t number = (*at)++;

		if (ledger->nodes[number]->ranks)
			return ledger->names.name[number];
	}
	return NULL;
}

uint32_t tpck_ledger_ranks(const struct tpck_ledger *ledger, const char *name)
{
	const struct node *node = find(ledger, name);

	return node ? node->ranks : 0;
}

bool tpck_ledger_rank(const struct tpck_ledger *ledger, const char *name, uint32_t *at, uint32_t *rank)
{
	const struct node *node = find(ledger, name);
	uint32_t next = !node ? 0 : *at ? ledger->next[*at - 1] : node->first;

	if (!next)
		return false;
	*at = next;
	*rank = next - 1;
	return true;
}

/* ---- rounds ------------------------------------------------------------------------------- */

void tpck_ledger_begin(struct tpck_ledger *ledger, enum tpck_round round)
{
	for (size_t n = 0; n < ledger->names.count; n++)
		ledger->nodes[n]->done[round] = false;
	ledger->done[round] = 0;
}

bool tpck_ledger_done(struct tpck_ledger *ledger, enum tpck_round round, const char *name)
{
	struct node *node = find(ledger, name);

	if (!node || !node->ranks || node->done[round])
		return false;
	node->done[round] = true;
	ledger->done[round] += node->ranks;
	return ledger->done[round] == ledger->world;
}

enum tpck_ready tpck_ledger_ready(struct tpck_ledger *ledger, const char *name, bool is_live)
{
	bool all = tpck_ledger_done(ledger, TPCK_ROUND_READY, name);

	if (ledger->live)
		return TPCK_READY_THIS;
	ledger->live = all || is_live;
	return ledger->live ? TPCK_READY_ALL : TPCK_READY_NOBODY;
}

/* ---- steps -------------------------------------------------------------------------------- */

static struct step *step_of(const struct tpck_ledger *ledger, uint64_t step)
{
	for (size_t i = 0; i < ledger->step_count; i++)
		if (ledger->steps[i].step == step)
			return &ledger->steps[i];
	return NULL;
}

static struct held *held_of(struct node *node, uint64_t step)
{
	for (unsigned i = 0; i < TPCK_IMAGES_MAX; i++)
		if (node->held[i].step == step)
			return &node->held[i];
	return NULL;
}

/* The node holds a newer one, and not this. */
static bool has_left_out(struct node *node, uint64_t step)
{
	bool newer = false;

	for (unsigned i = 0; i < TPCK_IMAGES_MAX; i++)
		newer = newer || node->held[i].step > step;
	return newer && !held_of(node, step);
}

static void drop(struct tpck_ledger *ledger, struct held *held)
{
	struct step *step = held->step ? step_of(ledger, held->step) : NULL;

	if (step) {
		step->ranks -= held->ranks;
		if (!step->ranks && !step->missed)
			*step = ledger->steps[--ledger->step_count];
	}
	tpck_counts_free(&held->counts);
	*held = (struct held){0};
}

/* The oldest that nobody holds any more. */
static void forget_missed(struct tpck_ledger *ledger)
{
	struct step *oldest = NULL;

	for (size_t i = 0; i < ledger->step_count; i++)
		if (!ledger->steps[i].ranks && (!oldest || ledger->steps[i].step < oldest->step))
			oldest = &ledger->steps[i];
	if (oldest)
		*oldest = ledger->steps[--ledger->step_count];
}

static struct step *open_step(struct tpck_ledger *ledger, uint64_t number)
{
	struct step *step = step_of(ledger, number);

	if (step)
		return step;
	if (ledger->step_count >= STEPS_KNOWN)
		forget_missed(ledger);
	if (ledger->step_count == ledger->step_room) {
		size_t room = 2 * ledger->step_room + 8;
		struct step *grown = reallocarray(ledger->steps, room, sizeof *grown);

		if (!grown)
			return NULL;
		ledger->steps = grown;
		ledger->step_room = room;
	}
	step = &ledger->steps[ledger->step_count++];
	*step = (struct step){.step = number};
	/* Who has come past it already? */
	for (size_t n = 0; n < ledger->names.count && !step->missed; n++)
		step->missed = has_left_out(ledger->nodes[n], number);
	return step;
}

/* A node has but so many images: the oldest is not held any more. */
static struct held *make_place(struct tpck_ledger *ledger, struct node *node, uint64_t number)
{
	struct held *place = held_of(node, number);

	if (!place)
		place = held_of(node, 0);
	if (!place) {
		place = &node->held[0];
		for (unsigned i = 1; i < TPCK_IMAGES_MAX; i++)
			if (node->held[i].step < place->step)
				place = &node->held[i];
	}
	drop(ledger, place);
	return place;
}

int tpck_ledger_held(struct tpck_ledger *ledger, const char *name, uint64_t number, uint32_t ranks, const struct tpck_counted *counted,
		     size_t counted_count, const struct tpck_transferred *transferred, size_t transferred_count)
{
	struct node *node = find(ledger, name);
	struct held *place;
	struct step *step;

	if (!number || !node || !node->ranks || !ranks)
		return 0;
	place = make_place(ledger, node, number);
	place->step = number;
	step = open_step(ledger, number);
	if (!step || tpck_counts_add(&place->counts, counted, counted_count, transferred, transferred_count)) {
		drop(ledger, place);
		return -ENOMEM;
	}
	place->ranks = ranks < node->ranks ? ranks : node->ranks;
	step->ranks += place->ranks;
	for (size_t i = 0; i < ledger->step_count; i++)
		ledger->steps[i].missed = ledger->steps[i].missed || has_left_out(node, ledger->steps[i].step);
	return 0;
}

uint64_t tpck_ledger_whole(const struct tpck_ledger *ledger)
{
	uint64_t best = 0;

	for (size_t i = 0; i < ledger->step_count; i++)
		if (ledger->steps[i].ranks == ledger->world && ledger->steps[i].step > best)
			best = ledger->steps[i].step;
	return best;
}

uint64_t tpck_ledger_missed(const struct tpck_ledger *ledger)
{
	for (size_t i = 0; i < ledger->step_count; i++)
		if (ledger->steps[i].missed && ledger->steps[i].ranks)
			return ledger->steps[i].step;
	return 0;
}

int tpck_ledger_counts(const struct tpck_ledger *ledger, uint64_t step, struct tpck_counts *counts)
{
	int rc = 0;

	for (size_t n = 0; n < ledger->names.count && !rc; n++) {
		const struct held *held = held_of(ledger->nodes[n], step);

		if (held)
			rc = tpck_counts_add(counts, held->counts.counted, held->counts.counted_count, held->counts.transferred,
					     held->counts.transferred_count);
	}
	return rc;
}

static void forget(struct tpck_ledger *ledger, uint64_t step, bool and_older)
{
	for (size_t n = 0; n < ledger->names.count; n++)
		for (unsigned i = 0; i < TPCK_IMAGES_MAX; i++) {
			struct held *held = &ledger->nodes[n]->held[i];

			if (held->step && (held->step == step || (and_older && held->step < step)))
				drop(ledger, held);
		}
}

void tpck_ledger_give_up(struct tpck_ledger *ledger, uint64_t step)
{
	struct step *known = open_step(ledger, step);

	if (known)
		known->missed = true;
	forget(ledger, step, false);
}

void tpck_ledger_committed(struct tpck_ledger *ledger, uint64_t step)
{
	forget(ledger, step, true);
	for (size_t i = 0; i < ledger->step_count;)
		if (ledger->steps[i].step <= step)
			ledger->steps[i] = ledger->steps[--ledger->step_count];
		else
			i++;
}

/* ---- pace --------------------------------------------------------------------------------- */

void tpck_ledger_pace(struct tpck_ledger *ledger, const char *name, const struct tpck_pace *pace)
{
	struct node *node = find(ledger, name);

	if (!node || !node->ranks)
		return;
	node->pace = *pace;
	if (pace->furthest > ledger->furthest)
		ledger->furthest = pace->furthest;
}

uint64_t tpck_ledger_furthest(const struct tpck_ledger *ledger)
{
	return ledger->furthest;
}

struct tpck_pace tpck_ledger_pace_of_all(const struct tpck_ledger *ledger)
{
	struct tpck_pace all = {.furthest = ledger->furthest, .images = TPCK_IMAGES_MAX};

	for (size_t n = 0; n < ledger->names.count; n++) {
		const struct tpck_pace *pace = &ledger->nodes[n]->pace;

		if (!ledger->nodes[n]->ranks)
			continue;
		if (pace->iteration_ns && (!all.iteration_ns || pace->iteration_ns < all.iteration_ns))
			all.iteration_ns = pace->iteration_ns;
		if (pace->images && pace->images < all.images)
			all.images = pace->images;
	}
	return all;
}
