/* SPDX-License-Identifier: Apache-2.0 */
/* Publishing: the images and logs of all ranks become a durable checkpoint, or nothing changes. */
#ifndef TPCK_RUNTIME_STORE_PUBLISH_H
#define TPCK_RUNTIME_STORE_PUBLISH_H

#include <stdbool.h>

#include "runtime/store/manifest.h"
#include "runtime/store/memory_tier.h"
#include "runtime/store/tier.h"

/* One rank's part. */
struct tpck_share {
	const char *session_path;           /* where the log segments are */
	const char *image_path;             /* for messages */
	struct tpck_image image;            /* committed, pinned by the caller, mapped writable */
	const uint8_t *const *data;         /* [chunks] where each chunk of its data lies; NULL: in the image */
	const char *identity;
	uint32_t rank, ordinal;
	struct tpck_notes notes;
};

struct tpck_publication {
	struct tpck_tier *tier;
	struct tpck_share *shares;          /* by ascending rank; their images are of one generation and step */
	size_t share_count;                 /* at least one; all ranks but for tpck_publish_part */
	uint32_t world;
	struct tpck_point parent;           /* generation 0: none */
	const struct tpck_manifest *base;   /* what unchanged chunks may refer to, or NULL */
	/* Asked right before committing; false: the timeline was fenced meanwhile. May be NULL. */
	bool (*permitted)(void *context, const struct tpck_point *point);
	void *context;
	uint64_t *write_ns;                 /* time to the container's sync; may be NULL */
};

/*
 * Writes the container, syncs, marks, commits the manifest if there is none, reads everything new
 * back from the disk, and swaps LAST_GOOD. *manifest is what is stored.
 * -EEXIST: already published (no error text, no manifest). -ECANCELED: not permitted.
 * -EBADMSG: an image does not hold what it said. -EIO: the disk did not keep it; it was set aside.
 * On any other failure what was written is removed again; what was good before stays as it is.
 */
int tpck_publish(const struct tpck_publication *publication, struct tpck_manifest **manifest,
		 struct tpck_error *err);

/*
 * Publishes one node's ranks, which become visible only by tpck_publish_join: writes their container, syncs, reads it back,
 * and then marks it with the manifest of these ranks. *part is what the mark says. A part that an agent before this one has
 * marked, and that is whole, is taken as it is. The caller holds the tier (TPCK_HOLD_ADDS): parts of several nodes are written
 * at the same time.
 * Failures are those of tpck_publish; what was written of this part is removed again, other nodes' parts stay.
 */
int tpck_publish_part(const struct tpck_publication *publication, struct tpck_manifest **part, struct tpck_error *err);

/*
 * Makes a checkpoint of the parts of all nodes: commits its manifest if there is none, and swaps LAST_GOOD. Whoever finds all
 * parts there may call it, several at once: the manifest is the same, and one of them is told 0. The caller holds
 * TPCK_HOLD_CHANGES, so that nobody writes a part anew meanwhile.
 * -EAGAIN: parts of some ranks, which the text names, are not there yet. -EEXIST: published already (no error text).
 * -ECANCELED: not permitted. -EBADMSG: the parts do not fit together, or one's container is gone. Parts stay whatever
 * happens; tpck_retention_apply knows when they are remains. *manifest names the parts (tpck_manifest_need).
 */
int tpck_publish_join(struct tpck_tier *tier, const struct tpck_point *point, uint32_t world,
		      bool (*permitted)(void *context, const struct tpck_point *point), void *context,
		      struct tpck_manifest **manifest, struct tpck_error *err);

/* What the manifest would be of an image that goes elsewhere, with every chunk's digest and no place of its own in the
 * store: tier, base, permitted and write_ns are not used. The images may be held only, where the process takes none back. */
int tpck_publish_describe(const struct tpck_publication *publication, struct tpck_manifest **manifest,
			  struct tpck_error *err);

#endif
