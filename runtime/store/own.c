/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of a program's own checkpoints, and of how long its starts take. */
#include "config.h"

#include "runtime/store/own.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/view/view.h"

/* ---- saves -------------------------------------------------------------------------------- */

static void drop(struct tpck_own *own, size_t i)
{
	free(own->save[i].path);
	memmove(&own->save[i], &own->save[i + 1], (--own->saves - i) * sizeof own->save[0]);
}

void tpck_own_free(struct tpck_own *own)
{
	while (own->saves)
		drop(own, own->saves - 1);
}

struct tpck_own *tpck_own_copy(const struct tpck_own *own)
{
	struct tpck_own *copy = malloc(sizeof *copy);

	if (!copy)
		return NULL;
	*copy = *own;
	copy->saves = 0;
	for (size_t i = 0; i < own->saves; i++) {
		copy->save[copy->saves] = own->save[i];
		copy->save[copy->saves].path = strdup(own->save[i].path);
		copy->saves += copy->save[copy->saves].path != NULL;
	}
	return copy;
}

static bool is_same_file(const struct tpck_own_save *a, const struct tpck_own_save *b)
{
	return a->inode == b->inode && a->bytes == b->bytes && a->modified_sec == b->modified_sec && a->modified_ns == b->modified_ns;
}

/* Of one name the last few are enough, and of one step any file of it: what rotates has gone by then. */
static void make_room(struct tpck_own *own, const struct tpck_own_save *save)
{
	size_t alike = 0;

	for (size_t i = own->saves; i-- > 0;) {
		const struct tpck_own_save *other = &own->save[i];
		bool same_save = other->pattern == save->pattern && other->timeline == save->timeline && other->step == save->step;

		if (strcmp(other->path, save->path) == 0)
			drop(own, i);
		else if (!save->generation)
			continue;
		else if (same_save)
			drop(own, i);
		else if (other->pattern == save->pattern && ++alike >= TPCK_OWN_SAME)
			drop(own, i);
	}
	if (own->saves == TPCK_OWN_SAVES && save->generation)
		drop(own, 0);
}

void tpck_own_saved(struct tpck_own *own, const struct tpck_own_save *save)
{
	struct tpck_own_save added = *save;

	for (size_t i = 0; !added.generation && i < own->saves; i++)
		if (is_same_file(&own->save[i], save)) {
			added.generation = own->save[i].generation;
			added.timeline = own->save[i].timeline;
			added.step = own->save[i].step;
		}
	added.path = strdup(save->path);
	if (!added.path)
		return;
	make_room(own, &added);
	if (!added.generation)
		free(added.path);
	else
		own->save[own->saves++] = added;
}

/* ---- timelines ---------------------------------------------------------------------------- */

static const struct tpck_own_row *row_of(const struct tpck_own_rows *rows, uint64_t of)
{
	for (size_t i = rows->count; i-- > 0;)
		if (rows->row[i].of == of)
			return &rows->row[i];
	return NULL;
}

/* The oldest makes way. */
static void row_add(struct tpck_own_rows *rows, struct tpck_own_row row)
{
	if (rows->count == TPCK_OWN_ROWS)
		memmove(&rows->row[0], &rows->row[1], --rows->count * sizeof row);
	rows->row[rows->count++] = row;
}

static uint64_t timeline_of(const struct tpck_own *own, uint64_t generation)
{
	const struct tpck_own_row *row = row_of(&own->timelines, generation);

	return row ? row->is : generation;
}

void tpck_own_resumed(struct tpck_own *own, uint64_t generation, uint64_t parent)
{
	if (!row_of(&own->timelines, generation))
		row_add(&own->timelines, (struct tpck_own_row){generation, timeline_of(own, parent), 0});
}

/* A step by the count of the first timeline that it rests on, which *timeline becomes. */
static uint64_t whole_step(const struct tpck_own *own, uint64_t *timeline, uint64_t step)
{
	const struct tpck_own_row *base;

	/* What one began with is older than it. */
	while ((base = row_of(&own->bases, *timeline)) && base->is < *timeline) {
		step += base->at;
		*timeline = base->is;
	}
	return step;
}

/* ---- starts ------------------------------------------------------------------------------- */

bool tpck_own_loads(const struct tpck_own *own, uint64_t pattern)
{
	for (size_t i = 0; i < own->load_count; i++)
		if (own->loads[i] == pattern)
			return true;
	return false;
}

static bool was_saved_before(const struct tpck_own *own, uint64_t pattern, uint64_t generation, const struct tpck_own_save **newest)
{
	*newest = NULL;
	for (size_t i = 0; i < own->saves; i++)
		if (own->save[i].pattern == pattern && own->save[i].step && own->save[i].generation < generation)
			*newest = &own->save[i];
	return *newest != NULL;
}

static void note_load(struct tpck_own *own, uint64_t pattern)
{
	if (tpck_own_loads(own, pattern))
		return;
	if (own->load_count == TPCK_OWN_LOADS)
		memmove(&own->loads[0], &own->loads[1], --own->load_count * sizeof own->loads[0]);
	own->loads[own->load_count++] = pattern;
}

bool tpck_own_began(struct tpck_own *own, uint64_t generation, double seconds, const uint64_t *patterns, size_t count, bool passed_over)
{
	const struct tpck_own_save *save, *base = NULL;

	own->begin_sec = seconds;
	own->tries = 0;
	for (size_t i = 0; i < count; i++)
		if (was_saved_before(own, patterns[i], generation, &save)) {
			note_load(own, patterns[i]);
			base = !base || save > base ? save : base;
		}
	if (base) {
		own->load_sec = seconds;
		if (!row_of(&own->bases, generation))
			row_add(&own->bases, (struct tpck_own_row){generation, base->timeline, base->step});
	} else if (passed_over) {
		/* So may the next one. */
		own->load_count = 0;
	}
	return base != NULL;
}

/* ---- choosing ----------------------------------------------------------------------------- */

static bool is_there(const struct tpck_own_save *save)
{
	struct stat found;

	return stat(save->path, &found) == 0 && S_ISREG(found.st_mode) && found.st_ino == save->inode && (uint64_t)found.st_size == save->bytes &&
	       (uint64_t)found.st_mtim.tv_sec == save->modified_sec && (uint64_t)found.st_mtim.tv_nsec == save->modified_ns;
}

void tpck_own_find(const struct tpck_own *own, struct tpck_own_choice *choice)
{
	const struct tpck_own_save *found = NULL;

	for (int loads = 1; loads >= 0 && !found; loads--)
		for (size_t i = own->saves; i-- > 0 && !found;)
			if (own->save[i].step && tpck_own_loads(own, own->save[i].pattern) == loads && is_there(&own->save[i]))
				found = &own->save[i];
	choice->saved = found;
	if (!found)
		return;
	choice->loads = tpck_own_loads(own, found->pattern);
	choice->step = found->step;
	choice->timeline = found->timeline;
	snprintf(choice->path, sizeof choice->path, "%s", found->path);
}

void tpck_own_weigh(const struct tpck_own *own, const struct tpck_point *point, struct tpck_own_choice *choice)
{
	const struct tpck_own_forward *forward = &own->forward;
	double steps = (double)point->step, lost;
	uint64_t there = timeline_of(own, point->generation), here = choice->timeline, own_step;

	choice->fails = own->tries >= TPCK_OWN_TRIES;
	choice->measured = forward->measured && (forward->iteration_sec > 0 || point->step <= 1);
	if (choice->measured)
		choice->forward_sec = forward->staged_sec + forward->first_sec + (steps > 1 ? steps - 1 : 0) * forward->iteration_sec + forward->inject_sec;
	else if (own->iteration_sec > 0)
		choice->forward_sec = own->begin_sec + (steps > 1 ? steps - 1 : 0) * own->iteration_sec;
	else
		choice->forward_sec = 0;
	choice->own_sec = 0;
	if (!choice->saved || own->load_sec <= 0 || own->iteration_sec <= 0)
		return;
	/* Where nothing is known of how the two hang together, all that the snapshot has is lost. */
	steps = (double)whole_step(own, &there, point->step);
	own_step = whole_step(own, &here, choice->step);
	lost = there == here ? steps - (double)own_step : steps;
	choice->own_sec = own->load_sec + (lost - 1) * own->iteration_sec;
	/* A checkpoint that is newer than the snapshot spares what forward would have to do behind that. */
	if (choice->own_sec < 0) {
		choice->forward_sec -= choice->forward_sec > 0 ? choice->own_sec - own->load_sec : 0;
		choice->own_sec = own->load_sec;
	}
}

/* ---- text --------------------------------------------------------------------------------- */

static void put(json_object *row, uint64_t number)
{
	json_object_array_add(row, json_object_new_uint64(number));
}

static json_object *rows_json(const struct tpck_own_rows *rows)
{
	json_object *array = json_object_new_array();

	for (size_t i = 0; i < rows->count; i++) {
		json_object *row = json_object_new_array();

		put(row, rows->row[i].of);
		put(row, rows->row[i].is);
		put(row, rows->row[i].at);
		json_object_array_add(array, row);
	}
	return array;
}

static json_object *save_json(const struct tpck_own_save *save)
{
	const uint64_t number[] = {save->pattern, save->inode, save->bytes, save->modified_sec, save->modified_ns, save->generation, save->timeline, save->step};
	json_object *row = json_object_new_array();

	json_object_array_add(row, json_object_new_string(save->path));
	for (size_t i = 0; i < sizeof number / sizeof *number; i++)
		put(row, number[i]);
	return row;
}

static void put_sec(json_object *to, const char *key, double seconds)
{
	if (seconds > 0)
		json_object_object_add(to, key, json_object_new_double(seconds));
}

json_object *tpck_own_json(const struct tpck_own *own)
{
	json_object *json = json_object_new_object(), *saves = json_object_new_array(), *loads = json_object_new_array();
	json_object *forward = json_object_new_object();

	for (size_t i = 0; i < own->saves; i++)
		json_object_array_add(saves, save_json(&own->save[i]));
	for (size_t i = 0; i < own->load_count; i++)
		put(loads, own->loads[i]);
	json_object_object_add(json, "saves", saves);
	json_object_object_add(json, "loads", loads);
	json_object_object_add(json, "timelines", rows_json(&own->timelines));
	json_object_object_add(json, "bases", rows_json(&own->bases));
	json_object_object_add(json, "tries", json_object_new_uint64(own->tries));
	put_sec(json, "begin_sec", own->begin_sec);
	put_sec(json, "load_sec", own->load_sec);
	put_sec(json, "iteration_sec", own->iteration_sec);
	if (!own->forward.measured) {
		json_object_put(forward);
		return json;
	}
	put_sec(forward, "staged_sec", own->forward.staged_sec);
	put_sec(forward, "first_sec", own->forward.first_sec);
	put_sec(forward, "iteration_sec", own->forward.iteration_sec);
	put_sec(forward, "inject_sec", own->forward.inject_sec);
	json_object_object_add(json, "forward", forward);
	return json;
}

static json_object *member(json_object *from, const char *key, json_type type)
{
	json_object *found;

	return json_object_is_type(from, json_type_object) && json_object_object_get_ex(from, key, &found) && json_object_is_type(found, type) ? found : NULL;
}

static uint64_t number_at(json_object *row, size_t i)
{
	return json_object_get_uint64(json_object_array_get_idx(row, i));
}

/* The i-th, if it is an array of so many; else NULL. */
static json_object *row_at(json_object *array, size_t i, size_t length)
{
	json_object *row = json_object_array_get_idx(array, i);

	return json_object_is_type(row, json_type_array) && json_object_array_length(row) == length ? row : NULL;
}

static size_t length_of(json_object *array, size_t most)
{
	size_t length = array ? json_object_array_length(array) : 0;

	return length < most ? length : most;
}

static void read_rows(json_object *json, const char *key, struct tpck_own_rows *rows)
{
	json_object *array = member(json, key, json_type_array), *row;

	rows->count = 0;
	for (size_t i = 0; i < length_of(array, TPCK_OWN_ROWS); i++)
		if ((row = row_at(array, i, 3)))
			rows->row[rows->count++] = (struct tpck_own_row){number_at(row, 0), number_at(row, 1), number_at(row, 2)};
}

static double seconds_of(json_object *json, const char *key)
{
	json_object *found;
	double seconds = json_object_is_type(json, json_type_object) && json_object_object_get_ex(json, key, &found) ? json_object_get_double(found) : 0;

	return seconds > 0 && seconds < 1e12 ? seconds : 0;
}

static void read_saves(json_object *array, struct tpck_own *own)
{
	for (size_t i = 0; i < length_of(array, TPCK_OWN_SAVES); i++) {
		json_object *row = row_at(array, i, 9), *path = row ? json_object_array_get_idx(row, 0) : NULL;
		struct tpck_own_save *save = &own->save[own->saves];

		if (!path || !json_object_is_type(path, json_type_string) || json_object_get_string(path)[0] != '/')
			continue;
		*save = (struct tpck_own_save){.path = strdup(json_object_get_string(path)), .pattern = number_at(row, 1), .inode = number_at(row, 2),
					       .bytes = number_at(row, 3), .modified_sec = number_at(row, 4), .modified_ns = number_at(row, 5),
					       .generation = number_at(row, 6), .timeline = number_at(row, 7), .step = number_at(row, 8)};
		own->saves += save->path != NULL;
	}
}

void tpck_own_parse(struct tpck_own *own, json_object *json)
{
	json_object *loads = member(json, "loads", json_type_array), *forward = member(json, "forward", json_type_object);

	tpck_own_free(own);
	read_saves(member(json, "saves", json_type_array), own);
	own->load_count = length_of(loads, TPCK_OWN_LOADS);
	for (size_t i = 0; i < own->load_count; i++)
		own->loads[i] = number_at(loads, i);
	own->tries = json_object_get_uint64(member(json, "tries", json_type_int));
	read_rows(json, "timelines", &own->timelines);
	read_rows(json, "bases", &own->bases);
	own->begin_sec = seconds_of(json, "begin_sec");
	own->load_sec = seconds_of(json, "load_sec");
	own->iteration_sec = seconds_of(json, "iteration_sec");
	own->forward = (struct tpck_own_forward){.staged_sec = seconds_of(forward, "staged_sec"), .first_sec = seconds_of(forward, "first_sec"),
						 .iteration_sec = seconds_of(forward, "iteration_sec"), .inject_sec = seconds_of(forward, "inject_sec"),
						 .measured = forward != NULL};
}
