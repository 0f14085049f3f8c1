/* SPDX-License-Identifier: Apache-2.0 */
/* Of what is left of a launch the newest step that is whole, and who writes which part of it. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "agent/peers/peers.h"
#include "agent/salvage/salvage_private.h"
#include "runtime/peer/erasure.h"

void salvage_take(struct salvage *s, uint32_t node, const struct tpck_accord_holding *rows, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct tpck_accord_holding *row = &rows[i];

		/* A rank is in one part, whoever has it. */
		if (row->rank >= s->world || row->form > row->rank || row->generation != s->generation ||
		    (s->part_of[row->rank] != UINT32_MAX && s->part_of[row->rank] != row->form))
			continue;
		if (row->kind == TPCK_HOLDING_FRAGMENT && !tpck_erasure_can())
			continue;
		s->part_of[row->rank] = row->form;
		s->ordinal[row->rank] = row->ordinal;
		if (tpck_inquiry_add(&s->inquiry, &(struct tpck_evidence){
							   .point = {row->generation, row->step}, .rank = row->rank, .kind = row->kind, .node = node,
							   .data = row->data, .parity = row->parity, .index = row->index,
						  }))
			break;
	}
}

/* Who could write a part: so many rows of it are a node's. */
struct writer {
	uint32_t part, node;
	enum tpck_left_from from;
};

static enum tpck_left_from from_of(const struct tpck_evidence *row)
{
	if (row->kind == TPCK_HOLDING_FRAGMENT)
		return TPCK_LEFT_FRAGMENTS;
	return row->kind == TPCK_HOLDING_COPY ? TPCK_LEFT_COPY : TPCK_LEFT_OWN;
}

static int by_part(const void *a, const void *b)
{
	const struct writer *x = a, *y = b;

	if (x->part != y->part)
		return x->part < y->part ? -1 : 1;
	if (x->from != y->from)
		return x->from < y->from ? -1 : 1;
	/* This node, which is TPCK_NO_NAME, first. */
	return x->node + 1 < y->node + 1 ? -1 : x->node + 1 > y->node + 1;
}

static bool add_part(struct salvage *s, const struct writer *writer)
{
	struct salvage_part *grown = reallocarray(s->part, s->part_count + 1, sizeof *grown), *part;

	if (!grown)
		return false;
	s->part = grown;
	part = &grown[s->part_count++];
	*part = (struct salvage_part){.rank = writer->part, .ordinal = s->ordinal[writer->part], .from = writer->from};
	strncpy(part->node, writer->node == TPCK_NO_NAME ? peers_node() : s->inquiry.nodes.name[writer->node], sizeof part->node - 1);
	return true;
}

/* Each part's first writer that has all of its ranks: its own node, else who has a copy, else one of those who have fragments. */
static bool find_writers(struct salvage *s, struct writer *writers, size_t count, const uint32_t *ranks)
{
	uint32_t covered = 0;

	for (size_t i = 0, end; i < count; i = end) {
		for (end = i; end < count && by_part(&writers[end], &writers[i]) == 0;)
			end++;
		if (end - i < ranks[writers[i].part] || (s->part_count && s->part[s->part_count - 1].rank == writers[i].part))
			continue;
		if (!add_part(s, &writers[i]))
			return false;
		covered += ranks[writers[i].part];
	}
	return covered == s->world;
}

static bool plan(struct salvage *s)
{
	struct writer *writers = calloc(s->inquiry.count + 1, sizeof *writers);
	uint32_t *ranks = calloc(s->world, sizeof *ranks);
	size_t count = 0;
	bool found;

	s->part_count = 0;
	for (size_t i = 0; writers && i < s->inquiry.count; i++) {
		const struct tpck_evidence *row = &s->inquiry.rows[i];

		if (!row->bad && tpck_point_compare(&row->point, &s->point) == 0)
			writers[count++] = (struct writer){s->part_of[row->rank], row->node, from_of(row)};
	}
	for (uint32_t r = 0; ranks && r < s->world; r++)
		if (s->part_of[r] != UINT32_MAX)
			ranks[s->part_of[r]]++;
	if (count)
		qsort(writers, count, sizeof *writers, by_part);
	found = writers && ranks && find_writers(s, writers, count, ranks);
	free(writers);
	free(ranks);
	return found;
}

bool salvage_choose(struct salvage *s)
{
	while (tpck_consensus(s->inquiry.rows, s->inquiry.count, NULL, 0, s->world, UINT64_MAX, &s->point)) {
		if (plan(s))
			return true;
		for (size_t i = 0; i < s->inquiry.count; i++)
			if (tpck_point_compare(&s->inquiry.rows[i].point, &s->point) == 0)
				s->inquiry.rows[i].bad = true;
	}
	return false;
}
