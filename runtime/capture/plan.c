/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a capture. */
#include "config.h"

#include "runtime/capture/plan.h"

#include <stdlib.h>

enum { ALIGN = 512 };

struct tpck_plan *tpck_plan_new(uint32_t rows)
{
	return calloc(1, sizeof(struct tpck_plan) + rows * sizeof(struct tpck_image_row));
}

void tpck_plan_place(struct tpck_plan *plan)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < plan->rows; i++) {
		struct tpck_image_row *row = &plan->row[i];

		if (row->class_ == TPCK_CLASS_DEAD) {
			row->data_offset = UINT64_MAX;
			continue;
		}
		row->data_offset = at;
		at += (row->bytes + ALIGN - 1) / ALIGN * ALIGN;
	}
	plan->data_bytes = at;
}
