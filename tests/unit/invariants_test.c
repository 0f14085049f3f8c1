/* SPDX-License-Identifier: Apache-2.0 */
/* What stops a takeover. */
#include "config.h"

#include <string.h>

#include "agent/session/invariants.h"
#include "runtime/base/error.h"
#include "tests/unit/store_tap.h"

enum { WORLD = 4 };

static struct invariant_rank ranks[WORLD + 1];
static struct tpck_error err;

static void begin(void)
{
	for (uint32_t i = 0; i < WORLD; i++)
		ranks[i] = (struct invariant_rank){.rank = i, .world = WORLD, .has_state = true, .committed = true, .point = {3, 70}};
}

/* Whether it is stopped by a sentence that begins so. */
static bool stopped(size_t count, const char *by)
{
	char why[200] = "";
	bool holds = invariants_hold(ranks, count, false, why, sizeof why);

	begin();
	return !holds && strncmp(why, by, strlen(by)) == 0;
}

int main(void)
{
	char why[200];

	begin();
	ok(invariants_hold(ranks, WORLD, false, why, sizeof why), "four ranks go on");
	ok(stopped(WORLD - 1, "I1: rank 3 of 4 is missing"), "one has not come");
	ok(invariants_hold(ranks, WORLD - 1, true, why, sizeof why), "which is on another node");
	ranks[2].world = 8;
	ok(stopped(WORLD, "I1: rank 2 of 8"), "one is of another job");
	ranks[1].rank = 4;
	ok(stopped(WORLD, "I1: rank 4 of 4"), "a rank that there cannot be");
	ranks[WORLD] = ranks[1];
	ok(stopped(WORLD + 1, "I2: more than one process is rank 1"), "two processes are one rank");
	ranks[WORLD] = ranks[1];
	ranks[WORLD].ordinal = 1;
	ok(invariants_hold(ranks, WORLD + 1, false, why, sizeof why), "a rank's second program is another one");
	ranks[3].former = 77;
	ok(stopped(WORLD, "I2: process 77, which was rank 3, is still there"), "one that was to be gone is there");
	ranks[0].has_state = false;
	ok(stopped(WORLD, "I3: rank 0's snapshot of step 70"), "a snapshot is missing");
	ranks[2].point.step = 71;
	ok(stopped(WORLD, "I4: rank 2 would go on from step 71, rank 0 from step 70"), "two steps");
	ranks[2].point.generation = 4;
	ok(stopped(WORLD, "I4:"), "two runs' steps of one number");
	ranks[1].committed = false;
	ok(stopped(WORLD, "I4: not all ranks have committed step 70"), "a step that only some have");
	return tap_done();
}
