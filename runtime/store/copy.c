/* SPDX-License-Identifier: Apache-2.0 */
/* Container by container, and nothing counts before it was read back. */
#include "config.h"

#include "runtime/store/copy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/store/parallel.h"
#include "runtime/store/parts.h"
#include "runtime/store/verify.h"

struct reading {
	const struct tpck_copy *copy;
	const struct tpck_container *container;
	uint64_t at;
};

static int left_behind(const struct tpck_copy *copy, struct tpck_error *err)
{
	return tpck_error_set(err, ECANCELED, "copying step %" PRIu64 ", which is not wanted any more",
			      copy->manifest->point.step);
}

static int next_piece(void *context, uint8_t *buffer, uint32_t *bytes, struct tpck_error *err)
{
	struct reading *reading = context;
	const struct tpck_copy *copy = reading->copy;
	uint64_t left = reading->container->bytes - reading->at;
	int rc;

	*bytes = left < TPCK_CHUNK_BYTES ? (uint32_t)left : TPCK_CHUNK_BYTES;
	if (!*bytes)
		return 0;
	if (copy->permitted && !copy->permitted(copy->context, &copy->manifest->point))
		return left_behind(copy, err);
	rc = copy->from->operations->get(copy->from, reading->container->path, reading->at, buffer, *bytes, err);
	reading->at += *bytes;
	return rc;
}

/* ---- containers ---------------------------------------------------------------------------- */

static bool refers(const struct tpck_catalog *catalog, const char *path)
{
	for (size_t i = 0; i < catalog->count; i++)
		for (size_t c = 0; c < catalog->manifests[i]->container_count; c++)
			if (strcmp(catalog->manifests[i]->containers[c].path, path) == 0)
				return true;
	return false;
}

/* Where it is in the list; its length for one that is not. */
static size_t container_of(const struct tpck_manifest *manifest, const char *path)
{
	size_t c = 0;

	while (c < manifest->container_count && strcmp(manifest->containers[c].path, path) != 0)
		c++;
	return c;
}

/* Those of the checkpoint, or of one part of it. `done` (may be NULL): which of the checkpoint's were copied with parts before. */
static int copy_containers(struct tpck_copy *copy, const struct tpck_manifest *of, bool *done, const struct tpck_catalog *there,
			   struct tpck_error *err)
{
	int rc = 0;

	for (size_t c = 0; !rc && c < of->container_count; c++) {
		const struct tpck_container *container = &of->containers[c];
		bool *before = done ? &done[container_of(copy->manifest, container->path)] : NULL;
		struct reading reading = {.copy = copy, .container = container};
		const struct tpck_source source = {.next = next_piece, .context = &reading};
		uint64_t bytes = 0;

		/* What is there and nobody refers to may be half of one. */
		if (refers(there, container->path) || (before && *before))
			continue;
		if (before)
			*before = true;
		rc = copy->to->operations->put(copy->to, container->path, &source, &bytes, err);
		if (!rc && bytes != container->bytes)
			rc = tpck_error_set(err, EBADMSG, "container %s/%s has %" PRIu64 " bytes, the manifest says %" PRIu64,
					    copy->to->root, container->path, bytes, container->bytes);
		copy->copied_bytes += bytes;
	}
	return rc;
}

/* ---- parts --------------------------------------------------------------------------------- */

/* What is known there of the part's ranks. Only the first `borrowed` are others'. */
struct known {
	struct tpck_catalog catalog;
	size_t borrowed;
};

static void forget(struct known *known)
{
	for (size_t i = known->borrowed; i < known->catalog.count; i++)
		tpck_manifest_free(known->catalog.manifests[i]);
	free(known->catalog.manifests);
}

/* Parts of checkpoints that are there, which are read at the same time. */
struct wanted {
	struct tpck_tier *tier;
	struct other {
		const struct tpck_manifest *of;
		uint32_t part;
	} *others;
	size_t count;
	struct tpck_manifest **found;
};

static int read_other(void *context, size_t i, uint8_t *buffer, struct tpck_error *err)
{
	struct wanted *wanted = context;

	(void)buffer;
	(void)err;
	/* What one that cannot be read has is compared as if it were not there. */
	if (tpck_manifest_part(&wanted->found[i], wanted->tier, wanted->others[i].of, wanted->others[i].part, NULL))
		wanted->found[i] = NULL;
	return 0;
}

/* Which parts of it have these ranks. */
static void want(struct wanted *wanted, const struct tpck_manifest *other, const struct tpck_manifest *part)
{
	uint32_t last = UINT32_MAX;

	for (size_t m = 0; other->part_count && m < part->member_count; m++) {
		uint32_t rank = part->members[m].rank;

		if (rank >= other->world || other->part_of[rank] == last)
			continue;
		last = other->part_of[rank];
		wanted->others[wanted->count++] = (struct other){other, last};
	}
}

static int recall(struct known *known, struct tpck_tier *tier, const struct tpck_catalog *there, const struct tpck_manifest *part)
{
	size_t room = there->count * (1 + part->member_count) + 1;
	struct wanted wanted = {.tier = tier};

	memset(known, 0, sizeof *known);
	known->catalog.manifests = calloc(room, sizeof(struct tpck_manifest *));
	wanted.others = calloc(room, sizeof *wanted.others);
	if (!known->catalog.manifests || !wanted.others) {
		free(known->catalog.manifests);
		free(wanted.others);
		return -ENOMEM;
	}
	for (size_t i = 0; i < there->count; i++)
		if (!there->manifests[i]->part_count)
			known->catalog.manifests[known->catalog.count++] = there->manifests[i];
	known->borrowed = known->catalog.count;
	for (size_t i = 0; i < there->count; i++)
		want(&wanted, there->manifests[i], part);
	wanted.found = &known->catalog.manifests[known->borrowed];
	tpck_parallel_small(wanted.count, read_other, &wanted, NULL);
	for (size_t i = 0; i < wanted.count; i++)
		if (wanted.found[i])
			known->catalog.manifests[known->catalog.count++] = wanted.found[i];
	free(wanted.others);
	return 0;
}

/* What all parts' copies have in common. */
struct parts {
	struct tpck_copy *copy;
	const struct tpck_catalog *there;
	const char *folder;
	bool *done; /* by container of the checkpoint */
	struct tpck_error *err;
};

static int copy_part(void *context, size_t i, const struct tpck_manifest *part, const struct tpck_error *why)
{
	struct parts *parts = context;
	struct tpck_copy *copy = parts->copy;
	char name[TPCK_MARK_NAME], path[128], *mark = NULL;
	struct known known;
	int rc;

	if (!part) {
		*parts->err = *why;
		return -why->code;
	}
	rc = copy_containers(copy, part, parts->done, parts->there, parts->err);
	if (!rc && recall(&known, copy->to, parts->there, part))
		rc = tpck_error_set(parts->err, ENOMEM, "copying %s", parts->folder);
	else if (!rc) {
		rc = tpck_verify_unlike(copy->to, part, &known.catalog, parts->err);
		forget(&known);
	}
	if (!rc)
		rc = tpck_mark_format(part, &mark, parts->err);
	if (!rc) {
		tpck_part_mark(&copy->manifest->parts[i], name);
		snprintf(path, sizeof path, "%s/%s", parts->folder, name);
		rc = copy->to->operations->mark(copy->to, path, mark, parts->err);
	}
	free(mark);
	return rc;
}

/* One after another, so that few are in memory. */
static int copy_parts(struct tpck_copy *copy, const struct tpck_catalog *there, const char *folder, struct tpck_error *err)
{
	struct tpck_error own = {0};
	struct parts parts = {copy, there, folder, calloc(copy->manifest->container_count + 1, sizeof(bool)), err ? err : &own};
	int rc = -ENOMEM;

	parts.err->code = 0;
	if (parts.done)
		rc = tpck_manifest_each_part(copy->from, copy->manifest, copy_part, &parts);
	free(parts.done);
	return rc && !parts.err->code ? tpck_error_set(err, -rc, "copying %s", folder) : rc;
}

/* ---- the whole ----------------------------------------------------------------------------- */

static int commit(const struct tpck_copy *copy, const char *folder, struct tpck_error *err)
{
	const struct tpck_manifest *manifest = copy->manifest;
	char path[128], text[80], *manifest_text = NULL;
	size_t size;
	int rc = 0;

	snprintf(text, sizeof text, "%" PRIu64 " %" PRIu64 "\n", manifest->point.generation, manifest->point.step);
	for (size_t m = 0; !rc && !manifest->part_count && m < manifest->member_count; m++) {
		snprintf(path, sizeof path, "%s/mark.r%u.o%u", folder, manifest->members[m].rank, manifest->members[m].ordinal);
		rc = copy->to->operations->mark(copy->to, path, text, err);
	}
	if (!rc)
		rc = tpck_manifest_format(manifest, &manifest_text, &size, err);
	if (!rc && copy->permitted && !copy->permitted(copy->context, &manifest->point))
		rc = left_behind(copy, err);
	if (!rc) {
		snprintf(path, sizeof path, "%s/" TPCK_MANIFEST, folder);
		rc = copy->to->operations->commit_if_absent(copy->to, path, manifest_text, size, err);
	}
	free(manifest_text);
	if (!rc) {
		snprintf(text, sizeof text, "%s\n", folder);
		rc = copy->to->operations->mark(copy->to, TPCK_LAST_GOOD, text, err);
	}
	return rc;
}

int tpck_copy(struct tpck_copy *copy, bool *bad_source, struct tpck_error *err)
{
	struct tpck_catalog there;
	char folder[64];
	int rc = tpck_catalog_load(&there, copy->to, NULL, NULL, NULL, err);

	if (bad_source)
		*bad_source = false;
	copy->copied_bytes = 0;
	if (rc)
		return rc;
	tpck_checkpoint_name_format(&copy->manifest->point, folder, sizeof folder);
	for (size_t i = 0; i < there.count && !rc; i++)
		if (tpck_point_compare(&there.manifests[i]->point, &copy->manifest->point) == 0)
			rc = there.manifests[i]->created_ns == copy->manifest->created_ns
				     ? -EEXIST
				     : tpck_error_set(err, ENOTUNIQ, "%s has another checkpoint that is called %s", copy->to->root,
						      folder);
	if (rc) {
		tpck_catalog_free(&there);
		return rc;
	}
	if (copy->manifest->part_count)
		rc = copy_parts(copy, &there, folder, err);
	else
		rc = copy_containers(copy, copy->manifest, NULL, &there, err);
	if (!rc && !copy->manifest->part_count)
		rc = tpck_verify_unlike(copy->to, copy->manifest, &there, err);
	if (!rc)
		rc = commit(copy, folder, err);
	if (rc == -EBADMSG && bad_source)
		*bad_source = tpck_verify(copy->from, copy->manifest, NULL) == -EBADMSG;
	tpck_catalog_free(&there);
	return rc;
}
