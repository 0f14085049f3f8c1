/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event loop: what it waits for, and what follows. The agent is made of parts, each of which may have something to do at the beginning, after
 * every event, at a time of its own and at the end. They stand in one table, which main() has: the loop knows none of them by name. All that is
 * here is the loop's thread's.
 */
#ifndef TPCK_AGENT_LOOP_LOOP_H
#define TPCK_AGENT_LOOP_LOOP_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

/* Whose loop it is: handed back to whatever is called, and not known here. */
struct agent;

/* A descriptor of the event loop and what to call when it is ready. */
struct watch {
	int fd;
	void (*ready)(struct agent *agent, struct watch *watch);
};

/* A part; what is NULL is nothing to do. */
struct loop_part {
	/* 0, or -errno: the agent does not start. Where `err` is left without a text the loop fills it in. */
	int (*begin)(struct agent *agent, struct tpck_error *err);
	/* Everything that follows from a change. Called after every event. */
	void (*consider)(struct agent *agent);
	/* When `consider` has something to do by itself, in nanoseconds of tpck_clock_monotonic_ns(); UINT64_MAX: never. */
	uint64_t (*deadline)(const struct agent *agent);
	/* Ends what was begun; of a part that has begun only. */
	void (*stop)(struct agent *agent);
};

extern struct loop {
	unsigned jobs; /* given to workers and not yet done */
} loop;

/* Begins all parts, the last of the table first: what a part needs stands below it. The table is the caller's, and stays. 0 or -errno. */
int loop_begin(struct agent *agent, const struct loop_part *const *parts, size_t count, struct tpck_error *err);
/* Returns behind loop_end(). The parts consider from the first to the last of the table. */
void loop_run(void);
/* There is nothing more to do. */
void loop_end(void);
/* The parts stop from the first to the last of the table. */
void loop_stop(void);

/* The watch is the caller's, and stays until it is not watched any more. 0 or -errno. */
int loop_watch(struct watch *watch);
void loop_unwatch(struct watch *watch);

#endif
