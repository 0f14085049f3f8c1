/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that wait for each other: which one the others wait for, by what each has queued on its communicators. Every node's
 * agent says that of its ranks when they do not get on; whoever has heard it of all ranks can say it. Nothing here looks or speaks.
 */
#ifndef TPCK_RUNTIME_PEER_WAITING_H
#define TPCK_RUNTIME_PEER_WAITING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a node says: rows of ranks, each with its marks behind it. */
struct tpck_waiting_rank {
	uint32_t rank, marks;
	int32_t pid;
	uint32_t state;              /* as /proc/PID/stat has it: 'T' where it is stopped; 0: not known */
};
struct tpck_waiting_mark {
	uint64_t id;                 /* of the communicator, the same for all its ranks */
	uint64_t collectives, elements; /* queued so far; in the last */
	uint64_t age_ns;             /* since that; UINT64_MAX: there was none */
	uint32_t index;              /* what the rank calls it */
	uint32_t last;               /* enum tpck_collective */
};

struct tpck_waiting;

/* For so many ranks. NULL: there is no memory. */
struct tpck_waiting *tpck_waiting_new(uint32_t world);
void tpck_waiting_free(struct tpck_waiting *waiting);
/* The ranks of a node do not get on; replaces what was said of them. host: as a user calls it; "": there is only one. 0,
 * -EINVAL: these are no such rows, or -ENOMEM. */
int tpck_waiting_put(struct tpck_waiting *waiting, const char *node, const char *host, const void *rows, size_t size);
/* The node's ranks do, or are gone. */
void tpck_waiting_take(struct tpck_waiting *waiting, const char *node);
/* Whether none gets on. */
bool tpck_waiting_all(const struct tpck_waiting *waiting);
/* "rank 3 on hostb has not queued collective 7 of communicator 0, ncclAllReduce of 64 elements; rank 0 queued it". Where several
 * communicators are uneven, of one whose late ranks wait in no other. Cut off where it is longer. Without memory: "". */
void tpck_waiting_describe(const struct tpck_waiting *waiting, char *text, size_t size);

#endif
