/* SPDX-License-Identifier: Apache-2.0 */
/* Copies in the slower tiers: each has a thread and a cadence of its own, so that none waits for another. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/durable/drain.h"
#include "agent/durable/flush.h"
#include "agent/loop/trouble.h"
#include "agent/programs/met_programs.h"
#include "agent/session/events.h"
#include "agent/session/sessions.h"
#include "agent/session/watermark.h"
#include "runtime/base/clock.h"
#include "runtime/base/lock_order.h"
#include "runtime/base/log.h"
#include "runtime/base/tier_settings.h"
#include "runtime/store/copy.h"
#include "runtime/store/quarantine.h"
#include "runtime/store/retention.h"

#define LOCK_WAIT_SEC 30.0

/* A tier behind the first one, which gets copies of what that has. */
static struct slower {
	struct worker worker;
	bool busy;
	bool behind;                 /* the first tier may have something newer */
	bool joined;                 /* and so may the one that all nodes see, which is another */
	uint64_t begun_ns, retry_ns;
	double backoff_sec;
	char said[sizeof ((struct tpck_error *)0)->text];
	bool slow_said;              /* it has been said that what is on its way takes long */
} slower_tiers[TPCK_TIERS_MAX]; /* by tier; the first is not used */

/* What the interval of a tier comes from. */
static struct tpck_interval_history *interval_of(const struct slower *slower)
{
	return history_interval((size_t)(slower - slower_tiers));
}

struct copy_job {
	struct job job; /* first */
	size_t tier;
	bool first; /* of this agent: remains of earlier ones are cleared */
	bool joined; /* also from the tier that all nodes see */
	/* found by the copier */
	int rc;
	struct tpck_error error;
	uint64_t took_ns, bytes;
	struct tpck_point point;
	bool copied;
	struct handled *handled;
};

/* The newest checkpoint of a program, which the tier has now, or which is left out. */
struct handled {
	char *identity;
	struct tpck_point point;
	bool has;
	size_t from;
	struct handled *next;
};

static struct {
	_Atomic bool ending;   /* the agent wants to be gone: what is being copied is left */
	/* What is being copied from the first tier, by tier; generation 0: nothing. It is chosen where that tier is entered. */
	pthread_mutex_t lock;
	struct tpck_point needed[TPCK_TIERS_MAX];
	_Atomic uint64_t under_way[TPCK_TIERS_MAX]; /* one more than its step; 0: nothing is */
} drain = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool drain_needs(const struct tpck_point *point)
{
	bool found = false;

	pthread_mutex_lock(&drain.lock);
	for (size_t i = 0; i < TPCK_TIERS_MAX; i++)
		found = found || (drain.needed[i].generation && tpck_point_compare(&drain.needed[i], point) == 0);
	pthread_mutex_unlock(&drain.lock);
	return found;
}

static void need(size_t tier, const struct tpck_point *point)
{
	pthread_mutex_lock(&drain.lock);
	drain.needed[tier] = point ? *point : (struct tpck_point){0};
	pthread_mutex_unlock(&drain.lock);
}

/* ---- the copier's part ---------------------------------------------------------------------- */

struct permission {
	struct tpck_program *program;
};

static bool permitted(void *context, const struct tpck_point *point)
{
	const struct permission *permission = context;

	enum tpck_allowed allowed = tpck_program_allows(permission->program, point);

	return !atomic_load(&drain.ending) && allowed != TPCK_ALLOWED_NOT_ENDED && allowed != TPCK_ALLOWED_NOT_FENCED;
}

/* Somebody may go on from it, if only by asking for its step. */
static bool is_wanted(struct tpck_program *program, const struct tpck_manifest *manifest)
{
	enum tpck_allowed allowed = tpck_program_allows(program, &manifest->point);

	return allowed == TPCK_ALLOWED || allowed == TPCK_ALLOWED_NOT_LOOP;
}

/* The newest checkpoint of its program that is wanted. */
static bool is_newest(const struct tpck_catalog *catalog, size_t i)
{
	const char *identity = tpck_manifest_identity(catalog->manifests[i]);
	struct tpck_program *program = program_of(identity, NULL);

	if (!program || !is_wanted(program, catalog->manifests[i]))
		return false;
	for (size_t j = i + 1; j < catalog->count; j++)
		if (strcmp(tpck_manifest_identity(catalog->manifests[j]), identity) == 0 &&
		    is_wanted(program, catalog->manifests[j]))
			return false;
	return true;
}

static int copy_one(struct copy_job *job, size_t from, struct tpck_tier *to, const struct tpck_manifest *manifest)
{
	struct tpck_tier *source = home.tiers.tier[from];
	struct permission permission = {program_of(tpck_manifest_identity(manifest), NULL)};
	struct tpck_copy copy = {
		.from = source, .to = to, .manifest = manifest, .permitted = permitted, .context = &permission,
	};
	uint64_t begun = tpck_clock_monotonic_ns();
	bool bad_source = false;
	int rc = permission.program ? tpck_copy(&copy, &bad_source, &job->error) : -ENOMEM;

	if (rc == 0) {
		job->copied = true;
		job->took_ns = tpck_clock_monotonic_ns() - begun;
		job->bytes = copy.copied_bytes;
		job->point = manifest->point;
	} else if (bad_source) {
		tpck_quarantine(source, &manifest->point, job->error.text, NULL);
	}
	job->handled->has = rc == 0 || rc == -EEXIST;
	return rc == -EEXIST || rc == -ECANCELED ? 0 : rc;
}

/* One of each program from each tier; of the second none that is older. */
static bool is_handled(const struct copy_job *job, size_t from, const struct tpck_manifest *manifest)
{
	const struct handled *handled = job->handled;

	while (handled && (strcmp(handled->identity, tpck_manifest_identity(manifest)) != 0 ||
			   (handled->from != from && tpck_point_compare(&handled->point, &manifest->point) < 0)))
		handled = handled->next;
	return handled != NULL;
}

static int handle(struct copy_job *job, size_t from, const struct tpck_manifest *manifest)
{
	struct handled *handled = calloc(1, sizeof *handled);
	char *identity = handled ? strdup(tpck_manifest_identity(manifest)) : NULL;

	if (!identity) {
		free(handled);
		return tpck_error_set(&job->error, ENOMEM, "copying step %" PRIu64, manifest->point.step);
	}
	*handled = (struct handled){identity, manifest->point, false, from, job->handled};
	job->handled = handled;
	return 0;
}

/* The newest checkpoint of a program that has not been handled, which nobody here removes from now on; *next NULL: there is none. */
static int next_newest(struct copy_job *job, size_t from, struct tpck_manifest **next)
{
	struct tpck_catalog catalog;
	int rc;

	*next = NULL;
	home_enter(from);
	need(job->tier, NULL);
	rc = tpck_catalog_load(&catalog, home.tiers.tier[from], NULL, NULL, NULL, &job->error);
	for (size_t i = 0; !rc && i < catalog.count && !*next; i++)
		if (!is_handled(job, from, catalog.manifests[i]) && is_newest(&catalog, i)) {
			*next = catalog.manifests[i];
			catalog.manifests[i] = NULL;
			need(job->tier, &(*next)->point);
			atomic_store(&drain.under_way[job->tier], (*next)->point.step + 1);
		}
	home_leave(from);
	if (!rc)
		tpck_catalog_free(&catalog);
	return rc;
}

static int copy_newest(struct copy_job *job, size_t from, struct tpck_tier *to)
{
	struct tpck_manifest *manifest;
	int rc;

	atomic_store(&drain.under_way[job->tier], 0);
	while ((rc = next_newest(job, from, &manifest)) == 0 && manifest) {
		rc = handle(job, from, manifest);
		if (!rc)
			rc = copy_one(job, from, to, manifest);
		tpck_manifest_free(manifest);
		if (rc)
			break;
	}
	need(job->tier, NULL);
	return rc;
}

static int copy_all(void *with)
{
	static const uint64_t nobody[] = {0};
	struct copy_job *job = with;
	struct tpck_tier *to = home.tiers.tier[job->tier];
	struct tpck_error err = {0};
	int rc, joined = 0;

	if (job->first && tpck_retention_clear(to, &err))
		tpck_log_warn("remains of earlier runs stay: %s", err.text);
	/* One that does not work keeps nothing from the other. */
	if (job->joined)
		joined = copy_newest(job, home_number(home_shared_tier()), to);
	rc = copy_newest(job, 0, to);
	if (!rc)
		rc = joined;
	if (rc) {
		(void)tpck_retention_clear(to, NULL);
	} else if (job->copied) {
		home_enter(job->tier);
		if (flush_retain(to, nobody, &err))
			trouble_complain(&err);
		home_leave(job->tier);
	}
	return rc;
}

static void copy_run(struct job *base)
{
	struct copy_job *job = (struct copy_job *)base;

	job->rc = tpck_tier_while_held(home.tiers.tier[job->tier], TPCK_HOLD_CHANGES, LOCK_WAIT_SEC, copy_all, job, &job->error);
}

/* ---- the event loop's part ------------------------------------------------------------------ */

static void copy_done(struct agent *agent, struct job *base)
{
	struct copy_job *job = (struct copy_job *)base;
	struct slower *slower = &slower_tiers[job->tier];
	const char *root = home.tiers.tier[job->tier]->root;

	loop.jobs--;
	slower->busy = false;
	slower->slow_said = false;
	if (job->rc) {
		if (strcmp(slower->said, job->error.text) != 0) {
			snprintf(slower->said, sizeof slower->said, "%s", job->error.text);
			tpck_log_warn("not copied to tier '%s': %s", home.tiers.name[job->tier], job->error.text);
			history_store(job->tier, job->error.text);
		}
		slower->behind = true;
		slower->joined |= job->joined;
		slower->backoff_sec = trouble_backoff(slower->backoff_sec);
		slower->retry_ns = tpck_clock_monotonic_ns() + (uint64_t)(slower->backoff_sec * 1e9);
	} else {
		if (slower->said[0]) {
			tpck_log_warn("tier '%s' works again", home.tiers.name[job->tier]);
			history_store(job->tier, NULL);
		}
		slower->said[0] = '\0';
		slower->backoff_sec = 0;
		slower->retry_ns = 0;
	}
	while (job->handled) {
		struct handled *handled = job->handled;

		if (handled->has)
			watermark_note(agent, job->tier, &handled->point);
		job->handled = handled->next;
		free(handled->identity);
		free(handled);
	}
	if (job->copied) {
		interval_of(slower)->cost_sec = (double)job->took_ns / 1e9;
		history_copied(job->tier, &job->point, job->bytes, job->took_ns);
		tpck_log_info("step %" PRIu64 " is in tier '%s' (%s): %.1f MiB copied and read back in %.2f s", job->point.step,
			      home.tiers.name[job->tier], root, (double)job->bytes / (1 << 20), (double)job->took_ns / 1e9);
	}
	free(job);
}

static int begin(struct agent *agent, struct tpck_error *err)
{
	int rc = 0;

	(void)agent;
	(void)err;
	for (size_t i = 1; i < home.tiers.count && !rc; i++) {
		slower_tiers[i].behind = true;
		rc = worker_start(&slower_tiers[i].worker);
	}
	return rc;
}

static void stop(struct agent *agent)
{
	(void)agent;
	atomic_store(&drain.ending, true);
	for (size_t i = 1; i < home.tiers.count; i++)
		worker_stop(&slower_tiers[i].worker);
}

void drain_wanted(void)
{
	for (size_t i = 1; i < home.tiers.count; i++)
		slower_tiers[i].behind = true;
}

void drain_joined(void)
{
	size_t shared = home_number(home_shared_tier());

	if (!shared)
		return;
	for (size_t i = shared + 1; i < home.tiers.count; i++) {
		slower_tiers[i].behind = true;
		slower_tiers[i].joined = true;
	}
}

/* Nanoseconds until a copy into the tier is due; UINT64_MAX: none is. */
static uint64_t due_in(const struct agent *agent, const struct slower *slower, uint64_t now)
{
	const struct tpck_interval *interval = &home.settings.durable_interval;
	uint64_t at = slower->retry_ns;
	bool running = false;
	double wait;

	if (slower->busy || !slower->behind)
		return UINT64_MAX;
	for (const struct live *live = agent->lives; live; live = live->next)
		running = running || live->life == LIFE_RUNNING || live->life == LIFE_SETTLING;
	/* The first one has none before it; and what a dead program left waits for nothing. */
	if (slower->begun_ns && running && !agent->stopping && interval->unit != TPCK_INTERVAL_ITERATIONS) {
		wait = interval->unit == TPCK_INTERVAL_SECONDS ? interval->count : tpck_interval_auto(interval_of(slower));
		if (slower->begun_ns + (uint64_t)(wait * 1e9) > at)
			at = slower->begun_ns + (uint64_t)(wait * 1e9);
	}
	return at > now ? at - now : 0;
}

/* When it is to be said that what is on its way to a tier takes long: longer than ranks may stand still, and ten times as long as before. */
static uint64_t slow_at(const struct slower *slower)
{
	double limit = home.settings.stall_sec;

	if (!slower->busy || slower->slow_said || limit <= 0)
		return UINT64_MAX;
	if (10 * interval_of(slower)->cost_sec > limit)
		limit = 10 * interval_of(slower)->cost_sec;
	return slower->begun_ns + (uint64_t)(limit * 1e9);
}

static void say_slow(size_t tier, uint64_t now)
{
	struct slower *slower = &slower_tiers[tier];
	uint64_t step = atomic_load(&drain.under_way[tier]);
	char what[40] = "", why[200];

	slower->slow_said = true;
	if (step)
		snprintf(what, sizeof what, " of step %" PRIu64, step - 1);
	snprintf(why, sizeof why, "copying%s has been going on for %.0f s", what, (double)(now - slower->begun_ns) / 1e9);
	tpck_log_warn("tier '%s' is behind: %s; what is newer waits, and the first tier keeps what is being copied", home.tiers.name[tier], why);
	history_store(tier, why);
}

static uint64_t deadline(const struct agent *agent)
{
	uint64_t now = tpck_clock_monotonic_ns(), soonest = UINT64_MAX;

	for (size_t i = 1; i < home.tiers.count; i++) {
		uint64_t due = due_in(agent, &slower_tiers[i], now);

		if (slow_at(&slower_tiers[i]) < soonest)
			soonest = slow_at(&slower_tiers[i]);

		if (due != UINT64_MAX && now + due < soonest)
			soonest = now + due;
	}
	return soonest;
}

static void consider(struct agent *agent)
{
	uint64_t now = tpck_clock_monotonic_ns();

	for (size_t i = 1; i < home.tiers.count; i++) {
		struct slower *slower = &slower_tiers[i];
		struct copy_job *job = due_in(agent, slower, now) == 0 ? calloc(1, sizeof *job) : NULL;

		if (now >= slow_at(slower))
			say_slow(i, now);
		if (!job)
			continue;
		job->job.run = copy_run;
		job->job.done = copy_done;
		job->tier = i;
		job->first = slower->begun_ns == 0;
		job->joined = slower->joined;
		slower->busy = true;
		slower->behind = slower->joined = false;
		slower->begun_ns = now;
		loop.jobs++;
		worker_give(&slower->worker, &job->job);
	}
}

const struct loop_part drain_loop = {.begin = begin, .consider = consider, .deadline = deadline, .stop = stop};
