/* SPDX-License-Identifier: Apache-2.0 */
/* Options and jobs, the same for every verb; numbers for people. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/tier_settings.h"
#include "tools/cli/cli.h"

extern char **environ;

static bool number_parse(const char *text, double least, double most, double *number)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end || !(value >= least && value <= most)) {
		fprintf(stderr, "transpckpt: '%.100s' is no number from %g to %g\n", text, least, most);
		return false;
	}
	*number = value;
	return true;
}

int cli_options(struct cli *cli, int argc, char **argv, const char *usage, unsigned own)
{
	const struct option options[] = {
		{"json", no_argument, NULL, 'J'}, {"job", required_argument, NULL, 'j'},
		{"dir", required_argument, NULL, 'P'}, {"help", no_argument, NULL, 'h'},
		{"force", no_argument, NULL, 'f'}, {"state", no_argument, NULL, 's'},
		{"files", no_argument, NULL, 'F'}, {"output", required_argument, NULL, 'o'},
		{"delay", required_argument, NULL, 'D'}, {"times", required_argument, NULL, 'n'},
		{"device", no_argument, NULL, 'V'}, {"wait", required_argument, NULL, 'w'}, {NULL, 0, NULL, 0},
	};
	const char *letters = own & CLI_OWN_FORCE ? "j:d:fh" : own & CLI_OWN_OUTPUT ? "j:d:o:h" : own & CLI_OWN_TIMES ? "j:d:n:h" : "j:d:h";
	int option;

	memset(cli, 0, sizeof *cli);
	cli->wait = 10;
	cli->complaints = tpck_settings_read(&cli->settings, environ);
	if (cli->settings.job[0])
		cli->job = cli->settings.job;
	while ((option = getopt_long(argc, argv, letters, options, NULL)) != -1) {
		if (option == 'J') {
			cli->json = true;
		} else if (option == 'j') {
			cli->job = optarg;
		} else if (option == 'o' && own & CLI_OWN_OUTPUT) {
			cli->output = optarg;
		} else if ((option == 'D' || option == 'd') && own & CLI_OWN_TIMES) {
			if (!number_parse(optarg, 0.05, 86400, &cli->delay))
				return CLI_USAGE;
		} else if (option == 'n' && own & CLI_OWN_TIMES) {
			double times;

			if (!number_parse(optarg, 1, 1e9, &times))
				return CLI_USAGE;
			cli->times = (long)times;
		} else if (option == 'V' && own & CLI_OWN_DEVICE) {
			cli->device = true;
		} else if (option == 'w' && own & CLI_OWN_DEVICE) {
			if (!number_parse(optarg, 0.1, 3600, &cli->wait))
				return CLI_USAGE;
		} else if (option == 'P' || option == 'd') {
			snprintf(cli->settings.dir, sizeof cli->settings.dir, "%s", optarg);
		} else if (option == 'f' && own & CLI_OWN_FORCE) {
			cli->force = true;
		} else if (option == 's' && own & CLI_OWN_STATE) {
			cli->state = true;
		} else if (option == 'F' && own & CLI_OWN_FILES) {
			cli->files = true;
		} else {
			fputs(usage, option == 'h' ? stdout : stderr);
			return option == 'h' ? -1 : CLI_USAGE;
		}
	}
	if (own & CLI_OWN_JOB && optind < argc)
		cli->job = argv[optind++];
	if (cli->job && !tpck_job_name_valid(cli->job)) {
		fprintf(stderr, "transpckpt: '%.100s' cannot be a job's name\n", cli->job);
		return CLI_USAGE;
	}
	cli->count = argc - optind;
	cli->operands = argv + optind;
	tpck_settings_shm(&cli->settings, cli->shm, sizeof cli->shm);
	tpck_settings_store(&cli->settings, cli->store, sizeof cli->store);
	return CLI_GOOD;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Adds the folders of `path` to a list without doubles. */
static void add_jobs(const char *path, char ***jobs, size_t *count)
{
	DIR *folder = opendir(path);
	struct dirent *entry;

	while (folder && (entry = readdir(folder))) {
		bool known = !tpck_job_name_valid(entry->d_name) || entry->d_type == DT_REG;
		char **grown;

		for (size_t i = 0; i < *count && !known; i++)
			known = strcmp((*jobs)[i], entry->d_name) == 0;
		if (known)
			continue;
		grown = reallocarray(*jobs, *count + 1, sizeof *grown);
		if (!grown)
			break;
		*jobs = grown;
		(*jobs)[*count] = strdup(entry->d_name);
		*count += (*jobs)[*count] != NULL;
	}
	if (folder)
		closedir(folder);
}

int cli_each_job(struct cli *cli, int (*visit)(struct cli *cli, const char *job, void *context), void *context)
{
	char **jobs = NULL, kind[TPCK_TIER_KIND], path[TPCK_PATH_MAX];
	size_t count = 0;
	int rc = 0;

	if (cli->job)
		return visit(cli, cli->job, context);
	add_jobs(cli->shm, &jobs, &count);
	for (unsigned t = 0; tpck_settings_tier(&cli->settings, t, kind, path, sizeof path); t++)
		add_jobs(path, &jobs, &count);
	if (count)
		qsort(jobs, count, sizeof *jobs, by_name);
	for (size_t i = 0; i < count; i++) {
		if (!rc)
			rc = visit(cli, jobs[i], context);
		free(jobs[i]);
	}
	free(jobs);
	return rc;
}

static char *next_buffer(void)
{
	static char ring[8][32];
	static unsigned turn;

	return ring[turn++ % 8];
}

const char *cli_bytes(uint64_t bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	char *text = next_buffer();
	double value = (double)bytes;
	unsigned unit = 0;

	while (value >= 1024 && unit < 4) {
		value /= 1024;
		unit++;
	}
	snprintf(text, 32, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
	return text;
}

const char *cli_span(double seconds)
{
	char *text = next_buffer();

	if (seconds < 100)
		snprintf(text, 32, seconds < 10 ? "%.1f s" : "%.0f s", seconds);
	else if (seconds < 6000)
		snprintf(text, 32, "%.0f min", seconds / 60);
	else if (seconds < 48 * 3600)
		snprintf(text, 32, "%.1f h", seconds / 3600);
	else
		snprintf(text, 32, "%.0f days", seconds / 86400);
	return text;
}

bool cli_library(const char *name, char path[static TPCK_PATH_MAX])
{
	static const char *const places[] = {".libs", "../lib"};
	char self[TPCK_PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", self, sizeof self - 16);

	while (length > 0 && self[length - 1] != '/')
		length--;
	for (size_t i = 0; length > 0 && i < sizeof places / sizeof *places; i++) {
		strcpy(self + length, places[i]);
		if (tpck_path_join(path, TPCK_PATH_MAX, self, name) == 0 && access(path, R_OK) == 0)
			return true;
	}
	return tpck_path_join(path, TPCK_PATH_MAX, LIBDIR, name) == 0 && access(path, R_OK) == 0;
}

int cli_point_parse(const char *text, struct tpck_point *point)
{
	struct tpck_point parsed = {0, 0};
	char *end;

	if (tpck_checkpoint_name_parse(text, point) == 0)
		return 0;
	errno = 0;
	parsed.step = strtoull(text, &end, 10);
	if (end == text || errno || text[0] == '-')
		return -EINVAL;
	if (strncmp(end, ".g", 2) == 0 && end[2]) {
		parsed.generation = strtoull(end + 2, &end, 10);
		if (errno || parsed.generation == 0)
			return -EINVAL;
	}
	if (*end)
		return -EINVAL;
	*point = parsed;
	return 0;
}
