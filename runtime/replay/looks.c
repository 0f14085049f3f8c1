/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at clocks: bytes in the log, and back. */
#include "config.h"

#include "runtime/replay/looks.h"

#include <string.h>

enum { RUN = 8, GROWN_SHIFT = 4, GROWN_MORE = 15, MOST_BYTES = 1 + 5 + 5 + 10 };

static uint32_t put(unsigned char *at, uint64_t number)
{
	uint32_t count = 0;

	for (; number >= 128; number >>= 7)
		at[count++] = (unsigned char)(number | 128);
	at[count++] = (unsigned char)number;
	return count;
}

static uint64_t zigzag(uint64_t difference)
{
	return difference << 1 ^ (uint64_t)((int64_t)difference >> 63);
}

static void flush(struct tpck_thread *thread, struct tpck_log *log)
{
	struct tpck_looks *looks = &thread->looks;

	if (!looks->used)
		return;
	tpck_log_append(log, TPCK_RECORD_LOOKS, looks->begun ? 0 : TPCK_LOOKS_BEGIN, thread->id, looks->from, thread->look_bytes, looks->used);
	looks->begun = true;
	looks->used = 0;
}

/* run: 0, or how many looks end with this one. */
static void write_one(struct tpck_thread *thread, struct tpck_log *log, enum tpck_clock clock, uint64_t ns, uint32_t run, uint32_t order)
{
	struct tpck_looks *looks = &thread->looks;
	unsigned char *at;
	uint32_t grown;

	if (looks->used + MOST_BYTES > TPCK_LOOK_BYTES)
		flush(thread, log);
	if (!looks->used)
		looks->from = looks->order = order;
	at = thread->look_bytes + looks->used;
	grown = order - looks->order;
	*at = (unsigned char)((uint32_t)clock | (run ? RUN : 0) | (grown < GROWN_MORE ? grown : GROWN_MORE) << GROWN_SHIFT);
	at++;
	if (grown >= GROWN_MORE)
		at += put(at, grown);
	if (run)
		at += put(at, run);
	at += put(at, zigzag(ns - looks->last[clock]));
	looks->last[clock] = ns;
	looks->order = order;
	looks->used = (uint32_t)(at - thread->look_bytes);
}

static void end_runs(struct tpck_thread *thread, struct tpck_log *log)
{
	struct tpck_looks *looks = &thread->looks;
	uint32_t order = looks->order;

	for (unsigned i = 0; looks->runs && i < TPCK_CLOCKS; i++)
		if (looks->run[i]) {
			if (looks->run[i] > 1)
				write_one(thread, log, (enum tpck_clock)i, looks->run_before[i], looks->run[i] - 1, order);
			write_one(thread, log, (enum tpck_clock)i, looks->run_last[i], 0, order);
			looks->run[i] = 0;
		}
	looks->runs = false;
	memset(looks->row, 0, sizeof looks->row);
}

void tpck_looks_note(struct tpck_thread *thread, struct tpck_log *log, enum tpck_clock clock, uint64_t ns)
{
	struct tpck_looks *looks = &thread->looks;
	uint32_t order = (uint32_t)thread->operations;

	tpck_spin_lock(&looks->lock);
	if (order != looks->order)
		end_runs(thread, log);
	if (looks->row[clock] < TPCK_LOOKS_IN_FULL) {
		write_one(thread, log, clock, ns, 0, order);
		looks->row[clock]++;
	} else {
		looks->runs = true;
		looks->run[clock]++;
		looks->run_before[clock] = looks->run_last[clock];
		looks->run_last[clock] = ns;
	}
	tpck_spin_unlock(&looks->lock);
}

bool tpck_looks_pending(const struct tpck_thread *thread)
{
	return thread->looks.used || thread->looks.runs;
}

void tpck_looks_flush(struct tpck_thread *thread, struct tpck_log *log)
{
	tpck_spin_lock(&thread->looks.lock);
	if (thread->looks.runs)
		end_runs(thread, log);
	flush(thread, log);
	tpck_spin_unlock(&thread->looks.lock);
}

/* ---- reading ------------------------------------------------------------------------------------------ */

static bool get(const struct tpck_record *record, uint32_t *at, uint64_t *number)
{
	const unsigned char *bytes = (const void *)(record + 1);

	*number = 0;
	for (unsigned shift = 0; *at < record->bytes && shift < 64; shift += 7) {
		unsigned char byte = bytes[(*at)++];

		*number |= (uint64_t)(byte & 127) << shift;
		if (byte < 128)
			return true;
	}
	return false;
}

static void tell(struct tpck_looks_reader *reader)
{
	reader->run_done++;
	reader->there_ns = reader->run_done == reader->run ? reader->run_to
							   : reader->run_from + (uint64_t)((__int128)(int64_t)(reader->run_to - reader->run_from) * reader->run_done / reader->run);
	reader->there_order = reader->order;
	reader->there = true;
}

bool tpck_looks_next(struct tpck_looks_reader *reader, enum tpck_clock clock, const struct tpck_record *const *records, uint32_t count)
{
	if (reader->there)
		return true;
	if (reader->run_done < reader->run) {
		tell(reader);
		return true;
	}
	while (reader->record < count) {
		const struct tpck_record *record = records[reader->record];
		uint64_t grown, run = 1, difference;
		unsigned char head;

		if (!reader->at) {
			reader->order = record->order;
			if (record->detail == TPCK_LOOKS_BEGIN)
				reader->last = 0;
		}
		if (reader->at >= record->bytes) {
			reader->record++;
			reader->at = 0;
			continue;
		}
		head = ((const unsigned char *)(record + 1))[reader->at++];
		grown = head >> GROWN_SHIFT;
		if ((grown == GROWN_MORE && !get(record, &reader->at, &grown)) || (head & RUN && !get(record, &reader->at, &run)) ||
		    !get(record, &reader->at, &difference)) {
			reader->at = record->bytes; /* not as it is written: the rest cannot be read */
			continue;
		}
		reader->order += (uint32_t)grown;
		if ((head & 7) != (int)clock || !run || run > UINT32_MAX)
			continue;
		reader->run_from = reader->last;
		reader->last += difference >> 1 ^ -(difference & 1);
		reader->run_to = reader->last;
		reader->run = (uint32_t)run;
		reader->run_done = 0;
		tell(reader);
		return true;
	}
	return false;
}
