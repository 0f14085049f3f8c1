/* SPDX-License-Identifier: Apache-2.0 */
/* Boundaries where no iteration is found: at the first upload behind launches, once memory shows that this is training. */
#include "config.h"

#include <stdio.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/capture/copier.h"
#include "runtime/engine/engine_private.h"
#include "runtime/infer/classes.h"

/* So many digests of all memory, in a row, are looked at before it is told which of it changes; and after so many it is given up. */
enum { LOOKS = 2 * TPCK_CLASSES_EVIDENCE + 2, LOOKS_MOST = 48 };
/* Of memory that was there before, so large a part changes from one upload to the next: weights and what an optimizer keeps of them. */
enum { CHANGING_PART = 2 };
#define GATE_LIMIT_NS 100000u
/* For so long nothing is said of a program that is looked at. */
#define WATCH_NS 30000000000ull

/* Uploads by threads that launch are the nearest to where an iteration begins. Where there are none for so long, copies of any thread to
 * the device, or from it, will do. */
#define NARROW_NS 3000000000ull

enum { OFF, WATCHING, ON, GIVEN_UP };

static struct tpck_engine *const engine = &tpck_engine;
static _Atomic uint32_t state;
static _Atomic bool launched;        /* since the last copy that counted */
static uint64_t looks, older;        /* digests taken; blocks of fewer allocations were there at the first */
static uint64_t watched_ns, counted;    /* since when; looks at the last question */
static uint64_t narrow_ns;              /* since when no look was taken */
static _Atomic bool any_copy;
static char why[200];

bool tpck_uploads_watch(const char *reason)
{
	uint64_t now = tpck_clock_monotonic_ns();

	if (engine->settings.infer[0] != 'a' || !tpck_copier_digests() || atomic_load(&state) == GIVEN_UP)
		return false;
	if (atomic_load(&state) == OFF) {
		snprintf(why, sizeof why, "%s", reason);
		tpck_classes_forget();
		watched_ns = narrow_ns = now;
		atomic_store(&state, WATCHING);
		atomic_store(&engine->uploads, true);
	}
	if (looks != counted)
		narrow_ns = now;
	counted = looks;
	/* Ranks have steps in common by the number of such uploads only. */
	if (atomic_load(&state) == WATCHING && engine->ranks.world == 1 && now - narrow_ns > NARROW_NS)
		atomic_store(&any_copy, true);
	return atomic_load(&state) == ON || now - watched_ns < WATCH_NS;
}

void tpck_uploads_go_on(bool any)
{
	atomic_store(&any_copy, any);
	atomic_store(&state, ON);
	atomic_store(&engine->uploads, true);
}

void tpck_uploads_end(void)
{
	atomic_store(&engine->uploads, false);
	atomic_store(&state, OFF);
	looks = 0;
}

bool tpck_uploads_any(void)
{
	return atomic_load(&any_copy);
}

bool tpck_uploads_on(void)
{
	return atomic_load_explicit(&state, memory_order_relaxed) == ON;
}

static bool is_training(const struct tpck_plan *plan)
{
	uint64_t all = 0, changing = 0;

	for (uint32_t i = 0; i < plan->rows; i++) {
		const struct tpck_image_row *row = &plan->row[i];

		if (row->order >= older || row->class_ == TPCK_CLASS_DEAD)
			continue;
		all += row->bytes;
		if (tpck_classes_of(row->order, row->address) != TPCK_CLASS_CONSTANT)
			changing += row->bytes;
	}
	return changing && changing >= all / CHANGING_PART;
}

/* Not inside the gate. */
static void look(const struct tpck_thread *self)
{
	struct tpck_plan *plan;
	bool training = false;

	if (atomic_exchange(&engine->boundary_busy, 1))
		return;
	if (!engine->stream_captures && tpck_gate_close(self, GATE_LIMIT_NS)) {
		plan = tpck_memory_plan();
		if (plan && !looks)
			older = engine->allocations;
		training = plan && looks >= LOOKS && is_training(plan);
		if (plan && !training && !tpck_copier_probe(TPCK_JOB_PROBE_BOUNDARY, plan, looks + 1))
			looks++;
		tpck_gate_open();
	}
	atomic_store(&engine->boundary_busy, 0);
	if (training) {
		tpck_classes_forget();
		atomic_store(&state, ON);
		tpck_log_warn("no iteration of a training loop is found (%s): snapshots are taken where a batch comes to the device, and the program waits while they are "
			      "copied, TRANSPCKPT_OVERHEAD percent of its time at most", why);
	} else if (looks >= LOOKS_MOST) {
		atomic_store(&engine->uploads, false);
		atomic_store(&state, GIVEN_UP);
	}
}

bool tpck_uploads_boundary(struct tpck_thread *self, const struct tpck_call *call)
{
	bool any = atomic_load_explicit(&any_copy, memory_order_relaxed), upload = self->at_upload;

	self->at_upload = false;
	if (any && (call->token.op == TPCK_OP_KERNEL || call->token.op == TPCK_OP_GRAPH))
		atomic_store_explicit(&launched, true, memory_order_relaxed);
	if (any ? call->orders || (call->token.op != TPCK_OP_H2D && call->token.op != TPCK_OP_D2H) || !atomic_exchange(&launched, false) : !upload)
		return false;
	if (!tpck_uploads_on()) {
		tpck_gate_leave(self);
		look(self);
		tpck_gate_enter(self);
	}
	if (!tpck_uploads_on())
		return false;
	/* Steps never go back. */
	if (!any && engine->turns > engine->step + 1)
		engine->step = engine->turns - 1;
	return true;
}
