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

struct tpck_mapping {
	uint64_t address, bytes;
	uint64_t handle;              /* of the memory, as the driver names it */
	bool readable;                /* this device was given access */
	struct tpck_mapping *chain, *same; /* by address; by handle */
};

/* Whether an address lies where reservations are asked to lie. Needs no lock. */
bool tpck_mappings_range(uint64_t address);
/* Where the next reservation shall lie: one that was given back and is of that size, else above all before. 0: no room, or
 * an alignment that is no power of two. */
uint64_t tpck_mappings_place(uint64_t bytes, uint64_t alignment);
/* A reservation that the program gives back. */
void tpck_mappings_vacate(uint64_t address, uint64_t bytes);
/* -EEXIST where the memory is mapped elsewhere already; -ENOMEM. */
int tpck_mappings_add(uint64_t address, uint64_t bytes, uint64_t handle);
/* The mapping that begins at address, or NULL. */
struct tpck_mapping *tpck_mappings_at(uint64_t address);
void tpck_mappings_drop(struct tpck_mapping *mapping);
/* Forgets all (the context was destroyed). */
void tpck_mappings_reset(void);

#endif
