/* SPDX-License-Identifier: Apache-2.0 */
/* Making snapshots durable: which, when, and what happens when the store does not want them. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/store/publish.h"
#include "runtime/store/quarantine.h"
#include "runtime/store/retention.h"
#include "runtime/store/verify.h"
#include "tools/agent/agent.h"

/* How long a publication waits for another process that removes or publishes in the same job. */
#define LOCK_WAIT_SEC 30.0

struct flush_job {
	struct job job; /* first */
	struct agent *agent;
	struct live *live;
	unsigned image;
	struct tpck_share share;
	struct tpck_publication publication;
	struct tpck_manifest *base;  /* taken from the session, given back changed */
	uint64_t *running;           /* generations that may have work in progress, 0 at the end */
	uint64_t began_ns, took_ns, write_ns;
	int rc;
	struct tpck_manifest *published;
	struct tpck_error error;
};

/* ---- the flusher's part ------------------------------------------------------------------- */

static bool permitted(void *context, const struct tpck_point *point)
{
	struct flush_job *flush = context;
	enum tpck_allowed allowed = tpck_program_allows(flush->live->program, point);

	return allowed != TPCK_ALLOWED_NOT_ENDED && allowed != TPCK_ALLOWED_NOT_FENCED;
}

struct rule {
	struct agent *agent;
	const uint64_t *generations;
};

static bool in_progress(void *context, const struct tpck_point *point)
{
	const struct rule *rule = context;

	for (const uint64_t *generation = rule->generations; *generation; generation++)
		if (*generation == point->generation)
			return true;
	return false;
}

static bool offerable(void *context, const struct tpck_manifest *manifest)
{
	const struct rule *rule = context;
	struct tpck_program *program = program_of(rule->agent, manifest->members[0].identity, NULL);

	return !program || tpck_program_allows(program, &manifest->point) == TPCK_ALLOWED;
}

/* What is passed over because the program died there, or on the way, stays for whoever asks for it by its
 * step: there are two of them at most. So does what a slower tier is still being given. */
static bool spared(void *context, const struct tpck_manifest *manifest)
{
	const struct rule *rule = context;
	struct tpck_program *program = program_of(rule->agent, manifest->members[0].identity, NULL);

	if (copies_need(&manifest->point))
		return true;
	return program && tpck_program_allows(program, &manifest->point) == TPCK_ALLOWED_NOT_LOOP;
}

/* A process that just came up refers to what an earlier one stored, once that is proven good. */
static void find_base(struct flush_job *flush)
{
	struct tpck_publication *p = &flush->publication;
	struct tpck_catalog catalog;
	struct tpck_error err = {0};

	if (flush->base || tpck_catalog_load(&catalog, p->tier, NULL, NULL, NULL, NULL))
		return;
	for (size_t i = catalog.count; i-- > 0 && !flush->base;) {
		const struct tpck_member *member = tpck_manifest_member(catalog.manifests[i], flush->share.rank, flush->share.ordinal);
		int rc;

		if (!member || strcmp(member->identity, flush->share.identity) != 0)
			continue;
		rc = tpck_verify(p->tier, catalog.manifests[i], &err);
		if (rc == -EBADMSG || rc == -ENOENT) {
			tpck_quarantine(p->tier, &catalog.manifests[i]->point, err.text, NULL);
			continue;
		}
		if (!rc) {
			flush->base = catalog.manifests[i];
			catalog.manifests[i] = NULL;
		}
		break;
	}
	tpck_catalog_free(&catalog);
}

int flush_retain(struct agent *agent, struct tpck_tier *tier, const uint64_t *generations, struct tpck_error *err)
{
	struct rule rule = {agent, generations};
	struct tpck_retention retention = {
		.keep = agent->settings.keep, .milestone = agent->settings.milestone, .in_progress = in_progress,
		.offerable = offerable, .spared = spared, .context = &rule,
	};

	return tpck_retention_apply(tier, &retention, err);
}

static void retain(struct flush_job *flush)
{
	static char said[sizeof ((struct tpck_error *)0)->text];
	struct tpck_error err = {0};

	pthread_mutex_lock(&store_in_use);
	if (flush_retain(flush->agent, flush->agent->tier, flush->running, &err) && strcmp(said, err.text) != 0) {
		snprintf(said, sizeof said, "%s", err.text);
		tpck_log_warn("old checkpoints stay: %s", err.text);
	}
	pthread_mutex_unlock(&store_in_use);
}

static void flush_run(struct job *job)
{
	struct flush_job *flush = (struct flush_job *)job;
	struct tpck_publication *p = &flush->publication;
	int lock;

	flush->rc = tpck_durable_tier_check(p->tier, &flush->error);
	if (flush->rc)
		return;
	lock = tpck_durable_tier_lock(p->tier, LOCK_WAIT_SEC, &flush->error);
	if (lock < 0) {
		flush->rc = lock;
		return;
	}
	find_base(flush);
	p->base = flush->base;
	flush->began_ns = tpck_clock_monotonic_ns();
	flush->rc = tpck_publish(p, &flush->published, &flush->error);
	flush->took_ns = tpck_clock_monotonic_ns() - flush->began_ns;
	if (!flush->rc)
		retain(flush);
	close(lock);
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
	int lock;

	if (access(clear->tier->root, W_OK) != 0)
		return;
	lock = tpck_durable_tier_lock(clear->tier, LOCK_WAIT_SEC, &err);
	if (lock == -EPERM)
		return; /* somebody else's: said to the first program that would use it */
	if (lock < 0 || tpck_retention_clear(clear->tier, &err))
		tpck_log_warn("remains of earlier runs stay: %s", err.text);
	if (lock >= 0)
		close(lock);
}

static void clear_done(struct agent *agent, struct job *job)
{
	agent->jobs--;
	free(job);
}

void flush_clear_remains(struct agent *agent)
{
	struct clear_job *clear = calloc(1, sizeof *clear);

	if (!clear)
		return;
	clear->job.run = clear_run;
	clear->job.done = clear_done;
	clear->tier = agent->tier;
	agent->jobs++;
	worker_give(&agent->flusher, &clear->job);
}

/* ---- the event loop's part ---------------------------------------------------------------- */

static void failed(struct agent *agent, struct flush_job *flush)
{
	const struct tpck_image_header *header = flush->share.image.header;

	if (strcmp(agent->flush_said, flush->error.text) != 0) {
		snprintf(agent->flush_said, sizeof agent->flush_said, "%s", flush->error.text);
		tpck_log_warn("step %" PRIu64 " is not durable yet: %s", header->step, flush->error.text);
	}
	agent->flush_backoff_sec = agent_backoff(agent->flush_backoff_sec);
	agent->flush_retry_ns = tpck_clock_monotonic_ns() + (uint64_t)(agent->flush_backoff_sec * 1e9);
}

static void stored(struct agent *agent, struct live *live, uint64_t step)
{
	live->durable_any = true;
	live->durable_step = step;
	/* A process that has but one image gets it back: what was in it is safe. */
	if (live->life == LIFE_RUNNING && live->image_count == 1 && !live->ending)
		live->newest = -1;
	atomic_store(&live->session->control->durable_step, step);
	if (agent->flush_said[0])
		tpck_log_warn("step %" PRIu64 " is durable; the store works again", step);
	agent->flush_said[0] = '\0';
	agent->flush_backoff_sec = 0;
	agent->flush_retry_ns = 0;
	copies_wanted(agent);
}

/* An image whose bytes are not what they were said to be is good for nothing. */
static void discard(struct agent *agent, struct flush_job *flush)
{
	struct live *live = flush->live;
	struct tpck_held held = {
		.image = flush->image, .generation = flush->share.image.header->generation, .step = flush->share.image.header->step,
	};

	tpck_log_warn("step %" PRIu64 " is given up: %s", held.step, flush->error.text);
	if (live->newest == (int)flush->image)
		live->newest = -1;
	atomic_store(&flush->share.image.header->state, TPCK_IMAGE_ABANDONED);
	if (live->client)
		client_send(live->client, TPCK_MSG_SURPRISE, &held, sizeof held);
	if (live->life == LIFE_DEAD)
		live_retire(agent, live);
}

static void flush_done(struct agent *agent, struct job *job)
{
	struct flush_job *flush = (struct flush_job *)job;
	struct live *live = flush->live;
	uint64_t step = flush->share.image.header->step;

	agent->jobs--;
	live->jobs--;
	live->flushing = false;
	live->base = flush->base;
	if (flush->rc == 0) {
		tpck_log_info("step %" PRIu64 " is durable: %.1f MiB, %.1f of it new, written in %.2f s, read back in %.2f s", step,
			      (double)tpck_manifest_bytes(flush->published) / (1 << 20),
			      (double)flush->published->stored_bytes / (1 << 20), (double)flush->write_ns / 1e9,
			      (double)(flush->took_ns - flush->write_ns) / 1e9);
		tpck_manifest_free(live->base);
		live->base = flush->published;
		agent->history.cost_sec = (double)flush->took_ns / 1e9;
		stored(agent, live, step);
	} else if (flush->rc == -EEXIST) {
		stored(agent, live, step);
	} else if (flush->rc == -ECANCELED) {
		tpck_log_info("%s", flush->error.text);
		if (live->life == LIFE_DEAD)
			live_retire(agent, live);
	} else if (flush->rc == -EBADMSG) {
		discard(agent, flush);
	} else {
		failed(agent, flush);
	}
	live_unpin(agent, live, flush->image);
	free(flush->running);
	free(flush);
}

static uint64_t *running_generations(const struct agent *agent)
{
	uint64_t *generations;
	size_t count = 0;

	for (const struct live *live = agent->lives; live; live = live->next)
		count++;
	generations = calloc(count + 1, sizeof *generations);
	count = 0;
	for (const struct live *live = agent->lives; generations && live; live = live->next)
		if (live->life != LIFE_GONE)
			generations[count++] = live->session->name.generation;
	return generations;
}

static void begin(struct agent *agent, struct live *live)
{
	struct flush_job *flush = calloc(1, sizeof *flush);
	const struct tpck_control *control = live->session->control;
	struct live_image *image = &live->images[live->newest];

	if (!flush)
		return;
	flush->running = running_generations(agent);
	if (!flush->running) {
		free(flush);
		return;
	}
	flush->job.run = flush_run;
	flush->job.done = flush_done;
	flush->agent = agent;
	flush->live = live;
	flush->image = (unsigned)live->newest;
	flush->base = live->base;
	live->base = NULL;
	flush->share = (struct tpck_share){
		.session_path = live->session->path, .image_path = image->path, .image = image->map,
		.identity = live->session->identity, .rank = live->session->name.rank, .ordinal = live->session->name.ordinal,
	};
	tpck_notes_take(&flush->share.notes, &control->status);
	flush->publication = (struct tpck_publication){
		.tier = agent->tier, .shares = &flush->share, .share_count = 1, .world = live->world ? live->world : 1,
		.parent = {control->parent_generation, control->resume_step}, .permitted = permitted,
		.context = flush, .write_ns = &flush->write_ns,
	};
	atomic_fetch_add(&image->map.header->pins, 1);
	live->flushing = true;
	live->flush_begun_ns = tpck_clock_monotonic_ns();
	live->jobs++;
	agent->jobs++;
	worker_give(&agent->flusher, &flush->job);
}

bool flush_settled(const struct live *live)
{
	return !live->flushing && (live->newest < 0 || (live->durable_any && live->durable_step >= live->newest_step));
}

/* Nanoseconds until this session's newest image is due; 0: now; UINT64_MAX: nothing is. */
static uint64_t due_in(const struct agent *agent, const struct live *live, uint64_t now)
{
	const struct tpck_interval *interval = &agent->settings.durable_interval;
	uint64_t since = live->flush_begun_ns ? live->flush_begun_ns : live->begun_ns;
	double wait;

	if (live->life == LIFE_GONE || live->flushing || !live->program || flush_settled(live))
		return UINT64_MAX;
	if (live->life != LIFE_RUNNING || agent->stopping || (live->ending && live->status != 0))
		return 0;
	/* What a program that ended well leaves is nobody's to go on from. */
	if (live->ending)
		return UINT64_MAX;
	if (interval->unit == TPCK_INTERVAL_ITERATIONS) {
		uint64_t last = live->durable_any ? live->durable_step : live->session->control->resume_step;

		return (double)(live->newest_step - last) >= interval->count ? 0 : UINT64_MAX;
	}
	wait = interval->unit == TPCK_INTERVAL_SECONDS ? interval->count : tpck_interval_auto(&agent->history);
	if (since + (uint64_t)(wait * 1e9) <= now)
		return 0;
	return since + (uint64_t)(wait * 1e9) - now;
}

uint64_t flush_deadline(const struct agent *agent)
{
	uint64_t now = tpck_clock_monotonic_ns(), soonest = UINT64_MAX;

	for (const struct live *live = agent->lives; live; live = live->next) {
		uint64_t due = live->flushing ? UINT64_MAX : due_in(agent, live, now);

		if (due != UINT64_MAX && now + due < soonest)
			soonest = now + due;
	}
	return soonest != UINT64_MAX && soonest < agent->flush_retry_ns ? agent->flush_retry_ns : soonest;
}

void flush_consider(struct agent *agent)
{
	uint64_t now = tpck_clock_monotonic_ns();

	if (now < agent->flush_retry_ns)
		return;
	/* The dead first: nobody else has what they leave. */
	for (int dead = 1; dead >= 0; dead--)
		for (struct live *live = agent->lives; live; live = live->next)
			if ((live->life == LIFE_DEAD) == dead && live->life != LIFE_SETTLING &&
			    due_in(agent, live, now) == 0)
				begin(agent, live);
}
