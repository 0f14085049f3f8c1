/* SPDX-License-Identifier: Apache-2.0 */
/* Streams by handle: an ordinal that is the same in every run, and what the engine keeps of each. */
#ifndef TPCK_RUNTIME_TRACK_STREAMS_H
#define TPCK_RUNTIME_TRACK_STREAMS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/track/device.h"
#include "runtime/track/threads.h"

enum { TPCK_STREAMS_MAX = 1024 };

struct tpck_stream {
	_Atomic tpck_stream_handle handle;
	_Atomic uint32_t owner;    /* per-thread default stream: its thread's identity; else 0 */
	uint32_t ordinal;          /* never TPCK_STREAM_NONE or TPCK_STREAM_MANY */
	_Atomic uint32_t fence;    /* last fence that was put in: the early part of a capture */
	_Atomic uint32_t fence_all; /* the whole of a capture */
	_Atomic uint32_t dirty;    /* something was queued since the last boundary */
	_Atomic uint32_t alive;
	tpck_event_handle event;   /* of the boundary; made at first use */
};

#define TPCK_STREAM_LEGACY ((tpck_stream_handle)1)
#define TPCK_STREAM_PER_THREAD ((tpck_stream_handle)2)

/* Whether an entry is that stream's. Entries are never freed: one that was may be asked too. */
static inline bool tpck_stream_is(const struct tpck_stream *stream, tpck_stream_handle handle, uint32_t owner)
{
	return atomic_load_explicit(&stream->alive, memory_order_acquire) &&
	       atomic_load_explicit(&stream->handle, memory_order_relaxed) == handle &&
	       atomic_load_explicit(&stream->owner, memory_order_relaxed) == owner;
}

/* Private: goes through the table, and notes the entry in the thread. */
struct tpck_stream *tpck_stream_search(tpck_stream_handle handle, uint32_t owner, struct tpck_thread *thread);

/* The stream of a handle as the given thread means it: NULL and the driver's legacy handle are one,
 * the per-thread handle is one a thread. Unknown ones are entered. NULL if the table is full. */
static inline struct tpck_stream *tpck_stream_of(tpck_stream_handle handle, struct tpck_thread *thread)
{
	uint32_t owner = handle == TPCK_STREAM_PER_THREAD ? thread->id : 0;

	if (!handle)
		handle = TPCK_STREAM_LEGACY;
	return __builtin_expect(thread->stream && tpck_stream_is(thread->stream, handle, owner), 1)
		       ? thread->stream
		       : tpck_stream_search(handle, owner, thread);
}

/* A stream that the application created; its ordinal follows from the creating thread. */
void tpck_stream_created(tpck_stream_handle handle, struct tpck_thread *thread);
void tpck_stream_destroyed(tpck_stream_handle handle);
struct tpck_stream *tpck_stream_by_ordinal(uint32_t ordinal);
/* All entries ever used; those with alive 0 are free. */
struct tpck_stream *tpck_streams(uint32_t *count);

#endif
