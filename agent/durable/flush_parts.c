/* SPDX-License-Identifier: Apache-2.0 */
/* Making snapshots of launches on several nodes durable: each node writes its ranks' part, the leader joins them. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/durable/drain.h"
#include "agent/durable/flush.h"
#include "agent/durable/flush_job.h"
#include "agent/durable/stasher.h"
#include "agent/session/events.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"

/* The last checkpoint that all nodes made, if it was another one than what is known, and of it what this node's ranks have. A
 * reference into it is compared with its digest as it is made. */
static void refresh_base(struct flush_job *flush)
{
	const struct tpck_publication *p = &flush->publication;
	struct tpck_manifest *manifest;
	struct tpck_error err = {0};

	if (!flush->last.generation || (flush->base && tpck_point_compare(&flush->base->point, &flush->last) == 0) ||
	    tpck_manifest_load(&manifest, p->tier, &flush->last, NULL))
		return;
	tpck_manifest_free(flush->base);
	flush->base = manifest;
	/* What cannot be read is written anew. */
	for (size_t i = 0; i < p->share_count && !err.code; i++)
		if (tpck_manifest_need(manifest, p->tier, p->shares[i].rank, &err))
			tpck_log_warn("not all of the last checkpoint is referred to: %s", err.text);
}

static int publish_part(void *with)
{
	struct flush_job *flush = with;
	struct tpck_publication *p = &flush->publication;

	for (size_t i = 0; i < p->share_count; i++)
		stash_settle(flush->program[i]);
	refresh_base(flush);
	p->base = flush->base;
	return tpck_publish_part(p, &flush->published, &flush->error);
}

static void part_run(struct job *job)
{
	flush_while_held((struct flush_job *)job, TPCK_HOLD_ADDS, publish_part);
}

static void part_done(struct agent *agent, struct job *job)
{
	struct flush_job *flush = (struct flush_job *)job;
	struct launch *launch = flush->launch;

	loop.jobs--;
	launch->flushing = false;
	launch->base = flush->base;
	tpck_manifest_free(flush->published);
	flush->through(agent, launch, flush->point.step, flush->rc == -EEXIST ? 0 : flush->rc, flush->error.text);
	flush_end(flush);
}

void flush_part(struct agent *agent, struct launch *launch, uint64_t step, flush_through *through)
{
	struct flush_job *flush = launch->flushing || !launch_first(launch) ? NULL : flush_new(agent, launch, home_shared_tier(), step);

	if (!flush || flush->publication.share_count == 0) {
		if (flush)
			flush_end(flush);
		through(agent, launch, step, -EAGAIN, "a node has no image of it any more, or no memory");
		return;
	}
	if (launch->durable_any)
		flush->last = (struct tpck_point){launch->generation, launch->durable_step};
	flush->job.run = part_run;
	flush->job.done = part_done;
	flush->through = through;
	flush->base = launch->base;
	launch->base = NULL;
	launch->flushing = true;
	launch->flush_begun_ns = tpck_clock_monotonic_ns();
	loop.jobs++;
	flush_give(&flush->job);
}

/* ---- the leader's ------------------------------------------------------------------------- */

static void join_run(struct job *job)
{
	flush_while_held((struct flush_job *)job, TPCK_HOLD_CHANGES, flush_publish_joined);
}

static void join_done(struct agent *agent, struct job *job)
{
	struct flush_job *flush = (struct flush_job *)job;
	struct launch *launch = flush->launch;
	char why[400] = "", of[40];

	loop.jobs--;
	if (flush->rc == 0) {
		snprintf(of, sizeof of, " of %u ranks", launch->world);
		flush_say(flush, of, "");
		flush_count(flush, flush->took_ns);
		drain_joined();
	} else if (flush->rc == -EAGAIN) {
		snprintf(why, sizeof why, "%.300s: is TRANSPCKPT_DIR one folder that all nodes see?", flush->error.text);
	} else if (flush->rc == -ECANCELED) {
		tpck_log_info("%s", flush->error.text);
	} else if (flush->rc != -EEXIST) {
		snprintf(why, sizeof why, "%.300s", flush->error.text);
	}
	tpck_manifest_free(flush->published);
	launch_apart->joined(agent, launch, flush->point.step, flush->rc == 0 || flush->rc == -EEXIST ? NULL : why);
	flush_end(flush);
}

void flush_join(struct agent *agent, struct launch *launch, uint64_t step, uint64_t began_ns)
{
	struct flush_job *flush = launch_first(launch) ? flush_new(agent, launch, home_shared_tier(), step) : NULL;

	if (!flush) {
		launch_apart->joined(agent, launch, step, "out of memory");
		return;
	}
	flush->job.run = join_run;
	flush->job.done = join_done;
	flush->began_ns = began_ns;
	loop.jobs++;
	flush_give(&flush->job);
}
