/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a capture: which memory, at which offset of the image, in which order. */
#ifndef TPCK_RUNTIME_CAPTURE_PLAN_H
#define TPCK_RUNTIME_CAPTURE_PLAN_H

#include <stdint.h>

#include "runtime/wire/segment.h"

enum { TPCK_PLAN_ALIGN = 512 };

/*
 * A row's place in the data area follows from the live blocks alone, their sizes and the order in which they were
 * allocated, never from what was learnt of them: ranks that hold the same have it in the same chunks, whatever each
 * knows, and a chunk stays where it is while nothing is allocated or freed. Blocks of whole chunks come first, and the
 * smallest last, since what replicas do not have in common (states of generators, scalars, batches) is mostly small:
 * it spoils few chunks. What does not change may lie beside what does; only of whole chunks it spoils none.
 *
 * The order of copying is another one, in three parts: rows that must be copied before the next iteration begins
 * (early, and whatever is not classed), those that must be copied before the next optimizer phase, and constant ones,
 * which are copied when an image does not have them yet or their digest changed. Dead rows have no data.
 */
struct tpck_turn {
	uint64_t from; /* bytes that are copied before it */
	uint32_t row;
};

struct tpck_plan {
	uint64_t version, classes;  /* of the live set and of the classes that it was made from */
	uint64_t data_bytes;        /* of the data area, and of all that is copied */
	uint64_t early_bytes;       /* in order of copying: the first part ends here */
	uint64_t lazy_bytes;        /* the second part ends here */
	uint32_t rows;
	uint32_t turn_count;        /* rows with data */
	uint32_t users;             /* captures that still read it */
	struct tpck_turn *turn;     /* these in the order in which they are copied */
	uint64_t serial;            /* tells plans apart */
	struct tpck_image_row row[];
};

/* What a row takes of the data area. */
static inline uint64_t tpck_plan_room(const struct tpck_image_row *row)
{
	return (row->bytes + TPCK_PLAN_ALIGN - 1) / TPCK_PLAN_ALIGN * TPCK_PLAN_ALIGN;
}

/* A plan with room for so many rows, none filled in. NULL without memory. */
struct tpck_plan *tpck_plan_new(uint32_t rows);
/* Gives every row with data its offset, and its turn by its class. */
void tpck_plan_place(struct tpck_plan *plan);
void tpck_plan_free(struct tpck_plan *plan);

#endif
