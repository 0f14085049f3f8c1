/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/store/quarantine.h"
#include "runtime/wire/segment.h"
#include "tests/unit/object_tier.h"

struct object {
	char name[300];
	uint8_t *bytes;
	size_t size;
	unsigned writes;
	bool gone; /* the next list has it still */
	struct object *next;
};

struct object_tier {
	struct tpck_tier tier;
	struct object *objects; /* the newest first */
};

static struct object **objects_of(struct tpck_tier *tier)
{
	return &((struct object_tier *)tier)->objects;
}

static struct object *find(struct tpck_tier *tier, const char *name)
{
	struct object *object = *objects_of(tier);

	while (object && (object->gone || strcmp(object->name, name) != 0))
		object = object->next;
	return object;
}

/* What follows in the name behind that folder; NULL: it is not below it. */
static const char *below(const char *name, const char *folder)
{
	size_t length = strlen(folder);

	if (!length)
		return name;
	return strncmp(name, folder, length) == 0 && name[length] == '/' ? name + length + 1 : NULL;
}

bool object_tier_has(struct tpck_tier *tier, const char *name)
{
	for (struct object *object = *objects_of(tier); object; object = object->next)
		if (!object->gone && (strcmp(object->name, name) == 0 || below(object->name, name)))
			return true;
	return false;
}

uint8_t *object_tier_bytes(struct tpck_tier *tier, const char *name, size_t **size)
{
	struct object *object = find(tier, name);

	if (!object)
		return NULL;
	*size = &object->size;
	return object->bytes;
}

unsigned object_tier_writes(struct tpck_tier *tier, const char *name)
{
	const struct object *object = find(tier, name);

	return object ? object->writes : 0;
}

/* The bytes become the object's. */
static int set(struct tpck_tier *tier, const char *name, uint8_t *bytes, size_t size, struct tpck_error *err)
{
	struct object *object = find(tier, name);

	if (!object) {
		object = calloc(1, sizeof *object);
		if (!object) {
			free(bytes);
			return tpck_error_set(err, ENOMEM, "making %s", name);
		}
		snprintf(object->name, sizeof object->name, "%s", name);
		object->next = *objects_of(tier);
		*objects_of(tier) = object;
	}
	free(object->bytes);
	object->bytes = bytes;
	object->size = size;
	object->writes++;
	return 0;
}

static int set_copy(struct tpck_tier *tier, const char *name, const void *bytes, size_t size, struct tpck_error *err)
{
	uint8_t *copy = malloc(size + 1);

	if (!copy)
		return tpck_error_set(err, ENOMEM, "making %s", name);
	memcpy(copy, bytes, size);
	return set(tier, name, copy, size, err);
}

static int put(struct tpck_tier *tier, const char *path, const struct tpck_source *source, uint64_t *bytes, struct tpck_error *err)
{
	uint8_t *buffer = aligned_alloc(TPCK_WRITER_ALIGN, TPCK_CHUNK_BYTES), *all = NULL;
	size_t used = 0;
	uint32_t got = 0;
	int rc = buffer ? 0 : -ENOMEM;

	while (!rc && (rc = source->next(source->context, buffer, &got, err)) == 0 && got) {
		size_t padded = (got + TPCK_WRITER_ALIGN - 1) / TPCK_WRITER_ALIGN * TPCK_WRITER_ALIGN;

		all = realloc(all, used + padded);
		memcpy(all + used, buffer, got);
		memset(all + used + got, 0, padded - got);
		used += padded;
	}
	free(buffer);
	if (rc) {
		free(all);
		return rc;
	}
	*bytes = used;
	return set(tier, path, all, used, err);
}

static int mark(struct tpck_tier *tier, const char *path, const char *text, struct tpck_error *err)
{
	return set_copy(tier, path, text, strlen(text), err);
}

static int commit_if_absent(struct tpck_tier *tier, const char *path, const char *text, size_t size, struct tpck_error *err)
{
	return find(tier, path) ? tpck_error_set(err, EEXIST, "making %s", path) : set_copy(tier, path, text, size, err);
}

static int get(struct tpck_tier *tier, const char *path, uint64_t offset, void *buffer, size_t bytes, struct tpck_error *err)
{
	const struct object *object = find(tier, path);
	char aside[320];

	snprintf(aside, sizeof aside, "%s/%.280s", TPCK_QUARANTINE, path);
	if (!object)
		object = find(tier, aside);
	if (!object)
		return tpck_error_set(err, ENOENT, "opening %s", path);
	if (offset + bytes > object->size)
		return tpck_error_set(err, EBADMSG, "%s ends before byte %llu", path, (unsigned long long)(offset + bytes));
	memcpy(buffer, object->bytes + offset, bytes);
	return 0;
}

static int get_text(struct tpck_tier *tier, const char *path, size_t limit, char **text, size_t *size, struct tpck_error *err)
{
	const struct object *object = find(tier, path);

	if (!object)
		return tpck_error_set(err, ENOENT, "opening %s", path);
	if (object->size > limit)
		return tpck_error_set(err, EFBIG, "reading %s", path);
	*text = malloc(object->size + 1);
	if (!*text)
		return tpck_error_set(err, ENOMEM, "reading %s", path);
	memcpy(*text, object->bytes, object->size);
	(*text)[object->size] = '\0';
	if (size)
		*size = object->size;
	return 0;
}

static int size_of(struct tpck_tier *tier, const char *path, uint64_t *bytes, struct tpck_error *err)
{
	const struct object *object = find(tier, path);

	if (!object)
		return tpck_error_set(err, ENOENT, "looking at %s", path);
	*bytes = object->size;
	return 0;
}

/* Whether an object before it has the same first part there. */
static bool is_repeated(const struct object *all, const struct object *until, const char *folder, const char *first, size_t length)
{
	for (const struct object *object = all; object != until; object = object->next) {
		const char *rest = below(object->name, folder);

		if (rest && strncmp(rest, first, length) == 0 && (!rest[length] || rest[length] == '/'))
			return true;
	}
	return false;
}

static int list(struct tpck_tier *tier, const char *folder, int (*visit)(void *context, const char *name), void *context, struct tpck_error *err)
{
	int rc = 0;

	(void)err;
	for (struct object *object = *objects_of(tier); object && !rc; object = object->next) {
		const char *rest = below(object->name, folder);
		size_t length = rest ? strcspn(rest, "/") : 0;
		char name[300];

		if (!rest || is_repeated(*objects_of(tier), object, folder, rest, length))
			continue;
		snprintf(name, sizeof name, "%.*s", (int)length, rest);
		rc = visit(context, name);
	}
	/* Nobody hears of them again. */
	for (struct object **at = objects_of(tier); *at;) {
		struct object *object = *at;

		if (object->gone) {
			*at = object->next;
			free(object);
		} else {
			at = &object->next;
		}
	}
	return rc;
}

static int take_away(struct tpck_tier *tier, const char *path, struct tpck_error *err)
{
	(void)err;
	for (struct object *object = *objects_of(tier); object; object = object->next)
		if (!path[0] || strcmp(object->name, path) == 0 || below(object->name, path)) {
			object->gone = true;
			free(object->bytes);
			object->bytes = NULL;
		}
	return 0;
}

static int set_aside(struct tpck_tier *tier, const char *checkpoint, const char *reason, struct tpck_error *err)
{
	char name[320];
	int rc = 0;

	for (struct object *object = *objects_of(tier); object && !rc; object = object->next)
		if (!object->gone && below(object->name, checkpoint)) {
			snprintf(name, sizeof name, "%s/%.280s", TPCK_QUARANTINE, object->name);
			rc = set_copy(tier, name, object->bytes, object->size, err);
		}
	snprintf(name, sizeof name, "%s/%.280s/reason", TPCK_QUARANTINE, checkpoint);
	if (!rc)
		rc = set_copy(tier, name, reason, strlen(reason), err);
	return rc ? rc : take_away(tier, checkpoint, err);
}

static int append(struct tpck_tier *tier, const char *path, const char *lines, size_t size, uint64_t most, struct tpck_error *err)
{
	(void)tier;
	(void)lines;
	(void)size;
	(void)most;
	return tpck_error_set(err, ENOTSUP, "adding to %s", path);
}

static int check(struct tpck_tier *tier, struct tpck_error *err)
{
	(void)tier;
	(void)err;
	return 0;
}

static int hold(struct tpck_tier *tier, enum tpck_hold how, double wait_sec, struct tpck_error *err)
{
	(void)tier;
	(void)wait_sec;
	return how == TPCK_HOLD_ALONE ? tpck_error_set(err, ENOLCK, "holding objects") : 0;
}

static void release(struct tpck_tier *tier, int held)
{
	(void)tier;
	(void)held;
}

static bool was_held(struct tpck_tier *tier)
{
	return object_tier_has(tier, "");
}

static int folder_of(struct tpck_tier *tier, struct tpck_error *err)
{
	(void)tier;
	return tpck_error_set(err, ENOTSUP, "objects are in no folder");
}

static int path_of(struct tpck_tier *tier, const char *name, char *path, size_t size, struct tpck_error *err)
{
	(void)tier;
	(void)path;
	(void)size;
	return tpck_error_set(err, ENOTSUP, "%s is in no folder", name);
}

static void close_tier(struct tpck_tier *tier)
{
	for (struct object *object = *objects_of(tier), *next; object; object = next) {
		next = object->next;
		free(object->bytes);
		free(object);
	}
	free(tier);
}

static const struct tpck_tier_operations operations = {
	.kind = "objects", .put = put, .mark = mark, .commit_if_absent = commit_if_absent, .get = get, .get_text = get_text, .size = size_of, .list = list, .remove = take_away,
	.set_aside = set_aside, .append = append, .check = check, .hold = hold, .release = release, .was_held = was_held, .folder = folder_of, .path = path_of, .close = close_tier,
};

int object_tier_open(struct tpck_tier **tier)
{
	struct object_tier *objects = calloc(1, sizeof *objects);

	if (!objects)
		return -ENOMEM;
	objects->tier.operations = &operations;
	/* A path that leads nowhere. */
	snprintf(objects->tier.root, sizeof objects->tier.root, "/nonexistent/objects/j");
	*tier = &objects->tier;
	return 0;
}
