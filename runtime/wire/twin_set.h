/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the supervisors of a job's ranks share on one node (doc/twin.md, "Several ranks"): "SESSION/twins", one file of memory under that name in the session of
 * each rank there. The agent makes it. Of a job on several nodes each has one, and the agents tell each other what is in it: the node of rank 0 decides.
 */
#ifndef TPCK_RUNTIME_WIRE_TWIN_SET_H
#define TPCK_RUNTIME_WIRE_TWIN_SET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TPCK_TWIN_SET_FILE "twins"
#define TPCK_TWIN_SET_MAGIC 0x73746e6977746b74ull /* "tktwins" */

struct tpck_twin_seat {
	_Atomic int32_t supervisor, living; /* processes; supervisor 0: the rank has held no snapshot yet. Of a rank of another node -1 and 0 */
	_Atomic uint32_t here;              /* 1: the rank is on this node. [agent] */
	_Atomic uint32_t epoch;             /* of the rank's twin; 0: it has none. [supervisor] */
	_Atomic uint32_t follows;           /* the epoch whose twin runs forward. [twin] */
	_Atomic uint32_t ended;             /* the rank's program has ended, and is not taken over. [supervisor] */
	_Atomic uint32_t waits;             /* the rank's program has ended, as it may where another rank's was ended. [supervisor] */
	_Atomic uint32_t again;             /* up to which number of `again` it has been forked once more. [supervisor] */
	_Atomic uint32_t changed;           /* its twin has taken over, as all changed over: the rank's program is not the one any more that it was. [supervisor] */
	_Atomic uint32_t asks;              /* where another node decides: how often it has asked what is to follow from its program's end. [supervisor] */
	_Atomic uint32_t may;               /* 1: of the program that ended last there can be another fork. [supervisor] */
	_Atomic uint32_t answered;          /* up to which number of `asks` that is decided. [rank 0's supervisor] */
	_Atomic uint32_t ending;            /* of a rank of another node: its program is about to end. [agent] */
};

struct tpck_twin_set {
	uint64_t magic;            /* written last */
	uint32_t version, world;   /* TPCK_WIRE_VERSION; ranks */
	uint32_t apart, reserved;  /* 1: some of them are on other nodes */
	_Atomic uint64_t processes; /* number of the name space in which processes are counted; 0: no supervisor has come yet. [first supervisor] */
	_Atomic uint32_t epoch;    /* of the newest twins; 0: there were none. [rank 0's supervisor] */
	_Atomic uint32_t over;     /* the newest epoch of which a twin has ended. [any] */
	_Atomic uint32_t changes;  /* 1: all ranks change over to their twins. [who decides] */
	_Atomic uint32_t port;     /* at which the twins of `epoch` meet. [rank 0's supervisor] */
	_Atomic uint32_t again;    /* how often all ranks' programs are to be forked once more. [who decides] */
	_Atomic uint32_t said;     /* counts what the agent is to look at; a futex. [any] */
	/* Where rank 0 is on another node: what that one says of all ranks. [agent] */
	_Atomic uint32_t all_whole;   /* each has a supervisor */
	_Atomic uint32_t all_ending;  /* a program is about to end, or has, and it is not decided what follows */
	_Atomic uint32_t all_running; /* one goes on */
	/* Where a spare node may take over the ranks of a node that is lost (agent/spares). [agent] */
	_Atomic uint32_t away;      /* 1: a node is lost, or silent, and it is not decided yet whether a spare takes over its ranks */
	_Atomic uint32_t voters;    /* agents that decide that; 0: there is no spare, and ranks here run whoever is heard */
	_Atomic uint64_t lease_ns;  /* CLOCK_MONOTONIC until which the ranks of this node run; 0: without an end */
	struct tpck_twin_seat seat[];
};

static inline size_t tpck_twin_set_bytes(uint32_t world)
{
	return sizeof(struct tpck_twin_set) + world * sizeof(struct tpck_twin_seat);
}

/* Whether what all ranks do is decided on this node. */
static inline bool tpck_twin_set_decides(const struct tpck_twin_set *set)
{
	return !set->apart || atomic_load(&set->seat[0].here);
}

/* Whether a process is about to end, or has. Of one of this node. */
bool tpck_twin_set_is_ending(int32_t process);
/* Has the supervisors of this node look, but not that of `rank`. */
void tpck_twin_set_signal(const struct tpck_twin_set *set, uint32_t rank);
/* Whether each rank has a supervisor. */
bool tpck_twin_set_is_whole(const struct tpck_twin_set *set);

#endif
