/* SPDX-License-Identifier: Apache-2.0 */
/* The memory witness's eyes: what persists on the device, and digests of it where inference asks for them. */
#include "config.h"

#include <stdlib.h>

#include "runtime/base/lock_order.h"
#include "runtime/base/log.h"
#include "runtime/capture/copier.h"
#include "runtime/engine/engine_private.h"
#include "runtime/infer/persistent.h"
#include "runtime/track/handed.h"
#include "runtime/track/mappings.h"

/* What is live at so many looks persists; where some of it goes after that, at so many more. */
enum { SETS = 24, SETS_MORE = 4 };
/* A look takes digests of so much at most: of the begin and the end of each part. */
enum { LOOK_BYTES = 64 << 20, ALIGN = 512 };
#define GATE_LIMIT_NS 100000u

static struct tpck_engine *const engine = &tpck_engine;
static struct tpck_persistent *_Atomic persistent;
static bool asked;
/* Behind boundary_busy. */
static struct tpck_handed *kept; /* parts that were live at each look so far, by address */
static uint32_t sets;
static struct tpck_plan *plan;

void tpck_witness_begin(struct tpck_thread *self)
{
	const char *setting = engine->settings.infer;

	if (asked || tpck_engine_mode() != TPCK_MODE_LIVE)
		return;
	asked = true;
	if ((setting[0] != 'a' && setting[0] != 'm') || !tpck_copier_digests() || engine->ranks.world > 1 || !tpck_bias_lock(&engine->infer_lock, self))
		return;
	persistent = tpck_infer_watch(engine->infer);
	tpck_bias_unlock(&engine->infer_lock, self);
	if (persistent)
		tpck_log_debug("no iteration is found in %llu uploads: memory is looked at", (unsigned long long)engine->turns);
}

void tpck_witness_digests(uint32_t rows, const uint64_t *digests, uint64_t id)
{
	if (persistent)
		tpck_persistent_digests(persistent, id, rows, digests);
}

static int by_begin(const void *a, const void *b)
{
	const struct tpck_handed_part *x = a, *y = b;

	return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* As the parts that an allocator of the program's has handed out. */
static struct tpck_handed *look_at_blocks(void)
{
	uint64_t blocks = 0, bytes, backed;
	struct tpck_handed *found = NULL;

	if (pthread_mutex_trylock(&engine->allocation))
		return NULL;
	tpck_arena_totals(engine->arena, &blocks, &bytes, &backed);
	found = malloc(sizeof *found + blocks * sizeof *found->out);
	if (found) {
		*found = (struct tpck_handed){.out = (struct tpck_handed_part *)(found + 1)};
		for (const struct tpck_block *b = tpck_arena_first(engine->arena); b && found->out_count < blocks; b = b->next)
			found->out[found->out_count++] = (struct tpck_handed_part){b->address, b->address + b->bytes, b->order};
	}
	pthread_mutex_unlock(&engine->allocation);
	if (found)
		qsort(found->out, found->out_count, sizeof *found->out, by_begin);
	return found;
}

/* Leaves in `kept` what is in both; both by address. Returns how many parts are gone. */
static uint32_t intersect(const struct tpck_handed *now)
{
	uint32_t count = 0, gone, k = 0;

	for (uint32_t i = 0; i < kept->out_count; i++) {
		struct tpck_handed_part part = kept->out[i];

		while (k < now->out_count && now->out[k].begin < part.begin)
			k++;
		if (k < now->out_count && now->out[k].begin == part.begin && now->out[k].end == part.end && now->out[k].order == part.order)
			kept->out[count++] = part;
	}
	gone = kept->out_count - count;
	kept->out_count = count;
	return gone;
}

static void add_row(uint64_t *weights, const struct tpck_handed_part *part, uint64_t begin, uint64_t end, uint64_t weight)
{
	struct tpck_image_row *row = &plan->row[plan->rows];

	row->address = begin;
	row->bytes = end - begin;
	row->order = part->order;
	row->kind = TPCK_MEMORY_ARENA;
	row->class_ = TPCK_CLASS_UNKNOWN;
	weights[plan->rows++] = weight;
}

/* Of the memory that persists. False: there is too much of it, or too little memory. */
static bool plan_make(void)
{
	uint32_t pieces = kept->out_count <= TPCK_PERSISTENT_ROWS / 2 ? 2 : 1;
	uint64_t *weights = malloc(TPCK_PERSISTENT_ROWS * sizeof *weights), room = 0;

	if (plan)
		tpck_plan_free(plan);
	plan = kept->out_count && kept->out_count <= TPCK_PERSISTENT_ROWS && weights ? tpck_plan_new(kept->out_count * pieces) : NULL;
	if (plan)
		room = LOOK_BYTES / (kept->out_count * pieces) / ALIGN * ALIGN;
	for (uint32_t i = 0; plan && i < kept->out_count; i++) {
		const struct tpck_handed_part *part = &kept->out[i];
		uint64_t bytes = part->end - part->begin, tail = part->begin + (bytes - room) / ALIGN * ALIGN;

		if (!tpck_arena_contains(engine->arena, part->begin) && !tpck_mappings_range(part->begin))
			continue;
		if (bytes <= pieces * room) {
			add_row(weights, part, part->begin, part->end, bytes);
			continue;
		}
		if (pieces == 2)
			add_row(weights, part, part->begin, part->begin + room, bytes / 2);
		add_row(weights, part, tail, part->end, bytes / pieces);
	}
	tpck_persistent_rows(persistent, plan ? plan->rows : 0, weights);
	free(weights);
	return plan && plan->rows;
}

static void give_up(void)
{
	tpck_persistent_rows(persistent, 0, NULL);
	tpck_handed_free(kept);
	kept = NULL;
	sets = 0;
}

/* One more look at what is live; once it is known, digests of it. */
static void look(void)
{
	struct tpck_handed *now = tpck_handed_look_at_out();
	bool known;
	uint64_t id;

	now = now ? now : look_at_blocks();
	if (!now)
		return;
	known = tpck_persistent_look(persistent, &id);
	if (!kept) {
		kept = now;
		sets = 1;
		return;
	}
	if (intersect(now) && known) {
		tpck_persistent_rows(persistent, 0, NULL);
		sets = SETS - SETS_MORE;
		known = false;
	}
	tpck_handed_free(now);
	if (!known) {
		sets++;
		if (sets < SETS || (plan && __atomic_load_n(&plan->users, __ATOMIC_ACQUIRE)))
			return;
		if (!plan_make())
			give_up();
		return;
	}
	(void)tpck_copier_probe(TPCK_JOB_PROBE_WITNESS, plan, id);
}

void tpck_witness_look(const struct tpck_thread *self)
{
	if (!persistent || !engine->arena || engine->uncaptured || atomic_exchange(&engine->boundary_busy, 1))
		return;
	if (!engine->stream_captures && tpck_gate_close(self, GATE_LIMIT_NS)) {
		look();
		tpck_gate_open();
	}
	atomic_store(&engine->boundary_busy, 0);
}
