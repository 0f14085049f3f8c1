/* SPDX-License-Identifier: Apache-2.0 */
/* Retention: which checkpoints stay, and taking the others away without breaking references. */
#ifndef TPCK_RUNTIME_STORE_RETENTION_H
#define TPCK_RUNTIME_STORE_RETENTION_H

#include "runtime/store/manifest.h"
#include "runtime/store/tier.h"

struct tpck_retention {
	uint64_t keep;      /* last so many of each program; 0 counts as 1 */
	uint64_t milestone; /* every step that is a multiple of it stays; 0: none */
	/* Whether a folder without a manifest may be somebody's work in progress. May be NULL. Parts of the greatest
	 * generation always may be: other nodes write them. But what its generation has gone beyond is remains. */
	bool (*in_progress)(void *context, const struct tpck_point *point);
	/* Whether a checkpoint may still be offered; those that may not count for nothing in `keep`
	 * once one that may exists. May be NULL. */
	bool (*offerable)(void *context, const struct tpck_manifest *manifest);
	/* Whether a checkpoint stays whatever the rules say. May be NULL. */
	bool (*spared)(void *context, const struct tpck_manifest *manifest);
	void *context;
};

/* Removes what the rules do not keep, and unpublished remains. Containers that a kept checkpoint, or a
 * part that may still be joined, refers to stay. Where a manifest cannot be read nothing at all is removed (-EPROTO, -EBADMSG, one
 * line): what it refers to is not known. The caller holds the tier's lock. */
int tpck_retention_apply(struct tpck_tier *tier, const struct tpck_retention *retention, struct tpck_error *err);

/* Removes what publications that never finished have left: folders without a manifest, temporary
 * files. Nothing that a published checkpoint refers to, and no parts of the greatest generation that was given out, which
 * other nodes may be writing. The caller holds the tier's lock. */
int tpck_retention_clear(struct tpck_tier *tier, struct tpck_error *err);

/* Removes one checkpoint. -EPERM for the newest of its program unless `force`. */
int tpck_retention_remove(struct tpck_tier *tier, const struct tpck_point *point, bool force,
			  struct tpck_error *err);

#endif
