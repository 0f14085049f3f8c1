/* SPDX-License-Identifier: Apache-2.0 */
/* What a start tells of itself, so that a later one can choose how to go on (doc/record.md, "Two ways to go on"). */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/engine/agent_link.h"
#include "runtime/engine/engine_private.h"
#include "runtime/files/files.h"

static struct tpck_engine *const engine = &tpck_engine;

void tpck_begun_boundary(uint64_t now)
{
	struct tpck_status *status = &engine->control->status;
	struct tpck_begun begun = {.took_ns = now - engine->start_ns};

	if (engine->last_boundary_ns) {
		status->lived_iterations++;
		status->lived_ns += now - engine->last_boundary_ns;
		return;
	}
	begun.loads = tpck_files_loaded(begun.load, TPCK_BEGUN_LOADS);
	if (!engine->control->parent_generation)
		tpck_agent_send(TPCK_MSG_BEGUN, &begun, sizeof begun);
}

void tpck_begun_forward(const struct tpck_thread *self)
{
	if (tpck_forward_iteration(self) >= 2)
		engine->first_forward_ns = tpck_clock_monotonic_ns();
}

uint64_t tpck_begun_limit_ns(void)
{
	double limit = strcmp(engine->settings.resume, "forward") == 0 ? 0 : engine->settings.forward_max_sec;

	return limit > 0 && limit < 1e9 ? (uint64_t)(limit * 1e9) : 0;
}

bool tpck_begun_is_long(char *why, size_t size)
{
	uint64_t limit = tpck_begun_limit_ns(), wall = tpck_forward_wall_ns(), expected = engine->welcome.expected_ns;

	/* What the first run took is more than this one does. */
	if (!limit || wall <= limit || (expected && expected <= limit))
		return false;
	if (expected)
		snprintf(why, size, "it takes some %.3g s to get there, and TRANSPCKPT_FORWARD_MAX_SEC is %.3g", (double)expected / 1e9, (double)limit / 1e9);
	else
		snprintf(why, size, "the first run took %.3g s to get there, and TRANSPCKPT_FORWARD_MAX_SEC is %.3g", (double)wall / 1e9, (double)limit / 1e9);
	return true;
}
