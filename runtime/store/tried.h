/* SPDX-License-Identifier: Apache-2.0 */
/* What a start that had gone on from a snapshot, and left none of its own, started and said to others behind that: whoever goes on from there does it again. */
#ifndef TPCK_RUNTIME_STORE_TRIED_H
#define TPCK_RUNTIME_STORE_TRIED_H

#include <stdbool.h>

#include "runtime/store/memory_tier.h"
#include "runtime/wire/segment.h"

/* A file of it has no more bytes. */
enum { TPCK_TRIED_MOST = 4 << 20 };

/* Adds to `to`, which has room for that, and whose header says how much it has, the records of programs and connections that a segment of `size` bytes has from
 * `at` on: enough of each for its names. False: not all are there. */
bool tpck_tried_add(struct tpck_log_header *to, const void *segment, uint64_t size, uint64_t at);
/* The file `path` gets what a session has behind the cut, in its log and on the way there; there is none where that is nothing. 0, or -errno; -ENOENT: the
 * path's folder is not there. */
int tpck_tried_write(const char *session, const struct tpck_cut *cut, uint64_t generation, const char *path, struct tpck_error *err);

#endif
