/* SPDX-License-Identifier: Apache-2.0 */
/* What the log says of programs, while it is run forward by. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/digest.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/follow/follow.h"
#include "runtime/programs/programs_private.h"

enum { BUCKETS = 1024 };
static struct tpck_known *known[BUCKETS] TPCK_LARGE;
static struct wrote {
	uint32_t writer;
	const char *path;
	struct wrote *next;
} *wrote;
/* Of what comes behind the boundary; [1]: of starts that had gone on from there, and left no snapshot. */
static struct {
	char names[TPCK_PROGRAM_NAMES];
	unsigned count;
} behind[2] TPCK_LARGE;
static uint32_t ends, known_count;

static void say_short(void)
{
	static bool said;

	if (!said)
		tpck_log_warn("there is no memory for all that the record has of programs: some may be started again, or write to files twice");
	said = true;
}

struct tpck_known *tpck_known_of(uint32_t thread, uint32_t ordinal)
{
	struct tpck_known *found = known[(thread * 31 + ordinal) % BUCKETS];

	while (found && (found->started->thread != thread || found->started->ordinal != ordinal))
		found = found->next;
	return found;
}

static bool names_one(const struct tpck_record *record)
{
	const char *payload = (const char *)(record + 1);

	return record->bytes > sizeof(struct tpck_record_program) && !payload[record->bytes - 1];
}

static struct tpck_known *known_new(const struct tpck_record_program *program)
{
	struct tpck_known **bucket = &known[(program->thread * 31 + program->ordinal) % BUCKETS], *of = calloc(1, sizeof *of);

	if (of) {
		of->started = program;
		of->said_end = &of->said;
		of->index = known_count++;
		of->next = *bucket;
		/* Others may be looking for one, where the log grows. */
		__atomic_store_n(bucket, of, __ATOMIC_RELEASE);
	} else {
		say_short();
	}
	return of;
}

static void learn_wrote(uint32_t writer, const char *path)
{
	struct wrote *of = wrote;

	while (of && (of->writer != writer || strcmp(of->path, path) != 0))
		of = of->next;
	if (of)
		return;
	of = calloc(1, sizeof *of);
	if (!of) {
		say_short();
		return;
	}
	*of = (struct wrote){writer, path, wrote};
	__atomic_store_n(&wrote, of, __ATOMIC_RELEASE);
}

void tpck_programs_learn(const struct tpck_record *record)
{
	const struct tpck_record_program *program = (const void *)(record + 1);
	struct tpck_known *of = record->bytes >= sizeof *program ? tpck_known_of(program->thread, program->ordinal) : NULL;
	struct tpck_known_said *said;

	if (record->type != TPCK_RECORD_PROGRAM || record->bytes < sizeof *program)
		return;
	if (record->detail == TPCK_PROGRAM_WROTE) {
		if (names_one(record))
			learn_wrote(program->thread, (const char *)(program + 1));
		return;
	}
	if (record->detail == TPCK_PROGRAM_STARTED && of && names_one(record)) {
		/* A thread of its own pace had started fewer when the run was gone on from: what it started last by that number counts. */
		*of = (struct tpck_known){.started = program, .name = (const char *)(program + 1), .said_end = &of->said, .made = of->made, .index = of->index, .next = of->next};
	} else if (record->detail == TPCK_PROGRAM_STARTED && names_one(record)) {
		of = known_new(program);
		if (of)
			of->name = (const char *)(program + 1);
	} else if (record->detail == TPCK_PROGRAM_FORKED) {
		if (!of)
			of = known_new(program);
		if (!of)
			return;
		of->name = "";
		of->forked = true;
		of->ended_as = ++ends;
		of->status = program->status;
		of->polls = program->polls;
		of->lost = program->flags & TPCK_PROGRAM_UNSURE;
		__atomic_store_n(&of->ended, true, __ATOMIC_RELEASE);
	} else if (record->detail == TPCK_PROGRAM_MADE && names_one(record)) {
		struct tpck_known_made *made = calloc(1, sizeof *made);

		if (!of)
			of = known_new(program);
		if (!of || !made) {
			say_short();
			free(made);
			return;
		}
		of->name = of->name ? of->name : "";
		*made = (struct tpck_known_made){(const char *)(program + 1), of->made};
		of->made = made;
	} else if (of && record->detail == TPCK_PROGRAM_ENDED) {
		of->ended_as = ++ends;
		of->status = program->status;
		of->polls = program->polls;
		__atomic_store_n(&of->ended, true, __ATOMIC_RELEASE);
	} else if (of && record->detail == TPCK_PROGRAM_LOST) {
		of->lost = true;
	} else if (of && record->detail == TPCK_PROGRAM_SAID && record->bytes == sizeof *program) {
		of->closed |= 1u << (program->stream & 3);
	} else if (of && record->detail == TPCK_PROGRAM_SAID) {
		said = calloc(1, sizeof *said);
		if (!said) {
			/* What lacks a piece is not played. */
			of->lost = true;
			say_short();
			return;
		}
		said->record = program;
		said->bytes = record->bytes - (uint32_t)sizeof *program;
		*of->said_end = said;
		of->said_end = &said->next;
	}
}

void tpck_child_name_add(char names[TPCK_PROGRAM_NAMES], const char *name)
{
	size_t used = strlen(names);

	snprintf(names + used, TPCK_PROGRAM_NAMES - used, "%s%.40s", used ? ", " : "", name);
}

static void learn_again(bool tried, const struct tpck_record *record)
{
	if (record->type != TPCK_RECORD_PROGRAM || record->detail != TPCK_PROGRAM_STARTED || !names_one(record))
		return;
	behind[tried].count++;
	tpck_child_name_add(behind[tried].names, (const char *)(record + 1) + sizeof(struct tpck_record_program));
}

void tpck_programs_learn_behind(const struct tpck_record *record)
{
	learn_again(false, record);
}

void tpck_programs_learn_tried(const struct tpck_record *record)
{
	learn_again(true, record);
}

void tpck_programs_unlearn(void)
{
	memset(known, 0, sizeof known);
	known_count = 0;
	wrote = NULL;
	memset(behind, 0, sizeof behind);
}

bool tpck_known_ended(uint32_t number)
{
	for (size_t b = 0; b < BUCKETS; b++)
		for (const struct tpck_known *of = known[b]; of; of = of->next)
			if (tpck_digest_pair(of->started->thread, of->started->ordinal) == number)
				return of->ended && !of->lost && !(of->forked && of->started->flags & TPCK_PROGRAM_NESTED);
	return false;
}

bool tpck_known_wrote(void)
{
	for (const struct wrote *of = wrote; of; of = of->next)
		if (!tpck_known_ended(of->writer))
			return true;
	return false;
}

bool tpck_known_goes_on(uint32_t thread, uint32_t ordinal)
{
	const struct wrote *file = __atomic_load_n(&wrote, __ATOMIC_ACQUIRE);
	const struct tpck_known *of = tpck_known_of(thread, ordinal);
	const struct tpck_known_made *made = of ? of->made : NULL;
	uint32_t number = tpck_digest_pair(thread, ordinal);

	while (made && tpck_follow_may_be_own(made->path))
		made = made->next;
	while (file && (file->writer != number || tpck_follow_may_be_own(file->path)))
		file = file->next;
	return !made && !file && !(of && (of->forked || of->lost || of->name[0]));
}

const char *tpck_programs_share(void)
{
	for (const struct wrote *of = __atomic_load_n(&wrote, __ATOMIC_ACQUIRE); of; of = of->next)
		if (tpck_follow_has_written(of->path) && !tpck_known_ended(of->writer))
			return of->path;
	return NULL;
}

bool tpck_known_is(const struct tpck_known *of, uint64_t path)
{
	return of && !of->forked && of->started->path == path;
}

void tpck_programs_give(void)
{
	for (const struct wrote *of = wrote; of; of = of->next)
		if (!tpck_known_ended(of->writer))
			tpck_follow_given(of->path);
}

/* Where the program has its bit, in the page. NULL: it has none there. */
static _Atomic uint32_t *taken_at(const struct tpck_known *of, struct tpck_standin_page *page, uint32_t *bit)
{
	*bit = 1u << of->index % 32;
	return page && of->index < TPCK_STANDIN_TAKEN ? &page->taken[of->index / 32] : NULL;
}

bool tpck_known_take(struct tpck_known *of, struct tpck_standin_page *page)
{
	uint32_t bit;
	_Atomic uint32_t *at = taken_at(of, page, &bit);
	bool was = at ? (atomic_fetch_or(at, bit) & bit) != 0 : of->taken;

	of->taken = true;
	return !was;
}

static bool is_taken(const struct tpck_known *of, struct tpck_standin_page *page)
{
	uint32_t bit;
	const _Atomic uint32_t *at = taken_at(of, page, &bit);

	return at ? (atomic_load(at) & bit) != 0 : of->taken;
}

struct tpck_known *tpck_known_alike(uint64_t path, uint64_t arguments, struct tpck_standin_page *page)
{
	struct tpck_known *other = NULL;

	for (size_t b = 0; b < BUCKETS; b++)
		for (struct tpck_known *of = known[b]; of; of = of->next)
			if (tpck_known_is(of, path) && of->started->flags & TPCK_PROGRAM_NESTED && of->started->arguments == arguments && !is_taken(of, page) &&
			    (!other || of->started->made_ns < other->started->made_ns))
				other = of;
	return other;
}

bool tpck_programs_any(void)
{
	for (size_t b = 0; b < BUCKETS; b++)
		for (const struct tpck_known *of = known[b]; of; of = of->next)
			if (!of->forked)
				return true;
	return false;
}

const char *tpck_known_behind(bool tried, unsigned *count)
{
	*count = behind[tried].count;
	return behind[tried].names;
}
