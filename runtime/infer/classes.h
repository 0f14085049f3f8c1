/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Content classes: which blocks change in the optimizer phase only, which earlier, which never
 * (doc/snapshots.md, "What a snapshot holds"). The evidence is digests of every live block, taken at boundaries and, while
 * learning, where the optimizer phase begins. A block is classed after it behaved the same way in
 * TPCK_CLASSES_EVIDENCE iterations in a row; what contradicts its class takes the class away.
 * Thread-safe.
 */
#ifndef TPCK_RUNTIME_INFER_CLASSES_H
#define TPCK_RUNTIME_INFER_CLASSES_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/wire/segment.h"

enum { TPCK_CLASSES_EVIDENCE = 3 };

/* Digests of the rows of a plan (by ->order and ->address; module variables by ->address), taken at
 * the boundary that ended `step`, or where the optimizer phase of iteration `step` + 1 began. */
void tpck_classes_boundary(const struct tpck_image_row *rows, uint32_t count, const uint64_t *digests, uint64_t step);
void tpck_classes_optimizer(const struct tpck_image_row *rows, uint32_t count, const uint64_t *digests, uint64_t step);
/* Whether digests at the begin of optimizer phases would teach something. */
bool tpck_classes_learning(void);
/* The class of a block: TPCK_CLASS_UNKNOWN until there is evidence. */
uint32_t tpck_classes_of(uint64_t order, uint64_t address);
/* Grows when any block's class changes. */
uint64_t tpck_classes_version(void);
/* A snapshot did not hold what the device had: nothing that was learnt is believed any more. */
void tpck_classes_forget(void);

#endif
