/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The last resort for a process that is seen to train and whose optimizer bears no name and makes no run of launches
 * (L-BFGS): an exact period of operations in which, once and only once, a read-back is followed at once by the copy
 * of a batch to the device, and before that, after the launches of another thread (backward), some of its own (the
 * optimizer). There the iteration turns over.
 */
#ifndef TPCK_RUNTIME_INFER_TURNOVER_H
#define TPCK_RUNTIME_INFER_TURNOVER_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/infer/phase.h"

enum {
    TPCK_TURNOVER_PERIODS = 2, /* periods equal to the one before, before anything is said */
    TPCK_TURNOVER_OWN = 4,     /* launches after those of another thread */
    TPCK_TURNOVER_BATCH = 1024, /* bytes copied in one go, at least, to be a batch and not a scalar */
};

struct tpck_turnover {
    uint64_t now;
    uint64_t digest, last_digest; /* of the operations since the last turnover, and of the period before */
    uint64_t count, last_count;
    uint32_t equal;               /* periods in a row like the one before */
    uint32_t thread, own;         /* the thread that launched last, and how many kernels in a row */
    bool others;                  /* more than one thread has launched since the last turnover */
    bool read_back;               /* the operation before was one */
    bool backward;                /* a kernel of a backward pass has been seen by its name */
    uint64_t boundaries, last_boundary;
};

/** Flags of enum tpck_verdict. */
unsigned tpck_turnover_feed(struct tpck_turnover *turnover, const struct tpck_phase_op *op, uint64_t bytes);

#endif
