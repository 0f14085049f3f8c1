/* SPDX-License-Identifier: Apache-2.0 */
/* One look at jobs: control pages, the table of files, the agent's answer, the history. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/base/clock.h"
#include "runtime/store/runs.h"
#include "runtime/view/view.h"
#include "tools/cli/inventory.h"
#include "tools/cli/top.h"
#include "tools/cli/covered.h"

static const char *const states[] = {"off", "learning", "capturing", "forward", "ended"};

/* ---- processes ------------------------------------------------------------------------------ */

static const struct top_row *row_before(const struct top_job *before, const struct top_row *row)
{
	for (size_t i = 0; before && i < before->count; i++)
		if (before->rows[i].generation == row->generation && before->rows[i].rank == row->rank &&
		    before->rows[i].ordinal == row->ordinal)
			return &before->rows[i];
	return NULL;
}

static void fill_row(struct top_row *row, const struct tpck_session *session)
{
	const struct tpck_control *control = session->control;
	const struct tpck_status *status = &control->status;
	uint32_t state = atomic_load(&session->control->status.state);
	struct cli_twin twin;

	*row = (struct top_row){
		.generation = session->name.generation, .rank = session->name.rank, .ordinal = session->name.ordinal,
		.pid = control->pid, .alive = inventory_alive(session), .step = status->boundaries, .held_step = status->last_step,
		.durable_step = control->durable_step, .captured = status->captured, .image_bytes = control->image_bytes,
		.images = control->images, .iteration_sec = (double)status->iteration_ns / 1e9, .captures_per_sec = -1, .capture_rate = -1,
	};
	row->state = !row->alive ? "gone" : state < sizeof states / sizeof *states ? states[state] : "?";
	snprintf(row->reason, sizeof row->reason, "%.*s", (int)sizeof row->reason - 1, status->reason);
	if (row->alive && cli_twin_of(session, &twin)) {
		cli_twin_text(&twin, row->twin, sizeof row->twin);
		row->uncovered = !twin.covers;
	}
	/* What is constant is copied once. */
	for (int i = 0; i < TPCK_CLASSES; i++)
		if (i != TPCK_CLASS_CONSTANT && i != TPCK_CLASS_DEAD)
			row->changing_bytes += status->class_bytes[i];
}

static int by_rank(const void *a, const void *b)
{
	const struct top_row *x = a, *y = b;

	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	return x->generation < y->generation ? -1 : x->generation > y->generation;
}

static void add_rows(struct top_job *job, const char *memory_job, const struct top_job *before, double passed)
{
	struct tpck_session_name name;
	struct dirent *entry;
	DIR *folder = opendir(memory_job);

	while (folder && (entry = readdir(folder))) {
		struct tpck_session *session;
		const struct top_row *was;
		struct top_row *grown;

		if (tpck_session_name_parse(entry->d_name, &name) ||
		    tpck_session_open(&session, memory_job, entry->d_name, false, NULL))
			continue;
		grown = reallocarray(job->rows, job->count + 1, sizeof *grown);
		if (grown) {
			job->rows = grown;
			grown += job->count++;
			fill_row(grown, session);
			if (grown->alive)
				snprintf(job->waiting, sizeof job->waiting, "%.*s", (int)sizeof job->waiting - 1, session->control->waiting);
			was = row_before(before, grown);
			if (was && passed > 0 && grown->captured >= was->captured) {
				grown->captures_per_sec = (double)(grown->captured - was->captured) / passed;
				grown->capture_rate = grown->captures_per_sec * (double)grown->changing_bytes;
			}
		}
		job->memory_used += tpck_folder_memory(session->path);
		tpck_session_close(session);
	}
	if (folder)
		closedir(folder);
	if (job->count)
		qsort(job->rows, job->count, sizeof *job->rows, by_rank);
}

/* ---- the job -------------------------------------------------------------------------------- */

static uint64_t number(struct json_object *json, const char *key)
{
	struct json_object *found;

	return json_object_object_get_ex(json, key, &found) ? json_object_get_uint64(found) : 0;
}

static void ask(struct top_job *job, const char *memory_job)
{
	struct json_object *answer = cli_query(memory_job), *found;

	if (!answer)
		return;
	job->answered = true;
	job->memory_limit = number(answer, "memory_limit");
	job->flush_bytes = number(answer, "flush_bytes");
	if (json_object_object_get_ex(answer, "flush_sec", &found))
		job->flush_sec = json_object_get_double(found);
	if (json_object_object_get_ex(answer, "complaint", &found))
		snprintf(job->complaint, sizeof job->complaint, "%.*s", (int)sizeof job->complaint - 1, json_object_get_string(found));
	if (json_object_object_get_ex(answer, "sessions", &found) && json_object_is_type(found, json_type_array))
		for (size_t i = 0; i < json_object_array_length(found); i++) {
			struct json_object *flushing;

			if (json_object_object_get_ex(json_object_array_get_idx(found, i), "flushing", &flushing))
				job->flushing = job->flushing || json_object_get_boolean(flushing);
		}
	json_object_put(answer);
}

static void count_files(struct top_job *job, const char *memory_job)
{
	struct tpck_view *view;

	if (tpck_view_map(memory_job, false, &view))
		return;
	job->files_owed = view->used;
	tpck_view_unmap(view);
}

static int64_t mark_of(const char *memory_job)
{
	char path[TPCK_PATH_MAX];
	struct stat status;

	if (tpck_path_join(path, sizeof path, memory_job, TPCK_HISTORY) || stat(path, &status))
		return 0;
	return (int64_t)status.st_size + status.st_mtim.tv_nsec + status.st_mtim.tv_sec * 1000000007ll;
}

/* Everything that happens is in memory first: unless that has changed, nothing has. */
static void read_history(struct top_job *job, struct cli *cli, const char *memory_job, const struct top_job *before)
{
	struct tpck_history history = {0};
	struct tpck_tiers tiers = {0};
	struct tpck_runs runs;

	job->history_mark = mark_of(memory_job);
	if (before && before->history_mark == job->history_mark) {
		job->failures = before->failures;
		job->resumes = before->resumes;
		job->lost = before->lost;
		return;
	}
	if (tpck_tiers_open(&tiers, &cli->settings, job->name, TPCK_WRITER_THREADS, NULL) == 0)
		(void)tpck_history_load(&history, memory_job, &tiers, NULL);
	if (tpck_runs_of(&runs, &history) == 0) {
		for (size_t i = 0; i < runs.count; i++) {
			if (runs.run[i].rank)
				continue;
			job->failures += tpck_run_failure(&runs, &runs.run[i]) >= 0;
			job->resumes += runs.run[i].resumed;
			job->lost += runs.run[i].lost;
		}
		tpck_runs_free(&runs);
	}
	tpck_history_free(&history);
	tpck_tiers_close(&tiers);
}

struct looking {
	struct top_sample *sample;
	const struct top_sample *before;
};

static int look(struct cli *cli, const char *name, void *context)
{
	struct looking *looking = context;
	struct top_sample *sample = looking->sample;
	const struct top_job *before = NULL;
	struct top_job *job, *grown;
	char memory_job[TPCK_PATH_MAX];
	struct stat status;
	double passed = 0;

	if (tpck_path_join(memory_job, sizeof memory_job, cli->shm, name) || (!cli->job && stat(memory_job, &status)))
		return 0;
	grown = reallocarray(sample->jobs, sample->count + 1, sizeof *grown);
	if (!grown)
		return CLI_BAD;
	sample->jobs = grown;
	job = &grown[sample->count++];
	memset(job, 0, sizeof *job);
	snprintf(job->name, sizeof job->name, "%.*s", TPCK_NAME_MAX - 1, name);
	for (size_t i = 0; looking->before && i < looking->before->count; i++)
		if (strcmp(looking->before->jobs[i].name, name) == 0)
			before = &looking->before->jobs[i];
	if (before)
		passed = (double)(sample->at_ns - looking->before->at_ns) / 1e9;
	add_rows(job, memory_job, before, passed);
	/* An agent that has nothing left to do is not kept from ending by being asked. */
	if (job->count)
		ask(job, memory_job);
	count_files(job, memory_job);
	read_history(job, cli, memory_job, before);
	return 0;
}

int top_sample_take(struct top_sample *sample, struct cli *cli, const struct top_sample *before)
{
	struct looking looking = {sample, before};

	*sample = (struct top_sample){.at_ns = tpck_clock_monotonic_ns()};
	return cli_each_job(cli, look, &looking);
}

void top_sample_free(struct top_sample *sample)
{
	for (size_t i = 0; i < sample->count; i++)
		free(sample->jobs[i].rows);
	free(sample->jobs);
	*sample = (struct top_sample){0};
}
