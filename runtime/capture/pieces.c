/* SPDX-License-Identifier: Apache-2.0 */
/* A copy in pieces. */
#include "config.h"

#include "runtime/capture/pieces.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/block_digest.h"
#include "runtime/capture/fences.h"

/* A driver's queue takes some 1,000 operations, and makes its caller wait for the device beyond that. */
enum { PIECE_NS = 100000, PIECE_MIN = 64 << 10, PIECE_MAX = TPCK_CHUNK_BYTES, PIECES = 256 };

static const struct tpck_device *device;
static _Atomic uint64_t piece_bytes = 256 << 10;

void tpck_pieces_open(const struct tpck_device *with)
{
	device = with;
}

void tpck_pieces_learn(uint64_t bytes, uint64_t ns)
{
	static double rate; /* bytes a nanosecond */
	uint64_t piece = PIECE_MIN;

	if (!ns || bytes < PIECE_MIN)
		return;
	rate = rate > 0 ? rate * 0.75 + (double)bytes / (double)ns * 0.25 : (double)bytes / (double)ns;
	while (piece < PIECE_MAX && (double)piece * 2 <= rate * PIECE_NS)
		piece *= 2;
	atomic_store_explicit(&piece_bytes, piece, memory_order_relaxed);
}

/* Queues the copy of bytes at a device's address to an offset in the data area, cut where registrations end. */
static int copy_to(const struct tpck_pieces *p, uint64_t offset, uint64_t address, uint64_t bytes, tpck_stream_handle stream)
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

/* Rows that lie side by side on the device as they do in the data area: one copy. */
struct run {
	uint64_t offset, address, bytes;
	uint32_t device;
	bool arena;
};

static uint64_t aligned(uint64_t bytes)
{
	return (bytes + TPCK_PLAN_ALIGN - 1) / TPCK_PLAN_ALIGN * TPCK_PLAN_ALIGN;
}

/* Adds bytes to the run, or begins another one with them once the copy of the last is queued. What is between two blocks of the arena is mapped, and
 * comes along; variables of modules are apart, as drivers refuse copies that touch two. */
static int run_add(struct tpck_pieces *p, struct run *run, const struct run *more)
{
	uint64_t end = aligned(run->bytes);
	int result;

	if (run->arena && more->arena && run->device == more->device && run->offset + end == more->offset && run->address + end == more->address) {
		if (end != run->bytes)
			p->staging->gaps_of = 0;
		run->bytes = end + more->bytes;
		return 0;
	}
	result = copy_to(p, run->offset, run->address, run->bytes, p->stream);
	*run = *more;
	return result;
}

/* Queues the copies of what has its turn in [from, to). */
static int piece_begin(struct tpck_pieces *p, uint64_t from, uint64_t to)
{
	const struct tpck_plan *plan = p->plan;
	struct run run = {0};
	int result = 0;

	while (!result && p->turn < plan->turn_count) {
		const struct tpck_turn *turn = &plan->turn[p->turn];
		const struct tpck_image_row *row = &plan->row[turn->row];
		uint64_t begin = turn->from > from ? turn->from : from;
		uint64_t end = turn->from + row->bytes < to ? turn->from + row->bytes : to;

		if (turn->from >= to)
			break;
		if (begin < end)
			result = run_add(p, &run, &(struct run){row->data_offset + (begin - turn->from), row->address + (begin - turn->from), end - begin,
								row->device, row->kind == TPCK_MEMORY_ARENA});
		if (turn->from + row->bytes > to)
			break;
		p->turn++;
	}
	if (!result)
		result = copy_to(p, run.offset, run.address, run.bytes, p->stream);
	p->queued = to;
	return result;
}

int tpck_pieces_copy(struct tpck_pieces *p, uint64_t end)
{
	uint64_t piece = atomic_load_explicit(&piece_bytes, memory_order_relaxed);
	int result = 0;

	if (piece < p->plan->data_bytes / PIECES)
		piece = p->plan->data_bytes / PIECES;
	while (!result && p->queued < end) {
		uint64_t next = (p->queued / piece + 1) * piece;

		result = piece_begin(p, p->queued, next < end ? next : end);
		tpck_fences_progress();
		if (!result && !tpck_fences_wanted(p->fence))
			result = -ECANCELED;
	}
	return result;
}

/* The program may be writing to these rows by now, and to one that is no constant after all it does: what came is the row of the step if its digest is. */
static int copy_again(const struct tpck_pieces *p, const uint64_t *digests, uint32_t *copied, tpck_stream_handle stream)
{
	const struct tpck_plan *plan = p->plan;
	const uint64_t *has = p->staging->constants;
	int result = 0;

	for (uint32_t i = p->turn; i < plan->turn_count && !result; i++) {
		const struct tpck_image_row *row = &plan->row[plan->turn[i].row];

		if (has[plan->turn[i].row] == digests[plan->turn[i].row])
			continue;
		++*copied;
		result = copy_to(p, row->data_offset, row->address, row->bytes, stream);
	}
	if (!*copied)
		return 0;
	/* Even where one was refused: those before it are under way into the image. */
	if (device->stream_synchronize(stream) && !result)
		result = -EIO;
	for (uint32_t i = p->turn; i < plan->turn_count && !result; i++) {
		const struct tpck_image_row *row = &plan->row[plan->turn[i].row];

		if (has[plan->turn[i].row] != digests[plan->turn[i].row] &&
		    tpck_block_digest(tpck_staging_data(p->staging) + row->data_offset, row->bytes) != digests[plan->turn[i].row])
			result = -ESTALE;
	}
	return result;
}

bool tpck_pieces_knows(const struct tpck_pieces *p)
{
	return p->staging->constants_of == p->plan->serial && p->staging->constants;
}

int tpck_pieces_constants(struct tpck_pieces *p, const uint64_t *digests, uint64_t step, tpck_stream_handle stream)
{
	const struct tpck_plan *plan = p->plan;
	struct tpck_staging *staging = p->staging;
	bool known = tpck_pieces_knows(p);
	uint32_t copied = 0;
	int result = known && p->turn < plan->turn_count ? copy_again(p, digests, &copied, stream) : 0;

	if (result)
		return result;
	if (!known) {
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

void tpck_pieces_ready(const struct tpck_pieces *p)
{
	uint64_t total = p->plan->data_bytes;

	for (uint64_t from = 0; from < total; from += TPCK_CHUNK_BYTES) {
		struct tpck_image_chunk *chunk = tpck_staging_chunk(p->staging, (uint32_t)(from / TPCK_CHUNK_BYTES));

		chunk->bytes = total - from < TPCK_CHUNK_BYTES ? total - from : TPCK_CHUNK_BYTES;
		atomic_store_explicit(&chunk->ready, 1, memory_order_release);
	}
}
