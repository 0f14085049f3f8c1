/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tier that is no folder: objects in this process's memory. What a store of objects cannot do this one does not, so that what publishes, reads and removes
 * shows that it needs no more than the verbs: nothing is renamed, nobody is held off, a list is in no order and has names of what was removed just before,
 * and there is no path by which the bytes could be reached.
 */
#ifndef TPCK_TESTS_UNIT_OBJECT_TIER_H
#define TPCK_TESTS_UNIT_OBJECT_TIER_H

#include "runtime/store/tier.h"

/* 0, or -ENOMEM. */
int object_tier_open(struct tpck_tier **tier);
/* Whether there is an object of that name, or one below it. */
bool object_tier_has(struct tpck_tier *tier, const char *name);
/* For tests that damage one: its bytes, until it is written again, and how many they are, which may be made fewer. NULL: there is none. */
uint8_t *object_tier_bytes(struct tpck_tier *tier, const char *name, size_t **size);
/* How often it was written. */
unsigned object_tier_writes(struct tpck_tier *tier, const char *name);

#endif
