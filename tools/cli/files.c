/* SPDX-License-Identifier: Apache-2.0 */
/* transpckpt ls --files: what a job's table has (runtime/view/view.h). */
#include "config.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/view/view.h"
#include "tools/cli/cli.h"

struct row {
	const char *state, *where;
	int error;
	uint64_t bytes, order;
	char path[TPCK_VIEW_PATH + TPCK_VIEW_NAME];
};

static int by_order(const void *a, const void *b)
{
	const struct row *left = a, *right = b;

	/* What is being written has no turn yet. */
	if (!left->order != !right->order)
		return left->order ? -1 : 1;
	return left->order < right->order ? -1 : left->order > right->order;
}

static void describe(const struct tpck_view *view, const struct tpck_view_entry *entry, const char *folder, struct row *row)
{
	const struct tpck_view_key *key = tpck_view_key_of(entry);
	char bytes[TPCK_VIEW_PATH + 80];
	struct stat found;

	row->where = entry->kind == TPCK_VIEW_MEMORY ? "memory" : entry->kind == TPCK_VIEW_REMOVED ? "-" : "disk";
	row->state = entry->kind == TPCK_VIEW_REMOVED ? "to be removed" : entry->state == TPCK_VIEW_OPEN ? "being written" : "owed";
	row->error = entry->error;
	row->order = entry->state == TPCK_VIEW_OPEN ? 0 : entry->order;
	snprintf(row->path, sizeof row->path, "%s/%s", view->folder[key->folder].path, tpck_view_name_of(entry));
	tpck_view_bytes(view, entry, folder, bytes, sizeof bytes);
	row->bytes = entry->kind != TPCK_VIEW_REMOVED && stat(bytes, &found) == 0 ? (uint64_t)found.st_size : 0;
}

static struct row *gather(struct tpck_view *view, const char *folder, size_t *count)
{
	struct row *rows = NULL;
	uint32_t left;

	*count = 0;
	if (!tpck_view_lock(view))
		return NULL;
	left = view->used;
	rows = calloc(left ? left : 1, sizeof *rows);
	for (uint32_t i = 0; rows && left && i < TPCK_VIEW_ENTRIES; i++) {
		if (view->entry[i].state == TPCK_VIEW_FREE)
			continue;
		left--;
		describe(view, &view->entry[i], folder, &rows[(*count)++]);
	}
	tpck_view_unlock(view);
	if (*count)
		qsort(rows, *count, sizeof *rows, by_order);
	return rows;
}

static json_object *as_json(const char *job, const struct row *row)
{
	json_object *object = json_object_new_object();

	json_object_object_add(object, "job", json_object_new_string(job));
	json_object_object_add(object, "state", json_object_new_string(row->state));
	json_object_object_add(object, "where", json_object_new_string(row->where));
	json_object_object_add(object, "bytes", json_object_new_uint64(row->bytes));
	json_object_object_add(object, "path", json_object_new_string(row->path));
	if (row->error)
		json_object_object_add(object, "error", json_object_new_string(strerror(row->error)));
	return object;
}

/* What the job is through with. */
static json_object *sum_as_json(const char *job, uint64_t files, uint64_t bytes, uint64_t shared)
{
	json_object *object = json_object_new_object();

	json_object_object_add(object, "job", json_object_new_string(job));
	json_object_object_add(object, "state", json_object_new_string("published"));
	json_object_object_add(object, "files", json_object_new_uint64(files));
	json_object_object_add(object, "bytes", json_object_new_uint64(bytes));
	json_object_object_add(object, "shared", json_object_new_uint64(shared));
	return object;
}

int cli_list_files(struct cli *cli, const char *job, struct json_object *json, bool *headed)
{
	char folder[TPCK_PATH_MAX];
	struct tpck_view *view;
	struct row *rows;
	size_t count;
	int rc;

	if (tpck_path_join(folder, sizeof folder, cli->shm, job))
		return 0;
	rc = tpck_view_map(folder, false, &view);
	if (rc == -ENOENT)
		return 0;
	if (rc) {
		fprintf(stderr, "transpckpt: cannot read %s/" TPCK_VIEW_FOLDER "/" TPCK_VIEW_TABLE ": %s\n", folder, strerror(-rc));
		return CLI_BAD;
	}
	rows = gather(view, folder, &count);
	for (size_t i = 0; i < count; i++) {
		const struct row *row = &rows[i];

		if (json) {
			json_object_array_add(json, as_json(job, row));
			continue;
		}
		if (!*headed)
			printf("%-20s %-14s %-7s %10s  %s\n", "JOB", "STATE", "WHERE", "BYTES", "PATH");
		*headed = true;
		printf("%-20s %-14s %-7s %10s  %s%s%s\n", job, row->state, row->where, cli_bytes(row->bytes), row->path,
		       row->error ? ": " : "", row->error ? strerror(row->error) : "");
	}
	free(rows);
	if (json)
		json_object_array_add(json, sum_as_json(job, view->published, view->published_bytes, view->shared_bytes));
	else if (view->published)
		printf("%s has published %llu files, %s, of which %s are shared with the save before\n", job,
		       (unsigned long long)view->published, cli_bytes(view->published_bytes), cli_bytes(view->shared_bytes));
	tpck_view_unmap(view);
	return 0;
}
