/* SPDX-License-Identifier: Apache-2.0 */
/* Mappings of the program's own: addresses for reservations, and a hash of what is mapped. */
#include "config.h"

#include "runtime/track/mappings.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "runtime/base/layout.h"

/* Above the arena, below where position-independent programs are loaded. */
#define FIRST 0x4b0000000000ull
#define END 0x540000000000ull
#define UNIT (2ull << 20)
#define LARGEST (256ull << 30)

enum { HASH_BITS = 12, VACANT = 64 };

static uint64_t next = FIRST;
static struct {
	uint64_t address, bytes;
} vacant[VACANT] TPCK_LARGE;
static unsigned vacant_count;
static struct tpck_mapping *by_address[1 << HASH_BITS] TPCK_LARGE, *by_handle[1 << HASH_BITS] TPCK_LARGE;

static struct tpck_mapping **slot(struct tpck_mapping **table, uint64_t key)
{
	return &table[key * 0x9e3779b97f4a7c15ull >> (64 - HASH_BITS)];
}

bool tpck_mappings_range(uint64_t address)
{
	return address >= FIRST && address < END;
}

uint64_t tpck_mappings_place(uint64_t bytes, uint64_t alignment)
{
	uint64_t unit = alignment > UNIT ? alignment : UNIT, address;

	if (!bytes || bytes > END - FIRST || (unit & (unit - 1)))
		return 0;
	/* A range of its own size begins at a multiple of it, as page tables have it: a driver need not give a large one at any other place. */
	while (unit < bytes && unit < LARGEST)
		unit *= 2;
	for (unsigned i = vacant_count; i-- > 0;) {
		if (vacant[i].bytes != bytes || vacant[i].address & (unit - 1))
			continue;
		address = vacant[i].address;
		for (vacant_count--; i < vacant_count; i++)
			vacant[i] = vacant[i + 1];
		return address;
	}
	address = (next + unit - 1) & ~(unit - 1);
	if (address > END - bytes)
		return 0;
	next = (address + bytes + UNIT - 1) & ~(UNIT - 1);
	return address;
}

void tpck_mappings_vacate(uint64_t address, uint64_t bytes)
{
	if (address < FIRST || address >= next)
		return;
	if (vacant_count == VACANT) { /* the oldest stays unused */
		for (unsigned i = 1; i < VACANT; i++)
			vacant[i - 1] = vacant[i];
		vacant_count--;
	}
	vacant[vacant_count].address = address;
	vacant[vacant_count++].bytes = bytes;
}

int tpck_mappings_add(uint64_t address, uint64_t bytes, uint64_t handle)
{
	struct tpck_mapping *made, **at = slot(by_handle, handle);

	for (const struct tpck_mapping *other = *at; other; other = other->same)
		if (other->handle == handle)
			return -EEXIST;
	made = malloc(sizeof *made);
	if (!made)
		return -ENOMEM;
	*made = (struct tpck_mapping){.address = address, .bytes = bytes, .handle = handle, .same = *at};
	*at = made;
	at = slot(by_address, address);
	made->chain = *at;
	*at = made;
	return 0;
}

struct tpck_mapping *tpck_mappings_at(uint64_t address)
{
	struct tpck_mapping *mapping = *slot(by_address, address);

	while (mapping && mapping->address != address)
		mapping = mapping->chain;
	return mapping;
}

void tpck_mappings_drop(struct tpck_mapping *mapping)
{
	struct tpck_mapping **link = slot(by_address, mapping->address);

	while (*link != mapping)
		link = &(*link)->chain;
	*link = mapping->chain;
	for (link = slot(by_handle, mapping->handle); *link != mapping;)
		link = &(*link)->same;
	*link = mapping->same;
	free(mapping);
}

void tpck_mappings_reset(void)
{
	for (size_t i = 0; i < sizeof by_address / sizeof *by_address; i++)
		while (by_address[i])
			tpck_mappings_drop(by_address[i]);
}
