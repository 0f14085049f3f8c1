/* SPDX-License-Identifier: Apache-2.0 */
/* All checkpoints of a job, wherever they are, and its sessions; read without asking the agent. */
#ifndef TPCK_TOOLS_CLI_INVENTORY_H
#define TPCK_TOOLS_CLI_INVENTORY_H

#include "runtime/base/tier_settings.h"
#include "runtime/store/manifest.h"
#include "runtime/store/memory_tier.h"
#include "runtime/store/tiers.h"
#include "tools/cli/cli.h"

struct checkpoint {
	struct tpck_point point;
	uint32_t rank, ordinal;
	bool held, committed, durable; /* the furthest is its state */
	bool in_memory;
	bool in_tier[TPCK_TIERS_MAX];
	bool resumable, offerable;
	uint64_t bytes;                /* of data and index, log included where durable */
	uint64_t stored_bytes;         /* written for it on disk */
	double age_sec;
	double iteration_sec;          /* 0 unknown */
	char program[TPCK_PROGRAM_ID];
};

struct inventory {
	struct tpck_tiers tiers;
	struct tpck_catalog catalog[TPCK_TIERS_MAX]; /* by tier */
	size_t unreadable;
	struct tpck_session **sessions;
	size_t session_count;
	struct checkpoint *checkpoints; /* oldest first */
	size_t count;
};

/* Complaints about single files go to standard error. */
int inventory_load(struct inventory *inventory, struct cli *cli, const char *job, struct tpck_error *err);
void inventory_free(struct inventory *inventory);
/* Whether the session's process runs. */
bool inventory_alive(const struct tpck_session *session);

#endif
