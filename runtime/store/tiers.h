/* SPDX-License-Identifier: Apache-2.0 */
/* The durable tiers of a job, the fastest first: snapshots are published into the first, and what is there is copied
 * to the others. What holds for a program (its marker and its state) is written to all. */
#ifndef TPCK_RUNTIME_STORE_TIERS_H
#define TPCK_RUNTIME_STORE_TIERS_H

#include "runtime/base/settings.h"
#include "runtime/base/tier_settings.h"
#include "runtime/store/tier.h"

struct tpck_tiers {
	size_t count; /* at least 1 */
	struct tpck_tier *tier[TPCK_TIERS_MAX];
	/* What a user calls it: "disk" where there is but one; else its kind ("node", "site": what is lost with it and
	 * what it survives), numbered from the second of a kind on. */
	char name[TPCK_TIERS_MAX][TPCK_TIER_KIND + 4];
	/* Told what a slower tier did not do, where the call goes on without it. May be NULL. */
	void (*complain)(const struct tpck_error *err);
};

/* Nothing is made or touched. On failure *tiers is empty. */
int tpck_tiers_open(struct tpck_tiers *tiers, const struct tpck_settings *settings, const char *job,
		    enum tpck_writer_engine engine, struct tpck_error *err);
void tpck_tiers_close(struct tpck_tiers *tiers);
/* The kind that the setting names, else by the file system: "node" or "site". */
const char *tpck_tier_kind(const char *kind, const char *path);

#endif
