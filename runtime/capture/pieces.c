/* SPDX-License-Identifier: Apache-2.0 */
/* A copy in pieces. */
#include "config.h"

#include "runtime/capture/pieces.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"

enum { PIECE_NS = 100000, PIECE_MIN = 64 << 10, PIECE_MAX = TPCK_CHUNK_BYTES };

static const struct tpck_device *device;
static tpck_stream_handle stream;
static tpck_event_handle events[TPCK_PIECES_QUEUED];
static uint64_t piece_bytes = 256 << 10;

int tpck_pieces_open(const struct tpck_device *with, tpck_stream_handle on)
{
	int result = 0;

	device = with;
	stream = on;
	for (int i = 0; i < TPCK_PIECES_QUEUED && !result; i++)
		result = device->event_create(&events[i]);
	return result;
}

/* The largest power of two that the device copies in PIECE_NS, as far as the host can see. */
static void piece_learn(uint64_t bytes, uint64_t ns)
{
	static double rate; /* bytes a nanosecond */

	if (!ns || bytes < PIECE_MIN)
		return;
	rate = rate > 0 ? rate * 0.75 + (double)bytes / (double)ns * 0.25 : (double)bytes / (double)ns;
	for (piece_bytes = PIECE_MIN; piece_bytes < PIECE_MAX && (double)piece_bytes * 2 <= rate * PIECE_NS;)
		piece_bytes *= 2;
}

static int piece_finish(struct tpck_pieces *p)
{
	uint32_t at = p->finished % TPCK_PIECES_QUEUED;
	int result = device->event_synchronize(events[at]);
	uint64_t now = tpck_clock_monotonic_ns();

	/* It began when the one before it was over. */
	if (!result && p->finished_ns)
		piece_learn(p->bytes[at], now - p->finished_ns);
	p->finished++;
	p->finished_ns = p->finished < p->begun ? now : 0;
	return result;
}

static int piece_room(struct tpck_pieces *p)
{
	return p->begun - p->finished == TPCK_PIECES_QUEUED ? piece_finish(p) : 0;
}

/* What was queued since the last piece is one. */
static int piece_mark(struct tpck_pieces *p, uint64_t bytes)
{
	uint32_t at = p->begun++ % TPCK_PIECES_QUEUED;

	p->bytes[at] = bytes;
	return device->event_record(events[at], stream);
}

/* Queues the copy of bytes at a device's address to an offset in the data area, cut where registrations end. */
static int copy_to(const struct tpck_pieces *p, uint64_t offset, uint64_t address, uint64_t bytes)
{
	int result = 0;

	while (bytes && !result) {
		uint64_t room = TPCK_REGISTER_BYTES - offset % TPCK_REGISTER_BYTES, now = bytes < room ? bytes : room;

		result = device->copy_from_device(tpck_staging_data(p->staging) + offset, address, now, stream);
		offset += now;
		address += now;
		bytes -= now;
	}
	return result;
}

/* Queues the copies of what has its turn in [from, to). */
static int piece_begin(struct tpck_pieces *p, uint64_t from, uint64_t to)
{
	const struct tpck_plan *plan = p->plan;
	int result = piece_room(p);

	while (!result && p->turn < plan->turn_count) {
		const struct tpck_turn *turn = &plan->turn[p->turn];
		const struct tpck_image_row *row = &plan->row[turn->row];
		uint64_t begin = turn->from > from ? turn->from : from;
		uint64_t end = turn->from + row->bytes < to ? turn->from + row->bytes : to;

		if (turn->from >= to)
			break;
		if (begin < end)
			result = copy_to(p, row->data_offset + (begin - turn->from), row->address + (begin - turn->from), end - begin);
		if (turn->from + row->bytes > to)
			break;
		p->turn++;
	}
	if (!result)
		result = piece_mark(p, to - from);
	p->queued = to;
	return result;
}

int tpck_pieces_copy(struct tpck_pieces *p, uint64_t end)
{
	int result = 0;

	while (!result && p->queued < end) {
		uint64_t next = (p->queued / piece_bytes + 1) * piece_bytes;

		result = piece_begin(p, p->queued, next < end ? next : end);
	}
	return result;
}

/* One constant row again, in pieces. */
static int copy_row(struct tpck_pieces *p, const struct tpck_image_row *row)
{
	int result = 0;

	for (uint64_t at = 0, bytes; at < row->bytes && !result; at += bytes) {
		result = piece_room(p);
		bytes = row->bytes - at < piece_bytes ? row->bytes - at : piece_bytes;
		if (!result)
			result = copy_to(p, row->data_offset + at, row->address + at, bytes);
		if (!result)
			result = piece_mark(p, bytes);
	}
	return result;
}

int tpck_pieces_constants(struct tpck_pieces *p, const uint64_t *digests, uint64_t step)
{
	const struct tpck_plan *plan = p->plan;
	struct tpck_staging *staging = p->staging;
	bool known = digests && staging->constants_of == plan->serial && staging->constants;
	uint32_t copied = 0;
	int result = 0;

	if (known) {
		for (uint32_t i = p->turn; i < plan->turn_count && !result; i++) {
			uint32_t row = plan->turn[i].row;

			if (staging->constants[row] == digests[row])
				continue;
			copied++;
			result = copy_row(p, &plan->row[row]);
		}
	} else {
		result = tpck_pieces_copy(p, plan->data_bytes);
	}
	if (result || !digests)
		return result;
	if (staging->constants_of != plan->serial) {
		free(staging->constants);
		staging->constants = malloc(plan->rows * sizeof *staging->constants);
		staging->constants_of = staging->constants ? plan->serial : 0;
	}
	if (staging->constants)
		memcpy(staging->constants, digests, plan->rows * sizeof *digests);
	if (!known || copied)
		staging->constants_step = step;
	return 0;
}

void tpck_pieces_gaps(struct tpck_pieces *p)
{
	const struct tpck_plan *plan = p->plan;

	if (p->staging->gaps_of == plan->serial)
		return;
	for (uint32_t i = 0; i < plan->turn_count; i++) {
		const struct tpck_image_row *row = &plan->row[plan->turn[i].row];

		memset(tpck_staging_data(p->staging) + row->data_offset + row->bytes, 0, tpck_plan_room(row) - row->bytes);
	}
	p->staging->gaps_of = plan->serial;
}

static void chunks_ready(const struct tpck_pieces *p)
{
	uint64_t total = p->plan->data_bytes;

	for (uint64_t from = 0; from < total; from += TPCK_CHUNK_BYTES) {
		struct tpck_image_chunk *chunk = tpck_staging_chunk(p->staging, (uint32_t)(from / TPCK_CHUNK_BYTES));

		chunk->bytes = total - from < TPCK_CHUNK_BYTES ? total - from : TPCK_CHUNK_BYTES;
		atomic_store_explicit(&chunk->ready, 1, memory_order_release);
	}
}

int tpck_pieces_finish(struct tpck_pieces *p)
{
	int result = 0;

	while (!result && p->finished < p->begun)
		result = piece_finish(p);
	if (!result)
		result = device->stream_synchronize(stream);
	if (!result)
		chunks_ready(p);
	return result;
}
