/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of ranks: by the leader of all of them, and by each agent of its own. */
#include "config.h"

#include "agent/session/ranks_here.h"
#include "runtime/peer/roll.h"
#include "tests/unit/store_tap.h"

enum { WORLD = 3 };
static struct tpck_error err;

static char *identity_of(uint32_t rank, const char *argument)
{
	static char text[4][200];
	static unsigned turn;

	snprintf(text[turn % 4], sizeof text[0], "user 0\njob mine\nrank %u\nordinal 0\nargument ./train\nargument %s\n", rank, argument);
	return text[turn++ % 4];
}

static int enter(struct tpck_roll *roll, uint32_t rank, const char *argument, const char *form, bool asks)
{
	struct tpck_identity_key key;

	tpck_identity_key(identity_of(rank, argument), &key);
	return tpck_roll_enter(roll, rank, 0, &key, form, asks);
}

/* A checkpoint of all ranks, the last one's as it was started with `last`. */
static struct tpck_manifest *manifest_of(const char *last)
{
	struct tpck_manifest *manifest = calloc(1, sizeof *manifest);

	manifest->world = WORLD;
	manifest->member_count = WORLD;
	manifest->members = calloc(WORLD, sizeof *manifest->members);
	for (uint32_t r = 0; r < WORLD; r++) {
		manifest->members[r].rank = r;
		manifest->members[r].resumable = true;
		manifest->members[r].identity = strdup(identity_of(r, r + 1 < WORLD ? "400" : last));
	}
	return manifest;
}

static void check_roll(void)
{
	struct tpck_roll *roll = tpck_roll_new(WORLD), *copy;
	struct tpck_manifest *same = manifest_of("400"), *other = manifest_of("401");

	enter(roll, 0, "400", "alike", true);
	enter(roll, 1, "400", "alike", true);
	ok(!tpck_roll_copy(roll), "no identities are compared before all are known");
	enter(roll, 2, "400", "alike", true);
	ok(tpck_roll_may_take(roll, same), "a checkpoint of the same identities is taken");
	ok(!tpck_roll_may_take(roll, other), "one is not where a single character of one rank's identity differs");
	copy = tpck_roll_copy(roll);
	enter(roll, 2, "401", "changed", true);
	ok(tpck_roll_may_take(copy, same) && tpck_roll_may_take(roll, other) && !tpck_roll_may_take(roll, same),
	   "one that comes again counts as what it is now, but for a copy from before");
	ok(tpck_roll_forms(roll)->count == 2 && tpck_roll_is(roll, 0, 0, 0) && tpck_roll_is(roll, 2, 0, 1) && !tpck_roll_is(roll, 2, 0, 0) &&
		   !tpck_roll_is(roll, 0, 1, 0) && !tpck_roll_is(roll, WORLD, 0, 0),
	   "forms are kept once each");
	same->members[1].resumable = false;
	ok(!tpck_roll_may_take(copy, same), "nor is one that cannot be resumed");
	tpck_roll_free(copy);
	tpck_roll_free(roll);
	tpck_manifest_free(same);
	tpck_manifest_free(other);
}

static void check_counts(void)
{
	struct tpck_roll *roll = tpck_roll_new(WORLD);

	for (uint32_t r = 0; r < WORLD; r++)
		enter(roll, r, "400", "alike", r != 1);
	ok(tpck_roll_asking(roll) == 2 && tpck_roll_begun(roll) == 1, "who asks to go on is counted");
	tpck_roll_leave(roll, 1);
	tpck_roll_leave(roll, 1);
	ok(tpck_roll_asking(roll) == 2 && tpck_roll_begun(roll) == 0, "and not once its agent is gone");
	enter(roll, 1, "400", "alike", true);
	enter(roll, 1, "400", "alike", true);
	ok(tpck_roll_asking(roll) == 3, "and once where it comes twice");
	ok(!tpck_roll_ended(roll, 0, true) && !tpck_roll_ended(roll, 1, false) && !tpck_roll_ended(roll, 2, true) && !tpck_roll_ended(roll, 2, true),
	   "one that failed is no end of all");
	ok(tpck_roll_ended(roll, 1, true), "all that ended well is");
	tpck_roll_free(roll);
}

static void check_here(void)
{
	static const uint32_t came[] = {99999, 7, 8, 0, 50000, 7};
	struct ranks_here here = {0};
	struct live *one = (struct live *)&here;
	bool sorted = true;

	for (size_t i = 0; i < sizeof came / sizeof *came; i++)
		ranks_here_add(&here, came[i]);
	ranks_here_find(&here, 50000)->live = one;
	for (uint32_t i = 1; i < here.count; i++)
		sorted = sorted && here.row[i - 1].rank < here.row[i].rank;
	ok(here.count == 5 && sorted, "ranks that are here are in order, each once");
	ok(ranks_here_find(&here, 50000)->live == one && !ranks_here_find(&here, 7)->live && !ranks_here_find(&here, 9), "and are found");
	ranks_here_add(&here, 3);
	ok(ranks_here_find(&here, 50000)->live == one && here.row[0].rank == 0 && here.row[1].rank == 3, "whatever comes between");
	ranks_here_free(&here);
}

int main(void)
{
	check_roll();
	check_counts();
	check_here();
	return tap_done();
}
