/* SPDX-License-Identifier: Apache-2.0 */
/* A job of the flusher: what it writes, of sessions here or of copies. */
#ifndef TPCK_AGENT_DURABLE_FLUSH_JOB_H
#define TPCK_AGENT_DURABLE_FLUSH_JOB_H

#include "agent/durable/flush.h"
#include "agent/session/sessions.h"
#include "runtime/store/publish.h"

/* How long a publication waits for another process that removes or publishes in the same job. */
#define FLUSH_WAIT_SEC 30.0

/* The ranks of a launch that are here, by rank; or of a copy, which has no sessions (salvage/write.c). */
struct flush_job {
	struct job job; /* first */
	struct launch *launch;
	struct tpck_point point;
	struct live **live;          /* NULL: it has none */
	unsigned *image;             /* of each session, pinned */
	struct tpck_program **program;
	struct tpck_publication publication;
	struct tpck_point last;      /* of a part: the newest checkpoint of this launch; generation 0: none */
	struct tpck_manifest *base;  /* taken from the launch, given back changed */
	uint64_t *running;           /* generations that may have work in progress, 0 at the end */
	uint64_t began_ns, took_ns, write_ns;
	flush_through *through;      /* of a part */
	int rc;
	struct tpck_manifest *published;
	struct tpck_error error;
};

/* Of a step that all ranks here have an image of; these are pinned. NULL: no memory. */
struct flush_job *flush_new(struct agent *agent, struct launch *launch, struct tpck_tier *tier, uint64_t step);
/* Gives the pins back, and frees it. */
void flush_end(struct flush_job *flush);
/* Generations that have sessions here, 0 at the end; malloc'd, or NULL. */
uint64_t *flush_running(const struct agent *agent);

/* The flusher's thread: flush->rc becomes what `write` gives of the job, while the tier is held so. */
void flush_while_held(struct flush_job *flush, enum tpck_hold how, int (*write)(void *with));
/* While it is held: publishes the job's shares, whose unchanged chunks may refer to the newest checkpoint of the program, proven good; or joins the parts of its
 * point, which are there. Then what is too old is removed. */
int flush_publish(struct flush_job *flush);
int flush_publish_joined(void *flush);

/* The event loop's: a line says that the point is durable, `of` what and `how`. What it took, of a job with sessions, goes into the history and counts for the interval. */
void flush_say(const struct flush_job *flush, const char *of, const char *how);
void flush_count(const struct flush_job *flush, uint64_t write_ns);

#endif
