/* SPDX-License-Identifier: Apache-2.0 */
/* Retention along the closure of references. */
#include "config.h"

#include "runtime/store/retention.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/store/quarantine.h"

/* Which quarantined checkpoints are of use to somebody who looks into a fault. */
enum { QUARANTINE_KEEP = 3 };

static bool same_program(const struct tpck_manifest *a, const struct tpck_manifest *b)
{
	return strcmp(a->members[0].identity, b->members[0].identity) == 0;
}

static void first_bad(void *context, const struct tpck_point *point, const struct tpck_error *err)
{
	struct tpck_error *kept = context;

	(void)point;
	if (!kept->code)
		*kept = *err;
}

/* What LAST_GOOD names stays whatever the rules say. */
static bool last_good(struct tpck_tier *tier, struct tpck_point *point)
{
	char *text;
	bool known;

	if (tier->operations->get_text(tier, TPCK_LAST_GOOD, 256, &text, NULL, NULL))
		return false;
	text[strcspn(text, "\n")] = '\0';
	known = tpck_checkpoint_name_parse(text, point) == 0;
	free(text);
	return known;
}

static bool referenced(const struct tpck_catalog *catalog, const bool *kept, const char *path)
{
	for (size_t i = 0; i < catalog->count; i++) {
		const struct tpck_manifest *manifest = catalog->manifests[i];

		if (!kept[i])
			continue;
		for (size_t c = 0; c < manifest->container_count; c++)
			if (strcmp(manifest->containers[c].path, path) == 0)
				return true;
	}
	return false;
}

struct sweep {
	struct tpck_tier *tier;
	const struct tpck_catalog *catalog;
	const bool *kept;
	char folder[64];
	bool left; /* something stays in the folder */
	char names[16][128];
	size_t count;
};

static int gather_files(void *context, const char *name)
{
	struct sweep *sweep = context;
	char path[256];

	snprintf(path, sizeof path, "%s/%.127s", sweep->folder, name);
	if (strcmp(name, TPCK_MANIFEST) != 0 && referenced(sweep->catalog, sweep->kept, path)) {
		sweep->left = true;
		return 0;
	}
	if (sweep->count == sizeof sweep->names / sizeof *sweep->names) {
		sweep->left = true;
		return 0;
	}
	snprintf(sweep->names[sweep->count++], sizeof *sweep->names, "%.127s", name);
	return 0;
}

/* The manifest goes first: from then on the folder is remains, whatever happens. */
static int remove_checkpoint(struct tpck_tier *tier, const struct tpck_catalog *catalog, const bool *kept,
			     const struct tpck_point *point, struct tpck_error *err)
{
	struct sweep sweep = {.tier = tier, .catalog = catalog, .kept = kept};
	char path[256];
	int rc;

	tpck_checkpoint_name_format(point, sweep.folder, sizeof sweep.folder);
	snprintf(path, sizeof path, "%s/" TPCK_MANIFEST, sweep.folder);
	rc = tier->operations->remove(tier, path, err);
	if (!rc)
		rc = tier->operations->list(tier, sweep.folder, gather_files, &sweep, err);
	for (size_t i = 0; !rc && i < sweep.count; i++) {
		snprintf(path, sizeof path, "%s/%s", sweep.folder, sweep.names[i]);
		rc = tier->operations->remove(tier, path, err);
	}
	if (!rc && !sweep.left)
		rc = tier->operations->remove(tier, sweep.folder, err);
	return rc;
}

/* -EPROTO or -EBADMSG where one manifest cannot be read. */
static int load_whole(struct tpck_catalog *catalog, struct tpck_tier *tier, struct tpck_error *err)
{
	struct tpck_error bad = {0};
	size_t unreadable;
	int rc = tpck_catalog_load(catalog, tier, &unreadable, first_bad, &bad, err);

	if (!rc && unreadable) {
		tpck_catalog_free(catalog);
		if (err)
			*err = bad;
		rc = -bad.code;
	}
	return rc;
}

static void choose(struct tpck_tier *tier, const struct tpck_catalog *catalog,
		   const struct tpck_retention *retention, bool *kept)
{
	uint64_t keep = retention->keep ? retention->keep : 1;
	struct tpck_point good;
	bool have_good = last_good(tier, &good);

	for (size_t i = catalog->count; i-- > 0;) {
		const struct tpck_manifest *manifest = catalog->manifests[i];
		bool mine = !retention->offerable || retention->offerable(retention->context, manifest);
		uint64_t newer = 0;

		for (size_t j = i + 1; j < catalog->count; j++)
			if (same_program(manifest, catalog->manifests[j]) &&
			    (!mine || !retention->offerable ||
			     retention->offerable(retention->context, catalog->manifests[j])))
				newer++;
		/* One that cannot be offered any more stays only while nothing newer is there. */
		kept[i] = mine ? newer < keep : newer == 0;
		if (retention->milestone && manifest->point.step % retention->milestone == 0)
			kept[i] = true;
		if (retention->spared && retention->spared(retention->context, manifest))
			kept[i] = true;
		if (have_good && tpck_point_compare(&manifest->point, &good) == 0)
			kept[i] = true;
	}
}

struct remains {
	const struct tpck_catalog *catalog;
	struct tpck_point *points;
	size_t count;
};

static int gather_remains(void *context, const char *name)
{
	struct remains *remains = context;
	struct tpck_point point, *grown;

	if (tpck_checkpoint_name_parse(name, &point))
		return 0;
	for (size_t i = 0; i < remains->catalog->count; i++)
		if (tpck_point_compare(&remains->catalog->manifests[i]->point, &point) == 0)
			return 0;
	grown = reallocarray(remains->points, remains->count + 1, sizeof *grown);
	if (!grown)
		return -ENOMEM;
	remains->points = grown;
	remains->points[remains->count++] = point;
	return 0;
}

static int gather_quarantined(void *context, const char *name)
{
	struct remains *remains = context;
	char plain[64];
	struct tpck_point point, *grown;

	/* A second one of the same name has ".1" behind it and is taken with the first. */
	snprintf(plain, sizeof plain, "%.63s", name);
	if (tpck_checkpoint_name_parse(plain, &point))
		return 0;
	grown = reallocarray(remains->points, remains->count + 1, sizeof *grown);
	if (!grown)
		return -ENOMEM;
	remains->points = grown;
	remains->points[remains->count++] = point;
	return 0;
}

static int by_age(const void *a, const void *b)
{
	return tpck_point_compare(a, b);
}

static void trim_quarantine(struct tpck_tier *tier, const struct tpck_catalog *catalog, const bool *kept)
{
	struct remains found = {.catalog = catalog};

	if (tier->operations->list(tier, TPCK_QUARANTINE, gather_quarantined, &found, NULL) == 0 && found.count) {
		qsort(found.points, found.count, sizeof *found.points, by_age);
		for (size_t i = 0; i + QUARANTINE_KEEP < found.count; i++) {
			char folder[64], path[128];
			bool used = false;

			tpck_checkpoint_name_format(&found.points[i], folder, sizeof folder);
			for (size_t m = 0; m < catalog->count && !used; m++)
				for (size_t c = 0; kept[m] && c < catalog->manifests[m]->container_count; c++)
					used = used || strncmp(catalog->manifests[m]->containers[c].path, folder,
							       strlen(folder)) == 0;
			snprintf(path, sizeof path, TPCK_QUARANTINE "/%s", folder);
			if (!used)
				(void)tier->operations->remove(tier, path, NULL);
		}
	}
	free(found.points);
}

static int remove_remains(struct tpck_tier *tier, const struct tpck_retention *retention,
			  const struct tpck_catalog *catalog, const bool *kept, struct tpck_error *err)
{
	struct remains remains = {.catalog = catalog};
	int rc = tier->operations->list(tier, "", gather_remains, &remains, err);

	for (size_t i = 0; !rc && i < remains.count; i++)
		if (!retention->in_progress || !retention->in_progress(retention->context, &remains.points[i]))
			rc = remove_checkpoint(tier, catalog, kept, &remains.points[i], err);
	free(remains.points);
	return rc;
}

/* "NAME.tmp.PID.N", as tpck_file_write() makes them. */
static int clear_temporary(void *context, const char *name)
{
	struct sweep *sweep = context;
	char mine[32];

	/* This process's own may be in use by another thread right now. */
	snprintf(mine, sizeof mine, ".tmp.%d.", (int)getpid());
	if (strstr(name, ".tmp.") && !strstr(name, mine) && sweep->count < sizeof sweep->names / sizeof *sweep->names)
		snprintf(sweep->names[sweep->count++], sizeof *sweep->names, "%.127s", name);
	return 0;
}

static int clear_temporaries(struct tpck_tier *tier, const char *folder, struct tpck_error *err)
{
	struct sweep sweep = {.tier = tier};
	int rc = tier->operations->list(tier, folder, clear_temporary, &sweep, err);

	for (size_t i = 0; !rc && i < sweep.count; i++) {
		char path[256];

		snprintf(path, sizeof path, "%.100s%s%s", folder, folder[0] ? "/" : "", sweep.names[i]);
		rc = tier->operations->remove(tier, path, err);
	}
	return rc;
}

int tpck_retention_clear(struct tpck_tier *tier, struct tpck_error *err)
{
	struct tpck_retention nothing = {0};
	struct tpck_catalog catalog;
	bool *kept;
	int rc = load_whole(&catalog, tier, err);

	if (rc)
		return rc;
	kept = calloc(catalog.count + 1, sizeof *kept);
	if (!kept)
		rc = tpck_error_set(err, ENOMEM, "clearing remains");
	for (size_t i = 0; !rc && i < catalog.count; i++) {
		char folder[64];

		kept[i] = true;
		tpck_checkpoint_name_format(&catalog.manifests[i]->point, folder, sizeof folder);
		rc = clear_temporaries(tier, folder, err);
	}
	if (!rc)
		rc = clear_temporaries(tier, "", err);
	if (!rc)
		rc = clear_temporaries(tier, "programs", err);
	if (!rc)
		rc = remove_remains(tier, &nothing, &catalog, kept, err);
	free(kept);
	tpck_catalog_free(&catalog);
	return rc;
}

int tpck_retention_apply(struct tpck_tier *tier, const struct tpck_retention *retention, struct tpck_error *err)
{
	struct tpck_catalog catalog;
	bool *kept;
	int rc = load_whole(&catalog, tier, err);

	if (rc)
		return rc;
	kept = calloc(catalog.count + 1, sizeof *kept);
	if (!kept) {
		tpck_catalog_free(&catalog);
		return tpck_error_set(err, ENOMEM, "looking for old checkpoints");
	}
	choose(tier, &catalog, retention, kept);
	for (size_t i = 0; !rc && i < catalog.count; i++) {
		if (kept[i])
			continue;
		tpck_log_info("removing the checkpoint of step %" PRIu64 " (generation %" PRIu64 ")",
			      catalog.manifests[i]->point.step, catalog.manifests[i]->point.generation);
		rc = remove_checkpoint(tier, &catalog, kept, &catalog.manifests[i]->point, err);
	}
	if (!rc)
		rc = remove_remains(tier, retention, &catalog, kept, err);
	if (!rc)
		trim_quarantine(tier, &catalog, kept);
	free(kept);
	tpck_catalog_free(&catalog);
	return rc;
}

int tpck_retention_remove(struct tpck_tier *tier, const struct tpck_point *point, bool force,
			  struct tpck_error *err)
{
	struct tpck_catalog catalog;
	size_t found = SIZE_MAX;
	bool *kept, newest = true;
	int rc = load_whole(&catalog, tier, err);

	if (rc)
		return rc;
	for (size_t i = 0; i < catalog.count; i++)
		if (tpck_point_compare(&catalog.manifests[i]->point, point) == 0)
			found = i;
	for (size_t i = found + 1; found != SIZE_MAX && i < catalog.count; i++)
		newest = newest && !same_program(catalog.manifests[found], catalog.manifests[i]);
	kept = calloc(catalog.count + 1, sizeof *kept);
	if (found == SIZE_MAX) {
		rc = tpck_error_set(err, ENOENT, "removing step %" PRIu64 " of generation %" PRIu64, point->step,
				    point->generation);
	} else if (newest && !force) {
		rc = tpck_error_set(err, EPERM, "removing step %" PRIu64 ", the newest checkpoint of its program",
				    point->step);
	} else if (!kept) {
		rc = tpck_error_set(err, ENOMEM, "removing a checkpoint");
	} else {
		for (size_t i = 0; i < catalog.count; i++)
			kept[i] = i != found;
		rc = remove_checkpoint(tier, &catalog, kept, point, err);
	}
	free(kept);
	tpck_catalog_free(&catalog);
	return rc;
}
