/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that wait for each other. Where no rank has ended an iteration for long, it is said once which rank the others wait
 * for, by what each has queued on its communicators, and shown for as long as it lasts. Nothing is done about it: it may
 * be an evaluation, and the program has a limit of its own. Of ranks on several nodes the leader's agent says it, when it has
 * heard it of all.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/session/sessions.h"
#include "agent/session/stall.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/peer/waiting.h"

/* Of an iteration that takes long, so many are waited for. */
enum { ITERATIONS = 10 };
/* How soon it is seen that they go on. */
#define LOOK_AGAIN_NS 500000000ull

/* ---- what is seen ------------------------------------------------------------------------- */

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

static size_t put_rank(char *at, const struct live *live, uint64_t now)
{
	const struct tpck_communicator_mark *marks = live->session->control->communicator;
	struct tpck_waiting_rank row = {
		.rank = live->session->name.rank, .pid = live->pid, .state = (uint32_t)process_state(live->pid),
	};
	size_t size = sizeof row;

	for (unsigned i = 0; i < TPCK_MARKS_MAX; i++) {
		uint64_t last_ns = marks[i].last_ns;
		struct tpck_waiting_mark mark = {
			.id = marks[i].id, .collectives = marks[i].collectives, .elements = marks[i].elements, .index = marks[i].index,
			.last = marks[i].last, .age_ns = !last_ns ? UINT64_MAX : now > last_ns ? now - last_ns : 0,
		};

		if (!mark.id)
			continue;
		memcpy(at + size, &mark, sizeof mark);
		size += sizeof mark;
		row.marks++;
	}
	memcpy(at, &row, sizeof row);
	return size;
}

/* What is to be said of the ranks here, malloc'd (runtime/peer/waiting.h). NULL: there is no memory. */
static char *rows_of(const struct launch *launch, size_t *size)
{
	const size_t most = sizeof(struct tpck_waiting_rank) + TPCK_MARKS_MAX * sizeof(struct tpck_waiting_mark);
	uint64_t now = tpck_clock_monotonic_ns();
	char *rows = malloc(launch->here.count * most + 1);
	const struct live *live;
	uint32_t at = 0;

	*size = 0;
	while (rows && (live = launch_next(launch, &at)))
		*size += put_rank(rows + *size, live, now);
	return rows;
}

/* ---- what is said ------------------------------------------------------------------------- */

static bool add_since(char *text, size_t size, uint64_t since_ns)
{
	time_t at = time(NULL) - (time_t)((tpck_clock_monotonic_ns() - since_ns) / 1000000000);
	char clock[16];
	struct tm tm;

	if (!localtime_r(&at, &tm) || !strftime(clock, sizeof clock, "%H:%M:%S", &tm))
		return false;
	snprintf(text, size, "no iteration has ended since %s: ", clock);
	return true;
}

void stall_show(struct launch *launch, const char *text)
{
	struct live *live;
	uint32_t at = 0;

	while ((live = launch_next(launch, &at)))
		snprintf(live->session->control->waiting, sizeof live->session->control->waiting, "%s", text);
}

void stall_describe(const struct tpck_waiting *waiting, uint64_t since_ns, char text[STALL_TEXT])
{
	size_t used;

	text[0] = '\0';
	if (!add_since(text, STALL_TEXT, since_ns))
		return;
	used = strlen(text);
	tpck_waiting_describe(waiting, text + used, STALL_TEXT - used);
	tpck_log_warn("%s", text);
}

void stall_over(uint64_t since_ns)
{
	tpck_log_warn("the ranks go on after %.0f s", (double)(tpck_clock_monotonic_ns() - since_ns) / 1e9);
}

/* All ranks are here. */
static void say(struct launch *launch, uint64_t since_ns)
{
	struct tpck_waiting *waiting = tpck_waiting_new(launch->world);
	char text[STALL_TEXT], *rows;
	size_t size;

	rows = rows_of(launch, &size);
	if (waiting && rows && !tpck_waiting_put(waiting, "", "", rows, size)) {
		stall_describe(waiting, since_ns, text);
		stall_show(launch, text);
	}
	free(rows);
	tpck_waiting_free(waiting);
}

static void tell_leader(struct agent *agent, struct launch *launch, uint64_t since_ns)
{
	size_t size;
	char *rows = rows_of(launch, &size);

	if (rows)
		launch_apart->stalled(agent, launch, tpck_clock_monotonic_ns() - since_ns, rows, size);
	free(rows);
}

/* ---- when --------------------------------------------------------------------------------- */

/* When it is to be said of a launch that its ranks here do not get on, if they do not; UINT64_MAX: never. */
static uint64_t stalled_at(const struct launch *launch, uint64_t *newest_ns)
{
	uint64_t limit = (uint64_t)(home.settings.stall_sec * 1e9);
	const struct live *live;
	uint32_t at = 0;
	bool any = false;

	*newest_ns = 0;
	if (!limit || launch->world < 2 || (launch->apart ? launch_apart->is_broken(launch) : !launch_is_whole(launch)))
		return UINT64_MAX;
	while ((live = launch_next(launch, &at))) {
		const struct tpck_control *control = live->session->control;
		uint64_t alive_ns = control->alive_ns;

		any = true;
		if (live->life != LIFE_RUNNING || !alive_ns || control->exit_status)
			return UINT64_MAX;
		if (alive_ns > *newest_ns)
			*newest_ns = alive_ns;
		if (ITERATIONS * control->status.iteration_ns > limit)
			limit = ITERATIONS * control->status.iteration_ns;
	}
	return any ? *newest_ns + limit : UINT64_MAX;
}

static void consider(struct agent *agent)
{
	uint64_t now = tpck_clock_monotonic_ns(), newest_ns;

	for (struct launch *launch = agent->launches; launch; launch = launch->next) {
		bool stalled = stalled_at(launch, &newest_ns) <= now;

		if (stalled && !launch->stalled_ns) {
			launch->stalled_ns = newest_ns;
			if (launch->apart)
				tell_leader(agent, launch, newest_ns);
			else
				say(launch, newest_ns);
		} else if (!stalled && launch->stalled_ns) {
			if (launch->apart)
				launch_apart->stalled(agent, launch, 0, NULL, 0);
			else if (newest_ns > launch->stalled_ns)
				stall_over(launch->stalled_ns);
			if (!launch->apart)
				stall_show(launch, "");
			launch->stalled_ns = 0;
		}
	}
}

static uint64_t deadline(const struct agent *agent)
{
	uint64_t soonest = UINT64_MAX, now = tpck_clock_monotonic_ns(), newest_ns;

	for (const struct launch *launch = agent->launches; launch; launch = launch->next) {
		uint64_t at = stalled_at(launch, &newest_ns);

		if (at != UINT64_MAX && at <= now)
			at = now + LOOK_AGAIN_NS;
		soonest = at < soonest ? at : soonest;
	}
	return soonest;
}

const struct loop_part stall_loop = {.consider = consider, .deadline = deadline};
