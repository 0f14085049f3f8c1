/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fences: what the program's streams wait for, on the device, while a snapshot is copied (doc/snapshots.md, "Fences"). A fence names only copies that have been
 * submitted: a stream waits for an event that lies behind them on the copier's stream. So nothing that a stream waits for depends on what a thread
 * does later, and a call of the driver's that blocks (vendor documentation, driver API, synchronization behavior: any may) cannot hang the program.
 *
 * A program's thread that comes before the copies are submitted waits for that, and for that alone. If nothing more is submitted for a while it gives
 * the snapshot up, and goes on.
 */
#ifndef TPCK_RUNTIME_CAPTURE_FENCES_H
#define TPCK_RUNTIME_CAPTURE_FENCES_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/track/device.h"
#include "runtime/track/streams.h"

/* So many snapshots or probes at a time have one. Each has two parts: what must be copied before the next iteration begins, and all of it. */
enum { TPCK_FENCES = 6 };
enum tpck_part { TPCK_PART_EARLY, TPCK_PART_ALL, TPCK_PARTS };

/* The fences whose early part, and whose whole, streams wait for now. */
struct tpck_fences {
	_Atomic uint32_t early, all;
};
extern struct tpck_fences tpck_fences __attribute__((visibility("hidden")));

/* What waiting for submissions has cost the program's threads by now. */
struct tpck_submit_waits {
	_Atomic uint64_t ns_max, ns_sum, count;
	_Atomic uint64_t refused; /* streams that the device did not let wait */
};
extern struct tpck_submit_waits tpck_submit_waits __attribute__((visibility("hidden")));

/* Before anything else. 0 or -errno. */
int tpck_fences_open(const struct tpck_device *device);
/* The context ends: no stream waits any more. */
void tpck_fences_close(void);

/* ---- by the application's thread --------------------------------------------------------------------- */

/* Gate closed, at most TPCK_FENCES at a time: a new fence, whose number is returned. Streams wait for its early part from here on, with `whole` for all
 * of it. */
uint32_t tpck_fences_begin(bool whole);
/* From here on streams wait for the whole of the last fence. */
void tpck_fences_all(void);
void tpck_fence_put(struct tpck_stream *stream, tpck_stream_handle handle);

/* Puts the fence into the stream unless the stream has it. Called before anything is queued on it; never on a capturing stream. */
static inline void tpck_fence(struct tpck_stream *stream, tpck_stream_handle handle)
{
	if (__builtin_expect(atomic_load_explicit(&stream->fence, memory_order_relaxed) !=
					     atomic_load_explicit(&tpck_fences.early, memory_order_acquire) ||
				     atomic_load_explicit(&stream->fence_all, memory_order_relaxed) !=
				     atomic_load_explicit(&tpck_fences.all, memory_order_acquire), 0))
		tpck_fence_put(stream, handle);
}

/* ---- by the copier's threads ------------------------------------------------------------------------- */

/* Something was submitted: whoever waits for more goes on waiting. */
void tpck_fences_progress(void);
/* Everything of that part is on the stream. 0; -ECANCELED: the program has given it up; or another -errno. */
int tpck_fences_submitted(uint32_t fence, enum tpck_part part, tpck_stream_handle stream);
/* Waits until the device has passed it. 0 or -errno. */
int tpck_fences_pass(uint32_t fence, enum tpck_part part);
/* What the device took from an event to the end of that part, both passed, in nanoseconds; 0: it does not say. */
uint64_t tpck_fences_took(uint32_t fence, enum tpck_part part, tpck_event_handle since);
/* Whether the device has passed that part by now. */
bool tpck_fences_over(uint32_t fence, enum tpck_part part);
/* False once the program has given it up. */
bool tpck_fences_wanted(uint32_t fence);
/* Whatever happened, nobody waits for what is not submitted by now. */
void tpck_fences_settle(uint32_t fence);

#endif
