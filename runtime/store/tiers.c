/* SPDX-License-Identifier: Apache-2.0 */
/* The list of durable tiers. */
#include "config.h"

#include "runtime/base/tier_settings.h"
#include "runtime/store/tiers.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/file_system.h"

const char *tpck_tier_kind(const char *kind, const char *path)
{
	struct tpck_file_system file_system;

	if (kind[0])
		return kind;
	return tpck_file_system_of(path, &file_system) && file_system.site ? "site" : "node";
}

/* By what stands before the colon in TRANSPCKPT_DIR, or nothing: that is a folder, too. */
static const struct {
	const char *scheme;
	int (*open)(struct tpck_tier **tier, const char *store, const char *job, enum tpck_writer_engine engine, struct tpck_error *err);
} constructors[] = {
	{"", tpck_durable_tier_open}, {"node", tpck_durable_tier_open}, {"site", tpck_durable_tier_open},
};

static int construct(struct tpck_tier **tier, const char *scheme, const char *path, const char *job, enum tpck_writer_engine engine, struct tpck_error *err)
{
	for (size_t i = 0; i < sizeof constructors / sizeof constructors[0]; i++)
		if (strcmp(constructors[i].scheme, scheme) == 0)
			return constructors[i].open(tier, path, job, engine, err);
	return tpck_error_set(err, ENOTSUP, "opening store %s:%s", scheme, path);
}

int tpck_tiers_open(struct tpck_tiers *tiers, const struct tpck_settings *settings, const char *job,
		    enum tpck_writer_engine engine, struct tpck_error *err)
{
	char told[TPCK_TIER_KIND], path[TPCK_PATH_MAX], kinds[TPCK_TIERS_MAX][TPCK_TIER_KIND];

	memset(tiers, 0, sizeof *tiers);
	while (tiers->count < TPCK_TIERS_MAX &&
	       tpck_settings_tier(settings, (unsigned)tiers->count, told, path, sizeof path)) {
		size_t at = tiers->count;
		unsigned same = 1;
		int rc = construct(&tiers->tier[at], told, path, job, engine, err);

		if (rc) {
			tpck_tiers_close(tiers);
			return rc;
		}
		tiers->tier[at]->in_state = !settings->dir[0];
		snprintf(kinds[at], sizeof kinds[at], "%s", tpck_tier_kind(told, path));
		for (size_t i = 0; i < at; i++)
			same += strcmp(kinds[i], kinds[at]) == 0;
		snprintf(tiers->name[at], sizeof tiers->name[at], same > 1 ? "%s%u" : "%s", kinds[at], same);
		tiers->count++;
	}
	if (tiers->count == 1)
		strcpy(tiers->name[0], "disk");
	return 0;
}

void tpck_tiers_close(struct tpck_tiers *tiers)
{
	for (size_t i = 0; i < tiers->count; i++)
		tpck_tier_close(tiers->tier[i]);
	tiers->count = 0;
}
