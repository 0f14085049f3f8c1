/* SPDX-License-Identifier: Apache-2.0 */
/* Reading what nodes have marked. */
#include "config.h"

#include "runtime/store/parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool tpck_published(struct tpck_tier *tier, const struct tpck_point *point)
{
	char folder[64], path[128], *text;

	tpck_checkpoint_name_format(point, folder, sizeof folder);
	snprintf(path, sizeof path, "%s/" TPCK_MANIFEST, folder);
	if (tier->operations->get_text(tier, path, 1 << 30, &text, NULL, NULL))
		return false;
	free(text);
	return true;
}

int tpck_part_load(struct tpck_manifest **part, struct tpck_tier *tier, const char *path, struct tpck_error *err)
{
	char where[TPCK_PATH_MAX], *text;
	size_t size;
	int rc = tier->operations->get_text(tier, path, 1 << 30, &text, &size, err);

	if (rc)
		return rc;
	snprintf(where, sizeof where, "%.800s/%.200s", tier->root, path);
	rc = tpck_manifest_parse_part(part, text, size, where, err);
	free(text);
	return rc;
}

struct marks {
	char (*names)[64];
	size_t count;
};

static int gather_marks(void *context, const char *name)
{
	struct marks *marks = context;
	char (*grown)[64];

	if (strncmp(name, TPCK_MARK_PREFIX, strlen(TPCK_MARK_PREFIX)) != 0 || strstr(name, ".tmp.") || strlen(name) >= sizeof *grown)
		return 0;
	grown = reallocarray(marks->names, marks->count + 1, sizeof *grown);
	if (!grown)
		return -ENOMEM;
	marks->names = grown;
	strcpy(marks->names[marks->count++], name);
	return 0;
}

/* Whether a part's mark and container have the names that its first rank gives them. */
static bool is_at_its_place(const struct tpck_manifest *part, const struct tpck_point *point, const char *mark)
{
	const struct tpck_member *first = &part->members[0];
	char folder[64], name[128];

	snprintf(name, sizeof name, TPCK_MARK_PREFIX "r%u.o%u", first->rank, first->ordinal);
	if (tpck_point_compare(&part->point, point) != 0 || strcmp(name, mark) != 0 || !part->container_count)
		return false;
	tpck_checkpoint_name_format(point, folder, sizeof folder);
	snprintf(name, sizeof name, "%s/data.%u", folder, first->rank);
	if (strcmp(part->containers[0].path, name) != 0)
		return false;
	/* Its own, and those of checkpoints that were there before; no other part's. */
	for (size_t c = 1; c < part->container_count; c++)
		if (tpck_manifest_owns(part, c))
			return false;
	return true;
}

static int by_first_rank(const void *a, const void *b)
{
	const struct tpck_manifest *const *x = a, *const *y = b;
	const struct tpck_member *m = &(*x)->members[0], *n = &(*y)->members[0];

	if (m->rank != n->rank)
		return m->rank < n->rank ? -1 : 1;
	return m->ordinal < n->ordinal ? -1 : m->ordinal > n->ordinal;
}

int tpck_parts_load(struct tpck_catalog *parts, struct tpck_tier *tier, const struct tpck_point *point, bool lenient,
		    struct tpck_error *err)
{
	struct marks marks = {NULL, 0};
	char folder[64], path[160];
	int rc;

	memset(parts, 0, sizeof *parts);
	tpck_checkpoint_name_format(point, folder, sizeof folder);
	rc = tier->operations->list(tier, folder, gather_marks, &marks, err);
	if (!rc && marks.count) {
		parts->manifests = calloc(marks.count, sizeof(struct tpck_manifest *));
		rc = parts->manifests ? 0 : tpck_error_set(err, ENOMEM, "reading the parts of %s", folder);
	}
	for (size_t i = 0; !rc && i < marks.count; i++) {
		struct tpck_manifest *part = NULL;
		struct tpck_error one = {0};

		snprintf(path, sizeof path, "%s/%s", folder, marks.names[i]);
		rc = tpck_part_load(&part, tier, path, &one);
		if (!rc && !is_at_its_place(part, point, marks.names[i])) {
			tpck_manifest_free(part);
			part = NULL;
			rc = tpck_error_set(&one, EBADMSG, "mark %s/%s is another part's", tier->root, path);
		}
		if (part)
			parts->manifests[parts->count++] = part;
		else if (lenient)
			rc = 0;
		else if (err)
			*err = one;
	}
	free(marks.names);
	if (rc)
		tpck_catalog_free(parts);
	else if (parts->count)
		qsort(parts->manifests, parts->count, sizeof(struct tpck_manifest *), by_first_rank);
	return rc;
}

static int is_sign(void *context, const char *name)
{
	(void)context;
	return strncmp(name, TPCK_PART_PREFIX, strlen(TPCK_PART_PREFIX)) == 0;
}

bool tpck_parts_begun(struct tpck_tier *tier, const struct tpck_point *point)
{
	char folder[64];

	tpck_checkpoint_name_format(point, folder, sizeof folder);
	return tier->operations->list(tier, folder, is_sign, NULL, NULL) == 1;
}
