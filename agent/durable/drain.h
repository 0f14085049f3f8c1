/* SPDX-License-Identifier: Apache-2.0 */
/* Copies in slower tiers: each has a thread and a cadence of its own. Event loop, unless a line says else. */
#ifndef TPCK_AGENT_DURABLE_DRAIN_H
#define TPCK_AGENT_DURABLE_DRAIN_H

#include <stdbool.h>

#include "agent/loop/loop.h"
#include "runtime/store/manifest.h"

extern const struct loop_part drain_loop;

/* The first tier has something new. */
void drain_wanted(void);
/* The tier that all nodes see has something newer, from several of them: tiers behind it get it from there. */
void drain_joined(void);
/* Whether a checkpoint of the first tier is being copied. Any thread. */
bool drain_needs(const struct tpck_point *point);

#endif
