/* SPDX-License-Identifier: Apache-2.0 */
/* What an allocator within the program has handed out: a hash by address. */
#include "config.h"

#include "runtime/base/lock_order.h"
#include "runtime/track/handed.h"

#include <pthread.h>
#include <stdlib.h>

enum { BITS_FIRST = 12, BITS_MOST = 19 };

struct entry {
	uint64_t address; /* 0: free */
	uint64_t bytes, order;
	bool out;
};
static struct entry *entries;
static unsigned bits;
static uint32_t used, out_count;
static uint64_t digest;
static bool distrusted; /* what came back may be read all the same */
static bool lost;       /* nothing is known any more */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t mixed(uint64_t a, uint64_t b)
{
	uint64_t x = (a ^ b * 0x9e3779b97f4a7c15ull) * 0xff51afd7ed558ccdull;

	return (x ^ x >> 32) * 0xc4ceb9fe1a85ec53ull;
}

static struct entry *slot_of(struct entry *table, unsigned table_bits, uint64_t address)
{
	uint32_t mask = (1u << table_bits) - 1, at = (uint32_t)(mixed(address, 1) >> 40) & mask;

	while (table[at].address && table[at].address != address)
		at = (at + 1) & mask;
	return &table[at];
}

/* A table for what is out, and for what came back where that is kept. False: it cannot be had. */
static bool table_make(bool keep_backs)
{
	uint32_t count = 0, kept = keep_backs ? used : out_count;
	unsigned wanted = BITS_FIRST;
	struct entry *made;

	while (1u << wanted < 4 * kept && wanted <= BITS_MOST)
		wanted++;
	made = wanted > BITS_MOST ? NULL : calloc((size_t)1 << wanted, sizeof *made);
	if (!made)
		return false;
	for (uint32_t i = 0; entries && i < 1u << bits; i++)
		if (entries[i].address && (entries[i].out || keep_backs)) {
			*slot_of(made, wanted, entries[i].address) = entries[i];
			count++;
		}
	free(entries);
	entries = made;
	bits = wanted;
	used = count;
	return true;
}

static void lose(void)
{
	lost = true;
	free(entries);
	entries = NULL;
	used = out_count = 0;
	digest = 0;
}

void tpck_handed_out(uint64_t address, uint64_t bytes, uint64_t order)
{
	struct entry *entry;

	if (!address || !bytes)
		return;
	pthread_mutex_lock(&lock);
	/* What came back may be forgotten: of a block of which nothing is known all is needed. */
	if (!lost && (!entries || 2 * used >= 1u << bits) && !table_make(!distrusted) && !table_make(false))
		lose();
	if (!lost) {
		entry = slot_of(entries, bits, address);
		used += !entry->address;
		if (entry->address && entry->out)
			digest -= mixed(address, entry->bytes);
		else
			out_count++;
		*entry = (struct entry){address, bytes, order, true};
		digest += mixed(address, bytes);
	}
	pthread_mutex_unlock(&lock);
}

void tpck_handed_back(uint64_t address)
{
	struct entry *entry;

	pthread_mutex_lock(&lock);
	entry = entries && address ? slot_of(entries, bits, address) : NULL;
	if (entry && entry->address && entry->out) {
		entry->out = false;
		out_count--;
		digest -= mixed(address, entry->bytes);
	}
	pthread_mutex_unlock(&lock);
}

void tpck_handed_distrust(void)
{
	if (__atomic_load_n(&distrusted, __ATOMIC_RELAXED))
		return;
	pthread_mutex_lock(&lock);
	distrusted = true;
	pthread_mutex_unlock(&lock);
}

uint64_t tpck_handed_digest(void)
{
	uint64_t now;

	pthread_mutex_lock(&lock);
	now = !entries || distrusted ? 0 : digest ? digest : 1;
	pthread_mutex_unlock(&lock);
	return now;
}

static int by_begin(const void *a, const void *b)
{
	const struct tpck_handed_part *x = a, *y = b;

	return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* The lock is held. */
static struct tpck_handed *list(void)
{
	struct tpck_handed *found = malloc(sizeof *found + used * sizeof *found->out);

	if (!found)
		return NULL;
	*found = (struct tpck_handed){.digest = digest ? digest : 1, .out = (struct tpck_handed_part *)(found + 1)};
	found->back = found->out + out_count;
	for (uint32_t i = 0; i < 1u << bits; i++) {
		const struct entry *e = &entries[i];
		struct tpck_handed_part part = {e->address, e->address + e->bytes, e->order};

		if (e->address && e->out)
			found->out[found->out_count++] = part;
		else if (e->address)
			found->back[found->back_count++] = part;
	}
	return found;
}

static struct tpck_handed *sorted(struct tpck_handed *found)
{
	if (found) {
		qsort(found->out, found->out_count, sizeof *found->out, by_begin);
		qsort(found->back, found->back_count, sizeof *found->back, by_begin);
	}
	return found;
}

struct tpck_handed *tpck_handed_look(bool take)
{
	struct tpck_handed *found;

	pthread_mutex_lock(&lock);
	found = entries && !distrusted ? list() : NULL;
	if (found && take && found->back_count)
		(void)table_make(false);
	pthread_mutex_unlock(&lock);
	return sorted(found);
}

struct tpck_handed *tpck_handed_look_at_out(void)
{
	struct tpck_handed *found;

	pthread_mutex_lock(&lock);
	found = entries && out_count ? list() : NULL;
	pthread_mutex_unlock(&lock);
	return sorted(found);
}

void tpck_handed_free(struct tpck_handed *handed)
{
	free(handed);
}

uint32_t tpck_handed_from(const struct tpck_handed_part *parts, uint32_t count, uint64_t address)
{
	uint32_t low = 0, high = count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (parts[middle].end > address)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}
