/* SPDX-License-Identifier: Apache-2.0 */
/* The process that has the log for a program that it has started, or that one of its children has. */
#ifndef TPCK_RUNTIME_REPLAY_ROOT_H
#define TPCK_RUNTIME_REPLAY_ROOT_H

#include "runtime/replay/mail.h"
#include "runtime/replay/record_log.h"

/* Who is behind for longer, once the process with the log is live, goes by a clock of its own, as one that sees to something each minute. */
#define TPCK_BEHIND_NS 60000000000ull

struct tpck_root {
	const char *session;  /* its folder */
	int process;
	uint32_t number;      /* by which this program is known, in each run */
	uint32_t through;     /* by which the log knows it, or the nearest one that it descends from: made again with that one */
	struct tpck_mail *mail;
	bool forwards;        /* it runs forward: by this log, up to a boundary that the first run came to at this time */
	bool follows;         /* it did when it started this program, at least, which has to do once more what it did in the first run */
	struct tpck_log_position cut;
	uint64_t boundary_ns; /* tpck_clock_monotonic_ns() of that run */
};

#endif
