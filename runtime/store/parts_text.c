/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests that name the parts of several nodes, as text: a line for all, and a line for each part. Lines are read and
 * written one at a time, so that nothing but the text and what is kept of it is in memory. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/digest.h"
#include "runtime/store/manifest_text.h"

/* ---- writing ------------------------------------------------------------------------------ */

/* Rows of [first rank, how many, their ordinal]. */
static json_object *ranks_json(const struct tpck_part *part)
{
	json_object *rows = json_object_new_array();

	for (size_t i = 0, n; i < part->rank_count; i += n) {
		const struct tpck_part_rank *first = &part->ranks[i];
		json_object *row = json_object_new_array();

		n = 1;
		while (i + n < part->rank_count && first[n].rank == first->rank + n && first[n].ordinal == first->ordinal)
			n++;
		json_object_array_add(row, json_object_new_uint64(first->rank));
		json_object_array_add(row, json_object_new_uint64(n));
		json_object_array_add(row, json_object_new_uint64(first->ordinal));
		json_object_array_add(rows, row);
	}
	return rows;
}

static json_object *part_json(const struct tpck_part *part)
{
	json_object *json = json_object_new_object(), *programs = json_object_new_array(), *older = json_object_new_array();
	char mark[TPCK_MARK_NAME], digest[33];

	tpck_part_mark(part, mark);
	tpck_digest128_text(part->digest, digest);
	tpck_json_add_text(json, "mark", mark);
	tpck_json_add_text(json, "digest", digest);
	tpck_json_add_u64(json, "size", part->size);
	json_object_object_add(json, "ranks", ranks_json(part));
	for (size_t i = 0; i < part->rank_count; i++)
		json_object_array_add(programs, json_object_new_string(part->ranks[i].program));
	json_object_object_add(json, "programs", programs);
	json_object_object_add(json, "resumable", json_object_new_boolean(part->resumable));
	tpck_json_add_u64(json, "iteration_ns", part->iteration_ns);
	tpck_json_add_u64(json, "bytes", part->bytes);
	tpck_json_add_u64(json, "stored_bytes", part->stored_bytes);
	tpck_json_add_u64(json, "container_bytes", part->container_bytes);
	for (size_t i = 0; i < part->older_count; i++)
		json_object_array_add(older, json_object_new_string(part->older[i]));
	json_object_object_add(json, "older", older);
	return json;
}

/* Writes the line and frees the object. */
static bool put_line(FILE *out, json_object *json)
{
	size_t size = 0;
	const char *line = tpck_json_line(json, &size);
	bool good = line && fwrite(line, 1, size, out) == size && fputc('\n', out) != EOF;

	json_object_put(json);
	return good;
}

int tpck_parts_text_format(const struct tpck_manifest *manifest, char **text, size_t *size, struct tpck_error *err)
{
	json_object *head = tpck_json_head(manifest, TPCK_MANIFEST_PARTS_FORMAT);
	char *made = NULL;
	FILE *out = open_memstream(&made, size);
	bool good;

	if (!out) {
		json_object_put(head);
		return tpck_error_set(err, ENOMEM, "writing a manifest");
	}
	tpck_json_add_u64(head, "parts", manifest->part_count);
	if (manifest->identity)
		tpck_json_add_text(head, "identity", manifest->identity);
	good = put_line(out, head);
	for (size_t i = 0; i < manifest->part_count; i++)
		good = put_line(out, part_json(&manifest->parts[i])) && good;
	if (fclose(out) || !good) {
		free(made);
		return tpck_error_set(err, ENOMEM, "writing a manifest");
	}
	tpck_text_seal(made, *size);
	*text = made;
	return 0;
}

/* ---- reading ------------------------------------------------------------------------------ */

/* `most`: no more than there are programs for. */
static bool add_ranks(json_object *row, uint32_t world, size_t most, struct tpck_part *part)
{
	uint64_t number[3];
	struct tpck_part_rank *grown;

	if (!json_object_is_type(row, json_type_array) || json_object_array_length(row) != 3)
		return false;
	for (size_t i = 0; i < 3; i++) {
		json_object *value = json_object_array_get_idx(row, i);

		if (!json_object_is_type(value, json_type_int) || json_object_get_int64(value) < 0)
			return false;
		number[i] = json_object_get_uint64(value);
	}
	if (number[0] >= world || number[1] == 0 || number[1] > world - number[0] || number[1] > most - part->rank_count ||
	    number[2] > UINT32_MAX || (part->rank_count && part->ranks[part->rank_count - 1].rank >= number[0]))
		return false;
	grown = reallocarray(part->ranks, part->rank_count + number[1], sizeof *grown);
	if (!grown)
		return false;
	part->ranks = grown;
	for (uint64_t i = 0; i < number[1]; i++)
		grown[part->rank_count++] = (struct tpck_part_rank){(uint32_t)(number[0] + i), (uint32_t)number[2], ""};
	return true;
}

static bool read_programs(json_object *programs, struct tpck_part *part)
{
	if (json_object_array_length(programs) != part->rank_count)
		return false;
	for (size_t i = 0; i < part->rank_count; i++) {
		json_object *id = json_object_array_get_idx(programs, i);
		const char *text = json_object_is_type(id, json_type_string) ? json_object_get_string(id) : "";

		if (strlen(text) != TPCK_PROGRAM_ID - 1 || strspn(text, "0123456789abcdef") != TPCK_PROGRAM_ID - 1)
			return false;
		strcpy(part->ranks[i].program, text);
	}
	return true;
}

/* No part refers to another one of the same checkpoint. */
static bool read_older(json_object *older, const struct tpck_point *point, struct tpck_part *part)
{
	struct tpck_container container;
	char folder[64];

	tpck_checkpoint_name_format(point, folder, sizeof folder);
	strcat(folder, "/");
	part->older = calloc(json_object_array_length(older) + 1, sizeof(char *));
	for (size_t i = 0; part->older && i < json_object_array_length(older); i++) {
		json_object *path = json_object_array_get_idx(older, i);
		const char *text = json_object_is_type(path, json_type_string) ? json_object_get_string(path) : "";

		if (strlen(text) >= sizeof container.path || !tpck_container_path_valid(text) || strncmp(text, folder, strlen(folder)) == 0)
			return false;
		part->older[i] = strdup(text);
		if (!part->older[i])
			return false;
		part->older_count++;
	}
	return part->older != NULL;
}

static bool read_part(json_object *json, const struct tpck_manifest *manifest, struct tpck_part *part)
{
	json_object *digest, *ranks, *programs, *resumable, *older;
	char mark[TPCK_MARK_NAME], wanted[TPCK_MARK_NAME];

	if (!tpck_json_text(json, "mark", mark, sizeof mark) || !tpck_json_get(json, "digest", json_type_string, &digest) ||
	    !tpck_json_digest(digest, part->digest) || !tpck_json_u64(json, "size", &part->size) ||
	    !tpck_json_get(json, "ranks", json_type_array, &ranks) || !tpck_json_get(json, "programs", json_type_array, &programs) ||
	    !tpck_json_get(json, "resumable", json_type_boolean, &resumable) || !tpck_json_u64(json, "iteration_ns", &part->iteration_ns) ||
	    !tpck_json_u64(json, "bytes", &part->bytes) || !tpck_json_u64(json, "stored_bytes", &part->stored_bytes) ||
	    !tpck_json_u64(json, "container_bytes", &part->container_bytes) || !tpck_json_get(json, "older", json_type_array, &older))
		return false;
	part->resumable = json_object_get_boolean(resumable);
	for (size_t i = 0; i < json_object_array_length(ranks); i++)
		if (!add_ranks(json_object_array_get_idx(ranks, i), manifest->world, json_object_array_length(programs), part))
			return false;
	if (!part->rank_count || !read_programs(programs, part) || !read_older(older, &manifest->point, part))
		return false;
	tpck_part_mark(part, wanted);
	return strcmp(mark, wanted) == 0;
}

/* The object on the line that begins at *at, which is then behind it; NULL where there is none. */
static json_object *next_line(struct json_tokener *tokener, const char *text, size_t size, size_t *at)
{
	const char *end = *at < size ? memchr(text + *at, '\n', size - *at) : NULL;
	json_object *json;

	if (!end || end - (text + *at) >= INT32_MAX)
		return NULL;
	json_tokener_reset(tokener);
	json = json_tokener_parse_ex(tokener, text + *at, (int)(end - (text + *at)));
	*at = (size_t)(end - text) + 1;
	return json;
}

static bool read_parts(struct json_tokener *tokener, const char *text, size_t size, size_t at, uint64_t count, struct tpck_manifest *manifest)
{
	/* Each has a line, so that a number that no text is long enough for takes no memory. */
	if (!count || count > size)
		return false;
	manifest->parts = calloc(count, sizeof *manifest->parts);
	for (uint64_t i = 0; manifest->parts && i < count; i++) {
		json_object *json = next_line(tokener, text, size, &at);
		bool good;

		manifest->part_count = i + 1;
		good = json && read_part(json, manifest, &manifest->parts[i]);
		json_object_put(json);
		if (!good)
			return false;
	}
	return manifest->parts != NULL;
}

/* Where the lines of so many parts end; 0: they do not. */
static size_t end_of(const char *text, size_t size, size_t at, uint64_t parts)
{
	for (uint64_t i = 0; i < parts; i++) {
		const char *end = at < size ? memchr(text + at, '\n', size - at) : NULL;

		if (!end)
			return 0;
		at = (size_t)(end - text) + 1;
	}
	return at;
}

static int read_all(struct json_tokener *tokener, struct tpck_manifest *manifest, const char *text, size_t size, const char *name,
		    size_t *used, struct tpck_error *err)
{
	json_object *json, *identity = NULL;
	size_t at = 0, end = 0;
	uint64_t format, count = 0;
	char kind[16];
	int rc = 0;

	json = next_line(tokener, text, size, &at);
	if (!json || !tpck_json_text(json, "transpckpt", kind, sizeof kind) || strcmp(kind, manifest->part ? "part" : "manifest") != 0 ||
	    !tpck_json_u64(json, "format", &format))
		rc = tpck_error_set(err, EBADMSG, "%s is no %s", name, manifest->part ? "mark of a part" : "manifest");
	else if (format != TPCK_MANIFEST_PARTS_FORMAT)
		rc = tpck_error_set(err, EPROTO, "mark %s has format %llu, this program reads %d", name, (unsigned long long)format,
				    TPCK_MANIFEST_PARTS_FORMAT);
	else if (!tpck_json_u64(json, "parts", &count) || (end = end_of(text, size, at, count)) == 0 || (!used && end != size) ||
		 !tpck_json_digest_matches(text, end, json))
		rc = tpck_error_set(err, EBADMSG, "%s %s does not match its digest", manifest->part ? "mark" : "manifest", name);
	else if (!tpck_json_read_head(json, manifest) ||
		 (!manifest->part && !tpck_json_get(json, "identity", json_type_string, &identity)) ||
		 (manifest->part && count != 1) || !read_parts(tokener, text, end, at, count, manifest))
		rc = tpck_error_set(err, EBADMSG, "%s %s is damaged", manifest->part ? "mark" : "manifest", name);
	if (!rc && identity) {
		manifest->identity = strdup(json_object_get_string(identity));
		if (!manifest->identity)
			rc = tpck_error_set(err, ENOMEM, "reading manifest %s", name);
	}
	json_object_put(json);
	if (!rc && used)
		*used = end;
	return rc;
}

int tpck_parts_text_parse(struct tpck_manifest **out, bool part, const char *text, size_t size, const char *name, size_t *used,
			  struct tpck_error *err)
{
	struct json_tokener *tokener = json_tokener_new();
	struct tpck_manifest *manifest = calloc(1, sizeof *manifest);
	int rc = tokener && manifest ? 0 : tpck_error_set(err, ENOMEM, "reading manifest %s", name);

	if (!rc) {
		manifest->part = part;
		rc = read_all(tokener, manifest, text, size, name, used, err);
	}
	if (tokener)
		json_tokener_free(tokener);
	if (rc)
		tpck_manifest_free(manifest);
	else
		*out = manifest;
	return rc;
}
