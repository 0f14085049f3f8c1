/* SPDX-License-Identifier: Apache-2.0 */
/* A twin, by what it says of itself beside the control page of the process that it follows. */
#include "config.h"

#include "tools/cli/covered.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/store/file.h"
#include "runtime/wire/twin.h"
#include "tools/cli/cli.h"

/* One that is not further behind is as near as it comes. */
enum { NEAR = 3 };
#define NEAR_MS 1000.0

static bool is_there(const struct tpck_twin_says *says)
{
	return says->process > 0 && kill(says->process, 0) == 0;
}

static bool read_says(const struct tpck_session *session, const char *name, struct tpck_twin_says *says)
{
	char path[TPCK_PATH_MAX];
	size_t size;
	char *bytes;
	bool good;

	snprintf(path, sizeof path, "%s/%s", session->path, name);
	if (tpck_file_read(path, 1 << 16, &bytes, &size, NULL))
		return false;
	good = size >= sizeof *says;
	if (good)
		memcpy(says, bytes, sizeof *says);
	free(bytes);
	return good && says->magic == TPCK_TWIN_MAGIC && says->version == TPCK_WIRE_VERSION;
}

/* By how much faster it is than the program, since it began. */
static double catches_up_in(const struct tpck_twin_says *says, const struct tpck_status *status, uint64_t behind)
{
	double past = (double)(tpck_clock_monotonic_ns() - says->begun_ns) / 1e9;
	double closing = past > 0 ? (double)says->proven / past - (status->iteration_ns ? 1e9 / (double)status->iteration_ns : 0) : 0;

	return closing > 0 ? (double)behind / closing : -1;
}

bool cli_twin_of(const struct tpck_session *session, struct cli_twin *twin)
{
	const struct tpck_status *status = &session->control->status;
	struct tpck_twin_says says = {0}, second = {0};
	bool first = read_says(session, TPCK_TWIN_FILE, &says), seconds = read_says(session, TPCK_TWIN_SECOND_FILE, &second);
	uint64_t behind;

	*twin = (struct cli_twin){.uncovered_sec = -1};
	if (!first && !seconds)
		return false;
	twin->takeovers = second.takeovers > says.takeovers ? second.takeovers : says.takeovers;
	/* The nearer one would take over. */
	if (is_there(&says) && is_there(&second))
		twin->other = says.proven < second.proven ? says.process : second.process;
	if (is_there(&second) && (!is_there(&says) || twin->other == says.process))
		says = second;
	twin->there = is_there(&says);
	if (!twin->there)
		return true;
	twin->process = says.process;
	twin->step = says.step;
	twin->proven = says.proven;
	twin->lag = status->boundaries > twin->proven ? status->boundaries - twin->proven : 0;
	twin->lag_ms = (double)(twin->lag * status->iteration_ns) / 1e6;
	/* A twin that was stopped has not looked for a while. */
	behind = twin->step > status->last_step ? twin->step : status->last_step;
	behind = behind > twin->proven ? behind - twin->proven : 0;
	twin->covers = behind <= NEAR || (double)(behind * status->iteration_ns) / 1e6 < NEAR_MS;
	twin->uncovered_sec = twin->covers ? 0 : catches_up_in(&says, status, behind);
	return true;
}

void cli_twin_text(const struct cli_twin *twin, char *text, size_t size)
{
	char uncovered[80] = "", other[60] = "";

	if (!twin->there) {
		snprintf(text, size, "none now: nobody would take over; takeovers so far: %u", twin->takeovers);
		return;
	}
	if (!twin->covers && twin->uncovered_sec < 0)
		snprintf(uncovered, sizeof uncovered, "; uncovered, and it does not come nearer");
	else if (!twin->covers)
		snprintf(uncovered, sizeof uncovered, "; uncovered for about %s more", cli_span(twin->uncovered_sec));
	if (twin->other)
		snprintf(other, sizeof other, "; process %d is another twin", twin->other);
	snprintf(text, size, "process %d has repeated %" PRIu64 " iterations, and is %" PRIu64 " (%s) behind%s%s; takeovers so far: %u", twin->process,
		 twin->proven, twin->lag, cli_span(twin->lag_ms / 1e3), uncovered, other, twin->takeovers);
}
