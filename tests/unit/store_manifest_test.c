/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests: what is written is read again; every flipped bit and every cut is noticed. */
#include "config.h"

#include <errno.h>
#include <stdint.h>

#include "runtime/store/manifest.h"
#include "tests/unit/store_tap.h"

static struct tpck_error err;

static struct tpck_manifest *make(void)
{
	struct tpck_manifest *m = calloc(1, sizeof *m);
	struct tpck_member *member = calloc(1, sizeof *member);

	m->members = member;
	m->member_count = 1;
	m->point = (struct tpck_point){7, 1234};
	m->parent = (struct tpck_point){6, 1200};
	m->created_ns = 1700000000000000000ull;
	m->world = 1;
	m->stored_bytes = 1 << 20;
	tpck_manifest_container(m, "step-000000001234.g7/data.0", 64 << 20);
	tpck_manifest_container(m, "step-000000001200.g6/data.0", 64 << 20);
	member->rank = 3;
	member->identity = strdup("user 1\njob x\\x22digest\":\"\nargument a\"digest\":\"b\n");
	member->image_version = 1;
	member->data_bytes = (9 << 20) + 1;
	member->rows = 2;
	member->tensors = 5;
	member->optimizers = 1;
	member->cut = (struct tpck_cut){0, 1000};
	member->resumable = true;
	member->notes.period = UINT64_C(1) << 60;
	member->notes.class_bytes[2] = 77;
	member->objects = calloc(3, sizeof *member->objects);
	member->object_count = 3;
	tpck_object_make(&member->objects[0], TPCK_OBJECT_INDEX, "image.index", 400);
	tpck_object_make(&member->objects[1], TPCK_OBJECT_IMAGE, "image.data", member->data_bytes);
	tpck_object_make(&member->objects[2], TPCK_OBJECT_LOG, "log.000000", 952);
	member->objects[2].segment_generation = 6;
	member->objects[2].segment_bytes = 16 << 20;
	for (int o = 0; o < 3; o++)
		for (size_t i = 0; i < member->objects[o].count; i++) {
			member->objects[o].chunks[i].container = (uint32_t)(i % 2);
			member->objects[o].chunks[i].offset = 4096 * (i + 1);
			memset(member->objects[o].chunks[i].digest, (int)(17 * i + (size_t)o), 16);
		}
	return m;
}

static void round_trip(char **text, size_t *size)
{
	struct tpck_manifest *made = make(), *read = NULL;
	char *again = NULL;
	size_t again_size = 0;

	ok(tpck_manifest_format(made, text, size, &err) == 0, "written");
	ok(tpck_manifest_parse(&read, *text, *size, "it", &err) == 0, "read");
	if (read) {
		ok(tpck_manifest_format(read, &again, &again_size, &err) == 0 && again_size == *size &&
			   memcmp(again, *text, *size) == 0,
		   "what was read is written the same");
		ok(read->point.step == 1234 && read->parent.generation == 6 && read->members[0].objects[1].count == 3 &&
			   strcmp(read->members[0].identity, made->members[0].identity) == 0 &&
			   read->members[0].notes.period == UINT64_C(1) << 60,
		   "values are those written");
		ok(tpck_manifest_bytes(read) == 400 + (9 << 20) + 1 + 952, "bytes of all objects");
	}
	free(again);
	tpck_manifest_free(made);
	tpck_manifest_free(read);
}

static void damage(const char *text, size_t size)
{
	char *copy = malloc(size);
	size_t accepted = 0, cut = 0;

	for (size_t i = 0; i < size; i++) {
		for (int bit = 0; bit < 8; bit++) {
			struct tpck_manifest *read = NULL;

			memcpy(copy, text, size);
			copy[i] ^= (char)(1 << bit);
			if (tpck_manifest_parse(&read, copy, size, "it", &err) == 0) {
				accepted++;
				tpck_manifest_free(read);
			}
		}
	}
	ok(accepted == 0, "no flipped bit passes");
	for (size_t i = 0; i < size; i++) {
		struct tpck_manifest *read = NULL;

		memcpy(copy, text, i);
		if (tpck_manifest_parse(&read, copy, i, "it", &err) == 0) {
			cut++;
			tpck_manifest_free(read);
		}
	}
	ok(cut == 0, "no cut passes");
	free(copy);
}

static void formats(const char *text, size_t size)
{
	struct tpck_manifest *read = NULL;
	char *copy = strdup(text), *place = strstr(copy, "\"format\":1");

	place[strlen("\"format\":")] = '2';
	ok(tpck_manifest_parse(&read, copy, size, "it", &err) == -EPROTO && strstr(err.text, "format 2"),
	   "another format is refused by its number");
	free(copy);
}

/* A text whose digest is right may still be made by somebody who means harm. */
static void hostile(void)
{
	static const char *const paths[] = {"../../etc/passwd", "step-000000001234.g7/../../x", "data.0",
					    "step-000000001234.g7/.hidden", "/etc/passwd"};
	size_t accepted = 0;

	for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
		struct tpck_manifest *made = make(), *read = NULL;
		char *text;
		size_t size;

		snprintf(made->containers[0].path, sizeof made->containers[0].path, "%s", paths[i]);
		if (tpck_manifest_format(made, &text, &size, &err) == 0) {
			if (tpck_manifest_parse(&read, text, size, "it", &err) == 0)
				accepted++;
			free(text);
		}
		tpck_manifest_free(made);
		tpck_manifest_free(read);
	}
	ok(accepted == 0, "no container leads out of the job's folder");
	for (int kind = 0; kind < 3; kind++) {
		struct tpck_manifest *made = make(), *read = NULL;
		struct tpck_chunk *chunk = &made->members[0].objects[1].chunks[1];
		char *text;
		size_t size;

		if (kind == 0)
			chunk->container = 9;
		else if (kind == 1)
			chunk->offset = 64 << 20;
		else
			chunk->offset = 4097;
		tpck_manifest_format(made, &text, &size, &err);
		ok(tpck_manifest_parse(&read, text, size, "it", &err) == -EBADMSG,
		   kind == 0   ? "no chunk of a container that is not there"
		   : kind == 1 ? "no chunk beyond its container"
			       : "no chunk at an odd offset");
		free(text);
		tpck_manifest_free(made);
		tpck_manifest_free(read);
	}
}

static void names(void)
{
	struct tpck_point point;
	struct tpck_session_name session;

	ok(tpck_checkpoint_name_parse("step-000000001234.g7", &point) == 0 && point.step == 1234 && point.generation == 7,
	   "a checkpoint's name");
	ok(tpck_checkpoint_name_parse("step-1234.g7", &point) && tpck_checkpoint_name_parse("step-000000001234.g7x", &point) &&
		   tpck_checkpoint_name_parse("step-000000001234.g07", &point),
	   "what only looks like one");
	ok(tpck_session_name_parse("g7.r1.o0", &session) == 0 && session.rank == 1, "a session's name");
	ok(tpck_session_name_parse("g7.r1.o0.bak", &session), "what only looks like one");
	ok(!tpck_job_name_valid("") && !tpck_job_name_valid("a/b") && !tpck_job_name_valid("..") &&
		   tpck_job_name_valid("train-1_a.b"),
	   "jobs' names");
}

int main(void)
{
	char *text = NULL;
	size_t size = 0;

	round_trip(&text, &size);
	damage(text, size);
	formats(text, size);
	hostile();
	names();
	free(text);
	return tap_done();
}
