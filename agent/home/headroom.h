/* SPDX-License-Identifier: Apache-2.0 */
/* How much the memory tier may still grow, by what is there, the settings, its tmpfs and the machine. Any thread; in bytes. */
#ifndef TPCK_AGENT_HOME_HEADROOM_H
#define TPCK_AGENT_HOME_HEADROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Left over for the log and for files of the tier itself. */
#define ROOM_SPARE (64ull << 20)

/* What sessions, copies of other nodes' and what these owe take. */
uint64_t room_taken(void);
/* What the memory control groups above us, and the machine, still allow, but for what is left to others in them; UINT64_MAX: any. */
uint64_t room_of_groups(void);
/* Whether it may grow by so many bytes; the reason why not. */
bool room_for(uint64_t bytes, char *reason, size_t size);

#endif
