/* SPDX-License-Identifier: Apache-2.0 */
/* Calls on communicators that are counted as they are made, or, where a stream captures them, at each launch of their graph. */
#ifndef TPCK_RUNTIME_TRACK_COMMUNICATOR_CALLS_H
#define TPCK_RUNTIME_TRACK_COMMUNICATOR_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/track/communicators.h"

struct tpck_communicator_call {
	const void *handle;
	uint32_t index;            /* of the communicator: another one may get its handle */
	uint32_t peer;             /* of a transfer */
	enum tpck_collective kind;
	bool shown;                /* it is the last one on its communicator */
	uint64_t what, elements;   /* as tpck_communicator_collective() and tpck_communicator_mark() have them */
};
/* Counts it; not where the communicator is gone. */
void tpck_communicator_count(const struct tpck_communicator_call *call);

/* A graph's, in order. A list that has more than one reference does not change. */
struct tpck_communicator_calls;
enum { TPCK_CALLS_MAX = 65536 };
/* Adds one to the caller's list (NULL: there are none yet), which may become another one. -ENOMEM, or -ENOSPC: there are
 * TPCK_CALLS_MAX; then it stays as it is. */
int tpck_communicator_calls_add(struct tpck_communicator_calls **calls, const struct tpck_communicator_call *call);
/* Adds all of another list, which may be NULL; the same errors, and what has been added so far stays. */
int tpck_communicator_calls_append(struct tpck_communicator_calls **calls, struct tpck_communicator_calls *more);
/* One reference more, or less; NULL is none. */
struct tpck_communicator_calls *tpck_communicator_calls_hold(struct tpck_communicator_calls *calls);
void tpck_communicator_calls_drop(struct tpck_communicator_calls *calls);
void tpck_communicator_calls_count(const struct tpck_communicator_calls *calls);

#endif
