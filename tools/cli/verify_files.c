/* SPDX-License-Identifier: Apache-2.0 */
/* transpckpt verify --files: whether the program's own files are what was saved. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/store/sums.h"
#include "runtime/store/tiers.h"
#include "tools/cli/cli.h"

struct verifying {
	struct cli *cli;
	const char *job;
	json_object *json, *faults;
	size_t good, bad, changed;
};

static void fault(void *context, const struct tpck_error *err)
{
	struct verifying *v = context;

	json_object_array_add(v->faults, json_object_new_string(err->text));
}

static bool named(const struct cli *cli, const char *path)
{
	char absolute[PATH_MAX];

	for (int i = 0; i < cli->count; i++)
		if (realpath(cli->operands[i], absolute) && strcmp(absolute, path) == 0)
			return true;
	return cli->count == 0;
}

static void tell(struct verifying *v, const struct tpck_sums *sums, const char *state)
{
	if (v->json) {
		json_object *row = json_object_new_object();

		json_object_object_add(row, "job", json_object_new_string(v->job));
		json_object_object_add(row, "path", json_object_new_string(sums->path));
		json_object_object_add(row, "state", json_object_new_string(state));
		json_object_object_add(row, "bytes", json_object_new_uint64(sums->bytes));
		json_object_object_add(row, "faults", v->faults);
		json_object_array_add(v->json, row);
		return;
	}
	for (size_t i = 0; i < json_object_array_length(v->faults); i++)
		puts(json_object_get_string(json_object_array_get_idx(v->faults, i)));
	json_object_put(v->faults);
	printf("%s: %s, %s\n", sums->path, state, cli_bytes(sums->bytes));
}

static int verify_one(void *context, struct tpck_sums *sums)
{
	struct verifying *v = context;
	struct tpck_error err = {0};
	struct stat found;
	long faults = 0;
	int fd;

	if (!named(v->cli, sums->path))
		return 0;
	v->faults = json_object_new_array();
	fd = open(sums->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &found)) {
		tpck_error_set(&err, errno, "opening %s", sums->path);
		fault(v, &err);
		faults = 1;
	} else if (!tpck_sums_of(sums, &found)) {
		v->changed++;
		close(fd);
		tell(v, sums, "changed since it was saved");
		return 0;
	} else {
		faults = tpck_sums_check(sums, fd, fault, v, &err);
	}
	/* Somebody may have written to it meanwhile, in place. */
	if (faults && fd >= 0 && !fstat(fd, &found) && !tpck_sums_of(sums, &found))
		faults = 0;
	if (fd >= 0)
		close(fd);
	v->bad += faults != 0;
	v->good += faults == 0;
	tell(v, sums, faults ? "BAD" : "good");
	return faults < 0 ? (int)faults : 0;
}

static int verify_job(struct cli *cli, const char *job, void *context)
{
	struct verifying *v = context;
	struct tpck_error err = {0};
	struct tpck_tiers tiers;
	int rc;

	(void)cli;
	v->job = job;
	rc = tpck_tiers_open(&tiers, &v->cli->settings, job, TPCK_WRITER_THREADS, &err);
	if (!rc) {
		rc = tpck_sums_each(tiers.tier[0], verify_one, v, &err);
		tpck_tiers_close(&tiers);
	}
	if (rc)
		fprintf(stderr, "transpckpt: %s\n", err.text);
	return rc ? CLI_BAD : 0;
}

int cli_verify_files(struct cli *cli)
{
	struct verifying v = {.cli = cli, .json = cli->json ? json_object_new_array() : NULL};
	int rc = cli_each_job(cli, verify_job, &v);

	if (v.json) {
		puts(json_object_to_json_string_ext(v.json, JSON_C_TO_STRING_PRETTY));
		json_object_put(v.json);
	}
	if (!rc && cli->count && !v.good && !v.bad && !v.changed) {
		fprintf(stderr, "transpckpt: no digests are known of what is named\n");
		rc = CLI_BAD;
	}
	return rc ? rc : v.bad ? CLI_BAD : CLI_GOOD;
}
