/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The copy of a plan into a staging image, in short pieces on the copier's stream: a device's copy engine turns to another stream between two of them.
 * All are submitted without waiting for any. Each is of what the device copies in about a tenth of a millisecond.
 */
#ifndef TPCK_RUNTIME_CAPTURE_PIECES_H
#define TPCK_RUNTIME_CAPTURE_PIECES_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/capture/images.h"
#include "runtime/capture/plan.h"
#include "runtime/track/device.h"

struct tpck_pieces {
	const struct tpck_plan *plan;
	struct tpck_staging *staging;
	uint32_t fence;            /* whose copies these are: no more are queued once it is given up */
	tpck_stream_handle stream;
	uint32_t turn;             /* the plan's next */
	uint64_t queued;           /* bytes in the plan's order of copying */
};

/* Before the first copy. */
void tpck_pieces_open(const struct tpck_device *device);
/* Of so many bytes the device needed so long, or 0 where that is not known. */
void tpck_pieces_learn(uint64_t bytes, uint64_t ns);
/* When all that was queued has been passed: what lies between the rows becomes zero, as in the images of every rank that holds the same. */
void tpck_pieces_gaps(struct tpck_pieces *pieces);
/* Queues everything up to `end` in the plan's order of copying. 0; -ECANCELED: the fence is given up; or another -errno. */
int tpck_pieces_copy(struct tpck_pieces *pieces, uint64_t end);
/* Whether the image has the constant rows as they were at a step before. */
bool tpck_pieces_knows(const struct tpck_pieces *pieces);
/* When all that was queued has been passed: copies those constant rows, by another stream, whose digests are not those that the image has, and waits for
 * them. 0; -ESTALE: one changed meanwhile; or another -errno. */
int tpck_pieces_constants(struct tpck_pieces *pieces, const uint64_t *digests, uint64_t step, tpck_stream_handle stream);
/* The whole image is there. */
void tpck_pieces_ready(const struct tpck_pieces *pieces);

#endif
