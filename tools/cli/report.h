/* SPDX-License-Identifier: Apache-2.0 */
/* The page that transpckpt report writes: what it is about, and its parts. */
#ifndef TPCK_TOOLS_CLI_REPORT_H
#define TPCK_TOOLS_CLI_REPORT_H

#include <stdio.h>

#include "runtime/store/history.h"
#include "runtime/store/runs.h"
#include "tools/cli/inventory.h"

struct report {
	struct cli *cli;
	const char *job;
	struct tpck_history history;
	struct tpck_runs runs;
	struct inventory inventory;
	FILE *out;
	/* sums */
	uint64_t began_ns, until_ns;
	uint64_t starts, failures, ends, resumes, diverged, lost, iterations, captured, skipped;
	double running_sec, waited_sec, lost_sec, saved_sec, forward_sec;
	uint64_t durable, copied, bytes, new_bytes;
	double write_sec, verify_sec;
};

/* Text of anybody's, so that it is text in HTML and in attributes: markup is escaped, and what is no UTF-8 or cannot be
 * shown becomes U+FFFD. */
void report_text(FILE *out, const char *text);
/* A moment as people say it, local time, in a static ring. */
const char *report_time(uint64_t at_ns);
/* "340 ms", else as cli_span(); "once", "3 times"; in static rings. */
const char *report_span(double seconds);
const char *report_times(uint64_t n);
/* How long the iterations lasted that a run with this many of them has. */
double report_iteration_sec(const struct report *report, uint64_t generation);

/* report_timeline.c: SVG */
void report_timeline(const struct report *report);
void report_sizes(const struct report *report);
/* report_tables.c */
void report_words(const struct report *report);
void report_recoveries(const struct report *report);
void report_checkpoints(const struct report *report);
void report_tiers(const struct report *report);
void report_events(const struct report *report);

#endif
