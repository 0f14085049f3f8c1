/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the images of several ranks are of one cut: nothing was sent before it that is received behind it. */
#ifndef TPCK_RUNTIME_STORE_CUT_H
#define TPCK_RUNTIME_STORE_CUT_H

#include <stddef.h>

#include "runtime/base/error.h"
#include "runtime/store/memory_tier.h"

/* What a rank has counted: its image's communicators, and its peers by ascending communicator. */
struct tpck_cut_part {
	const struct tpck_image_communicator *communicators;
	const struct tpck_image_peer *peers;
	uint32_t communicator_count, peer_count;
};
/* That of an image which is whole and checked (tpck_image_check()), and stays as it is. */
struct tpck_cut_part tpck_cut_part(const struct tpck_image *image);

/*
 * One part for each rank of the job, in any order. Within each communicator, which all of its ranks must have, the
 * collectives must be as many and the same ones, and what one has sent another is what that one has received. 0, or -EINVAL
 * with one line on what does not match; -ENOMEM. A job without communicators matches.
 */
int tpck_cut_match(const struct tpck_cut_part *parts, size_t count, struct tpck_error *err);

#endif
