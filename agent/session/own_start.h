/* SPDX-License-Identifier: Apache-2.0 */
/* How a start goes on where there are two ways: from a snapshot, or as the program would without the library (doc/record.md, "Two ways to go on"). */
#ifndef TPCK_AGENT_SESSION_OWN_START_H
#define TPCK_AGENT_SESSION_OWN_START_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/store/file_names.h"

/* One question, for all ranks of a launch. */
struct own_start {
	uint32_t flags; /* of their HELLO */
	/* the answer */
	bool chosen;    /* they begin without the snapshot */
	char said[400]; /* then: the line for the user */
};

/* By the flags of the first rank's HELLO. */
struct own_start own_start_of(uint32_t flags);
/* All ranks could be given this point, and nothing newer: whether they begin without it all the same. */
bool own_start_is_chosen(struct own_start *own, const struct tpck_point *point);

#endif
