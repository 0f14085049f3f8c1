/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arena: device memory served from one reserved address range at a fixed address, so that the
 * same order of requests gives the same addresses in every run (doc/snapshots.md, "The arena"). Which block a request
 * gets depends on the order of calls alone, never on what the device has finished; memory freed on
 * one stream is given to another behind a wait that the caller inserts.
 *
 * Not thread-safe: the caller holds the engine's allocation lock.
 */
#ifndef TPCK_RUNTIME_TRACK_ARENA_H
#define TPCK_RUNTIME_TRACK_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/track/device.h"

/* Streams are named by small ordinals here; 0 stands for "all work before is known to be done". */
enum { TPCK_STREAM_NONE = 0, TPCK_STREAM_MANY = 0xffffffffu };

struct tpck_block {
	uint64_t address, bytes; /* bytes is what was asked for */
	uint64_t room;           /* what the block occupies; 0: outside of the range */
	uint64_t order;          /* allocations before it */
	uint32_t freed_on;       /* free blocks: stream of the free, or TPCK_STREAM_MANY */
	bool live;
	bool ordered;            /* live blocks: asked for in the order of a stream */
	bool handed;             /* live blocks: an allocator of the program's hands out parts of it, and says which (runtime/track/handed.h) */
	uint64_t freed;          /* free blocks: number of the call that freed it, of several the last */
	struct tpck_block *lower, *higher;       /* neighbours by address */
	struct tpck_block *previous, *next;      /* free: in its bin; live: in order of allocation */
	struct tpck_block *chain;                /* hash chain by address */
};

struct tpck_arena;

/* Reserves bytes at base on the device. -EADDRINUSE, -ENOMEM. The arena is the caller's. */
int tpck_arena_open(struct tpck_arena **arena, const struct tpck_device *device, int ordinal,
		    uint64_t base, uint64_t bytes);
/* A block of at least bytes (0 counts as 1), 512-byte aligned. On success *wait_for is the stream
 * whose work up to now must be waited for before the block is used on `stream` (TPCK_STREAM_NONE:
 * nothing). stream TPCK_STREAM_NONE stands for use from anywhere. -ENOMEM. */
int tpck_arena_allocate(struct tpck_arena *arena, uint64_t bytes, uint32_t stream,
			uint64_t *address, uint32_t *wait_for);
/* Frees the block that begins at address; -ENOENT if none does. `stream` as above: TPCK_STREAM_NONE
 * if all work on it is done. */
int tpck_arena_free(struct tpck_arena *arena, uint64_t address, uint32_t stream);
/* Memory outside of the range, which the program mapped itself: it is live from here on as a block of the arena's is. -ENOMEM. */
int tpck_arena_adopt(struct tpck_arena *arena, uint64_t address, uint64_t bytes);
/* Memory that was adopted is not there any more. */
void tpck_arena_disown(struct tpck_arena *arena, uint64_t address);
/* Blocks that were allocated up to now. */
uint64_t tpck_arena_orders(const struct tpck_arena *arena);
/* Allocations and frees up to now; each call has the next number, from 1. */
uint64_t tpck_arena_calls(const struct tpck_arena *arena);
/* All that was queued before call number `call` is known to be done: what was freed by then is anybody's at once. For the
 * same addresses in every run this must be told at the same place between calls, with the same number. */
void tpck_arena_done(struct tpck_arena *arena, uint64_t call);
/* Memory that is mapped and could be given back now: no live block lies in it. */
uint64_t tpck_arena_idle(const struct tpck_arena *arena);
/* Gives such memory back to the device until at most `keep` bytes are left. Only what is known to be done is touched. */
void tpck_arena_trim(struct tpck_arena *arena, uint64_t keep);
/* Gives all of it back, behind a wait for the device. Whether there was any. */
bool tpck_arena_give_back(struct tpck_arena *arena);
/* The live block that holds address, or NULL. */
struct tpck_block *tpck_arena_find(const struct tpck_arena *arena, uint64_t address);
/* The mapping that holds address: memory with a handle of its own. False: nothing is mapped there. */
bool tpck_arena_mapping(const struct tpck_arena *arena, uint64_t address, uint64_t *start, uint64_t *bytes);
bool tpck_arena_contains(const struct tpck_arena *arena, uint64_t address);
/* Live blocks in order of allocation: first, then ->next until NULL. */
struct tpck_block *tpck_arena_first(const struct tpck_arena *arena);
/* Grows with every change of the live set. */
uint64_t tpck_arena_version(const struct tpck_arena *arena);
void tpck_arena_totals(const struct tpck_arena *arena, uint64_t *blocks, uint64_t *bytes, uint64_t *backed);
/* Another device may use all memory from here on. */
/* Devices by which memory can be shared: a bit each. */
enum { TPCK_ARENA_DEVICES = 64 };
void tpck_arena_share(struct tpck_arena *arena, int with);
/* Forgets every block and gives its memory back to the device, which does nothing with it any more; the range stays reserved. */
void tpck_arena_reset(struct tpck_arena *arena);

#endif
