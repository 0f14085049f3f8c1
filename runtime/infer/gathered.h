/* SPDX-License-Identifier: Apache-2.0 */
/* What is gathered of an optimizer phase, between gathered.c and roles.c. */
#ifndef TPCK_RUNTIME_INFER_GATHERED_H
#define TPCK_RUNTIME_INFER_GATHERED_H

#include <stddef.h>
#include <string.h>

#include "runtime/infer/roles.h"

enum { TPCK_GATHERED_HEAD = 3 }; /* words before a launch's scalars */

/* A launch in words: its layout; tensors, and 1 << 32 where another launch may continue its lists; the operation's scalar;
 * then the layout's scalars, the lists of addresses, the numbers of elements, the addresses of steps if there are any. */
struct tpck_gathered {
	uint32_t used, room;
	bool overflown, unknown;
	uint64_t word[];
};

struct tpck_gathered_launch {
	const struct tpck_layout *layout;
	uint32_t tensors;
	bool full;
	double value;
	const uint64_t *scalars, *lists, *elements, *steps;
};

/* The launch at word `at`; where the next one begins. */
static inline uint32_t tpck_gathered_read(const struct tpck_gathered *gathered, uint32_t at, struct tpck_gathered_launch *launch)
{
	const uint64_t *word = &gathered->word[at];
	const struct tpck_layout *layout = (const void *)(uintptr_t)word[0];
	launch->layout = layout;
	launch->tensors = (uint32_t)word[1];
	launch->full = word[1] >> 32;
	memcpy(&launch->value, &word[2], sizeof launch->value);
	launch->scalars = word + TPCK_GATHERED_HEAD;
	launch->lists = launch->scalars + layout->scalars;
	launch->elements = launch->lists + (size_t)layout->lists * launch->tensors;
	launch->steps = layout->steps_at ? launch->elements + launch->tensors : NULL;
	return at + TPCK_GATHERED_HEAD + layout->scalars + launch->tensors * (layout->lists + 1 + (layout->steps_at != 0));
}

#endif
