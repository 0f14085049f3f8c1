/* SPDX-License-Identifier: Apache-2.0 */
/** Iterations by exact repetition between a read-back and the next batch. */
#include "config.h"

#include "runtime/infer/turnover.h"

unsigned tpck_turnover_feed(struct tpck_turnover *turnover, const struct tpck_phase_op *op, uint64_t bytes)
{
    unsigned verdict = TPCK_V_NONE;
    if (turnover->read_back && op->op == TPCK_OP_H2D && bytes >= TPCK_TURNOVER_BATCH) {
        bool equal = turnover->digest == turnover->last_digest && turnover->count == turnover->last_count;
        bool updated = turnover->others && turnover->own >= TPCK_TURNOVER_OWN && op->thread == turnover->thread;
        turnover->equal = equal && updated ? turnover->equal + 1 : 0;
        turnover->last_digest = turnover->digest;
        turnover->last_count = turnover->count;
        turnover->digest = turnover->count = turnover->own = 0;
        turnover->others = false;
        if (turnover->equal >= TPCK_TURNOVER_PERIODS && turnover->backward) {
            turnover->boundaries++;
            turnover->last_boundary = turnover->now;
            verdict = TPCK_V_BOUNDARY_BEFORE;
        }
    }
    turnover->digest = tpck_phase_mix(turnover->digest, op->fine);
    turnover->count++;
    if (op->op == TPCK_OP_KERNEL) {
        turnover->others = turnover->others || op->thread != turnover->thread;
        turnover->own = op->thread == turnover->thread ? turnover->own + 1 : 1;
        turnover->thread = op->thread;
    }
    turnover->read_back = op->op == TPCK_OP_D2H;
    turnover->now++;
    return verdict;
}
