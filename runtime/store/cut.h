/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the images of several ranks are of one cut: nothing was sent before it that is received behind it. What ranks have
 * counted is put together in any order and any number of turns, on one node or for all of them, and takes no more room
 * than what differs: ranks next to each other that counted the same are one row, and a transfer that both sides know of is none.
 */
#ifndef TPCK_RUNTIME_STORE_CUT_H
#define TPCK_RUNTIME_STORE_CUT_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/store/memory_tier.h"

/* Ranks [begin, end) of a communicator of `size`, all of which have made these collectives. */
struct tpck_counted {
	uint64_t id, collectives, order;
	uint32_t size, begin, end, reserved;
};
/* What one rank of a communicator has sent another, as either of them says. */
struct tpck_transferred {
	uint64_t id, sent, received;
	uint32_t from, to;
};

struct tpck_counts {
	struct tpck_counted *counted;
	struct tpck_transferred *transferred;
	size_t counted_count, transferred_count, counted_room, transferred_room;
};

void tpck_counts_free(struct tpck_counts *counts);
/* What a rank has counted: of an image which is whole and checked (tpck_image_check()). 0 or -ENOMEM. */
int tpck_counts_add_image(struct tpck_counts *counts, const struct tpck_image *image);
int tpck_counts_add(struct tpck_counts *counts, const struct tpck_counted *counted, size_t counted_count,
		    const struct tpck_transferred *transferred, size_t transferred_count);
/* Rows into one that can be. */
void tpck_counts_merge(struct tpck_counts *counts);
/*
 * All ranks of the job have been added. Within each communicator, which all of its ranks must have, the collectives must be
 * as many and the same ones, and what one has sent another is what that one has received. 0, or -EINVAL with one line on what
 * does not match. A job without communicators matches. Merges.
 */
int tpck_counts_match(struct tpck_counts *counts, struct tpck_error *err);

#endif
