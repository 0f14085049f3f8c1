/* SPDX-License-Identifier: Apache-2.0 */
/* Streams by handle. */
#include "config.h"

#include "runtime/track/streams.h"

#include <stddef.h>

#include "runtime/base/layout.h"

static struct tpck_stream table[TPCK_STREAMS_MAX] TPCK_LARGE;
static _Atomic uint32_t used;
static tpck_spin lock;

static struct tpck_stream *find(tpck_stream_handle handle, uint32_t owner)
{
	uint32_t count = atomic_load_explicit(&used, memory_order_acquire);

	for (uint32_t i = 0; i < count; i++)
		if (tpck_stream_is(&table[i], handle, owner))
			return &table[i];
	return NULL;
}

static struct tpck_stream *enter(tpck_stream_handle handle, uint32_t owner, uint32_t ordinal)
{
	struct tpck_stream *entry;

	tpck_spin_lock(&lock);
	entry = find(handle, owner);
	for (uint32_t i = 0; i < used && !entry; i++)
		if (!atomic_load(&table[i].alive))
			entry = &table[i];
	if (!entry && used < TPCK_STREAMS_MAX)
		entry = &table[used++];
	if (entry) {
		entry->handle = handle;
		entry->owner = owner;
		entry->ordinal = ordinal;
		atomic_store(&entry->fence, 0);
		atomic_store(&entry->fence_all, 0);
		atomic_store(&entry->dirty, 0);
		atomic_store_explicit(&entry->alive, 1, memory_order_release);
	}
	tpck_spin_unlock(&lock);
	return entry;
}

static uint32_t ordinal_of(uint32_t thread, uint32_t object)
{
	uint32_t ordinal = (thread * 0x9e3779b9u ^ object) * 0x85ebca6bu;

	ordinal ^= ordinal >> 15;
	return ordinal == 0 || ordinal == 0xffffffffu || ordinal == 1 ? 2 : ordinal;
}

struct tpck_stream *tpck_stream_search(tpck_stream_handle handle, uint32_t owner, struct tpck_thread *thread)
{
	struct tpck_stream *entry = find(handle, owner);

	if (!entry)
		entry = enter(handle, owner, handle == TPCK_STREAM_LEGACY ? 1 : ordinal_of(owner, 0));
	thread->stream = entry;
	return entry;
}

void tpck_stream_created(tpck_stream_handle handle, struct tpck_thread *thread)
{
	enter(handle, 0, ordinal_of(thread->id, ++thread->objects));
}

void tpck_stream_destroyed(tpck_stream_handle handle)
{
	struct tpck_stream *entry = find(handle, 0);

	if (entry)
		atomic_store_explicit(&entry->alive, 0, memory_order_release);
}

struct tpck_stream *tpck_stream_by_ordinal(uint32_t ordinal)
{
	uint32_t count = atomic_load_explicit(&used, memory_order_acquire);

	for (uint32_t i = 0; i < count; i++)
		if (table[i].ordinal == ordinal && atomic_load_explicit(&table[i].alive, memory_order_acquire))
			return &table[i];
	return NULL;
}

struct tpck_stream *tpck_streams(uint32_t *count)
{
	*count = atomic_load_explicit(&used, memory_order_acquire);
	return table;
}
