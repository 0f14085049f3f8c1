/* SPDX-License-Identifier: Apache-2.0 */
/* Events of the job's history: made in the event loop, put into the memory tier at once, and from there into each durable
 * tier by a thread of its own. */
#include "config.h"

#include "agent/session/events.h"
#include "runtime/base/tier_settings.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/loop/trouble.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/store/history.h"
#include "runtime/store/runs.h"
#include "runtime/wire/failures.h"

enum { TEXT_MAX = 400 };

/* Lines on their way into a tier. */
struct lines {
	char *text;
	size_t size;
};

/* One a durable tier. */
struct keeper {
	struct worker worker;
	struct lines waiting;
	bool busy, merged; /* merged: what other places have and this tier had not is on its way or there */
	uint64_t retry_ns;
	double backoff_sec;
};

struct history_job {
	struct job job; /* first */
	size_t tier;
	bool merge;
	struct lines lines;
	int rc;
	struct tpck_error error;
};

/* How often each tier was needed, from the whole history: counted in the first tier's thread. */
struct count_job {
	struct job job; /* first */
	int rc;
	struct tpck_interval_history rate[TPCK_TIERS_MAX];
};

static struct {
	struct keeper keepers[TPCK_TIERS_MAX];
	struct tpck_interval_history intervals[TPCK_TIERS_MAX];
	bool counting, count_again;
	char whose[96];        /* of every event: this agent's */
	char host[65];
	uint64_t serial;       /* of the newest event */
	/* of the last checkpoint that became durable */
	uint64_t flush_bytes;
	double flush_sec;
} events = {.count_again = true};

/* ---- the tier's thread ---------------------------------------------------------------------- */

static int append(struct tpck_tier *tier, const struct lines *lines, struct tpck_error *err)
{
	return tier->operations->append(tier, TPCK_HISTORY, lines->text, lines->size, TPCK_HISTORY_BYTES, err);
}

/* What was written elsewhere, while this tier was away or before it was there at all, and the job's lines: the memory
 * tier may have them already. */
static int merge(struct history_job *job, const char *path)
{
	struct tpck_history all, here = {0};
	struct lines missing = {0};
	int rc = tpck_history_read(&here, path, &job->error);

	tpck_history_settle(&here);
	/* What cannot be read elsewhere is not what this tier lacks. */
	(void)tpck_history_load(&all, home.folder, &home.tiers, NULL);
	if (!rc)
		rc = tpck_history_add(&all, job->lines.text, job->lines.size);
	tpck_history_settle(&all);
	if (!rc)
		rc = tpck_history_missing(&all, &here, &missing.text, &missing.size);
	if (!rc && missing.size)
		rc = append(home.tiers.tier[job->tier], &missing, &job->error);
	free(missing.text);
	tpck_history_free(&all);
	tpck_history_free(&here);
	return rc;
}

static void history_run(struct job *base)
{
	struct history_job *job = (struct history_job *)base;
	struct tpck_tier *tier = home.tiers.tier[job->tier];
	char path[TPCK_PATH_MAX];

	job->rc = tpck_tier_path(tier, TPCK_HISTORY, path, sizeof path, &job->error);
	if (!job->rc && job->merge) {
		job->rc = merge(job, path);
	} else if (!job->rc && job->lines.size) {
		job->rc = append(tier, &job->lines, &job->error);
	}
}

/* ---- the event loop's part ------------------------------------------------------------------ */

/* Of more than a tier would keep the newest are enough. */
static void wait_for_tier(struct lines *lines, const char *text, size_t size, bool before)
{
	size_t drop = 0;
	char *grown;

	if (lines->size + size > TPCK_HISTORY_BYTES / 2) {
		if (before)
			return;
		while (drop < lines->size && (drop < size || lines->text[drop - 1] != '\n'))
			drop++;
		memmove(lines->text, lines->text + drop, lines->size - drop);
		lines->size -= drop;
	}
	grown = realloc(lines->text, lines->size + size);
	if (!grown)
		return;
	lines->text = grown;
	if (before) {
		memmove(grown + size, grown, lines->size);
		memcpy(grown, text, size);
	} else {
		memcpy(grown + lines->size, text, size);
	}
	lines->size += size;
}

static void history_done(struct agent *agent, struct job *base)
{
	struct history_job *job = (struct history_job *)base;
	struct keeper *keeper = &events.keepers[job->tier];

	(void)agent;
	loop.jobs--;
	keeper->busy = false;
	if (job->rc) {
		/* A store that does not work is said by what needs it. */
		tpck_log_debug("the history waits: %s", job->error.text);
		wait_for_tier(&keeper->waiting, job->lines.text, job->lines.size, true);
		keeper->merged = keeper->merged && !job->merge;
		keeper->backoff_sec = trouble_backoff(keeper->backoff_sec);
		keeper->retry_ns = tpck_clock_monotonic_ns() + (uint64_t)(keeper->backoff_sec * 1e9);
	} else {
		keeper->backoff_sec = 0;
		keeper->retry_ns = 0;
	}
	free(job->lines.text);
	free(job);
}

static bool has_work(const struct keeper *keeper)
{
	return !keeper->busy && (!keeper->merged || keeper->waiting.size);
}

static void count_run(struct job *base)
{
	struct count_job *job = (struct count_job *)base;
	struct tpck_history history;
	struct tpck_runs runs;

	(void)tpck_history_load(&history, home.folder, &home.tiers, NULL);
	job->rc = tpck_runs_of(&runs, &history);
	for (size_t i = 0; !job->rc && i < home.tiers.count; i++)
		tpck_runs_rate(&runs, (int)i + 1, &job->rate[i]);
	if (!job->rc)
		tpck_runs_free(&runs);
	tpck_history_free(&history);
}

static void count_done(struct agent *agent, struct job *base)
{
	struct count_job *job = (struct count_job *)base;

	(void)agent;
	loop.jobs--;
	events.counting = false;
	for (size_t i = 0; !job->rc && i < home.tiers.count; i++) {
		struct tpck_interval_history *known = &events.intervals[i];

		known->failures = job->rate[i].failures;
		known->observed_sec = job->rate[i].observed_sec;
	}
	free(job);
}

static void consider_counting(void)
{
	struct count_job *job = events.count_again && !events.counting ? calloc(1, sizeof *job) : NULL;

	if (!job)
		return;
	events.count_again = false;
	events.counting = true;
	job->job.run = count_run;
	job->job.done = count_done;
	loop.jobs++;
	worker_give(&events.keepers[0].worker, &job->job);
}

static void consider(struct agent *agent)
{
	uint64_t now = tpck_clock_monotonic_ns();

	(void)agent;
	consider_counting();
	for (size_t i = 0; i < home.tiers.count; i++) {
		struct keeper *keeper = &events.keepers[i];
		struct history_job *job;

		if (!has_work(keeper) || now < keeper->retry_ns || !(job = calloc(1, sizeof *job)))
			continue;
		job->job.run = history_run;
		job->job.done = history_done;
		job->tier = i;
		job->merge = !keeper->merged;
		job->lines = keeper->waiting;
		keeper->waiting = (struct lines){0};
		keeper->merged = keeper->busy = true;
		loop.jobs++;
		worker_give(&keeper->worker, &job->job);
	}
}

static uint64_t deadline(const struct agent *agent)
{
	uint64_t soonest = UINT64_MAX;

	(void)agent;
	for (size_t i = 0; i < home.tiers.count; i++)
		if (has_work(&events.keepers[i]) && events.keepers[i].retry_ns < soonest)
			soonest = events.keepers[i].retry_ns;
	return soonest;
}

static int begin(struct agent *agent, struct tpck_error *err)
{
	int rc = 0;

	(void)agent;
	(void)err;
	if (gethostname(events.host, sizeof events.host - 1))
		snprintf(events.host, sizeof events.host, "?");
	snprintf(events.whose, sizeof events.whose, "%s.%d.%" PRIx64, events.host, (int)getpid(), tpck_clock_realtime_ns());
	for (size_t i = 0; i < home.tiers.count && !rc; i++)
		rc = worker_start(&events.keepers[i].worker);
	return rc;
}

/* Takes along what no tier has yet, as far as it can be written now. */
static void stop(struct agent *agent)
{
	(void)agent;
	for (size_t i = 0; i < home.tiers.count; i++) {
		struct keeper *keeper = &events.keepers[i];
		struct history_job last = {.tier = i, .lines = keeper->waiting};

		worker_stop(&keeper->worker);
		if (keeper->waiting.size)
			history_run(&last.job);
	}
}

const struct loop_part history_loop = {.begin = begin, .consider = consider, .deadline = deadline, .stop = stop};

struct tpck_interval_history *history_interval(size_t tier)
{
	return &events.intervals[tier];
}

/* ---- QUERY ---------------------------------------------------------------------------------- */

static json_object *interval_json(const char *tier, const struct tpck_interval_history *history)
{
	struct tpck_interval_terms terms;
	json_object *json = json_object_new_object();

	tpck_interval_terms(history, &terms);
	json_object_object_add(json, "tier", json_object_new_string(tier));
	json_object_object_add(json, "cost_sec", json_object_new_double(history->cost_sec));
	json_object_object_add(json, "failures", json_object_new_uint64(history->failures));
	json_object_object_add(json, "observed_sec", json_object_new_double(history->observed_sec));
	json_object_object_add(json, "interval_sec", json_object_new_double(terms.interval));
	return json;
}

void history_answer(json_object *answer)
{
	const struct tpck_interval *set = &home.settings.durable_interval;
	json_object *tiers = json_object_new_array();

	json_object_object_add(answer, "durable_interval",
			       json_object_new_string(set->unit == TPCK_INTERVAL_SECONDS      ? "seconds"
						      : set->unit == TPCK_INTERVAL_ITERATIONS ? "iterations" : "auto"));
	json_object_object_add(answer, "durable_count", json_object_new_double(set->count));
	for (size_t i = 0; i < home.tiers.count; i++)
		json_object_array_add(tiers, interval_json(home.tiers.name[i], &events.intervals[i]));
	json_object_object_add(answer, "intervals", tiers);
	if (events.flush_sec <= 0)
		return;
	json_object_object_add(answer, "flush_bytes", json_object_new_uint64(events.flush_bytes));
	json_object_object_add(answer, "flush_sec", json_object_new_double(events.flush_sec));
}

/* ---- events --------------------------------------------------------------------------------- */

static void put_text(json_object *event, const char *key, const char *text)
{
	size_t length = strlen(text);

	json_object_object_add(event, key, json_object_new_string_len(text, (int)(length < TEXT_MAX ? length : TEXT_MAX)));
}

static void put(json_object *event, const char *key, uint64_t number)
{
	json_object_object_add(event, key, json_object_new_uint64(number));
}

/* Milliseconds are precise enough, and short. */
static void put_sec(json_object *event, const char *key, double seconds)
{
	char text[32];

	snprintf(text, sizeof text, seconds < 1 ? "%.6f" : "%.3f", seconds);
	json_object_object_add(event, key, json_object_new_double_s(seconds, text));
}

static json_object *event_new(const char *kind)
{
	json_object *event = json_object_new_object();

	put(event, "at_ns", tpck_clock_realtime_ns());
	put_text(event, "event", kind);
	put_text(event, "agent", events.whose);
	put(event, "serial", ++events.serial);
	return event;
}

/* Which process, and what it has done so far. */
static json_object *session_event(const char *kind, const struct live *live)
{
	const struct tpck_control *control = live->session->control;
	const struct tpck_status *status = &control->status;
	json_object *event = event_new(kind);

	if (live->program)
		put_text(event, "program", live->program->id);
	put(event, "generation", live->session->name.generation);
	put(event, "rank", live->session->name.rank);
	if (live->session->name.ordinal)
		put(event, "ordinal", live->session->name.ordinal);
	put(event, "iterations", status->boundaries);
	put_sec(event, "iteration_sec", (double)status->iteration_ns / 1e9);
	put(event, "captured", status->captured);
	put(event, "skipped", status->skipped);
	if (status->abandoned)
		put(event, "abandoned", status->abandoned);
	put_sec(event, "waited_sec", (double)status->wait_ns_sum / 1e9);
	return event;
}

static void note(json_object *event)
{
	const char *text = json_object_to_json_string_ext(event, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
	const char *kind = json_object_get_string(json_object_object_get(event, "event"));
	size_t size = strlen(text) + 1;
	char path[TPCK_PATH_MAX], *line = size <= TPCK_HISTORY_LINE ? malloc(size) : NULL;

	if (line) {
		memcpy(line, text, size - 1);
		line[size - 1] = '\n';
		/* On a tmpfs, which no other agent writes. */
		if (tpck_path_join(path, sizeof path, home.folder, TPCK_HISTORY) == 0)
			(void)tpck_history_append((struct tpck_below){AT_FDCWD, 0}, path, line, size, TPCK_HISTORY_BYTES, NULL);
		for (size_t i = 0; i < home.tiers.count; i++)
			wait_for_tier(&events.keepers[i].waiting, line, size, false);
	}
	free(line);
	/* What is durable or copied changes no rate. */
	events.count_again = events.count_again || strcmp(kind, "started") == 0 || strcmp(kind, "died") == 0 || strcmp(kind, "ended") == 0;
	json_object_put(event);
}

/* "executable /opt/x" of an identity text; what follows it is escaped there. */
static void put_executable(json_object *event, const char *identity)
{
	const char *line = strstr(identity, "\nexecutable "), *value;
	char text[TEXT_MAX];

	if (!line)
		return;
	value = line + strlen("\nexecutable ");
	snprintf(text, sizeof text, "%.*s", (int)strcspn(value, "\n"), value);
	put_text(event, "executable", text);
}

void history_taken_over(const struct live *live)
{
	json_object *event = session_event("taken over", live);

	put_text(event, "host", events.host);
	note(event);
}

/* 0 is memory, 1 the first durable tier. */
static uint64_t level_of(const char *from)
{
	for (size_t i = 0; i < home.tiers.count; i++)
		if (strcmp(home.tiers.name[i], from) == 0)
			return i + 1;
	return 0;
}

static void put_offer(json_object *event, const struct live *live)
{
	const struct tpck_control *control = live->session->control;

	if (!control->parent_generation)
		return;
	put(event, "from_generation", control->parent_generation);
	put(event, "from_step", control->resume_step);
	if (live->offered_from) {
		put_text(event, "from", live->offered_from);
		put(event, "from_level", level_of(live->offered_from));
	}
}

void history_started(const struct live *live)
{
	json_object *event = session_event("started", live);

	put_text(event, "host", events.host);
	put(event, "pid", (uint64_t)live->pid);
	put(event, "world", live->launch->world);
	put_executable(event, live->session->identity);
	put_offer(event, live);
	if (live->by_twin || live->in_place)
		put_text(event, "by", live->by_twin ? "twin" : "supervisor");
	if ((live->by_twin || live->in_place) && tpck_failure_name(live->after)[0])
		put_text(event, "after", tpck_failure_name(live->after));
	note(event);
}

void history_resumed(const struct live *live)
{
	const struct tpck_status *status = &live->session->control->status;
	json_object *event = session_event("resumed", live);

	put_offer(event, live);
	put_sec(event, "forward_sec", (double)status->forward_ns / 1e9);
	put_sec(event, "inject_sec", (double)status->inject_ns / 1e9);
	note(event);
}

void history_diverged(const struct live *live, const struct tpck_diverged *diverged)
{
	json_object *event = session_event("diverged", live);
	char what[sizeof diverged->what];

	snprintf(what, sizeof what, "%.*s", (int)sizeof what - 1, diverged->what);
	put(event, "from_generation", diverged->generation);
	put(event, "from_step", diverged->step);
	put(event, "in_iteration", diverged->at);
	put_text(event, "why", what);
	put_text(event, "then", diverged->ends ? "ended" : diverged->again ? "tries again" : "from its beginning");
	note(event);
}

static void put_running(json_object *event, const struct live *live)
{
	put_sec(event, "running_sec", (double)(tpck_clock_monotonic_ns() - live->begun_ns) / 1e9);
}

/* An agent adopts what is kept of a dead process, too: its death is known then. */
static bool known_dead(const struct live *live)
{
	struct tpck_history history = {0};
	char path[TPCK_PATH_MAX];
	bool known = false;

	if (tpck_path_join(path, sizeof path, home.folder, TPCK_HISTORY) == 0)
		(void)tpck_history_read(&history, path, NULL);
	for (size_t i = 0; i < history.count && !known; i++)
		known = tpck_event_is(&history.events[i], "died") &&
			tpck_event_number(&history.events[i], "generation") == live->session->name.generation &&
			tpck_event_number(&history.events[i], "rank") == live->session->name.rank &&
			tpck_event_number(&history.events[i], "ordinal") == live->session->name.ordinal;
	tpck_history_free(&history);
	return known;
}

void history_died(const struct live *live, enum tpck_death death)
{
	static const char *const names[] = {"on its way to a resume", "within an iteration of its start", "later"};
	const struct tpck_control *control = live->session->control;
	uint64_t reached = control->status.boundaries, safe = live->newest >= 0 ? live->newest_step : control->resume_step;
	json_object *event;

	/* No process was watched: one of an earlier agent's. */
	if (live->pid <= 0 && known_dead(live))
		return;
	event = session_event("died", live);
	put_running(event, live);
	if (live->end_known)
		json_object_object_add(event, "status", json_object_new_int(live->status));
	put_text(event, "how", live->end_known ? "failed" : "was killed");
	put_text(event, "when", names[death]);
	if (live->newest >= 0)
		put(event, "kept_step", live->newest_step);
	/* One that was not live yet had nothing new to lose. */
	put(event, "lost", death != TPCK_DEATH_STARTING && reached > safe ? reached - safe : 0);
	note(event);
}

void history_ended(const struct live *live)
{
	json_object *event = session_event("ended", live);

	put_running(event, live);
	note(event);
}

static void note_durable(json_object *event, const struct tpck_manifest *manifest, uint64_t write_ns, uint64_t verify_ns)
{
	events.flush_bytes = manifest->stored_bytes;
	events.flush_sec = (double)write_ns / 1e9;
	put_text(event, "tier", home.tiers.name[0]);
	put(event, "step", manifest->point.step);
	put(event, "bytes", tpck_manifest_bytes(manifest));
	put(event, "new_bytes", manifest->stored_bytes);
	put_sec(event, "write_sec", (double)write_ns / 1e9);
	put_sec(event, "verify_sec", (double)verify_ns / 1e9);
	note(event);
}

void history_durable(const struct live *live, const struct tpck_manifest *manifest, uint64_t write_ns,
		     uint64_t verify_ns)
{
	note_durable(session_event("durable", live), manifest, write_ns, verify_ns);
}

void history_salvaged(const struct tpck_program *program, const struct tpck_manifest *manifest, uint64_t took_ns)
{
	const struct tpck_member *first = manifest->member_count ? &manifest->members[0] : NULL;
	json_object *event = event_new("durable");

	put_text(event, "program", program->id);
	put(event, "generation", manifest->point.generation);
	/* As far as its snapshot knows. */
	put(event, "iterations", manifest->point.step);
	if (first) {
		put(event, "rank", first->rank);
		if (first->ordinal)
			put(event, "ordinal", first->ordinal);
		put_sec(event, "iteration_sec", (double)first->notes.iteration_ns / 1e9);
		put(event, "captured", first->notes.captured);
		put(event, "skipped", first->notes.skipped);
		put_sec(event, "waited_sec", (double)first->notes.wait_ns_sum / 1e9);
	}
	note_durable(event, manifest, took_ns, 0);
}

void history_copied(size_t tier, const struct tpck_point *point, uint64_t bytes, uint64_t took_ns)
{
	json_object *event = event_new("copied");

	put_text(event, "tier", home.tiers.name[tier]);
	put(event, "generation", point->generation);
	put(event, "step", point->step);
	put(event, "new_bytes", bytes);
	put_sec(event, "took_sec", (double)took_ns / 1e9);
	note(event);
}

void history_stopped(const struct tpck_point *point, const char *why)
{
	json_object *event = event_new("takeover stopped");

	put(event, "from_generation", point->generation);
	put(event, "from_step", point->step);
	put_text(event, "why", why);
	note(event);
}

void history_store(size_t tier, const char *why)
{
	json_object *event = event_new(why ? "store failed" : "store works");

	put_text(event, "tier", home.tiers.name[tier]);
	if (why)
		put_text(event, "why", why);
	note(event);
}
