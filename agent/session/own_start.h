/* SPDX-License-Identifier: Apache-2.0 */
/* How a start goes on where there are two ways: from a snapshot, or as the program would without the library (doc/record.md, "Two ways to go on"). */
#ifndef TPCK_AGENT_SESSION_OWN_START_H
#define TPCK_AGENT_SESSION_OWN_START_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/store/program.h"
#include "runtime/wire/message.h"

/* One question, for all ranks of a launch. */
struct own_start {
	uint32_t flags;      /* of their HELLO */
	uint64_t limit_ns;   /* going forward may take so long; 0: as long as it takes */
	struct tpck_program *program; /* of the first rank; NULL: nothing is known */
	struct tpck_own_choice choice;
	/* the answer */
	bool chosen;         /* they begin without the snapshot */
	uint64_t expected_ns; /* else: going forward takes so long, as measured; 0: it was not */
	char said[400];      /* a line for the user if they do; else what is behind the line that they go forward, or "" */
};

/* By the first rank's HELLO. Looks at the program's own files, with what is owed to their paths: not in the event loop. */
struct own_start own_start_of(const struct tpck_hello *hello, struct tpck_program *program);
/* All ranks could be given this point, and nothing newer: whether they begin without it all the same. */
bool own_start_is_chosen(struct own_start *own, const struct tpck_point *point);

#endif
