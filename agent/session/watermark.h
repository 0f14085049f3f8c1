/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The global durable watermark of a launch: the newest of its steps that is in every tier that is to have it. A step may outlive its node only
 * above that by what other nodes hold, so whoever would let go of the last of such asks here. A tier that does not get on is not waited for in this node's
 * memory longer than TRANSPCKPT_LINGER_SEC; copies on other nodes stay until it has the step, or these make it durable. Event loop.
 */
#ifndef TPCK_AGENT_SESSION_WATERMARK_H
#define TPCK_AGENT_SESSION_WATERMARK_H

#include <json-c/json.h>

#include "agent/session/sessions.h"

/* A tier has this step of a generation, and what was put off for it may be due. */
void watermark_note(struct agent *agent, size_t tier, const struct tpck_point *point);
/* The tier that it is published into does. */
void watermark_durable(struct agent *agent, struct launch *launch, uint64_t step);
/* The newest step that each of its tiers has; false: one has none. behind (may be NULL): the number of the tier that has least. */
bool watermark_of(const struct launch *launch, uint64_t *step, size_t *behind);
/* Whether its newest step is there. */
bool watermark_passed(const struct launch *launch);
/* How long what is durable somewhere waits in memory for the others, ns. */
uint64_t watermark_patience_ns(const struct launch *launch);
/* A session of it goes from memory for good: copies on other nodes go too, now or once the watermark has passed. */
void watermark_let_go(const struct live *live);
/* Of a session, for show. */
void watermark_status(const struct launch *launch, json_object *row);
/* At the agent's end what is put off is left to the others. */
extern const struct loop_part watermark_loop;

#endif
