/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readings in the log (doc/record.md, "The log"): what the machine told a thread of itself, as use of memory, load, counts of processors and texts of
 * /proc and /sys. A reading is some bytes under a key that says what was asked. Of one that is as the last one of its key was, only
 * the number is kept. Of more than TPCK_READINGS_IN_FULL of a key between two operations of the thread (a loop that waits for memory to
 * come free) the number and the last one are; those in between are told as the one before them.
 *
 * A record: struct tpck_record_reading; then, by detail, nothing (TPCK_READING_NONE), the bytes (TPCK_READING_WHOLE), or in what they differ
 * from the thread's last reading of that key, which has as many (0): how many bytes are the same, how many are not, and these, again and again.
 * Numbers are LEB128. record.order: the thread's device operations so far.
 */
#ifndef TPCK_RUNTIME_REPLAY_READINGS_H
#define TPCK_RUNTIME_REPLAY_READINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/replay/record_log.h"
#include "runtime/track/threads.h"

enum { TPCK_READINGS_IN_FULL = 256, TPCK_READING_WHOLE = 1, TPCK_READING_NONE };

struct tpck_record_reading {
	uint32_t key;
	uint32_t repeats; /* so many before this one that say what the one before them said */
};

/* The thread itself was told `bytes`. What does not fit into the memory for comparing, 128 KiB a thread, is written whole. */
void tpck_readings_note(struct tpck_thread *thread, struct tpck_log *log, uint32_t key, const void *bytes, uint32_t count);
/* The same under a key that comes once: nothing is kept of it. */
void tpck_readings_note_once(const struct tpck_thread *thread, struct tpck_log *log, uint32_t key, const void *bytes, uint32_t count);
/* Whether some are not in the log yet; puts them there, from any thread. */
bool tpck_readings_pending(const struct tpck_thread *thread);
void tpck_readings_flush(struct tpck_thread *thread, struct tpck_log *log);

/* Reads the readings of one key out of a thread's records, in their order. Begins zeroed but for the key. */
struct tpck_readings_reader {
	uint32_t key;
	uint32_t record;            /* the record that is next */
	bool in;                    /* it is in one, of which are not taken yet: */
	bool more;                  /* the reading itself */
	uint32_t repeats;           /* so many before it */
	uint32_t order;
	const struct tpck_record *now;
	unsigned char *bytes;       /* the last one that was told; malloc()ed */
	uint32_t count, room;
	bool told;                  /* there is one */
	bool kept;                  /* it was looked at ahead, and is the next one */
};

enum tpck_readings_next { TPCK_READINGS_NONE, TPCK_READINGS_LATER, TPCK_READINGS_NOW };

/* The next reading at this count of the thread's operations; those of earlier counts are left out. On NOW reader->bytes is it. On the others
 * it is the one before, if `told`. ahead: it is the next one again. */
enum tpck_readings_next tpck_readings_next(struct tpck_readings_reader *reader, const struct tpck_record *const *records, uint32_t count,
					   uint32_t order, bool ahead);

/* Goes on to the record that the reader takes from next: those before it are not looked at any more. */
void tpck_readings_settle(struct tpck_readings_reader *reader, const struct tpck_record *const *records, uint32_t count);
/* Of a record. */
uint32_t tpck_readings_key(const struct tpck_record *record);

#endif
