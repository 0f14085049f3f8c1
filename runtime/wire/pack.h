/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sealed segment of the log, packed: a file "pack.NNNNNN" that stands for "log.NNNNNN". It has the segment's header, with TPCK_LOG_PACKED and
 * with the end of this file as `used`, and behind it one frame of zstd, with its size and its checksum. What is in the frame are the segment's
 * records with what counts on from one to the next as differences, so that equal iterations have equal bytes.
 *
 * The agent packs (runtime/store/packing.h). Who reads the log unpacks: the library links of zstd what that takes, and nobody else's.
 */
#ifndef TPCK_RUNTIME_WIRE_PACK_H
#define TPCK_RUNTIME_WIRE_PACK_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/wire/segment.h"

#define TPCK_PACK_PREFIX "pack."

/* Whether a header is a pack's of this segment, whose file has so many bytes. */
bool tpck_pack_is_whole(const struct tpck_log_header *header, uint64_t size, uint64_t sequence);
/* Where the last record of the segment ends, from its begin. 0 or -EBADMSG; -ENOTSUP: this build has no zstd. */
int tpck_pack_learn(const void *pack, uint64_t size, uint64_t sequence, uint64_t *end);
/* Makes the segment again, sealed, in memory for `end` bytes, as tpck_pack_learn() says. 0, -EBADMSG or -ENOTSUP. */
int tpck_pack_read(const void *pack, uint64_t size, uint64_t sequence, void *segment, uint64_t end);
/* In place: numbers that count on become differences, or those the numbers again. Bytes that are no records stay as they are. */
void tpck_pack_turn(void *records, uint64_t bytes, bool to_differences);

#endif
