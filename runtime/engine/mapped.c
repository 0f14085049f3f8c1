/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory that the program maps itself: its addresses, and its place among the live blocks. */
#include "config.h"

#include <errno.h>

#include "runtime/base/lock_order.h"
#include "runtime/capture/copier.h"
#include "runtime/engine/engine_private.h"
#include "runtime/track/mappings.h"

/* How long unmapping waits for a copy of that memory that is under way; the driver itself waits there too. */
#define UNMAP_WAIT_SEC 5.0

static struct tpck_engine *const engine = &tpck_engine;

/* One call on the program's addresses after another, as its allocations: before there is a context nothing is recorded, and a program begins alike. */
static void order_begin(struct tpck_thread *self)
{
	if (engine->arena)
		tpck_memory_order_begin(self);
	else
		pthread_mutex_lock(&engine->allocation);
}

static void order_end(struct tpck_thread *self)
{
	if (engine->arena)
		tpck_memory_order_end(self);
	else
		pthread_mutex_unlock(&engine->allocation);
}

uint64_t tpck_engine_reserve(struct tpck_thread *self, const struct tpck_device *device, uint64_t bytes, uint64_t alignment)
{
	uint64_t address;

	order_begin(self);
	address = tpck_mappings_place(device, bytes, alignment);
	order_end(self);
	return address;
}

int tpck_engine_unreserve(struct tpck_thread *self, uint64_t address, uint64_t bytes)
{
	int result;

	order_begin(self);
	result = tpck_mappings_vacate(address, bytes);
	order_end(self);
	return result;
}

void tpck_engine_map(struct tpck_thread *self, uint64_t address, uint64_t bytes, uint64_t handle)
{
	int result;

	if (!engine->arena)
		return;
	tpck_memory_order_begin(self);
	result = tpck_mappings_add(address, bytes, handle);
	tpck_memory_order_end(self);
	if (result)
		tpck_engine_unresumable(result == -EEXIST ? "the program maps the same device memory twice"
							  : "there is no memory to follow the program's mappings");
}

/* Calls visit for each mapping in [address, address + bytes). False: they do not cover it, or a visit failed. */
static bool each(uint64_t address, uint64_t bytes, int (*visit)(struct tpck_mapping *mapping))
{
	uint64_t end = address + bytes;

	while (address < end) {
		struct tpck_mapping *mapping = tpck_mappings_at(address);

		if (!mapping)
			return false;
		address += mapping->bytes;
		if (visit(mapping))
			return false;
	}
	return true;
}

static int let_read(struct tpck_mapping *mapping)
{
	int result = mapping->readable ? 0 : tpck_arena_adopt(engine->arena, mapping->address, mapping->bytes);

	mapping->readable |= !result;
	return result;
}

static int drop(struct tpck_mapping *mapping)
{
	if (mapping->readable)
		tpck_arena_disown(engine->arena, mapping->address);
	tpck_mappings_drop(mapping);
	return 0;
}

void tpck_engine_access(struct tpck_thread *self, uint64_t address, uint64_t bytes)
{
	bool whole;

	if (!engine->arena)
		return;
	tpck_memory_order_begin(self);
	whole = each(address, bytes, let_read);
	tpck_memory_order_end(self);
	if (!whole)
		tpck_engine_unresumable("the program maps device memory in a way that is not followed");
}

void tpck_engine_unmap(struct tpck_thread *self, uint64_t address, uint64_t bytes)
{
	bool whole;

	if (!engine->arena)
		return;
	tpck_memory_order_begin(self);
	whole = each(address, bytes, drop);
	tpck_memory_order_end(self);
	/* Snapshots from here on do not have it; one under way may be reading it. */
	tpck_copier_drain(UNMAP_WAIT_SEC);
	if (!whole)
		tpck_engine_unresumable("the program maps device memory in a way that is not followed");
}

bool tpck_engine_maps_here(int device)
{
	return engine->arena && device == engine->ordinal;
}
