/* SPDX-License-Identifier: Apache-2.0 */
/* Reading what nodes have marked. */
#include "config.h"

#include "runtime/store/parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/digest.h"
#include "runtime/store/manifest_text.h"
#include "runtime/store/parallel.h"

/* A head is some hundred bytes of a mark, more only where many ranks or older containers are named. */
enum { HEAD_READ = 4096 };

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

/* ---- a mark -------------------------------------------------------------------------------- */

int tpck_mark_format(const struct tpck_manifest *part, char **text, struct tpck_error *err)
{
	struct tpck_manifest *head = NULL;
	char *own = NULL, *begin = NULL;
	size_t own_size, begin_size;
	uint8_t digest[16];
	int rc = tpck_manifest_format(part, &own, &own_size, err);

	if (!rc) {
		tpck_digest128(own, own_size, digest);
		if (tpck_part_head(&head, part, digest, own_size))
			rc = tpck_error_set(err, ENOMEM, "writing a mark");
	}
	if (!rc)
		rc = tpck_manifest_format(head, &begin, &begin_size, err);
	if (!rc) {
		*text = malloc(begin_size + own_size + 1);
		if (!*text)
			rc = tpck_error_set(err, ENOMEM, "writing a mark");
	}
	if (!rc) {
		memcpy(*text, begin, begin_size);
		memcpy(*text + begin_size, own, own_size);
		(*text)[begin_size + own_size] = '\0';
	}
	tpck_manifest_free(head);
	free(begin);
	free(own);
	return rc;
}

/* A part's container has the name that its first rank gives it. */
static bool has_own_first(const struct tpck_manifest *part)
{
	char folder[64], path[96];

	tpck_checkpoint_name_format(&part->point, folder, sizeof folder);
	snprintf(path, sizeof path, "%s/data.%u", folder, part->members[0].rank);
	return part->container_count && strcmp(part->containers[0].path, path) == 0;
}

/* Head and part must be what the one follows from the other. */
static int read_mark(struct tpck_manifest **out, uint8_t digest[16], const char *text, size_t size, const char *where, struct tpck_error *err)
{
	struct tpck_manifest *head, *part = NULL;
	char *again = NULL;
	size_t used = 0;
	int rc = tpck_parts_text_parse(&head, true, text, size, where, &used, err);

	if (rc)
		return rc;
	tpck_digest128(text + used, size - used, digest);
	if (size - used != head->parts[0].size || memcmp(digest, head->parts[0].digest, 16) != 0)
		rc = tpck_error_set(err, EBADMSG, "mark %s does not match its digest", where);
	if (!rc)
		rc = tpck_manifest_parse_part(&part, text + used, size - used, where, err);
	if (!rc && !has_own_first(part))
		rc = tpck_error_set(err, EBADMSG, "mark %s does not name its own container first", where);
	if (!rc)
		rc = tpck_mark_format(part, &again, err);
	if (!rc && (strlen(again) != size || memcmp(again, text, size) != 0))
		rc = tpck_error_set(err, EBADMSG, "mark %s begins with what is not its part's", where);
	free(again);
	tpck_manifest_free(head);
	if (rc)
		tpck_manifest_free(part);
	else
		*out = part;
	return rc;
}

int tpck_mark_parse(struct tpck_manifest **part, uint8_t digest[16], struct tpck_tier *tier, const char *path, const char *text, size_t size,
		    struct tpck_error *err)
{
	char where[TPCK_PATH_MAX];

	snprintf(where, sizeof where, "%.800s/%.200s", tier->root, path);
	return read_mark(part, digest, text, size, where, err);
}

int tpck_mark_load(struct tpck_manifest **part, uint8_t digest[16], struct tpck_tier *tier, const char *path, struct tpck_error *err)
{
	char *text;
	size_t size;
	int rc = tier->operations->get_text(tier, path, 1 << 30, &text, &size, err);

	if (rc)
		return rc;
	rc = tpck_mark_parse(part, digest, tier, path, text, size, err);
	free(text);
	return rc;
}

int tpck_part_load(struct tpck_manifest **part, struct tpck_tier *tier, const char *path, struct tpck_error *err)
{
	uint8_t digest[16];

	return tpck_mark_load(part, digest, tier, path, err);
}

/* ---- all marks of a step --------------------------------------------------------------------- */

struct marks {
	char (*names)[64];
	size_t count;
};

static int gather_marks(void *context, const char *name)
{
	struct marks *marks = context;
	char (*grown)[64] = marks->names;

	if (strncmp(name, TPCK_MARK_PREFIX, strlen(TPCK_MARK_PREFIX)) != 0 || strstr(name, ".tmp.") || strlen(name) >= sizeof *grown)
		return 0;
	/* A power of two each time. */
	if ((marks->count & (marks->count + 1)) == 0)
		grown = reallocarray(marks->names, 2 * (marks->count + 1), sizeof *grown);
	if (!grown)
		return -ENOMEM;
	marks->names = grown;
	strcpy(marks->names[marks->count++], name);
	return 0;
}

/* Whether a mark has the name that its first rank gives it. */
static bool is_at_its_place(const struct tpck_manifest *head, const struct tpck_point *point, const char *mark)
{
	char name[TPCK_MARK_NAME];

	tpck_part_mark(&head->parts[0], name);
	return tpck_point_compare(&head->point, point) == 0 && strcmp(name, mark) == 0;
}

/* Of a mark no more than it takes. */
static int load_head(struct tpck_manifest **head, struct tpck_tier *tier, const char *path, struct tpck_error *err)
{
	char where[TPCK_PATH_MAX], begin[HEAD_READ], *text;
	size_t size, used;
	int rc;

	snprintf(where, sizeof where, "%.800s/%.200s", tier->root, path);
	if (tier->operations->get(tier, path, 0, begin, sizeof begin, NULL) == 0 &&
	    tpck_parts_text_parse(head, true, begin, sizeof begin, where, &used, NULL) == 0)
		return 0;
	rc = tier->operations->get_text(tier, path, 1 << 30, &text, &size, err);
	if (rc)
		return rc;
	rc = tpck_parts_text_parse(head, true, text, size, where, &used, err);
	free(text);
	return rc;
}

struct heads {
	struct tpck_tier *tier;
	const struct tpck_point *point;
	char folder[64];
	const struct marks *marks;
	struct tpck_manifest **head; /* by mark */
	bool lenient;
};

static int look_at_head(void *context, size_t i, uint8_t *buffer, struct tpck_error *err)
{
	const struct heads *heads = context;
	struct tpck_manifest *head = NULL;
	char path[160];
	int rc;

	(void)buffer;
	snprintf(path, sizeof path, "%s/%s", heads->folder, heads->marks->names[i]);
	rc = load_head(&head, heads->tier, path, err);
	if (!rc && !is_at_its_place(head, heads->point, heads->marks->names[i])) {
		tpck_manifest_free(head);
		head = NULL;
		rc = tpck_error_set(err, EBADMSG, "mark %s/%s is another part's", heads->tier->root, path);
	}
	heads->head[i] = head;
	/* A list may be older than a removal: what is gone is no part. */
	return rc == -ENOENT || (rc && heads->lenient) ? 0 : rc;
}

static int by_first_rank(const void *a, const void *b)
{
	const struct tpck_manifest *const *x = a, *const *y = b;
	const struct tpck_part_rank *m = &(*x)->parts[0].ranks[0], *n = &(*y)->parts[0].ranks[0];

	if (m->rank != n->rank)
		return m->rank < n->rank ? -1 : 1;
	return m->ordinal < n->ordinal ? -1 : m->ordinal > n->ordinal;
}

int tpck_heads_load(struct tpck_catalog *catalog, struct tpck_tier *tier, const struct tpck_point *point, bool lenient,
		    struct tpck_error *err)
{
	struct marks marks = {NULL, 0};
	struct heads heads = {.tier = tier, .point = point, .marks = &marks, .lenient = lenient};
	int rc;

	memset(catalog, 0, sizeof *catalog);
	tpck_checkpoint_name_format(point, heads.folder, sizeof heads.folder);
	rc = tier->operations->list(tier, heads.folder, gather_marks, &marks, err);
	if (!rc && marks.count) {
		heads.head = calloc(marks.count, sizeof(struct tpck_manifest *));
		rc = heads.head ? 0 : tpck_error_set(err, ENOMEM, "reading the parts of %s", heads.folder);
	}
	if (!rc)
		rc = tpck_parallel_small(marks.count, look_at_head, &heads, err);
	catalog->manifests = heads.head;
	for (size_t i = 0; heads.head && i < marks.count; i++)
		if (heads.head[i])
			catalog->manifests[catalog->count++] = heads.head[i];
	free(marks.names);
	if (rc)
		tpck_catalog_free(catalog);
	else if (catalog->count)
		qsort(catalog->manifests, catalog->count, sizeof(struct tpck_manifest *), by_first_rank);
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
