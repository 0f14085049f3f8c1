/* SPDX-License-Identifier: Apache-2.0 */
/* The report's pictures: a job's iterations over time, and what its checkpoints took. */
#include "config.h"

#include <inttypes.h>
#include <string.h>

#include "tools/cli/report.h"

enum { WIDTH = 1000, LEFT = 64, RIGHT = 14, TOP = 40, HEIGHT = 300, BOTTOM = 30, LANE = 12 };

struct plane {
	uint64_t from_ns;
	double seconds, steps;
};

static double x_of(const struct plane *plane, uint64_t at_ns)
{
	double at = at_ns > plane->from_ns ? (double)(at_ns - plane->from_ns) / 1e9 : 0;

	return LEFT + (WIDTH - LEFT - RIGHT) * (at < plane->seconds ? at / plane->seconds : 1);
}

static double y_of(const struct plane *plane, double step)
{
	return TOP + HEIGHT - (double)HEIGHT * (step < plane->steps ? step / plane->steps : 1);
}

/* 1, 2 or 5 of some power of ten, or of what clocks count by: about six of it fill the axis. */
static double tick(double span, bool time)
{
	static const double clock[] = {1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400};
	double least = span / 6, power = 1;

	if (time && least > 0.5)
		for (size_t i = 0; i < sizeof clock / sizeof *clock; i++)
			if (clock[i] >= least)
				return clock[i];
	if (time && least > 86400) {
		return 86400 * tick(span / 86400, false);
	}
	while (power * 10 <= least)
		power *= 10;
	while (power > least && time)
		power /= 10;
	return power * (least <= power ? 1 : least <= 2 * power ? 2 : least <= 5 * power ? 5 : 10);
}

static void axes(FILE *out, const struct plane *plane)
{
	double every = tick(plane->steps, false);

	for (double step = 0; step <= plane->steps; step += every) {
		double y = y_of(plane, step);

		fprintf(out, "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.0f</text>\n",
			LEFT, WIDTH - RIGHT, y, y, LEFT - 8, y + 4, step);
	}
	every = tick(plane->seconds, true);
	for (double at = 0; at <= plane->seconds; at += every) {
		double x = LEFT + (WIDTH - LEFT - RIGHT) * at / plane->seconds;

		fprintf(out, "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">", x, x,
			TOP + HEIGHT, TOP + HEIGHT + 5, x, TOP + HEIGHT + 20, at > 0 ? "middle" : "start");
		if (every < 60)
			fprintf(out, "%g s</text>\n", at);
		else if (every < 3600)
			fprintf(out, "%g min</text>\n", at / 60);
		else if (every < 86400)
			fprintf(out, "%g h</text>\n", at / 3600);
		else
			fprintf(out, "%g days</text>\n", at / 86400);
	}
}

/* When a tier could not be written. */
static void away(const struct report *report, const struct plane *plane)
{
	for (size_t i = 0; i < report->history.count; i++) {
		const struct tpck_event *event = &report->history.events[i];
		const char *tier = tpck_event_text(event, "tier");
		uint64_t until = report->until_ns;

		if (!tpck_event_is(event, "store failed"))
			continue;
		for (size_t j = i + 1; j < report->history.count; j++)
			if (tpck_event_is(&report->history.events[j], "store works") &&
			    strcmp(tpck_event_text(&report->history.events[j], "tier"), tier) == 0) {
				until = report->history.events[j].at_ns;
				break;
			}
		fprintf(report->out, "<rect class=\"away\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"><title>tier ", x_of(plane, event->at_ns),
			TOP, x_of(plane, until) - x_of(plane, event->at_ns) + 1, HEIGHT);
		report_text(report->out, tier);
		fputs(" could not be written: ", report->out);
		report_text(report->out, tpck_event_text(event, "why"));
		fputs("</title></rect>\n", report->out);
	}
}

static bool is_of(const struct tpck_event *event, const struct tpck_run *run)
{
	return tpck_event_text(event, "program")[0] && tpck_event_number(event, "generation") == run->generation &&
	       tpck_event_number(event, "rank") == run->rank && tpck_event_number(event, "ordinal") == run->ordinal;
}

/* The lane above: a bar from begin to end, in another colour until it was live. */
static void lane(const struct report *report, const struct plane *plane, const struct tpck_run *run, uint64_t live_ns)
{
	double from = x_of(plane, run->begun_ns), live = x_of(plane, live_ns), to = x_of(plane, run->end_ns);
	FILE *out = report->out;

	if (to - from < 1.5)
		to = from + 1.5;
	fprintf(out, "<rect class=\"run\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"2\"><title>generation %" PRIu64 ": %s to %s, %s</title></rect>\n",
		from, TOP - LANE - 12, to - from, LANE, run->generation, report_time(run->begun_ns), report_time(run->end_ns),
		run->ended ? "ended well" : run->diverged ? "started over" : tpck_run_failure(&report->runs, run) >= 0 ? "failed" : "not over");
	if (live > from)
		fprintf(out, "<rect class=\"fwd\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"2\"><title>running forward: %s</title></rect>\n", from,
			TOP - LANE - 12, live - from < 1.5 ? 1.5 : live - from, LANE, report_span(run->forward_sec + run->inject_sec));
}

static void dead(const struct report *report, const struct plane *plane, const struct tpck_run *run)
{
	double x = x_of(plane, run->end_ns), y = y_of(plane, (double)run->iterations), lane_y = TOP - 12 - LANE / 2.0;
	FILE *out = report->out;

	if (run->lost)
		fprintf(out, "<line class=\"lost\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n", x, x, y,
			y_of(plane, (double)(run->iterations - (run->lost < run->iterations ? run->lost : run->iterations))));
	fprintf(out, "<path class=\"dead\" d=\"M%.1f %.1fl8 8m0-8l-8 8\"><title>died at iteration %" PRIu64 "; %" PRIu64 " lost</title></path>\n", x - 4,
		y - 4, run->iterations, run->lost);
	fprintf(out, "<path class=\"dead\" d=\"M%.1f %.1fv%d\"/>\n", x, lane_y - 9, 18);
}

static void draw_run(const struct report *report, const struct plane *plane, const struct tpck_run *run)
{
	uint64_t live_ns = run->begun_ns;
	FILE *out = report->out;

	for (size_t i = 0; i < report->history.count; i++)
		if (tpck_event_is(&report->history.events[i], "resumed") && is_of(&report->history.events[i], run))
			live_ns = report->history.events[i].at_ns;
	lane(report, plane, run, live_ns);
	if (run->resumed)
		fprintf(out, "<line class=\"fwdline\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n", x_of(plane, run->begun_ns), x_of(plane, live_ns),
			y_of(plane, (double)run->from_step), y_of(plane, (double)run->from_step));
	fprintf(out, "<polyline class=\"step\" points=\"%.1f,%.1f", x_of(plane, live_ns), y_of(plane, run->resumed ? (double)run->from_step : 0));
	for (size_t i = 0; i < report->history.count; i++) {
		const struct tpck_event *event = &report->history.events[i];

		if (event->at_ns >= live_ns && event->at_ns <= run->end_ns && is_of(event, run) && !tpck_event_is(event, "started") &&
		    tpck_event_number(event, "iterations") >= (run->resumed ? run->from_step : 0))
			fprintf(out, " %.1f,%.1f", x_of(plane, event->at_ns), y_of(plane, (double)tpck_event_number(event, "iterations")));
	}
	fputs("\"/>\n", out);
}

static void draw_checkpoints(const struct report *report, const struct plane *plane)
{
	for (size_t i = 0; i < report->history.count; i++) {
		const struct tpck_event *event = &report->history.events[i];
		bool durable = tpck_event_is(event, "durable");
		uint64_t step = tpck_event_number(event, "step");

		if ((!durable && !tpck_event_is(event, "copied")) || tpck_event_number(event, "rank"))
			continue;
		fprintf(report->out, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%s\"><title>step %" PRIu64 " %s ", durable ? "dur" : "cop",
			x_of(plane, event->at_ns), y_of(plane, (double)step), durable ? "3.5" : "6", step, durable ? "durable in" : "copied to");
		report_text(report->out, tpck_event_text(event, "tier"));
		fprintf(report->out, ", %s written</title></circle>\n", cli_bytes(tpck_event_number(event, "new_bytes")));
	}
}

void report_timeline(const struct report *report)
{
	struct plane plane = {.from_ns = report->began_ns, .seconds = (double)(report->until_ns - report->began_ns) / 1e9 * 1.01,
			      .steps = (double)report->iterations * 1.05};
	FILE *out = report->out;

	if (!report->runs.count)
		return;
	if (plane.seconds < 0.001)
		plane.seconds = 0.001;
	if (plane.steps < 4)
		plane.steps = 4;
	fprintf(out, "<h2>Iterations over time</h2>\n<div class=\"card\">\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"iterations over time\">\n", WIDTH,
		TOP + HEIGHT + BOTTOM);
	axes(out, &plane);
	away(report, &plane);
	for (size_t i = 0; i < report->runs.count; i++)
		if (report->runs.run[i].rank == 0)
			draw_run(report, &plane, &report->runs.run[i]);
	draw_checkpoints(report, &plane);
	for (size_t i = 0; i < report->runs.count; i++)
		if (report->runs.run[i].rank == 0 && tpck_run_failure(&report->runs, &report->runs.run[i]) >= 0)
			dead(report, &plane, &report->runs.run[i]);
	fputs("</svg>\n<div class=\"key\"><span><i style=\"background:var(--run)\"></i>training</span>"
	      "<span><i style=\"background:var(--forward)\"></i>running forward to a snapshot</span>"
	      "<span><i style=\"background:var(--bad)\"></i>died, and iterations lost</span>"
	      "<span><i style=\"background:var(--good)\"></i>checkpoint durable</span>"
	      "<span><i style=\"background:var(--far)\"></i>copied to a slower tier</span>"
	      "<span><i style=\"background:var(--pale)\"></i>a tier could not be written</span></div>\n</div>\n", out);
}

/* ---- sizes ---------------------------------------------------------------------------------- */

void report_sizes(const struct report *report)
{
	enum { BARS = 100, BAR_HEIGHT = 110 };
	uint64_t largest = 1;
	size_t skip = report->durable > BARS ? (size_t)report->durable - BARS : 0, shown = (size_t)report->durable - skip, n = 0;
	double each = shown ? (double)(WIDTH - LEFT - RIGHT) / (double)shown : 0, width;
	FILE *out = report->out;

	if (!report->durable)
		return;
	each = each > 60 ? 60 : each;
	width = each > 4 ? each * 0.72 : each * 0.9;
	for (size_t i = 0; i < report->history.count; i++) {
		const struct tpck_event *event = &report->history.events[i];

		if (tpck_event_is(event, "durable") && tpck_event_number(event, "bytes") > largest)
			largest = tpck_event_number(event, "bytes");
	}
	fprintf(out, "<h2>What checkpoints take</h2>\n<div class=\"card\">\n<p style=\"margin-top:0\">%" PRIu64 " checkpoints of %s in all were written as %s: ",
		report->durable, cli_bytes(report->bytes), cli_bytes(report->new_bytes));
	if (report->new_bytes < report->bytes)
		fprintf(out, "%.0f%% was there already and is referred to. ", 100 * (1 - (double)report->new_bytes / (double)report->bytes));
	else
		fputs("nothing of it was there already. ", out);
	if (report->write_sec > 0 && report->verify_sec > 0)
		fprintf(out, "Written at %s/s, read back at %s/s.", cli_bytes((uint64_t)((double)report->new_bytes / report->write_sec)),
			cli_bytes((uint64_t)((double)report->new_bytes / report->verify_sec)));
	fprintf(out, "</p>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"bytes of checkpoints\">\n<text x=\"%d\" y=\"14\" text-anchor=\"end\">%s</text>\n"
		     "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>\n",
		WIDTH, BAR_HEIGHT + 30, LEFT - 8, cli_bytes(largest), LEFT, WIDTH - RIGHT, BAR_HEIGHT + 10, BAR_HEIGHT + 10);
	for (size_t i = 0; i < report->history.count; i++) {
		const struct tpck_event *event = &report->history.events[i];
		uint64_t bytes = tpck_event_number(event, "bytes"), fresh = tpck_event_number(event, "new_bytes");
		double x, whole, part;

		if (!tpck_event_is(event, "durable") || n++ < skip)
			continue;
		x = LEFT + each * (double)(n - 1 - skip);
		whole = (double)BAR_HEIGHT * (double)bytes / (double)largest;
		part = (double)BAR_HEIGHT * (double)(fresh < bytes ? fresh : bytes) / (double)largest;
		fprintf(out, "<g><title>step %" PRIu64 ": %s, %s of it new</title><rect class=\"all\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>"
			     "<rect class=\"dur\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/></g>\n",
			tpck_event_number(event, "step"), cli_bytes(bytes), cli_bytes(fresh), x, BAR_HEIGHT + 10 - whole, width, whole, x,
			BAR_HEIGHT + 10 - part, width, part);
		if (n - 1 == skip || n == report->durable)
			fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">step %" PRIu64 "</text>\n", n == report->durable && shown > 8 ? x + width : x,
				BAR_HEIGHT + 26, n == report->durable && shown > 8 ? "end" : "start", tpck_event_number(event, "step"));
	}
	fputs("</svg>\n<div class=\"key\"><span><i style=\"background:var(--good)\"></i>new bytes</span>"
	      "<span><i style=\"background:var(--line)\"></i>the same as in the checkpoint before</span></div>\n</div>\n", out);
}
