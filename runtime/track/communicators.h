/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators by the handle that the program knows: who is in them, and how much was done on them. What is counted is
 * what was queued, so that at a boundary (gate closed) the counts are those of the iterations before it; a group that is
 * still open counts for the next. While running forward they count as in the first run. What a stream captures into a
 * graph is counted whenever that is launched.
 */
#ifndef TPCK_RUNTIME_TRACK_COMMUNICATORS_H
#define TPCK_RUNTIME_TRACK_COMMUNICATORS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/wire/segment.h"

enum { TPCK_COMMUNICATORS_MAX = 1024 };

struct tpck_communicator_transfers {
	uint64_t sends, receives;
};

struct tpck_communicator {
	void *_Atomic handle;      /* what the program has: this entry's address, a key, or NCCL's own handle; NULL: none */
	void *_Atomic real;        /* behind a key: NCCL's handle, or NULL */
	_Atomic bool pending;      /* NCCL has not made it: the process runs forward */
	_Atomic bool reserved;     /* NCCL may still write `real`, or has done so: nobody else gets the entry */
	uint64_t id;               /* the same in all its ranks, and in a run that goes on from here */
	uint32_t index;            /* which one of this process it is, in order of creation: the same in every run */
	uint32_t size, rank;
	int32_t device;            /* -1: not known */
	_Atomic bool captured;     /* a graph has captured a call on it */
	_Atomic bool failed;       /* it has been said that something is wrong with it */
	_Atomic uint32_t births;   /* communicators that were made of it */
	_Atomic uint64_t collectives;
	_Atomic uint64_t order;    /* digest of which collectives those were, in order */
	struct tpck_communicator_transfers *_Atomic transfers; /* by peer; NULL: there were none */
};

/* The table, for tpck_communicator_real() only. */
extern struct tpck_communicator tpck_communicator_table[TPCK_COMMUNICATORS_MAX] __attribute__((visibility("hidden")));

/* What NCCL is to be told in place of what the program says: the handle behind a key, NULL behind a key of one that is gone, and any
 * other handle as it is. No locks, whatever other threads do. */
static inline void *tpck_communicator_real(const void *handle)
{
	uintptr_t at = (uintptr_t)handle - (uintptr_t)tpck_communicator_table;

	if (__builtin_expect(at >= sizeof tpck_communicator_table || at % sizeof *tpck_communicator_table, 0))
		return (void *)(uintptr_t)handle;
	return atomic_load_explicit(&tpck_communicator_table[at / sizeof *tpck_communicator_table].real, memory_order_acquire);
}
/* An entry whose address is to be a key; NCCL may be given `&entry->real` to write its handle to, which is the entry's own address so far.
 * NULL: there are TPCK_COMMUNICATORS_MAX. */
struct tpck_communicator *tpck_communicator_reserve(void);
/* The communicator of a place was made: from now on it is known by its key. */
void tpck_communicator_begin(struct tpck_communicator *reserved, uint64_t id, uint32_t size, uint32_t rank, int32_t device);
/* The communicator of a place was not made. */
void tpck_communicator_release(struct tpck_communicator *reserved);

/* A handle of NCCL's own that the program has; one that is known already is replaced. -ENOSPC. */
int tpck_communicator_add(void *handle, uint64_t id, uint32_t size, uint32_t rank, int32_t device);
/* NULL: not known. Entries are never freed, so that one may be used while another thread ends it. */
struct tpck_communicator *tpck_communicator_find(const void *handle);
/* A communicator ends. A key's entry may be another one's at once. */
void tpck_communicator_remove(const void *handle);
/* A collective was queued; `what` tells which. */
void tpck_communicator_collective(struct tpck_communicator *communicator, uint64_t what);
void tpck_communicator_transfer(struct tpck_communicator *communicator, uint32_t peer, bool receive);
/* What that was, for others to see; `elements` a rank. */
void tpck_communicator_mark(struct tpck_communicator *communicator, enum tpck_collective what, uint64_t elements);
/* Where marks are kept from now on, of which there are TPCK_MARKS_MAX; for the life of the process. */
void tpck_communicators_show(struct tpck_communicator_mark *marks);
/* How often something was added or removed: what a list of them was made of. */
uint64_t tpck_communicators_changes(void);

/* All of them as an image has them. */
struct tpck_communicators {
	uint32_t communicators, peers;
	struct tpck_image_communicator *communicator;
	struct tpck_image_peer *peer;
};
/* 0 or -ENOMEM. The caller's, to free. Nothing where there are none. */
int tpck_communicators_take(struct tpck_communicators *all);
void tpck_communicators_free(struct tpck_communicators *all);
/* Whether this process has those of an image: NULL, or what differs, in the buffer. Ids are not looked at. */
const char *tpck_communicators_compare(const struct tpck_image_communicator *communicators, uint32_t count,
				       const struct tpck_image_peer *peers, uint32_t peer_count, char *buffer, size_t size);

/* Communicators that are pending, in no order; how many. */
uint32_t tpck_communicators_pending(struct tpck_communicator *all[TPCK_COMMUNICATORS_MAX]);
#endif
