/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a capture: which memory, in which order, at which offset of the image. */
#ifndef TPCK_RUNTIME_CAPTURE_PLAN_H
#define TPCK_RUNTIME_CAPTURE_PLAN_H

#include <stdint.h>

#include "runtime/wire/segment.h"

struct tpck_plan {
	uint64_t version;      /* of the live set that it was made from */
	uint64_t data_bytes;
	uint64_t early_bytes;  /* rows before this offset must be copied before the next iteration begins */
	uint32_t rows;
	uint32_t users;        /* captures that still read it */
	struct tpck_image_row row[];
};

/* A plan with room for so many rows, none filled in. NULL without memory. */
struct tpck_plan *tpck_plan_new(uint32_t rows);
/* Gives every row with data its offset, in the order of the rows, and adds up data_bytes. */
void tpck_plan_place(struct tpck_plan *plan);

#endif
