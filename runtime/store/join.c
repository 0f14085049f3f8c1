/* SPDX-License-Identifier: Apache-2.0 */
/* Joining the parts of several nodes: the manifest names their marks and follows from these alone, so that whoever joins comes
 * to the same. Of each mark only its head is read. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/store/manifest_text.h"
#include "runtime/store/parallel.h"
#include "runtime/store/parts.h"
#include "runtime/store/publish.h"
#include "runtime/store/verify.h"

static int check_fit(const struct tpck_manifest *first, const struct tpck_manifest *head, uint32_t world, struct tpck_error *err)
{
	uint64_t step = head->point.step;
	uint32_t rank = head->parts[0].ranks[0].rank;

	if (head->world != world)
		return tpck_error_set(err, EBADMSG, "the part of rank %u of step %" PRIu64 " is of %u ranks, not of %u", rank, step,
				      head->world, world);
	if (tpck_point_compare(&head->parent, &first->parent) != 0)
		return tpck_error_set(err, EBADMSG, "the parts of ranks %u and %u of step %" PRIu64 " have other parents",
				      first->parts[0].ranks[0].rank, rank, step);
	return 0;
}

/* Moves what the heads say over. */
static int take_heads(struct tpck_manifest *whole, struct tpck_catalog *heads, struct tpck_error *err)
{
	whole->parts = calloc(heads->count + 1, sizeof *whole->parts);
	if (!whole->parts)
		return tpck_error_set(err, ENOMEM, "joining the parts of step %" PRIu64, whole->point.step);
	for (size_t i = 0; i < heads->count; i++) {
		struct tpck_manifest *head = heads->manifests[i];

		whole->parts[whole->part_count++] = head->parts[0];
		head->part_count = 0;
		whole->stored_bytes += head->stored_bytes;
		/* The newest part's, not the time of whoever joins. */
		if (head->created_ns > whole->created_ns)
			whole->created_ns = head->created_ns;
	}
	return whole->part_count ? tpck_parts_settle(whole, err) : 0;
}

static int merge(struct tpck_manifest *whole, struct tpck_catalog *heads, struct tpck_error *err)
{
	struct tpck_ranks missing = {0};
	uint32_t twice = 0;
	int rc = 0;

	for (size_t i = 0; !rc && i < heads->count; i++)
		rc = check_fit(heads->manifests[0], heads->manifests[i], whole->world, err);
	if (heads->count)
		whole->parent = heads->manifests[0]->parent;
	if (!rc)
		rc = take_heads(whole, heads, err);
	if (rc)
		return rc;
	rc = tpck_manifest_ranks(whole, &missing, &twice);
	if (rc == -EAGAIN)
		return tpck_error_set(err, EAGAIN, "step %" PRIu64 " lacks the parts of ranks %s of %u", whole->point.step,
				      tpck_ranks_text(&missing), whole->world);
	if (rc == -ENOMEM)
		return tpck_error_set(err, ENOMEM, "joining the parts of step %" PRIu64, whole->point.step);
	return rc ? tpck_error_set(err, EBADMSG, "step %" PRIu64 " has a rank %u too many, of %u", whole->point.step, twice, whole->world)
		  : 0;
}

struct look {
	struct tpck_tier *tier;
	const struct tpck_manifest *whole;
};

static int look_at_container(void *context, size_t i, uint8_t *buffer, struct tpck_error *err)
{
	const struct look *look = context;
	const struct tpck_container *container = &look->whole->containers[i];
	int rc = container->bytes ? look->tier->operations->get(look->tier, container->path, container->bytes - 1, buffer, 1, err) : 0;

	/* For whose it is. */
	if (rc == -ENOENT)
		rc = tpck_verify_container(look->tier, look->whole, i, err);
	if (rc == -ENOENT) {
		err->code = EBADMSG;
		rc = -EBADMSG;
	}
	return rc;
}

/* Each node has read its own bytes back, and has seen what it refers to, which nobody removes since then. What may have
 * changed is that something was removed or cut off by hand. */
static int check_containers(struct tpck_tier *tier, const struct tpck_manifest *whole, struct tpck_error *err)
{
	struct look look = {tier, whole};

	return tpck_parallel_small(whole->part_count, look_at_container, &look, err);
}

/* The first part is read whole: by its first rank's identity programs are told apart. */
static int take_identity(struct tpck_tier *tier, struct tpck_manifest *whole, struct tpck_error *err)
{
	int rc = tpck_manifest_need(whole, tier, whole->parts[0].ranks[0].rank, err);

	if (rc)
		return rc;
	whole->identity = strdup(whole->members[0].identity);
	return whole->identity ? 0 : tpck_error_set(err, ENOMEM, "joining the parts of step %" PRIu64, whole->point.step);
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
	struct tpck_catalog heads;
	int rc;

	if (tpck_published(tier, point))
		return -EEXIST;
	whole = calloc(1, sizeof *whole);
	if (!whole)
		return tpck_error_set(err, ENOMEM, "joining the parts of step %" PRIu64, point->step);
	whole->point = *point;
	whole->world = world;
	rc = tpck_heads_load(&heads, tier, point, false, err);
	if (!rc) {
		rc = merge(whole, &heads, err);
		tpck_catalog_free(&heads);
	}
	if (!rc)
		rc = check_containers(tier, whole, err);
	if (!rc)
		rc = take_identity(tier, whole, err);
	if (!rc)
		rc = commit(tier, whole, permitted, context, err);
	if (rc)
		tpck_manifest_free(whole);
	else
		*out = whole;
	return rc;
}
