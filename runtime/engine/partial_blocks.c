/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of which a snapshot needs parts only: the program's own allocator has the rest back, and nobody reads that before it is written. */
#include "config.h"

#include "runtime/engine/partial_blocks.h"

#include <stdlib.h>

#include "runtime/track/handed.h"

/* What came back is left out where so much of it lies together, and parts as large are rows of their own: gradients and moments lie side by side, and a row that
 * has both is copied as early as its gradients ask for. Rows stay few: where more parts than that are needed, what came back has to be such a part of its block,
 * too, and parts that touch are one row. */
enum { GAP_BYTES = 1 << 20, GAP_PART = 128, PARTS_MANY = 4096 };
/* Parts that an earlier plan held stay in the next ones: each new plan has what is constant copied again. They go after so many boundaries, if they are more
 * than half of what is out, and so much. */
enum { KEPT_BOUNDARIES = 64, KEPT_BYTES = 64 << 20 };
/* Sets of parts that the plan is known to hold. */
enum { HELD = 8 };

/* While a plan is made what is to be in it; then what it holds of blocks that are handed out in parts, gaps that are copied too. By address, none
 * overlapping. NULL: it has no such blocks. */
static struct tpck_handed_part *needed, *rows;
static uint32_t needed_count, rows_count, rows_room;
static uint64_t out_bytes;        /* when the plan was made */
static uint64_t needed_bytes, gap_bytes, since; /* gaps in it when nothing was kept, and the step of that */
static bool is_fresh;
static uint64_t held[HELD], looked;
static unsigned held_next;

static uint64_t bytes_of(const struct tpck_handed_part *parts, uint32_t count)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < count; i++)
		bytes += parts[i].end - parts[i].begin;
	return bytes;
}

static bool is_wasteful(const struct tpck_handed *now, uint64_t step)
{
	uint64_t out = bytes_of(now->out, now->out_count);

	return step - since >= KEPT_BOUNDARIES && needed_bytes > out + out / 2 + gap_bytes + KEPT_BYTES;
}

/* Whether two parts that touch, or have a small gap between them, get rows of their own. */
static bool stays_apart(const struct tpck_handed_part *a, const struct tpck_handed_part *b, uint32_t count)
{
	return count <= PARTS_MANY && a->end - a->begin >= GAP_BYTES && b->end - b->begin >= GAP_BYTES;
}

/* Both by address. What overlaps becomes one, and what touches unless both are large. Returns how many there are. */
static uint32_t unite(const struct tpck_handed_part *a, uint32_t a_count, const struct tpck_handed_part *b, uint32_t b_count, struct tpck_handed_part *to)
{
	uint32_t count = 0;

	for (uint32_t i = 0, k = 0; i < a_count || k < b_count;) {
		struct tpck_handed_part next = i < a_count && (k == b_count || a[i].begin <= b[k].begin) ? a[i++] : b[k++];

		if (count && (next.begin < to[count - 1].end || (next.begin == to[count - 1].end && !stays_apart(&to[count - 1], &next, a_count + b_count)))) {
			if (next.end > to[count - 1].end)
				to[count - 1].end = next.end;
		} else {
			to[count++] = next;
		}
	}
	return count;
}

/* Whether a part of the block was handed out since it was allocated: one that is out, or one that came back since the last look. Those that came back may
 * overlap; last[i] is the one of the first i + 1 that ends last. */
static bool is_handed(const struct tpck_block *block, const struct tpck_handed *now, const uint32_t *last)
{
	uint64_t end = block->address + block->bytes;
	uint32_t low = 0, high = now->back_count;

	for (uint32_t i = tpck_handed_from(now->out, now->out_count, block->address); i < now->out_count && now->out[i].begin < end; i++)
		if (now->out[i].order > block->order)
			return true;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (now->back[middle].begin < block->address)
			low = middle + 1;
		else
			high = middle;
	}
	if (low && now->back[last[low - 1]].end > block->address && now->back[last[low - 1]].order > block->order)
		return true;
	for (; low < now->back_count && now->back[low].begin < end; low++)
		if (now->back[low].order > block->order)
			return true;
	return false;
}

static void forget(void)
{
	free(needed);
	free(rows);
	needed = rows = NULL;
	needed_count = rows_count = rows_room = 0;
	for (unsigned i = 0; i < HELD; i++)
		held[i] = 0;
}

uint32_t tpck_parts_begin(const struct tpck_arena *arena, uint64_t step)
{
	struct tpck_handed *now = arena ? tpck_handed_look(true) : NULL;
	uint32_t keep = now && !is_wasteful(now, step) ? needed_count : 0, *last = now ? malloc((now->back_count + 1) * sizeof *last) : NULL;
	struct tpck_handed_part *made = last ? malloc((now->out_count + keep + 1) * sizeof *made) : NULL;

	if (!made) {
		free(last);
		tpck_handed_free(now);
		forget();
		return 0;
	}
	for (uint32_t i = 0; i < now->back_count; i++)
		last[i] = !i || now->back[i].end >= now->back[last[i - 1]].end ? i : last[i - 1];
	for (struct tpck_block *block = tpck_arena_first(arena); block; block = block->next)
		block->handed = block->handed || is_handed(block, now, last);
	is_fresh = !keep;
	if (is_fresh)
		since = step;
	keep = unite(now->out, now->out_count, needed, keep, made);
	forget();
	needed = made;
	needed_count = keep;
	out_bytes = bytes_of(now->out, now->out_count);
	held[0] = now->digest;
	held_next = 1;
	looked = step;
	free(last);
	tpck_handed_free(now);
	return 2 * needed_count;
}

/* Without memory for it the plan is known to hold less than it does, and is made anew sooner. */
static void note(uint64_t begin, uint64_t end)
{
	if (rows_count == rows_room) {
		uint32_t more = rows_room ? 2 * rows_room : 256;
		struct tpck_handed_part *grown = realloc(rows, more * sizeof *grown);

		if (!grown)
			return;
		rows = grown;
		rows_room = more;
	}
	rows[rows_count++] = (struct tpck_handed_part){begin, end, 0};
}

static void add(struct tpck_image_row *row, const struct tpck_block *block, uint64_t begin, uint64_t end, bool dead)
{
	if (!dead && needed && block->handed)
		note(begin, end);
	row->address = begin;
	row->bytes = end - begin;
	row->order = block->order;
	row->kind = TPCK_MEMORY_ARENA;
	row->class_ = dead ? TPCK_CLASS_DEAD : TPCK_CLASS_UNKNOWN;
}

uint32_t tpck_parts_rows(const struct tpck_block *block, struct tpck_image_row *row)
{
	uint64_t begin = block->address, at = begin, end = begin + block->bytes; /* [begin, at) is needed and has no row yet */
	uint64_t gap = needed_count > PARTS_MANY && block->bytes / GAP_PART > GAP_BYTES ? block->bytes / GAP_PART : GAP_BYTES;
	uint32_t count = 0, i = needed && block->handed ? tpck_handed_from(needed, needed_count, at) : needed_count;

	if (!needed || !block->handed) {
		add(row, block, begin, end, false);
		return 1;
	}
	while (at < end) {
		uint64_t next = i < needed_count && needed[i].begin < end ? needed[i].begin : end;

		if (next > at && next - at >= gap) {
			if (at > begin)
				add(&row[count++], block, begin, at, false);
			add(&row[count++], block, at, next, true);
			begin = next;
		} else if (at > begin && next < end && stays_apart(&needed[i - 1], &needed[i], needed_count)) {
			add(&row[count++], block, begin, at, false);
			begin = at;
		}
		at = next == end ? end : needed[i++].end;
		at = at < end ? at : end;
	}
	if (begin < end)
		add(&row[count++], block, begin, end, false);
	return count;
}

static int by_begin(const void *a, const void *b)
{
	const struct tpck_handed_part *x = a, *y = b;

	return x->begin < y->begin ? -1 : x->begin > y->begin;
}

void tpck_parts_end(void)
{
	struct tpck_handed_part *made = needed && rows ? malloc((rows_count + needed_count) * sizeof *made) : NULL;

	needed_bytes = bytes_of(rows, rows_count);
	if (is_fresh)
		gap_bytes = needed_bytes > out_bytes ? needed_bytes - out_bytes : 0;
	if (made) {
		/* What lies in no block, as on another device, is never in a plan. */
		qsort(rows, rows_count, sizeof *rows, by_begin);
		needed_count = unite(rows, rows_count, needed, needed_count, made);
		free(needed);
		needed = made;
	}
	free(rows);
	rows = NULL;
	rows_count = rows_room = 0;
}

bool tpck_parts_hold(const struct tpck_arena *arena, uint64_t step)
{
	uint64_t digest = tpck_handed_digest();
	struct tpck_handed *now;
	bool hold = true;

	if (!arena)
		return true;
	if (!digest || !needed)
		return !digest && !needed;
	for (unsigned i = 0; i < HELD; i++)
		if (held[i] == digest && step - looked < KEPT_BOUNDARIES)
			return true;
	now = tpck_handed_look(false);
	if (!now)
		return false;
	for (uint32_t i = 0, k = 0; i < now->out_count && hold; i++) {
		while (k < needed_count && needed[k].end <= now->out[i].begin)
			k++;
		hold = k < needed_count && needed[k].begin <= now->out[i].begin;
		while (hold && needed[k].end < now->out[i].end) {
			hold = k + 1 < needed_count && needed[k + 1].begin == needed[k].end;
			k++;
		}
	}
	hold = hold && !is_wasteful(now, step);
	held[held_next++ % HELD] = now->digest;
	looked = step;
	tpck_handed_free(now);
	return hold;
}
