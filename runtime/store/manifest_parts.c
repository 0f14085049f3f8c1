/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints whose manifest names parts: what is known without their marks, and getting the rest from these. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/store/manifest_text.h"
#include "runtime/store/parts.h"

void tpck_part_mark(const struct tpck_part *part, char name[TPCK_MARK_NAME])
{
	snprintf(name, TPCK_MARK_NAME, TPCK_MARK_PREFIX "r%u.o%u", part->ranks[0].rank, part->ranks[0].ordinal);
}

void tpck_part_clear(struct tpck_part *part)
{
	for (size_t i = 0; i < part->older_count; i++)
		free(part->older[i]);
	free(part->older);
	free(part->ranks);
	memset(part, 0, sizeof *part);
}

const char *tpck_manifest_identity(const struct tpck_manifest *manifest)
{
	return manifest->identity ? manifest->identity : manifest->members[0].identity;
}

static const struct tpck_part_rank *find_rank(const struct tpck_manifest *manifest, uint32_t rank)
{
	const struct tpck_part *part = manifest->part_of && rank < manifest->world ? &manifest->parts[manifest->part_of[rank]] : NULL;

	for (size_t i = 0; part && i < part->rank_count; i++)
		if (part->ranks[i].rank == rank)
			return &part->ranks[i];
	return NULL;
}

bool tpck_manifest_is_of(const struct tpck_manifest *manifest, uint32_t rank, uint32_t ordinal, const char *identity)
{
	const struct tpck_member *member = tpck_manifest_member(manifest, rank, ordinal);
	struct tpck_identity_key key;

	if (member || !manifest->part_count)
		return member && strcmp(member->identity, identity) == 0;
	tpck_identity_key(identity, &key);
	return tpck_manifest_is_of_key(manifest, rank, ordinal, &key);
}

bool tpck_manifest_is_of_key(const struct tpck_manifest *manifest, uint32_t rank, uint32_t ordinal, const struct tpck_identity_key *key)
{
	const struct tpck_member *member = tpck_manifest_member(manifest, rank, ordinal);
	const struct tpck_part_rank *found;
	struct tpck_identity_key its;
	char id[TPCK_PROGRAM_ID];

	if (member || !manifest->part_count) {
		if (member)
			tpck_identity_key(member->identity, &its);
		return member && memcmp(its.digest, key->digest, sizeof its.digest) == 0;
	}
	found = find_rank(manifest, rank);
	snprintf(id, sizeof id, "%016" PRIx64, key->program);
	return found && found->ordinal == ordinal && strcmp(found->program, id) == 0;
}

bool tpck_manifest_resumable(const struct tpck_manifest *manifest)
{
	for (size_t i = 0; i < manifest->part_count; i++)
		if (!manifest->parts[i].resumable)
			return false;
	for (size_t m = 0; m < manifest->member_count; m++)
		if (!manifest->members[m].resumable)
			return false;
	return true;
}

/* ---- naming parts -------------------------------------------------------------------------- */

static int by_first_rank(const void *a, const void *b)
{
	const struct tpck_part *x = a, *y = b;

	return (x->ranks[0].rank > y->ranks[0].rank) - (x->ranks[0].rank < y->ranks[0].rank);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* What parts refer to, each once. */
static int add_older(struct tpck_manifest *manifest, size_t count)
{
	const char **all = calloc(count + 1, sizeof(char *));
	size_t n = 0;

	if (!all)
		return -ENOMEM;
	for (size_t i = 0; i < manifest->part_count; i++)
		for (size_t o = 0; o < manifest->parts[i].older_count; o++)
			all[n++] = manifest->parts[i].older[o];
	qsort(all, n, sizeof *all, by_text);
	for (size_t i = 0; i < n; i++) {
		struct tpck_container *container = &manifest->containers[manifest->container_count];

		if (i && strcmp(all[i], all[i - 1]) == 0)
			continue;
		snprintf(container->path, sizeof container->path, "%s", all[i]);
		manifest->container_count++;
	}
	free(all);
	return 0;
}

int tpck_parts_settle(struct tpck_manifest *manifest, struct tpck_error *err)
{
	size_t older = 0;
	char folder[64];

	qsort(manifest->parts, manifest->part_count, sizeof *manifest->parts, by_first_rank);
	for (size_t i = 0; i < manifest->part_count; i++)
		older += manifest->parts[i].older_count;
	manifest->containers = calloc(manifest->part_count + older, sizeof *manifest->containers);
	if (!manifest->containers)
		return tpck_error_set(err, ENOMEM, "reading a manifest");
	tpck_checkpoint_name_format(&manifest->point, folder, sizeof folder);
	for (size_t i = 0; i < manifest->part_count; i++) {
		struct tpck_container *own = &manifest->containers[i];
		const struct tpck_part *part = &manifest->parts[i];

		snprintf(own->path, sizeof own->path, "%s/data.%u", folder, part->ranks[0].rank);
		own->bytes = part->container_bytes;
	}
	manifest->container_count = manifest->part_count;
	return add_older(manifest, older) ? tpck_error_set(err, ENOMEM, "reading a manifest") : 0;
}

struct place {
	uint32_t rank, part;
};

static int by_rank(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	return (x->rank > y->rank) - (x->rank < y->rank);
}

static int check_places(const struct place *places, size_t count, uint32_t world, struct tpck_ranks *missing, uint32_t *twice)
{
	uint64_t next = 0;
	bool lacks = false;

	for (size_t i = 0; i <= count; i++) {
		uint64_t rank = i < count ? places[i].rank : world;

		if (i < count && (rank < next || rank >= world)) {
			*twice = (uint32_t)rank;
			return -EBADMSG;
		}
		if (rank > next) {
			tpck_ranks_add(missing, (uint32_t)next, (uint32_t)rank - 1);
			lacks = true;
		}
		next = rank + 1;
	}
	return lacks ? -EAGAIN : 0;
}

int tpck_parts_ranks(struct tpck_manifest *manifest, struct tpck_ranks *missing, uint32_t *twice)
{
	struct place *places;
	size_t count = 0, at = 0;
	int rc;

	for (size_t i = 0; i < manifest->part_count; i++)
		count += manifest->parts[i].rank_count;
	places = calloc(count + 1, sizeof *places);
	if (!places)
		return -ENOMEM;
	for (size_t i = 0; i < manifest->part_count; i++)
		for (size_t r = 0; r < manifest->parts[i].rank_count; r++)
			places[at++] = (struct place){manifest->parts[i].ranks[r].rank, (uint32_t)i};
	qsort(places, count, sizeof *places, by_rank);
	rc = check_places(places, count, manifest->world, missing, twice);
	free(manifest->part_of);
	manifest->part_of = rc ? NULL : calloc(count, sizeof *manifest->part_of);
	if (!rc && !manifest->part_of)
		rc = -ENOMEM;
	for (size_t i = 0; !rc && i < count; i++)
		manifest->part_of[i] = places[i].part;
	free(places);
	return rc;
}

int tpck_part_head(struct tpck_manifest **out, const struct tpck_manifest *part, const uint8_t digest[16], size_t size)
{
	struct tpck_manifest *head = calloc(1, sizeof *head);
	struct tpck_part *entry = head ? calloc(1, sizeof *entry) : NULL;
	bool good = entry != NULL;

	if (!head)
		return -ENOMEM;
	head->point = part->point;
	head->parent = part->parent;
	head->created_ns = part->created_ns;
	head->world = part->world;
	head->part = true;
	head->stored_bytes = part->stored_bytes;
	head->parts = entry;
	head->part_count = entry != NULL;
	if (good) {
		memcpy(entry->digest, digest, sizeof entry->digest);
		entry->size = size;
		entry->bytes = tpck_manifest_bytes(part);
		entry->stored_bytes = part->stored_bytes;
		entry->container_bytes = part->containers[0].bytes;
		entry->resumable = true;
		entry->ranks = calloc(part->member_count, sizeof *entry->ranks);
		entry->older = calloc(part->container_count, sizeof(char *));
		good = entry->ranks && entry->older;
	}
	for (size_t m = 0; good && m < part->member_count; m++) {
		const struct tpck_member *member = &part->members[m];
		struct tpck_part_rank *rank = &entry->ranks[entry->rank_count++];

		rank->rank = member->rank;
		rank->ordinal = member->ordinal;
		tpck_program_id(member->identity, rank->program);
		entry->resumable = entry->resumable && member->resumable;
		if (member->notes.iteration_ns > entry->iteration_ns)
			entry->iteration_ns = member->notes.iteration_ns;
	}
	for (size_t c = 1; good && c < part->container_count; c++) {
		entry->older[entry->older_count] = strdup(part->containers[c].path);
		good = entry->older[entry->older_count++] != NULL;
	}
	if (!good) {
		tpck_manifest_free(head);
		return -ENOMEM;
	}
	*out = head;
	return 0;
}

/* ---- what is in their marks ---------------------------------------------------------------- */

static int say_gone(struct tpck_tier *tier, const struct tpck_manifest *manifest, const struct tpck_part *part, const char *path,
		    struct tpck_error *err)
{
	struct tpck_ranks ranks = {0};

	for (size_t i = 0; i < part->rank_count; i++)
		tpck_ranks_add(&ranks, part->ranks[i].rank, part->ranks[i].rank);
	/* The manifest goes first where all of it is removed. */
	return tpck_error_set(err, tpck_published(tier, &manifest->point) ? EBADMSG : ENOENT, "mark %s/%s of ranks %s of %u is gone",
			      tier->root, path, tpck_ranks_text(&ranks), manifest->world);
}

static void mark_path(char *path, size_t room, const struct tpck_manifest *manifest, size_t i)
{
	char folder[64], name[TPCK_MARK_NAME];

	tpck_checkpoint_name_format(&manifest->point, folder, sizeof folder);
	tpck_part_mark(&manifest->parts[i], name);
	snprintf(path, room, "%s/%s", folder, name);
}

int tpck_part_text(char **text, size_t *size, struct tpck_tier *tier, const struct tpck_manifest *manifest, size_t i, struct tpck_error *err)
{
	char path[128];
	int rc;

	mark_path(path, sizeof path, manifest, i);
	rc = tier->operations->get_text(tier, path, 1 << 30, text, size, err);
	return rc == -ENOENT ? say_gone(tier, manifest, &manifest->parts[i], path, err) : rc;
}

int tpck_part_parse(struct tpck_manifest **out, const char *text, size_t size, struct tpck_tier *tier, const struct tpck_manifest *manifest,
		    size_t i, struct tpck_error *err)
{
	struct tpck_manifest *loaded;
	uint8_t digest[16];
	char path[128];
	int rc;

	mark_path(path, sizeof path, manifest, i);
	rc = tpck_mark_parse(&loaded, digest, tier, path, text, size, err);
	if (rc)
		return rc;
	if (memcmp(digest, manifest->parts[i].digest, sizeof digest) != 0 || tpck_point_compare(&loaded->point, &manifest->point) != 0) {
		tpck_manifest_free(loaded);
		return tpck_error_set(err, EBADMSG, "mark %s/%s is not the one that the manifest names", tier->root, path);
	}
	*out = loaded;
	return 0;
}

int tpck_manifest_part(struct tpck_manifest **out, struct tpck_tier *tier, const struct tpck_manifest *manifest, size_t i,
		       struct tpck_error *err)
{
	char *text = NULL;
	size_t size;
	int rc = tpck_part_text(&text, &size, tier, manifest, i, err);

	if (rc)
		return rc;
	rc = tpck_part_parse(out, text, size, tier, manifest, i, err);
	free(text);
	return rc;
}

/* Where each of the part's containers is in the whole. */
static int map_containers(struct tpck_manifest *whole, const struct tpck_manifest *part, uint32_t *map)
{
	for (size_t c = 0; c < part->container_count; c++) {
		const struct tpck_container *container = &part->containers[c];
		int index = tpck_manifest_container(whole, container->path, container->bytes);

		if (index < 0)
			return index;
		if (!whole->containers[index].bytes)
			whole->containers[index].bytes = container->bytes;
		if (whole->containers[index].bytes != container->bytes)
			return -EBADMSG;
		map[c] = (uint32_t)index;
	}
	return 0;
}

/* Moves the part's members over. */
static int take_members(struct tpck_manifest *whole, struct tpck_manifest *part)
{
	uint32_t *map = calloc(part->container_count, sizeof *map);
	struct tpck_member *grown = reallocarray(whole->members, whole->member_count + part->member_count, sizeof *grown);
	int rc;

	if (grown)
		whole->members = grown;
	rc = map && grown ? map_containers(whole, part, map) : -ENOMEM;
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
	}
	free(map);
	return rc;
}

int tpck_manifest_need(struct tpck_manifest *manifest, struct tpck_tier *tier, uint32_t rank, struct tpck_error *err)
{
	struct tpck_manifest *part;
	struct tpck_part *entry;
	int rc;

	if (!manifest->part_of || rank >= manifest->world)
		return 0;
	entry = &manifest->parts[manifest->part_of[rank]];
	if (entry->loaded)
		return 0;
	rc = tpck_manifest_part(&part, tier, manifest, manifest->part_of[rank], err);
	if (rc)
		return rc;
	rc = take_members(manifest, part);
	entry->loaded = !rc;
	tpck_manifest_free(part);
	return rc ? tpck_error_set(err, -rc, "reading the part of rank %u of step %llu", rank, (unsigned long long)manifest->point.step) : 0;
}
