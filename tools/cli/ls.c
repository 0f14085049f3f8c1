/* SPDX-License-Identifier: Apache-2.0 */
/* transpckpt ls: one row a checkpoint. */
#include "config.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <string.h>

#include "runtime/store/memory_tier.h"
#include "runtime/store/program.h"
#include "runtime/wire/segment.h"
#include "tools/cli/inventory.h"

static const char usage[] =
	"usage: transpckpt ls [--files] [--json] [--job JOB] [--dir DIR]\n"
	"Lists the checkpoints of all jobs or of JOB, oldest first.\n"
	"FORWARD is what a resume runs on the CPU before it goes on: iterations, and at most how long.\n"
	"With --files: the programs' own files that are being written, or are owed to their paths.\n";

struct listing {
	json_object *json;
	bool headed;
};

static const char *state_name(const struct checkpoint *c)
{
	return c->durable ? "durable" : c->committed ? "committed" : "held";
}

static const char *where_name(const struct tpck_tiers *tiers, const struct checkpoint *c)
{
	static char text[96];
	size_t used = (size_t)snprintf(text, sizeof text, "%s", c->in_memory ? "memory" : "");

	for (size_t t = 0; t < tiers->count; t++)
		if (c->in_tier[t])
			used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", used ? ", " : "", tiers->name[t]);
	return text;
}

/* What a program's log keeps outside of itself: in memory, and on the first tier's disk. */
static void stashes_of(const struct cli *cli, const char *job, const struct tpck_tiers *tiers, const char *program, uint64_t *memory,
		       uint64_t *disk)
{
	char path[2 * TPCK_PATH_MAX];

	snprintf(path, sizeof path, "%s/%s/" TPCK_STASH_FOLDER "/%s", cli->shm, job, program);
	*memory = tpck_stash_sum(path);
	*disk = tiers->count ? tpck_program_stashed(tiers->tier[0], program) : 0;
}

static json_object *as_json(const struct cli *cli, const char *job, const struct tpck_tiers *tiers, const struct checkpoint *c)
{
	uint64_t memory, disk;

	json_object *row = json_object_new_object(), *where = json_object_new_array();

	json_object_object_add(row, "job", json_object_new_string(job));
	json_object_object_add(row, "program", json_object_new_string(c->program));
	json_object_object_add(row, "generation", json_object_new_uint64(c->point.generation));
	json_object_object_add(row, "step", json_object_new_uint64(c->point.step));
	json_object_object_add(row, "rank", json_object_new_int64(c->rank));
	json_object_object_add(row, "ordinal", json_object_new_int64(c->ordinal));
	json_object_object_add(row, "state", json_object_new_string(state_name(c)));
	if (c->in_memory)
		json_object_array_add(where, json_object_new_string("memory"));
	for (size_t t = 0; t < tiers->count; t++)
		if (c->in_tier[t])
			json_object_array_add(where, json_object_new_string(tiers->name[t]));
	json_object_object_add(row, "where", where);
	json_object_object_add(row, "bytes", json_object_new_uint64(c->bytes));
	json_object_object_add(row, "stored_bytes", json_object_new_uint64(c->stored_bytes));
	stashes_of(cli, job, tiers, c->program, &memory, &disk);
	json_object_object_add(row, "read_back_memory_bytes", json_object_new_uint64(memory));
	json_object_object_add(row, "read_back_disk_bytes", json_object_new_uint64(disk));
	json_object_object_add(row, "age_sec", json_object_new_double(c->age_sec));
	json_object_object_add(row, "resumable", json_object_new_boolean(c->resumable));
	json_object_object_add(row, "offered", json_object_new_boolean(c->offerable));
	json_object_object_add(row, "forward_iterations", json_object_new_uint64(c->point.step));
	json_object_object_add(row, "forward_sec", json_object_new_double((double)c->point.step * c->iteration_sec));
	return row;
}

/* What all ranks have of a point is what there is of it. `c`: the first of `ranks` in a row. */
static struct checkpoint all_ranks(const struct tpck_tiers *tiers, const struct checkpoint *c, size_t ranks)
{
	struct checkpoint all = *c;

	for (size_t i = 1; i < ranks; i++) {
		all.committed = all.committed && c[i].committed;
		all.durable = all.durable && c[i].durable;
		all.in_memory = all.in_memory && c[i].in_memory;
		for (size_t t = 0; t < tiers->count; t++)
			all.in_tier[t] = all.in_tier[t] && c[i].in_tier[t];
		all.resumable = all.resumable && c[i].resumable;
		all.offerable = all.offerable && c[i].offerable;
		/* A manifest counts all of them. */
		if (!all.durable)
			all.bytes += c[i].bytes;
		if (c[i].iteration_sec > all.iteration_sec)
			all.iteration_sec = c[i].iteration_sec;
	}
	return all;
}

static size_t ranks_of(const struct inventory *inventory, size_t first)
{
	size_t ranks = 1;

	while (first + ranks < inventory->count &&
	       tpck_point_compare(&inventory->checkpoints[first].point, &inventory->checkpoints[first + ranks].point) == 0)
		ranks++;
	return ranks;
}

static void print_row(const char *job, const struct tpck_tiers *tiers, const struct checkpoint *c, size_t ranks, bool head)
{
	char forward[64], shared[32] = "";

	if (head)
		printf("%-20s %10s %12s %-10s %-13s %10s %10s %9s  %s\n", "JOB", "GENERATION", "STEP", "STATE", "WHERE",
		       "BYTES", "STORED", "AGE", "FORWARD");
	if (!c->resumable)
		snprintf(forward, sizeof forward, "not resumable");
	else if (!c->offerable)
		snprintf(forward, sizeof forward, "not offered any more");
	else if (c->iteration_sec > 0)
		snprintf(forward, sizeof forward, "%" PRIu64 " iterations, <= %s", c->point.step,
			 cli_span((double)c->point.step * c->iteration_sec));
	else
		snprintf(forward, sizeof forward, "%" PRIu64 " iterations", c->point.step);
	if (ranks > 1)
		snprintf(shared, sizeof shared, "; %zu ranks", ranks);
	printf("%-20s %10" PRIu64 " %12" PRIu64 " %-10s %-13s %10s %10s %9s  %s%s\n", job, c->point.generation,
	       c->point.step, state_name(c), where_name(tiers, c), cli_bytes(c->bytes),
	       c->durable ? cli_bytes(c->stored_bytes) : "-", cli_span(c->age_sec), forward, shared);
}

/* A line for each program of the job that has some. */
static void print_stashes(const struct cli *cli, const char *job, const struct inventory *inventory)
{
	for (size_t i = 0; i < inventory->count; i++) {
		const char *program = inventory->checkpoints[i].program;
		uint64_t memory, disk;
		bool again = false;
		char first[32];

		for (size_t j = 0; j < i; j++)
			again = again || strcmp(inventory->checkpoints[j].program, program) == 0;
		if (again)
			continue;
		stashes_of(cli, job, &inventory->tiers, program, &memory, &disk);
		snprintf(first, sizeof first, "%s", cli_bytes(disk));
		if (memory || disk)
			printf("%-20s read back from the device by rank %u, and kept for its resumes: %s on disk, %s in memory\n", job,
			       inventory->checkpoints[i].rank, first, cli_bytes(memory));
	}
}

static int list_files(struct cli *cli, const char *job, void *context)
{
	struct listing *listing = context;

	return cli_list_files(cli, job, listing->json, &listing->headed);
}

static int list_job(struct cli *cli, const char *job, void *context)
{
	struct listing *listing = context;
	struct inventory inventory;
	struct tpck_error err = {0};

	if (inventory_load(&inventory, cli, job, &err)) {
		fprintf(stderr, "transpckpt: %s\n", err.text);
		return CLI_BAD;
	}
	for (size_t i = 0; listing->json && i < inventory.count; i++)
		json_object_array_add(listing->json, as_json(cli, job, &inventory.tiers, &inventory.checkpoints[i]));
	for (size_t i = 0, ranks; !listing->json && i < inventory.count; i += ranks) {
		struct checkpoint all;

		ranks = ranks_of(&inventory, i);
		all = all_ranks(&inventory.tiers, &inventory.checkpoints[i], ranks);
		print_row(job, &inventory.tiers, &all, ranks, !listing->headed);
		listing->headed = true;
	}
	if (!listing->json)
		print_stashes(cli, job, &inventory);
	inventory_free(&inventory);
	return 0;
}

int verb_ls(int argc, char **argv)
{
	struct listing listing = {NULL, false};
	struct cli cli;
	int rc = cli_options(&cli, argc, argv, usage, CLI_OWN_FILES);

	if (rc)
		return rc < 0 ? CLI_GOOD : rc;
	if (cli.json)
		listing.json = json_object_new_array();
	rc = cli_each_job(&cli, cli.files ? list_files : list_job, &listing);
	if (cli.json) {
		puts(json_object_to_json_string_ext(listing.json, JSON_C_TO_STRING_PRETTY));
		json_object_put(listing.json);
	} else if (cli.files && !listing.headed && !rc) {
		printf("no file is pending in %s\n", cli.shm);
	} else if (!listing.headed && !rc) {
		printf("no checkpoints in %s and %s\n", cli.shm, cli.settings.dir[0] ? cli.settings.dir : cli.store);
	}
	return rc;
}
