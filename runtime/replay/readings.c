/* SPDX-License-Identifier: Apache-2.0 */
/* Readings: bytes in the log, and back. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/replay/readings.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Of a thread: how many keys it compares, and bytes of their readings, of a single one, and of what is written at once. */
enum { KEYS = 128, ROOM = 128 << 10, COMPARED = 4096, NUMBER_BYTES = 5 };

struct key {
	uint32_t key, at, room;     /* its bytes begin there; two of `room`: of the last one in the log, and of one that waits */
	uint32_t count, waiting_count;
	uint32_t order, row;        /* readings at this count of operations */
	uint32_t repeats;           /* that are not in the log; with `waits` the last of them is another one */
	bool waits;
	bool compared;              /* the last one is there to compare with */
};

struct tpck_readings {
	tpck_spin lock;             /* of its own thread, and of a boundary */
	uint32_t thread;            /* whose these are: of another one the slot was before */
	uint32_t keys, used;
	struct key of[KEYS];
	unsigned char bytes[ROOM];
};

static uint32_t put(unsigned char *at, uint32_t number)
{
	uint32_t count = 0;

	for (; number >= 128; number >>= 7)
		at[count++] = (unsigned char)(number | 128);
	at[count++] = (unsigned char)number;
	return count;
}

/* What differs, in `out`, which has as much room as the bytes. Their count: not worth it. */
static uint32_t difference(const unsigned char *old, const unsigned char *new, uint32_t count, unsigned char *out)
{
	uint32_t at = 0, used = 0;

	while (at < count) {
		uint32_t from = at, end;

		while (at < count && old[at] == new[at])
			at++;
		if (at == count)
			break;
		/* Two that are the same between others cost more than they save. */
		for (end = at; end < count && (old[end] != new[end] || (end + 1 < count && old[end + 1] != new[end + 1])); end++)
			;
		if (used + 2 * NUMBER_BYTES + (end - at) >= count)
			return count;
		used += put(out + used, at - from);
		used += put(out + used, end - at);
		memcpy(out + used, new + at, end - at);
		used += end - at;
		at = end;
	}
	return used;
}

static TPCK_AT_START void write_one(const struct tpck_thread *thread, struct tpck_log *log, const struct tpck_record_reading *what, uint32_t order, int detail,
				    const void *bytes, uint32_t count)
{
	char *to = tpck_log_append(log, TPCK_RECORD_READING, (uint16_t)detail, thread->id, order, NULL, sizeof *what + count);

	if (!to)
		return;
	memcpy(to, what, sizeof *what);
	if (count)
		memcpy(to + sizeof *what, bytes, count);
}

static void write_changed(const struct tpck_thread *thread, struct tpck_log *log, struct tpck_readings *own, struct key *key, const void *bytes, uint32_t count)
{
	struct tpck_record_reading what = {key->key, key->repeats};
	unsigned char out[COMPARED];
	unsigned char *old = own->bytes + key->at;
	uint32_t differ = key->compared && key->count == count ? difference(old, bytes, count, out) : count;

	if (differ < count)
		write_one(thread, log, &what, key->order, 0, out, differ);
	else
		write_one(thread, log, &what, key->order, TPCK_READING_WHOLE, bytes, count);
	key->repeats = 0;
	memcpy(old, bytes, count);
	key->count = count;
	key->compared = true;
}

static void flush_key(const struct tpck_thread *thread, struct tpck_log *log, struct tpck_readings *own, struct key *key)
{
	struct tpck_record_reading what = {key->key, key->repeats};

	if (key->waits) {
		key->repeats--;
		key->waits = false;
		write_changed(thread, log, own, key, own->bytes + key->at + key->room, key->waiting_count);
	} else if (key->repeats) {
		write_one(thread, log, &what, key->order, TPCK_READING_NONE, NULL, 0);
		key->repeats = 0;
	}
}

/* NULL: there is no room for it. */
static struct key *find(struct tpck_readings *own, uint32_t name, uint32_t count)
{
	struct key *key = own->of, *end = own->of + own->keys;
	uint32_t room;

	while (key < end && key->key != name)
		key++;
	if (key < end)
		return count <= key->room ? key : NULL;
	/* A text may get longer; numbers do not. */
	room = count <= 256 ? (count + 7u) & ~7u : (count + count / 2 + 7u) & ~7u;
	room = room < COMPARED ? room : COMPARED;
	if (own->keys == KEYS || count > room || own->used + 2 * room > ROOM)
		return NULL;
	*key = (struct key){.key = name, .at = own->used, .room = room};
	own->used += 2 * room;
	own->keys++;
	return key;
}

static struct tpck_readings *own_of(struct tpck_thread *thread)
{
	/* Not by malloc(), inside of which the program may ask for its processor. */
	if (!thread->readings) {
		void *made = tpck_sys_mmap(NULL, sizeof *thread->readings, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (made != MAP_FAILED)
			thread->readings = made;
	}
	return thread->readings;
}

/* One that is compared with nothing: what there may be of its key goes first. */
static TPCK_AT_START void write_alone(const struct tpck_thread *thread, struct tpck_log *log, struct tpck_readings *own, uint32_t name, const void *bytes, uint32_t count)
{
	struct tpck_record_reading what = {name, 0};

	for (uint32_t i = 0; own && i < own->keys; i++)
		if (own->of[i].key == name) {
			flush_key(thread, log, own, &own->of[i]);
			own->of[i].compared = false;
		}
	write_one(thread, log, &what, (uint32_t)thread->operations, TPCK_READING_WHOLE, bytes, count);
}

static void note(struct tpck_thread *thread, struct tpck_log *log, struct tpck_readings *own, uint32_t name, const void *bytes, uint32_t count)
{
	struct key *key = find(own, name, count);

	if (!key) {
		write_alone(thread, log, own, name, bytes, count);
		return;
	}
	if (key->order != (uint32_t)thread->operations) {
		flush_key(thread, log, own, key);
		key->order = (uint32_t)thread->operations;
		key->row = 0;
	}
	key->row++;
	if (key->waits || key->row > TPCK_READINGS_IN_FULL) {
		/* Only the last one counts. */
		key->repeats++;
		key->waits = true;
		key->waiting_count = count;
		memcpy(own->bytes + key->at + key->room, bytes, count);
		atomic_store(&thread->readings_pending, true);
	} else if (key->compared && key->count == count && memcmp(own->bytes + key->at, bytes, count) == 0) {
		key->repeats++;
		atomic_store(&thread->readings_pending, true);
	} else {
		write_changed(thread, log, own, key, bytes, count);
	}
}

void tpck_readings_note(struct tpck_thread *thread, struct tpck_log *log, uint32_t key, const void *bytes, uint32_t count)
{
	struct tpck_readings *own = own_of(thread);

	if (!own) {
		write_alone(thread, log, NULL, key, bytes, count);
		return;
	}
	tpck_spin_lock(&own->lock);
	if (own->thread != thread->id)
		own->keys = own->used = 0;
	own->thread = thread->id;
	note(thread, log, own, key, bytes, count);
	tpck_spin_unlock(&own->lock);
}

TPCK_AT_START void tpck_readings_note_once(const struct tpck_thread *thread, struct tpck_log *log, uint32_t key, const void *bytes, uint32_t count)
{
	write_alone(thread, log, NULL, key, bytes, count);
}

bool tpck_readings_pending(const struct tpck_thread *thread)
{
	return atomic_load_explicit(&thread->readings_pending, memory_order_relaxed);
}

void tpck_readings_flush(struct tpck_thread *thread, struct tpck_log *log)
{
	struct tpck_readings *own = thread->readings;

	if (!own)
		return;
	tpck_spin_lock(&own->lock);
	atomic_store(&thread->readings_pending, false);
	for (uint32_t i = 0; i < own->keys; i++)
		flush_key(thread, log, own, &own->of[i]);
	tpck_spin_unlock(&own->lock);
}

/* ---- reading ------------------------------------------------------------------------------------------ */

static bool get(const unsigned char *bytes, uint32_t count, uint32_t *at, uint32_t *number)
{
	*number = 0;
	for (unsigned shift = 0; *at < count && shift < 32; shift += 7) {
		unsigned char byte = bytes[(*at)++];

		*number |= (uint32_t)(byte & 127) << shift;
		if (byte < 128)
			return true;
	}
	return false;
}

/* False: it is not as it is written, or there is no memory. */
static bool apply(struct tpck_readings_reader *reader)
{
	const unsigned char *from = (const unsigned char *)(reader->now + 1) + sizeof(struct tpck_record_reading);
	uint32_t count = reader->now->bytes - (uint32_t)sizeof(struct tpck_record_reading), at = 0, to = 0, same, differ;

	if (reader->now->detail == TPCK_READING_WHOLE) {
		if (count > reader->room) {
			void *grown = realloc(reader->bytes, count);

			if (!grown)
				return false;
			reader->bytes = grown;
			reader->room = count;
		}
		if (count)
			memcpy(reader->bytes, from, count);
		reader->count = count;
		return true;
	}
	while (at < count) {
		if (!get(from, count, &at, &same) || !get(from, count, &at, &differ) || same > reader->count - to ||
		    differ > reader->count - to - same || differ > count - at)
			return false;
		memcpy(reader->bytes + to + same, from + at, differ);
		to += same + differ;
		at += differ;
	}
	return true;
}

static bool enter(struct tpck_readings_reader *reader, const struct tpck_record *const *records, uint32_t count)
{
	while (!reader->in && reader->record < count) {
		const struct tpck_record *record = records[reader->record++];
		struct tpck_record_reading what;

		if (record->bytes < sizeof what)
			continue;
		memcpy(&what, record + 1, sizeof what);
		if (what.key != reader->key)
			continue;
		reader->in = true;
		reader->now = record;
		reader->order = record->order;
		reader->repeats = what.repeats;
		reader->more = record->detail != TPCK_READING_NONE;
	}
	return reader->in;
}

void tpck_readings_settle(struct tpck_readings_reader *reader, const struct tpck_record *const *records, uint32_t count)
{
	(void)enter(reader, records, count);
}

uint32_t tpck_readings_key(const struct tpck_record *record)
{
	struct tpck_record_reading what = {0};

	if (record->bytes >= sizeof what)
		memcpy(&what, record + 1, sizeof what);
	return what.key;
}

enum tpck_readings_next tpck_readings_next(struct tpck_readings_reader *reader, const struct tpck_record *const *records, uint32_t count,
					   uint32_t order, bool ahead)
{
	while (!reader->kept && enter(reader, records, count)) {
		bool here = reader->order == order, one = true;

		if ((int32_t)(reader->order - order) > 0)
			return TPCK_READINGS_LATER;
		if (here && reader->repeats) {
			reader->repeats--;
		} else if (reader->more) {
			reader->told = apply(reader);
			reader->more = false;
			reader->repeats = 0;
		} else {
			reader->repeats = 0;
			one = false;
		}
		reader->in = reader->repeats || reader->more;
		reader->kept = here && one && reader->told;
	}
	if (!reader->kept)
		return TPCK_READINGS_NONE;
	if (reader->order != order) {
		reader->kept = false;
		return tpck_readings_next(reader, records, count, order, ahead);
	}
	reader->kept = ahead;
	return TPCK_READINGS_NOW;
}
