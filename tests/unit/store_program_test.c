/* SPDX-License-Identifier: Apache-2.0 */
/* Program state, identity texts, the durable interval. */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <unistd.h>

#include "agent/programs/identity_text.h"
#include "runtime/base/identity_names.h"
#include "runtime/policy/interval.h"
#include "runtime/store/file.h"
#include "runtime/store/program.h"
#include "tests/unit/store_tap.h"

static struct tpck_error err;
#define IDENTITY(arguments) "user 0\njob j\nrank 0\nordinal 0\nexecutable /bin/a\nexecutable-digest 1\nfolder /\n" arguments "environment A=1\nenvironment B=2\nlibrary x\n"

static void check_program(void)
{
	char *memory = tap_folder("/dev/shm"), *disk = tap_folder(getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	struct tpck_program *p = NULL, *again = NULL;
	struct tpck_tiers tiers = {.count = 1};
	struct tpck_point a = {1, 100}, b = {1, 90}, c = {2, 95}, d = {2, 90}, e = {3, 95};
	uint64_t died = 0;
	char marker[256], state[256], other[256];

	tpck_durable_tier_open(&tiers.tier[0], disk, "j", TPCK_WRITER_THREADS, &err);
	ok(tpck_program_load(&p, memory, &tiers, "id\n", &err) == 0 && tpck_program_allows(p, &a) == TPCK_ALLOWED,
	   "a program that is not known");
	tpck_program_resumed(p, 2, 95);
	ok(tpck_program_allows(p, &a) == TPCK_ALLOWED_NOT_FENCED && tpck_program_allows(p, &b) == TPCK_ALLOWED &&
		   tpck_program_allows(p, &c) == TPCK_ALLOWED,
	   "a fence forbids what an older generation has beyond it");
	ok(tpck_program_died(p, &b, TPCK_DEATH_NEAR) == 1 && tpck_program_allows(p, &b) == TPCK_ALLOWED, "one death is bad luck");
	ok(tpck_program_died(p, &b, TPCK_DEATH_NEAR) == 2 && tpck_program_allows(p, &b) == TPCK_ALLOWED_NOT_LOOP &&
		   tpck_program_loops(p) == 1,
	   "two are a loop");
	for (uint64_t i = 1; i < TPCK_CRASH_LOOP_STARTS; i++)
		died = tpck_program_died(p, &d, TPCK_DEATH_STARTING);
	ok(died == TPCK_CRASH_LOOP_STARTS - 1 && tpck_program_allows(p, &d) == TPCK_ALLOWED,
	   "deaths on the way there are bad luck for longer");
	tpck_program_died(p, &d, TPCK_DEATH_STARTING);
	ok(tpck_program_allows(p, &d) == TPCK_ALLOWED_NOT_LOOP && tpck_program_loops(p) == 2, "but not for ever");
	tpck_program_refuse(p, &c);
	ok(tpck_program_allows(p, &c) == TPCK_ALLOWED_NOT_REFUSED, "a log that diverged");
	ok(tpck_program_save(p, memory, &tiers, &err) == 0, "saved");
	snprintf(state, sizeof state, "%s/programs/%s.state", memory, p->id);
	unlink(state);
	ok(tpck_program_load(&again, memory, &tiers, "id\n", &err) == 0 && tpck_program_loops(again) == 2 &&
		   tpck_program_allows(again, &a) == TPCK_ALLOWED_NOT_FENCED &&
		   tpck_program_allows(again, &c) == TPCK_ALLOWED_NOT_REFUSED,
	   "read from the store alone");
	tpck_program_died(again, &b, TPCK_DEATH_FAR);
	ok(tpck_program_loops(again) == 0, "progress ends a loop");
	ok(tpck_program_mark(p, 2, memory, &tiers, &err) == 0, "marked");
	snprintf(marker, sizeof marker, "%s/j/programs/%s", disk, p->id);
	snprintf(other, sizeof other, "%s/j/programs/%016" PRIx64 ".names/%s", disk, tpck_identity_names("id\n"), p->id);
	ok(access(marker, F_OK) == 0 && access(other, F_OK) == 0, "the marker is there, and for who has another key");
	ok(tpck_program_marked(p, memory, &tiers) == 2, "of the start's generation");
	unlink(marker);
	ok(tpck_program_mark(p, 3, memory, NULL, &err) == 0 && tpck_program_marked(p, memory, &tiers) == 3 && access(marker, F_OK) != 0,
	   "the next one's in memory counts too");
	ok(tpck_program_mark(p, 3, memory, &tiers, &err) == 0, "and is made in the store");
	tpck_program_resumed(p, 3, 95);
	tpck_program_died(p, &e, TPCK_DEATH_NEAR);
	tpck_program_ended(p, 2);
	ok(tpck_program_allows(p, &e) == TPCK_ALLOWED && tpck_program_died(p, &e, TPCK_DEATH_NEAR) == 2,
	   "an end that is heard of late leaves what is noted of a newer generation");
	ok(tpck_program_allows(p, &b) == TPCK_ALLOWED_NOT_ENDED, "a good end ends all of it");
	ok(tpck_program_unmark(p, memory, &tiers, &err) == 0 && access(marker, F_OK) != 0 && access(other, F_OK) != 0, "the marker is gone");
	tpck_program_free(p);
	tpck_program_free(again);
	tpck_tiers_close(&tiers);
	tpck_folder_remove(memory);
	tpck_folder_remove(disk);
}

static bool says(struct tpck_program *program, uint64_t generation, bool any, const char *expected)
{
	char text[360] = "";
	bool said = tpck_program_say_left(program, generation, any, text, sizeof text);

	return said == (expected != NULL) && strcmp(text, said ? expected : "") == 0;
}

static void check_left(void)
{
	char *memory = tap_folder("/dev/shm");
	struct tpck_program *p = NULL, *again = NULL;
	struct tpck_program_last kept = {.generation = 3, .iterations = 40, .kept = true, .kept_step = 38};
	struct tpck_program_last none = {.generation = 4, .iterations = 1, .why = "its first was not whole yet"}, nothing = {.generation = 5, .why = "no \"room\""};

	ok(tpck_program_load(&p, memory, NULL, "left\n", &err) == 0 && says(p, 0, false, NULL), "a first start has nothing to say");
	ok(says(p, 2, false, "not resuming: the last start left nothing here, and nobody saw it end"), "a start of which nothing is known but that it was there");
	tpck_program_left(p, &kept);
	ok(says(p, 3, false, "not resuming: the last start's snapshot of step 38 is not there any more"), "one whose snapshot is gone");
	tpck_program_left(p, &none);
	tpck_program_left(p, &kept);
	ok(tpck_program_save(p, memory, NULL, &err) == 0 && tpck_program_load(&again, memory, NULL, "left\n", &err) == 0 &&
		   says(again, 4, false, "not resuming: the last start ended after 1 iteration, and left no snapshot: its first was not whole yet"),
	   "one without a snapshot, which an older one's news does not change; read again");
	ok(says(again, 4, true, "not resuming: nothing that earlier starts left may be gone on from"), "what is there and may not be gone on from");
	tpck_program_left(again, &nothing);
	ok(says(again, 5, false, "not resuming: the last start ended before its first iteration did: no \"room\""), "one without an iteration");
	tpck_program_ended(again, 5);
	ok(says(again, 5, false, NULL) && says(again, 6, false, "not resuming: the last start left nothing here, and nobody saw it end"),
	   "one that ended well is no news, one behind it is");
	tpck_program_free(p);
	tpck_program_free(again);
	tpck_folder_remove(memory);
}

static void compare(const char *now, const char *was, enum identity_relation expected, const char *said)
{
	char what[400] = "", text[600];
	enum identity_relation relation = identity_compare(now, was, what, sizeof what);

	snprintf(text, sizeof text, "relation %d: %s", (int)relation, what);
	tap_ok(relation == expected && strcmp(what, said) == 0, said[0] ? said : "the same program", text);
}

static void check_identity(void)
{
	static const char base[] = IDENTITY("argument a\nargument --lr\nargument 1\n");

	compare(base, base, IDENTITY_SAME, "");
	compare(IDENTITY("argument a\nargument --lr\nargument 2\n"), base, IDENTITY_CHANGED,
		"argument 2 is '2', was '1'");
	compare(IDENTITY("argument a\nargument --lr\n"), base, IDENTITY_CHANGED, "argument 2 is not given, was '1'");
	compare(IDENTITY("argument a\nargument --lr\nargument 1\nargument x\n"), base, IDENTITY_CHANGED,
		"argument 3 is 'x', was not given");
	compare(IDENTITY("argument a\nargument /proc/self/exe\n"), IDENTITY("argument a\nargument /proc/version\n"),
		IDENTITY_OTHER, "argument 1 is '/proc/self/exe', was '/proc/version'");
	compare(IDENTITY("argument a\nargument -m\nargument p.x\n"), IDENTITY("argument a\nargument -m\nargument p.y\n"),
		IDENTITY_OTHER, "argument 2 is 'p.x', was 'p.y'");
	compare(IDENTITY("argument a\nargument -m\nargument k\nargument -f\nargument /proc/self/exe\n"),
		IDENTITY("argument a\nargument -m\nargument k\nargument -f\nargument /proc/version\n"), IDENTITY_CHANGED,
		"argument 4 is '/proc/self/exe', was '/proc/version'");
	compare(IDENTITY("argument a\nargument -m\nargument k\nargument /proc/self/exe\n"),
		IDENTITY("argument a\nargument -m\nargument k\nargument /proc/version\n"), IDENTITY_OTHER,
		"argument 3 is '/proc/self/exe', was '/proc/version'");
	compare(IDENTITY("argument a\nargument x.py\nscript-digest 1\nargument 7\n"),
		IDENTITY("argument a\nargument x.py\nscript-digest 1\nargument 8\n"), IDENTITY_CHANGED,
		"argument 2 is '7', was '8'");
	compare(IDENTITY("argument a\nargument x.py\nscript-digest 1\n"),
		IDENTITY("argument a\nargument x.py\nscript-digest 2\n"), IDENTITY_CHANGED,
		"the content of the script in argument 1 is another one than before");
	compare("user 0\nrank 1\n", "user 0\nrank 0\n", IDENTITY_APART, "rank is '1', was '0'");
	compare("executable /a\n", "executable /b\n", IDENTITY_OTHER, "executable is '/a', was '/b'");
	compare("executable-digest 1\n", "executable-digest 2\n", IDENTITY_CHANGED,
		"the executable's content is another one than before");
	compare("environment A=1\nenvironment B=2\n", "environment A=1\nenvironment B=3\n", IDENTITY_CHANGED,
		"environment variable B has another value than before");
	compare("environment-key 1\nenvironment A=1\nenvironment B=2\n", "environment-key 2\nenvironment A=3\nenvironment B=4\n", IDENTITY_CHANGED,
		"values of environment variables cannot be compared: they were noted with another key");
	compare("environment-key 1\nenvironment A=1\nenvironment B=2\n", "environment-key 2\nenvironment A=3\nenvironment C=4\n", IDENTITY_CHANGED,
		"environment variable B is set, was not");
	compare("environment A=1\nenvironment B=2\n", "environment B=2\n", IDENTITY_CHANGED,
		"environment variable A is set, was not");
	compare("environment B=2\n", "environment A=1\nenvironment B=2\n", IDENTITY_CHANGED,
		"environment variable A is not set, was");
	compare("environment A=1\nlibrary x\n", "environment A=1\nlibrary y\n", IDENTITY_CHANGED,
		"library is 'x', was 'y'");
}

static void check_interval(void)
{
	struct tpck_interval_history history = {0};
	struct tpck_interval_terms terms;
	double before = INFINITY;
	bool shorter = true;

	ok(tpck_interval_auto(&history) == 1, "at least a second lies between");
	history.cost_sec = 2;
	ok(fabs(tpck_interval_auto(&history) - sqrt(2 * 2 * 86400.)) < 0.01, "where nothing is known, one failure in a day");
	history.failures = 9;
	history.observed_sec = 1e6 - 86400;
	ok(fabs(tpck_interval_auto(&history) - sqrt(2 * 2 * 1e5)) < 0.01, "Young's interval, the prior counted in");
	for (history.failures = 0; history.failures < 1000; history.failures++) {
		tpck_interval_terms(&history, &terms);
		shorter = shorter && terms.interval < before;
		before = terms.interval;
	}
	ok(shorter, "the more failures in the same time, the shorter");
	history.failures = 3;
	tpck_interval_terms(&history, &terms);
	before = terms.interval;
	history.observed_sec *= 2;
	ok(tpck_interval_auto(&history) > before, "the longer the same failures took, the longer");
	history.observed_sec = 100;
	history.failures = 100000;
	tpck_interval_terms(&history, &terms);
	ok(terms.interval == 20 && terms.formula < 20 && terms.bound == 20, "writing takes at most a tenth of the time");
	history.cost_sec = 0.05;
	ok(tpck_interval_auto(&history) == 1, "and again a second at least");
	history = (struct tpck_interval_history){.cost_sec = -1, .observed_sec = -5};
	ok(tpck_interval_auto(&history) == 1, "nonsense does no harm");
}

/* What TRANSPCKPT_DIR may say in front of a folder is something that can be opened. */
static void check_schemes(void)
{
	struct tpck_settings settings = {.dir = ""};
	char scheme[TPCK_TIER_KIND];
	struct tpck_tiers tiers;
	unsigned schemes = 0;

	for (; tpck_tier_scheme(schemes, scheme); schemes++) {
		snprintf(settings.dir, sizeof settings.dir, "%s:/nonexistent", scheme);
		ok(tpck_tiers_kind(settings.dir) == strlen(scheme) + 1 && tpck_tiers_open(&tiers, &settings, "j", TPCK_WRITER_THREADS, &err) == 0, settings.dir);
		tpck_tiers_close(&tiers);
	}
	ok(schemes >= 2 && !tpck_tiers_kind("none:/a"), "and there are no others");
}

int main(void)
{
	check_program();
	check_left();
	check_identity();
	check_interval();
	check_schemes();
	return tap_done();
}
