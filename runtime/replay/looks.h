/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks at clocks in the log (doc/record.md, "Clocks, chance and queries"). A program may look at them millions of times, so each look is a few bytes: at which count
 * of the thread's operations it was, and how many nanoseconds after the last look at that clock. They are gathered by thread
 * and come into the log as one record when there are many, or at a boundary. Of more than TPCK_LOOKS_IN_FULL looks at a clock between
 * two operations (a loop that waits for a time to come) the number and the last two are kept; those in between are told as evenly spread.
 *
 * Bytes of a record: for each look one byte, the clock (bits 0 to 2), whether it is a run (bit 3) and by how much the count of operations
 * grew (bits 4 to 7; 15: a number follows); then of a run the number of its looks; then the difference in nanoseconds to the
 * last look at that clock, of a run that of its last look. Numbers are LEB128, differences zigzag. record.order is the count of
 * operations at the record's beginning; detail TPCK_LOOKS_BEGIN: all clocks begin at 0 again, else where the last record left them.
 */
#ifndef TPCK_RUNTIME_REPLAY_LOOKS_H
#define TPCK_RUNTIME_REPLAY_LOOKS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/clock.h"
#include "runtime/replay/record_log.h"
#include "runtime/track/threads.h"

enum { TPCK_LOOKS_IN_FULL = 4096, TPCK_LOOKS_BEGIN = 1 };

/* The thread itself has looked: the clock stood at ns. */
void tpck_looks_note(struct tpck_thread *thread, struct tpck_log *log, enum tpck_clock clock, uint64_t ns);
/* Whether some are not in the log yet; puts them there, from any thread. */
bool tpck_looks_pending(const struct tpck_thread *thread);
void tpck_looks_flush(struct tpck_thread *thread, struct tpck_log *log);

/* Reads the looks at one clock out of a thread's records, in their order. Begins zeroed. */
struct tpck_looks_reader {
	uint32_t record, at;    /* where it is: the record, the byte in it */
	uint32_t order;         /* the count of operations there */
	uint64_t last;          /* ns */
	uint32_t run, run_done; /* looks of the run that it is in, and how many of them were read */
	uint64_t run_from, run_to;
	bool there;             /* a look was read and not taken yet: */
	uint32_t there_order;
	uint64_t there_ns;
};

/* The next look, which stays until it is taken: sets there_*. False: there is none. */
bool tpck_looks_next(struct tpck_looks_reader *reader, enum tpck_clock clock, const struct tpck_record *const *records, uint32_t count);

#endif
