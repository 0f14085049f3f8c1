/* SPDX-License-Identifier: Apache-2.0 */
/* The history of a job, and the runs that it tells of. An input is its lines. */
#include "config.h"

#include "tests/fuzz/fuzz.h"

#include "runtime/store/history.h"
#include "runtime/store/runs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tpck_history history = {0}, none = {0};
	struct tpck_interval_history rate;
	struct tpck_runs runs;
	char *lines = NULL;
	size_t bytes;

	FUZZ_HOLDS(tpck_history_add(&history, (const char *)data, size) == 0);
	tpck_history_settle(&history);
	FUZZ_HOLDS(tpck_history_missing(&history, &none, &lines, &bytes) == 0);
	free(lines);
	FUZZ_HOLDS(tpck_history_missing(&history, &history, &lines, &bytes) == 0 && bytes == 0);
	free(lines);
	for (size_t i = 0; i < history.count; i++) {
		FUZZ_HOLDS(i == 0 || history.events[i].at_ns >= history.events[i - 1].at_ns);
		(void)tpck_event_real(&history.events[i], "forward_sec");
		(void)tpck_event_number(&history.events[i], "rank");
		(void)tpck_event_text(&history.events[i], "program");
	}
	FUZZ_HOLDS(tpck_runs_of(&runs, &history) == 0);
	for (size_t i = 0; i < runs.count; i++)
		(void)tpck_run_failure(&runs, &runs.run[i]);
	for (int level = 0; level < 3; level++)
		tpck_runs_rate(&runs, level, &rate);
	tpck_runs_free(&runs);
	tpck_history_free(&history);
	return 0;
}
