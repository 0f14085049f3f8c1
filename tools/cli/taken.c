/* SPDX-License-Identifier: Apache-2.0 */
/* transpckpt show --files: which files are taken when they are written, and why (runtime/view/rules.h). */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/view/learnt_names.h"
#include "tools/cli/cli.h"

static int by_name(const FTSENT **a, const FTSENT **b)
{
	return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* The patterns that jobs have learnt, while their tables are there. */
struct known {
	struct tpck_view_learnt *patterns;
	uint32_t count;
};

static int add_known(struct cli *cli, const char *job, void *context)
{
	struct known *known = context;
	char folder[TPCK_PATH_MAX];
	struct tpck_view_learnt *more;
	struct tpck_view *view;
	uint32_t count;

	if (tpck_path_join(folder, sizeof folder, cli->shm, job) || tpck_view_map(folder, false, &view))
		return 0;
	count = atomic_load_explicit(&view->learnt, memory_order_acquire);
	/* What one look takes of several jobs. */
	more = count && count <= TPCK_VIEW_LEARNT - known->count ? realloc(known->patterns, (known->count + count) * sizeof *more) : NULL;
	if (more) {
		memcpy(more + known->count, view->pattern, count * sizeof *more);
		known->patterns = more;
		known->count += count;
	}
	tpck_view_unmap(view);
	return 0;
}

/* The last part is not followed: a link is not the file. */
static enum tpck_rule rule_of(const struct tpck_settings *settings, const struct known *known, const char *path, char *absolute,
			      char *glob, size_t size)
{
	char folder[TPCK_PATH_MAX], real[TPCK_PATH_MAX], *found;
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	struct stat parent, there;
	enum tpck_rule rule, place;
	bool exists;
	int fd;

	snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + (slash == path) : 1, slash ? path : ".");
	*glob = '\0';
	found = realpath(folder, NULL);
	if (!found || strlen(found) + strlen(name) + 2 > TPCK_PATH_MAX) {
		free(found);
		snprintf(absolute, TPCK_PATH_MAX, "%s", path);
		return TPCK_RULE_READONLY;
	}
	strcpy(real, strcpy(absolute, found));
	free(found);
	if (strcmp(absolute, "/") != 0)
		strcat(absolute, "/");
	strcat(absolute, name);
	rule = tpck_rules_name(settings, absolute, false, glob, size);
	if (rule == TPCK_RULE_UNKNOWN && tpck_rules_auto(settings))
		rule = tpck_learnt_rule(known->patterns, known->count, real, name);
	fd = tpck_rule_takes(rule) ? open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
	if (fd < 0)
		return tpck_rule_takes(rule) ? TPCK_RULE_READONLY : rule;
	place = tpck_rules_place(fd, name, false, &parent, &there, &exists);
	close(fd);
	if (tpck_rule_takes(place))
		return rule;
	*glob = '\0';
	return place;
}

static void show_file(const struct cli *cli, const struct known *known, const char *path, json_object *rows, unsigned *shown)
{
	char absolute[TPCK_PATH_MAX + 1], glob[TPCK_SETTING_TEXT_MAX], why[TPCK_SETTING_TEXT_MAX + 80];
	enum tpck_rule rule;

	snprintf(absolute, sizeof absolute, "%s", path);
	rule = rule_of(&cli->settings, known, path, absolute, glob, sizeof glob);
	if (rows) {
		json_object *row = json_object_new_object();

		json_object_object_add(row, "path", json_object_new_string(absolute));
		json_object_object_add(row, "taken", json_object_new_boolean(tpck_rule_takes(rule)));
		json_object_object_add(row, "why", json_object_new_string(tpck_rule_text(rule)));
		if (*glob)
			json_object_object_add(row, "glob", json_object_new_string(glob));
		json_object_array_add(rows, row);
		return;
	}
	if (!(*shown)++)
		printf("%-5s  %-58s  %s\n", "TAKEN", "WHY", "PATH");
	snprintf(why, sizeof why, "%s%s%s%s", tpck_rule_text(rule), *glob ? " (" : "", glob, *glob ? ")" : "");
	printf("%-5s  %-58s  %s\n", tpck_rule_takes(rule) ? "yes" : "no", why, absolute);
}

int cli_show_files(struct cli *cli)
{
	static char here[] = ".";
	char *only[] = {here, NULL};
	char **paths = cli->count ? cli->operands : only;
	json_object *rows = cli->json ? json_object_new_array() : NULL;
	int rc = CLI_GOOD;
	struct known known = {0};
	unsigned shown = 0;
	FTSENT *entry;
	FTS *walk = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, by_name);

	if (!walk) {
		fprintf(stderr, "transpckpt: cannot walk %s: %s\n", paths[0], strerror(errno));
		rc = CLI_BAD;
	}
	(void)cli_each_job(cli, add_known, &known);
	while (walk && (entry = fts_read(walk))) {
		/* A file that is not there yet may be asked for as well. */
		bool named = entry->fts_level == FTS_ROOTLEVEL, missing = entry->fts_info == FTS_NS && entry->fts_errno == ENOENT;

		if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR || (entry->fts_info == FTS_NS && !missing)) {
			fprintf(stderr, "transpckpt: cannot look at %s: %s\n", entry->fts_path, strerror(entry->fts_errno));
			rc = CLI_BAD;
		} else if (entry->fts_info == FTS_F || (named && missing) || (named && entry->fts_info != FTS_D && entry->fts_info != FTS_DP)) {
			show_file(cli, &known, entry->fts_path, rows, &shown);
		}
	}
	if (walk)
		fts_close(walk);
	free(known.patterns);
	if (rows) {
		puts(json_object_to_json_string_ext(rows, JSON_C_TO_STRING_PRETTY));
		json_object_put(rows);
	} else if (!shown && rc == CLI_GOOD) {
		puts("no files here");
	}
	return rc;
}
