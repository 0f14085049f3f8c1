/* SPDX-License-Identifier: Apache-2.0 */
/* transpckpt top: what jobs are at, again and again. */
#include "config.h"

#include "tools/cli/top.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char usage[] =
	"usage: transpckpt top [-d SEC] [-n TIMES] [--job JOB] [--dir DIR] [JOB]\n"
	"Shows what jobs are at, again every second; on a terminal until q is pressed.\n"
	"  -d SEC, --delay SEC    so many seconds between two looks\n"
	"  -n TIMES, --times TIMES  so often, and in plain lines\n";

static volatile sig_atomic_t told_to_end;

static void end(int signal_number)
{
	(void)signal_number;
	told_to_end = 1;
}

/* ---- lines ---------------------------------------------------------------------------------- */

/* "1234 -3": a step, and how far behind it is; "-" where there is none. */
static const char *behind(char *text, size_t size, uint64_t step, uint64_t newest)
{
	if (!step)
		snprintf(text, size, "-");
	else if (newest > step)
		snprintf(text, size, "%" PRIu64 " -%" PRIu64, step, newest - step);
	else
		snprintf(text, size, "%" PRIu64, step);
	return text;
}

static const char *iteration(char *text, size_t size, double seconds)
{
	if (seconds <= 0)
		snprintf(text, size, "-");
	else if (seconds < 1)
		snprintf(text, size, "%.1f ms", seconds * 1e3);
	else
		snprintf(text, size, "%.2f s", seconds);
	return text;
}

static const char *capture(char *text, size_t size, const struct top_row *row)
{
	if (row->captures_per_sec < 0)
		snprintf(text, size, "-");
	else
		snprintf(text, size, "%.1f/s %s/s", row->captures_per_sec, cli_bytes((uint64_t)row->capture_rate));
	return text;
}

static void show_job(const struct top_job *job, void (*line)(void *, enum top_mark, const char *), void *context)
{
	char text[700], held[48], durable[48], time[24], rate[48], memory[64];

	for (size_t i = 0; i < job->count; i++) {
		const struct top_row *row = &job->rows[i];

		snprintf(text, sizeof text, "%-16.16s %4u %7d %-9s %8" PRIu64 " %9s %11s %13s %18s", job->name, row->rank, row->pid, row->state,
			 row->step, iteration(time, sizeof time, row->iteration_sec), behind(held, sizeof held, row->held_step, row->step),
			 behind(durable, sizeof durable, row->durable_step, row->step), capture(rate, sizeof rate, row));
		line(context, row->alive ? TOP_ROW : TOP_BAD, text);
		if (row->twin[0]) {
			snprintf(text, sizeof text, "  twin: %.290s", row->twin);
			line(context, row->uncovered ? TOP_BAD : TOP_ROW, text);
		}
		if (row->alive && row->reason[0]) {
			snprintf(text, sizeof text, "  nothing is captured: %.190s", row->reason);
			line(context, TOP_BAD, text);
		}
	}
	if (job->answered)
		snprintf(memory, sizeof memory, "%s of %s", cli_bytes(job->memory_used), cli_bytes(job->memory_limit));
	else
		snprintf(memory, sizeof memory, "%s", cli_bytes(job->memory_used));
	snprintf(rate, sizeof rate, "none yet");
	if (job->flush_sec > 0)
		snprintf(rate, sizeof rate, "%s at %s/s", cli_bytes(job->flush_bytes), cli_bytes((uint64_t)((double)job->flush_bytes / job->flush_sec)));
	snprintf(text, sizeof text, "%.200s: memory %s; last flush %s%s; files owed %u", job->name, memory, rate,
		 job->flushing ? ", flushing now" : "", job->files_owed);
	line(context, TOP_JOB, text);
	snprintf(text, sizeof text, "  failures %" PRIu64 ", resumes %" PRIu64 ", iterations lost %" PRIu64, job->failures, job->resumes, job->lost);
	line(context, job->failures ? TOP_BAD : TOP_JOB, text);
	if (job->count && !job->answered)
		line(context, TOP_BAD, "  the agent does not answer");
	if (job->waiting[0]) {
		snprintf(text, sizeof text, "  %s", job->waiting);
		line(context, TOP_BAD, text);
	}
	if (job->complaint[0]) {
		snprintf(text, sizeof text, "  not durable: %.290s", job->complaint);
		line(context, TOP_BAD, text);
	}
}

void top_lines(const struct top_sample *sample, void (*line)(void *, enum top_mark, const char *), void *context)
{
	time_t now = time(NULL);
	char text[200], at[32];
	struct tm tm;

	if (!localtime_r(&now, &tm) || !strftime(at, sizeof at, "%H:%M:%S", &tm))
		at[0] = '\0';
	snprintf(text, sizeof text, "transpckpt top - %s, %zu job%s", at, sample->count, sample->count == 1 ? "" : "s");
	line(context, TOP_TITLE, text);
	snprintf(text, sizeof text, "%-16s %4s %7s %-9s %8s %9s %11s %13s %18s", "JOB", "RANK", "PID", "STATE", "STEP", "ITERATION", "IN MEMORY",
		 "DURABLE", "CAPTURE");
	line(context, TOP_HEAD, text);
	for (size_t i = 0; i < sample->count; i++)
		show_job(&sample->jobs[i], line, context);
}

static void print_line(void *context, enum top_mark mark, const char *text)
{
	(void)context;
	(void)mark;
	puts(text);
}

/* ---- the loop ------------------------------------------------------------------------------- */

/* Returns early when a signal comes. */
static void pause_for(double seconds)
{
	struct timespec span = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};

	nanosleep(&span, NULL);
}

static int loop(struct cli *cli, bool screen)
{
	struct top_sample before = {0}, sample;
	double delay = cli->delay > 0 ? cli->delay : 1;
	int rc = 0;

	for (long n = 0; !rc && !told_to_end && (!cli->times || n < cli->times); n++) {
		if (n && !screen)
			pause_for(delay);
		if (told_to_end)
			break;
		rc = top_sample_take(&sample, cli, n ? &before : NULL);
		top_sample_free(&before);
		before = sample;
		if (screen) {
			top_screen_show(&sample);
			if (top_screen_wait(delay))
				break;
			continue;
		}
		if (n)
			putchar('\n');
		top_lines(&sample, print_line, NULL);
		if (fflush(stdout))
			rc = CLI_BAD;
	}
	top_sample_free(&before);
	return rc;
}

int verb_top(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = end};
	bool screen;
	struct cli cli;
	int rc = cli_options(&cli, argc, argv, usage, CLI_OWN_TIMES | CLI_OWN_JOB);

	if (rc)
		return rc < 0 ? CLI_GOOD : rc;
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	screen = !cli.times && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && top_screen_open();
	rc = loop(&cli, screen);
	if (screen)
		top_screen_close();
	return rc;
}
