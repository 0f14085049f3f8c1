/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests as text: JSON whose "digest" covers all of it, so that one flipped bit is noticed. */
#include "config.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/digest.h"
#include "runtime/store/manifest_text.h"

#define DIGEST_KEY "\"digest\":\""
#define DIGEST_NONE "00000000000000000000000000000000"

/* ---- writing ------------------------------------------------------------------------------ */

void tpck_json_add_u64(json_object *to, const char *key, uint64_t value)
{
	json_object_object_add(to, key, json_object_new_uint64(value));
}

void tpck_json_add_text(json_object *to, const char *key, const char *text)
{
	json_object_object_add(to, key, json_object_new_string(text));
}

static json_object *point_json(const struct tpck_point *point)
{
	json_object *json = json_object_new_object();

	tpck_json_add_u64(json, "generation", point->generation);
	tpck_json_add_u64(json, "step", point->step);
	return json;
}

static json_object *object_json(const struct tpck_object *object)
{
	json_object *json = json_object_new_object(), *chunks = json_object_new_array_ext((int)object->count + 1);

	tpck_json_add_text(json, "name", object->name);
	tpck_json_add_text(json, "kind", tpck_object_kind_name(object->kind));
	tpck_json_add_u64(json, "bytes", object->bytes);
	if (object->kind == TPCK_OBJECT_LOG) {
		tpck_json_add_u64(json, "segment_generation", object->segment_generation);
		tpck_json_add_u64(json, "segment_bytes", object->segment_bytes);
	}
	for (size_t i = 0; i < object->count; i++) {
		const struct tpck_chunk *chunk = &object->chunks[i];
		json_object *row = json_object_new_array_ext(4);
		char digest[33];

		tpck_digest128_text(chunk->digest, digest);
		json_object_array_add(row, json_object_new_int64(chunk->container));
		json_object_array_add(row, json_object_new_uint64(chunk->offset));
		json_object_array_add(row, json_object_new_int64(chunk->length));
		json_object_array_add(row, json_object_new_string(digest));
		json_object_array_add(chunks, row);
	}
	json_object_object_add(json, "chunks", chunks);
	return json;
}

/* Names of the plain counters of struct tpck_notes. */
/* clang-format off */
#define NOTES(X) X(period) X(optimizer_operations) X(captured) X(skipped) X(abandoned) X(iteration_ns) \
	X(stall_ns_max) X(stall_ns_sum) X(stall_count) X(stall_cpu_ns_max) X(stall_cpu_ns_sum) \
	X(submit_ns_max) X(submit_ns_sum) X(submit_count) \
	X(wait_ns_sum) X(sure_by_names) X(sure_by_pattern) X(by_uploads)
/* clang-format on */

static json_object *notes_json(const struct tpck_notes *notes)
{
	json_object *json = json_object_new_object();
	json_object *blocks = json_object_new_array(), *bytes = json_object_new_array();

#define ADD(field) tpck_json_add_u64(json, #field, notes->field);
	NOTES(ADD)
#undef ADD
	for (int i = 0; i < TPCK_CLASSES; i++) {
		json_object_array_add(blocks, json_object_new_uint64(notes->class_blocks[i]));
		json_object_array_add(bytes, json_object_new_uint64(notes->class_bytes[i]));
	}
	json_object_object_add(json, "class_blocks", blocks);
	json_object_object_add(json, "class_bytes", bytes);
	return json;
}

static void add_digits(json_object *to, const char *key, uint64_t value)
{
	char digits[17];

	snprintf(digits, sizeof digits, "%016llx", (unsigned long long)value);
	tpck_json_add_text(to, key, digits);
}

static json_object *communicators_json(const struct tpck_member *member)
{
	json_object *json = json_object_new_array();

	for (uint64_t i = 0; i < member->communicators; i++) {
		const struct tpck_image_communicator *from = &member->communicator[i];
		json_object *one = json_object_new_object();

		add_digits(one, "id", from->id);
		tpck_json_add_u64(one, "index", from->index);
		tpck_json_add_u64(one, "size", from->size);
		tpck_json_add_u64(one, "rank", from->rank);
		json_object_object_add(one, "device", json_object_new_int(from->device));
		tpck_json_add_u64(one, "collectives", from->collectives);
		add_digits(one, "order", from->order);
		json_object_array_add(json, one);
	}
	return json;
}

static json_object *member_json(const struct tpck_member *member)
{
	json_object *json = json_object_new_object(), *objects = json_object_new_array();
	char id[TPCK_PROGRAM_ID];

	tpck_program_id(member->identity, id);
	tpck_json_add_u64(json, "rank", member->rank);
	tpck_json_add_u64(json, "ordinal", member->ordinal);
	tpck_json_add_text(json, "program", id);
	tpck_json_add_text(json, "identity", member->identity);
	tpck_json_add_u64(json, "image_version", member->image_version);
	tpck_json_add_u64(json, "data_bytes", member->data_bytes);
	tpck_json_add_u64(json, "rows", member->rows);
	tpck_json_add_u64(json, "tensors", member->tensors);
	tpck_json_add_u64(json, "optimizers", member->optimizers);
	json_object_object_add(json, "communicators", communicators_json(member));
	tpck_json_add_u64(json, "peers", member->peers);
	tpck_json_add_u64(json, "log_sequence", member->cut.sequence);
	tpck_json_add_u64(json, "log_offset", member->cut.offset);
	json_object_object_add(json, "resumable", json_object_new_boolean(member->resumable));
	tpck_json_add_text(json, "reason", member->reason);
	json_object_object_add(json, "notes", notes_json(&member->notes));
	for (size_t i = 0; i < member->object_count; i++)
		json_object_array_add(objects, object_json(&member->objects[i]));
	json_object_object_add(json, "objects", objects);
	return json;
}

json_object *tpck_json_head(const struct tpck_manifest *manifest, int format)
{
	json_object *json = json_object_new_object();

	tpck_json_add_text(json, "transpckpt", manifest->part ? "part" : "manifest");
	tpck_json_add_u64(json, "format", (uint64_t)format);
	tpck_json_add_text(json, "digest", DIGEST_NONE);
	tpck_json_add_u64(json, "generation", manifest->point.generation);
	tpck_json_add_u64(json, "step", manifest->point.step);
	json_object_object_add(json, "parent",
			       manifest->parent.generation ? point_json(&manifest->parent) : NULL);
	tpck_json_add_u64(json, "created_ns", manifest->created_ns);
	tpck_json_add_u64(json, "world", manifest->world);
	tpck_json_add_u64(json, "stored_bytes", manifest->stored_bytes);
	return json;
}

static json_object *manifest_json(const struct tpck_manifest *manifest)
{
	json_object *json = tpck_json_head(manifest, TPCK_MANIFEST_FORMAT);
	json_object *containers = json_object_new_array(), *members = json_object_new_array();

	for (size_t i = 0; i < manifest->container_count; i++) {
		json_object *container = json_object_new_object();

		tpck_json_add_text(container, "path", manifest->containers[i].path);
		tpck_json_add_u64(container, "bytes", manifest->containers[i].bytes);
		json_object_array_add(containers, container);
	}
	json_object_object_add(json, "containers", containers);
	for (size_t i = 0; i < manifest->member_count; i++)
		json_object_array_add(members, member_json(&manifest->members[i]));
	json_object_object_add(json, "members", members);
	return json;
}

void tpck_text_seal(char *text, size_t size)
{
	/* Ours is the first key of that name; identity texts cannot hold an unescaped quote. */
	char digits[33], *place = strstr(text, DIGEST_KEY);
	uint8_t digest[16];

	tpck_digest128(text, size, digest);
	tpck_digest128_text(digest, digits);
	memcpy(place + sizeof DIGEST_KEY - 1, digits, 32);
}

const char *tpck_json_line(json_object *json, size_t *size)
{
	return json_object_to_json_string_length(json, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, size);
}

int tpck_manifest_format(const struct tpck_manifest *manifest, char **text, size_t *size, struct tpck_error *err)
{
	const char *plain;
	json_object *json;
	char *copy;

	if (manifest->part_count)
		return tpck_parts_text_format(manifest, text, size, err);
	json = manifest_json(manifest);
	plain = tpck_json_line(json, size);
	copy = plain ? malloc(*size + 2) : NULL;
	if (copy) {
		memcpy(copy, plain, *size);
		copy[(*size)++] = '\n';
		copy[*size] = '\0';
		tpck_text_seal(copy, *size);
		*text = copy;
	}
	json_object_put(json);
	return copy ? 0 : tpck_error_set(err, ENOMEM, "writing a manifest");
}

/* ---- reading ------------------------------------------------------------------------------ */

/* All readers answer false for a value that is missing or of another type: damaged. */
bool tpck_json_get(json_object *from, const char *key, json_type type, json_object **value)
{
	return json_object_is_type(from, json_type_object) && json_object_object_get_ex(from, key, value) &&
	       json_object_is_type(*value, type);
}

static bool plain_u64(json_object *value, uint64_t *number)
{
	if (!json_object_is_type(value, json_type_int))
		return false;
	*number = json_object_get_uint64(value);
	/* json-c clamps: negatives become 0, which the text form shows. */
	return json_object_get_int64(value) >= 0;
}

bool tpck_json_u64(json_object *from, const char *key, uint64_t *number)
{
	json_object *value;

	return tpck_json_get(from, key, json_type_int, &value) && plain_u64(value, number);
}

/* One that older manifests do not have: 0 there. */
static bool get_u64_or_none(json_object *from, const char *key, uint64_t *number)
{
	json_object *value;

	*number = 0;
	return !json_object_object_get_ex(from, key, &value) || plain_u64(value, number);
}

bool tpck_json_u32(json_object *from, const char *key, uint32_t *number)
{
	uint64_t wide;

	if (!tpck_json_u64(from, key, &wide) || wide > UINT32_MAX)
		return false;
	*number = (uint32_t)wide;
	return true;
}

bool tpck_json_text(json_object *from, const char *key, char *text, size_t size)
{
	json_object *value;

	if (!tpck_json_get(from, key, json_type_string, &value) || (size_t)json_object_get_string_len(value) >= size)
		return false;
	snprintf(text, size, "%s", json_object_get_string(value));
	return true;
}

bool tpck_json_digest(json_object *value, uint8_t digest[16])
{
	const char *text = json_object_is_type(value, json_type_string) ? json_object_get_string(value) : "";

	if (strlen(text) != 32 || strspn(text, "0123456789abcdef") != 32)
		return false;
	for (int i = 0; i < 16; i++) {
		char pair[3] = {text[2 * i], text[2 * i + 1], 0};

		digest[i] = (uint8_t)strtoul(pair, NULL, 16);
	}
	return true;
}

static bool parse_chunk(json_object *row, const struct tpck_manifest *manifest, struct tpck_chunk *chunk)
{
	uint64_t container, offset, length;

	if (!json_object_is_type(row, json_type_array) || json_object_array_length(row) != 4 ||
	    !plain_u64(json_object_array_get_idx(row, 0), &container) ||
	    !plain_u64(json_object_array_get_idx(row, 1), &offset) ||
	    !plain_u64(json_object_array_get_idx(row, 2), &length) ||
	    !tpck_json_digest(json_object_array_get_idx(row, 3), chunk->digest))
		return false;
	if (container >= manifest->container_count || length != chunk->length ||
	    offset % TPCK_WRITER_ALIGN || offset > manifest->containers[container].bytes ||
	    length > manifest->containers[container].bytes - offset)
		return false;
	chunk->container = (uint32_t)container;
	chunk->offset = offset;
	return true;
}

static bool parse_object(json_object *json, const struct tpck_manifest *manifest, struct tpck_object *object)
{
	char name[sizeof object->name], kind[16];
	enum tpck_object_kind parsed;
	json_object *chunks;
	uint64_t bytes;

	if (!tpck_json_text(json, "name", name, sizeof name) || !tpck_json_text(json, "kind", kind, sizeof kind) ||
	    tpck_object_kind_parse(kind, &parsed) || !tpck_json_u64(json, "bytes", &bytes) ||
	    !tpck_json_get(json, "chunks", json_type_array, &chunks) ||
	    json_object_array_length(chunks) != (bytes + TPCK_CHUNK_BYTES - 1) / TPCK_CHUNK_BYTES)
		return false;
	if (tpck_object_make(object, parsed, name, bytes))
		return false;
	if (parsed == TPCK_OBJECT_LOG && (!tpck_json_u64(json, "segment_generation", &object->segment_generation) ||
					  !tpck_json_u64(json, "segment_bytes", &object->segment_bytes)))
		return false;
	for (size_t i = 0; i < object->count; i++)
		if (!parse_chunk(json_object_array_get_idx(chunks, i), manifest, &object->chunks[i]))
			return false;
	return true;
}

static bool parse_notes(json_object *json, struct tpck_notes *notes)
{
	json_object *blocks, *bytes;

	if (!tpck_json_get(json, "class_blocks", json_type_array, &blocks) || !tpck_json_get(json, "class_bytes", json_type_array, &bytes))
		return false;
#define READ(field) \
	if (!tpck_json_u64(json, #field, &notes->field)) \
		return false;
	NOTES(READ)
#undef READ
	for (size_t i = 0; i < TPCK_CLASSES; i++)
		if (!plain_u64(json_object_array_get_idx(blocks, i), &notes->class_blocks[i]) ||
		    !plain_u64(json_object_array_get_idx(bytes, i), &notes->class_bytes[i]))
			return false;
	return true;
}

static bool get_digits(json_object *from, const char *key, uint64_t *number)
{
	char digits[17];

	if (!tpck_json_text(from, key, digits, sizeof digits) || strlen(digits) != 16 || strspn(digits, "0123456789abcdef") != 16)
		return false;
	*number = strtoull(digits, NULL, 16);
	return true;
}

/* What older manifests do not have. */
static bool parse_communicators(json_object *json, struct tpck_member *member)
{
	json_object *list, *device;

	if (!json_object_object_get_ex(json, "communicators", &list))
		return true;
	if (!json_object_is_type(list, json_type_array))
		return false;
	member->communicators = json_object_array_length(list);
	member->communicator = calloc(member->communicators + 1, sizeof *member->communicator);
	for (uint64_t i = 0; i < member->communicators && member->communicator; i++) {
		json_object *one = json_object_array_get_idx(list, i);
		struct tpck_image_communicator *to = &member->communicator[i];

		if (!get_digits(one, "id", &to->id) || !tpck_json_u32(one, "index", &to->index) || !tpck_json_u32(one, "size", &to->size) ||
		    !tpck_json_u32(one, "rank", &to->rank) || !tpck_json_get(one, "device", json_type_int, &device) ||
		    !tpck_json_u64(one, "collectives", &to->collectives) || !get_digits(one, "order", &to->order))
			return false;
		to->device = json_object_get_int(device);
	}
	return member->communicator != NULL;
}

static bool parse_member(json_object *json, const struct tpck_manifest *manifest, struct tpck_member *member)
{
	json_object *identity, *resumable, *notes, *objects;

	if (!tpck_json_u32(json, "rank", &member->rank) || !tpck_json_u32(json, "ordinal", &member->ordinal) ||
	    !tpck_json_get(json, "identity", json_type_string, &identity) ||
	    !tpck_json_u32(json, "image_version", &member->image_version) ||
	    !tpck_json_u64(json, "data_bytes", &member->data_bytes) || !tpck_json_u64(json, "rows", &member->rows) ||
	    !get_u64_or_none(json, "tensors", &member->tensors) ||
	    !get_u64_or_none(json, "optimizers", &member->optimizers) || !parse_communicators(json, member) ||
	    !get_u64_or_none(json, "peers", &member->peers) ||
	    !tpck_json_u64(json, "log_sequence", &member->cut.sequence) ||
	    !tpck_json_u64(json, "log_offset", &member->cut.offset) ||
	    !tpck_json_get(json, "resumable", json_type_boolean, &resumable) ||
	    !tpck_json_text(json, "reason", member->reason, sizeof member->reason) ||
	    !tpck_json_get(json, "notes", json_type_object, &notes) || !parse_notes(notes, &member->notes) ||
	    !tpck_json_get(json, "objects", json_type_array, &objects))
		return false;
	member->resumable = json_object_get_boolean(resumable);
	member->identity = strdup(json_object_get_string(identity));
	member->objects = calloc(json_object_array_length(objects) + 1, sizeof *member->objects);
	if (!member->identity || !member->objects)
		return false;
	for (size_t i = 0; i < json_object_array_length(objects); i++, member->object_count++)
		if (!parse_object(json_object_array_get_idx(objects, i), manifest, &member->objects[i])) {
			tpck_object_clear(&member->objects[i]);
			return false;
		}
	return true;
}

/* Only "step-....g../name": a manifest must not lead out of the job's folder. */
bool tpck_container_path_valid(const char *path)
{
	const char *slash = strchr(path, '/');
	struct tpck_point point;
	char folder[64];

	if (!slash || (size_t)(slash - path) >= sizeof folder || strchr(slash + 1, '/') || slash[1] == '.' || !slash[1])
		return false;
	snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
	return tpck_checkpoint_name_parse(folder, &point) == 0;
}

static bool parse_containers(json_object *array, struct tpck_manifest *manifest)
{
	for (size_t i = 0; i < json_object_array_length(array); i++) {
		json_object *json = json_object_array_get_idx(array, i);
		char path[sizeof manifest->containers->path];
		uint64_t bytes;

		if (!tpck_json_text(json, "path", path, sizeof path) || !tpck_json_u64(json, "bytes", &bytes) ||
		    !tpck_container_path_valid(path) || tpck_manifest_container(manifest, path, bytes) != (int)i)
			return false;
	}
	return true;
}

bool tpck_json_read_head(json_object *json, struct tpck_manifest *manifest)
{
	json_object *parent = NULL;

	if (!tpck_json_u64(json, "generation", &manifest->point.generation) || !tpck_json_u64(json, "step", &manifest->point.step) ||
	    !tpck_json_u64(json, "created_ns", &manifest->created_ns) || !tpck_json_u32(json, "world", &manifest->world) ||
	    !tpck_json_u64(json, "stored_bytes", &manifest->stored_bytes) || !json_object_object_get_ex(json, "parent", &parent))
		return false;
	return !parent || (tpck_json_u64(parent, "generation", &manifest->parent.generation) &&
			   tpck_json_u64(parent, "step", &manifest->parent.step));
}

static bool parse_all(json_object *json, struct tpck_manifest *manifest)
{
	json_object *containers, *members;

	if (!tpck_json_read_head(json, manifest) || !tpck_json_get(json, "containers", json_type_array, &containers) ||
	    !tpck_json_get(json, "members", json_type_array, &members))
		return false;
	if (!parse_containers(containers, manifest) || json_object_array_length(members) == 0)
		return false;
	manifest->members = calloc(json_object_array_length(members), sizeof *manifest->members);
	if (!manifest->members)
		return false;
	for (size_t i = 0; i < json_object_array_length(members); i++) {
		manifest->member_count = i + 1;
		if (!parse_member(json_object_array_get_idx(members, i), manifest, &manifest->members[i]))
			return false;
	}
	return true;
}

bool tpck_json_digest_matches(const char *text, size_t size, json_object *json)
{
	const char *place = memmem(text, size, DIGEST_KEY, sizeof DIGEST_KEY - 1);
	uint8_t digest[16], said[16];
	json_object *value;
	char *copy;

	if (!place || (size_t)(place - text) + sizeof DIGEST_KEY + 32 > size ||
	    !tpck_json_get(json, "digest", json_type_string, &value) || !tpck_json_digest(value, said))
		return false;
	copy = malloc(size);
	if (!copy)
		return false;
	memcpy(copy, text, size);
	memcpy(copy + (place - text) + sizeof DIGEST_KEY - 1, DIGEST_NONE, 32);
	tpck_digest128(copy, size, digest);
	free(copy);
	return memcmp(digest, said, sizeof digest) == 0;
}

/* `parts_too`: a text that names parts will do. */
static int parse(struct tpck_manifest **out, bool part, bool parts_too, const char *text, size_t size, const char *name,
		 struct tpck_error *err)
{
	struct json_tokener *tokener = json_tokener_new();
	struct tpck_manifest *manifest = calloc(1, sizeof *manifest);
	json_object *json = tokener && size < INT32_MAX ? json_tokener_parse_ex(tokener, text, (int)size) : NULL;
	bool of_parts = false;
	char kind[16];
	uint64_t format;
	int rc = 0;

	if (!manifest)
		rc = tpck_error_set(err, ENOMEM, "reading manifest %s", name);
	else if (!json || !tpck_json_text(json, "transpckpt", kind, sizeof kind) || strcmp(kind, part ? "part" : "manifest") != 0 ||
		 !tpck_json_u64(json, "format", &format))
		rc = tpck_error_set(err, EBADMSG, "%s is no %s", name, part ? "mark of a part" : "manifest");
	else if (parts_too && format == TPCK_MANIFEST_PARTS_FORMAT)
		of_parts = true;
	else if (format != TPCK_MANIFEST_FORMAT)
		rc = tpck_error_set(err, EPROTO, "manifest %s has format %llu, this program reads %d%s", name, (unsigned long long)format,
				    TPCK_MANIFEST_FORMAT, parts_too ? " and 2" : "");
	else if (!tpck_json_digest_matches(text, size, json))
		rc = tpck_error_set(err, EBADMSG, "manifest %s does not match its digest", name);
	else if (!parse_all(json, manifest))
		rc = tpck_error_set(err, EBADMSG, "manifest %s is damaged", name);
	json_object_put(json);
	if (tokener)
		json_tokener_free(tokener);
	if (rc || of_parts) {
		tpck_manifest_free(manifest);
		return rc ? rc : tpck_parts_text_parse(out, false, text, size, name, NULL, err);
	}
	manifest->part = part;
	*out = manifest;
	return 0;
}

int tpck_manifest_parse(struct tpck_manifest **out, const char *text, size_t size, const char *name, struct tpck_error *err)
{
	return parse(out, false, false, text, size, name, err);
}

int tpck_manifest_parse_part(struct tpck_manifest **out, const char *text, size_t size, const char *name, struct tpck_error *err)
{
	return parse(out, true, false, text, size, name, err);
}

int tpck_manifest_parse_published(struct tpck_manifest **out, const char *text, size_t size, const char *name, struct tpck_error *err)
{
	return parse(out, false, true, text, size, name, err);
}
