/* SPDX-License-Identifier: Apache-2.0 */
/** Iterations from one batch to the next, where tensors are moved in between. */
#include "config.h"

#include "runtime/infer/turnover.h"

/* A batch is about to be copied: was what lies behind an iteration? */
static bool turn_over(struct tpck_turnover *turnover)
{
	bool trained = turnover->backward, moved = turnover->moved;
	turnover->worked = turnover->backward = turnover->moved = false;
	turnover->added = 0;
	turnover->same = !turnover->scalars_last && turnover->work == turnover->last_work && turnover->work_count == turnover->last_work_count ? turnover->same + 1 : 0;
	turnover->last_work = turnover->work;
	turnover->last_work_count = turnover->work_count;
	turnover->digest = turnover->count = 0;
	if (trained)
		turnover->good = moved ? turnover->good + 1 : 0;
	return trained && turnover->good >= TPCK_TURNOVER_PERIODS;
}

/* The stretch is as long as the last ones were, and like them. */
static bool at_known_end(const struct tpck_turnover *turnover)
{
	return turnover->moved && turnover->good >= TPCK_TURNOVER_PERIODS && turnover->same >= TPCK_TURNOVER_SAME &&
	       turnover->work == turnover->last_work && turnover->work_count == turnover->last_work_count;
}

static void note_kernel(struct tpck_turnover *turnover, const struct tpck_phase_op *op, bool addition)
{
	turnover->worked = true;
	if (op->backward_thread) {
		turnover->backward = true;
		turnover->added = 0;
	} else if (addition && turnover->backward && !turnover->moved) {
		for (uint32_t i = 0; i < turnover->added; i++)
			if (turnover->grids[i] == op->fine)
				return;
		turnover->grids[turnover->added++] = op->fine;
		turnover->moved = turnover->added == TPCK_TURNOVER_GRIDS;
	}
}

unsigned tpck_turnover_feed(struct tpck_turnover *turnover, const struct tpck_phase_op *op, uint64_t bytes, bool addition)
{
	unsigned verdict = TPCK_V_NONE;
	if (op->op == TPCK_OP_H2D && bytes >= TPCK_PHASE_BATCH && turnover->worked) {
		verdict = turn_over(turnover) && !turnover->told ? TPCK_V_BOUNDARY_BEFORE : TPCK_V_NONE;
		turnover->told = false;
	}
	if (op->op == TPCK_OP_KERNEL)
		note_kernel(turnover, op, addition);
	turnover->digest = tpck_phase_mix(turnover->digest, op->coarse);
	turnover->count++;
	if (op->op == TPCK_OP_H2D) {
		turnover->scalars_last = bytes < TPCK_PHASE_BATCH;
	} else {
		turnover->scalars_last = false;
		turnover->work = turnover->digest;
		turnover->work_count = turnover->count;
		if (!turnover->told && at_known_end(turnover)) {
			turnover->told = true;
			verdict = TPCK_V_BOUNDARY_AFTER;
		}
	}
	if (verdict)
		turnover->last_boundary = turnover->now + (verdict == TPCK_V_BOUNDARY_AFTER);
	turnover->boundaries += verdict != TPCK_V_NONE;
	turnover->now++;
	return verdict;
}
