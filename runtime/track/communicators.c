/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators by handle. */
#include "config.h"

#include "runtime/track/communicators.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/layout.h"
#include "runtime/track/threads.h"

struct tpck_communicator tpck_communicator_table[TPCK_COMMUNICATORS_MAX] TPCK_LARGE;
#define table tpck_communicator_table
static _Atomic uint32_t used;
static uint32_t made; /* ever */
static _Atomic uint64_t changes;
static tpck_spin lock;
static struct tpck_communicator_mark *_Atomic marks;

struct tpck_communicator *tpck_communicator_find(const void *handle)
{
	uint32_t count = atomic_load_explicit(&used, memory_order_acquire);
	uintptr_t at = (uintptr_t)handle - (uintptr_t)table;

	if (at < sizeof table && at % sizeof *table == 0) {
		struct tpck_communicator *entry = &table[at / sizeof *table];

		return atomic_load_explicit(&entry->handle, memory_order_acquire) == handle ? entry : NULL;
	}
	for (uint32_t i = 0; handle && i < count; i++)
		if (atomic_load_explicit(&table[i].handle, memory_order_acquire) == handle)
			return &table[i];
	return NULL;
}

static struct tpck_communicator_mark *mark_of(const struct tpck_communicator *entry)
{
	struct tpck_communicator_mark *all = atomic_load_explicit(&marks, memory_order_acquire);

	return all && entry - table < TPCK_MARKS_MAX ? &all[entry - table] : NULL;
}

static void mark_begin(const struct tpck_communicator *entry)
{
	struct tpck_communicator_mark *mark = mark_of(entry);

	if (!mark)
		return;
	atomic_store(&mark->id, 0);
	atomic_store(&mark->index, entry->index);
	atomic_store(&mark->size, entry->size);
	atomic_store(&mark->rank, entry->rank);
	atomic_store(&mark->collectives, entry->collectives);
	atomic_store(&mark->last_ns, 0);
	if (atomic_load(&entry->handle))
		atomic_store(&mark->id, entry->id);
}

/* An entry that is nobody's, or NULL. Under the lock. */
static struct tpck_communicator *unused_entry(void)
{
	for (uint32_t i = 0; i < used; i++)
		if (!atomic_load(&table[i].handle) && !atomic_load(&table[i].reserved))
			return &table[i];
	return used < TPCK_COMMUNICATORS_MAX ? &table[used] : NULL;
}

/* Under the lock. */
static void begin(struct tpck_communicator *entry, void *handle, uint64_t id, uint32_t size, uint32_t rank, int32_t device)
{
	/* The entry's transfers stay with it: a thread may still be counting one. */
	struct tpck_communicator_transfers *old = entry->transfers;

	if (old && entry->size >= size)
		memset(old, 0, entry->size * sizeof *old);
	else
		entry->transfers = NULL;
	entry->id = id;
	entry->index = made++;
	entry->size = size;
	entry->rank = rank;
	entry->device = device;
	entry->failed = entry->captured = false;
	entry->births = 0;
	entry->collectives = entry->order = 0;
	atomic_store_explicit(&entry->handle, handle, memory_order_release);
	if (entry == &table[used])
		atomic_fetch_add(&used, 1);
	mark_begin(entry);
	atomic_fetch_add(&changes, 1);
}

int tpck_communicator_add(void *handle, uint64_t id, uint32_t size, uint32_t rank, int32_t device)
{
	struct tpck_communicator *entry;

	tpck_spin_lock(&lock);
	entry = tpck_communicator_find(handle);
	if (!entry)
		entry = unused_entry();
	if (entry)
		begin(entry, handle, id, size, rank, device);
	tpck_spin_unlock(&lock);
	return entry ? 0 : -ENOSPC;
}

struct tpck_communicator *tpck_communicator_reserve(void)
{
	struct tpck_communicator *entry;

	tpck_spin_lock(&lock);
	entry = unused_entry();
	if (entry) {
		atomic_store(&entry->real, entry);
		atomic_store(&entry->reserved, true);
		if (entry == &table[used])
			atomic_fetch_add(&used, 1);
	}
	tpck_spin_unlock(&lock);
	return entry;
}

void tpck_communicator_begin(struct tpck_communicator *reserved, uint64_t id, uint32_t size, uint32_t rank, int32_t device)
{
	tpck_spin_lock(&lock);
	begin(reserved, reserved, id, size, rank, device);
	tpck_spin_unlock(&lock);
}

void tpck_communicator_release(struct tpck_communicator *reserved)
{
	tpck_spin_lock(&lock);
	atomic_store(&reserved->real, NULL);
	atomic_store(&reserved->pending, false);
	atomic_store(&reserved->reserved, false);
	tpck_spin_unlock(&lock);
}

void tpck_communicator_remove(const void *handle)
{
	uintptr_t at = (uintptr_t)handle - (uintptr_t)table;
	struct tpck_communicator *entry;

	tpck_spin_lock(&lock);
	entry = tpck_communicator_find(handle);
	if (entry) {
		atomic_store(&entry->handle, NULL);
		mark_begin(entry);
		atomic_fetch_add(&changes, 1);
	}
	/* Of a key, known or not, the entry is free again. */
	if (at < sizeof table && at % sizeof *table == 0) {
		atomic_store(&table[at / sizeof *table].real, NULL);
		atomic_store(&table[at / sizeof *table].pending, false);
		atomic_store(&table[at / sizeof *table].reserved, false);
	}
	tpck_spin_unlock(&lock);
}

void tpck_communicator_collective(struct tpck_communicator *communicator, uint64_t what)
{
	communicator->order = (communicator->order ^ what) * 0x9e3779b97f4a7c15ull + 1;
	communicator->collectives++;
}

void tpck_communicator_mark(struct tpck_communicator *communicator, enum tpck_collective what, uint64_t elements)
{
	struct tpck_communicator_mark *mark = mark_of(communicator);

	if (!mark)
		return;
	atomic_store_explicit(&mark->last, what, memory_order_relaxed);
	atomic_store_explicit(&mark->elements, elements, memory_order_relaxed);
	atomic_store_explicit(&mark->collectives, communicator->collectives, memory_order_relaxed);
	atomic_store_explicit(&mark->last_ns, tpck_clock_monotonic_ns(), memory_order_relaxed);
}

void tpck_communicators_show(struct tpck_communicator_mark *all)
{
	tpck_spin_lock(&lock);
	atomic_store(&marks, all);
	for (uint32_t i = 0; i < used; i++)
		mark_begin(&table[i]);
	tpck_spin_unlock(&lock);
}

void tpck_communicator_transfer(struct tpck_communicator *communicator, uint32_t peer, bool receive)
{
	struct tpck_communicator_transfers *transfers;

	if (peer >= communicator->size)
		return;
	tpck_spin_lock(&lock);
	transfers = communicator->transfers;
	if (!transfers)
		communicator->transfers = transfers = calloc(communicator->size, sizeof *transfers);
	if (transfers)
		(*(receive ? &transfers[peer].receives : &transfers[peer].sends))++;
	tpck_spin_unlock(&lock);
}

uint64_t tpck_communicators_changes(void)
{
	return atomic_load(&changes);
}

static uint32_t peers_of(const struct tpck_communicator *entry, uint32_t ordinal, struct tpck_image_peer *out)
{
	const struct tpck_communicator_transfers *transfers = entry->transfers;
	uint32_t count = 0;

	for (uint32_t peer = 0; transfers && peer < entry->size; peer++)
		if (transfers[peer].sends || transfers[peer].receives) {
			if (out)
				out[count] = (struct tpck_image_peer){ordinal, peer, transfers[peer].sends,
								      transfers[peer].receives};
			count++;
		}
	return count;
}

/* By index, not by place in the table. */
static int by_index(const void *a, const void *b)
{
	const struct tpck_communicator *const *left = a, *const *right = b;

	return (*left)->index < (*right)->index ? -1 : (*left)->index > (*right)->index;
}

int tpck_communicators_take(struct tpck_communicators *all)
{
	const struct tpck_communicator *entries[TPCK_COMMUNICATORS_MAX];
	struct tpck_communicators found = {0};

	*all = found;
	if (!atomic_load(&used))
		return 0;
	tpck_spin_lock(&lock);
	for (uint32_t i = 0; i < used; i++)
		if (atomic_load(&table[i].handle)) {
			entries[found.communicators++] = &table[i];
			found.peers += peers_of(&table[i], 0, NULL);
		}
	qsort(entries, found.communicators, sizeof *entries, by_index);
	found.communicator = calloc(found.communicators + 1, sizeof *found.communicator);
	found.peer = calloc(found.peers + 1, sizeof *found.peer);
	if (found.communicator && found.peer) {
		found.peers = 0;
		for (uint32_t i = 0; i < found.communicators; i++) {
			const struct tpck_communicator *entry = entries[i];

			found.communicator[i] = (struct tpck_image_communicator){
				entry->id, entry->index, entry->size, entry->rank, entry->device, entry->collectives, entry->order,
			};
			found.peers += peers_of(entry, i, found.peer + found.peers);
		}
		*all = found;
	}
	tpck_spin_unlock(&lock);
	if (found.communicator && found.peer)
		return 0;
	free(found.communicator);
	free(found.peer);
	return -ENOMEM;
}

void tpck_communicators_free(struct tpck_communicators *all)
{
	free(all->communicator);
	free(all->peer);
	*all = (struct tpck_communicators){0};
}

const char *tpck_communicators_compare(const struct tpck_image_communicator *communicators, uint32_t count,
				       const struct tpck_image_peer *peers, uint32_t peer_count, char *buffer, size_t size)
{
	struct tpck_communicators now;
	const char *differs = NULL;

	if (tpck_communicators_take(&now)) {
		snprintf(buffer, size, "no memory to compare communicators");
		return buffer;
	}
	if (now.communicators != count) {
		snprintf(buffer, size, "there are %u communicators of NCCL in place of %u", now.communicators, count);
		differs = buffer;
	}
	for (uint32_t i = 0; i < count && !differs; i++) {
		const struct tpck_image_communicator *a = &communicators[i], *b = &now.communicator[i];

		if (a->index == b->index && a->size == b->size && a->rank == b->rank && a->collectives == b->collectives &&
		    a->order == b->order)
			continue;
		snprintf(buffer, size,
			 "communicator %u is rank %u of %u after %llu collectives, and was rank %u of %u after %llu%s", b->index,
			 b->rank, b->size, (unsigned long long)b->collectives, a->rank, a->size,
			 (unsigned long long)a->collectives,
			 a->collectives == b->collectives && a->order != b->order ? " other ones" : "");
		differs = buffer;
	}
	if (!differs && (now.peers != peer_count || (peer_count && memcmp(now.peer, peers, peer_count * sizeof *peers) != 0))) {
		snprintf(buffer, size, "what was sent and received between ranks differs");
		differs = buffer;
	}
	tpck_communicators_free(&now);
	return differs;
}

uint32_t tpck_communicators_pending(struct tpck_communicator *all[TPCK_COMMUNICATORS_MAX])
{
	uint32_t count = 0;

	tpck_spin_lock(&lock);
	for (uint32_t i = 0; i < used; i++)
		if (atomic_load(&table[i].handle) && atomic_load(&table[i].pending))
			all[count++] = &table[i];
	tpck_spin_unlock(&lock);
	return count;
}
