/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the agent that leads a launch knows of each of its ranks. Of identities it has digests only: a text has some kilobytes, is
 * mostly the same for all ranks, and is only compared here, since what differs is said where the rank is.
 */
#ifndef TPCK_RUNTIME_PEER_ROLL_H
#define TPCK_RUNTIME_PEER_ROLL_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/peer/node_names.h"
#include "runtime/store/file_names.h"
#include "runtime/store/manifest.h"

struct tpck_roll;

/* NULL: there is no memory. */
struct tpck_roll *tpck_roll_new(uint32_t world);
/* For another thread. NULL: there is no memory, or ranks have not come yet. */
struct tpck_roll *tpck_roll_copy(const struct tpck_roll *roll);
void tpck_roll_free(struct tpck_roll *roll);

/* A rank is there (again), and asks to go on, or does not. form: of its identity (agent/programs/identity_text.h). 0 or -ENOMEM. */
int tpck_roll_enter(struct tpck_roll *roll, uint32_t rank, uint32_t ordinal, const struct tpck_identity_key *key, const char *form, bool asks);
/* The agent of the rank's node is gone. What it was stays known. */
void tpck_roll_leave(struct tpck_roll *roll, uint32_t rank);
/* The process of a rank that was entered. */
uint32_t tpck_roll_ordinal(const struct tpck_roll *roll, uint32_t rank);
/* How many of those that are there ask to go on, and how many do not. */
uint32_t tpck_roll_asking(const struct tpck_roll *roll);
uint32_t tpck_roll_begun(const struct tpck_roll *roll);
/* The rank has ended. True: all have, and well. */
bool tpck_roll_ended(struct tpck_roll *roll, uint32_t rank, bool well);

/* The forms of all ranks' identities, each once. */
const struct tpck_names *tpck_roll_forms(const struct tpck_roll *roll);
/* Whether a rank's identity is of the form with this number. */
bool tpck_roll_is(const struct tpck_roll *roll, uint32_t rank, uint32_t ordinal, uint32_t form);
/* Whether a checkpoint is of all these ranks, by their whole identities, and can be gone on from. */
bool tpck_roll_may_take(const struct tpck_roll *roll, const struct tpck_manifest *manifest);

#endif
