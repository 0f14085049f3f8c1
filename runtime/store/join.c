/* SPDX-License-Identifier: Apache-2.0 */
/* Joining the parts of several nodes: the manifest follows from the marks alone, so that whoever joins comes to the same. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/store/parts.h"
#include "runtime/store/publish.h"
#include "runtime/store/verify.h"

static int by_rank(const void *a, const void *b)
{
	const struct tpck_member *x = a, *y = b;

	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	return x->ordinal < y->ordinal ? -1 : x->ordinal > y->ordinal;
}

/* Where each of the part's containers is in the whole. */
static int map_containers(struct tpck_manifest *whole, const struct tpck_manifest *part, uint32_t *map, struct tpck_error *err)
{
	for (size_t c = 0; c < part->container_count; c++) {
		const struct tpck_container *container = &part->containers[c];
		int index = tpck_manifest_container(whole, container->path, container->bytes);

		if (index < 0)
			return tpck_error_set(err, -index, "joining the parts of step %" PRIu64, whole->point.step);
		if (whole->containers[index].bytes != container->bytes)
			return tpck_error_set(err, EBADMSG, "parts of step %" PRIu64 " differ in how large %s is", whole->point.step,
					      container->path);
		map[c] = (uint32_t)index;
	}
	return 0;
}

static int check_fit(const struct tpck_manifest *first, const struct tpck_manifest *part, uint32_t world, struct tpck_error *err)
{
	uint64_t step = part->point.step;
	uint32_t rank = part->members[0].rank;

	if (part->world != world)
		return tpck_error_set(err, EBADMSG, "the part of rank %u of step %" PRIu64 " is of %u ranks, not of %u", rank, step,
				      part->world, world);
	if (tpck_point_compare(&part->parent, &first->parent) != 0)
		return tpck_error_set(err, EBADMSG, "the parts of ranks %u and %u of step %" PRIu64 " have other parents",
				      first->members[0].rank, rank, step);
	return 0;
}

/* Moves the part's members over. */
static int add_part(struct tpck_manifest *whole, struct tpck_manifest *part, struct tpck_error *err)
{
	uint32_t *map = calloc(part->container_count + 1, sizeof *map);
	struct tpck_member *grown;
	int rc;

	grown = reallocarray(whole->members, whole->member_count + part->member_count, sizeof *grown);
	if (grown)
		whole->members = grown;
	rc = map && grown ? map_containers(whole, part, map, err)
			  : tpck_error_set(err, ENOMEM, "joining the parts of step %" PRIu64, whole->point.step);
	for (size_t m = 0; !rc && m < part->member_count; m++) {
		struct tpck_member *member = &part->members[m];

		for (size_t o = 0; o < member->object_count; o++)
			for (size_t i = 0; i < member->objects[o].count; i++)
				member->objects[o].chunks[i].container = map[member->objects[o].chunks[i].container];
	}
	if (!rc) {
		memcpy(&whole->members[whole->member_count], part->members, part->member_count * sizeof *part->members);
		whole->member_count += part->member_count;
		part->member_count = 0;
		whole->stored_bytes += part->stored_bytes;
		/* The newest part's, not the time of whoever joins. */
		if (part->created_ns > whole->created_ns)
			whole->created_ns = part->created_ns;
	}
	free(map);
	return rc;
}

static int merge(struct tpck_manifest *whole, struct tpck_catalog *parts, struct tpck_error *err)
{
	struct tpck_ranks missing = {0};
	uint32_t twice = 0;
	int rc = 0;

	for (size_t i = 0; !rc && i < parts->count; i++)
		rc = check_fit(parts->manifests[0], parts->manifests[i], whole->world, err);
	/* Each part's own container first, so that the first ones are this checkpoint's. */
	for (size_t i = 0; !rc && i < parts->count; i++)
		if (tpck_manifest_container(whole, parts->manifests[i]->containers[0].path, parts->manifests[i]->containers[0].bytes) < 0)
			rc = tpck_error_set(err, ENOMEM, "joining the parts of step %" PRIu64, whole->point.step);
	if (parts->count)
		whole->parent = parts->manifests[0]->parent;
	for (size_t i = 0; !rc && i < parts->count; i++)
		rc = add_part(whole, parts->manifests[i], err);
	if (rc)
		return rc;
	if (whole->member_count)
		qsort(whole->members, whole->member_count, sizeof *whole->members, by_rank);
	rc = tpck_manifest_ranks(whole, &missing, &twice);
	if (rc == -EAGAIN)
		return tpck_error_set(err, EAGAIN, "step %" PRIu64 " lacks the parts of ranks %s of %u", whole->point.step,
				      tpck_ranks_text(&missing), whole->world);
	return rc ? tpck_error_set(err, EBADMSG, "step %" PRIu64 " has a rank %u too many, of %u", whole->point.step, twice, whole->world)
		  : 0;
}

/* Each node has read its own bytes back. What may have changed since is that something was removed or cut off. */
static int check_containers(struct tpck_tier *tier, const struct tpck_manifest *whole, struct tpck_error *err)
{
	int rc = 0;

	for (size_t c = 0; !rc && c < whole->container_count; c++) {
		const struct tpck_container *container = &whole->containers[c];
		uint8_t last;

		rc = tpck_verify_container(tier, whole, c, err);
		if (!rc && container->bytes)
			rc = tier->operations->get(tier, container->path, container->bytes - 1, &last, 1, err);
	}
	if (rc == -ENOENT) {
		if (err)
			err->code = EBADMSG;
		rc = -EBADMSG;
	}
	return rc;
}

/* A later step may have been joined before this one. */
static int swap_last_good(struct tpck_tier *tier, const struct tpck_point *point, const char *folder, struct tpck_error *err)
{
	struct tpck_point good;
	char text[80], *old;
	bool later = false;

	if (tier->operations->get_text(tier, TPCK_LAST_GOOD, 256, &old, NULL, NULL) == 0) {
		old[strcspn(old, "\n")] = '\0';
		later = tpck_checkpoint_name_parse(old, &good) == 0 && tpck_point_compare(&good, point) > 0 &&
			tpck_published(tier, &good);
		free(old);
	}
	snprintf(text, sizeof text, "%s\n", folder);
	return later ? 0 : tier->operations->mark(tier, TPCK_LAST_GOOD, text, err);
}

static int commit(struct tpck_tier *tier, const struct tpck_manifest *whole, bool (*permitted)(void *, const struct tpck_point *),
		  void *context, struct tpck_error *err)
{
	char folder[64], path[128], *text = NULL;
	size_t size;
	int rc = tpck_manifest_format(whole, &text, &size, err);

	tpck_checkpoint_name_format(&whole->point, folder, sizeof folder);
	if (!rc && permitted && !permitted(context, &whole->point))
		rc = tpck_error_set(err, ECANCELED, "publishing step %" PRIu64 " of a timeline that was left", whole->point.step);
	if (!rc) {
		snprintf(path, sizeof path, "%s/" TPCK_MANIFEST, folder);
		rc = tier->operations->commit_if_absent(tier, path, text, size, err);
	}
	free(text);
	return rc ? rc : swap_last_good(tier, &whole->point, folder, err);
}

int tpck_publish_join(struct tpck_tier *tier, const struct tpck_point *point, uint32_t world,
		      bool (*permitted)(void *context, const struct tpck_point *point), void *context,
		      struct tpck_manifest **out, struct tpck_error *err)
{
	struct tpck_manifest *whole;
	struct tpck_catalog parts;
	int rc;

	if (tpck_published(tier, point))
		return -EEXIST;
	whole = calloc(1, sizeof *whole);
	if (!whole)
		return tpck_error_set(err, ENOMEM, "joining the parts of step %" PRIu64, point->step);
	whole->point = *point;
	whole->world = world;
	rc = tpck_parts_load(&parts, tier, point, false, err);
	if (!rc) {
		rc = merge(whole, &parts, err);
		tpck_catalog_free(&parts);
	}
	if (!rc)
		rc = check_containers(tier, whole, err);
	if (!rc)
		rc = commit(tier, whole, permitted, context, err);
	if (rc)
		tpck_manifest_free(whole);
	else
		*out = whole;
	return rc;
}
