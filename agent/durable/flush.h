/* SPDX-License-Identifier: Apache-2.0 */
/* Making snapshots durable in the first tier, and, of launches on several nodes, in the one that all see (flush_parts.c). Event loop. */
#ifndef TPCK_AGENT_DURABLE_FLUSH_H
#define TPCK_AGENT_DURABLE_FLUSH_H

#include <stdint.h>

#include "agent/loop/loop.h"
#include "agent/loop/worker.h"
#include "runtime/base/error.h"
#include "runtime/store/tiers.h"

struct launch;

extern const struct loop_part flush_loop;

/* The last complaint of a store that does not work; "": it does. */
const char *flush_complaint(void);
/* Nothing is flushed before. */
uint64_t flush_retry_ns(void);
/* Of a launch on several nodes: writes the part of the ranks here, then tells who asked for it, rc: 0 or -errno; joins all parts,
 * then struct launch_apart is told. (flush_parts.c) */
typedef void flush_through(struct agent *agent, struct launch *launch, uint64_t step, int rc, const char *why);
void flush_part(struct agent *agent, struct launch *launch, uint64_t step, flush_through *through);
void flush_join(struct agent *agent, struct launch *launch, uint64_t step, uint64_t began_ns);
/* A step is not durable yet: says why, once, and waits longer from time to time. */
void flush_failed(uint64_t step, const char *why);
/* The step is durable. */
void flush_stored(struct agent *agent, struct launch *launch, uint64_t step);
/* A step is, so the store works. */
void flush_works(uint64_t step);
/* Gives the flusher's thread a job. */
void flush_give(struct job *job);
/* Retention for every tier: a rule of this agent's settings; `generations` (0 at the end) may have work in progress in
 * the tier, which is entered. */
int flush_retain(struct tpck_tier *tier, const uint64_t *generations, struct tpck_error *err);

#endif
