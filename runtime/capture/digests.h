/* SPDX-License-Identifier: Apache-2.0 */
/* Digests of a plan's rows as the device has them, taken on the copier's stream. */
#ifndef TPCK_RUNTIME_CAPTURE_DIGESTS_H
#define TPCK_RUNTIME_CAPTURE_DIGESTS_H

#include <stdbool.h>

#include "runtime/capture/plan.h"
#include "runtime/track/device.h"

/* Loads the device code and compares what it computes with the CPU. 0, or -errno: digests are not taken; -EILSEQ: it computes something else. */
int tpck_digests_open(const struct tpck_device *device, const char *library, const char *setting, tpck_stream_handle stream);
bool tpck_digests_ready(void);
/* By the thread that submits, where they are ready: queues the digests of all rows of the plan and their way to the host, for that fence. 0 or -errno. */
int tpck_digests_queue(const struct tpck_plan *plan, uint32_t fence, tpck_stream_handle stream);
/* Once, by the thread that waits, when the device has passed what was queued: one value a row, in the rows' order, valid until the fence's job is done. */
const uint64_t *tpck_digests_get(const struct tpck_plan *plan, uint32_t fence);

#endif
