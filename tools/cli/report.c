/* SPDX-License-Identifier: Apache-2.0 */
/* transpckpt report: a job's life on one page of HTML that needs nothing else. */
#include "config.h"

#include "tools/cli/report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/store/file.h"

static const char usage[] =
	"usage: transpckpt report [-o FILE] [--job JOB] [--dir DIR] [JOB]\n"
	"Writes a page of HTML about the life of a job: starts, snapshots, failures and what they cost.\n"
	"  -o FILE  there instead of to standard output\n";

static const char style[] =
	":root{color-scheme:light dark;--ground:#fbfbf9;--card:#fff;--ink:#1d2330;--soft:#5d6678;--line:#dfe2e8;--run:#3b6fd4;"
	"--forward:#9a6ad6;--bad:#cf3b3b;--good:#2b8a57;--far:#c98513;--pale:#cf3b3b1c}\n"
	"@media(prefers-color-scheme:dark){:root{--ground:#14171d;--card:#1c2028;--ink:#e4e8ef;--soft:#9aa4b5;--line:#323947;"
	"--run:#6f9bf2;--forward:#b892ec;--bad:#f07070;--good:#57c08a;--far:#e8b04a;--pale:#f0707026}}\n"
	"*{box-sizing:border-box}body{margin:0;background:var(--ground);color:var(--ink);font:15px/1.55 system-ui,sans-serif}\n"
	"main{max-width:1080px;margin:0 auto;padding:28px 20px 60px}h1{font-size:26px;margin:0 0 2px;overflow-wrap:anywhere}\n"
	"h2{font-size:18px;margin:34px 0 10px}.sub{color:var(--soft);margin:0 0 20px;overflow-wrap:anywhere}\n"
	".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px}\n"
	".tile,.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:12px 14px}\n"
	".tile b{display:block;font-size:22px;line-height:1.25}.tile span{color:var(--soft);font-size:13px}\n"
	".card{overflow-x:auto}svg{display:block;width:100%;min-width:640px;height:auto}\n"
	"ul{margin:0;padding-left:20px}li{margin:4px 0}\n"
	"table{border-collapse:collapse;width:100%;font-size:14px}th{text-align:left;color:var(--soft);font-weight:600}\n"
	"th,td{padding:6px 14px 6px 0;border-bottom:1px solid var(--line);vertical-align:top}tr:last-child td{border-bottom:0}\n"
	"td.n+td:not(.n),th.n+th:not(.n){padding-left:14px}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}.soft{color:var(--soft)}\n"
	".bad{color:var(--bad)}.good{color:var(--good)}.key{display:flex;flex-wrap:wrap;gap:4px 18px;margin:8px 0 0;"
	"color:var(--soft);font-size:13px}.key i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:6px}\n"
	"summary{cursor:pointer}footer{margin-top:36px;color:var(--soft);font-size:13px}code{font-size:13px;overflow-wrap:anywhere}\n"
	"text{fill:var(--soft);font:12px system-ui,sans-serif}.axis{stroke:var(--line)}.step{fill:none;stroke:var(--run);stroke-width:2}\n"
	".run{fill:var(--run)}.fwd{fill:var(--forward)}.fwdline{fill:none;stroke:var(--forward);stroke-width:2;stroke-dasharray:4 3}\n"
	".dead{stroke:var(--bad);stroke-width:2.5;fill:none}.lost{stroke:var(--bad);stroke-width:2;stroke-dasharray:2 3}\n"
	".dur{fill:var(--good)}.cop{fill:none;stroke:var(--far);stroke-width:2}.away{fill:var(--pale)}.all{fill:var(--line)}\n";

/* ---- text ----------------------------------------------------------------------------------- */

/* Bytes of the character at text, 0 where it is none that may stand in a page. */
static size_t character(const unsigned char *text)
{
	uint32_t code;
	size_t size = text[0] < 0x80 ? 1 : text[0] >= 0xc2 && text[0] < 0xe0 ? 2 : text[0] >= 0xe0 && text[0] < 0xf0 ? 3
		    : text[0] >= 0xf0 && text[0] < 0xf5 ? 4 : 0;

	if (size == 1)
		return text[0] >= 0x20 && text[0] != 0x7f;
	for (size_t i = 1; i < size; i++)
		if ((text[i] & 0xc0) != 0x80)
			return 0;
	code = size == 2 ? (text[0] & 0x1fu) << 6 | (text[1] & 0x3fu)
	       : size == 3 ? (text[0] & 0x0fu) << 12 | (text[1] & 0x3fu) << 6 | (text[2] & 0x3fu)
	     : size == 4 ? (text[0] & 0x07u) << 18 | (text[1] & 0x3fu) << 12 | (text[2] & 0x3fu) << 6 | (text[3] & 0x3fu) : 0;
	/* Surrogates, longer forms than need be, C1, and what turns the direction of writing. */
	if (code < 0xa0 || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff || (size == 3 && code < 0x800) ||
	    (size == 4 && code < 0x10000) || (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
	    (code >= 0x2066 && code <= 0x2069) || (code & 0xfffe) == 0xfffe)
		return 0;
	return size;
}

void report_text(FILE *out, const char *text)
{
	while (*text) {
		size_t size = character((const unsigned char *)text);

		if (*text == '&')
			fputs("&amp;", out);
		else if (*text == '<')
			fputs("&lt;", out);
		else if (*text == '>')
			fputs("&gt;", out);
		else if (*text == '"')
			fputs("&quot;", out);
		else if (*text == '\'')
			fputs("&#39;", out);
		else if (size)
			fwrite(text, 1, size, out);
		else
			fputs("\xef\xbf\xbd", out);
		text += size ? size : 1;
	}
}

const char *report_time(uint64_t at_ns)
{
	static char ring[8][32];
	static unsigned turn;
	char *text = ring[turn++ % 8];
	time_t at = (time_t)(at_ns / 1000000000ull);
	struct tm tm;

	if (!localtime_r(&at, &tm) || !strftime(text, 32, "%Y-%m-%d %H:%M:%S", &tm))
		snprintf(text, 32, "?");
	return text;
}

const char *report_span(double seconds)
{
	static char ring[8][24];
	static unsigned turn;
	char *text = ring[turn++ % 8];

	if (seconds >= 0.95 || seconds <= 0)
		return seconds > 0 ? cli_span(seconds) : "0 s";
	snprintf(text, 24, seconds < 0.01 ? "%.1f ms" : "%.0f ms", seconds * 1e3);
	return text;
}

const char *report_times(uint64_t n)
{
	static char ring[8][32];
	static unsigned turn;
	char *text = ring[turn++ % 8];

	if (n == 1 || n == 2)
		return n == 1 ? "once" : "twice";
	snprintf(text, 32, "%" PRIu64 " times", n);
	return text;
}

/* ---- sums ----------------------------------------------------------------------------------- */

double report_iteration_sec(const struct report *report, uint64_t generation)
{
	double newest = 0;

	for (size_t i = 0; i < report->runs.count; i++) {
		const struct tpck_run *run = &report->runs.run[i];

		if (run->generation == generation && run->iteration_sec > 0)
			return run->iteration_sec;
		newest = run->iteration_sec > 0 ? run->iteration_sec : newest;
	}
	return newest;
}

static void sum_run(struct report *report, const struct tpck_run *run)
{
	double saved;

	report->starts++;
	report->failures += tpck_run_failure(&report->runs, run) >= 0;
	report->ends += run->ended;
	report->diverged += run->diverged;
	report->running_sec += (double)(run->end_ns - run->begun_ns) / 1e9;
	report->waited_sec += run->waited_sec;
	report->captured += run->captured;
	report->skipped += run->skipped;
	report->lost += run->lost;
	report->lost_sec += (double)run->lost * report_iteration_sec(report, run->generation);
	if (run->iterations > report->iterations)
		report->iterations = run->iterations;
	if (!run->resumed)
		return;
	report->resumes++;
	report->forward_sec += run->forward_sec + run->inject_sec;
	saved = (double)run->from_step * report_iteration_sec(report, run->from_generation) - run->forward_sec - run->inject_sec;
	report->saved_sec += saved > 0 ? saved : 0;
}

static void sum(struct report *report)
{
	if (report->history.count) {
		report->began_ns = report->history.events[0].at_ns;
		report->until_ns = report->history.events[report->history.count - 1].at_ns;
	}
	/* Ranks of a program do the same: one of them is told of. */
	for (size_t i = 0; i < report->runs.count; i++)
		if (report->runs.run[i].rank == 0)
			sum_run(report, &report->runs.run[i]);
	for (size_t i = 0; i < report->history.count; i++) {
		const struct tpck_event *event = &report->history.events[i];

		report->copied += tpck_event_is(event, "copied");
		if (!tpck_event_is(event, "durable"))
			continue;
		report->durable++;
		report->bytes += tpck_event_number(event, "bytes");
		report->new_bytes += tpck_event_number(event, "new_bytes");
		report->write_sec += tpck_event_real(event, "write_sec");
		report->verify_sec += tpck_event_real(event, "verify_sec");
	}
}

/* ---- the page ------------------------------------------------------------------------------- */

static bool is_running(const struct report *report)
{
	for (size_t i = 0; i < report->inventory.session_count; i++)
		if (inventory_alive(report->inventory.sessions[i]))
			return true;
	return false;
}

static void head(const struct report *report)
{
	const struct tpck_run *last = report->runs.count ? &report->runs.run[report->runs.count - 1] : NULL;
	FILE *out = report->out;

	fputs("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
	      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
	      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>", out);
	report_text(out, report->job);
	fprintf(out, " - transpckpt</title>\n<style>\n%s</style>\n</head>\n<body>\n<main>\n<h1>", style);
	report_text(out, report->job);
	fputs("</h1>\n<p class=\"sub\">", out);
	if (last && last->executable[0]) {
		fputs("<code>", out);
		report_text(out, last->executable);
		fputs("</code> on ", out);
		report_text(out, last->host);
		fputs("; ", out);
	}
	if (report->history.count)
		fprintf(out, "%s to %s; ", report_time(report->began_ns), report_time(report->until_ns));
	fprintf(out, "%s</p>\n", is_running(report) ? "running" : last && last->ended ? "ended well" : "not running");
}

static void tile(FILE *out, const char *class_, const char *value, const char *what)
{
	fprintf(out, "<div class=\"tile\"><b%s>%s</b><span>%s</span></div>\n", class_, value, what);
}

static const char *number(uint64_t n)
{
	static char ring[8][24];
	static unsigned turn;
	char *text = ring[turn++ % 8];

	snprintf(text, 24, "%" PRIu64, n);
	return text;
}

static void tiles(const struct report *report)
{
	FILE *out = report->out;

	fputs("<div class=\"tiles\">\n", out);
	tile(out, "", number(report->iterations), "iterations reached");
	tile(out, "", report_span(report->running_sec), "running time");
	tile(out, report->failures ? " class=\"bad\"" : "", number(report->failures), "failures");
	tile(out, report->resumes ? " class=\"good\"" : "", number(report->resumes), "times resumed");
	tile(out, report->lost ? " class=\"bad\"" : "", number(report->lost), "iterations lost");
	tile(out, report->saved_sec > 0 ? " class=\"good\"" : "", report_span(report->saved_sec), "of computing saved");
	fputs("</div>\n", out);
}

static int write_page(struct report *report, char **text, size_t *size, struct tpck_error *err)
{
	report->out = open_memstream(text, size);
	if (!report->out)
		return tpck_error_set(err, errno, "writing the page");
	head(report);
	tiles(report);
	report_words(report);
	report_timeline(report);
	report_recoveries(report);
	report_sizes(report);
	report_checkpoints(report);
	report_tiers(report);
	report_events(report);
	fprintf(report->out, "<footer>transpckpt %s, %s</footer>\n</main>\n</body>\n</html>\n", PACKAGE_VERSION,
		report_time(tpck_clock_realtime_ns()));
	return fclose(report->out) ? tpck_error_set(err, errno, "writing the page") : 0;
}

static int report_job(struct cli *cli, const char *job, void *context)
{
	struct report report = {.cli = cli, .job = job};
	char memory_job[TPCK_PATH_MAX], *text = NULL;
	struct tpck_error err = {0};
	size_t size = 0;
	int rc = inventory_load(&report.inventory, cli, job, &err);

	(void)context;
	if (rc) {
		fprintf(stderr, "transpckpt: %s\n", err.text);
		return CLI_BAD;
	}
	rc = tpck_path_join(memory_job, sizeof memory_job, cli->shm, job);
	/* What cannot be read is missing on the page, and said. */
	if (!rc && tpck_history_load(&report.history, memory_job, &report.inventory.tiers, &err))
		fprintf(stderr, "transpckpt: %s\n", err.text);
	rc = rc ? rc : tpck_runs_of(&report.runs, &report.history);
	sum(&report);
	if (!rc && !report.history.count && !report.inventory.count)
		rc = tpck_error_set(&err, ENOENT, "nothing is known of job '%.200s'", job);
	rc = rc ? rc : write_page(&report, &text, &size, &err);
	if (!rc && cli->output)
		rc = tpck_file_write(cli->output, text, size, 0, &err);
	else if (!rc && (fwrite(text, 1, size, stdout) != size || fflush(stdout)))
		rc = tpck_error_set(&err, errno, "writing the page");
	if (rc)
		fprintf(stderr, "transpckpt: %s\n", err.text[0] ? err.text : strerror(-rc));
	free(text);
	tpck_runs_free(&report.runs);
	tpck_history_free(&report.history);
	inventory_free(&report.inventory);
	return rc ? CLI_BAD : 0;
}

/* The one that there is. */
static int only_job(struct cli *cli, const char *job, void *context)
{
	char **found = context;

	(void)cli;
	if (*found) {
		fprintf(stderr, "transpckpt: there are several jobs ('%s', '%s'): name one\n", *found, job);
		return CLI_USAGE;
	}
	*found = strdup(job);
	return *found ? 0 : CLI_BAD;
}

int verb_report(int argc, char **argv)
{
	char *found = NULL;
	struct cli cli;
	int rc = cli_options(&cli, argc, argv, usage, CLI_OWN_OUTPUT | CLI_OWN_JOB);

	if (rc)
		return rc < 0 ? CLI_GOOD : rc;
	if (!cli.job) {
		rc = cli_each_job(&cli, only_job, &found);
		if (!rc && !found) {
			fprintf(stderr, "transpckpt: there is no job in %s and %s\n", cli.shm, cli.settings.dir[0] ? cli.settings.dir : cli.store);
			rc = CLI_BAD;
		}
		cli.job = found;
	}
	rc = rc ? rc : cli_each_job(&cli, report_job, NULL);
	free(found);
	return rc;
}
