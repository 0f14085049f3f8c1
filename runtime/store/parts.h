/* SPDX-License-Identifier: Apache-2.0 */
/* Parts: what each node has written of a checkpoint that is not published yet. */
#ifndef TPCK_RUNTIME_STORE_PARTS_H
#define TPCK_RUNTIME_STORE_PARTS_H

#include <stdbool.h>

#include "runtime/store/manifest.h"
#include "runtime/store/tier.h"

#define TPCK_MARK_PREFIX "mark." /* a part is whole and synced; holds its manifest */
#define TPCK_PART_PREFIX "part." /* one is being written, or was */

/* Whether the checkpoint has a manifest, good or not. */
bool tpck_published(struct tpck_tier *tier, const struct tpck_point *point);

/* The part that a mark tells of. path is the mark's in the tier. */
int tpck_part_load(struct tpck_manifest **part, struct tpck_tier *tier, const char *path, struct tpck_error *err);
/* The same, with the digest of the part's own text, by which manifests name it. */
int tpck_mark_load(struct tpck_manifest **part, uint8_t digest[16], struct tpck_tier *tier, const char *path, struct tpck_error *err);
/* Of the text that was read there. */
int tpck_mark_parse(struct tpck_manifest **part, uint8_t digest[16], struct tpck_tier *tier, const char *path, const char *text, size_t size,
		    struct tpck_error *err);
/* The text of the mark of a manifest's i-th part, malloc'd, and what it says, as tpck_manifest_part() gives it. */
int tpck_part_text(char **text, size_t *size, struct tpck_tier *tier, const struct tpck_manifest *manifest, size_t i, struct tpck_error *err);
int tpck_part_parse(struct tpck_manifest **out, const char *text, size_t size, struct tpck_tier *tier, const struct tpck_manifest *manifest,
		    size_t i, struct tpck_error *err);
/* The text of a part's mark, malloc'd. */
int tpck_mark_format(const struct tpck_manifest *part, char **text, struct tpck_error *err);

/* The heads of all marks of a step, by ascending first rank: manifests of one part each, without members and without a list of
 * containers. One that cannot be read, or is another step's or rank's, is an error (-EBADMSG), or left out where `lenient`. */
int tpck_heads_load(struct tpck_catalog *heads, struct tpck_tier *tier, const struct tpck_point *point, bool lenient,
		    struct tpck_error *err);

/* Whether somebody has begun to write a part into the step's folder. */
bool tpck_parts_begun(struct tpck_tier *tier, const struct tpck_point *point);

#endif
