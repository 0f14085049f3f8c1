/* SPDX-License-Identifier: Apache-2.0 */
/* Slurm's way to write many nodes' names: "login2,n[01-03,7],rack[1-2]-[8-9]" (slurm's hostlist(3), man page scontrol(1)). */
#ifndef TPCK_RUNTIME_PEER_NODELIST_H
#define TPCK_RUNTIME_PEER_NODELIST_H

#include <stddef.h>

/* Longest name, with its NUL, as of a host. */
enum { TPCK_NODELIST_NAME = 256 };

/* Calls visit for each name, in the list's order, for the first `most` of them; a number in brackets is as wide as the first of its
 * range. Returns how many names the list stands for, also if they are more than `most` (at the most, a range of 18 digits), or
 * -EINVAL: it is no such list, and visit is not called. visit may be NULL. */
long long tpck_nodelist_each(const char *list, size_t most, void (*visit)(void *context, const char *name), void *context);

#endif
