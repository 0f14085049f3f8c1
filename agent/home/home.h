/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the agent is at home: the job's folder in memory, the tiers that it stores into, and the settings that it goes by. main() fills it in before all
 * else; from then on nothing of it changes, and any thread may read it.
 */
#ifndef TPCK_AGENT_HOME_HOME_H
#define TPCK_AGENT_HOME_HOME_H

#include <stddef.h>

#include "runtime/base/settings.h"
#include "runtime/base/tier_settings.h"
#include "runtime/store/tiers.h"

extern struct home {
	struct tpck_settings settings;
	char job[TPCK_NAME_MAX];
	char folder[TPCK_PATH_MAX];      /* SHM/JOB */
	char socket_path[TPCK_PATH_MAX]; /* in it */
	struct tpck_tiers tiers;
	struct tpck_tier *tier;          /* the first one, that snapshots are published into */
} home;

/* Any thread but the event loop's: a checkpoint of this tier that is being read is not removed. One lock a tier, so that one that hangs holds
 * up nobody who needs another; who takes several takes those of slower tiers first. */
void home_enter(size_t tier);
void home_leave(size_t tier);
/* The tier that all nodes see, or, where there is none, the first. */
struct tpck_tier *home_shared_tier(void);
/* Which of the tiers it is. */
size_t home_number(const struct tpck_tier *tier);

#endif
