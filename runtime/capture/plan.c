/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a capture. */
#include "config.h"

#include "runtime/capture/plan.h"

#include <stdlib.h>

/* Parts of the data area: blocks of whole chunks, which then share none with others; of more than a chunk; of less; and those of which there
 * are many in one. */
enum { WHOLE, LARGE, MIDDLE, SMALL, SIZES, SMALL_BYTES = TPCK_CHUNK_BYTES / 64 };

struct tpck_plan *tpck_plan_new(uint32_t rows)
{
	static _Atomic uint64_t serial;
	struct tpck_plan *plan = calloc(1, sizeof(struct tpck_plan) + rows * sizeof(struct tpck_image_row));

	if (!plan)
		return NULL;
	plan->turn = calloc(rows ? rows : 1, sizeof *plan->turn);
	if (!plan->turn) {
		free(plan);
		return NULL;
	}
	plan->serial = ++serial;
	return plan;
}

/* Parts of the order of copying, and what is not copied. */
enum { EARLY, LAZY, CONSTANT, DEAD };

static int part_of(const struct tpck_image_row *row)
{
	switch (row->class_) {
	case TPCK_CLASS_OPTIMIZER:
		return LAZY;
	case TPCK_CLASS_CONSTANT:
		return CONSTANT;
	case TPCK_CLASS_DEAD:
		return DEAD;
	default:
		return EARLY;
	}
}

static int size_of(const struct tpck_image_row *row)
{
	if (row->bytes >= TPCK_CHUNK_BYTES)
		return row->bytes % TPCK_CHUNK_BYTES ? LARGE : WHOLE;
	return row->bytes >= SMALL_BYTES ? MIDDLE : SMALL;
}

static void offsets_give(struct tpck_plan *plan)
{
	uint64_t at = 0;

	for (int size = 0; size < SIZES; size++) {
		for (uint32_t i = 0; i < plan->rows; i++) {
			struct tpck_image_row *row = &plan->row[i];

			if (size_of(row) != size)
				continue;
			if (part_of(row) == DEAD) {
				row->data_offset = UINT64_MAX;
				continue;
			}
			row->data_offset = at;
			at += tpck_plan_room(row);
		}
	}
	plan->data_bytes = at;
}

static void turns_give(struct tpck_plan *plan)
{
	uint64_t from = 0;

	plan->turn_count = 0;
	for (int part = 0; part < DEAD; part++) {
		for (uint32_t i = 0; i < plan->rows; i++) {
			if (part_of(&plan->row[i]) != part)
				continue;
			plan->turn[plan->turn_count++] = (struct tpck_turn){from, i};
			from += tpck_plan_room(&plan->row[i]);
		}
		if (part == EARLY)
			plan->early_bytes = from;
		else if (part == LAZY)
			plan->lazy_bytes = from;
	}
}

void tpck_plan_place(struct tpck_plan *plan)
{
	offsets_give(plan);
	turns_give(plan);
}

void tpck_plan_free(struct tpck_plan *plan)
{
	free(plan->turn);
	free(plan);
}
