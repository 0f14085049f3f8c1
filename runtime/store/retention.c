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
#include "runtime/store/manifest_text.h"
#include "runtime/store/parts.h"
#include "runtime/store/quarantine.h"

/* Which quarantined checkpoints are of use to somebody who looks into a fault. */
enum { QUARANTINE_KEEP = 3 };

static bool same_program(const struct tpck_manifest *a, const struct tpck_manifest *b)
{
	return strcmp(tpck_manifest_identity(a), tpck_manifest_identity(b)) == 0;
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

/* What may refer to a container: what is published and stays, and the parts of what may still be joined. */
struct closure {
	struct tpck_tier *tier;
	struct tpck_catalog catalog;
	bool *kept; /* of the catalog's */
	struct tpck_point *pending; /* steps that may still be joined */
	size_t pending_count;
	struct tpck_catalog parts; /* theirs, as far as they are marked: the heads of their marks */
	const char **paths; /* of containers that somebody who stays refers to, sorted */
	size_t path_count;
};

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void add_paths(struct closure *closure, const struct tpck_manifest *manifest)
{
	for (size_t c = 0; c < manifest->container_count; c++)
		closure->paths[closure->path_count++] = manifest->containers[c].path;
}

/* Once it is known what is kept. Many nodes' containers are looked up by as many files. */
static int sort_paths(struct closure *closure, struct tpck_error *err)
{
	size_t room = 1;

	for (size_t i = 0; i < closure->catalog.count; i++)
		room += closure->kept[i] ? closure->catalog.manifests[i]->container_count : 0;
	for (size_t i = 0; i < closure->parts.count; i++)
		room += closure->parts.manifests[i]->container_count;
	closure->paths = calloc(room, sizeof(char *));
	if (!closure->paths)
		return tpck_error_set(err, ENOMEM, "looking for old checkpoints");
	for (size_t i = 0; i < closure->catalog.count; i++)
		if (closure->kept[i])
			add_paths(closure, closure->catalog.manifests[i]);
	for (size_t i = 0; i < closure->parts.count; i++)
		add_paths(closure, closure->parts.manifests[i]);
	qsort(closure->paths, closure->path_count, sizeof(char *), by_text);
	return 0;
}

static bool referenced(const struct closure *closure, const char *path)
{
	return bsearch(&path, closure->paths, closure->path_count, sizeof(char *), by_text) != NULL;
}

struct sweep {
	const struct closure *closure;
	char folder[64];
	bool left; /* something stays in the folder */
	char (*names)[128];
	size_t count;
};

static int sweep_add(struct sweep *sweep, const char *name)
{
	char (*grown)[128] = reallocarray(sweep->names, sweep->count + 1, sizeof *grown);

	if (!grown)
		return -ENOMEM;
	sweep->names = grown;
	snprintf(sweep->names[sweep->count++], sizeof *sweep->names, "%.127s", name);
	return 0;
}

static int gather_files(void *context, const char *name)
{
	struct sweep *sweep = context;
	char path[256];

	snprintf(path, sizeof path, "%s/%.127s", sweep->folder, name);
	if (strcmp(name, TPCK_MANIFEST) != 0 && referenced(sweep->closure, path)) {
		sweep->left = true;
		return 0;
	}
	return sweep_add(sweep, name);
}

/* The manifest goes first: from then on the folder is remains, whatever happens. */
static int remove_checkpoint(const struct closure *closure, const struct tpck_point *point, struct tpck_error *err)
{
	struct sweep sweep = {.closure = closure};
	struct tpck_tier *tier = closure->tier;
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
	free(sweep.names);
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

static int remains_add(struct remains *remains, const struct tpck_point *point)
{
	struct tpck_point *grown = reallocarray(remains->points, remains->count + 1, sizeof *grown);

	if (!grown)
		return -ENOMEM;
	remains->points = grown;
	remains->points[remains->count++] = *point;
	return 0;
}

static int gather_remains(void *context, const char *name)
{
	struct remains *remains = context;
	struct tpck_point point;

	if (tpck_checkpoint_name_parse(name, &point))
		return 0;
	for (size_t i = 0; i < remains->catalog->count; i++)
		if (tpck_point_compare(&remains->catalog->manifests[i]->point, &point) == 0)
			return 0;
	return remains_add(remains, &point);
}

static int gather_quarantined(void *context, const char *name)
{
	struct remains *remains = context;
	char plain[64];
	struct tpck_point point;

	/* A second one of the same name has ".1" behind it and is taken with the first. */
	snprintf(plain, sizeof plain, "%.63s", name);
	return tpck_checkpoint_name_parse(plain, &point) ? 0 : remains_add(remains, &point);
}

static int by_age(const void *a, const void *b)
{
	return tpck_point_compare(a, b);
}

static bool uses_folder(const struct tpck_manifest *manifest, const char *folder)
{
	for (size_t c = 0; c < manifest->container_count; c++)
		if (strncmp(manifest->containers[c].path, folder, strlen(folder)) == 0)
			return true;
	return false;
}

static void trim_quarantine(const struct closure *closure)
{
	struct remains found = {.catalog = &closure->catalog};
	struct tpck_tier *tier = closure->tier;

	if (tier->operations->list(tier, TPCK_QUARANTINE, gather_quarantined, &found, NULL) == 0 && found.count) {
		qsort(found.points, found.count, sizeof *found.points, by_age);
		for (size_t i = 0; i + QUARANTINE_KEEP < found.count; i++) {
			char folder[64], path[128];
			bool used = false;

			tpck_checkpoint_name_format(&found.points[i], folder, sizeof folder);
			snprintf(path, sizeof path, TPCK_QUARANTINE "/%s", folder);
			strcat(folder, "/");
			for (size_t m = 0; m < closure->catalog.count; m++)
				used = used || (closure->kept[m] && uses_folder(closure->catalog.manifests[m], folder));
			for (size_t m = 0; m < closure->parts.count; m++)
				used = used || uses_folder(closure->parts.manifests[m], folder);
			if (!used)
				(void)tier->operations->remove(tier, path, NULL);
		}
	}
	free(found.points);
}

/* The greatest generation that was given out. Where the file is not there, what lies here tells. */
static uint64_t greatest_generation(struct tpck_tier *tier, const struct tpck_catalog *catalog, const struct remains *remains)
{
	uint64_t greatest = 0;
	char *text;

	if (tier->operations->get_text(tier, "generation", 64, &text, NULL, NULL) == 0) {
		greatest = strtoull(text, NULL, 10);
		free(text);
	}
	for (size_t i = 0; i < catalog->count; i++)
		if (catalog->manifests[i]->point.generation > greatest)
			greatest = catalog->manifests[i]->point.generation;
	for (size_t i = 0; i < remains->count; i++)
		if (remains->points[i].generation > greatest)
			greatest = remains->points[i].generation;
	return greatest;
}

/* A step of the same generation that is published is later: its ranks were done with this one before, on every node. */
static bool gone_beyond(const struct tpck_catalog *catalog, const struct tpck_point *point)
{
	for (size_t i = 0; i < catalog->count; i++)
		if (catalog->manifests[i]->point.generation == point->generation && catalog->manifests[i]->point.step > point->step)
			return true;
	return false;
}

/* Whether a folder without a manifest may get one. What lies in one that holds parts is not known to one node. */
static bool may_be_joined(const struct closure *closure, const struct tpck_retention *retention, const struct tpck_point *point,
			  uint64_t greatest)
{
	if (gone_beyond(&closure->catalog, point))
		return false;
	if (retention->in_progress && retention->in_progress(retention->context, point))
		return true;
	return point->generation == greatest && tpck_parts_begun(closure->tier, point);
}

static int add_pending(struct closure *closure, const struct tpck_point *point, struct tpck_error *err)
{
	struct remains pending = {.points = closure->pending, .count = closure->pending_count};
	struct tpck_manifest **grown;
	struct tpck_catalog parts;
	int rc = remains_add(&pending, point);

	if (rc)
		return tpck_error_set(err, ENOMEM, "looking for remains");
	closure->pending = pending.points;
	closure->pending_count = pending.count;
	/* One that cannot be read is not joined either. */
	rc = tpck_heads_load(&parts, closure->tier, point, true, err);
	for (size_t i = 0; !rc && i < parts.count; i++)
		rc = tpck_parts_settle(parts.manifests[i], err);
	if (rc || !parts.count) {
		tpck_catalog_free(&parts);
		return rc;
	}
	grown = reallocarray(closure->parts.manifests, closure->parts.count + parts.count, sizeof(struct tpck_manifest *));
	if (!grown) {
		tpck_catalog_free(&parts);
		return tpck_error_set(err, ENOMEM, "looking for remains");
	}
	closure->parts.manifests = grown;
	memcpy(&grown[closure->parts.count], parts.manifests, parts.count * sizeof(struct tpck_manifest *));
	closure->parts.count += parts.count;
	free(parts.manifests);
	return 0;
}

static void closure_free(struct closure *closure)
{
	free(closure->paths);
	free(closure->kept);
	free(closure->pending);
	tpck_catalog_free(&closure->parts);
	tpck_catalog_free(&closure->catalog);
}

/* Everything there is; nothing of it is kept yet but what may still be joined. */
static int closure_load(struct closure *closure, struct tpck_tier *tier, const struct tpck_retention *retention, struct tpck_error *err)
{
	struct remains remains;
	uint64_t greatest;
	int rc;

	memset(closure, 0, sizeof *closure);
	closure->tier = tier;
	rc = load_whole(&closure->catalog, tier, err);
	if (rc)
		return rc;
	closure->kept = calloc(closure->catalog.count + 1, sizeof *closure->kept);
	if (!closure->kept)
		rc = tpck_error_set(err, ENOMEM, "looking for old checkpoints");
	remains = (struct remains){.catalog = &closure->catalog};
	if (!rc)
		rc = tier->operations->list(tier, "", gather_remains, &remains, err);
	greatest = greatest_generation(tier, &closure->catalog, &remains);
	for (size_t i = 0; !rc && i < remains.count; i++)
		if (may_be_joined(closure, retention, &remains.points[i], greatest))
			rc = add_pending(closure, &remains.points[i], err);
	free(remains.points);
	if (rc)
		closure_free(closure);
	return rc;
}

static bool is_pending(const struct closure *closure, const struct tpck_point *point)
{
	for (size_t i = 0; i < closure->pending_count; i++)
		if (tpck_point_compare(&closure->pending[i], point) == 0)
			return true;
	return false;
}

static int remove_remains(const struct closure *closure, struct tpck_error *err)
{
	struct remains remains = {.catalog = &closure->catalog};
	int rc = closure->tier->operations->list(closure->tier, "", gather_remains, &remains, err);

	for (size_t i = 0; !rc && i < remains.count; i++)
		if (!is_pending(closure, &remains.points[i]))
			rc = remove_checkpoint(closure, &remains.points[i], err);
	free(remains.points);
	return rc;
}

/* "NAME.tmp.PID.N", as tpck_file_write() makes them. */
static int clear_temporary(void *context, const char *name)
{
	char mine[32];

	/* This process's own may be in use by another thread right now. */
	snprintf(mine, sizeof mine, ".tmp.%d.", (int)getpid());
	return strstr(name, ".tmp.") && !strstr(name, mine) ? sweep_add(context, name) : 0;
}

static int clear_temporaries(struct tpck_tier *tier, const char *folder, struct tpck_error *err)
{
	struct sweep sweep = {0};
	int rc = tier->operations->list(tier, folder, clear_temporary, &sweep, err);

	for (size_t i = 0; !rc && i < sweep.count; i++) {
		char path[256];

		snprintf(path, sizeof path, "%.100s%s%s", folder, folder[0] ? "/" : "", sweep.names[i]);
		rc = tier->operations->remove(tier, path, err);
	}
	free(sweep.names);
	return rc;
}

int tpck_retention_clear(struct tpck_tier *tier, struct tpck_error *err)
{
	struct tpck_retention nothing = {0};
	struct closure closure;
	int rc = closure_load(&closure, tier, &nothing, err);

	if (rc)
		return rc;
	for (size_t i = 0; !rc && i < closure.catalog.count; i++) {
		char folder[64];

		closure.kept[i] = true;
		tpck_checkpoint_name_format(&closure.catalog.manifests[i]->point, folder, sizeof folder);
		rc = clear_temporaries(tier, folder, err);
	}
	if (!rc)
		rc = clear_temporaries(tier, "", err);
	if (!rc)
		rc = clear_temporaries(tier, "programs", err);
	if (!rc)
		rc = sort_paths(&closure, err);
	if (!rc)
		rc = remove_remains(&closure, err);
	closure_free(&closure);
	return rc;
}

int tpck_retention_apply(struct tpck_tier *tier, const struct tpck_retention *retention, struct tpck_error *err)
{
	struct closure closure;
	int rc = closure_load(&closure, tier, retention, err);

	if (rc)
		return rc;
	choose(tier, &closure.catalog, retention, closure.kept);
	rc = sort_paths(&closure, err);
	for (size_t i = 0; !rc && i < closure.catalog.count; i++) {
		const struct tpck_point *point = &closure.catalog.manifests[i]->point;

		if (closure.kept[i])
			continue;
		tpck_log_info("removing the checkpoint of step %" PRIu64 " (generation %" PRIu64 ")", point->step, point->generation);
		rc = remove_checkpoint(&closure, point, err);
	}
	if (!rc)
		rc = remove_remains(&closure, err);
	if (!rc)
		trim_quarantine(&closure);
	closure_free(&closure);
	return rc;
}

int tpck_retention_remove(struct tpck_tier *tier, const struct tpck_point *point, bool force,
			  struct tpck_error *err)
{
	struct tpck_retention nothing = {0};
	struct closure closure;
	const struct tpck_catalog *catalog = &closure.catalog;
	size_t found = SIZE_MAX;
	bool newest = true;
	int rc = closure_load(&closure, tier, &nothing, err);

	if (rc)
		return rc;
	for (size_t i = 0; i < catalog->count; i++)
		if (tpck_point_compare(&catalog->manifests[i]->point, point) == 0)
			found = i;
	for (size_t i = found + 1; found != SIZE_MAX && i < catalog->count; i++)
		newest = newest && !same_program(catalog->manifests[found], catalog->manifests[i]);
	if (found == SIZE_MAX) {
		rc = tpck_error_set(err, ENOENT, "removing step %" PRIu64 " of generation %" PRIu64, point->step,
				    point->generation);
	} else if (newest && !force) {
		rc = tpck_error_set(err, EPERM, "removing step %" PRIu64 ", the newest checkpoint of its program",
				    point->step);
	} else {
		for (size_t i = 0; i < catalog->count; i++)
			closure.kept[i] = i != found;
		rc = sort_paths(&closure, err);
		if (!rc)
			rc = remove_checkpoint(&closure, point, err);
	}
	closure_free(&closure);
	return rc;
}
