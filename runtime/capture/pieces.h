/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The copy of a plan into a staging image, in short pieces on the copier's stream. A copy of the
 * application's own stands behind the pieces that are queued already, so there are at most two, each
 * of what the device copies in about a tenth of a millisecond.
 */
#ifndef TPCK_RUNTIME_CAPTURE_PIECES_H
#define TPCK_RUNTIME_CAPTURE_PIECES_H

#include <stdint.h>

#include "runtime/capture/images.h"
#include "runtime/capture/plan.h"
#include "runtime/track/device.h"

enum { TPCK_PIECES_QUEUED = 2 };

struct tpck_pieces {
	const struct tpck_plan *plan;
	struct tpck_staging *staging;
	uint32_t turn;                      /* the plan's next */
	uint32_t begun, finished;           /* pieces */
	uint64_t queued;                    /* bytes in the plan's order of copying */
	uint64_t finished_ns;               /* when the last piece was seen to be over with another behind it, else 0 */
	uint64_t bytes[TPCK_PIECES_QUEUED]; /* of each piece that is queued */
};

/* Before the first copy. 0 or -errno. */
int tpck_pieces_open(const struct tpck_device *device, tpck_stream_handle stream);
/* What lies between the rows becomes zero, as in the images of every rank that holds the same. */
void tpck_pieces_gaps(struct tpck_pieces *pieces);
/* All that follow return 0 or -errno. Queues everything up to `end` in the plan's order of copying. */
int tpck_pieces_copy(struct tpck_pieces *pieces, uint64_t end);
/* Queues the constant rows whose digests are not those that the image has: all, without digests. */
int tpck_pieces_constants(struct tpck_pieces *pieces, const uint64_t *digests, uint64_t step);
/* Waits for all that is queued; the whole image is ready then. */
int tpck_pieces_finish(struct tpck_pieces *pieces);

#endif
