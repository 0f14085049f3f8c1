/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The twins of a job's ranks, all on one node (doc/twin.md, "Several ranks"): memory that the ranks' supervisors share, a file in the session of rank 0. Twins
 * meet among themselves, at a port of their own, and so are there all together: where one ends all do, and the next ones meet at another port. Where a rank's
 * program is ended all change over; where they cannot all are forked once more.
 */
#ifndef TPCK_RUNTIME_TWIN_SET_H
#define TPCK_RUNTIME_TWIN_SET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define TPCK_TWIN_SET_FILE "twins"
#define TPCK_TWIN_SET_MAGIC 0x73746e6977746b74ull /* "tktwins" */

struct tpck_twin_seat {
	_Atomic int32_t supervisor, living; /* processes; supervisor 0: the rank has held no snapshot yet */
	_Atomic uint32_t epoch;             /* of the rank's twin; 0: it has none. [supervisor] */
	_Atomic uint32_t follows;           /* the epoch whose twin runs forward. [twin] */
	_Atomic uint32_t ended;             /* the rank's program has ended, and is not taken over. [supervisor] */
	_Atomic uint32_t waits;             /* the rank's program has ended, as it may where another rank's was ended. [supervisor] */
	_Atomic uint32_t again;             /* up to which number of `again` it has been forked once more. [supervisor] */
};

struct tpck_twin_set {
	uint64_t magic;            /* written last */
	uint32_t version, world;   /* TPCK_WIRE_VERSION; ranks */
	uint64_t processes;        /* number of the name space in which processes are counted */
	_Atomic uint32_t epoch;    /* of the newest twins; 0: there were none. [leader] */
	_Atomic uint32_t over;     /* the newest epoch of which a twin has ended. [any] */
	_Atomic uint32_t changes;  /* 1: all ranks change over to their twins. [any] */
	_Atomic uint32_t port;     /* at which the twins of `epoch` meet. [leader] */
	_Atomic uint32_t again;    /* how often all ranks' programs are to be forked once more. [any] */
	struct tpck_twin_seat seat[];
};

/*
 * The set of a rank that has a session, SHM/JOB/gGENERATION.rRANK.oORDINAL; rank 0's supervisor makes it, and leads. NULL: it is not there yet, or cannot be
 * had, with *why then.
 */
struct tpck_twin_set *tpck_twin_set_join(const char *session, uint32_t rank, uint32_t world, int32_t supervisor, int32_t living, const char **why);
void tpck_twin_set_leave(struct tpck_twin_set *set);

/* The leader: whether every rank is there, and none has a twin; then twins of a new epoch may begin, which they do where a port is free. */
bool tpck_twin_set_is_free(const struct tpck_twin_set *set);
void tpck_twin_set_begin(struct tpck_twin_set *set);

/* A twin of that epoch has ended, or cannot be made: all others of it end, too. */
void tpck_twin_set_over(struct tpck_twin_set *set, uint32_t epoch);
/* All ranks change over, if each has a twin of that epoch that runs forward; or do so already. */
bool tpck_twin_set_changes(struct tpck_twin_set *set, uint32_t epoch);
/* All ranks' programs are forked once more, if each rank has a supervisor and none has ended; or are to be by now. */
bool tpck_twin_set_again(struct tpck_twin_set *set, uint32_t rank);
/* Whether each rank has a supervisor here. */
bool tpck_twin_set_is_whole(const struct tpck_twin_set *set);
/* Whether the rank's is to be. */
bool tpck_twin_set_is_due(const struct tpck_twin_set *set, uint32_t rank);
/* Has the other supervisors look. */
void tpck_twin_set_tell(const struct tpck_twin_set *set, uint32_t rank);

/*
 * Whether another rank's program is about to end, or has ended and its supervisor has not said yet what follows from that. Who sees a rank's connections end may
 * end himself sooner than that rank has.
 */
bool tpck_twin_set_is_undecided(const struct tpck_twin_set *set, uint32_t rank);

#endif
