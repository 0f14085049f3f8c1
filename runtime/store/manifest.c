/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests in memory, and all of a job's. */
#include "config.h"

#include "runtime/store/manifest_text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool tpck_member_index_fits(const struct tpck_member *member)
{
	const uint64_t most = TPCK_IMAGE_DATA_AT - TPCK_IMAGE_INDEX_AT;

	return member->rows <= most && member->tensors <= most && member->optimizers <= most && member->communicators <= most &&
	       member->peers <= most && tpck_member_index_bytes(member) <= most;
}

uint64_t tpck_member_index_bytes(const struct tpck_member *member)
{
	struct tpck_index_counts counts = {member->rows, member->tensors, member->optimizers, member->communicators, member->peers};

	return tpck_index_bytes(&counts);
}

void tpck_notes_take(struct tpck_notes *notes, const struct tpck_status *status)
{
	memset(notes, 0, sizeof *notes);
	notes->period = status->period;
	notes->optimizer_operations = status->optimizer_operations;
	notes->captured = status->captured;
	notes->skipped = status->skipped;
	notes->abandoned = status->abandoned;
	notes->iteration_ns = status->iteration_ns;
	notes->stall_ns_max = status->stall_ns_max;
	notes->stall_ns_sum = status->stall_ns_sum;
	notes->stall_count = status->stall_count;
	notes->stall_cpu_ns_max = status->stall_cpu_ns_max;
	notes->stall_cpu_ns_sum = status->stall_cpu_ns_sum;
	notes->submit_ns_max = status->submit_ns_max;
	notes->submit_ns_sum = status->submit_ns_sum;
	notes->submit_count = status->submit_count;
	notes->wait_ns_sum = status->wait_ns_sum;
	notes->sure_by_names = status->sure_by_names;
	notes->sure_by_pattern = status->sure_by_pattern;
	notes->by_uploads = status->by_uploads;
	memcpy(notes->class_blocks, status->class_blocks, sizeof notes->class_blocks);
	memcpy(notes->class_bytes, status->class_bytes, sizeof notes->class_bytes);
}

void tpck_manifest_free(struct tpck_manifest *manifest)
{
	if (!manifest)
		return;
	for (size_t m = 0; manifest->members && m < manifest->member_count; m++) {
		struct tpck_member *member = &manifest->members[m];

		for (size_t o = 0; member->objects && o < member->object_count; o++)
			tpck_object_clear(&member->objects[o]);
		free(member->objects);
		free(member->communicator);
		free(member->identity);
	}
	for (size_t i = 0; manifest->parts && i < manifest->part_count; i++)
		tpck_part_clear(&manifest->parts[i]);
	free(manifest->parts);
	free(manifest->part_of);
	free(manifest->identity);
	free(manifest->members);
	free(manifest->containers);
	free(manifest);
}

int tpck_manifest_container(struct tpck_manifest *manifest, const char *path, uint64_t bytes)
{
	struct tpck_container *grown;

	for (size_t i = 0; i < manifest->container_count; i++)
		if (strcmp(manifest->containers[i].path, path) == 0)
			return (int)i;
	if (strlen(path) >= sizeof grown->path)
		return -ENAMETOOLONG;
	grown = reallocarray(manifest->containers, manifest->container_count + 1, sizeof *grown);
	if (!grown)
		return -ENOMEM;
	manifest->containers = grown;
	grown = &grown[manifest->container_count];
	snprintf(grown->path, sizeof grown->path, "%s", path);
	grown->bytes = bytes;
	return (int)manifest->container_count++;
}

bool tpck_manifest_owns(const struct tpck_manifest *manifest, size_t container)
{
	char folder[64];
	size_t length;

	tpck_checkpoint_name_format(&manifest->point, folder, sizeof folder);
	length = strlen(folder);
	return strncmp(manifest->containers[container].path, folder, length) == 0 &&
	       manifest->containers[container].path[length] == '/';
}

uint64_t tpck_manifest_bytes(const struct tpck_manifest *manifest)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < manifest->part_count; i++)
		bytes += manifest->parts[i].bytes;
	for (size_t m = 0; !manifest->part_count && m < manifest->member_count; m++)
		for (size_t o = 0; o < manifest->members[m].object_count; o++)
			bytes += manifest->members[m].objects[o].bytes;
	return bytes;
}

const struct tpck_member *tpck_manifest_member(const struct tpck_manifest *manifest, uint32_t rank,
					       uint32_t ordinal)
{
	for (size_t m = 0; m < manifest->member_count; m++)
		if (manifest->members[m].rank == rank && manifest->members[m].ordinal == ordinal)
			return &manifest->members[m];
	return NULL;
}

static void put_range(struct tpck_ranks *ranks)
{
	size_t room = sizeof ranks->text - ranks->used;
	int length = snprintf(ranks->text + ranks->used, room, ranks->first == ranks->last ? "%s%u" : "%s%u-%u",
			      ranks->used ? ", " : "", ranks->first, ranks->last);

	/* Six bytes are kept for ", ...". */
	if (ranks->cut || length < 0 || (size_t)length + 6 > room) {
		ranks->text[ranks->used] = '\0';
		ranks->cut = true;
	} else {
		ranks->used += (size_t)length;
	}
}

void tpck_ranks_add(struct tpck_ranks *ranks, uint32_t first, uint32_t last)
{
	if (ranks->any && first <= (uint64_t)ranks->last + 1) {
		ranks->last = last > ranks->last ? last : ranks->last;
		return;
	}
	if (ranks->any)
		put_range(ranks);
	ranks->any = true;
	ranks->first = first;
	ranks->last = last;
}

const char *tpck_ranks_text(struct tpck_ranks *ranks)
{
	if (ranks->any)
		put_range(ranks);
	if (ranks->cut)
		snprintf(ranks->text + ranks->used, sizeof ranks->text - ranks->used, ", ...");
	ranks->any = false;
	return ranks->text;
}

int tpck_manifest_ranks(struct tpck_manifest *manifest, struct tpck_ranks *missing, uint32_t *twice)
{
	uint64_t next = 0;
	bool lacks = false;

	if (manifest->part_count)
		return tpck_parts_ranks(manifest, missing, twice);
	for (size_t m = 0; m < manifest->member_count; m++) {
		uint32_t rank = manifest->members[m].rank;

		if (rank < next || rank >= manifest->world) {
			*twice = rank;
			return -EBADMSG;
		}
		if (rank > next) {
			tpck_ranks_add(missing, (uint32_t)next, rank - 1);
			lacks = true;
		}
		next = (uint64_t)rank + 1;
	}
	if (next < manifest->world) {
		tpck_ranks_add(missing, (uint32_t)next, manifest->world - 1);
		lacks = true;
	}
	return lacks ? -EAGAIN : 0;
}

/* A checkpoint of some of its ranks is none. */
static int check_ranks(struct tpck_manifest *manifest, const char *where, struct tpck_error *err)
{
	struct tpck_ranks missing = {0};
	uint32_t twice;
	int rc = tpck_manifest_ranks(manifest, &missing, &twice);

	if (rc == -EAGAIN)
		return tpck_error_set(err, EBADMSG, "manifest %s lacks ranks %s of %u", where, tpck_ranks_text(&missing),
				      manifest->world);
	if (rc == -ENOMEM)
		return tpck_error_set(err, ENOMEM, "reading manifest %s", where);
	return rc ? tpck_error_set(err, EBADMSG, "manifest %s has a rank %u too many, of %u", where, twice, manifest->world) : 0;
}

int tpck_manifest_load(struct tpck_manifest **manifest, struct tpck_tier *tier,
		       const struct tpck_point *point, struct tpck_error *err)
{
	char folder[64], path[96], where[TPCK_PATH_MAX];
	struct tpck_manifest *loaded;
	char *text = NULL;
	size_t size;
	int rc;

	tpck_checkpoint_name_format(point, folder, sizeof folder);
	snprintf(path, sizeof path, "%s/" TPCK_MANIFEST, folder);
	rc = tier->operations->get_text(tier, path, 1 << 30, &text, &size, err);
	if (rc)
		return rc;
	snprintf(where, sizeof where, "%.900s/%s", tier->root, path);
	rc = tpck_manifest_parse_published(&loaded, text, size, where, err);
	free(text);
	if (rc)
		return rc;
	if (loaded->part_count && (rc = tpck_parts_settle(loaded, err))) {
		tpck_manifest_free(loaded);
		return rc;
	}
	if (tpck_point_compare(&loaded->point, point) != 0) {
		tpck_manifest_free(loaded);
		return tpck_error_set(err, EBADMSG, "manifest %s is another checkpoint's", where);
	}
	rc = check_ranks(loaded, where, err);
	if (rc) {
		tpck_manifest_free(loaded);
		return rc;
	}
	*manifest = loaded;
	return 0;
}

struct listing {
	struct tpck_point *points;
	size_t count;
};

static int collect(void *context, const char *name)
{
	struct listing *listing = context;
	struct tpck_point point, *grown;

	if (tpck_checkpoint_name_parse(name, &point))
		return 0;
	grown = reallocarray(listing->points, listing->count + 1, sizeof *grown);
	if (!grown)
		return -ENOMEM;
	listing->points = grown;
	listing->points[listing->count++] = point;
	return 0;
}

static int by_age(const void *a, const void *b)
{
	return tpck_point_compare(a, b);
}

int tpck_catalog_load(struct tpck_catalog *catalog, struct tpck_tier *tier, size_t *unreadable,
		      void (*bad)(void *context, const struct tpck_point *point, const struct tpck_error *err),
		      void *context, struct tpck_error *err)
{
	struct listing listing = {NULL, 0};
	int rc = tier->operations->list(tier, "", collect, &listing, err);

	memset(catalog, 0, sizeof *catalog);
	if (unreadable)
		*unreadable = 0;
	if (rc == 0 && listing.count) {
		catalog->manifests = calloc(listing.count, sizeof(struct tpck_manifest *));
		if (!catalog->manifests)
			rc = tpck_error_set(err, ENOMEM, "listing %s", tier->root);
		qsort(listing.points, listing.count, sizeof *listing.points, by_age);
	}
	for (size_t i = 0; rc == 0 && i < listing.count; i++) {
		struct tpck_error one = {0};
		int loaded = tpck_manifest_load(&catalog->manifests[catalog->count], tier, &listing.points[i], &one);

		if (loaded == 0) {
			catalog->count++;
		} else if (loaded != -ENOENT) {
			if (unreadable)
				(*unreadable)++;
			if (bad)
				bad(context, &listing.points[i], &one);
		}
	}
	free(listing.points);
	return rc;
}

void tpck_catalog_free(struct tpck_catalog *catalog)
{
	for (size_t i = 0; i < catalog->count; i++)
		tpck_manifest_free(catalog->manifests[i]);
	free(catalog->manifests);
	catalog->manifests = NULL;
	catalog->count = 0;
}
