/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of which a snapshot needs parts only: an allocator within the program hands them out in parts (runtime/track/handed.h). What it has back is in no
 * snapshot. Blocks that nobody hands out in parts are needed whole.
 *
 * Not thread-safe: the caller holds the engine's allocation lock.
 */
#ifndef TPCK_RUNTIME_ENGINE_PARTIAL_BLOCKS_H
#define TPCK_RUNTIME_ENGINE_PARTIAL_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/track/arena.h"
#include "runtime/wire/segment.h"

/* A plan is made, at a boundary: what is handed out now is looked at. Returns how many rows there may be beside one a block. */
uint32_t tpck_parts_begin(const struct tpck_arena *arena, uint64_t step);
/* Fills in the rows of a block, by address: those that are needed, without a class yet, and dead ones. Returns how many, at least one. */
uint32_t tpck_parts_rows(const struct tpck_block *block, struct tpck_image_row *row);
/* All blocks have theirs. */
void tpck_parts_end(void);
/* Whether the last plan holds all that is handed out now, and not much more. */
bool tpck_parts_hold(const struct tpck_arena *arena, uint64_t step);

#endif
