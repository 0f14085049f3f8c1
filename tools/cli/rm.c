/* SPDX-License-Identifier: Apache-2.0 */
/* transpckpt rm: takes checkpoints away, along the closure of references. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <unistd.h>

#include "runtime/store/retention.h"
#include "tools/cli/inventory.h"

static const char usage[] =
	"usage: transpckpt rm [--json] [--force] [--dir DIR] --job JOB STEP[.gGENERATION]...\n"
	"Removes durable checkpoints. What other checkpoints refer to stays on disk. The newest of a\n"
	"program is removed only with --force.\n";

#define LOCK_WAIT_SEC 60.0

/* The one checkpoint that a user's words mean. */
static int resolve(const struct inventory *inventory, const char *text, struct tpck_point *point)
{
	const struct tpck_point *found = NULL;
	struct tpck_point wanted;

	if (cli_point_parse(text, &wanted)) {
		fprintf(stderr, "transpckpt: '%s' is no step\n", text);
		return CLI_USAGE;
	}
	for (size_t i = 0; i < inventory->catalog.count; i++) {
		const struct tpck_point *at = &inventory->catalog.manifests[i]->point;

		if (at->step != wanted.step || (wanted.generation && at->generation != wanted.generation))
			continue;
		if (found) {
			fprintf(stderr,
				"transpckpt: step %" PRIu64 " is there in generations %" PRIu64 " and %" PRIu64
				"; say %" PRIu64 ".g%" PRIu64 "\n",
				at->step, found->generation, at->generation, at->step, at->generation);
			return CLI_BAD;
		}
		found = at;
	}
	if (!found) {
		fprintf(stderr, "transpckpt: there is no checkpoint %s in %s\n", text, inventory->tier->root);
		return CLI_BAD;
	}
	*point = *found;
	return 0;
}

int verb_rm(int argc, char **argv)
{
	struct inventory inventory;
	struct tpck_error err = {0};
	json_object *removed;
	struct cli cli;
	int lock, rc = cli_options(&cli, argc, argv, usage, CLI_OWN_FORCE);

	if (rc)
		return rc < 0 ? CLI_GOOD : rc;
	if (!cli.job || cli.count == 0) {
		fputs(usage, stderr);
		return CLI_USAGE;
	}
	if (inventory_load(&inventory, &cli, cli.job, &err)) {
		fprintf(stderr, "transpckpt: %s\n", err.text);
		return CLI_BAD;
	}
	removed = json_object_new_array();
	lock = tpck_durable_tier_lock(inventory.tier, LOCK_WAIT_SEC, &err);
	if (lock < 0) {
		fprintf(stderr, "transpckpt: %s\n", err.text);
		rc = CLI_BAD;
	}
	for (int i = 0; i < cli.count && !rc; i++) {
		struct tpck_point point = {0, 0};

		rc = resolve(&inventory, cli.operands[i], &point);
		if (rc)
			break;
		if (tpck_retention_remove(inventory.tier, &point, cli.force, &err)) {
			fprintf(stderr, "transpckpt: %s%s\n", err.text, err.code == EPERM && !cli.force ? " without --force" : "");
			rc = CLI_BAD;
		} else if (cli.json) {
			char name[64];

			tpck_checkpoint_name_format(&point, name, sizeof name);
			json_object_array_add(removed, json_object_new_string(name));
		} else {
			printf("removed step %" PRIu64 " of generation %" PRIu64 "\n", point.step, point.generation);
		}
	}
	if (lock >= 0)
		close(lock);
	if (cli.json)
		puts(json_object_to_json_string_ext(removed, JSON_C_TO_STRING_PRETTY));
	json_object_put(removed);
	inventory_free(&inventory);
	return rc;
}
