/* SPDX-License-Identifier: Apache-2.0 */
/* Who waits for whom. */
#include "config.h"

#include "runtime/peer/waiting.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/wire/segment.h"

enum { RANKS_NAMED = 8, HOSTS_NAMED = 4 };

struct node {
	char *name, *host;
	uint8_t *rows;
	size_t size;
	struct node *next;
};

struct tpck_waiting {
	uint32_t world, there;
	struct node *nodes;
	/* [world]; NULL: nothing is known of it */
	struct rank {
		const struct tpck_waiting_rank *row;
		const struct node *node;
	} *rank;
};

/* ---- what is known ------------------------------------------------------------------------ */

static const struct tpck_waiting_mark *marks_of(const struct tpck_waiting_rank *row)
{
	return (const struct tpck_waiting_mark *)(row + 1);
}

/* The row at `at`, which moves behind it. NULL: there is none. */
static const struct tpck_waiting_rank *next_row(const uint8_t *rows, size_t size, size_t *at)
{
	const struct tpck_waiting_rank *row = (const void *)(rows + *at);

	if (size - *at < sizeof *row || row->marks > TPCK_MARKS_MAX || size - *at - sizeof *row < row->marks * sizeof(struct tpck_waiting_mark))
		return NULL;
	*at += sizeof *row + row->marks * sizeof(struct tpck_waiting_mark);
	return row;
}

struct tpck_waiting *tpck_waiting_new(uint32_t world)
{
	struct tpck_waiting *waiting = calloc(1, sizeof *waiting);

	if (!waiting)
		return NULL;
	waiting->world = world;
	waiting->rank = calloc(world, sizeof *waiting->rank);
	if (waiting->rank)
		return waiting;
	free(waiting);
	return NULL;
}

static void node_free(struct node *node)
{
	if (!node)
		return;
	free(node->name);
	free(node->host);
	free(node->rows);
	free(node);
}

void tpck_waiting_free(struct tpck_waiting *waiting)
{
	if (!waiting)
		return;
	while (waiting->nodes) {
		struct node *node = waiting->nodes;

		waiting->nodes = node->next;
		node_free(node);
	}
	free(waiting->rank);
	free(waiting);
}

void tpck_waiting_take(struct tpck_waiting *waiting, const char *name)
{
	struct node **place = &waiting->nodes, *node;

	while (*place && strcmp((*place)->name, name) != 0)
		place = &(*place)->next;
	node = *place;
	if (!node)
		return;
	for (size_t at = 0; at < node->size;) {
		uint32_t rank = next_row(node->rows, node->size, &at)->rank;

		if (waiting->rank[rank].node == node) {
			waiting->rank[rank] = (struct rank){0};
			waiting->there--;
		}
	}
	*place = node->next;
	node_free(node);
}

int tpck_waiting_put(struct tpck_waiting *waiting, const char *name, const char *host, const void *rows, size_t size)
{
	struct node *node = calloc(1, sizeof *node);
	const struct tpck_waiting_rank *row;
	int rc = 0;

	if (node) {
		node->name = strdup(name);
		node->host = strdup(host);
		node->rows = malloc(size + 1);
	}
	if (!node || !node->name || !node->host || !node->rows) {
		node_free(node);
		return -ENOMEM;
	}
	/* Rows are multiples of eight bytes, and this copy is where they may be read. */
	memcpy(node->rows, rows, size);
	node->size = size;
	for (size_t at = 0; !rc && at < size;) {
		row = next_row(node->rows, size, &at);
		if (!row || row->rank >= waiting->world)
			rc = -EINVAL;
	}
	if (rc) {
		node_free(node);
		return rc;
	}
	tpck_waiting_take(waiting, name);
	node->next = waiting->nodes;
	waiting->nodes = node;
	for (size_t at = 0; at < size;) {
		row = next_row(node->rows, size, &at);
		waiting->there += !waiting->rank[row->rank].row;
		waiting->rank[row->rank] = (struct rank){row, node};
	}
	return 0;
}

bool tpck_waiting_all(const struct tpck_waiting *waiting)
{
	return waiting->there == waiting->world;
}

/* ---- text --------------------------------------------------------------------------------- */

struct text {
	char *at;
	size_t size, used;
};

static void add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(struct text *text, const char *format, ...)
{
	va_list args;
	int length;

	va_start(args, format);
	length = vsnprintf(text->at + text->used, text->size - text->used, format, args);
	va_end(args);
	if (length > 0)
		text->used = text->used + (size_t)length < text->size ? text->used + (size_t)length : text->size - 1;
}

static bool is_stopped(const struct tpck_waiting_rank *row)
{
	return row->state == 'T' || row->state == 't';
}

static void add_rank(struct text *text, const struct tpck_waiting_rank *row)
{
	add(text, "%u", row->rank);
	if (is_stopped(row))
		add(text, " (process %d, which is stopped)", row->pid);
	else if (row->state == 'D')
		add(text, " (process %d, which waits for a disk)", row->pid);
}

static bool has_one(const struct node *node, const uint8_t *in, uint8_t value)
{
	bool any = false;

	for (size_t at = 0; !any && at < node->size;)
		any = in[next_row(node->rows, node->size, &at)->rank] == value;
	return any;
}

/* The hosts of ranks in order of ranks, each once: " on hosta and hostb". `in` is of each rank, as in add_ranks(). */
static void add_hosts(struct text *text, const struct tpck_waiting *waiting, const uint8_t *in, uint8_t value)
{
	const struct node *named[HOSTS_NAMED];
	uint32_t count = 0, hosts = 0;

	if (!waiting->nodes || !waiting->nodes->next)
		return;
	for (const struct node *node = waiting->nodes; node; node = node->next)
		hosts += has_one(node, in, value);
	for (uint32_t r = 0; r < waiting->world && count < HOSTS_NAMED; r++) {
		bool is_new = in[r] == value;

		for (uint32_t i = 0; i < count; i++)
			is_new = is_new && named[i] != waiting->rank[r].node;
		if (!is_new)
			continue;
		named[count++] = waiting->rank[r].node;
		add(text, "%s%s", count == 1 ? " on " : count < hosts ? ", " : " and ", named[count - 1]->host);
	}
	if (hosts > count)
		add(text, " and %u more", hosts - count);
}

/* "rank 1", "ranks 0, 1 and 3": those for which `in` has this value. How many those are. */
static uint32_t add_ranks(struct text *text, const struct tpck_waiting *waiting, const uint8_t *in, uint8_t value)
{
	uint32_t count = 0, done = 0;

	for (uint32_t r = 0; r < waiting->world; r++)
		count += in[r] == value;
	add(text, "rank%s ", count == 1 ? "" : "s");
	for (uint32_t r = 0; r < waiting->world && done < RANKS_NAMED; r++) {
		if (in[r] != value)
			continue;
		add_rank(text, waiting->rank[r].row);
		if (++done < count && done < RANKS_NAMED)
			add(text, done + 1 == count ? " and " : ", ");
	}
	if (count > done)
		add(text, " and %u more", count - done);
	return count;
}

/* ---- who is late -------------------------------------------------------------------------- */

enum { NOT_IN_IT, LATE, AHEAD };

/* A rank on a communicator; and where it was said, which is how a user would count. */
struct entry {
	const struct tpck_waiting_mark *mark;
	uint32_t rank, place;
};

/* Those of one communicator. */
struct group {
	const struct entry *entry;
	size_t count;
	uint64_t most, least;
	uint32_t rank, place; /* of the first */
};

static int by_communicator(const void *a, const void *b)
{
	const struct entry *left = a, *right = b;

	if (left->mark->id != right->mark->id)
		return left->mark->id < right->mark->id ? -1 : 1;
	return left->rank < right->rank ? -1 : left->rank > right->rank;
}

static size_t mark_count(const struct tpck_waiting *waiting)
{
	size_t count = 0;

	for (uint32_t r = 0; r < waiting->world; r++)
		count += waiting->rank[r].row ? waiting->rank[r].row->marks : 0;
	return count;
}

static void sort_entries(const struct tpck_waiting *waiting, struct entry *entries, size_t count)
{
	size_t n = 0;

	for (uint32_t r = 0; r < waiting->world; r++) {
		const struct tpck_waiting_rank *row = waiting->rank[r].row;

		for (uint32_t i = 0; row && i < row->marks; i++)
			entries[n++] = (struct entry){&marks_of(row)[i], r, i};
	}
	if (count)
		qsort(entries, count, sizeof *entries, by_communicator);
}

/* The group at *at, which moves behind it. */
static struct group next_group(const struct entry *entries, size_t count, size_t *at)
{
	struct group group = {&entries[*at], 0, 0, UINT64_MAX, entries[*at].rank, entries[*at].place};

	for (; *at < count && entries[*at].mark->id == group.entry->mark->id; ++*at, group.count++) {
		uint64_t collectives = entries[*at].mark->collectives;

		group.most = collectives > group.most ? collectives : group.most;
		group.least = collectives < group.least ? collectives : group.least;
	}
	return group;
}

/* Ranks that have queued what others of a communicator have not, on any: these wait, whomever else wait for them. */
static void note_ahead(const struct group *group, uint8_t *ahead)
{
	for (size_t i = 0; group->most > group->least && i < group->count; i++)
		if (group->entry[i].mark->collectives == group->most)
			ahead[group->entry[i].rank] = 1;
}

static bool waits_elsewhere(const struct group *group, const uint8_t *ahead)
{
	for (size_t i = 0; i < group->count; i++)
		if (group->entry[i].mark->collectives < group->most && ahead[group->entry[i].rank])
			return true;
	return false;
}

static bool is_before(const struct group *a, const struct group *b)
{
	return a->rank != b->rank ? a->rank < b->rank : a->place < b->place;
}

/* False: none is uneven. `ahead` is [world], all zero. */
static bool choose(const struct entry *entries, size_t count, uint8_t *ahead, struct group *chosen)
{
	bool found = false, chosen_waits = false;

	for (size_t at = 0; at < count;) {
		struct group group = next_group(entries, count, &at);

		note_ahead(&group, ahead);
	}
	for (size_t at = 0; at < count;) {
		struct group group = next_group(entries, count, &at);
		bool waits;

		if (group.most == group.least)
			continue;
		waits = waits_elsewhere(&group, ahead);
		if (found && (waits != chosen_waits ? waits : !is_before(&group, chosen)))
			continue;
		*chosen = group;
		chosen_waits = waits;
		found = true;
	}
	return found;
}

/* A collective that some ranks of a communicator have queued and others have not. */
static bool late_by_count(const struct tpck_waiting *waiting, struct entry *entries, size_t count, uint8_t *in, struct text *text)
{
	const struct tpck_waiting_mark *first = NULL;
	struct group group = {0};
	uint32_t late;

	if (!choose(entries, count, in, &group))
		return false;
	memset(in, NOT_IN_IT, waiting->world);
	for (size_t i = 0; i < group.count; i++) {
		bool ahead = group.entry[i].mark->collectives == group.most;

		in[group.entry[i].rank] = ahead ? AHEAD : LATE;
		if (ahead && !first)
			first = group.entry[i].mark;
	}
	late = add_ranks(text, waiting, in, LATE);
	add_hosts(text, waiting, in, LATE);
	add(text, " %s not queued collective %" PRIu64 " of communicator %u", late == 1 ? "has" : "have", group.least + 1, first->index);
	/* Of the last one it is known what it is. */
	if (group.most == group.least + 1 && first->last < TPCK_SEND)
		add(text, ", %s of %" PRIu64 " elements", tpck_collective_name(first->last), first->elements);
	add(text, "; ");
	add_ranks(text, waiting, in, AHEAD);
	add(text, " queued it");
	return true;
}

/* Processes that somebody has stopped. */
static bool stopped(const struct tpck_waiting *waiting, uint8_t *in, struct text *text)
{
	bool any = false;

	for (uint32_t r = 0; r < waiting->world; r++) {
		in[r] = waiting->rank[r].row && is_stopped(waiting->rank[r].row);
		any = any || in[r];
	}
	if (any) {
		add_ranks(text, waiting, in, 1);
		add_hosts(text, waiting, in, 1);
		add(text, " may hold up the others; every rank has queued the same collectives");
	}
	return any;
}

/* Who has not called NCCL for longest; NULL: nobody has at all. */
static const struct tpck_waiting_rank *last_to_call(const struct tpck_waiting *waiting, const struct tpck_waiting_mark **what)
{
	const struct tpck_waiting_rank *found = NULL;

	for (uint32_t r = 0; r < waiting->world; r++) {
		const struct tpck_waiting_rank *row = waiting->rank[r].row;
		const struct tpck_waiting_mark *newest = NULL;

		for (uint32_t i = 0; row && i < row->marks; i++)
			if (marks_of(row)[i].age_ns != UINT64_MAX && (!newest || marks_of(row)[i].age_ns < newest->age_ns))
				newest = &marks_of(row)[i];
		if (newest && (!found || newest->age_ns > (*what)->age_ns)) {
			found = row;
			*what = newest;
		}
	}
	return found;
}

static void none_late(const struct tpck_waiting *waiting, uint8_t *in, struct text *text)
{
	const struct tpck_waiting_mark *what = NULL;
	const struct tpck_waiting_rank *row = last_to_call(waiting, &what);

	memset(in, 0, waiting->world);
	if (row) {
		in[row->rank] = 1;
		add(text, "every rank has queued the same collectives; the first to call NCCL no more was rank ");
		add_rank(text, row);
		add_hosts(text, waiting, in, 1);
		add(text, ", after %s of %" PRIu64 " elements on communicator %u", tpck_collective_name(what->last), what->elements, what->index);
		return;
	}
	for (uint32_t r = 0; r < waiting->world; r++)
		in[r] = waiting->rank[r].row != NULL;
	add(text, "nothing is known of what ");
	add_ranks(text, waiting, in, 1);
	add(text, " wait for");
}

void tpck_waiting_describe(const struct tpck_waiting *waiting, char *buffer, size_t size)
{
	size_t count = mark_count(waiting);
	struct entry *entries = calloc(count + 1, sizeof *entries);
	uint8_t *in = calloc(waiting->world, 1);
	struct text text = {buffer, size, 0};

	*buffer = '\0';
	if (entries && in) {
		sort_entries(waiting, entries, count);
		if (!late_by_count(waiting, entries, count, in, &text) && !stopped(waiting, in, &text))
			none_late(waiting, in, &text);
	}
	free(entries);
	free(in);
}
