/* SPDX-License-Identifier: Apache-2.0 */
/* What the verbs of the command share: options, and how numbers are shown. */
#ifndef TPCK_TOOLS_CLI_CLI_H
#define TPCK_TOOLS_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "runtime/base/settings.h"
#include "runtime/store/file_names.h"
#include "runtime/store/tier.h"

/* Exit codes of every verb but run. */
enum { CLI_GOOD = 0, CLI_BAD = 1, CLI_USAGE = 2 };

struct cli {
	struct tpck_settings settings;
	int complaints;         /* of reading the settings */
	char shm[TPCK_PATH_MAX], store[TPCK_PATH_MAX];
	const char *job;        /* NULL: all */
	bool json, force, state, files, device;
	const char *output;     /* NULL: standard output */
	double delay;           /* seconds; 0: not said */
	double wait;            /* seconds a probe */
	long times;             /* 0: not said */
	int count;              /* what is left of the command line */
	char **operands;
};

/* The options that a verb may have of its own. */
enum cli_own { CLI_OWN_NONE, CLI_OWN_FORCE = 1, CLI_OWN_STATE = 2, CLI_OWN_FILES = 4, CLI_OWN_OUTPUT = 8, CLI_OWN_TIMES = 16,
	       CLI_OWN_DEVICE = 64 /* --device and --wait */,
	       CLI_OWN_JOB = 32 /* the operand, if there is one, is the job */ };

/* Reads --json, --job, --dir and the verb's own. Prints usage itself; CLI_GOOD to go on, -1 when --help was all. */
int cli_options(struct cli *cli, int argc, char **argv, const char *usage, unsigned own);
/* Calls visit for every job, or the one that was named. Stops at the first non-zero answer. */
int cli_each_job(struct cli *cli, int (*visit)(struct cli *cli, const char *job, void *context), void *context);

/* "12.3 MiB" and "2 min" into a static ring of buffers. */
const char *cli_bytes(uint64_t bytes);
const char *cli_span(double seconds);

/* ls --files: the program's own files that are not at their paths yet. `json` NULL: a table; its head is printed unless
 * *headed. */
struct json_object;
int cli_list_files(struct cli *cli, const char *job, struct json_object *json, bool *headed);

/* show --files: of the operands, or what is below the working folder, which files are taken when they are written. */
int cli_show_files(struct cli *cli);

/* show: where the job's agent says that copies are on other nodes, and which it holds for them; nothing without an agent. */
void cli_show_copies(const struct cli *cli, const char *job);
/* To a session's row: those of its generation, as a list, and what the agent has sent for copies. */
void cli_copies_json(const struct cli *cli, const char *job, uint64_t generation, struct json_object *to);

/* verify --files: published files against their digests (runtime/store/sums.h). */
int cli_verify_files(struct cli *cli);

/* The path of one of the library's own files ("libtranspckpt.so"): beside a command that was not installed; in the lib of the tree
 * that this one lies in, wherever that was moved to; else where it was installed to. False: it is not there, and `path` is where it should be. */
bool cli_library(const char *name, char path[static TPCK_PATH_MAX]);

/* A checkpoint as a user names it: STEP, STEP.gG, or the folder's name. generation 0: any. */
int cli_point_parse(const char *text, struct tpck_point *point);

int verb_run(int argc, char **argv);
int verb_ls(int argc, char **argv);
int verb_show(int argc, char **argv);
int verb_verify(int argc, char **argv);
int verb_rm(int argc, char **argv);
int verb_infer(int argc, char **argv);
int verb_doctor(int argc, char **argv);
int verb_report(int argc, char **argv);
int verb_top(int argc, char **argv);
int verb_spare(int argc, char **argv);

#endif
