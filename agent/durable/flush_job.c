/* SPDX-License-Identifier: Apache-2.0 */
/* What a job of the flusher is made of, and how it ends: published or joined, old ones removed, said and counted. */
#include "config.h"

#include "agent/durable/flush_job.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/durable/drain.h"
#include "agent/programs/met_programs.h"
#include "agent/session/events.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/store/quarantine.h"
#include "runtime/store/retention.h"
#include "runtime/store/verify.h"

/* ---- the flusher's part ------------------------------------------------------------------- */

/* Whether a point may still be published. */
static bool permitted(void *context, const struct tpck_point *point)
{
	const struct flush_job *flush = context;

	for (size_t i = 0; i < flush->publication.share_count; i++) {
		enum tpck_allowed allowed = tpck_program_allows(flush->program[i], point);

		if (allowed == TPCK_ALLOWED_NOT_ENDED || allowed == TPCK_ALLOWED_NOT_FENCED)
			return false;
	}
	return true;
}

struct rule {
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
	struct tpck_program *program = program_of(tpck_manifest_identity(manifest), NULL);

	(void)context;
	return !program || tpck_program_allows(program, &manifest->point) == TPCK_ALLOWED;
}

/* What is passed over because the program died there, or on the way, stays for whoever asks for it by its
 * step: there are two of them at most. So does what a slower tier is still being given. */
static bool spared(void *context, const struct tpck_manifest *manifest)
{
	struct tpck_program *program = program_of(tpck_manifest_identity(manifest), NULL);

	(void)context;
	if (drain_needs(&manifest->point))
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
		const struct tpck_share *first = &p->shares[0];
		int rc;

		if (!tpck_manifest_is_of(catalog.manifests[i], first->rank, first->ordinal, first->identity))
			continue;
		rc = tpck_verify(p->tier, catalog.manifests[i], &err);
		for (size_t s = 0; !rc && s < p->share_count; s++)
			rc = tpck_manifest_need(catalog.manifests[i], p->tier, p->shares[s].rank, &err);
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

int flush_retain(struct tpck_tier *tier, const uint64_t *generations, struct tpck_error *err)
{
	struct rule rule = {generations};
	struct tpck_retention retention = {
		.keep = home.settings.keep, .milestone = home.settings.milestone, .in_progress = in_progress,
		.offerable = offerable, .spared = spared, .context = &rule,
	};

	return tpck_retention_apply(tier, &retention, err);
}

/* Removes what is too old. */
static void retain_all(struct flush_job *flush)
{
	static char said[sizeof ((struct tpck_error *)0)->text];
	size_t tier = home_number(flush->publication.tier);
	struct tpck_error err = {0};

	home_enter(tier);
	if (flush_retain(flush->publication.tier, flush->running, &err) && strcmp(said, err.text) != 0) {
		snprintf(said, sizeof said, "%s", err.text);
		tpck_log_warn("old checkpoints stay: %s", err.text);
	}
	home_leave(tier);
}

/* The tier has it now, or why not. */
static int written(struct flush_job *flush, int rc)
{
	flush->took_ns = tpck_clock_monotonic_ns() - flush->began_ns;
	if (!rc)
		retain_all(flush);
	return rc;
}

int flush_publish(struct flush_job *flush)
{
	struct tpck_publication *p = &flush->publication;

	find_base(flush);
	p->base = flush->base;
	if (!flush->began_ns)
		flush->began_ns = tpck_clock_monotonic_ns();
	return written(flush, tpck_publish(p, &flush->published, &flush->error));
}

int flush_publish_joined(void *with)
{
	struct flush_job *flush = with;
	struct tpck_publication *p = &flush->publication;

	return written(flush, tpck_publish_join(p->tier, &flush->point, p->world, p->permitted, p->context, &flush->published, &flush->error));
}

void flush_while_held(struct flush_job *flush, enum tpck_hold how, int (*write)(void *with))
{
	flush->rc = tpck_tier_while_held(flush->publication.tier, how, FLUSH_WAIT_SEC, write, flush, &flush->error);
}

/* ---- the event loop's part ---------------------------------------------------------------- */

void flush_say(const struct flush_job *flush, const char *of, const char *how)
{
	tpck_log_info("step %" PRIu64 "%s is durable: %.1f MiB, %.1f of it new%s", flush->point.step, of,
		      (double)tpck_manifest_bytes(flush->published) / (1 << 20), (double)flush->published->stored_bytes / (1 << 20), how);
}

void flush_count(const struct flush_job *flush, uint64_t write_ns)
{
	history_durable(launch_first(flush->launch), flush->published, write_ns, flush->took_ns - write_ns);
	history_interval(0)->cost_sec = (double)flush->took_ns / 1e9;
}

uint64_t *flush_running(const struct agent *agent)
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

/* The part of one rank, whose image is pinned. */
static void add_share(struct flush_job *flush, struct live *live, unsigned i)
{
	size_t place = flush->publication.share_count++;
	struct live_image *image = &live->images[i];
	struct tpck_share *share = &flush->publication.shares[place];

	flush->live[place] = live;
	flush->image[place] = i;
	flush->program[place] = live->program;
	*share = (struct tpck_share){
		.session_path = live->session->path, .image_path = image->path, .image = image->map,
		.identity = live->session->identity, .rank = live->session->name.rank,
		.ordinal = live->session->name.ordinal,
	};
	tpck_notes_take(&share->notes, &live->session->control->status);
	atomic_fetch_add(&image->map.header->pins, 1);
	live->jobs++;
}

struct flush_job *flush_new(struct agent *agent, struct launch *launch, struct tpck_tier *tier, uint64_t step)
{
	struct flush_job *flush = calloc(1, sizeof *flush);
	const struct tpck_control *control = launch_first(launch)->session->control;
	struct live *live;
	uint32_t at = 0;

	if (!flush)
		return NULL;
	flush->running = flush_running(agent);
	flush->publication.shares = calloc(launch->here.count, sizeof *flush->publication.shares);
	flush->live = calloc(launch->here.count, sizeof *flush->live);
	flush->image = calloc(launch->here.count, sizeof *flush->image);
	flush->program = calloc(launch->here.count, sizeof *flush->program);
	if (!flush->running || !flush->publication.shares || !flush->live || !flush->image || !flush->program) {
		flush_end(flush);
		return NULL;
	}
	flush->launch = launch;
	flush->point = (struct tpck_point){launch->generation, step};
	flush->publication.tier = tier;
	flush->publication.world = launch->world;
	flush->publication.parent = (struct tpck_point){control->parent_generation, control->resume_step};
	flush->publication.permitted = permitted;
	flush->publication.context = flush;
	flush->publication.write_ns = &flush->write_ns;
	while ((live = launch_next(launch, &at))) {
		int i = live_image_of(live, step);

		if (i >= 0)
			add_share(flush, live, (unsigned)i);
	}
	return flush;
}

void flush_end(struct flush_job *flush)
{
	/* Sessions have jobs, so all are still there. */
	for (size_t i = 0; flush->live && i < flush->publication.share_count; i++) {
		flush->live[i]->jobs--;
		live_unpin(flush->live[i], flush->image[i]);
	}
	free(flush->publication.shares);
	free(flush->live);
	free(flush->image);
	free(flush->program);
	free(flush->running);
	free(flush);
}
