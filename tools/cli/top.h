/* SPDX-License-Identifier: Apache-2.0 */
/* What transpckpt top looks at, each time anew, and where it shows it. */
#ifndef TPCK_TOOLS_CLI_TOP_H
#define TPCK_TOOLS_CLI_TOP_H

#include "runtime/store/history.h"
#include "tools/cli/cli.h"

/* One process. */
struct top_row {
	uint64_t generation;
	uint32_t rank, ordinal;
	int pid;
	bool alive;
	const char *state;
	char reason[192];
	uint64_t step, held_step, durable_step; /* the last two 0: none yet */
	uint64_t captured, image_bytes, changing_bytes;
	unsigned images;
	double iteration_sec;
	double captures_per_sec, capture_rate;  /* since the look before; -1: there was none */
	char twin[300];                         /* what becomes of its twin, or "" */
	bool uncovered;                         /* it has to do with twins, and none could take over at once */
};

struct top_job {
	char name[TPCK_NAME_MAX];
	struct top_row *rows; /* by rank, then generation */
	size_t count;
	bool answered;        /* the agent did; else the next six are unknown */
	uint64_t memory_limit;
	uint64_t flush_bytes; /* written by the last flush */
	double flush_sec;
	bool flushing;
	char complaint[300];
	char waiting[448];    /* what all ranks wait for, or "" */
	uint64_t memory_used;
	uint32_t files_owed;
	/* from the history, read anew when it has grown */
	uint64_t failures, resumes, lost;
	int64_t history_mark;
};

struct top_sample {
	struct top_job *jobs;
	size_t count;
	uint64_t at_ns; /* CLOCK_MONOTONIC */
};

/* Looks at the named job, or at all that have something in memory. `before` may be NULL. */
int top_sample_take(struct top_sample *sample, struct cli *cli, const struct top_sample *before);
void top_sample_free(struct top_sample *sample);

/* The lines that are shown: calls line() for each, `mark` says what it is. */
enum top_mark { TOP_TITLE, TOP_HEAD, TOP_ROW, TOP_JOB, TOP_BAD };
void top_lines(const struct top_sample *sample, void (*line)(void *context, enum top_mark mark, const char *text), void *context);

/* The terminal, in top_screen.c. False: there is none that it can use. */
bool top_screen_open(void);
void top_screen_show(const struct top_sample *sample);
/* Waits for a key or the end of the time; true: the user wants to leave. */
bool top_screen_wait(double seconds);
void top_screen_close(void);

/* The agent's answer about a job; NULL: there is no agent, or it does not answer in time. */
struct json_object *cli_query(const char *memory_job);

#endif
