/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that wait for each other. Event loop. */
#ifndef TPCK_AGENT_SESSION_STALL_H
#define TPCK_AGENT_SESSION_STALL_H

#include <stdint.h>

#include "agent/loop/loop.h"
#include "runtime/wire/segment.h"

struct launch;
struct tpck_waiting;

extern const struct loop_part stall_loop;

/* Whom the ranks of a launch have been waiting for since then: logs it, and says it in `text`. */
enum { STALL_TEXT = sizeof ((struct tpck_control *)0)->waiting };
void stall_describe(const struct tpck_waiting *waiting, uint64_t since_ns, char text[STALL_TEXT]);
/* The ranks go on, and it is logged. */
void stall_over(uint64_t since_ns);
/* In the control pages of the ranks here, for who looks; "": they get on. */
void stall_show(struct launch *launch, const char *text);

#endif
