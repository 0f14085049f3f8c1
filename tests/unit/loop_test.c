/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's event loop: in which order it turns its parts, when, and how jobs come back to it. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "agent/loop/loop.h"
#include "agent/loop/trouble.h"
#include "agent/loop/worker.h"
#include "runtime/base/clock.h"
#include "tests/unit/store_tap.h"

/* The loop hands it back, and knows nothing of it. */
struct agent {
	char calls[64];
	unsigned turns;
	uint64_t due_ns;
	bool done, ran;
};

static struct tpck_error err;
static struct worker worker;
static struct watch pipe_watch;
static unsigned read_bytes;

static void call(struct agent *agent, char what)
{
	size_t used = strlen(agent->calls);

	if (used < sizeof agent->calls - 1)
		agent->calls[used] = what;
}

/* ---- three parts: one above, one in the middle that does nothing at the beginning and end, one below ---- */

static int begin_above(struct agent *agent, struct tpck_error *of)
{
	(void)of;
	call(agent, 'A');
	return 0;
}

static int begin_below(struct agent *agent, struct tpck_error *of)
{
	(void)of;
	call(agent, 'C');
	return worker_start(&worker);
}

static int begin_badly(struct agent *agent, struct tpck_error *of)
{
	(void)of;
	call(agent, 'X');
	return -EMFILE;
}

static void consider_above(struct agent *agent)
{
	call(agent, 'a');
}

static void consider_middle(struct agent *agent)
{
	call(agent, 'b');
	agent->turns++;
	if (agent->done && read_bytes && tpck_clock_monotonic_ns() >= agent->due_ns)
		loop_end();
}

static uint64_t deadline_middle(const struct agent *agent)
{
	return agent->done ? agent->due_ns : UINT64_MAX;
}

static void stop_above(struct agent *agent)
{
	call(agent, '1');
}

static void stop_below(struct agent *agent)
{
	call(agent, '3');
	worker_stop(&worker);
}

static const struct loop_part above = {.begin = begin_above, .consider = consider_above, .stop = stop_above};
static const struct loop_part middle = {.consider = consider_middle, .deadline = deadline_middle};
static const struct loop_part below = {.begin = begin_below, .stop = stop_below};
static const struct loop_part bad = {.begin = begin_badly};

static void run(struct job *job)
{
	(void)job;
	usleep(1000);
}

static void done(struct agent *agent, struct job *job)
{
	(void)job;
	loop.jobs--;
	agent->done = true;
	agent->due_ns = tpck_clock_monotonic_ns() + 20000000;
}

static void pipe_ready(struct agent *agent, struct watch *watch)
{
	char byte;

	(void)agent;
	read_bytes += (unsigned)read(watch->fd, &byte, 1);
	loop_unwatch(watch);
}

int main(void)
{
	static const struct loop_part *const parts[] = {&above, &middle, &below};
	static const struct loop_part *const failing[] = {&above, &bad, &below};
	struct job job = {run, done, NULL};
	struct agent agent = {.calls = ""}, other = {.calls = ""};
	uint64_t until;
	int ends[2];

	ok(loop_begin(&agent, parts, 3, &err) == 0 && strcmp(agent.calls, "CA") == 0, "parts begin from the last to the first");
	ok(!pipe(ends) && write(ends[1], "xy", 2) == 2, "there is something to read");
	pipe_watch = (struct watch){ends[0], pipe_ready};
	ok(loop_watch(&pipe_watch) == 0, "which is watched");
	loop.jobs++;
	worker_give(&worker, &job);
	memset(agent.calls, 0, sizeof agent.calls);
	loop_run();
	ok(strncmp(agent.calls, "abab", 4) == 0, "they consider from the first to the last after each event");
	ok(agent.done && !loop.jobs, "a job is done in the loop");
	ok(read_bytes == 1, "and what is not watched any more is not read");
	ok(tpck_clock_monotonic_ns() >= agent.due_ns, "a deadline is an event");
	ok(agent.turns < 10, "and between two the loop sleeps");
	memset(agent.calls, 0, sizeof agent.calls);
	loop_stop();
	ok(strcmp(agent.calls, "13") == 0, "they stop from the first to the last");
	ok(loop_begin(&other, failing, 3, &err) == -EMFILE && strcmp(other.calls, "CX") == 0 && strstr(err.text, "starting the event loop"),
	   "where one cannot begin no other does, and it is said");
	until = 0;
	for (double sec = 0; until < 10; until++) {
		double next = trouble_backoff(sec);

		if (next < sec || next < 1 || next > 60)
			break;
		sec = next;
	}
	ok(until == 10 && trouble_backoff(60) == 60, "what fails is tried again later each time, a minute at most");
	return tap_done();
}
