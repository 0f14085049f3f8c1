/* SPDX-License-Identifier: Apache-2.0 */
/* Packing segments of the log (wire/pack.h), and finding which file has one. */
#ifndef TPCK_RUNTIME_STORE_PACKING_H
#define TPCK_RUNTIME_STORE_PACKING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/wire/segment.h"

/* A pack is one chunk of a checkpoint at most: what would be more stays as it is. */
enum { TPCK_PACK_MOST = 4 << 20 };

void tpck_pack_path(const char *session_path, uint64_t sequence, char *path, size_t size);
/* The file that has a segment, whose header it reads: its pack if that is whole, else what is not packed. False: neither is there. */
bool tpck_segment_find(const char *session_path, uint64_t sequence, char *path, size_t size, struct tpck_log_header *header);

/* A file of a segment or of a pack, or the segment as it was before it was packed, mapped to be read; the caller's to unmap. 0, or -errno; -ENOENT: there is
 * none; -EBADMSG: it is shorter than a header, or is no pack. */
int tpck_segment_map(const char *path, void **at, uint64_t *size, struct tpck_error *err);
int tpck_segment_read(const char *session_path, uint64_t sequence, void **segment, uint64_t *size);

/* The records of a mapped segment up to `end`, packed; malloc'd. 0, -ENOMEM, -EFBIG: that is no less, or more than TPCK_PACK_MOST; or -ENOTSUP: this build has
 * no zstd. */
int tpck_pack_make(const struct tpck_log_header *segment, uint64_t end, uint8_t **pack, size_t *size);
/* Packs a sealed segment of a session, beside which it stands then, and reads it back. As above, or -errno with a text. */
int tpck_pack_segment(const char *session_path, uint64_t sequence, struct tpck_error *err);
/* Brings a session's pack into a folder of the store: what is in memory is the file's name there from then on. Nothing where it is that already. */
int tpck_pack_move(const char *session_path, uint64_t sequence, int folder, const char *folder_path, const char *name, struct tpck_error *err);
/* How many bytes of records a pack has. */
int tpck_pack_raw(const char *path, uint64_t sequence, uint64_t *bytes, struct tpck_error *err);
/* Whether a pack in a file can be read; its segment as a file at `to`, or NULL: nowhere. */
int tpck_pack_check(const char *path, uint64_t sequence, const char *to, struct tpck_error *err);

#endif
