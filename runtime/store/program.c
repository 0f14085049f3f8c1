/* SPDX-License-Identifier: Apache-2.0 */
/* Program state: kept as a small JSON text beside the marker. */
#include "config.h"

#include "runtime/base/lock_order.h"
#include "runtime/store/program.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/identity_names.h"
#include "runtime/store/file.h"
#include "runtime/wire/segment.h"

/* ---- notes -------------------------------------------------------------------------------- */

static void note(struct tpck_program_notes *notes, const struct tpck_point *point, uint64_t count)
{
	struct tpck_program_note *grown;

	for (size_t i = 0; i < notes->count; i++) {
		if (tpck_point_compare(&notes->rows[i].point, point) == 0) {
			notes->rows[i].count = count;
			return;
		}
	}
	grown = reallocarray(notes->rows, notes->count + 1, sizeof *grown);
	if (!grown)
		return;
	notes->rows = grown;
	notes->rows[notes->count++] = (struct tpck_program_note){*point, count};
}

static uint64_t noted(const struct tpck_program_notes *notes, const struct tpck_point *point)
{
	for (size_t i = 0; i < notes->count; i++)
		if (tpck_point_compare(&notes->rows[i].point, point) == 0)
			return notes->rows[i].count;
	return 0;
}

static void forget(struct tpck_program_notes *notes)
{
	free(notes->rows);
	notes->rows = NULL;
	notes->count = 0;
}

/* Those of generations up to this one. */
static void forget_up_to(struct tpck_program_notes *notes, uint64_t generation)
{
	size_t kept = 0;

	for (size_t i = 0; i < notes->count; i++)
		if (notes->rows[i].point.generation > generation)
			notes->rows[kept++] = notes->rows[i];
	notes->count = kept;
}

enum tpck_allowed tpck_program_allows(struct tpck_program *program, const struct tpck_point *point)
{
	enum tpck_allowed allowed = TPCK_ALLOWED;

	pthread_mutex_lock(&program->lock);
	if (noted(&program->deaths, point) >= TPCK_CRASH_LOOP_DEATHS ||
	    noted(&program->starts, point) >= TPCK_CRASH_LOOP_STARTS)
		allowed = TPCK_ALLOWED_NOT_LOOP;
	for (size_t i = 0; i < program->refused.count; i++) {
		const struct tpck_point *from = &program->refused.rows[i].point;

		if (from->generation == point->generation && point->step >= from->step)
			allowed = TPCK_ALLOWED_NOT_REFUSED;
	}
	for (size_t i = 0; i < program->fences.count; i++) {
		const struct tpck_point *fence = &program->fences.rows[i].point;

		if (point->generation < fence->generation && point->step > fence->step)
			allowed = TPCK_ALLOWED_NOT_FENCED;
	}
	if (point->generation <= program->ended)
		allowed = TPCK_ALLOWED_NOT_ENDED;
	pthread_mutex_unlock(&program->lock);
	return allowed;
}

void tpck_program_resumed(struct tpck_program *program, uint64_t generation, uint64_t step)
{
	struct tpck_point point = {generation, step};

	pthread_mutex_lock(&program->lock);
	note(&program->fences, &point, 1);
	pthread_mutex_unlock(&program->lock);
}

uint64_t tpck_program_died(struct tpck_program *program, const struct tpck_point *from, enum tpck_death death)
{
	struct tpck_program_notes *notes = death == TPCK_DEATH_NEAR ? &program->deaths : &program->starts;
	uint64_t deaths = 0;

	pthread_mutex_lock(&program->lock);
	if (death == TPCK_DEATH_FAR) {
		forget(&program->deaths);
		forget(&program->starts);
	} else if (from->generation) {
		deaths = noted(notes, from) + 1;
		note(notes, from, deaths);
	}
	pthread_mutex_unlock(&program->lock);
	return deaths;
}

void tpck_program_left(struct tpck_program *program, const struct tpck_program_last *last)
{
	pthread_mutex_lock(&program->lock);
	if (last->generation >= program->last.generation)
		program->last = *last;
	pthread_mutex_unlock(&program->lock);
}

bool tpck_program_say_left(struct tpck_program *program, uint64_t generation, bool any, char *text, size_t size)
{
	struct tpck_program_last last;
	uint64_t ended;

	pthread_mutex_lock(&program->lock);
	last = program->last;
	ended = program->ended;
	pthread_mutex_unlock(&program->lock);
	if (generation <= ended)
		return false;
	if (any)
		snprintf(text, size, "not resuming: nothing that earlier starts left may be gone on from");
	else if (last.generation != generation)
		snprintf(text, size, "not resuming: the last start left nothing here, and nobody saw it end");
	else if (last.kept)
		snprintf(text, size, "not resuming: the last start's snapshot of step %" PRIu64 " is not there any more", last.kept_step);
	else if (last.iterations == 0)
		snprintf(text, size, "not resuming: the last start ended before its first iteration did%s%s", last.why[0] ? ": " : "", last.why);
	else
		snprintf(text, size, "not resuming: the last start ended after %" PRIu64 " iteration%s, and left no snapshot: %s", last.iterations,
			 last.iterations == 1 ? "" : "s", last.why);
	return true;
}

uint64_t tpck_program_tries(struct tpck_program *program, const struct tpck_point *point)
{
	uint64_t tries;

	pthread_mutex_lock(&program->lock);
	tries = noted(&program->starts, point);
	pthread_mutex_unlock(&program->lock);
	return tries;
}

size_t tpck_program_loops(struct tpck_program *program)
{
	size_t loops = 0;

	pthread_mutex_lock(&program->lock);
	for (size_t i = 0; i < program->deaths.count; i++)
		loops += program->deaths.rows[i].count >= TPCK_CRASH_LOOP_DEATHS;
	for (size_t i = 0; i < program->starts.count; i++)
		loops += program->starts.rows[i].count >= TPCK_CRASH_LOOP_STARTS &&
			 noted(&program->deaths, &program->starts.rows[i].point) < TPCK_CRASH_LOOP_DEATHS;
	pthread_mutex_unlock(&program->lock);
	return loops;
}

void tpck_program_ended(struct tpck_program *program, uint64_t generation)
{
	pthread_mutex_lock(&program->lock);
	if (generation > program->ended)
		program->ended = generation;
	forget_up_to(&program->fences, generation);
	forget_up_to(&program->deaths, generation);
	forget_up_to(&program->starts, generation);
	forget_up_to(&program->refused, generation);
	pthread_mutex_unlock(&program->lock);
}

void tpck_program_refuse(struct tpck_program *program, const struct tpck_point *from)
{
	pthread_mutex_lock(&program->lock);
	note(&program->refused, from, 1);
	pthread_mutex_unlock(&program->lock);
}

struct tpck_own *tpck_program_own(struct tpck_program *program)
{
	pthread_mutex_lock(&program->lock);
	return &program->own;
}

void tpck_program_own_done(struct tpck_program *program)
{
	pthread_mutex_unlock(&program->lock);
}

struct tpck_own *tpck_program_own_copy(struct tpck_program *program)
{
	struct tpck_own *copy = tpck_own_copy(tpck_program_own(program));

	tpck_program_own_done(program);
	return copy;
}

/* ---- text --------------------------------------------------------------------------------- */

static void add_notes(json_object *to, const char *key, const struct tpck_program_notes *notes)
{
	json_object *array = json_object_new_array();

	for (size_t i = 0; i < notes->count; i++) {
		json_object *row = json_object_new_array();

		json_object_array_add(row, json_object_new_uint64(notes->rows[i].point.generation));
		json_object_array_add(row, json_object_new_uint64(notes->rows[i].point.step));
		json_object_array_add(row, json_object_new_uint64(notes->rows[i].count));
		json_object_array_add(array, row);
	}
	json_object_object_add(to, key, array);
}

static void read_notes(json_object *from, const char *key, struct tpck_program_notes *notes)
{
	json_object *array;

	if (!json_object_object_get_ex(from, key, &array) || !json_object_is_type(array, json_type_array))
		return;
	for (size_t i = 0; i < json_object_array_length(array); i++) {
		json_object *row = json_object_array_get_idx(array, i);
		struct tpck_point point;

		if (!json_object_is_type(row, json_type_array) || json_object_array_length(row) != 3)
			continue;
		point.generation = json_object_get_uint64(json_object_array_get_idx(row, 0));
		point.step = json_object_get_uint64(json_object_array_get_idx(row, 1));
		note(notes, &point, json_object_get_uint64(json_object_array_get_idx(row, 2)));
	}
}

static uint64_t read_u64(json_object *json, const char *key)
{
	json_object *value;

	return json_object_object_get_ex(json, key, &value) ? json_object_get_uint64(value) : 0;
}

static void add_last(json_object *to, const struct tpck_program_last *last)
{
	json_object *json = json_object_new_object();

	json_object_object_add(json, "generation", json_object_new_uint64(last->generation));
	json_object_object_add(json, "iterations", json_object_new_uint64(last->iterations));
	if (last->kept)
		json_object_object_add(json, "kept_step", json_object_new_uint64(last->kept_step));
	json_object_object_add(json, "why", json_object_new_string(last->why));
	json_object_object_add(to, "last", json);
}

static void read_last(json_object *json, struct tpck_program_last *last)
{
	json_object *why;

	*last = (struct tpck_program_last){0};
	if (!json_object_is_type(json, json_type_object))
		return;
	last->generation = read_u64(json, "generation");
	last->iterations = read_u64(json, "iterations");
	last->kept = json_object_object_get_ex(json, "kept_step", NULL);
	last->kept_step = read_u64(json, "kept_step");
	if (json_object_object_get_ex(json, "why", &why) && json_object_is_type(why, json_type_string))
		snprintf(last->why, sizeof last->why, "%s", json_object_get_string(why));
}

void tpck_program_parse_state(struct tpck_program *program, const char *text)
{
	json_object *json = json_tokener_parse(text);

	if (json_object_is_type(json, json_type_object) && read_u64(json, "format") == TPCK_PROGRAM_STATE_FORMAT &&
	    read_u64(json, "serial") > program->serial) {
		forget(&program->fences);
		forget(&program->deaths);
		forget(&program->starts);
		forget(&program->refused);
		program->serial = read_u64(json, "serial");
		program->ended = read_u64(json, "ended");
		read_notes(json, "fences", &program->fences);
		read_notes(json, "deaths", &program->deaths);
		read_notes(json, "starts", &program->starts);
		read_notes(json, "refused", &program->refused);
		read_last(json_object_object_get(json, "last"), &program->last);
		tpck_own_parse(&program->own, json_object_object_get(json, "own"));
	}
	json_object_put(json);
}

static void adopt_text(struct tpck_program *program, char *text)
{
	tpck_program_parse_state(program, text);
	free(text);
}

static char *state_text(struct tpck_program *program)
{
	json_object *json = json_object_new_object();
	char *text;

	json_object_object_add(json, "format", json_object_new_int(TPCK_PROGRAM_STATE_FORMAT));
	json_object_object_add(json, "serial", json_object_new_uint64(program->serial));
	json_object_object_add(json, "ended", json_object_new_uint64(program->ended));
	add_notes(json, "fences", &program->fences);
	add_notes(json, "deaths", &program->deaths);
	add_notes(json, "starts", &program->starts);
	add_notes(json, "refused", &program->refused);
	add_last(json, &program->last);
	json_object_object_add(json, "own", tpck_own_json(&program->own));
	text = strdup(json_object_to_json_string_ext(json, JSON_C_TO_STRING_PRETTY));
	json_object_put(json);
	return text;
}

/* ---- all places -------------------------------------------------------------------------- */

int tpck_program_load(struct tpck_program **out, const char *memory_job, const struct tpck_tiers *tiers,
		      const char *identity, struct tpck_error *err)
{
	char *kept = strdup(identity), id[TPCK_PROGRAM_ID];
	int rc;

	if (!kept)
		return tpck_error_set(err, ENOMEM, "reading a program's state");
	tpck_program_id(identity, id);
	rc = tpck_program_load_id(out, memory_job, tiers, id, err);
	if (rc)
		free(kept);
	else
		(*out)->identity = kept;
	return rc;
}

struct tpck_program *tpck_program_new(const char *id)
{
	struct tpck_program *program = calloc(1, sizeof *program);

	if (!program)
		return NULL;
	pthread_mutex_init(&program->lock, NULL);
	snprintf(program->id, sizeof program->id, "%s", id);
	return program;
}

int tpck_program_load_id(struct tpck_program **out, const char *memory_job, const struct tpck_tiers *tiers, const char *id,
			 struct tpck_error *err)
{
	struct tpck_program *program = tpck_program_new(id);
	char path[TPCK_PATH_MAX], name[64], *text;

	if (!program)
		return tpck_error_set(err, ENOMEM, "reading a program's state");
	snprintf(name, sizeof name, TPCK_PROGRAMS "/%s.state", program->id);
	if (tpck_path_join(path, sizeof path, memory_job, name) == 0 &&
	    tpck_file_read(path, 1 << 20, &text, NULL, NULL) == 0)
		adopt_text(program, text);
	for (size_t i = 0; tiers && i < tiers->count; i++)
		if (tiers->tier[i]->operations->get_text(tiers->tier[i], name, 1 << 20, &text, NULL, NULL) == 0)
			adopt_text(program, text);
	*out = program;
	return 0;
}

void tpck_program_refresh(struct tpck_program *program, const struct tpck_tiers *tiers)
{
	char name[64], *text;

	snprintf(name, sizeof name, TPCK_PROGRAMS "/%s.state", program->id);
	for (size_t i = 0; i < tiers->count; i++) {
		if (tiers->tier[i]->operations->get_text(tiers->tier[i], name, 1 << 20, &text, NULL, NULL))
			continue;
		pthread_mutex_lock(&program->lock);
		adopt_text(program, text);
		pthread_mutex_unlock(&program->lock);
	}
}

void tpck_program_free(struct tpck_program *program)
{
	if (!program)
		return;
	forget(&program->fences);
	forget(&program->deaths);
	forget(&program->starts);
	forget(&program->refused);
	tpck_own_free(&program->own);
	pthread_mutex_destroy(&program->lock);
	free(program->identity);
	free(program);
}

static void complain(const struct tpck_tiers *tiers, const struct tpck_error *err)
{
	if (tiers->complain)
		tiers->complain(err);
}

static int write_all(const char *memory_job, const struct tpck_tiers *tiers, const char *name, const char *text,
		     struct tpck_error *err)
{
	char path[TPCK_PATH_MAX], folder[TPCK_PATH_MAX];
	int rc = tpck_path_join(path, sizeof path, memory_job, name);

	snprintf(folder, sizeof folder, "%s/%.*s", memory_job, (int)(strrchr(name, '/') - name), name);
	if (!rc)
		rc = tpck_folder_make(folder, err);
	if (!rc)
		rc = tpck_file_write(path, text, strlen(text), 0, err);
	for (size_t i = 0; tiers && i < tiers->count; i++) {
		struct tpck_error slower = {0};
		int failed = tiers->tier[i]->operations->mark(tiers->tier[i], name, text, i ? &slower : err);

		if (i == 0)
			rc = failed;
		else if (failed)
			complain(tiers, &slower);
	}
	return rc;
}

int tpck_program_save(struct tpck_program *program, const char *memory_job, const struct tpck_tiers *tiers,
		      struct tpck_error *err)
{
	char name[64], *text;
	int rc;

	pthread_mutex_lock(&program->lock);
	program->serial++;
	text = state_text(program);
	pthread_mutex_unlock(&program->lock);
	if (!text)
		return tpck_error_set(err, ENOMEM, "saving a program's state");
	snprintf(name, sizeof name, TPCK_PROGRAMS "/%s.state", program->id);
	rc = write_all(memory_job, tiers, name, text, err);
	free(text);
	return rc;
}

/* ---- the marker --------------------------------------------------------------------------- */

#define MARKED "generation "
enum { MARKER_MAX = 1 << 20 };

/* Where a start that has another key finds it. */
static void names_of(const struct tpck_program *program, char name[64])
{
	snprintf(name, 64, TPCK_PROGRAMS "/%016" PRIx64 ".names/%s", tpck_identity_names(program->identity), program->id);
}

int tpck_program_mark(struct tpck_program *program, uint64_t generation, const char *memory_job, const struct tpck_tiers *tiers,
		      struct tpck_error *err)
{
	char name[64], *text;
	int rc;

	if (asprintf(&text, MARKED "%" PRIu64 "\n%s", generation, program->identity) < 0)
		return tpck_error_set(err, ENOMEM, "marking a program");
	snprintf(name, sizeof name, TPCK_PROGRAMS "/%s", program->id);
	rc = write_all(memory_job, tiers, name, text, err);
	free(text);
	names_of(program, name);
	return rc ? rc : write_all(memory_job, tiers, name, "", err);
}

uint64_t tpck_program_parse_mark(const char *text)
{
	return strncmp(text, MARKED, strlen(MARKED)) == 0 ? strtoull(text + strlen(MARKED), NULL, 10) : 0;
}

static void marked_by(char *text, uint64_t *newest)
{
	uint64_t generation = tpck_program_parse_mark(text);

	if (generation > *newest)
		*newest = generation;
	free(text);
}

uint64_t tpck_program_marked(struct tpck_program *program, const char *memory_job, const struct tpck_tiers *tiers)
{
	char name[64], path[TPCK_PATH_MAX], *text;
	uint64_t newest = 0;

	snprintf(name, sizeof name, TPCK_PROGRAMS "/%s", program->id);
	if (tpck_path_join(path, sizeof path, memory_job, name) == 0 && tpck_file_read(path, MARKER_MAX, &text, NULL, NULL) == 0)
		marked_by(text, &newest);
	for (size_t i = 0; tiers && i < tiers->count; i++)
		if (tiers->tier[i]->operations->get_text(tiers->tier[i], name, MARKER_MAX, &text, NULL, NULL) == 0)
			marked_by(text, &newest);
	return newest;
}

static int remove_all(const char *memory_job, const struct tpck_tiers *tiers, const char *name, struct tpck_error *err)
{
	char path[TPCK_PATH_MAX];
	int rc = 0;

	if (tpck_path_join(path, sizeof path, memory_job, name) == 0)
		unlink(path);
	for (size_t i = 0; tiers && i < tiers->count; i++) {
		struct tpck_error slower = {0};
		int failed = tiers->tier[i]->operations->remove(tiers->tier[i], name, i ? &slower : err);

		if (i == 0)
			rc = failed;
		else if (failed)
			complain(tiers, &slower);
	}
	return rc;
}

int tpck_program_unmark(struct tpck_program *program, const char *memory_job, const struct tpck_tiers *tiers,
			struct tpck_error *err)
{
	char name[64];
	int rc, failed;

	names_of(program, name);
	rc = remove_all(memory_job, tiers, name, err);
	snprintf(name, sizeof name, TPCK_PROGRAMS "/%s", program->id);
	failed = remove_all(memory_job, tiers, name, err);
	return failed ? failed : rc;
}

/* ---- stashes ------------------------------------------------------------------------------ */

struct stashed {
	struct tpck_tier *tier;
	const char *folder;
	uint64_t bytes;
};

static int add_stash(void *context, const char *name)
{
	struct stashed *stashed = context;
	char path[TPCK_PATH_MAX];
	uint64_t bytes;

	if (tpck_stash_is_name(name) && !tpck_path_join(path, sizeof path, stashed->folder, name) &&
	    !stashed->tier->operations->size(stashed->tier, path, &bytes, NULL))
		stashed->bytes += bytes;
	return 0;
}

uint64_t tpck_program_stashed(struct tpck_tier *tier, const char *id)
{
	char folder[TPCK_PATH_MAX];
	struct stashed stashed = {.tier = tier, .folder = folder};

	if (!tpck_path_join(folder, sizeof folder, TPCK_STASH_STORE, id))
		(void)tier->operations->list(tier, folder, add_stash, &stashed, NULL);
	return stashed.bytes;
}
