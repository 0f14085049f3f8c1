/* SPDX-License-Identifier: Apache-2.0 */
/* What goes into the log: operations as marks, and the answers of device, chance and time. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/digest.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/capture/readback.h"
#include "runtime/engine/engine_private.h"
#include "runtime/replay/stash.h"

enum { SEEN_BITS = 14 };

static struct tpck_engine *const engine = &tpck_engine;

/* Digests of token sequences that are in the log already. */
static uint64_t seen[1 << SEEN_BITS] TPCK_LARGE;
static uint32_t seen_count;
static tpck_spin seen_lock;

static bool seen_before(uint64_t digest)
{
	uint32_t slot = (uint32_t)(digest >> (64 - SEEN_BITS));
	bool found;

	tpck_spin_lock(&seen_lock);
	while (seen[slot] && seen[slot] != digest)
		slot = (slot + 1) & ((1u << SEEN_BITS) - 1);
	found = seen[slot] == digest;
	if (!found && seen_count < (1u << SEEN_BITS) / 2) {
		seen[slot] = digest;
		seen_count++;
	}
	tpck_spin_unlock(&seen_lock);
	return found;
}

static void append_query(const struct tpck_thread *thread, uint32_t at, uint32_t not_ready, int result)
{
	struct tpck_record_query record = {not_ready, result};

	tpck_log_append(engine->log, TPCK_RECORD_QUERY, 0, thread->id, at, &record, sizeof record);
}

static void flush_queries(struct tpck_thread *thread, int result)
{
	uint32_t not_ready = thread->not_ready;

	thread->not_ready = 0;
	append_query(thread, thread->queried_at, not_ready, result);
}

/* Whether a thread that asks will ever have operations is not known before it has one. A watchdog never has, and asks for
 * ever; a thread that runs its first backward pass asks what memory is free again before it launches. */
static void hold_query(struct tpck_thread *thread, int result)
{
	struct tpck_early_query *query = thread->early ? &thread->early_queries[thread->early - 1] : NULL;

	if (!query || query->result >= 0) {
		if (thread->early == TPCK_EARLY_QUERIES)
			return;
		query = &thread->early_queries[thread->early++];
		*query = (struct tpck_early_query){0, -1};
	}
	if (result == TPCK_NOT_READY)
		query->not_ready++;
	else
		query->result = result;
}

void tpck_record_room(struct tpck_thread *thread)
{
	for (uint32_t i = 0; i < thread->early; i++)
		append_query(thread, 0, thread->early_queries[i].not_ready, thread->early_queries[i].result);
	thread->early = 0;
	tpck_record_mark(thread);
	thread->room = TPCK_PENDING_OPS;
}

void tpck_record_mark(struct tpck_thread *thread)
{
	struct tpck_record_mark mark;
	bool whole;
	size_t bytes;
	char *out;

	if (thread->not_ready)
		flush_queries(thread, -1);
	if (!thread->pending)
		return;
	mark.operations = thread->pending;
	mark.contents = thread->contents;
	mark.places = thread->places;
	thread->places = 0;
	mark.digest = tpck_digest64(thread->pending_ops, thread->pending * sizeof *thread->pending_ops, thread->pending);
	whole = !seen_before(mark.digest);
	bytes = sizeof mark + (whole ? thread->pending * 4ul : 0) + thread->contents * 4ul;
	out = tpck_log_append(engine->log, TPCK_RECORD_MARK, whole, thread->id, (uint32_t)engine->step, NULL, bytes);
	if (out) {
		memcpy(out, &mark, sizeof mark);
		out += sizeof mark;
		if (whole) {
			memcpy(out, thread->pending_ops, thread->pending * 4ul);
			out += thread->pending * 4ul;
		}
		memcpy(out, thread->pending_contents, thread->contents * 4ul);
	}
	thread->pending = thread->contents = 0;
}

/* ---- copies to the host -------------------------------------------------------------------------- */

/* So much of what was read back the log holds itself, of which peers have copies and a resume reads less. */
#define INLINE_BYTES (32ull << 20)

/* How large a whole save may be: a program may make one before there is any image. */
static uint64_t state_bytes(void)
{
	uint64_t most = atomic_load(&engine->control->image_bytes), asked = atomic_load(&engine->asked_room), blocks, bytes = 0, backed;

	if (engine->arena)
		tpck_arena_totals(engine->arena, &blocks, &bytes, &backed);
	most = most > asked ? most : asked;
	return most > bytes ? most : bytes;
}

/* Where the bytes of one copy go: into the log, or into a stash that the log refers to. NULL: nowhere, or they are there already. */
static void *make_room(struct tpck_thread *self, const void *host, size_t bytes, bool queued, struct tpck_record_stashed *where)
{
	uint64_t limit = engine->settings.log_bytes, few = engine->settings.peers.count || limit / 4 < INLINE_BYTES ? limit / 4 : INLINE_BYTES;
	void *piece = NULL;
	const char *why;

	where->bytes = 0;
	if (bytes < TPCK_STASH_LEAST || tpck_log_bytes(engine->log) + bytes < few)
		return tpck_log_append(engine->log, TPCK_RECORD_FROM_DEVICE, 0, self->id, 0, queued ? NULL : host, bytes);
	tpck_stash_limit(limit + state_bytes());
	why = queued ? tpck_stash_room(bytes, where, &piece) : tpck_stash_put(host, bytes, where);
	if (why) {
		tpck_log_fail(engine->log, why);
		return NULL;
	}
	tpck_log_append(engine->log, TPCK_RECORD_FROM_DEVICE, TPCK_READ_STASHED, self->id, 0, where, sizeof *where);
	return piece;
}

void tpck_engine_read_back(struct tpck_thread *self, const struct tpck_call *call, const void *host,
			   uint64_t device_address, size_t bytes, bool queued)
{
	struct tpck_record_stashed where;
	struct tpck_stream *stream;
	void *payload;
	int result;

	if (!call->gated && tpck_engine_mode() == TPCK_MODE_LIVE)
		tpck_engine_unresumable("a graph of the program copies to the host");
	if (!call->gated || tpck_log_failed(engine->log) || atomic_load(&engine->context_ended))
		return;
	payload = make_room(self, host, bytes, queued, &where);
	if (!payload || !queued)
		return;
	stream = tpck_stream_of(call->stream, self);
	result = tpck_readback_queue(payload, where.bytes ? &where : NULL, device_address, bytes, call->stream, stream ? stream->ordinal : 0, host);
	if (result == -ENOSPC)
		tpck_log_fail(engine->log, "too many bytes on their way to the host at once");
	else if (result)
		tpck_log_fail(engine->log, "what the program copies to the host could not be copied for the record");
}

void tpck_engine_deliver(struct tpck_thread *self, void *host, size_t bytes)
{
	const struct tpck_record *record = NULL;
	struct tpck_record_stashed where;
	char why[160];
	int rc;

	if (tpck_forward_record(self, TPCK_RECORD_FROM_DEVICE, &record) != TPCK_FORWARD_SAME) {
		tpck_resume_diverged("a copy to the host has another size than in the first run");
		return;
	}
	if (record->detail == TPCK_READ_STASHED)
		memcpy(&where, record + 1, sizeof where);
	if ((record->detail == TPCK_READ_STASHED ? where.bytes : record->bytes) != bytes) {
		tpck_resume_diverged("a copy to the host has another size than in the first run");
	} else if (record->detail != TPCK_READ_STASHED) {
		memcpy(host, record + 1, bytes);
	} else if ((rc = tpck_stash_get(&where, host))) {
		snprintf(why, sizeof why, "what the first run read back from the device cannot be read from the store: %s",
			 rc == -EBADMSG ? "it has been damaged" : strerror(-rc));
		tpck_resume_diverged(why);
	}
}

void tpck_engine_waiting(struct tpck_thread *self)
{
	self->waited_mark = tpck_readback_mark();
}

void tpck_engine_waited(struct tpck_thread *self, tpck_stream_handle handle)
{
	struct tpck_stream *stream = tpck_stream_of(handle, self);

	if (tpck_engine_mode() == TPCK_MODE_LIVE && stream)
		tpck_readback_arrived_on(stream->ordinal, self->waited_mark);
	tpck_engine_device_waited();
}

void tpck_engine_stream_ends(struct tpck_thread *self, tpck_stream_handle handle)
{
	struct tpck_stream *stream = tpck_engine_mode() == TPCK_MODE_LIVE ? tpck_stream_of(handle, self) : NULL;

	if (stream)
		tpck_readback_stream_ends(handle, stream->ordinal);
}

/* ---- queries --------------------------------------------------------------------------------------- */

/* How often a thread asks between two operations may differ from run to run: events of pinned memory are looked at by
 * whichever thread comes first. One question more gets the answer of the one before, else that it is ready. */
bool tpck_engine_query_answer(struct tpck_thread *self, int *result)
{
	const struct tpck_record *record;
	const struct tpck_record_query *query;
	bool again;

	if (tpck_engine_mode() != TPCK_MODE_FORWARD)
		return false;
	if (self->queried_at != (uint32_t)self->operations) {
		self->queried_at = (uint32_t)self->operations;
		self->not_ready = 0;
		self->answered = 0;
	}
	for (;;) {
		record = tpck_resume_draw(self, TPCK_RECORD_QUERY, &again);
		if (!record || again)
			break;
		query = (const void *)(record + 1);
		if (self->not_ready < query->not_ready) {
			self->not_ready++;
			tpck_forward_unread(self, TPCK_RECORD_QUERY);
			*result = self->answered = TPCK_NOT_READY;
			return true;
		}
		self->not_ready = 0;
		/* Else a mark or an operation cut the polling in two: the next record goes on with it. */
		if (query->result >= 0) {
			*result = self->answered = query->result;
			return true;
		}
	}
	*result = self->answered;
	return again;
}

void tpck_engine_query_note(struct tpck_thread *self, int result)
{
	if (tpck_engine_mode() != TPCK_MODE_LIVE)
		return;
	if (!self->operations) {
		hold_query(self, result);
		return;
	}
	if (self->not_ready && self->queried_at != (uint32_t)self->operations)
		flush_queries(self, -1);
	self->queried_at = (uint32_t)self->operations;
	if (result == TPCK_NOT_READY)
		self->not_ready++;
	else
		flush_queries(self, result);
}

static bool recording(void)
{
	uint32_t mode = tpck_engine_mode();

	return mode == TPCK_MODE_LIVE || mode == TPCK_MODE_EARLY;
}

bool tpck_engine_elapsed_answer(struct tpck_thread *self, float *milliseconds)
{
	const struct tpck_record *record;

	if (tpck_engine_mode() != TPCK_MODE_FORWARD)
		return false;
	record = tpck_resume_record(self, TPCK_RECORD_ELAPSED);
	if (!record || record->bytes != sizeof *milliseconds)
		return false;
	memcpy(milliseconds, record + 1, sizeof *milliseconds);
	return true;
}

void tpck_engine_elapsed_note(struct tpck_thread *self, float milliseconds)
{
	if (tpck_engine_mode() == TPCK_MODE_LIVE)
		tpck_log_append(engine->log, TPCK_RECORD_ELAPSED, 0, self->id, 0, &milliseconds, sizeof milliseconds);
}

bool tpck_engine_meminfo_answer(struct tpck_thread *self, size_t *available, size_t *total)
{
	const struct tpck_record *record;
	uint64_t both[2];

	if (tpck_engine_mode() != TPCK_MODE_FORWARD)
		return false;
	record = tpck_resume_record(self, TPCK_RECORD_MEMINFO);
	if (!record || record->bytes != sizeof both)
		return false;
	memcpy(both, record + 1, sizeof both);
	*available = both[0];
	*total = both[1];
	return true;
}

void tpck_engine_meminfo_note(struct tpck_thread *self, size_t available, size_t total)
{
	uint64_t both[2] = {available, total};

	/* A context is enough to ask: numba does before it allocates anything. */
	if (recording())
		tpck_log_append(engine->log, TPCK_RECORD_MEMINFO, 0, self->id, 0, both, sizeof both);
}

/* ---- chance --------------------------------------------------------------------------------- */

bool tpck_engine_chance_answer(struct tpck_thread *self, void *bytes, size_t count)
{
	const struct tpck_record *record;
	bool again;

	if (tpck_engine_mode() != TPCK_MODE_FORWARD)
		return false;
	record = tpck_resume_draw(self, TPCK_RECORD_CHANCE, &again);
	if (!record || again)
		return false;
	if (record->bytes != count) {
		tpck_resume_diverged("random bytes are drawn in another number than in the first run");
		return false;
	}
	memcpy(bytes, record + 1, count);
	return true;
}

void tpck_engine_chance_note(struct tpck_thread *self, const void *bytes, size_t count)
{
	if (recording())
		tpck_log_append(engine->log, TPCK_RECORD_CHANCE, 0, self->id, (uint32_t)self->operations, bytes, count);
}

bool tpck_engine_drawn_answer(struct tpck_thread *self, void *bytes, size_t count, uint32_t *number)
{
	const struct tpck_record *record;

	if (self->drawn_at != self->talks)
		self->drawn = 0;
	self->drawn_at = self->talks;
	*number = self->drawn++;
	if (tpck_engine_mode() != TPCK_MODE_FORWARD)
		return false;
	record = tpck_forward_drawn(self, self->talks, *number);
	if (record && record->bytes == sizeof(struct tpck_record_drawn) + count) {
		memcpy(bytes, (const char *)(record + 1) + sizeof(struct tpck_record_drawn), count);
		return true;
	}
	/* The draw belongs to what comes next. */
	if (!record && tpck_forward_stands(self) == TPCK_FORWARD_END)
		tpck_resume_at_boundary(self);
	return false;
}

void tpck_engine_drawn_note(struct tpck_thread *self, const void *bytes, size_t count, uint32_t number)
{
	struct tpck_record_drawn drawn = {number};
	char *payload = recording() ? tpck_log_append(engine->log, TPCK_RECORD_DRAWN, 0, self->id, self->talks, NULL, sizeof drawn + count) : NULL;

	if (!payload)
		return;
	memcpy(payload, &drawn, sizeof drawn);
	memcpy(payload + sizeof drawn, bytes, count);
}
