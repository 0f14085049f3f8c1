/* SPDX-License-Identifier: Apache-2.0 */
/* Verifying durable checkpoints. */
#include "config.h"

#include "runtime/base/lock_order.h"
#include "runtime/store/verify.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/digest.h"
#include "runtime/store/container.h"
#include "runtime/store/parallel.h"

int tpck_verify_chunk(struct tpck_tier *tier, const struct tpck_manifest *manifest,
		      const struct tpck_object *object, size_t i, uint8_t *buffer, struct tpck_error *err)
{
	const struct tpck_chunk *chunk = &object->chunks[i];
	const char *path = manifest->containers[chunk->container].path;
	uint8_t digest[16];
	int rc = tier->operations->get(tier, path, chunk->offset, buffer, chunk->length, err);

	if (rc)
		return rc;
	tpck_digest128(buffer, chunk->length, digest);
	if (memcmp(digest, chunk->digest, sizeof digest) != 0)
		return tpck_error_set(err, EBADMSG,
				      "%s/%s: chunk %zu of %s (offset %" PRIu64 ") does not match its digest",
				      tier->root, path, i, object->name, chunk->offset);
	return 0;
}

static bool member_uses(const struct tpck_member *member, size_t container)
{
	for (size_t o = 0; o < member->object_count; o++)
		for (size_t i = 0; i < member->objects[o].count; i++)
			if (member->objects[o].chunks[i].container == container)
				return true;
	return false;
}

static bool part_names(const struct tpck_manifest *manifest, size_t i, size_t container)
{
	for (size_t o = 0; o < manifest->parts[i].older_count; o++)
		if (strcmp(manifest->parts[i].older[o], manifest->containers[container].path) == 0)
			return true;
	return i == container;
}

/* Whose shards went with a container that is not there. */
static int say_missing(struct tpck_tier *tier, const struct tpck_manifest *manifest, size_t container, struct tpck_error *err)
{
	const char *path = manifest->containers[container].path;
	struct tpck_ranks ranks = {0};

	for (size_t i = 0; i < manifest->part_count; i++)
		if (part_names(manifest, i, container))
			for (size_t r = 0; r < manifest->parts[i].rank_count; r++)
				tpck_ranks_add(&ranks, manifest->parts[i].ranks[r].rank, manifest->parts[i].ranks[r].rank);
	for (size_t m = 0; !manifest->part_count && m < manifest->member_count; m++)
		if (member_uses(&manifest->members[m], container))
			tpck_ranks_add(&ranks, manifest->members[m].rank, manifest->members[m].rank);
	return tpck_error_set(err, ENOENT, "%s/%s, where shards of ranks %s of %u are", tier->root, path, tpck_ranks_text(&ranks),
			      manifest->world);
}

int tpck_verify_member(struct tpck_tier *tier, const struct tpck_manifest *manifest, const struct tpck_member *member, struct tpck_error *err)
{
	int rc = 0;

	/* Of a checkpoint in parts each node has only what it needs. */
	for (size_t c = 0; !rc && c < manifest->container_count; c++)
		if (!manifest->part_count || member_uses(member, c))
			rc = tpck_verify_container(tier, manifest, c, err);
	return rc;
}

int tpck_verify_container(struct tpck_tier *tier, const struct tpck_manifest *manifest, size_t container, struct tpck_error *err)
{
	int rc = tpck_container_check(tier, manifest->containers[container].path, err);

	return rc == -ENOENT ? say_missing(tier, manifest, container, err) : rc;
}

/* What is to be looked at: a container's header, or a chunk. */
struct item {
	const struct tpck_object *object; /* NULL: the header of container `i` */
	size_t i;
};

struct visit {
	struct tpck_tier *tier;
	const struct tpck_manifest *manifest;
	bool only_new;
	const struct tpck_catalog *verified; /* may be NULL */
	void (*fault)(void *context, const struct tpck_error *err); /* NULL: stop at the first */
	void *context;
	struct item *items;
	size_t count;
	struct tpck_error error; /* of a part */
	pthread_mutex_t lock; /* of what follows */
	long faults;
};

static bool has_chunk(const struct tpck_manifest *other, const char *container, const char *name, size_t i,
		      const struct tpck_chunk *chunk)
{
	for (size_t m = 0; m < other->member_count; m++) {
		const struct tpck_chunk *same =
			tpck_object_chunk(other->members[m].objects, other->members[m].object_count, name, i);

		if (same && same->offset == chunk->offset && same->length == chunk->length &&
		    memcmp(same->digest, chunk->digest, sizeof same->digest) == 0 &&
		    strcmp(other->containers[same->container].path, container) == 0)
			return true;
	}
	return false;
}

static bool known_good(const struct visit *visit, const struct tpck_object *object, size_t i)
{
	const struct tpck_chunk *chunk = &object->chunks[i];
	const char *container = visit->manifest->containers[chunk->container].path;

	for (size_t c = 0; visit->verified && c < visit->verified->count; c++)
		if (has_chunk(visit->verified->manifests[c], container, object->name, i, chunk))
			return true;
	return false;
}

static int list_items(struct visit *visit)
{
	const struct tpck_manifest *manifest = visit->manifest;
	size_t room = manifest->container_count;

	for (size_t m = 0; m < manifest->member_count; m++)
		for (size_t o = 0; o < manifest->members[m].object_count; o++)
			room += manifest->members[m].objects[o].count;
	visit->items = calloc(room + 1, sizeof *visit->items);
	if (!visit->items)
		return -ENOMEM;
	for (size_t i = 0; i < manifest->container_count; i++)
		if (!visit->only_new || tpck_manifest_owns(manifest, i))
			visit->items[visit->count++] = (struct item){NULL, i};
	for (size_t m = 0; m < manifest->member_count; m++) {
		const struct tpck_member *member = &manifest->members[m];

		for (size_t o = 0; o < member->object_count; o++)
			for (size_t i = 0; i < member->objects[o].count; i++)
				if ((!visit->only_new || tpck_manifest_owns(manifest, member->objects[o].chunks[i].container)) &&
				    !known_good(visit, &member->objects[o], i))
					visit->items[visit->count++] = (struct item){&member->objects[o], i};
	}
	return 0;
}

static int look(void *context, size_t i, uint8_t *buffer, struct tpck_error *err)
{
	struct visit *visit = context;
	const struct item *item = &visit->items[i];
	int rc = item->object ? tpck_verify_chunk(visit->tier, visit->manifest, item->object, item->i, buffer, err)
			      : tpck_verify_container(visit->tier, visit->manifest, item->i, err);

	/* A container that is not there is one fault, with all that was in it. */
	if (rc == -ENOENT && item->object) {
		if (visit->fault)
			return 0;
		return say_missing(visit->tier, visit->manifest, item->object->chunks[item->i].container, err);
	}
	if (!rc || !visit->fault)
		return rc;
	pthread_mutex_lock(&visit->lock);
	visit->faults++;
	visit->fault(visit->context, err);
	pthread_mutex_unlock(&visit->lock);
	return 0;
}

static int visit_one(struct visit *visit, struct tpck_error *err)
{
	int rc = list_items(visit);

	if (rc)
		return tpck_error_set(err, ENOMEM, "verifying a checkpoint");
	pthread_mutex_init(&visit->lock, NULL);
	rc = tpck_parallel(visit->count, look, visit, err);
	pthread_mutex_destroy(&visit->lock);
	free(visit->items);
	visit->items = NULL;
	visit->count = 0;
	return rc;
}

static int visit_part(void *context, size_t i, const struct tpck_manifest *part, const struct tpck_error *why)
{
	struct visit *visit = context;

	(void)i;
	if (part) {
		visit->manifest = part;
		return visit_one(visit, &visit->error);
	}
	visit->error = *why;
	if (!visit->fault || why->code == ENOMEM)
		return -why->code;
	visit->faults++;
	visit->fault(visit->context, why);
	return 0;
}

/* Parts one after another, so that few nodes' are in memory. */
static int visit_all(struct visit *visit, struct tpck_error *err)
{
	const struct tpck_manifest *manifest = visit->manifest;
	int rc;

	if (!manifest->part_count)
		return visit_one(visit, err);
	rc = tpck_manifest_each_part(visit->tier, manifest, visit_part, visit);
	visit->manifest = manifest;
	if (rc && !visit->error.code)
		return tpck_error_set(err, -rc, "verifying a checkpoint");
	if (rc && err)
		*err = visit->error;
	return rc;
}

int tpck_verify(struct tpck_tier *tier, const struct tpck_manifest *manifest, struct tpck_error *err)
{
	struct visit visit = {.tier = tier, .manifest = manifest};

	return visit_all(&visit, err);
}

int tpck_verify_new(struct tpck_tier *tier, const struct tpck_manifest *manifest, struct tpck_error *err)
{
	struct visit visit = {.tier = tier, .manifest = manifest, .only_new = true};

	return visit_all(&visit, err);
}

int tpck_verify_unlike(struct tpck_tier *tier, const struct tpck_manifest *manifest, const struct tpck_catalog *verified,
		       struct tpck_error *err)
{
	struct visit visit = {.tier = tier, .manifest = manifest, .verified = verified};

	return visit_all(&visit, err);
}

long tpck_verify_each(struct tpck_tier *tier, const struct tpck_manifest *manifest,
		      void (*fault)(void *context, const struct tpck_error *err), void *context)
{
	struct visit visit = {.tier = tier, .manifest = manifest, .fault = fault, .context = context};
	int rc = visit_all(&visit, NULL);

	return rc ? rc : visit.faults;
}
