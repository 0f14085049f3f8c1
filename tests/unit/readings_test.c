/* SPDX-License-Identifier: Apache-2.0 */
/* Readings come out of the log as they went in: at random, by several threads, of many keys and sizes, across boundaries and resumes; loops that ask again and
 * again cost little, and so do long texts of which little changes. */
#include "config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/replay/readings.h"
#include "tests/unit/store_tap.h"

enum { THREADS = 3, ASKED = 60000, NAMES = 160, LONGEST = 6000, RECORDS = 80000 };

static struct asked {
	uint32_t thread, order, key, count, state;
} asked[ASKED];
static const struct tpck_record *records[THREADS][RECORDS];
static uint32_t counts[THREADS];

static uint64_t chance(void)
{
	static uint64_t state = 0x9e3779b97f4a7c15u;

	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

/* A text that follows from its count and state: little of it changes with the state. */
static void text_of(uint32_t key, uint32_t count, uint32_t state, unsigned char *text)
{
	for (uint32_t i = 0; i < count; i++)
		text[i] = (unsigned char)(i % 97 == key % 97 ? state >> (i % 24) : i * 7 + key);
}

static void read_all(const char *folder, struct tpck_log *log)
{
	struct tpck_log_reader *reader;
	const struct tpck_record *record;

	memset(counts, 0, sizeof counts);
	if (tpck_log_open(&reader, folder, tpck_log_end(log)))
		return;
	while ((record = tpck_log_next(reader)))
		if (record->type == TPCK_RECORD_READING && record->thread <= THREADS)
			records[record->thread - 1][counts[record->thread - 1]++] = record;
}

/* The first answer that is not as it was; ASKED: none. */
static uint32_t differs(void)
{
	static struct tpck_readings_reader readers[THREADS][NAMES];
	static unsigned char text[LONGEST];

	for (uint32_t i = 0; i < ASKED; i++) {
		const struct asked *one = &asked[i];
		struct tpck_readings_reader *reader = &readers[one->thread][one->key];
		bool ahead = i % 7 == 0;

		reader->key = one->key + 1000;
		text_of(one->key, one->count, one->state, text);
		for (int again = 0; again <= ahead; again++)
			if (tpck_readings_next(reader, records[one->thread], counts[one->thread], one->order, ahead && !again) != TPCK_READINGS_NOW ||
			    reader->count != one->count || memcmp(reader->bytes, text, one->count) != 0)
				return i;
	}
	return ASKED;
}

int main(void)
{
	static struct tpck_thread threads[THREADS] = {{.id = 1}, {.id = 2}, {.id = 3}}, waits = {.id = 1};
	static uint32_t states[NAMES], lengths[NAMES];
	static unsigned char text[LONGEST];
	struct tpck_readings_reader reader = {.key = 5}, other = {.key = 6};
	char *folder = tap_folder("/tmp"), path[256], note[80];
	struct tpck_log *log = tpck_log_new(1 << 30);
	uint64_t before, value = 0, last = 0;
	uint32_t same = 0, unlike = 0;

	if (!log || tpck_log_attach(log, folder, 1, NULL))
		return 99;
	for (uint32_t i = 0; i < NAMES; i++)
		lengths[i] = i % 3 ? (uint32_t)(chance() % 300) : (uint32_t)(chance() % LONGEST);
	for (uint32_t i = 0; i < ASKED; i++) {
		uint32_t which = (uint32_t)(chance() % THREADS), key = (uint32_t)(chance() % (chance() % 4 ? 10 : NAMES));
		struct tpck_thread *thread = &threads[which];

		thread->operations += chance() % 100 < 40 ? 0 : chance() % 1000 ? chance() % 5 : chance() % 1000000;
		if (chance() % 3)
			states[key] += (uint32_t)(chance() % 100);
		if (chance() % 50 == 0)
			lengths[key] = (uint32_t)(chance() % (key % 3 ? 300 : LONGEST));
		text_of(key, lengths[key], states[key], text);
		tpck_readings_note(thread, log, key + 1000, text, lengths[key]);
		asked[i] = (struct asked){which, (uint32_t)thread->operations, key, lengths[key], states[key]};
		if (chance() % 300 == 0)
			tpck_readings_flush(&threads[chance() % THREADS], log);
		/* A thread of that name in another process: it knows nothing of what is in the log. */
		if (chance() % 3000 == 0) {
			tpck_readings_flush(thread, log);
			thread->readings = NULL;
		}
	}
	for (uint32_t i = 0; i < THREADS; i++) {
		tpck_readings_flush(&threads[i], log);
		tap_ok(!tpck_readings_pending(&threads[i]), "nothing is left", "");
	}
	read_all(folder, log);
	tap_ok(differs() == ASKED, "each answer, at its place", "");

	/* A text of 1500 bytes of which a few change, as of /proc/meminfo. */
	waits.operations = 1;
	before = tpck_log_bytes(log);
	memset(text, 'x', 1500);
	for (uint32_t i = 0; i < 1000; i++, waits.operations++) {
		for (uint32_t k = 0; k < 10; k++)
			snprintf((char *)text + 100 * k, 9, "%08u", 70000000 + i * (k + 1));
		tpck_readings_note(&waits, log, 4, text, 1500);
	}
	snprintf(note, sizeof note, "%.1f bytes an answer", (double)(tpck_log_bytes(log) - before) / 1000);
	tap_ok(tpck_log_bytes(log) - before < 120 * 1000, "of a long text what changes is kept", note);

	/* A loop that waits: a million answers, and what it did by the last one. */
	before = tpck_log_bytes(log);
	waits.operations = 5000;
	for (uint32_t i = 0; i < 1000000; i++) {
		last = 1000000000 + i * 40ull + (i == 999999 ? 50000000 : 0);
		tpck_readings_note(&waits, log, 5, &last, sizeof last);
		value = 7 + (i == 999999);
		tpck_readings_note(&waits, log, 6, &value, sizeof value);
	}
	tpck_readings_flush(&waits, log);
	snprintf(note, sizeof note, "%llu bytes", (unsigned long long)(tpck_log_bytes(log) - before));
	tap_ok(tpck_log_bytes(log) - before < 16384, "a loop that waits costs little", note);
	read_all(folder, log);
	for (uint32_t i = 0; i < 1000000; i++) {
		enum tpck_readings_next next = tpck_readings_next(&reader, records[0], counts[0], 5000, false);

		unlike += next != TPCK_READINGS_NOW || reader.count != sizeof last ||
			  (memcmp(reader.bytes, &last, sizeof last) == 0) != (i == 999999);
		next = tpck_readings_next(&other, records[0], counts[0], 5000, false);
		same += next == TPCK_READINGS_NOW && *other.bytes == 7 + (i == 999999);
	}
	tap_ok(!unlike && same == 1000000, "it ends with the same answer, and none before", "");
	tap_ok(tpck_readings_next(&reader, records[0], counts[0], 5000, false) == TPCK_READINGS_NONE && reader.told, "then there is none", "");
	snprintf(path, sizeof path, "rm -rf %s", folder);
	tap_ok(system(path) == 0, "removed", "");
	return tap_done();
}
