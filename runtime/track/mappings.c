/* SPDX-License-Identifier: Apache-2.0 */
/* Mappings of the program's own: addresses for reservations, and a hash of what is mapped. */
#include "config.h"

#include "runtime/track/mappings.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "runtime/base/layout.h"

#define FIRST TPCK_MAPPINGS_FIRST
#define END TPCK_MAPPINGS_END
#define UNIT (2ull << 20)
/* What the driver is asked for at a time. */
#define WINDOW (1ull << 40)

enum { HASH_BITS = 12, WINDOWS = (END - FIRST) / WINDOW };

struct range {
	uint64_t address, bytes;
	struct range *next; /* by address */
};
static struct range *taken;
static enum { UNKNOWN, OURS, REFUSED } windows[WINDOWS];
static struct tpck_mapping *by_address[1 << HASH_BITS] TPCK_LARGE, *by_handle[1 << HASH_BITS] TPCK_LARGE;

static struct tpck_mapping **slot(struct tpck_mapping **table, uint64_t key)
{
	return &table[key * 0x9e3779b97f4a7c15ull >> (64 - HASH_BITS)];
}

static bool is_ours(const struct tpck_device *device, uint64_t address)
{
	uint64_t window = (address - FIRST) / WINDOW;

	if (windows[window] == UNKNOWN)
		windows[window] = device->reserve(-1, FIRST + window * WINDOW, WINDOW) ? REFUSED : OURS;
	return windows[window] == OURS;
}

uint64_t tpck_mappings_place(const struct tpck_device *device, uint64_t bytes, uint64_t alignment)
{
	uint64_t unit = alignment > UNIT ? alignment : UNIT, at = FIRST;
	struct range **link = &taken, *made;

	if (!bytes || bytes % UNIT || bytes > WINDOW || (unit & (unit - 1)))
		return 0;
	for (;;) {
		uint64_t last;

		at = (at + unit - 1) & ~(unit - 1);
		last = at + bytes - 1;
		if (last < at || last >= END)
			return 0;
		if ((at - FIRST) / WINDOW != (last - FIRST) / WINDOW || !is_ours(device, at)) {
			at = FIRST + ((at - FIRST) / WINDOW + 1) * WINDOW;
			while (*link && (*link)->address < at)
				link = &(*link)->next;
		} else if (*link && last >= (*link)->address) {
			at = (*link)->address + (*link)->bytes;
			link = &(*link)->next;
		} else {
			break;
		}
	}
	made = malloc(sizeof *made);
	if (!made)
		return 0;
	*made = (struct range){at, bytes, *link};
	*link = made;
	return at;
}

static bool is_mapped(uint64_t address, uint64_t bytes)
{
	for (size_t i = 0; i < sizeof by_address / sizeof *by_address; i++)
		for (const struct tpck_mapping *mapping = by_address[i]; mapping; mapping = mapping->chain)
			if (mapping->address < address + bytes && address < mapping->address + mapping->bytes)
				return true;
	return false;
}

int tpck_mappings_vacate(uint64_t address, uint64_t bytes)
{
	struct range **link = &taken, *range;

	while (*link && (*link)->address < address)
		link = &(*link)->next;
	range = *link;
	if (!range || range->address != address || range->bytes != bytes)
		return -ENOENT;
	if (is_mapped(address, bytes))
		return -EBUSY;
	*link = range->next;
	free(range);
	return 0;
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
