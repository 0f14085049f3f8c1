/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The last resort for a process that is seen to train and whose optimizer bears no name and makes no run of launches
 * of its own (L-BFGS, Rprop, Muon tensor by tensor): from the copy of one batch to that of the next there is a backward
 * pass, and behind it another thread adds to several tensors of different sizes. There the iteration turns over. A
 * stretch with a backward pass and without such additions (a micro-batch, gradients that are only looked at) takes the
 * confidence away.
 */
#ifndef TPCK_RUNTIME_INFER_TURNOVER_H
#define TPCK_RUNTIME_INFER_TURNOVER_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/infer/phase.h"

enum {
	TPCK_TURNOVER_PERIODS = 2,  /* stretches in a row that moved tensors, before anything is said */
	TPCK_TURNOVER_SAME = 2,     /* equal stretches in a row, before their end is told with their last operation */
	TPCK_TURNOVER_GRIDS = 3,    /* different ones of the additions */
};

struct tpck_turnover {
	uint64_t now;
	uint32_t good;          /* stretches in a row that moved tensors */
	uint32_t added;         /* additions on different grids since the last kernel of a backward pass */
	uint64_t grids[TPCK_TURNOVER_GRIDS]; /* fine digests of them */
	uint64_t digest, count; /* of the operations since the last batch began to be copied */
	uint64_t work, work_count;             /* the same up to the last that is no copy to the device */
	bool scalars_last;      /* scalars have gone up since then: of the optimizer or of the next batch */
	uint64_t last_work, last_work_count;   /* of the stretch before */
	uint32_t same;          /* stretches in a row like the one before */
	bool told;              /* with the last operation of the stretch, before the next batch */
	bool worked;            /* a kernel since the last batch was copied */
	bool backward, moved;   /* a backward pass since then, and so many additions behind one */
	uint64_t boundaries, last_boundary;
};

/** Flags of enum tpck_verdict. */
unsigned tpck_turnover_feed(struct tpck_turnover *turnover, const struct tpck_phase_op *op, uint64_t bytes, bool addition);

#endif
