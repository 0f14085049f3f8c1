/* SPDX-License-Identifier: Apache-2.0 */
/* Copying a published checkpoint from one tier to another. */
#ifndef TPCK_RUNTIME_STORE_COPY_H
#define TPCK_RUNTIME_STORE_COPY_H

#include <stdbool.h>

#include "runtime/store/manifest.h"
#include "runtime/store/tier.h"

struct tpck_copy {
	struct tpck_tier *from, *to;
	const struct tpck_manifest *manifest; /* in `from` */
	/* Asked before each piece and before committing; false: it is not wanted any more. May be NULL. */
	bool (*permitted)(void *context, const struct tpck_point *point);
	void *context;
	uint64_t copied_bytes; /* answer */
};

/*
 * Copies the containers that no checkpoint in `to` refers to yet, reads back from there what is new, every chunk
 * against its digest, then commits the manifest if there is none, and swaps LAST_GOOD. The caller holds the lock of
 * `to` and sees to it that the checkpoint is not removed from `from` meanwhile.
 * -EEXIST: it is there already (no error text). -ENOTUNIQ: another one of that name is. -ECANCELED: not permitted. -EBADMSG: the bytes are not what the
 * manifest says; it was not committed, and *bad_source (may be NULL) says whether they already were not in `from`.
 * What a failure leaves are remains (tpck_retention_clear).
 */
int tpck_copy(struct tpck_copy *copy, bool *bad_source, struct tpck_error *err);

#endif
