/* SPDX-License-Identifier: Apache-2.0 */
/* What the flusher does for launches that have lost nodes: looks whether the store has it, writes a part from a copy, joins. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/accord/joint_launches.h"
#include "agent/copies/copies.h"
#include "agent/durable/drain.h"
#include "agent/durable/flush.h"
#include "agent/durable/flush_job.h"
#include "agent/programs/met_programs.h"
#include "agent/salvage/salvage_private.h"
#include "agent/session/events.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"

/* One of the three. Its publication has no sessions. */
struct salvage_job {
	struct flush_job flush; /* first */
	uint64_t number;
	char node[TPCK_PEER_NAME];          /* who is told */
	struct tpck_accord_message message; /* a WRITE's */
	uint32_t rank, ordinal;             /* of the program that speaks for all */
	char *identity;
	struct tpck_program *of;
	struct copies_shares shares;
	bool there;
};

/* As other agents have noted it meanwhile: a start may have gone on from something else, on nodes that this one does not see. */
static bool permitted(void *context, const struct tpck_point *point)
{
	const struct salvage_job *job = context;
	enum tpck_allowed allowed;

	tpck_program_refresh(job->of, &home.tiers);
	allowed = tpck_program_allows(job->of, point);
	return allowed != TPCK_ALLOWED_NOT_ENDED && allowed != TPCK_ALLOWED_NOT_FENCED;
}

static struct salvage_job *job_new(struct agent *agent, const struct tpck_point *point, uint32_t world, char *identity, uint32_t rank,
				   uint32_t ordinal)
{
	struct salvage_job *job = identity ? calloc(1, sizeof *job) : NULL;

	if (!job) {
		free(identity);
		return NULL;
	}
	job->flush.running = flush_running(agent);
	job->flush.point = *point;
	job->flush.publication.tier = home_shared_tier();
	job->flush.publication.world = world;
	job->flush.publication.permitted = permitted;
	job->flush.publication.context = job;
	job->flush.publication.write_ns = &job->flush.write_ns;
	job->flush.began_ns = tpck_clock_monotonic_ns();
	job->rank = rank;
	job->ordinal = ordinal;
	job->identity = identity;
	return job;
}

static void job_free(struct salvage_job *job)
{
	tpck_manifest_free(job->flush.published);
	tpck_manifest_free(job->flush.base);
	free(job->flush.running);
	free(job->identity);
	free(job);
}

static void give(struct salvage_job *job, void (*run)(struct job *job), void (*done)(struct agent *agent, struct job *job))
{
	job->flush.job.run = run;
	job->flush.job.done = done;
	loop.jobs++;
	flush_give(&job->flush.job);
}

/* ---- looking ------------------------------------------------------------------------------ */

/* Whether a store has it, or a newer one of the program. */
static bool has_newer(const struct salvage_job *job, struct tpck_tier *tier)
{
	struct tpck_catalog catalog;
	bool found = false;

	if (tpck_catalog_load(&catalog, tier, NULL, NULL, NULL, NULL))
		return false;
	for (size_t i = 0; i < catalog.count && !found; i++)
		found = tpck_point_compare(&catalog.manifests[i]->point, &job->flush.point) >= 0 &&
			tpck_manifest_is_of(catalog.manifests[i], job->rank, job->ordinal, job->identity);
	tpck_catalog_free(&catalog);
	return found;
}

static void look_run(struct job *base)
{
	struct salvage_job *job = (struct salvage_job *)base;
	const struct tpck_tiers *tiers = &home.tiers;

	job->of = program_of(job->identity, NULL);
	job->there = job->of && !permitted(job, &job->flush.point);
	for (size_t t = 0; t < tiers->count && !job->there; t++) {
		home_enter(t);
		job->there = has_newer(job, tiers->tier[t]);
		home_leave(t);
	}
}

static void look_done(struct agent *agent, struct job *base)
{
	struct salvage_job *job = (struct salvage_job *)base;

	loop.jobs--;
	salvage_looked(agent, job->number, job->there);
	job_free(job);
}

/* Of the attempt of this number. */
static struct salvage_job *job_for(struct agent *agent, const struct salvage *s)
{
	uint32_t rank = 0, ordinal = 0;
	char *identity = salvage_identity(agent, s, &rank, &ordinal);
	struct salvage_job *job = job_new(agent, &s->point, s->world, identity, rank, ordinal);

	if (job)
		job->number = s->number;
	return job;
}

void salvage_look(struct agent *agent, const struct salvage *s)
{
	struct salvage_job *job = job_for(agent, s);

	/* Nobody is harmed by what is written twice. */
	if (job)
		give(job, look_run, look_done);
	else
		salvage_looked(agent, s->number, false);
}

/* ---- writing a part ----------------------------------------------------------------------- */

/* Of the parts before it each refers to what it had in the newest checkpoint; as they do (flush_parts.c). */
static void find_part_base(struct salvage_job *job)
{
	const struct tpck_publication *p = &job->flush.publication;
	struct tpck_catalog catalog;

	if (tpck_catalog_load(&catalog, p->tier, NULL, NULL, NULL, NULL))
		return;
	for (size_t i = catalog.count; i-- > 0 && !job->flush.base;) {
		int rc = tpck_manifest_is_of(catalog.manifests[i], job->rank, job->ordinal, job->identity) ? 0 : -ENOENT;

		for (size_t s = 0; !rc && s < p->share_count; s++)
			rc = tpck_manifest_need(catalog.manifests[i], p->tier, p->shares[s].rank, NULL);
		if (rc)
			continue;
		job->flush.base = catalog.manifests[i];
		catalog.manifests[i] = NULL;
	}
	tpck_catalog_free(&catalog);
}

/* The tier's lock is held, by nobody else: another holder, or the owner, may be at the same part, and what is whole is taken as it is. */
static int publish(void *with)
{
	struct salvage_job *job = with;
	struct tpck_publication *p = &job->flush.publication;
	struct tpck_error *err = &job->flush.error;

	if (!permitted(job, &job->flush.point))
		return tpck_error_set(err, ECANCELED, "publishing step %" PRIu64 " of a timeline that was left", job->flush.point.step);
	if (!job->message.value2) {
		find_part_base(job);
		p->base = job->flush.base;
		return tpck_publish_part(p, &job->flush.published, err);
	}
	return has_newer(job, p->tier) ? -EEXIST : flush_publish(&job->flush);
}

static void write_run(struct job *base)
{
	struct salvage_job *job = (struct salvage_job *)base;
	struct tpck_publication *p = &job->flush.publication;
	struct tpck_error *err = &job->flush.error;
	int rc = tpck_tier_check(p->tier, err);

	job->of = program_of(job->identity, err);
	if (!rc && !job->of)
		rc = -ENOMEM;
	if (!rc && job->message.value == TPCK_LEFT_FRAGMENTS)
		rc = copies_gather(job->identity, job->rank, job->ordinal, &job->flush.point, err);
	if (!rc)
		rc = copies_shares_open(&job->shares, job->identity, job->rank, job->ordinal, &job->flush.point, err);
	if (!rc) {
		p->shares = job->shares.shares;
		p->share_count = job->shares.manifest->member_count;
		p->parent = job->shares.manifest->parent;
		flush_while_held(&job->flush, TPCK_HOLD_ALONE, publish);
		rc = job->flush.rc;
	}
	job->flush.took_ns = tpck_clock_monotonic_ns() - job->flush.began_ns;
	job->flush.rc = rc;
	if (job->shares.copy)
		copies_shares_close(&job->shares, rc == -EBADMSG);
}

static void durable(const struct salvage_job *job)
{
	char of[80];

	snprintf(of, sizeof of, " of generation %" PRIu64 ", whose node is lost,", job->flush.point.generation);
	flush_say(&job->flush, of, "");
	history_salvaged(job->of, job->flush.published, job->flush.took_ns);
	flush_works(job->flush.point.step);
	drain_joined();
}

static void write_done(struct agent *agent, struct job *base)
{
	struct salvage_job *job = (struct salvage_job *)base;
	int rc = job->flush.rc;

	loop.jobs--;
	if (rc == -EBADMSG)
		tpck_log_warn("the copy of step %" PRIu64 " of rank %u is given up: %s", job->flush.point.step, job->rank, job->flush.error.text);
	if (!rc && job->message.value2)
		durable(job);
	salvage_wrote(agent, job->node, &job->message, rc == -EEXIST ? 0 : rc, job->flush.error.text);
	job_free(job);
}

/* One at a time: whom flush_part() is for. */
static struct own {
	char node[TPCK_PEER_NAME];
	struct tpck_accord_message message;
	struct own *next;
} *owns;

static void own_through(struct agent *agent, struct launch *launch, uint64_t step, int rc, const char *why)
{
	for (struct own **place = &owns; *place; place = &(*place)->next) {
		struct own *own = *place;

		if (own->message.generation != launch->generation || own->message.step != step)
			continue;
		*place = own->next;
		salvage_wrote(agent, own->node, &own->message, rc, why);
		free(own);
		return;
	}
}

static void write_own(struct agent *agent, const char *node, const struct tpck_accord_message *message)
{
	struct launch *launch = salvage_launch(agent, message->generation);
	struct own *own = launch ? calloc(1, sizeof *own) : NULL;

	if (!own) {
		salvage_wrote(agent, node, message, -ENOENT, "a node has no image of it any more, or no memory");
		return;
	}
	snprintf(own->node, sizeof own->node, "%s", node);
	own->message = *message;
	own->next = owns;
	owns = own;
	accord_promote(agent, &(struct tpck_point){message->generation, message->step});
	flush_part(agent, launch, message->step, own_through);
}

void salvage_write(struct agent *agent, const char *node, const struct tpck_accord_message *message)
{
	struct tpck_point point = {message->generation, message->step};
	struct salvage_job *job;

	if (message->value == TPCK_LEFT_OWN) {
		write_own(agent, node, message);
		return;
	}
	job = job_new(agent, &point, message->world, copies_left_identity(message->generation, message->rank, message->ordinal), message->rank,
		      message->ordinal);
	if (!job) {
		salvage_wrote(agent, node, message, -ENOENT, "a node has no copy of it any more, or no memory");
		return;
	}
	job->message = *message;
	snprintf(job->node, sizeof job->node, "%s", node);
	give(job, write_run, write_done);
}

/* ---- joining ------------------------------------------------------------------------------ */

static void join_run(struct job *base)
{
	struct salvage_job *job = (struct salvage_job *)base;

	job->of = program_of(job->identity, &job->flush.error);
	if (job->of)
		flush_while_held(&job->flush, TPCK_HOLD_CHANGES, flush_publish_joined);
	else
		job->flush.rc = -ENOMEM;
}

static void join_done(struct agent *agent, struct job *base)
{
	struct salvage_job *job = (struct salvage_job *)base;
	int rc = job->flush.rc;

	loop.jobs--;
	if (!rc)
		durable(job);
	salvage_joined(agent, job->number, rc == -EEXIST ? 0 : rc, job->flush.error.text);
	job_free(job);
}

void salvage_join(struct agent *agent, const struct salvage *s)
{
	struct salvage_job *job = job_for(agent, s);

	if (job)
		give(job, join_run, join_done);
	else
		salvage_joined(agent, s->number, -ENOMEM, "there is nothing of it here any more, or no memory");
}
