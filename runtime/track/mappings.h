/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory that the program maps itself: which address range a reservation is asked for, so that the same order of
 * calls gives the same addresses in every run, and which mappings there are. PyTorch's expandable segments are such.
 *
 * Not thread-safe: the caller holds the engine's allocation lock.
 */
#ifndef TPCK_RUNTIME_TRACK_MAPPINGS_H
#define TPCK_RUNTIME_TRACK_MAPPINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/track/device.h"

struct tpck_mapping {
	uint64_t address, bytes;
	uint64_t handle;              /* of the memory, as the driver names it */
	bool readable;                /* this device was given access */
	struct tpck_mapping *chain, *same; /* by address; by handle */
};

/* Above the arena, below where position-independent programs are loaded. */
#define TPCK_MAPPINGS_FIRST 0x4b0000000000ull
#define TPCK_MAPPINGS_END 0x540000000000ull

/* Whether an address lies where reservations are asked to lie. Needs no lock. */
static inline bool tpck_mappings_range(uint64_t address)
{
	return address - TPCK_MAPPINGS_FIRST < TPCK_MAPPINGS_END - TPCK_MAPPINGS_FIRST;
}
/* Takes so much of an address range that nobody has, the first that fits; it begins at a multiple of alignment, 0 or a power of two, and of 2 MiB.
 * Drivers move small reservations, so that the program's lie within a few large ones of the process's, which stay. 0: bytes are no multiple of 2 MiB, or
 * the driver gives no range. */
uint64_t tpck_mappings_place(const struct tpck_device *device, uint64_t bytes, uint64_t alignment);
/* Gives back what was taken. -ENOENT where that is nothing of the kind; -EBUSY while memory is mapped there. */
int tpck_mappings_vacate(uint64_t address, uint64_t bytes);
/* -EEXIST where the memory is mapped elsewhere already; -ENOMEM. */
int tpck_mappings_add(uint64_t address, uint64_t bytes, uint64_t handle);
/* The mapping that begins at address, or NULL. */
struct tpck_mapping *tpck_mappings_at(uint64_t address);
void tpck_mappings_drop(struct tpck_mapping *mapping);
/* Forgets all (the context was destroyed). */
void tpck_mappings_reset(void);

#endif
