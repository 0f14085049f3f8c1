/* SPDX-License-Identifier: Apache-2.0 */
/* The report's words and tables. */
#include "config.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <string.h>

#include "runtime/wire/failures.h"
#include "tools/cli/covered.h"
#include "tools/cli/report.h"

static const char *s(uint64_t n)
{
	return n == 1 ? "" : "s";
}

static void cell(FILE *out, const char *text)
{
	fputs("<td>", out);
	report_text(out, text);
	fputs("</td>", out);
}

/* ---- in words ------------------------------------------------------------------------------- */

static void say_places(const struct report *report)
{
	uint64_t memory = 0, tiers = 0;

	for (size_t i = 0; i < report->runs.count; i++) {
		const struct tpck_run *run = &report->runs.run[i];

		if (run->rank == 0 && run->resumed) {
			memory += run->from_level == 0;
			tiers += run->from_level > 0;
		}
	}
	if (memory && tiers)
		fprintf(report->out, ", %s from memory and %s from disk", report_times(memory), report_times(tiers));
	else if (memory + tiers)
		fprintf(report->out, ", %s from %s", memory + tiers == 1 ? "once" : "each time", memory ? "memory" : "disk");
}

static void say_store(const struct report *report)
{
	uint64_t failed = 0;

	for (size_t i = 0; i < report->history.count; i++)
		failed += tpck_event_is(&report->history.events[i], "store failed");
	if (failed)
		fprintf(report->out, "<li class=\"bad\">A tier of the store could not be written %s.</li>\n", report_times(failed));
}

/* What other ranks' failures were is told by those. */
static void say_failures(const struct report *report)
{
	const char *before = "<li>What had failed: ";
	bool any = false;

	for (uint32_t failure = TPCK_FAILURE_NONE + 1; failure < TPCK_FAILURES; failure++) {
		uint64_t times = 0;

		for (size_t i = 0; failure != TPCK_FAILURE_RANK && i < report->runs.count; i++)
			times += report->runs.run[i].after && strcmp(report->runs.run[i].after, tpck_failure_name(failure)) == 0;
		if (!times)
			continue;
		fprintf(report->out, "%s%s %s", before, tpck_failure_name(failure), report_times(times));
		before = ", ";
		any = true;
	}
	if (any)
		fputs(" (doc/cluster.md, Failures).</li>\n", report->out);
}

static void say_twins(const struct report *report)
{
	uint64_t takeovers = 0, in_place = 0;

	for (size_t i = 0; i < report->runs.count; i++) {
		takeovers += report->runs.run[i].rank == 0 && report->runs.run[i].by_twin && report->runs.run[i].resumed;
		in_place += report->runs.run[i].rank == 0 && report->runs.run[i].in_place && report->runs.run[i].resumed;
	}
	if (takeovers)
		fprintf(report->out, "<li>A twin took over %s, without a new start.</li>\n", report_times(takeovers));
	if (in_place)
		fprintf(report->out, "<li>It was forked once more in its place %s, where no twin could take over.</li>\n", report_times(in_place));
	say_failures(report);
	for (size_t i = 0; i < report->inventory.session_count; i++) {
		const struct tpck_session *session = report->inventory.sessions[i];
		struct cli_twin twin;
		char text[300];

		if (!inventory_alive(session) || !cli_twin_of(session, &twin))
			continue;
		cli_twin_text(&twin, text, sizeof text);
		fprintf(report->out, "<li%s>The twin of rank %u: ", twin.covers ? "" : " class=\"bad\"", session->name.rank);
		report_text(report->out, text);
		fputs(".</li>\n", report->out);
	}
}

void report_words(const struct report *report)
{
	FILE *out = report->out;

	fputs("<h2>In words</h2>\n<div class=\"card\"><ul>\n", out);
	if (!report->runs.count) {
		fputs("<li>There is no history of this job: it ran before one was kept.</li>\n</ul></div>\n", out);
		return;
	}
	fprintf(out, "<li>It was started %s and has come to iteration %" PRIu64 ".</li>\n", report_times(report->starts), report->iterations);
	if (!report->failures)
		fputs("<li>It has not failed.</li>\n", out);
	else
		fprintf(out, "<li>It failed %s and went on from a snapshot %s", report_times(report->failures), report_times(report->resumes));
	if (report->failures) {
		say_places(report);
		fputs(".</li>\n", out);
		fprintf(out, "<li>It lost %" PRIu64 " iteration%s, about %s of computing. ", report->lost, s(report->lost), report_span(report->lost_sec));
		fprintf(out, "Going on took %s of running forward and putting state in place.</li>\n", report_span(report->forward_sec));
		fprintf(out, "<li>Starting from the beginning each time would have cost <b>%s</b> more.</li>\n", report_span(report->saved_sec));
	}
	say_twins(report);
	if (report->diverged)
		fprintf(out, "<li class=\"bad\">It did something else than before on its way to a snapshot, %s.</li>\n", report_times(report->diverged));
	fprintf(out, "<li>%" PRIu64 " snapshot%s taken in memory, %" PRIu64 " left out; the device waited %s for them, %.2f%% of its running time.</li>\n",
		report->captured, report->captured == 1 ? " was" : "s were", report->skipped, report_span(report->waited_sec),
		report->running_sec > 0 ? 100 * report->waited_sec / report->running_sec : 0);
	fprintf(out, "<li>%" PRIu64 " of them became durable", report->durable);
	if (report->copied)
		fprintf(out, ", and %" PRIu64 " cop%s went to slower tiers", report->copied, report->copied == 1 ? "y" : "ies");
	fputs(".</li>\n", out);
	say_store(report);
	if (report->history.bad)
		fprintf(out, "<li class=\"soft\">%zu line%s of the history could not be read.</li>\n", report->history.bad, s(report->history.bad));
	fputs("</ul></div>\n", out);
}

/* ---- failures ------------------------------------------------------------------------------- */

static void recovery(const struct report *report, const struct tpck_run *run, int level)
{
	const struct tpck_run *next = run->next == SIZE_MAX ? NULL : &report->runs.run[run->next];
	FILE *out = report->out;

	fprintf(out, "<tr><td>%s</td><td>", report_time(run->end_ns));
	if (run->died)
		report_text(out, run->how);
	else
		fputs("nobody saw it: node or memory was lost", out);
	fprintf(out, "</td><td class=\"n\">%" PRIu64 "</td><td class=\"n\">%" PRIu64 "</td><td class=\"n\">%s</td>", run->iterations, run->lost,
		report_span((double)run->lost * report_iteration_sec(report, run->generation)));
	if (!next)
		fputs("<td class=\"soft\">not started again</td><td></td><td></td></tr>\n", out);
	else if (!next->resumed) {
		fprintf(out, "<td class=\"bad\">%s</td><td></td><td class=\"n\">%s</td></tr>\n",
			next->offered ? "died before it was live, or started over" : "began anew",
			report_span((double)(next->begun_ns - run->end_ns) / 1e9));
	} else {
		fprintf(out, "<td class=\"good\">%sstep %" PRIu64 " from ", next->by_twin ? "a twin at " : "", next->from_step);
		report_text(out, next->from[0] ? next->from : level ? "disk" : "memory");
		fprintf(out, "</td><td class=\"n\">%s</td><td class=\"n\">%s</td></tr>\n", report_span(next->forward_sec + next->inject_sec),
			report_span((double)(next->begun_ns > run->end_ns ? next->begun_ns - run->end_ns : 0) / 1e9));
	}
}

void report_recoveries(const struct report *report)
{
	FILE *out = report->out;

	if (!report->failures)
		return;
	fputs("<h2>Failures and recoveries</h2>\n<div class=\"card\"><table>\n<tr><th>When</th><th>What</th><th class=\"n\">At iteration</th>"
	      "<th class=\"n\">Lost</th><th class=\"n\">of computing</th><th>Went on</th><th class=\"n\">Forward</th><th class=\"n\">Away</th></tr>\n", out);
	for (size_t i = 0; i < report->runs.count; i++) {
		const struct tpck_run *run = &report->runs.run[i];
		int level = tpck_run_failure(&report->runs, run);

		if (run->rank == 0 && level >= 0)
			recovery(report, run, level);
	}
	fputs("</table></div>\n", out);
}

/* ---- what is there -------------------------------------------------------------------------- */

static void places(FILE *out, const struct inventory *inventory, const struct checkpoint *c)
{
	bool any = c->in_memory;

	fputs(c->in_memory ? "memory" : "", out);
	for (size_t t = 0; t < inventory->tiers.count; t++)
		if (c->in_tier[t]) {
			fprintf(out, "%s%s", any ? ", " : "", inventory->tiers.name[t]);
			any = true;
		}
}

void report_checkpoints(const struct report *report)
{
	const struct inventory *inventory = &report->inventory;
	FILE *out = report->out;

	fputs("<h2>Checkpoints that are there</h2>\n<div class=\"card\">", out);
	if (!inventory->count) {
		fputs("<p class=\"soft\" style=\"margin:0\">None.</p></div>\n", out);
		return;
	}
	fputs("<table>\n<tr><th class=\"n\">Step</th><th class=\"n\">Generation</th><th class=\"n\">Rank</th><th>Where</th><th class=\"n\">Bytes</th><th class=\"n\">Written</th>"
	      "<th class=\"n\">Age</th><th>A start goes on from it</th></tr>\n", out);
	for (size_t i = inventory->count; i-- > 0;) {
		const struct checkpoint *c = &inventory->checkpoints[i];

		fprintf(out, "<tr><td class=\"n\">%" PRIu64 "</td><td class=\"n\">%" PRIu64 "</td><td class=\"n\">%u</td><td>", c->point.step, c->point.generation,
			c->rank);
		places(out, inventory, c);
		fprintf(out, "</td><td class=\"n\">%s</td><td class=\"n\">%s</td><td class=\"n\">%s</td><td%s</td></tr>\n", cli_bytes(c->bytes),
			c->durable ? cli_bytes(c->stored_bytes) : "-", report_span(c->age_sec),
			!c->resumable ? " class=\"bad\">cannot" : !c->offerable ? " class=\"soft\">not any more" : " class=\"good\">can");
	}
	fputs("</table></div>\n", out);
}

static void tier_row(const struct report *report, size_t t)
{
	const struct inventory *inventory = &report->inventory;
	uint64_t count = 0, bytes = 0, writes = 0, failed = 0;
	double took = 0;
	FILE *out = report->out;

	for (size_t i = 0; i < inventory->count; i++)
		if (inventory->checkpoints[i].in_tier[t]) {
			count++;
			bytes += inventory->checkpoints[i].stored_bytes;
		}
	for (size_t i = 0; i < report->history.count; i++) {
		const struct tpck_event *event = &report->history.events[i];

		if (strcmp(tpck_event_text(event, "tier"), inventory->tiers.name[t]) != 0)
			continue;
		failed += tpck_event_is(event, "store failed");
		if (tpck_event_is(event, t ? "copied" : "durable")) {
			writes++;
			took += tpck_event_real(event, "took_sec") + tpck_event_real(event, "write_sec") + tpck_event_real(event, "verify_sec");
		}
	}
	fputs("<tr>", out);
	cell(out, inventory->tiers.name[t]);
	fputs("<td><code>", out);
	report_text(out, inventory->tiers.tier[t]->root);
	fprintf(out, "</code></td><td class=\"n\">%" PRIu64 "</td><td class=\"n\">%s</td><td class=\"n\">%" PRIu64 "</td><td class=\"n\">%s</td><td class=\"n%s\">%" PRIu64 "</td></tr>\n",
		count, cli_bytes(bytes), writes, writes ? report_span(took / (double)writes) : "-", failed ? " bad" : "", failed);
}

void report_tiers(const struct report *report)
{
	fputs("<h2>Tiers</h2>\n<div class=\"card\"><table>\n<tr><th>Tier</th><th>Folder</th><th class=\"n\">Checkpoints</th><th class=\"n\">Bytes</th>"
	      "<th class=\"n\">Writes</th><th class=\"n\">Mean time</th><th class=\"n\">Failures</th></tr>\n", report->out);
	for (size_t t = 0; t < report->inventory.tiers.count; t++)
		tier_row(report, t);
	fputs("</table></div>\n", report->out);
}

/* ---- everything ----------------------------------------------------------------------------- */

void report_events(const struct report *report)
{
	enum { ROWS = 500 };
	static const char *const known[] = {"at_ns", "event", "agent", "serial", "generation", "program"};
	size_t first = report->history.count > ROWS ? report->history.count - ROWS : 0;
	FILE *out = report->out;

	if (!report->history.count)
		return;
	fprintf(out, "<h2>Events</h2>\n<details class=\"card\"><summary>%s%zu of %zu, newest first</summary>\n<table>\n"
		     "<tr><th>When</th><th>Event</th><th class=\"n\">Generation</th><th>What</th></tr>\n",
		first ? "the last " : "", report->history.count - first, report->history.count);
	for (size_t i = report->history.count; i-- > first;) {
		const struct tpck_event *event = &report->history.events[i];

		fprintf(out, "<tr><td>%s</td>", report_time(event->at_ns));
		cell(out, tpck_event_text(event, "event"));
		fprintf(out, "<td class=\"n\">%" PRIu64 "</td><td class=\"soft\">", tpck_event_number(event, "generation"));
		json_object_object_foreach(event->json, key, value)
		{
			bool shown = json_object_is_type(value, json_type_int) || json_object_is_type(value, json_type_string) ||
				     json_object_is_type(value, json_type_double);

			for (size_t k = 0; k < sizeof known / sizeof *known; k++)
				shown = shown && strcmp(key, known[k]) != 0;
			if (!shown || (!json_object_is_type(value, json_type_string) && json_object_get_double(value) == 0))
				continue;
			report_text(out, key);
			fputc(' ', out);
			report_text(out, json_object_get_string(value));
			fputs("; ", out);
		}
		fputs("</td></tr>\n", out);
	}
	fputs("</table></details>\n", out);
}
