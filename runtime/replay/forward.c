/* SPDX-License-Identifier: Apache-2.0 */
/* Running forward: the log, by thread and kind of record. */
#include "config.h"

#include "runtime/replay/forward.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/replay/looks.h"
#include "runtime/replay/readings.h"
#include "runtime/replay/stash.h"

struct list {
	const struct tpck_record **at;
	uint32_t count, room, next;
};

struct tpck_expected {
	uint32_t thread;
	struct list lists[TPCK_RECORD_TYPES];
	/* What has come since (tpck_forward_extend()), until the thread takes it at the end of its lists: all up to one cut. The lock is held. */
	struct list arriving[TPCK_RECORD_TYPES];
	_Atomic bool arrived;
	bool arriving_operations;
	struct tpck_looks_reader looks[TPCK_CLOCKS];
	struct readings {
		struct tpck_readings_reader reader;
		struct readings *next;
	} *readings;           /* by key, the one that was asked for last first */
	/* the mark that the thread is in */
	const struct tpck_record_mark *mark;
	const uint32_t *tokens, *contents;
	uint32_t token, content;
	uint64_t iteration;
	bool device;           /* it has operations on the device */
	_Atomic bool at_cut;
	struct tpck_expected *next;
};

/* Token sequences by digest: a mark that repeats one refers to it. */
struct sequence {
	uint64_t digest;
	const uint32_t *tokens;
	uint32_t count;
	struct sequence *next;
};

enum { SEQUENCE_BUCKETS = 4096 };

static struct tpck_log_reader *reader;
static struct tpck_expected *all;
static struct sequence *sequences[SEQUENCE_BUCKETS] TPCK_LARGE;
static struct tpck_record_boundary last;
static uint64_t wall_ns;
static int by_uploads;
static _Atomic uint32_t waiting_for; /* threads with operations that are not at the cut yet */
static _Atomic uint32_t untaken;     /* threads that have not taken operations yet which have come since */
_Atomic bool tpck_forward_follows_now, tpck_forward_held_now;
int32_t tpck_forward_living_group;
static bool followed;                /* lists grow, or did */
static _Atomic uint32_t arrivals;    /* a futex: more has come, or no more will */
static char difference[240];
static bool chance; /* the difference may be one of chance */
static uint64_t first_looks[TPCK_CLOCKS];
static tpck_spin lock;

struct tpck_expected_turns {
	uint64_t number;
	uint32_t thread;
};
static uint32_t *captured, captured_count;
static struct tpck_expected_turns *turns;
static uint32_t turns_count, turns_room;
static _Atomic uint32_t turn_now;

static struct tpck_expected *expected_of(uint32_t thread, bool make)
{
	struct tpck_expected *found = all;

	while (found && found->thread != thread)
		found = found->next;
	if (!found && make) {
		found = calloc(1, sizeof *found);
		if (found) {
			found->thread = thread;
			found->next = all;
			all = found;
		}
	}
	return found;
}

static int list_add(struct list *list, const struct tpck_record *record)
{
	if (list->count == list->room) {
		uint32_t room = list->room ? list->room * 2 : 64;
		void *grown = realloc(list->at, room * sizeof *list->at);

		if (!grown)
			return -ENOMEM;
		list->at = grown;
		list->room = room;
	}
	list->at[list->count++] = record;
	return 0;
}

static uint32_t number_of(const struct tpck_record *record)
{
	return ((const struct tpck_record_drawn *)(record + 1))->number;
}

static int compare_drawn(const struct tpck_record *one, uint32_t talks, uint32_t number)
{
	if (one->order != talks)
		return one->order < talks ? -1 : 1;
	return number_of(one) < number ? -1 : number_of(one) > number;
}

/* A thread of its own pace had drawn less when the run was gone on from: what it drew last for a connection of that number counts. */
static int drawn_add(struct list *list, const struct tpck_record *record)
{
	while (list->count && compare_drawn(list->at[list->count - 1], record->order, number_of(record)) >= 0)
		list->count--;
	return list_add(list, record);
}

static int captured_add(const struct tpck_record *record)
{
	uint32_t *grown = reallocarray(captured, captured_count + 1ul, sizeof *captured);

	if (!grown)
		return -ENOMEM;
	captured = grown;
	memcpy(&captured[captured_count++], record + 1, sizeof *captured);
	return 0;
}

bool tpck_forward_captures(uint32_t communicator)
{
	for (uint32_t i = 0; i < captured_count; i++)
		if (captured[i] == communicator)
			return true;
	return false;
}

static int turn_add(const struct tpck_record *record)
{
	if (turns_count == turns_room) {
		uint32_t room = turns_room ? turns_room * 2 : 64;
		void *grown = realloc(turns, room * sizeof *turns);

		if (!grown)
			return -ENOMEM;
		turns = grown;
		turns_room = room;
	}
	memcpy(&turns[turns_count].number, record + 1, sizeof turns->number);
	turns[turns_count++].thread = record->thread;
	return 0;
}

static const uint32_t *sequence_find(uint64_t digest)
{
	const struct sequence *found = sequences[digest % SEQUENCE_BUCKETS];

	while (found && found->digest != digest)
		found = found->next;
	return found ? found->tokens : NULL;
}

static int sequence_add(const struct tpck_record *record)
{
	const struct tpck_record_mark *mark = (const void *)(record + 1);
	struct sequence *made;

	if (!record->detail || sequence_find(mark->digest))
		return 0;
	made = malloc(sizeof *made);
	if (!made)
		return -ENOMEM;
	made->digest = mark->digest;
	made->tokens = (const uint32_t *)(mark + 1);
	made->count = mark->operations;
	made->next = sequences[mark->digest % SEQUENCE_BUCKETS];
	sequences[mark->digest % SEQUENCE_BUCKETS] = made;
	return 0;
}

/* The main thread's where it has looked: it began first. */
static void find_first_looks(void)
{
	for (const struct tpck_expected *of = all; of; of = of->next)
		for (unsigned i = 0; i < TPCK_CLOCKS; i++) {
			struct tpck_looks_reader from = {0};

			if ((!first_looks[i] || of->thread == 1) &&
			    tpck_looks_next(&from, (enum tpck_clock)i, of->lists[TPCK_RECORD_LOOKS].at, of->lists[TPCK_RECORD_LOOKS].count))
				first_looks[i] = from.there_ns;
		}
}

static void boundary_learn(const struct tpck_record *record)
{
	uint64_t before = last.wall_ns;

	memcpy(&last, record + 1, sizeof last);
	by_uploads = record->detail;
	/* A restart begins a new clock reading, perhaps on another machine. */
	if (before && last.wall_ns > before && last.wall_ns - before < 3600000000000ull)
		wall_ns += last.wall_ns - before;
}

static uint32_t operations_of(const struct tpck_record *record)
{
	return record->type == TPCK_RECORD_MARK ? ((const struct tpck_record_mark *)(record + 1))->operations : 0;
}

/* The record is one of a thread's answers, which it has from the start. */
static int answer_add(struct tpck_expected *expected, const struct tpck_record *record)
{
	int result = record->type == TPCK_RECORD_DRAWN ? drawn_add(&expected->lists[record->type], record)
						       : list_add(&expected->lists[record->type], record);

	if (!result && record->type == TPCK_RECORD_MARK) {
		result = sequence_add(record);
		if (!expected->device)
			waiting_for++;
		expected->device = true;
	}
	return result;
}

/* The same, but it has come since. */
static int answer_arrives(struct tpck_expected *expected, const struct tpck_record *record)
{
	int result = list_add(&expected->arriving[record->type], record);

	if (!result && record->type == TPCK_RECORD_MARK)
		result = sequence_add(record);
	if (!result && operations_of(record) && !expected->arriving_operations) {
		expected->arriving_operations = true;
		atomic_fetch_add(&untaken, 1);
	}
	if (!result)
		atomic_store(&expected->arrived, true);
	return result;
}

/* Whether the record can be used. Looks for files. */
static int check(const struct tpck_record *record)
{
	bool stashed = record->type == TPCK_RECORD_FROM_DEVICE && record->detail == TPCK_READ_STASHED;

	if (!tpck_record_is_sound(record))
		return -EBADMSG;
	return stashed && !tpck_stash_refers((const void *)(record + 1)) ? -ENODATA : 0;
}

static int learn(const struct tpck_record *record, bool arrives)
{
	struct tpck_expected *expected;

	if (record->type == TPCK_RECORD_BOUNDARY) {
		boundary_learn(record);
		return 0;
	}
	if (record->type == TPCK_RECORD_SCALARS || record->type == TPCK_RECORD_PLACE || record->type == TPCK_RECORD_DEVICE ||
	    record->type == TPCK_RECORD_PROGRAM || record->type == TPCK_RECORD_TALK)
		return 0; /* no thread's answers */
	if (record->type == TPCK_RECORD_NCCL && record->detail == TPCK_NCCL_CAPTURED)
		return captured_add(record);
	if (record->type == TPCK_RECORD_TURN)
		return turn_add(record);
	expected = expected_of(record->thread, true);
	return !expected ? -ENOMEM : arrives ? answer_arrives(expected, record) : answer_add(expected, record);
}

int tpck_forward_open(const char *folder, struct tpck_log_position cut)
{
	const struct tpck_record *record;
	int result = tpck_log_open(&reader, folder, cut);

	if (result)
		return result;
	while (!result && (record = tpck_log_next(reader))) {
		result = check(record);
		if (!result)
			result = learn(record, false);
	}
	if (result)
		tpck_forward_close();
	else
		find_first_looks();
	return result;
}

void tpck_forward_close(void)
{
	if (reader)
		tpck_log_close(reader);
	reader = NULL;
	/* Lists stay: a thread that is late may still be looking at its own. */
}

static struct tpck_expected *expected_for(struct tpck_thread *self)
{
	if (!self->expected) {
		tpck_spin_lock(&lock);
		self->expected = expected_of(self->id, true);
		tpck_spin_unlock(&lock);
	}
	return self->expected;
}

static void at_cut(struct tpck_expected *expected)
{
	if (expected->device && !atomic_exchange(&expected->at_cut, true))
		atomic_fetch_sub(&waiting_for, 1);
}

/* ---- a log that is still being written ---------------------------------------------------------------- */

static bool mark_done(const struct tpck_expected *expected);
static bool more_marks(const struct tpck_expected *expected);

static void announce(void)
{
	atomic_fetch_add(&arrivals, 1);
	tpck_sys_futex(&arrivals, FUTEX_WAKE_PRIVATE, 0x7fffffff, NULL, NULL, 0);
}

void tpck_forward_follow(void)
{
	followed = true;
	atomic_store(&tpck_forward_follows_now, true);
}

void tpck_forward_last(void)
{
	atomic_store(&tpck_forward_follows_now, false);
	announce();
}

int tpck_forward_extend(struct tpck_log_position cut, void (*also)(const struct tpck_record *record))
{
	struct tpck_log_position from = tpck_log_reads_at(reader);
	const struct tpck_record *record;
	int result = tpck_log_extend(reader, cut);

	if (result)
		return result;
	/* What is no thread's answer is known before any thread comes there. */
	while (!result && (record = tpck_log_next(reader))) {
		result = check(record);
		if (!result)
			also(record);
	}
	if (result)
		return result;
	tpck_log_read_from(reader, from);
	tpck_spin_lock(&lock);
	while (!result && (record = tpck_log_next(reader)))
		result = learn(record, true);
	tpck_spin_unlock(&lock);
	announce();
	return result;
}

int tpck_forward_move(const char *folder)
{
	return tpck_log_move(reader, folder);
}

/* The first so many go. False: these are too few to do so. */
static bool drop(struct list *list, uint32_t used)
{
	if (used < 64)
		return false;
	memmove(list->at, list->at + used, (list->count - used) * sizeof *list->at);
	list->count -= used;
	return true;
}

/* Looks that are behind all clocks' next ones. */
static void drop_looks(struct tpck_expected *expected)
{
	struct list *list = &expected->lists[TPCK_RECORD_LOOKS];
	uint32_t used = list->count;

	for (unsigned i = 0; i < TPCK_CLOCKS; i++) {
		struct tpck_looks_reader *of = &expected->looks[i];

		(void)tpck_looks_next(of, (enum tpck_clock)i, list->at, list->count);
		used = of->record < used ? of->record : used;
	}
	if (drop(list, used))
		for (unsigned i = 0; i < TPCK_CLOCKS; i++)
			expected->looks[i].record -= used;
}

/* Readings that are behind the next ones of all keys. One of a key that nobody has asked for yet stays. */
static void drop_readings(struct tpck_expected *expected)
{
	struct list *list = &expected->lists[TPCK_RECORD_READING];
	uint32_t used = list->count, known = 0;
	struct readings *of;

	for (of = expected->readings; of; of = of->next) {
		tpck_readings_settle(&of->reader, list->at, list->count);
		used = of->reader.record < used ? of->reader.record : used;
	}
	while (known < used) {
		uint32_t key = tpck_readings_key(list->at[known]);

		for (of = expected->readings; of && of->reader.key != key; of = of->next)
			;
		if (!of)
			break;
		known++;
	}
	if (drop(list, known))
		for (of = expected->readings; of; of = of->next)
			of->reader.record -= known;
}

/* What was used up goes, but for the last of it. By the thread whose it is. */
static void drop_used(struct tpck_expected *expected, enum tpck_record_type type)
{
	struct list *list = &expected->lists[type];
	uint32_t used = list->next ? list->next - 1 : 0;

	if (type == TPCK_RECORD_LOOKS)
		drop_looks(expected);
	else if (type == TPCK_RECORD_READING)
		drop_readings(expected);
	else if (drop(list, used))
		list->next -= used;
}

/* What has come for the thread is the thread's. The lock is held; by the thread itself. */
static void take_arrived(struct tpck_expected *expected)
{
	for (unsigned type = 0; type < TPCK_RECORD_TYPES; type++) {
		struct list *from = &expected->arriving[type], *to = &expected->lists[type];

		drop_used(expected, type);
		for (uint32_t i = 0; i < from->count; i++)
			if (type == TPCK_RECORD_DRAWN ? drawn_add(to, from->at[i]) : list_add(to, from->at[i]))
				return; /* without memory the thread waits, and harms nobody */
		if (type == TPCK_RECORD_MARK && from->count) {
			if (!expected->device || atomic_exchange(&expected->at_cut, false))
				atomic_fetch_add(&waiting_for, 1);
			expected->device = true;
		}
		from->count = 0;
	}
	if (expected->arriving_operations)
		atomic_fetch_sub(&untaken, 1);
	expected->arriving_operations = false;
	atomic_store(&expected->arrived, false);
	if (mark_done(expected) && !more_marks(expected))
		at_cut(expected);
}

/* A thread is at the end of what the log has for it: whether there is more. It is waited for if the thread `waits`. */
static bool has_more(struct tpck_expected *expected, bool waits)
{
	int saved = errno;
	bool more = false;

	while (followed && !more) {
		uint32_t now = atomic_load(&arrivals);
		bool follows = tpck_forward_follows();

		tpck_spin_lock(&lock);
		if (atomic_load(&expected->arrived)) {
			take_arrived(expected);
			more = !atomic_load(&expected->arrived);
		}
		tpck_spin_unlock(&lock);
		if (more || !waits || !follows)
			break;
		tpck_sys_futex(&arrivals, FUTEX_WAIT_PRIVATE, now, NULL, NULL, 0);
	}
	errno = saved;
	return more;
}

void tpck_forward_await_that(bool (*what)(const void *of), const void *of)
{
	int saved = errno;

	while (tpck_forward_follows()) {
		uint32_t now = atomic_load(&arrivals);

		if (what(of))
			break;
		tpck_sys_futex(&arrivals, FUTEX_WAIT_PRIVATE, now, NULL, NULL, 0);
	}
	errno = saved;
}

bool tpck_forward_goes_on(const struct tpck_thread *self)
{
	const struct tpck_expected *expected = self->expected;
	bool more;

	tpck_spin_lock(&lock);
	more = expected && (expected->arriving_operations || (expected->device && (!mark_done(expected) || more_marks(expected))));
	tpck_spin_unlock(&lock);
	return more;
}

uint64_t tpck_forward_reached(void)
{
	uint64_t reached = 0;

	tpck_spin_lock(&lock);
	for (const struct tpck_expected *of = all; of; of = of->next)
		if (of->device && of->iteration > reached)
			reached = of->iteration;
	tpck_spin_unlock(&lock);
	return reached;
}

void tpck_forward_forked(void)
{
	atomic_store(&tpck_forward_follows_now, false);
}

void tpck_forward_await_slow(struct tpck_thread *self)
{
	struct tpck_expected *expected = expected_for(self);

	if (expected && expected->device && mark_done(expected) && !more_marks(expected))
		(void)has_more(expected, true);
}

static void differs(const struct tpck_thread *self, const char *what)
{
	tpck_spin_lock(&lock);
	if (!difference[0])
		snprintf(difference, sizeof difference, "iteration %llu, device operation %llu of thread %u: %s",
			 (unsigned long long)tpck_forward_iteration(self),
			 (unsigned long long)self->operations, self->id, what);
	tpck_spin_unlock(&lock);
}

/* Enters the next mark that has operations. False: there is none. */
static bool next_mark(struct tpck_expected *expected)
{
	struct list *marks = &expected->lists[TPCK_RECORD_MARK];

	while (marks->next < marks->count) {
		const struct tpck_record *record = marks->at[marks->next++];
		const struct tpck_record_mark *mark = (const void *)(record + 1);

		expected->iteration = record->order;
		if (!mark->operations)
			continue;
		expected->mark = mark;
		expected->tokens = sequence_find(mark->digest);
		expected->contents = (const uint32_t *)((const char *)(record + 1) + record->bytes) - mark->contents;
		expected->token = expected->content = 0;
		return true;
	}
	return false;
}

static bool mark_done(const struct tpck_expected *expected)
{
	return !expected->mark || expected->token == expected->mark->operations;
}

static bool more_marks(const struct tpck_expected *expected)
{
	const struct list *marks = &expected->lists[TPCK_RECORD_MARK];

	for (uint32_t i = marks->next; i < marks->count; i++)
		if (((const struct tpck_record_mark *)(marks->at[i] + 1))->operations)
			return true;
	return false;
}

enum tpck_forward tpck_forward_operation(struct tpck_thread *self, uint32_t token, uint32_t content)
{
	struct tpck_expected *expected = expected_for(self);

	if (!expected)
		return TPCK_FORWARD_END;
	while (mark_done(expected) && !next_mark(expected))
		if (!has_more(expected, true)) {
			at_cut(expected);
			return TPCK_FORWARD_END;
		}
	if (!expected->tokens || expected->tokens[expected->token] != token) {
		differs(self, expected->tokens ? "another call than in the first run" : "the log is not whole");
		return TPCK_FORWARD_DIFFERS;
	}
	if (content) {
		if (expected->content >= expected->mark->contents ||
		    (expected->contents[expected->content] && expected->contents[expected->content] != content)) {
			differs(self, "other bytes are copied to the device than in the first run");
			return TPCK_FORWARD_DIFFERS;
		}
		expected->content++;
	}
	expected->token++;
	if (mark_done(expected)) {
		bool elsewhere = self->places != expected->mark->places;

		self->places = 0;
		if (elsewhere) {
			chance = true;
			differs(self, "what copies, sets or kernels work on lies elsewhere than in the first run (the thread that trains should be who frees "
				      "memory of the device; with CuPy MemoryAsyncPool helps)");
			return TPCK_FORWARD_DIFFERS;
		}
		if (!more_marks(expected))
			at_cut(expected);
	}
	return TPCK_FORWARD_SAME;
}

enum tpck_forward tpck_forward_record(struct tpck_thread *self, enum tpck_record_type type,
				      const struct tpck_record **record)
{
	struct tpck_expected *expected = expected_for(self);
	struct list *list;

	if (!expected)
		return TPCK_FORWARD_FOREIGN;
	list = &expected->lists[type];
	while (list->next == list->count)
		if (!has_more(expected, expected->device))
			return expected->device ? TPCK_FORWARD_END : TPCK_FORWARD_FOREIGN;
	*record = list->at[list->next++];
	return TPCK_FORWARD_SAME;
}

/* What a thread is told that draws, or looks, once more than the log has it at this count of operations. SAME: the log has more by now. */
static enum tpck_forward no_more(struct tpck_expected *expected)
{
	if (expected->device && !(mark_done(expected) && !more_marks(expected)))
		return TPCK_FORWARD_MORE;
	if (has_more(expected, expected->device))
		return TPCK_FORWARD_SAME;
	return expected->device ? TPCK_FORWARD_END : TPCK_FORWARD_FOREIGN;
}

enum tpck_forward tpck_forward_draw(struct tpck_thread *self, enum tpck_record_type type,
				    const struct tpck_record **record)
{
	enum tpck_forward result;
	struct tpck_expected *expected = expected_for(self);
	uint32_t now = (uint32_t)self->operations;
	struct list *list;

	if (!expected)
		return TPCK_FORWARD_FOREIGN;
	list = &expected->lists[type];
	do {
		while (list->next < list->count && (int32_t)(list->at[list->next]->order - now) < 0)
			list->next++;
		if (list->next < list->count && list->at[list->next]->order == now) {
			*record = list->at[list->next++];
			return TPCK_FORWARD_SAME;
		}
		result = no_more(expected);
	} while (result == TPCK_FORWARD_SAME);
	if (result == TPCK_FORWARD_MORE)
		*record = list->next ? list->at[list->next - 1] : NULL;
	return result;
}

const struct tpck_record *tpck_forward_drawn(struct tpck_thread *self, uint32_t talks, uint32_t number)
{
	struct tpck_expected *expected = expected_for(self);
	struct list *list = expected ? &expected->lists[TPCK_RECORD_DRAWN] : NULL;

	do {
		while (list && list->next < list->count && compare_drawn(list->at[list->next], talks, number) < 0)
			list->next++;
	} while (list && list->next == list->count && no_more(expected) == TPCK_FORWARD_SAME);
	return list && list->next < list->count && compare_drawn(list->at[list->next], talks, number) == 0 ? list->at[list->next++] : NULL;
}

enum tpck_forward tpck_forward_look(struct tpck_thread *self, enum tpck_clock clock, uint64_t *ns)
{
	struct tpck_expected *expected = expected_for(self);
	uint32_t now = (uint32_t)self->operations;
	struct tpck_looks_reader *reader_of;
	enum tpck_forward result;
	const struct list *list;

	*ns = 0;
	if (!expected)
		return TPCK_FORWARD_FOREIGN;
	list = &expected->lists[TPCK_RECORD_LOOKS];
	reader_of = &expected->looks[clock];
	do {
		while (tpck_looks_next(reader_of, clock, list->at, list->count) && (int32_t)(reader_of->there_order - now) <= 0) {
			reader_of->there = false;
			self->shown[clock] = reader_of->there_ns;
			if (reader_of->there_order == now) {
				*ns = reader_of->there_ns;
				return TPCK_FORWARD_SAME;
			}
		}
		result = no_more(expected);
	} while (result == TPCK_FORWARD_SAME);
	if (result == TPCK_FORWARD_MORE)
		*ns = self->shown[clock];
	return result;
}

static struct readings *readings_of(struct tpck_expected *expected, uint32_t key)
{
	struct readings **at = &expected->readings, *found;

	while (*at && (*at)->reader.key != key)
		at = &(*at)->next;
	found = *at;
	if (found) {
		*at = found->next;
	} else {
		found = calloc(1, sizeof *found);
		if (!found)
			return NULL;
		found->reader.key = key;
	}
	found->next = expected->readings;
	expected->readings = found;
	return found;
}

enum tpck_forward tpck_forward_reading(struct tpck_thread *self, uint32_t key, bool ahead, const void **bytes, uint32_t *count)
{
	struct tpck_expected *expected = expected_for(self);
	struct readings *readings = expected ? readings_of(expected, key) : NULL;
	enum tpck_forward result = TPCK_FORWARD_SAME;
	const struct list *list;
	enum tpck_readings_next next;

	*bytes = NULL;
	if (!readings)
		return TPCK_FORWARD_FOREIGN;
	list = &expected->lists[TPCK_RECORD_READING];
	do {
		next = tpck_readings_next(&readings->reader, list->at, list->count, (uint32_t)self->operations, ahead);
		if (readings->reader.told) {
			*bytes = readings->reader.bytes;
			*count = readings->reader.count;
		}
		if (next != TPCK_READINGS_NOW)
			result = no_more(expected);
	} while (next != TPCK_READINGS_NOW && result == TPCK_FORWARD_SAME);
	return result;
}

uint64_t tpck_forward_first_look(enum tpck_clock clock)
{
	return first_looks[clock];
}

void tpck_forward_unread(struct tpck_thread *self, enum tpck_record_type type)
{
	self->expected->lists[type].next--;
}

bool tpck_forward_at_end(const struct tpck_thread *thread)
{
	const struct tpck_expected *expected = thread->expected;

	return !expected || !expected->device || atomic_load(&expected->at_cut);
}

enum tpck_forward tpck_forward_stands(struct tpck_thread *self)
{
	const struct tpck_expected *expected = expected_for(self);

	if (!expected || !expected->device)
		return TPCK_FORWARD_FOREIGN;
	tpck_forward_await(self);
	return atomic_load(&expected->at_cut) ? TPCK_FORWARD_END : TPCK_FORWARD_SAME;
}

bool tpck_forward_uses_device(uint32_t thread)
{
	const struct tpck_expected *expected;

	tpck_spin_lock(&lock);
	expected = expected_of(thread, false);
	tpck_spin_unlock(&lock);
	return expected && expected->device;
}

bool tpck_forward_complete(void)
{
	return !tpck_forward_follows() && atomic_load(&untaken) == 0 && atomic_load(&waiting_for) == 0;
}

uint32_t tpck_forward_late(void)
{
	const struct tpck_expected *late;
	uint32_t thread;

	tpck_spin_lock(&lock);
	late = all;
	while (late && !late->arriving_operations && (!late->device || atomic_load(&late->at_cut)))
		late = late->next;
	thread = late ? late->thread : 0;
	tpck_spin_unlock(&lock);
	return thread;
}

/* Another thread may add turns meanwhile. */
static bool turn_in_growing(const struct tpck_thread *self, uint64_t number)
{
	uint32_t seen = atomic_load(&arrivals), now;
	bool follows = tpck_forward_follows(), behind, own;

	tpck_spin_lock(&lock);
	now = atomic_load(&turn_now);
	while (now + 1 < turns_count && turns[now + 1].number <= number)
		now++;
	atomic_store(&turn_now, now);
	behind = number >= last.allocations;
	own = !turns_count || turns[now].thread == self->id;
	tpck_spin_unlock(&lock);
	if (behind && follows)
		tpck_sys_futex(&arrivals, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
	return behind ? !follows : own;
}

bool tpck_forward_turn(const struct tpck_thread *self, uint64_t number)
{
	uint32_t now = atomic_load(&turn_now);

	if (followed)
		return turn_in_growing(self, number);

	while (now + 1 < turns_count && turns[now + 1].number <= number)
		atomic_compare_exchange_strong(&turn_now, &now, now + 1) ? now++ : 0;
	return !turns_count || number >= last.allocations || turns[now].thread == self->id;
}

uint64_t tpck_forward_iteration(const struct tpck_thread *self)
{
	return self->expected ? self->expected->iteration : 0;
}

uint64_t tpck_forward_boundary_ns(void)
{
	return last.wall_ns;
}

uint64_t tpck_forward_shown_ns(void)
{
	return last.shown_ns;
}

int tpck_forward_by_uploads(void)
{
	return by_uploads;
}

uint64_t tpck_forward_wall_ns(void)
{
	return wall_ns;
}

bool tpck_forward_by_chance(void)
{
	return chance;
}

const char *tpck_forward_difference(void)
{
	return difference;
}
