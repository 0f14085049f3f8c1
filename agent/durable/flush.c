/* SPDX-License-Identifier: Apache-2.0 */
/* Making snapshots durable: which, when, and what happens when the store does not want them. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/durable/drain.h"
#include "agent/durable/flush.h"
#include "agent/durable/flush_job.h"
#include "agent/durable/stasher.h"
#include "agent/loop/trouble.h"
#include "agent/session/events.h"
#include "agent/session/prepare.h"
#include "agent/session/watermark.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/store/retention.h"

static struct worker flusher;
/* How the store takes what is written. */
static struct {
	uint64_t retry_ns; /* nothing is flushed before */
	double backoff_sec;
	char said[sizeof ((struct tpck_error *)0)->text]; /* last complaint, not to be repeated */
} store;

const char *flush_complaint(void)
{
	return store.said;
}

uint64_t flush_retry_ns(void)
{
	return store.retry_ns;
}

void flush_give(struct job *job)
{
	worker_give(&flusher, job);
}

/* ---- the flusher's part ------------------------------------------------------------------- */

static int publish(void *with)
{
	struct flush_job *flush = with;

	for (size_t i = 0; i < flush->publication.share_count; i++)
		stash_settle(flush->program[i]);
	return flush_publish(flush);
}

static void flush_run(struct job *job)
{
	flush_while_held((struct flush_job *)job, TPCK_HOLD_CHANGES, publish);
}

/* ---- at start ----------------------------------------------------------------------------- */

struct clear_job {
	struct job job; /* first */
	struct tpck_tier *tier;
};

static void clear_run(struct job *job)
{
	struct clear_job *clear = (struct clear_job *)job;
	struct tpck_error err = {0};
	int hold;

	if (!clear->tier->operations->was_held(clear->tier))
		return;
	hold = tpck_tier_hold(clear->tier, TPCK_HOLD_CHANGES, FLUSH_WAIT_SEC, &err);
	if (hold == -EPERM)
		return; /* somebody else's: said to the first program that would use it */
	if (hold < 0 || tpck_retention_clear(clear->tier, &err))
		tpck_log_warn("remains of earlier runs stay: %s", err.text);
	if (hold >= 0)
		tpck_tier_release(clear->tier, hold);
}

static void clear_done(struct agent *agent, struct job *job)
{
	(void)agent;
	loop.jobs--;
	free(job);
}

/* What an agent that was killed left half written. */
static void clear_remains(void)
{
	struct clear_job *clear = calloc(1, sizeof *clear);

	if (!clear)
		return;
	clear->job.run = clear_run;
	clear->job.done = clear_done;
	clear->tier = home.tier;
	loop.jobs++;
	flush_give(&clear->job);
}

/* ---- the event loop's part ---------------------------------------------------------------- */

void flush_failed(uint64_t step, const char *why)
{
	if (strcmp(store.said, why) != 0) {
		snprintf(store.said, sizeof store.said, "%s", why);
		tpck_log_warn("step %" PRIu64 " is not durable yet: %s", step, why);
		history_store(0, why);
	}
	store.backoff_sec = trouble_backoff(store.backoff_sec);
	store.retry_ns = tpck_clock_monotonic_ns() + (uint64_t)(store.backoff_sec * 1e9);
}

void flush_stored(struct agent *agent, struct launch *launch, uint64_t step)
{
	struct live *live;
	uint32_t at = 0;

	launch->durable_any = true;
	launch->durable_step = step;
	watermark_durable(agent, launch, step);
	while ((live = launch_next(launch, &at))) {
		/* A process that has but one image gets it back: what was in it is safe. */
		if (live->life == LIFE_RUNNING && live->image_count == 1 && !live->ending)
			live->newest = -1;
		atomic_store(&live->session->control->durable_step, step);
	}
	flush_works(step);
}

void flush_works(uint64_t step)
{
	if (store.said[0]) {
		tpck_log_warn("step %" PRIu64 " is durable; the store works again", step);
		history_store(0, NULL);
	}
	store.said[0] = '\0';
	store.backoff_sec = 0;
	store.retry_ns = 0;
	drain_wanted();
}

/* An image whose bytes are not what they were said to be is good for nothing, and so are the others of its step. */
static void discard(struct flush_job *flush)
{
	struct launch *launch = flush->launch;

	tpck_log_warn("step %" PRIu64 " is given up: %s", flush->point.step, flush->error.text);
	for (size_t i = 0; i < flush->publication.share_count; i++) {
		struct live *live = flush->live[i];
		struct tpck_held held = {.image = flush->image[i], .generation = launch->generation, .step = flush->point.step};

		if (live->newest == (int)flush->image[i])
			live->newest = -1;
		atomic_store(&live->images[flush->image[i]].map.header->state, TPCK_IMAGE_ABANDONED);
		if (live->client)
			client_send(live->client, TPCK_MSG_SURPRISE, &held, sizeof held);
		if (live->life == LIFE_DEAD)
			live_retire(live);
	}
}

static void retire_dead(struct launch *launch)
{
	struct live *live;
	uint32_t at = 0;

	while ((live = launch_next(launch, &at)))
		if (live->life == LIFE_DEAD)
			live_retire(live);
}

static void flush_done(struct agent *agent, struct job *job)
{
	struct flush_job *flush = (struct flush_job *)job;
	struct launch *launch = flush->launch;
	char how[80];

	loop.jobs--;
	launch->flushing = false;
	launch->base = flush->base;
	if (flush->rc == 0) {
		snprintf(how, sizeof how, ", written in %.2f s, read back in %.2f s", (double)flush->write_ns / 1e9,
			 (double)(flush->took_ns - flush->write_ns) / 1e9);
		flush_say(flush, "", how);
		flush_count(flush, flush->write_ns);
		tpck_manifest_free(launch->base);
		launch->base = flush->published;
		flush_stored(agent, launch, flush->point.step);
	} else if (flush->rc == -EEXIST) {
		flush_stored(agent, launch, flush->point.step);
	} else if (flush->rc == -ECANCELED) {
		tpck_log_info("%s", flush->error.text);
		retire_dead(launch);
	} else if (flush->rc == -EBADMSG) {
		discard(flush);
	} else {
		flush_failed(flush->point.step, flush->error.text);
	}
	flush_end(flush);
	/* What is durable now may give way to who was told that there is no room. */
	prepare_again(agent);
}

static void begin(struct agent *agent, struct launch *launch, uint64_t step)
{
	struct flush_job *flush = flush_new(agent, launch, home.tier, step);

	if (!flush)
		return;
	flush->job.run = flush_run;
	flush->job.done = flush_done;
	flush->base = launch->base;
	launch->base = NULL;
	launch->flushing = true;
	launch->flush_begun_ns = tpck_clock_monotonic_ns();
	loop.jobs++;
	flush_give(&flush->job);
}

/* What a launch's processes are at, all in all. */
struct condition {
	bool known, settling, died, failing, ending;
};

static struct condition condition_of(const struct launch *launch)
{
	struct condition c = {.known = true, .ending = true};
	const struct live *live;
	uint32_t at = 0;

	while ((live = launch_next(launch, &at))) {
		c.known = c.known && live->program;
		c.settling = c.settling || live->life == LIFE_SETTLING;
		c.died = c.died || (live->life == LIFE_DEAD && !live->ended_well);
		c.failing = c.failing || (live->ending && live->status != 0);
		c.ending = c.ending && (live->ended_well || (live->ending && live->status == 0));
	}
	return c;
}

/* How long what a program has left waits for its twin to be live, which is about to take over: writing would take from it processor and memory. */
#define TAKEOVER_NS 10000000000ull
#define TAKEOVER_LOOK_NS 50000000ull

static bool is_being_taken_over(const struct agent *agent, const struct launch *launch, uint64_t now)
{
	const struct live *dead = launch_first(launch);

	if (launch->world > 1 || !dead || dead->life != LIFE_DEAD || !dead->twin || now - dead->died_ns > TAKEOVER_NS || kill(dead->twin, 0))
		return false;
	for (const struct live *heir = agent->lives; heir; heir = heir->next)
		if (heir->session->control->parent_generation == launch->generation && heir->resumed)
			return false;
	return true;
}

/* Nanoseconds until this launch's newest step is due; 0: now; UINT64_MAX: nothing is. */
static uint64_t due_in(const struct agent *agent, const struct launch *launch, uint64_t now)
{
	const struct tpck_interval *interval = &home.settings.durable_interval;
	uint64_t since = launch->flush_begun_ns ? launch->flush_begun_ns : launch->begun_ns, step;
	struct condition c;
	double wait;

	if ((launch->apart && !launch_apart->may_flush(launch)) || launch->flushing || launch_settled(launch) || !launch_newest(launch, &step))
		return UINT64_MAX;
	c = condition_of(launch);
	if (!c.known || c.settling)
		return UINT64_MAX;
	if (c.died && !agent->stopping && is_being_taken_over(agent, launch, now))
		return TAKEOVER_LOOK_NS;
	if (c.died || agent->stopping || c.failing || (launch->apart && launch_apart->hurries(launch)))
		return 0;
	/* What a program that ended well leaves is nobody's to go on from. */
	if (c.ending)
		return UINT64_MAX;
	if (interval->unit == TPCK_INTERVAL_ITERATIONS) {
		uint64_t last = launch->durable_any ? launch->durable_step : launch_first(launch)->session->control->resume_step;

		return (double)(step - last) >= interval->count ? 0 : UINT64_MAX;
	}
	wait = interval->unit == TPCK_INTERVAL_SECONDS ? interval->count : tpck_interval_auto(history_interval(0));
	if (since + (uint64_t)(wait * 1e9) <= now)
		return 0;
	return since + (uint64_t)(wait * 1e9) - now;
}

static uint64_t deadline(const struct agent *agent)
{
	uint64_t now = tpck_clock_monotonic_ns(), soonest = UINT64_MAX;

	for (const struct launch *launch = agent->launches; launch; launch = launch->next) {
		uint64_t due = due_in(agent, launch, now);

		if (due != UINT64_MAX && now + due < soonest)
			soonest = now + due;
	}
	return soonest != UINT64_MAX && soonest < store.retry_ns ? store.retry_ns : soonest;
}

static void consider(struct agent *agent)
{
	uint64_t now = tpck_clock_monotonic_ns(), step;

	if (now < store.retry_ns)
		return;
	/* The dead first: nobody else has what they leave. */
	for (int dead = 1; dead >= 0; dead--)
		for (struct launch *launch = agent->launches; launch; launch = launch->next)
			if (launch_is_dead(launch) == dead && launch_newest(launch, &step) && due_in(agent, launch, now) == 0) {
				if (launch->apart)
					launch_apart->flush(agent, launch, step);
				else
					begin(agent, launch, step);
			}
}

static int begin_flusher(struct agent *agent, struct tpck_error *err)
{
	int rc = worker_start(&flusher);

	(void)agent;
	(void)err;
	if (!rc)
		clear_remains();
	return rc;
}

static void stop(struct agent *agent)
{
	(void)agent;
	worker_stop(&flusher);
}

const struct loop_part flush_loop = {.begin = begin_flusher, .consider = consider, .deadline = deadline, .stop = stop};
