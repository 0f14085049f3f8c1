/* SPDX-License-Identifier: Apache-2.0 */
/* Runs, from the events of a history. */
#include "config.h"

#include "runtime/base/tier_settings.h"
#include "runtime/store/runs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct tpck_run *run_of(struct tpck_runs *runs, const struct tpck_event *event)
{
	uint64_t generation = tpck_event_number(event, "generation"), rank = tpck_event_number(event, "rank"),
		 ordinal = tpck_event_number(event, "ordinal");
	struct tpck_run *grown;

	/* The newest first: that is mostly the one. */
	for (size_t i = runs->count; i-- > 0;)
		if (runs->run[i].generation == generation && runs->run[i].rank == rank && runs->run[i].ordinal == ordinal)
			return &runs->run[i];
	grown = reallocarray(runs->run, runs->count + 1, sizeof *grown);
	if (!grown)
		return NULL;
	runs->run = grown;
	grown += runs->count++;
	*grown = (struct tpck_run){
		.generation = generation, .rank = rank, .ordinal = ordinal, .program = tpck_event_text(event, "program"),
		.host = "", .executable = "", .how = "", .from = "", .begun_ns = event->at_ns, .next = SIZE_MAX,
	};
	return grown;
}

static void take_offer(struct tpck_run *run, const struct tpck_event *event)
{
	run->from_generation = tpck_event_number(event, "from_generation");
	run->from_step = tpck_event_number(event, "from_step");
	run->from = tpck_event_text(event, "from");
	run->from_level = tpck_event_number(event, "from_level");
	run->offered = run->from_generation != 0;
}

static void take(struct tpck_run *run, const struct tpck_event *event)
{
	/* What is written of a process that is gone is no later word of it. */
	if (!run->died && !run->ended)
		run->end_ns = event->at_ns;
	if (tpck_event_number(event, "iterations") > run->iterations)
		run->iterations = tpck_event_number(event, "iterations");
	if (tpck_event_real(event, "iteration_sec") > 0)
		run->iteration_sec = tpck_event_real(event, "iteration_sec");
	run->captured = tpck_event_number(event, "captured");
	run->skipped = tpck_event_number(event, "skipped");
	run->waited_sec = tpck_event_real(event, "waited_sec");
	if (tpck_event_is(event, "started")) {
		run->host = tpck_event_text(event, "host");
		run->executable = tpck_event_text(event, "executable");
		run->by_twin = strcmp(tpck_event_text(event, "by"), "twin") == 0;
		run->in_place = strcmp(tpck_event_text(event, "by"), "supervisor") == 0;
		run->after = tpck_event_text(event, "after");
		take_offer(run, event);
	} else if (tpck_event_is(event, "resumed")) {
		run->resumed = true;
		take_offer(run, event);
		run->forward_sec = tpck_event_real(event, "forward_sec");
		run->inject_sec = tpck_event_real(event, "inject_sec");
	} else if (tpck_event_is(event, "diverged")) {
		run->diverged = true;
	} else if (tpck_event_is(event, "died")) {
		run->died = true;
		run->how = tpck_event_text(event, "how");
		run->lost = tpck_event_number(event, "lost");
		run->kept_step = tpck_event_number(event, "kept_step");
	} else if (tpck_event_is(event, "ended")) {
		run->ended = true;
	}
}

int tpck_runs_of(struct tpck_runs *runs, const struct tpck_history *history)
{
	memset(runs, 0, sizeof *runs);
	for (size_t i = 0; i < history->count; i++) {
		const struct tpck_event *event = &history->events[i];
		struct tpck_run *run;

		/* Others are about checkpoints and tiers. */
		if (!tpck_event_text(event, "program")[0])
			continue;
		run = run_of(runs, event);
		if (!run) {
			tpck_runs_free(runs);
			return -ENOMEM;
		}
		take(run, event);
	}
	for (size_t i = 0; i < runs->count; i++)
		for (size_t j = i + 1; j < runs->count && runs->run[i].next == SIZE_MAX; j++)
			if (runs->run[i].rank == runs->run[j].rank && runs->run[i].ordinal == runs->run[j].ordinal &&
			    strcmp(runs->run[i].program, runs->run[j].program) == 0)
				runs->run[i].next = j;
	return 0;
}

void tpck_runs_free(struct tpck_runs *runs)
{
	free(runs->run);
	memset(runs, 0, sizeof *runs);
}

int tpck_run_failure(const struct tpck_runs *runs, const struct tpck_run *run)
{
	const struct tpck_run *next = run->next == SIZE_MAX ? NULL : &runs->run[run->next];

	if (run->ended || run->diverged || (!run->died && !next))
		return -1;
	if (next && next->offered && run->kept_step && next->from_generation == run->generation && next->from_step >= run->kept_step)
		return 0;
	if (next && next->offered)
		return next->from_level < TPCK_TIERS_MAX ? (int)next->from_level : TPCK_TIERS_MAX;
	/* Nobody saw its death: the agent and what it keeps in memory went with it. */
	return run->died ? 0 : 1;
}

void tpck_runs_rate(const struct tpck_runs *runs, int level, struct tpck_interval_history *rate)
{
	rate->failures = 0;
	rate->observed_sec = 0;
	for (size_t i = 0; i < runs->count; i++) {
		const struct tpck_run *run = &runs->run[i];

		if (run->rank || run->ordinal)
			continue;
		rate->failures += tpck_run_failure(runs, run) >= level;
		rate->observed_sec += (double)(run->end_ns - run->begun_ns) / 1e9;
	}
}
