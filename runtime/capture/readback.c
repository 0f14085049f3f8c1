/* SPDX-License-Identifier: Apache-2.0 */
/* Copies to the host that are still under way. */
#include "config.h"

#include "runtime/capture/readback.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/layout.h"
#include "runtime/track/streams.h"
#include "runtime/track/threads.h"

enum { ENTRIES = 8192, POOL_BYTES = 4 << 20, LARGE = 1 << 18 };
/* A program that asks events, and waits for no stream, never tells that its copies have arrived: events of ours do, one each so many copies, or so much
 * of the pool. They are asked once half of the room is taken. */
enum { MARKS = 32, MARK_EVERY = 512, MARK_BYTES = POOL_BYTES / 16, LARGE_MANY = 64 << 20 };

struct entry {
	void *payload;
	char *pinned;
	const void *host;
	size_t bytes;
	uint32_t stream;
	bool done, large, stashed;
	struct tpck_record_stashed where;
};

struct large {
	void *pinned;
	size_t bytes;
	struct large *next;
};

/* Behind copies on a stream. */
struct mark {
	tpck_event_handle event;
	uint64_t mark;
	uint32_t stream;
	enum { MARK_FREE, MARK_TAKEN, MARK_SET } state; /* TAKEN: a thread is at it */
};

static const struct tpck_device *device;
static tpck_spin lock;
static struct mark marks[MARKS] TPCK_LARGE;
static uint32_t unmarked, unmarked_bytes;
static uint64_t large_bytes;            /* of buffers of their own that are under way */
static struct entry entries[ENTRIES] TPCK_LARGE;
static uint64_t first;                  /* marks */
static _Atomic uint64_t end;            /* changed under the lock */
static uint64_t origin;                 /* the mark whose entry lies at the table's beginning */
/* Every copy under way writes within [reach_low, reach_high). Changed under the lock, and while there is one only to
 * more: who queued it can look without the lock. */
static _Atomic uintptr_t reach_low = UINTPTR_MAX, reach_high;
static char *pool;
static uint64_t pool_first, pool_end;   /* bytes ever taken and given back, wrapping in the pool */
static struct large *spare;             /* pinned buffers of their own, kept for the next time */

int tpck_readback_open(const struct tpck_device *with)
{
	void *host;
	uint64_t address;
	int result = with->host_alloc(&host, &address, POOL_BYTES);

	if (result)
		return result;
	pool = host;
	device = with;
	return 0;
}

static struct entry *entry_of(uint64_t mark)
{
	return &entries[(mark - origin) % ENTRIES];
}

static size_t rounded(size_t bytes)
{
	return (bytes + 63) / 64 * 64;
}

/* A piece of the pool, in order; NULL if it is full. Called with the lock held. */
static char *pool_take(size_t bytes)
{
	uint64_t at = pool_end % POOL_BYTES;
	size_t skip = at + rounded(bytes) > POOL_BYTES ? POOL_BYTES - at : 0;

	if (pool_end + skip + rounded(bytes) - pool_first > POOL_BYTES)
		return NULL;
	pool_end += skip;
	at = pool_end % POOL_BYTES;
	pool_end += rounded(bytes);
	return pool + at;
}

/* A free mark, or one that was never asked and has nothing under way in front of it any more; NULL. Called with the lock held. */
static struct mark *mark_any(void)
{
	for (int i = 0; i < MARKS; i++)
		if (marks[i].state == MARK_FREE || (marks[i].state == MARK_SET && marks[i].mark <= first)) {
			marks[i].state = MARK_TAKEN;
			return &marks[i];
		}
	return NULL;
}

/* The copy that comes now wants a mark behind it: a mark, or NULL. Called with the lock held. */
static struct mark *mark_take(size_t bytes)
{
	struct mark *mark;

	unmarked++;
	unmarked_bytes += bytes < MARK_BYTES ? (uint32_t)bytes : MARK_BYTES;
	if (unmarked < MARK_EVERY && unmarked_bytes < MARK_BYTES)
		return NULL;
	mark = mark_any();
	if (mark)
		unmarked = unmarked_bytes = 0;
	return mark;
}

static void mark_set(struct mark *mark, uint64_t behind, tpck_stream_handle handle, uint32_t stream)
{
	bool good = mark->event && !device->event_record(mark->event, handle);

	/* An event is of one context, and the stream may be another one's. */
	if (!good) {
		if (mark->event)
			device->event_destroy(mark->event);
		mark->event = NULL;
		good = !device->event_create(&mark->event, false) && !device->event_record(mark->event, handle);
	}
	tpck_spin_lock(&lock);
	mark->mark = behind;
	mark->stream = stream;
	mark->state = good ? MARK_SET : MARK_FREE;
	tpck_spin_unlock(&lock);
}

static bool room_is_short(void)
{
	return end - first > ENTRIES / 2 || pool_end - pool_first > POOL_BYTES / 2 || large_bytes > LARGE_MANY;
}

/* Sets a mark behind the copies of a stream that are under way. */
static void mark_stream(tpck_stream_handle handle, uint32_t stream)
{
	struct mark *mark;
	uint64_t behind;

	tpck_spin_lock(&lock);
	behind = end;
	mark = mark_any();
	tpck_spin_unlock(&lock);
	if (mark)
		mark_set(mark, behind, handle, stream);
}

/* Whether copies are under way on a stream, and no mark is behind the first of them. Called with the lock held. */
static bool unmarked_on(uint32_t stream)
{
	uint64_t at = first;

	while (at < end && (entry_of(at)->done || entry_of(at)->stream != stream))
		at++;
	if (at == end)
		return false;
	for (int i = 0; i < MARKS; i++)
		if (marks[i].state != MARK_FREE && (marks[i].state == MARK_TAKEN || (marks[i].stream == stream && marks[i].mark > at)))
			return false;
	return true;
}

/* The copy that keeps the room of all behind it may be the last one on its stream, of which no mark is told. */
static void mark_oldest(void)
{
	const struct tpck_stream *entry = NULL;
	uint32_t stream;
	bool ask;

	tpck_spin_lock(&lock);
	ask = first < end;
	stream = ask ? entry_of(first)->stream : 0;
	ask = ask && unmarked_on(stream);
	tpck_spin_unlock(&lock);
	if (ask)
		entry = tpck_stream_by_ordinal(stream);
	/* A thread's own default stream is known by that name to its thread alone. */
	if (entry && !atomic_load(&entry->owner) && !device->is_capturing(atomic_load(&entry->handle)))
		mark_stream(atomic_load(&entry->handle), stream);
}

void tpck_readback_stream_ends(tpck_stream_handle handle, uint32_t stream_ordinal)
{
	bool ask;

	if (!device || !atomic_load_explicit(&reach_high, memory_order_acquire))
		return;
	tpck_spin_lock(&lock);
	ask = unmarked_on(stream_ordinal);
	tpck_spin_unlock(&lock);
	if (ask)
		mark_stream(handle, stream_ordinal);
}

/* Asks the marks, if there is little room. */
static void marks_ask(void)
{
	for (int i = 0; i < MARKS; i++) {
		struct mark *mark = &marks[i];
		bool ask, passed;

		tpck_spin_lock(&lock);
		ask = mark->state == MARK_SET && room_is_short();
		if (ask)
			mark->state = MARK_TAKEN;
		tpck_spin_unlock(&lock);
		if (!ask)
			continue;
		passed = device->event_passed(mark->event);
		if (passed)
			tpck_readback_arrived_on(mark->stream, mark->mark);
		tpck_spin_lock(&lock);
		mark->state = passed ? MARK_FREE : MARK_SET;
		tpck_spin_unlock(&lock);
	}
}

static char *large_take(size_t bytes)
{
	void *host = NULL;
	uint64_t address;

	tpck_spin_lock(&lock);
	for (struct large **link = &spare; *link; link = &(*link)->next) {
		struct large *found = *link;

		if (found->bytes >= bytes && found->bytes / 2 <= bytes) {
			*link = found->next;
			host = found->pinned;
			free(found);
			break;
		}
	}
	tpck_spin_unlock(&lock);
	if (!host && device->host_alloc(&host, &address, bytes))
		return NULL;
	return host;
}

/* Called with the lock held. */
static void large_give(struct entry *entry)
{
	struct large *kept = malloc(sizeof *kept);

	if (!kept)
		return; /* 16 bytes could not be had: the buffer is lost rather than freed under a lock */
	*kept = (struct large){entry->pinned, entry->bytes, spare};
	spare = kept;
}

/* Called with the lock held. */
static void reach_add(const void *host, size_t bytes)
{
	uintptr_t low = (uintptr_t)host, high = low + bytes;

	if (low < atomic_load_explicit(&reach_low, memory_order_relaxed))
		atomic_store_explicit(&reach_low, low, memory_order_relaxed);
	if (high > atomic_load_explicit(&reach_high, memory_order_relaxed))
		atomic_store_explicit(&reach_high, high, memory_order_relaxed);
}

int tpck_readback_queue(void *payload, const struct tpck_record_stashed *stashed, uint64_t address, size_t bytes,
			tpck_stream_handle handle, uint32_t stream_ordinal, const void *host)
{
	bool is_large = bytes > LARGE;
	struct entry *entry;
	struct mark *mark;
	uint64_t behind;
	char *pinned;
	int result;

	if (!device)
		return -ENODEV;
	if (room_is_short()) {
		marks_ask();
		if (room_is_short())
			mark_oldest();
	}
	pinned = is_large ? large_take(bytes) : NULL;
	tpck_spin_lock(&lock);
	if (end - first == ENTRIES) {
		tpck_spin_unlock(&lock);
		return -ENOSPC;
	}
	if (!is_large)
		pinned = pool_take(bytes);
	if (!pinned) {
		tpck_spin_unlock(&lock);
		return -ENOSPC;
	}
	entry = entry_of(end);
	*entry = (struct entry){payload, pinned, host, bytes, stream_ordinal, .large = is_large, .stashed = stashed != NULL};
	if (stashed)
		entry->where = *stashed;
	behind = ++end;
	large_bytes += is_large ? bytes : 0;
	reach_add(host, bytes);
	mark = mark_take(bytes);
	tpck_spin_unlock(&lock);
	result = device->copy_from_device(pinned, address, bytes, handle);
	if (mark)
		mark_set(mark, behind, handle, stream_ordinal);
	if (result) {
		tpck_spin_lock(&lock);
		entry->payload = NULL;
		tpck_spin_unlock(&lock);
	}
	return result;
}

uint64_t tpck_readback_mark(void)
{
	return atomic_load_explicit(&end, memory_order_acquire);
}

static void arrived(uint64_t mark, bool any, uint32_t stream)
{
	/* None that the caller could know of is under way, and what was has been copied. */
	if (!atomic_load_explicit(&reach_high, memory_order_acquire))
		return;
	tpck_spin_lock(&lock);
	for (uint64_t i = first; i < mark && i < end; i++) {
		struct entry *entry = entry_of(i);

		if (entry->done || (!any && entry->stream != stream))
			continue;
		if (entry->payload)
			memcpy(entry->payload, entry->pinned, entry->bytes);
		if (entry->payload && entry->stashed)
			tpck_stash_came(&entry->where);
		entry->done = true;
	}
	while (first < end && entry_of(first)->done) {
		struct entry *entry = entry_of(first);

		if (entry->large) {
			large_bytes -= entry->bytes;
			large_give(entry);
		} else {
			uint64_t at = (uint64_t)(entry->pinned - pool);
			uint64_t from = pool_first % POOL_BYTES;

			pool_first += (at >= from ? at - from : POOL_BYTES - from + at) + rounded(entry->bytes);
		}
		first++;
	}
	if (first == end) {
		/* From the beginning again, which is still in the cache. */
		origin = end;
		pool_first = pool_end = 0;
		atomic_store_explicit(&reach_low, UINTPTR_MAX, memory_order_relaxed);
		atomic_store_explicit(&reach_high, 0, memory_order_release);
	}
	tpck_spin_unlock(&lock);
}

void tpck_readback_arrived(uint64_t mark)
{
	arrived(mark, true, 0);
}

void tpck_readback_arrived_on(uint32_t stream_ordinal, uint64_t mark)
{
	arrived(mark, false, stream_ordinal);
}

void tpck_readback_close(void)
{
	if (!device)
		return;
	if (!device->synchronize())
		tpck_readback_arrived(tpck_readback_mark());
	device = NULL;
}

bool tpck_readback_touches(const void *host, size_t bytes)
{
	const char *begin = host;
	bool touches = false;

	if ((uintptr_t)host >= atomic_load_explicit(&reach_high, memory_order_relaxed) ||
	    (uintptr_t)host + bytes <= atomic_load_explicit(&reach_low, memory_order_relaxed))
		return false;
	tpck_spin_lock(&lock);
	for (uint64_t i = first; i < end && !touches; i++) {
		const struct entry *entry = entry_of(i);
		const char *other = entry->host;

		touches = !entry->done && begin < other + entry->bytes && other < begin + bytes;
	}
	tpck_spin_unlock(&lock);
	return touches;
}
