/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: lines of a configuration file, and what follows from them. An input is such lines; what a line gives in the
 * environment is the same. */
#include "config.h"

#include "tests/fuzz/fuzz.h"

#include "runtime/base/log.h"
#include "runtime/base/settings.h"
#include "runtime/base/tier_settings.h"
#include "runtime/view/rules.h"

static void look_at(const struct tpck_settings *settings)
{
	char kind[TPCK_TIER_KIND], path[TPCK_SETTING_TEXT_MAX];
	unsigned tiers = 0;

	while (tpck_settings_tier(settings, tiers, kind, path, sizeof path)) {
		FUZZ_HOLDS(*path && strlen(path) < sizeof path && strlen(kind) < sizeof kind);
		tiers++;
	}
	FUZZ_HOLDS(tiers <= TPCK_TIERS_MAX);
	tpck_settings_shared_tier(settings, path, sizeof path);
	tpck_settings_store(settings, path, sizeof path);
	tpck_settings_shm(settings, path, sizeof path);
}

/* Settings that are lists of globs and folders. */
static void look_at_files(const struct tpck_settings *settings)
{
	static const char *const paths[] = {"/a/model.pt", "/a/checkpoint-7/x", "/tmp/.tmpAbCdEf", "/x"};
	char glob[40];

	for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
		enum tpck_rule rule = tpck_rules_name(settings, paths[i], i & 1, glob, sizeof glob);

		FUZZ_HOLDS(strlen(glob) < sizeof glob && tpck_rule_text(rule));
		(void)tpck_rules_unsure(rule, glob, paths[i]);
		(void)tpck_rules_excepted(settings, paths[i]);
		(void)tpck_rules_may_be(settings, paths[i]);
		(void)tpck_rules_may_recognise(settings, paths[i]);
	}
	(void)tpck_rules_auto(settings);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tpck_settings settings = {.dir = ""};
	struct fuzz_input input = {data, size};
	char *text = fuzz_text(&input, size), *line;

	/* Complaints are lines for people. */
	(void)tpck_log_configure("none");
	for (const struct tpck_setting_row *row = tpck_setting_rows; row->name; row++)
		if (row->standard[0])
			FUZZ_HOLDS(tpck_settings_parse(row, row->standard, &settings) == 0);
	(void)tpck_settings_parse_lines(&settings, text, "input");
	(void)tpck_settings_settle(&settings);
	look_at(&settings);
	look_at_files(&settings);
	free(text);
	/* A job's name is a folder's. */
	input = (struct fuzz_input){data, size};
	line = fuzz_line(&input, '\n');
	if (line) {
		tpck_settings_job_clean(line);
		FUZZ_HOLDS(!strchr(line, '/') && line[0] != '.');
		free(line);
	}
	return 0;
}
