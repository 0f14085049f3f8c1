/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that wait for each other. Where no rank has ended an iteration for long, it is said once which rank the others wait
 * for, by what each has queued on its communicators, and shown for as long as it lasts. Nothing is done about it: it may
 * be an evaluation, and the program has a limit of its own.
 */
#include "config.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "tools/agent/agent.h"

/* Of an iteration that takes long, so many are waited for. */
enum { ITERATIONS = 10, RANKS_NAMED = 8 };
/* How soon it is seen that they go on. */
#define LOOK_AGAIN_NS 500000000ull

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

static const struct tpck_control *control_of(const struct launch *launch, uint32_t rank)
{
	return launch->rank[rank]->session->control;
}

/* The process's state as /proc has it: T where it is stopped; 0: not known. */
static char process_state(pid_t pid)
{
	char path[64], line[256], *end, state = 0;
	FILE *file;

	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fgets(line, sizeof line, file) && (end = strrchr(line, ')')) && end[1] == ' ')
		state = end[2];
	fclose(file);
	return state;
}

static void add_rank(struct text *text, const struct launch *launch, uint32_t rank)
{
	pid_t pid = launch->rank[rank]->pid;
	char state = process_state(pid);

	add(text, "%u", rank);
	if (state == 'T' || state == 't')
		add(text, " (process %d, which is stopped)", pid);
	else if (state == 'D')
		add(text, " (process %d, which waits for a disk)", pid);
}

/* "rank 1", "ranks 0, 1 and 3": those for which `in` says so. How many those are. */
static uint32_t add_ranks(struct text *text, const struct launch *launch, const uint8_t *in, uint8_t value)
{
	uint32_t count = 0, done = 0;

	for (uint32_t r = 0; r < launch->world; r++)
		count += in[r] == value;
	add(text, "rank%s ", count == 1 ? "" : "s");
	for (uint32_t r = 0; r < launch->world && done < RANKS_NAMED; r++) {
		if (in[r] != value)
			continue;
		add_rank(text, launch, r);
		if (++done < count && done < RANKS_NAMED)
			add(text, done + 1 == count ? " and " : ", ");
	}
	if (count > done)
		add(text, " and %u more", count - done);
	return count;
}

/* ---- who is late -------------------------------------------------------------------------- */

enum { NOT_IN_IT, LATE, AHEAD };

static const struct tpck_communicator_mark *mark_of(const struct launch *launch, uint32_t rank, uint64_t id)
{
	const struct tpck_communicator_mark *marks = control_of(launch, rank)->communicator;

	for (unsigned i = 0; i < TPCK_MARKS_MAX; i++)
		if (marks[i].id == id)
			return &marks[i];
	return NULL;
}

/* A collective that some ranks of a communicator have queued and others have not. */
static bool late_by_count(const struct launch *launch, uint64_t id, uint8_t *in, struct text *text)
{
	uint64_t most = 0, least = UINT64_MAX;
	const struct tpck_communicator_mark *first = NULL;
	uint32_t late;

	for (uint32_t r = 0; r < launch->world; r++) {
		const struct tpck_communicator_mark *mark = mark_of(launch, r, id);

		if (!mark)
			continue;
		if (mark->collectives > most || !first)
			first = mark;
		most = mark->collectives > most ? mark->collectives : most;
		least = mark->collectives < least ? mark->collectives : least;
	}
	if (!first || most == least)
		return false;
	for (uint32_t r = 0; r < launch->world; r++) {
		const struct tpck_communicator_mark *mark = mark_of(launch, r, id);

		in[r] = !mark ? NOT_IN_IT : mark->collectives < most ? LATE : AHEAD;
	}
	late = add_ranks(text, launch, in, LATE);
	add(text, " %s not queued collective %" PRIu64 " of communicator %u", late == 1 ? "has" : "have", least + 1, first->index);
	/* Of the last one it is known what it is. */
	if (most == least + 1 && first->last < TPCK_SEND)
		add(text, ", %s of %" PRIu64 " elements", tpck_collective_name(first->last), first->elements);
	add(text, "; ");
	add_ranks(text, launch, in, AHEAD);
	add(text, " queued it");
	return true;
}

/* Processes that somebody has stopped. */
static bool stopped(const struct launch *launch, uint8_t *in, struct text *text)
{
	bool any = false;

	for (uint32_t r = 0; r < launch->world; r++) {
		char state = process_state(launch->rank[r]->pid);

		in[r] = state == 'T' || state == 't';
		any = any || in[r];
	}
	if (any) {
		add_ranks(text, launch, in, 1);
		add(text, " may hold up the others; every rank has queued the same collectives");
	}
	return any;
}

/* Who has not called NCCL for longest. */
static uint32_t last_to_call(const struct launch *launch, const struct tpck_communicator_mark **what)
{
	uint64_t oldest = UINT64_MAX;
	uint32_t found = 0;

	for (uint32_t r = 0; r < launch->world; r++) {
		const struct tpck_communicator_mark *marks = control_of(launch, r)->communicator, *newest = NULL;

		for (unsigned i = 0; i < TPCK_MARKS_MAX; i++)
			if (marks[i].id && marks[i].last_ns && (!newest || marks[i].last_ns > newest->last_ns))
				newest = &marks[i];
		if (newest && newest->last_ns < oldest) {
			oldest = newest->last_ns;
			*what = newest;
			found = r;
		}
	}
	return found;
}

static void describe(const struct launch *launch, uint64_t since_ns, char *buffer, size_t size)
{
	const struct tpck_communicator_mark *marks = control_of(launch, 0)->communicator, *what = NULL;
	struct text text = {buffer, size, 0};
	time_t at = time(NULL) - (time_t)((tpck_clock_monotonic_ns() - since_ns) / 1000000000);
	uint8_t *in = calloc(launch->world, 1);
	bool found = false;
	char clock[16];
	struct tm tm;
	uint32_t rank;

	buffer[0] = '\0';
	if (!in || !localtime_r(&at, &tm) || !strftime(clock, sizeof clock, "%H:%M:%S", &tm)) {
		free(in);
		return;
	}
	add(&text, "no iteration has ended since %s: ", clock);
	for (uint32_t r = 0; !found && r < launch->world; r++) {
		marks = control_of(launch, r)->communicator;
		for (unsigned i = 0; !found && i < TPCK_MARKS_MAX; i++)
			found = marks[i].id && late_by_count(launch, marks[i].id, in, &text);
	}
	found = found || stopped(launch, in, &text);
	if (!found) {
		rank = last_to_call(launch, &what);
		if (what) {
			add(&text, "every rank has queued the same collectives; the first to call NCCL no more was rank ");
			add_rank(&text, launch, rank);
			add(&text, ", after %s of %" PRIu64 " elements on communicator %u", tpck_collective_name(what->last), what->elements,
			    what->index);
		} else {
			for (uint32_t r = 0; r < launch->world; r++)
				in[r] = 1;
			add(&text, "nothing is known of what ");
			add_ranks(&text, launch, in, 1);
			add(&text, " wait for");
		}
	}
	free(in);
}

/* ---- when --------------------------------------------------------------------------------- */

/* When it is to be said of a launch that it does not get on, if it does not; UINT64_MAX: never. */
static uint64_t stalled_at(const struct agent *agent, const struct launch *launch, uint64_t *newest_ns)
{
	uint64_t limit = (uint64_t)(agent->settings.stall_sec * 1e9);

	*newest_ns = 0;
	if (!limit || launch->world < 2 || launch->apart || !launch_is_whole(launch))
		return UINT64_MAX;
	for (uint32_t r = 0; r < launch->world; r++) {
		const struct tpck_control *control = control_of(launch, r);
		uint64_t alive_ns = control->alive_ns;

		if (launch->rank[r]->life != LIFE_RUNNING || !alive_ns || control->exit_status)
			return UINT64_MAX;
		if (alive_ns > *newest_ns)
			*newest_ns = alive_ns;
		if (ITERATIONS * control->status.iteration_ns > limit)
			limit = ITERATIONS * control->status.iteration_ns;
	}
	return *newest_ns + limit;
}

static void tell(struct launch *launch, const char *text)
{
	for (uint32_t r = 0; r < launch->world; r++)
		if (launch->rank[r])
			snprintf(launch->rank[r]->session->control->waiting, sizeof launch->rank[r]->session->control->waiting, "%s", text);
}

void stall_consider(struct agent *agent)
{
	uint64_t now = tpck_clock_monotonic_ns(), newest_ns;
	char text[sizeof ((struct tpck_control *)0)->waiting];

	for (struct launch *launch = agent->launches; launch; launch = launch->next) {
		bool stalled = stalled_at(agent, launch, &newest_ns) <= now;

		if (stalled && !launch->stalled_ns) {
			describe(launch, newest_ns, text, sizeof text);
			tpck_log_warn("%s", text);
			tell(launch, text);
			launch->stalled_ns = newest_ns;
		} else if (!stalled && launch->stalled_ns) {
			if (newest_ns > launch->stalled_ns)
				tpck_log_warn("the ranks go on after %.0f s", (double)(now - launch->stalled_ns) / 1e9);
			tell(launch, "");
			launch->stalled_ns = 0;
		}
	}
}

uint64_t stall_deadline(const struct agent *agent)
{
	uint64_t soonest = UINT64_MAX, now = tpck_clock_monotonic_ns(), newest_ns;

	for (const struct launch *launch = agent->launches; launch; launch = launch->next) {
		uint64_t at = stalled_at(agent, launch, &newest_ns);

		if (at != UINT64_MAX && at <= now)
			at = now + LOOK_AGAIN_NS;
		soonest = at < soonest ? at : soonest;
	}
	return soonest;
}
