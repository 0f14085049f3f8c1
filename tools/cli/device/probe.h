/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probes of the device: what the library asks of the driver, asked in processes of their own, so that one that hangs or crashes is
 * a line of the result. A probe speaks to the command that started it by lines of JSON on its standard output: rows as
 * `transpckpt doctor --json` shows them, and what it is about to do, as {"at": "cuMemMap"}.
 */
#ifndef TPCK_TOOLS_CLI_DEVICE_PROBE_H
#define TPCK_TOOLS_CLI_DEVICE_PROBE_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/cli/doctor.h"

/* `transpckpt doctor PROBE_WORD NAME DEVICE` is one. */
#define PROBE_WORD "--device-probe"

struct probe {
	const char *name;      /* what its lines are about */
	void (*run)(void);
	unsigned starts;       /* in so many processes, one after the other */
	bool each;             /* of each device */
	enum finding hung;     /* if it does not end, or ends by itself */
	const char *meaning;   /* of that, and what to do */
};
/* The first says whether there is a device at all: without it the others are not tried. Ends with a row without a name. */
extern const struct probe probes[];

/* Runs one of the device of that number, in this process, which ends. */
int probe_main(const char *name, const char *device);

/* ---- inside of a probe ---- */

/* The command's settings, and the folder that images would be in. */
extern struct cli probe_cli;

/* What the driver is called for next: a line that says that it hangs says so. */
void probe_at(const char *call);
/* A row is about the probe's device, or about none. */
void probe_find(enum finding finding, const char *what, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same with a list of names for JSON; takes over the reference. */
void probe_find_names(enum finding finding, const char *what, struct json_object *names, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

#endif
