/* SPDX-License-Identifier: Apache-2.0 */
/* What an examination finds: a line a thing, or a row of JSON. */
#ifndef TPCK_TOOLS_CLI_DOCTOR_H
#define TPCK_TOOLS_CLI_DOCTOR_H

#include <stdbool.h>

#include "tools/cli/cli.h"

struct json_object;

/* In order of how much each weighs: a note works in another way here, with what is bad there are no snapshots, or none that
 * a run goes on from. */
enum finding { GOOD, NOTE, BAD };
extern const char *const cli_finding_names[];

struct examination {
	struct cli *cli;
	struct json_object *json; /* an array; NULL: lines on standard output */
	bool bad;
	/* With --device: how many there are, and which one is spoken of; -1: none. */
	int devices, device;
};

void cli_find(struct examination *e, enum finding finding, const char *what, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* The same with a list of names, which JSON alone shows. The caller keeps its reference. */
void cli_find_names(struct examination *e, enum finding finding, const char *what, const char *text, struct json_object *names);

/* doctor --device: all probes, or those that the operands name, each in a process of its own. CLI_USAGE: there is none of that name. */
int cli_examine_device(struct examination *e);

#endif
