/* SPDX-License-Identifier: Apache-2.0 */
/* transpckpt show: what was learnt about a program, or why nothing is captured. */
#include "config.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/store/file.h"
#include "tools/cli/cadence.h"
#include "tools/cli/inventory.h"
#include "tools/cli/state.h"
#include "tools/cli/covered.h"

static const char usage[] =
	"usage: transpckpt show [--state] [--json] [--job JOB] [--dir DIR]\n"
	"       transpckpt show --files [--json] [--job JOB] [PATH...]\n"
	"Shows what was inferred about the processes that run now, or about the newest checkpoint's.\n"
	"  --state  also what the newest snapshot holds: blocks by class, tensors by role, optimizers\n"
	"  --files  of these files, or all below here: whether they are taken when they are written, and why\n";

static const char *const engine_names[] = {"off", "learning", "capturing", "running forward", "ended"};

/* The last lines of the agent's log, where its complaints are. */
enum { LOG_TAIL = 10 };

static json_object *notes_json(const struct tpck_notes *notes)
{
	json_object *json = json_object_new_object(), *classes = json_object_new_object();

	json_object_object_add(json, "period", json_object_new_uint64(notes->period));
	json_object_object_add(json, "optimizer_operations", json_object_new_uint64(notes->optimizer_operations));
	json_object_object_add(json, "sure_by_names", json_object_new_boolean(notes->sure_by_names != 0));
	json_object_object_add(json, "sure_by_pattern", json_object_new_boolean(notes->sure_by_pattern != 0));
	json_object_object_add(json, "by_uploads", json_object_new_boolean(notes->by_uploads != 0));
	json_object_object_add(json, "iteration_ns", json_object_new_uint64(notes->iteration_ns));
	json_object_object_add(json, "captured", json_object_new_uint64(notes->captured));
	json_object_object_add(json, "skipped", json_object_new_uint64(notes->skipped));
	json_object_object_add(json, "abandoned", json_object_new_uint64(notes->abandoned));
	json_object_object_add(json, "stall_ns_max", json_object_new_uint64(notes->stall_ns_max));
	json_object_object_add(json, "stall_ns_sum", json_object_new_uint64(notes->stall_ns_sum));
	json_object_object_add(json, "stall_count", json_object_new_uint64(notes->stall_count));
	json_object_object_add(json, "stall_cpu_ns_max", json_object_new_uint64(notes->stall_cpu_ns_max));
	json_object_object_add(json, "stall_cpu_ns_sum", json_object_new_uint64(notes->stall_cpu_ns_sum));
	json_object_object_add(json, "submit_ns_max", json_object_new_uint64(notes->submit_ns_max));
	json_object_object_add(json, "submit_ns_sum", json_object_new_uint64(notes->submit_ns_sum));
	json_object_object_add(json, "submit_count", json_object_new_uint64(notes->submit_count));
	json_object_object_add(json, "wait_ns_sum", json_object_new_uint64(notes->wait_ns_sum));
	for (int i = 0; i < TPCK_CLASSES; i++) {
		json_object *class;

		if (!state_class_name((uint32_t)i)[0])
			continue;
		class = json_object_new_object();
		json_object_object_add(class, "blocks", json_object_new_uint64(notes->class_blocks[i]));
		json_object_object_add(class, "bytes", json_object_new_uint64(notes->class_bytes[i]));
		json_object_object_add(classes, state_class_name((uint32_t)i), class);
	}
	json_object_object_add(json, "classes", classes);
	return json;
}

static const char *digests_word(uint32_t way)
{
	static const char *const words[] = {"not known yet", "on the device", "none: there is no kernel for this device",
					    "none: this device computes others than the processor"};

	return words[way < sizeof words / sizeof *words ? way : 0];
}

static json_object *ways_json(const struct tpck_ways *ways)
{
	static const char *const words[] = {"unknown", "device", "no kernel", "other"};
	json_object *json = json_object_new_object();

	json_object_object_add(json, "driver", json_object_new_string(ways->driver));
	json_object_object_add(json, "driver_version", json_object_new_int64(ways->driver_version));
	json_object_object_add(json, "digests", json_object_new_string(words[ways->digests < sizeof words / sizeof *words ? ways->digests : 0]));
	json_object_object_add(json, "images_pinned", json_object_new_int64(ways->pinned));
	json_object_object_add(json, "images_mapped", json_object_new_int64(ways->images));
	json_object_object_add(json, "arena", json_object_new_boolean(ways->arena != 0));
	json_object_object_add(json, "refused_waits", json_object_new_uint64(ways->refused_waits));
	json_object_object_add(json, "kernels", json_object_new_int64(ways->kernels));
	json_object_object_add(json, "kernels_bare", json_object_new_int64(ways->kernels_bare));
	json_object_object_add(json, "parameters", json_object_new_int64(ways->parameters));
	json_object_object_add(json, "parameters_compared", json_object_new_int64(ways->parameters_compared));
	return json;
}

static void print_ways(const struct tpck_ways *ways)
{
	if (!ways->driver[0])
		return;
	printf("  driver: %s, of CUDA %u.%u\n", ways->driver, ways->driver_version / 1000, ways->driver_version % 1000 / 10);
	printf("  digests: %s; memory: %s; images: %u of %u pinned%s\n", digests_word(ways->digests), ways->arena ? "from the arena" : "from the driver",
	       ways->pinned, ways->images, ways->pinned < ways->images ? ", copies to others are slower" : "");
	if (ways->kernels)
		printf("  kernels: %u launched; of their %u parameters a resume compares %u, and leaves out %u: structures, and what nothing is known of\n",
		       ways->kernels, ways->parameters, ways->parameters_compared, ways->parameters - ways->parameters_compared);
	if (ways->kernels_bare)
		printf("  kernels whose parameters the driver does not tell: %u; a resume compares their launches without arguments\n", ways->kernels_bare);
	if (ways->refused_waits)
		printf("  streams that the device did not let wait for a copy: %" PRIu64 " times; the program's threads waited\n", ways->refused_waits);
}

static void print_notes(const struct tpck_notes *notes)
{
	const char *names = notes->sure_by_names ? "names" : NULL, *pattern = notes->sure_by_pattern ? "pattern" : NULL;

	printf("  iteration: %" PRIu64 " device operations, %" PRIu64 " of them the optimizer's; %s\n", notes->period,
	       notes->optimizer_operations,
	       notes->by_uploads ? "not found: snapshots are taken where batches come to the device"
	       : names && pattern ? "found by names and by pattern"
	       : names          ? "found by names"
	       : pattern        ? "found by pattern"
				  : "not sure yet");
	if (notes->iteration_ns)
		printf("  time an iteration: %.3f ms\n", (double)notes->iteration_ns / 1e6);
	for (int i = 0; i < TPCK_CLASSES; i++)
		if (notes->class_blocks[i])
			printf("  state %-10s %" PRIu64 " blocks, %s\n", state_class_name((uint32_t)i), notes->class_blocks[i],
			       cli_bytes(notes->class_bytes[i]));
	printf("  snapshots: %" PRIu64 " captured, %" PRIu64 " skipped, %" PRIu64 " abandoned\n", notes->captured,
	       notes->skipped, notes->abandoned);
	if (notes->stall_count)
		printf("  time in our hooks at boundaries: mean %.1f us, longest %.1f us, %.1f us of it processor time; "
		       "device waited %.1f ms in all\n",
		       (double)notes->stall_ns_sum / (double)notes->stall_count / 1e3, (double)notes->stall_ns_max / 1e3,
		       (double)notes->stall_cpu_ns_max / 1e3, (double)notes->wait_ns_sum / 1e6);
	if (notes->submit_count)
		printf("  waits until copies were handed to the device: %" PRIu64 ", mean %.1f us, longest %.1f us\n", notes->submit_count,
		       (double)notes->submit_ns_sum / (double)notes->submit_count / 1e3, (double)notes->submit_ns_max / 1e3);
}

/* ---- its twin ---- */

static void add_twin(json_object *row, const struct tpck_session *session)
{
	struct cli_twin found;
	json_object *twin;

	(void)cli_twin_of(session, &found);
	twin = found.there ? json_object_new_object() : NULL;
	if (found.there) {
		json_object_object_add(twin, "pid", json_object_new_int(found.process));
		json_object_object_add(twin, "step", json_object_new_uint64(found.step));
		json_object_object_add(twin, "proven", json_object_new_uint64(found.proven));
		json_object_object_add(twin, "lag", json_object_new_uint64(found.lag));
		json_object_object_add(twin, "lag_ms", json_object_new_double(found.lag_ms));
	}
	json_object_object_add(row, "twin", twin);
	json_object_object_add(row, "takeovers", json_object_new_int64(found.takeovers));
	json_object_object_add(row, "covered_until", found.covers ? json_object_new_uint64(found.step) : NULL);
	json_object_object_add(row, "uncovered_sec", found.uncovered_sec < 0 ? NULL : json_object_new_double(found.uncovered_sec));
}

static void print_twin(const struct tpck_session *session)
{
	struct cli_twin found;
	char text[300];

	if (!cli_twin_of(session, &found))
		return;
	cli_twin_text(&found, text, sizeof text);
	printf("  twin: %s\n", text);
}

static void show_state(struct state *state, json_object *row)
{
	if (row)
		json_object_object_add(row, "state_of_snapshot", state_json(state));
	else
		state_print(state);
	state_free(state);
}

/* Those that are in the record: a process that has resumed counts its own. */
static uint64_t iterations_of(const struct tpck_status *status)
{
	return status->boundaries > status->last_step ? status->boundaries : status->last_step;
}

/* How many bytes of the packed record an iteration takes. */
static double packed_of(const struct tpck_control *control)
{
	const struct tpck_status *status = &control->status;
	double raw = (double)control->log_packed_raw, all = (double)status->log_bytes;

	return raw > 0 && iterations_of(status) ? (double)control->log_packed_bytes * all / raw / (double)iterations_of(status) : 0;
}

static json_object *record_json(const struct tpck_control *control)
{
	const struct tpck_status *status = &control->status;
	json_object *json = json_object_new_object();

	json_object_object_add(json, "bytes", json_object_new_uint64(status->log_bytes));
	json_object_object_add(json, "memory", json_object_new_uint64(status->log_memory));
	json_object_object_add(json, "packed_raw", json_object_new_uint64(control->log_packed_raw));
	json_object_object_add(json, "packed", json_object_new_uint64(control->log_packed_bytes));
	json_object_object_add(json, "unresumable_from", json_object_new_uint64(status->unresumable_from));
	json_object_object_add(json, "unresumable", json_object_new_string(status->unresumable));
	return json;
}

static void print_record(const struct tpck_control *control)
{
	const struct tpck_status *status = &control->status;

	if (status->log_bytes && iterations_of(status)) {
		printf("  record: %s", cli_bytes(status->log_bytes));
		printf(", %s an iteration", cli_bytes(status->log_bytes / iterations_of(status)));
		printf("; %s of it in memory", cli_bytes(status->log_memory));
		if (control->log_packed_raw) {
			printf(", %s packed", cli_bytes(control->log_packed_raw));
			printf(" to %s (%.1f B an iteration)", cli_bytes(control->log_packed_bytes), packed_of(control));
		}
		putchar('\n');
	}
	if (status->unresumable_from)
		printf("  from step %" PRIu64 " on a restart needs the program's own checkpoint: %s\n", status->unresumable_from, status->unresumable);
}

static void show_session(const struct tpck_session *session, json_object *rows, const char *job, bool with_state)
{
	const struct tpck_control *control = session->control;
	const struct tpck_status *status = &control->status;
	uint32_t state = atomic_load(&((struct tpck_control *)control)->status.state);
	const char *engine = state < sizeof engine_names / sizeof *engine_names ? engine_names[state] : "unknown";
	struct tpck_notes notes;
	struct state held;

	tpck_notes_take(&notes, status);
	if (rows) {
		json_object *row = json_object_new_object();

		json_object_object_add(row, "job", json_object_new_string(job));
		json_object_object_add(row, "generation", json_object_new_uint64(session->name.generation));
		json_object_object_add(row, "rank", json_object_new_int64(session->name.rank));
		json_object_object_add(row, "ordinal", json_object_new_int64(session->name.ordinal));
		json_object_object_add(row, "pid", json_object_new_int(control->pid));
		json_object_object_add(row, "running", json_object_new_boolean(inventory_alive(session)));
		json_object_object_add(row, "state", json_object_new_string(engine));
		json_object_object_add(row, "reason", json_object_new_string(status->reason));
		json_object_object_add(row, "trouble", json_object_new_string(status->trouble));
		json_object_object_add(row, "waiting", json_object_new_string(control->waiting));
		json_object_object_add(row, "iterations", json_object_new_uint64(status->boundaries));
		json_object_object_add(row, "step", json_object_new_uint64(status->boundaries));
		json_object_object_add(row, "resumed_at", json_object_new_uint64(control->resume_step));
		json_object_object_add(row, "held_step", json_object_new_uint64(status->last_step));
		json_object_object_add(row, "durable_step", json_object_new_uint64(control->durable_step));
		json_object_object_add(row, "images", json_object_new_int64(control->images));
		json_object_object_add(row, "image_bytes", json_object_new_uint64(control->image_bytes));
		json_object_object_add(row, "ways", ways_json(&status->ways));
		json_object_object_add(row, "record", record_json(control));
		add_twin(row, session);
		json_object_object_add(row, "notes", notes_json(&notes));
		if (with_state && state_of_session(&held, session))
			show_state(&held, row);
		json_object_array_add(rows, row);
		return;
	}
	printf("%s: process %d, generation %" PRIu64 ", rank %u: %s%s%s\n", job, control->pid, session->name.generation,
	       session->name.rank, inventory_alive(session) ? engine : "gone", status->reason[0] ? "; " : "",
	       status->reason);
	printf("  iterations: %" PRIu64 "; snapshot of step %" PRIu64 " held, of step %" PRIu64 " durable\n",
	       status->boundaries, status->last_step, (uint64_t)control->durable_step);
	if (control->parent_generation)
		printf("  resumed at step %" PRIu64 " of generation %" PRIu64 "; forward %s, state in place in %s\n",
		       control->resume_step, control->parent_generation, cli_span((double)status->forward_ns / 1e9),
		       cli_span((double)status->inject_ns / 1e9));
	print_twin(session);
	if (status->trouble[0])
		printf("  trouble: %s\n", status->trouble);
	if (control->waiting[0])
		printf("  waiting: %s\n", control->waiting);
	printf("  memory: %u images of %s\n", control->images, cli_bytes(control->image_bytes));
	print_ways(&status->ways);
	print_record(control);
	print_notes(&notes);
	if (with_state && state_of_session(&held, session))
		show_state(&held, NULL);
}

/* Of several nodes' parts those of the first rank, which comes first, and of one that cannot go on. */
static bool load_telling(struct tpck_tier *tier, struct tpck_manifest *manifest)
{
	struct tpck_error err = {0};
	int rc = manifest->part_count ? tpck_manifest_need(manifest, tier, manifest->parts[0].ranks[0].rank, &err) : 0;

	for (size_t i = 0; !rc && i < manifest->part_count; i++)
		if (!manifest->parts[i].resumable) {
			rc = tpck_manifest_need(manifest, tier, manifest->parts[i].ranks[0].rank, &err);
			break;
		}
	if (rc)
		fprintf(stderr, "transpckpt: %s\n", err.text);
	return !rc;
}

/* One rank that cannot go on keeps the others from it, on whichever node it was. */
static const struct tpck_member *telling_member(const struct tpck_manifest *manifest)
{
	for (size_t m = 0; m < manifest->member_count; m++)
		if (!manifest->members[m].resumable)
			return &manifest->members[m];
	return &manifest->members[0];
}

static void show_manifest(struct tpck_tier *tier, const struct tpck_manifest *manifest, json_object *rows, const char *job,
			  bool with_state)
{
	const struct tpck_member *member = telling_member(manifest);
	char ranks[32] = "";
	struct state stored;

	if (rows) {
		json_object *row = json_object_new_object();

		json_object_object_add(row, "job", json_object_new_string(job));
		json_object_object_add(row, "generation", json_object_new_uint64(manifest->point.generation));
		json_object_object_add(row, "step", json_object_new_uint64(manifest->point.step));
		json_object_object_add(row, "ranks", json_object_new_uint64(manifest->world));
		json_object_object_add(row, "running", json_object_new_boolean(0));
		json_object_object_add(row, "resumable", json_object_new_boolean(member->resumable));
		json_object_object_add(row, "reason", json_object_new_string(member->reason));
		json_object_object_add(row, "notes", notes_json(&member->notes));
		if (with_state && state_of_manifest(&stored, tier, manifest))
			show_state(&stored, row);
		json_object_array_add(rows, row);
		return;
	}
	if (manifest->world > 1)
		snprintf(ranks, sizeof ranks, ", %u ranks", manifest->world);
	printf("%s: nothing runs; newest checkpoint: step %" PRIu64 " of generation %" PRIu64 "%s%s%s\n", job,
	       manifest->point.step, manifest->point.generation, ranks, member->resumable ? "" : ", not resumable: ",
	       member->resumable ? "" : member->reason);
	print_notes(&member->notes);
	if (with_state && state_of_manifest(&stored, tier, manifest))
		show_state(&stored, NULL);
}

static void show_log(const struct cli *cli, const char *job)
{
	char path[TPCK_PATH_MAX + 300], *text, *line;
	int lines = 0;

	snprintf(path, sizeof path, "%s/%s/agent.log", cli->shm, job);
	if (tpck_file_read(path, 64 << 20, &text, NULL, NULL)) {
		snprintf(path, sizeof path, "%s/%s/agent.log", cli->store, job);
		if (tpck_file_read(path, 64 << 20, &text, NULL, NULL))
			return;
	}
	line = text + strlen(text);
	while (line > text && lines <= LOG_TAIL)
		lines += *--line == '\n';
	if (*line == '\n')
		line++;
	if (*line)
		printf("  last words of the agent (%s):\n", path);
	while (*line) {
		size_t length = strcspn(line, "\n");

		printf("    %.*s\n", (int)length, line);
		line += length + (line[length] == '\n');
	}
	free(text);
}

static struct tpck_manifest *newest_stored(const struct inventory *inventory, struct tpck_tier **tier)
{
	struct tpck_manifest *newest = NULL;

	for (size_t t = 0; t < inventory->tiers.count; t++) {
		const struct tpck_catalog *catalog = &inventory->catalog[t];

		if (catalog->count &&
		    (!newest || tpck_point_compare(&catalog->manifests[catalog->count - 1]->point, &newest->point) > 0)) {
			newest = catalog->manifests[catalog->count - 1];
			*tier = inventory->tiers.tier[t];
		}
	}
	return newest;
}

static int show_job(struct cli *cli, const char *job, void *context)
{
	json_object *rows = context;
	struct inventory inventory;
	struct tpck_manifest *stored;
	int rc = 0;
	struct tpck_error err = {0};
	struct tpck_tier *tier = NULL;
	bool running = false;
	json_object *intervals;
	size_t first = rows ? json_object_array_length(rows) : 0;

	if (inventory_load(&inventory, cli, job, &err)) {
		fprintf(stderr, "transpckpt: %s\n", err.text);
		return CLI_BAD;
	}
	for (size_t i = 0; i < inventory.session_count; i++) {
		running = true;
		show_session(inventory.sessions[i], rows, job, cli->state);
		if (rows)
			cli_copies_json(cli, job, inventory.sessions[i]->name.generation,
					json_object_array_get_idx(rows, json_object_array_length(rows) - 1));
	}
	stored = running ? NULL : newest_stored(&inventory, &tier);
	if (stored && !load_telling(tier, stored))
		rc = CLI_BAD;
	else if (stored)
		show_manifest(tier, stored, rows, job, cli->state);
	else if (!running && !rows)
		printf("%s: nothing runs and nothing is stored\n", job);
	intervals = interval_json(cli, job, &inventory.tiers);
	if (!rows && (running || stored))
		interval_print(intervals);
	for (size_t i = first; rows && i < json_object_array_length(rows); i++)
		json_object_object_add(json_object_array_get_idx(rows, i), "durable_intervals", json_object_get(intervals));
	json_object_put(intervals);
	if (!rows) {
		cli_show_copies(cli, job);
		show_log(cli, job);
	}
	inventory_free(&inventory);
	return rc;
}

int verb_show(int argc, char **argv)
{
	json_object *rows = NULL;
	struct cli cli;
	int rc = cli_options(&cli, argc, argv, usage, CLI_OWN_STATE | CLI_OWN_FILES);

	if (rc)
		return rc < 0 ? CLI_GOOD : rc;
	if (cli.files)
		return cli_show_files(&cli);
	if (cli.json)
		rows = json_object_new_array();
	rc = cli_each_job(&cli, show_job, rows);
	if (rows) {
		puts(json_object_to_json_string_ext(rows, JSON_C_TO_STRING_PRETTY));
		json_object_put(rows);
	}
	return rc;
}
