/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints that no name tells: what a file turned out to be when it had been written, by its first bytes, or since they came
 * from a device. The file itself is where it is by then; its pattern of names (tpck_view_pattern()) is kept in the job's table,
 * and the next one of it is taken from its opening on. Known to the library and to `transpckpt show --files`.
 */
#ifndef TPCK_RUNTIME_VIEW_LEARNT_NAMES_H
#define TPCK_RUNTIME_VIEW_LEARNT_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/view/rules.h"
#include "runtime/view/view.h"

enum {
	TPCK_LEARNT_LEAST = 64 << 10, /* what is smaller is no checkpoint to hurry for */
	TPCK_LEARNT_HEAD = 512,       /* so much of a file's begin tells what it is */
};

/* TPCK_RULE_UNKNOWN: the first `got` bytes of a file of `size` are no checkpoint's. */
enum tpck_rule tpck_learnt_content(const unsigned char *head, size_t got, uint64_t size);
/* The hash of a name with runs of digits counted as one, whatever its folder. */
uint32_t tpck_learnt_name(const char *name);
/* Whether one of these patterns is of such a name, in some folder. */
bool tpck_learnt_may_be(const struct tpck_view_learnt *learnt, uint32_t count, const char *name);
/* What the file `name` in the folder of that path is taken by; TPCK_RULE_UNKNOWN: it is not. */
enum tpck_rule tpck_learnt_rule(const struct tpck_view_learnt *learnt, uint32_t count, const char *folder, const char *name);
/* False: it is there already, or there is no room. The lock is held. */
bool tpck_learnt_add(struct tpck_view *view, const char *folder, const char *name, enum tpck_rule rule);

#endif
