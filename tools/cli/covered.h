/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of a process's twin (doc/twin.md), for show, top and report. */
#ifndef TPCK_TOOLS_CLI_COVERED_H
#define TPCK_TOOLS_CLI_COVERED_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/store/memory_tier.h"

struct cli_twin {
	bool there;              /* it follows; else there was one, or somebody took over */
	int process;             /* the nearest one */
	int other;               /* another one, or 0 */
	uint64_t step, proven;   /* up to which it may go, and to which it has come, each call as in the record */
	uint64_t lag;            /* iterations that it is behind */
	double lag_ms;           /* how long they took */
	bool covers;             /* it could take over at once, at `step` */
	double uncovered_sec;    /* else: about how long until it could; -1: nobody knows */
	uint32_t takeovers;
};

/* False: the session has nothing to do with twins. */
bool cli_twin_of(const struct tpck_session *session, struct cli_twin *twin);
/* "process 7 has repeated 90 iterations, and is 3 (12 ms) behind; takeovers so far: 1", as one line without an end. */
void cli_twin_text(const struct cli_twin *twin, char *text, size_t size);

#endif
