/* SPDX-License-Identifier: Apache-2.0 */
/* transpckpt verify: every chunk against its digest. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>

#include "runtime/store/verify.h"
#include "tools/cli/inventory.h"

static const char usage[] =
	"usage: transpckpt verify [--json] [--job JOB] [--dir DIR] [STEP[.gGENERATION]]...\n"
	"       transpckpt verify --files [--json] [--job JOB] [--dir DIR] [PATH]...\n"
	"Reads every chunk of the durable checkpoints, or of those named, from the disk and compares it\n"
	"with its digest. Exit status 1, and a line naming file and chunk, for each that does not match.\n"
	"  --files  the program's own files instead, all or those named: whether each is what was saved\n";

struct checking {
	struct cli *cli;
	json_object *json;
	json_object *faults; /* of the checkpoint at hand */
	size_t checkpoints, bad;
};

static void fault(void *context, const struct tpck_error *err)
{
	struct checking *checking = context;

	json_object_array_add(checking->faults, json_object_new_string(err->text));
}

/* An agent that goes on publishing takes older checkpoints away under our eyes. */
static bool removed_meanwhile(struct tpck_tier *tier, const struct tpck_manifest *manifest)
{
	struct tpck_manifest *again;
	int rc = tpck_manifest_load(&again, tier, &manifest->point, NULL);

	if (!rc)
		tpck_manifest_free(again);
	return rc == -ENOENT;
}

static bool named(const struct cli *cli, const struct tpck_point *point)
{
	if (cli->count == 0)
		return true;
	for (int i = 0; i < cli->count; i++) {
		struct tpck_point wanted;

		if (cli_point_parse(cli->operands[i], &wanted) == 0 && wanted.step == point->step &&
		    (!wanted.generation || wanted.generation == point->generation))
			return true;
	}
	return false;
}

static void verify_one(struct checking *checking, const struct tpck_tiers *tiers, size_t at, const char *job,
		       const struct tpck_manifest *manifest)
{
	struct tpck_tier *tier = tiers->tier[at];
	long faults;

	checking->faults = json_object_new_array();
	faults = tpck_verify_each(tier, manifest, fault, checking);
	checking->checkpoints++;
	if (faults && removed_meanwhile(tier, manifest)) {
		json_object_put(checking->faults);
		return;
	}
	checking->bad += faults != 0;
	if (checking->json) {
		json_object *row = json_object_new_object();

		json_object_object_add(row, "job", json_object_new_string(job));
		json_object_object_add(row, "generation", json_object_new_uint64(manifest->point.generation));
		json_object_object_add(row, "step", json_object_new_uint64(manifest->point.step));
		json_object_object_add(row, "where", json_object_new_string(tiers->name[at]));
		json_object_object_add(row, "good", json_object_new_boolean(faults == 0));
		json_object_object_add(row, "faults", checking->faults);
		json_object_array_add(checking->json, row);
		return;
	}
	for (size_t i = 0; i < json_object_array_length(checking->faults); i++)
		puts(json_object_get_string(json_object_array_get_idx(checking->faults, i)));
	json_object_put(checking->faults);
	printf("%s: step %" PRIu64 " (generation %" PRIu64 ")%s%s: %s, %s\n", job, manifest->point.step,
	       manifest->point.generation, tiers->count > 1 ? " in " : "", tiers->count > 1 ? tiers->name[at] : "",
	       faults ? "BAD" : "good", cli_bytes(tpck_manifest_bytes(manifest)));
}

static int verify_job(struct cli *cli, const char *job, void *context)
{
	struct checking *checking = context;
	struct inventory inventory;
	struct tpck_error err = {0};

	if (inventory_load(&inventory, cli, job, &err)) {
		fprintf(stderr, "transpckpt: %s\n", err.text);
		return CLI_BAD;
	}
	checking->bad += inventory.unreadable;
	for (size_t t = 0; t < inventory.tiers.count; t++)
		for (size_t i = 0; i < inventory.catalog[t].count; i++)
			if (named(cli, &inventory.catalog[t].manifests[i]->point))
				verify_one(checking, &inventory.tiers, t, job, inventory.catalog[t].manifests[i]);
	inventory_free(&inventory);
	return 0;
}

int verb_verify(int argc, char **argv)
{
	struct checking checking = {0};
	struct tpck_point point;
	struct cli cli;
	int rc = cli_options(&cli, argc, argv, usage, CLI_OWN_FILES);

	if (rc)
		return rc < 0 ? CLI_GOOD : rc;
	if (cli.files)
		return cli_verify_files(&cli);
	for (int i = 0; i < cli.count; i++) {
		if (cli_point_parse(cli.operands[i], &point)) {
			fprintf(stderr, "transpckpt: '%s' is no step\n", cli.operands[i]);
			return CLI_USAGE;
		}
	}
	if (cli.json)
		checking.json = json_object_new_array();
	rc = cli_each_job(&cli, verify_job, &checking);
	if (cli.json) {
		puts(json_object_to_json_string_ext(checking.json, JSON_C_TO_STRING_PRETTY));
		json_object_put(checking.json);
	}
	if (!rc && cli.count && !checking.checkpoints) {
		fprintf(stderr, "transpckpt: no such checkpoint\n");
		rc = CLI_BAD;
	}
	return rc ? rc : checking.bad ? CLI_BAD : CLI_GOOD;
}
