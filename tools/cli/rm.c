/* SPDX-License-Identifier: Apache-2.0 */
/* transpckpt rm: takes checkpoints away, along the closure of references. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/tier_settings.h"
#include "runtime/store/retention.h"
#include "tools/cli/inventory.h"

static const char usage[] =
	"usage: transpckpt rm [--json] [--force] [--dir DIR] --job JOB STEP[.gGENERATION]...\n"
	"Removes durable checkpoints. What other checkpoints refer to stays on disk. The newest of a\n"
	"program is removed only with --force.\n";

#define LOCK_WAIT_SEC 60.0

/* The one checkpoint that a user's words mean, in whichever tiers it is. */
static int resolve(const struct inventory *inventory, const char *text, struct tpck_point *point)
{
	struct tpck_point wanted, found = {0, 0};
	bool any = false;

	if (cli_point_parse(text, &wanted)) {
		fprintf(stderr, "transpckpt: '%s' is no step\n", text);
		return CLI_USAGE;
	}
	for (size_t i = 0; i < inventory->count; i++) {
		const struct tpck_point *at = &inventory->checkpoints[i].point;

		if (!inventory->checkpoints[i].durable || at->step != wanted.step ||
		    (wanted.generation && at->generation != wanted.generation) ||
		    (any && tpck_point_compare(at, &found) == 0))
			continue;
		if (any) {
			fprintf(stderr,
				"transpckpt: step %" PRIu64 " is there in generations %" PRIu64 " and %" PRIu64
				"; say %" PRIu64 ".g%" PRIu64 "\n",
				at->step, found.generation, at->generation, at->step, at->generation);
			return CLI_BAD;
		}
		found = *at;
		any = true;
	}
	if (!any) {
		fprintf(stderr, "transpckpt: there is no checkpoint %s in %s", text, inventory->tiers.tier[0]->root);
		for (size_t t = 1; t < inventory->tiers.count; t++)
			fprintf(stderr, ", %s", inventory->tiers.tier[t]->root);
		fputc('\n', stderr);
		return CLI_BAD;
	}
	*point = found;
	return 0;
}

static bool in_tier(const struct inventory *inventory, size_t tier, const struct tpck_point *point)
{
	for (size_t i = 0; i < inventory->catalog[tier].count; i++)
		if (tpck_point_compare(&inventory->catalog[tier].manifests[i]->point, point) == 0)
			return true;
	return false;
}

static bool is_newest(const struct inventory *inventory, const struct tpck_point *point)
{
	const char *program = "";

	for (size_t i = 0; i < inventory->count; i++)
		if (tpck_point_compare(&inventory->checkpoints[i].point, point) == 0)
			program = inventory->checkpoints[i].program;
	for (size_t i = 0; i < inventory->count; i++)
		if (inventory->checkpoints[i].durable && strcmp(inventory->checkpoints[i].program, program) == 0 &&
		    tpck_point_compare(&inventory->checkpoints[i].point, point) > 0)
			return false;
	return true;
}

/* From every tier that has it. One that is not the newest of all may be the newest of its tier. */
static int remove_point(const struct inventory *inventory, const struct tpck_point *point, bool force)
{
	struct tpck_error err = {0};

	force = force || !is_newest(inventory, point);
	for (size_t t = 0; t < inventory->tiers.count; t++)
		if (in_tier(inventory, t, point) && tpck_retention_remove(inventory->tiers.tier[t], point, force, &err)) {
			fprintf(stderr, "transpckpt: %s%s\n", err.text, err.code == EPERM && !force ? " without --force" : "");
			return CLI_BAD;
		}
	return 0;
}

static int lock_all(const struct inventory *inventory, int locks[TPCK_TIERS_MAX])
{
	struct tpck_error err = {0};

	for (size_t t = 0; t < inventory->tiers.count; t++) {
		if (!inventory->catalog[t].count)
			continue;
		locks[t] = tpck_tier_hold(inventory->tiers.tier[t], TPCK_HOLD_CHANGES, LOCK_WAIT_SEC, &err);
		if (locks[t] < 0) {
			fprintf(stderr, "transpckpt: %s\n", err.text);
			return CLI_BAD;
		}
	}
	return 0;
}

int verb_rm(int argc, char **argv)
{
	struct inventory inventory;
	struct tpck_error err = {0};
	json_object *removed;
	struct cli cli;
	int locks[TPCK_TIERS_MAX] = {-1, -1, -1, -1};
	int rc = cli_options(&cli, argc, argv, usage, CLI_OWN_FORCE);

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
	rc = lock_all(&inventory, locks);
	for (int i = 0; i < cli.count && !rc; i++) {
		struct tpck_point point = {0, 0};

		rc = resolve(&inventory, cli.operands[i], &point);
		if (!rc)
			rc = remove_point(&inventory, &point, cli.force);
		if (rc)
			break;
		if (cli.json) {
			char name[64];

			tpck_checkpoint_name_format(&point, name, sizeof name);
			json_object_array_add(removed, json_object_new_string(name));
		} else {
			printf("removed step %" PRIu64 " of generation %" PRIu64 "\n", point.step, point.generation);
		}
	}
	for (size_t t = 0; t < TPCK_TIERS_MAX; t++)
		if (locks[t] >= 0)
			tpck_tier_release(inventory.tiers.tier[t], locks[t]);
	if (cli.json)
		puts(json_object_to_json_string_ext(removed, JSON_C_TO_STRING_PRETTY));
	json_object_put(removed);
	inventory_free(&inventory);
	return rc;
}
