/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies to the host whose bytes have not arrived yet: a copy of ours right behind the
 * application's brings them into pinned memory, and from there they go into the log's record once
 * the stream is known to have passed them (doc/record.md, "Copies to the host").
 */
#ifndef TPCK_RUNTIME_CAPTURE_READBACK_H
#define TPCK_RUNTIME_CAPTURE_READBACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/replay/stash.h"
#include "runtime/track/device.h"

/* Pinned memory for the bytes under way. 0 or -errno. */
int tpck_readback_open(const struct tpck_device *device);
/* The context ends, and the pinned memory with it: all that is under way arrives. The device is done with it. */
void tpck_readback_close(void);
/* Queues the copy of bytes at address behind what is on the stream; payload (in the log, or in a stash that `stashed` names, else NULL) gets them
 * later. `host` is where the application's own copy goes. 0; or nothing is queued: -ENOSPC, too much is under way; -ENODEV, there is no device any more; or
 * the driver's error. */
int tpck_readback_queue(void *payload, const struct tpck_record_stashed *stashed, uint64_t address, size_t bytes,
			tpck_stream_handle handle, uint32_t stream_ordinal, const void *host);
/* Everything queued so far has this mark or a lower one. */
uint64_t tpck_readback_mark(void);
/* All with this mark or lower have arrived. */
void tpck_readback_arrived(uint64_t mark);
/* All queued on this stream with this mark or lower have arrived. */
void tpck_readback_arrived_on(uint32_t stream_ordinal, uint64_t mark);
/* The program is about to destroy the stream: what is under way on it will not be asked for by its name any more. */
void tpck_readback_stream_ends(tpck_stream_handle handle, uint32_t stream_ordinal);
/* Whether a copy still under way writes into [host, host + bytes). */
bool tpck_readback_touches(const void *host, size_t bytes);

#endif
