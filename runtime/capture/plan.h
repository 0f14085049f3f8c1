/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a capture: which memory, in which order, at which offset of the image. */
#ifndef TPCK_RUNTIME_CAPTURE_PLAN_H
#define TPCK_RUNTIME_CAPTURE_PLAN_H

#include <stdint.h>

#include "runtime/wire/segment.h"

/*
 * In the data area the rows lie in three parts: those that must be copied before the next iteration
 * begins (early, and whatever is not classed), those that must be copied before the next optimizer
 * phase, and constant ones, which are copied when an image does not have them yet or their digest
 * changed. Dead rows have no data.
 */
struct tpck_plan {
	uint64_t version, classes;  /* of the live set and of the classes that it was made from */
	uint64_t data_bytes;
	uint64_t early_bytes;       /* the first part ends here */
	uint64_t lazy_bytes;        /* the second part ends here */
	uint32_t rows;
	uint32_t placed_count;      /* rows with data */
	uint32_t users;             /* captures that still read it */
	uint32_t *placed;           /* their indices by data offset */
	uint64_t serial;            /* tells plans apart */
	struct tpck_image_row row[];
};

/* A plan with room for so many rows, none filled in. NULL without memory. */
struct tpck_plan *tpck_plan_new(uint32_t rows);
/* Gives every row with data its offset by its class. */
void tpck_plan_place(struct tpck_plan *plan);
void tpck_plan_free(struct tpck_plan *plan);

#endif
