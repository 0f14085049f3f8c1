/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at clocks come out of the log as they went in: at random, by several threads, across boundaries and resumes; loops that wait cost little. */
#include "config.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/replay/looks.h"
#include "tests/unit/store_tap.h"

enum { THREADS = 3, LOOKS = 60000, RECORDS = 60000 };

static struct look {
	uint32_t thread, order;
	enum tpck_clock clock;
	uint64_t ns;
} looks[LOOKS];
static const struct tpck_record *records[THREADS][RECORDS];
static uint32_t counts[THREADS];

static uint64_t chance(void)
{
	static uint64_t state = 0x9e3779b97f4a7c15u;

	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

/* Sets all records of the threads 1 to THREADS. Bytes of what they hold. */
static uint64_t read_all(const char *folder, struct tpck_log *log)
{
	struct tpck_log_reader *reader;
	const struct tpck_record *record;
	uint64_t bytes = 0;

	memset(counts, 0, sizeof counts);
	if (tpck_log_open(&reader, folder, tpck_log_end(log)))
		return 0;
	while ((record = tpck_log_next(reader)))
		if (record->type == TPCK_RECORD_LOOKS && record->thread <= THREADS) {
			records[record->thread - 1][counts[record->thread - 1]++] = record;
			bytes += sizeof *record + record->bytes;
		}
	return bytes;
}

/* The first look that is not as it was; LOOKS: none. */
static uint32_t differs(void)
{
	static struct tpck_looks_reader readers[THREADS][TPCK_CLOCKS];

	for (uint32_t i = 0; i < LOOKS; i++) {
		uint32_t thread = looks[i].thread;
		struct tpck_looks_reader *reader = &readers[thread][looks[i].clock];

		if (!tpck_looks_next(reader, looks[i].clock, records[thread], counts[thread]) || reader->there_ns != looks[i].ns ||
		    reader->there_order != looks[i].order)
			return i;
		reader->there = false;
	}
	for (uint32_t i = 0; i < THREADS * TPCK_CLOCKS; i++)
		if (tpck_looks_next(&readers[i / TPCK_CLOCKS][i % TPCK_CLOCKS], i % TPCK_CLOCKS, records[i / TPCK_CLOCKS], counts[i / TPCK_CLOCKS]))
			return i;
	return LOOKS;
}

int main(void)
{
	static struct tpck_thread threads[THREADS] = {{.id = 1}, {.id = 2}, {.id = 3}}, waits = {.id = 1};
	struct tpck_looks_reader reader = {0};
	char *folder = tap_folder("/tmp"), path[256], text[64];
	struct tpck_log *log = tpck_log_new(1 << 28);
	uint64_t clocks[TPCK_CLOCKS] = {0}, bytes, ns, last = 0;
	uint32_t seen = 0, grows = 0;

	if (!log || tpck_log_attach(log, folder, 1, NULL))
		return 99;
	for (uint32_t i = 0; i < LOOKS; i++) {
		uint32_t which = (uint32_t)(chance() % THREADS), many = (uint32_t)(chance() % 50);
		struct tpck_thread *thread = &threads[which];
		struct look *look = &looks[i];

		look->clock = (enum tpck_clock)(chance() % TPCK_CLOCKS);
		thread->operations += many < 30 ? 0 : many < 48 ? many - 30 : chance() % 5000000000u;
		/* Now and then one is set back, or far ahead. */
		clocks[look->clock] += chance() % 1000 ? chance() % 3000000 : chance();
		look->thread = which;
		look->order = (uint32_t)thread->operations;
		look->ns = clocks[look->clock];
		tpck_looks_note(thread, log, look->clock, look->ns);
		if (chance() % 300 == 0)
			tpck_looks_flush(&threads[chance() % THREADS], log);
		/* A thread of that name in another process: it knows nothing of what is in the log. */
		if (chance() % 3000 == 0) {
			tpck_looks_flush(thread, log);
			memset(&thread->looks, 0, sizeof thread->looks);
		}
	}
	for (uint32_t i = 0; i < THREADS; i++) {
		tpck_looks_flush(&threads[i], log);
		tap_ok(!tpck_looks_pending(&threads[i]), "nothing is left", "");
	}
	bytes = read_all(folder, log);
	tap_ok(bytes && differs() == LOOKS, "each look, at its place", "");
	snprintf(text, sizeof text, "%.1f bytes a look", (double)bytes / LOOKS);
	tap_ok(bytes < 9 * LOOKS, "a look is few bytes", text);

	/* A loop that waits: a million looks, and what it did by the last one. */
	bytes = tpck_log_bytes(log);
	waits.operations = 5;
	for (uint32_t i = 0; i < 1000000; i++) {
		/* The loop did not run for long before its last look. */
		last = 1000000000 + i * 40ull + (i == 999999 ? 50000000 : 0);
		tpck_looks_note(&waits, log, TPCK_CLOCK_MONOTONIC, last);
		tpck_looks_note(&waits, log, TPCK_CLOCK_REAL, 7 * last);
	}
	waits.operations = 6;
	tpck_looks_note(&waits, log, TPCK_CLOCK_MONOTONIC, last + 500);
	tpck_looks_flush(&waits, log);
	bytes = tpck_log_bytes(log) - bytes;
	snprintf(text, sizeof text, "%llu bytes", (unsigned long long)bytes);
	tap_ok(bytes < 64 << 10, "a loop that waits costs little", text);
	read_all(folder, log);
	/* The thread's own records are the last ones. */
	while (seen < counts[0] && !(records[0][seen]->order == 5 && records[0][seen]->detail == TPCK_LOOKS_BEGIN))
		seen++;
	reader.record = seen;
	ns = seen = 0;
	while (tpck_looks_next(&reader, TPCK_CLOCK_MONOTONIC, records[0], counts[0]) && reader.there_order == 5) {
		grows += reader.there_ns >= ns && (seen == 999999 ? reader.there_ns == last : reader.there_ns < 1000000000 + 1000000 * 40ull);
		ns = reader.there_ns;
		seen++;
		reader.there = false;
	}
	tap_ok(seen == 1000000 && grows == seen && ns == last, "as often as it looked, never back, and at the end it is what it was", "");
	tap_ok(reader.there_ns == last + 500 && reader.there_order == 6, "what comes behind it", "");

	/* What is damaged ends, and nothing is read behind it. */
	{
		struct {
			struct tpck_record head;
			unsigned char bytes[16];
		} bad = {{.bytes = 3, .type = TPCK_RECORD_LOOKS, .detail = TPCK_LOOKS_BEGIN}, {0xf2, 0xff, 0xff, 0x01, 0x02, 0x03}};
		const struct tpck_record *one = &bad.head;
		struct tpck_looks_reader from = {0};

		tap_ok(!tpck_looks_next(&from, TPCK_CLOCK_MONOTONIC, &one, 1), "a number without an end", "");
	}
	for (unsigned i = 0; i < 40; i++) {
		snprintf(path, sizeof path, "%s/log.%06u", folder, i);
		unlink(path);
	}
	rmdir(folder);
	return tap_done();
}
