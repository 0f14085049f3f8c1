/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The twins of a job's ranks (doc/twin.md, "Several ranks"), as their supervisors see them (runtime/wire/twin_set.h). Twins meet among themselves, at a port of
 * their own, and so are there all together: where one ends all do, and the next ones meet at another port. Where a rank's program is ended all change over;
 * where they cannot all are forked once more. Of a job on several nodes that is decided on rank 0's, and the others ask.
 */
#ifndef TPCK_RUNTIME_TWIN_SET_H
#define TPCK_RUNTIME_TWIN_SET_H

#include "runtime/wire/twin_set.h"

/* The set of a rank that has this session. NULL: it is not there yet, or cannot be had, with *why then. */
struct tpck_twin_set *tpck_twin_set_join(const char *session, uint32_t rank, uint32_t world, int32_t supervisor, int32_t living, const char **why);
/* The rank's supervisor does not look at it any more. */
void tpck_twin_set_leave(struct tpck_twin_set *set, uint32_t rank);

/* Rank 0's supervisor: whether every rank is there, and none has a twin; then twins of a new epoch may begin, which they do where a port is free. */
bool tpck_twin_set_is_free(const struct tpck_twin_set *set);
void tpck_twin_set_begin(struct tpck_twin_set *set);

/* A twin of that epoch has ended, or cannot be made: all others of it end, too. */
void tpck_twin_set_over(struct tpck_twin_set *set, uint32_t epoch);
/* All ranks change over, if each has a twin of that epoch that runs forward and it is decided here; or do so already. */
bool tpck_twin_set_changes(struct tpck_twin_set *set, uint32_t epoch);
/* All ranks' programs are forked once more, if each rank has a supervisor, none has ended and it is decided here; or are to be by now. */
bool tpck_twin_set_again(struct tpck_twin_set *set, uint32_t rank);
/* Whether the rank's is to be. */
bool tpck_twin_set_is_due(const struct tpck_twin_set *set, uint32_t rank);
/* Has the other supervisors look. */
void tpck_twin_set_tell(struct tpck_twin_set *set, uint32_t rank);
/* Has the agent look, where it is to tell others. */
void tpck_twin_set_say(struct tpck_twin_set *set);

/* Where another node decides: the rank's program is to be taken over from, or, if it `may`, forked once more. */
void tpck_twin_set_ask(struct tpck_twin_set *set, uint32_t rank, bool may);
bool tpck_twin_set_is_asking(const struct tpck_twin_set *set, uint32_t rank);
/* Rank 0's supervisor: decides what others have asked. Whether there was something. */
bool tpck_twin_set_answer(struct tpck_twin_set *set);

/*
 * Whether another rank's program is about to end, or has ended and its supervisor has not said yet what follows from that. Who sees a rank's connections end may
 * end himself sooner than that rank has; and news of another node come later still: since_ns is when the rank's program ended, in CLOCK_MONOTONIC.
 */
bool tpck_twin_set_is_undecided(const struct tpck_twin_set *set, uint32_t rank, uint64_t since_ns);

#endif
