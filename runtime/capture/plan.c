/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a capture. */
#include "config.h"

#include "runtime/capture/plan.h"

#include <stdlib.h>

enum { ALIGN = 512 };

struct tpck_plan *tpck_plan_new(uint32_t rows)
{
	static _Atomic uint64_t serial;
	struct tpck_plan *plan = calloc(1, sizeof(struct tpck_plan) + rows * sizeof(struct tpck_image_row));

	if (!plan)
		return NULL;
	plan->placed = calloc(rows ? rows : 1, sizeof *plan->placed);
	if (!plan->placed) {
		free(plan);
		return NULL;
	}
	plan->serial = ++serial;
	return plan;
}

static int part_of(const struct tpck_image_row *row)
{
	switch (row->class_) {
	case TPCK_CLASS_OPTIMIZER:
		return 1;
	case TPCK_CLASS_CONSTANT:
		return 2;
	case TPCK_CLASS_DEAD:
		return 3;
	default:
		return 0;
	}
}

void tpck_plan_place(struct tpck_plan *plan)
{
	uint64_t at = 0;

	plan->placed_count = 0;
	for (int part = 0; part < 4; part++) {
		for (uint32_t i = 0; i < plan->rows; i++) {
			struct tpck_image_row *row = &plan->row[i];

			if (part_of(row) != part)
				continue;
			if (part == 3) {
				row->data_offset = UINT64_MAX;
				continue;
			}
			row->data_offset = at;
			plan->placed[plan->placed_count++] = i;
			at += (row->bytes + ALIGN - 1) / ALIGN * ALIGN;
		}
		if (part == 0)
			plan->early_bytes = at;
		else if (part == 1)
			plan->lazy_bytes = at;
	}
	plan->data_bytes = at;
}

void tpck_plan_free(struct tpck_plan *plan)
{
	free(plan->placed);
	free(plan);
}
