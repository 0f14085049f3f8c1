/* SPDX-License-Identifier: Apache-2.0 */
/* Which names are checkpoints' by themselves; and that what is asked first, by two parts of a path, never says no too soon. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "runtime/view/rules.h"
#include "tests/unit/store_tap.h"

static const struct {
	const char *path;
	enum tpck_rule rule;
} cases[] = {
	{"a.pt", TPCK_RULE_NAME}, {".pt", TPCK_RULE_NAME}, {"pt", TPCK_RULE_UNKNOWN}, {"a.pt.", TPCK_RULE_NAME}, {"a.ptx", TPCK_RULE_UNKNOWN},
	{"a.pt.b.pt", TPCK_RULE_NAME}, {"a.pth", TPCK_RULE_NAME}, {"model.bin", TPCK_RULE_NAME}, {"model-1.bin", TPCK_RULE_NAME},
	{"model.bin.old", TPCK_RULE_UNKNOWN}, {"amodel.bin", TPCK_RULE_UNKNOWN}, {"modelbin", TPCK_RULE_UNKNOWN},
	{"random_states_0.pkl", TPCK_RULE_NAME}, {"latest", TPCK_RULE_NAME}, {"latest2", TPCK_RULE_UNKNOWN}, {"DONE_1", TPCK_RULE_NAME},
	{"DONE", TPCK_RULE_UNKNOWN}, {".metadata", TPCK_RULE_NAME}, {".metadata.0", TPCK_RULE_NAME}, {".metadat", TPCK_RULE_UNKNOWN},
	{"x.log", TPCK_RULE_NEVER}, {"x.sqlite3", TPCK_RULE_NEVER}, {"x.sqlite", TPCK_RULE_NEVER}, {"x.db-wal", TPCK_RULE_NEVER},
	{"x.db", TPCK_RULE_NEVER}, {"x.dbx", TPCK_RULE_UNKNOWN}, {"events.out.tfevents.1", TPCK_RULE_NEVER}, {"x.o", TPCK_RULE_NEVER},
	{"x.so.1", TPCK_RULE_UNKNOWN}, {"\xc3\xa4.pt", TPCK_RULE_NAME}, {"\xff\xfe.pt", TPCK_RULE_NAME}, {"x.txt", TPCK_RULE_UNKNOWN},
	{"checkpoint-1/x", TPCK_RULE_FOLDER}, {"checkpoint-/x", TPCK_RULE_UNKNOWN}, {"checkpoint-x1/x", TPCK_RULE_UNKNOWN},
	{"checkpoint-12a/x", TPCK_RULE_FOLDER}, {"step7/x", TPCK_RULE_FOLDER}, {"step/x", TPCK_RULE_UNKNOWN}, {"step_7/y/x", TPCK_RULE_UNKNOWN},
	{"step_7/x.log", TPCK_RULE_NEVER}, {"steps7/x", TPCK_RULE_UNKNOWN}, {"global_step3/x.pt", TPCK_RULE_NAME},
};

int main(void)
{
	struct tpck_settings settings = {.files = "auto"};
	char path[256], detail[512] = "", hasty[512] = "";

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		enum tpck_rule rule;

		snprintf(path, sizeof path, "/home/user/run/%s", cases[i].path);
		rule = tpck_rules_name(&settings, path, false, NULL, 0);
		if (rule != cases[i].rule)
			snprintf(detail + strlen(detail), sizeof detail - strlen(detail), "%s: %s; ", cases[i].path, tpck_rule_text(rule));
		if (tpck_rule_takes(rule) && (!tpck_rules_may_recognise(&settings, cases[i].path) || !tpck_rules_may_recognise(&settings, path)))
			snprintf(hasty + strlen(hasty), sizeof hasty - strlen(hasty), "%s; ", cases[i].path);
	}
	tap_ok(!*detail, "each name is what it is", detail);
	tap_ok(!*hasty, "what is a checkpoint's name may be one by its last two parts", hasty);
	tap_ok(!tpck_rules_may_recognise(&settings, "made/x.txt") && !tpck_rules_may_recognise(&settings, "/tmp/made/x.txt"),
	       "what none is by them needs no folder", NULL);
	tap_ok(tpck_rules_may_recognise(&settings, "x.txt") && tpck_rules_may_recognise(&settings, "./x.txt") &&
		       tpck_rules_may_recognise(&settings, "../x.txt") && tpck_rules_may_recognise(&settings, "a//x.txt"),
	       "where the text does not say which folder it is, it may be", NULL);
	strcpy(settings.files, "auto:*.txt");
	tap_ok(tpck_rules_may_recognise(&settings, "made/x.txt"), "with a glob of the user's, any may be", NULL);
	return tap_done();
}
