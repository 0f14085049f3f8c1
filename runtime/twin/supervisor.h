/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The place of a program that has a twin (doc/twin.md). What was started stays as a supervisor: it keeps the process's number, and whoever started it sees
 * nothing else. The program is its child, and so is the twin, a process of the same program that runs forward behind it. Both are forked from the supervisor
 * before the program has begun, and so have the same addresses. Where the program is ended by a signal that nobody sent to end it, the twin is told to take
 * over; where none can, the program is forked once more, and goes forward to its newest snapshot as any start does. Else its end is the supervisor's.
 */
#ifndef TPCK_RUNTIME_TWIN_SUPERVISOR_H
#define TPCK_RUNTIME_TWIN_SUPERVISOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Why a program that ends with a status other than 0 may be taken over from. */
enum tpck_twin_excuse {
	TPCK_TWIN_BLAMED,       /* by nothing */
	TPCK_TWIN_COMMUNICATOR, /* NCCL has failed, perhaps since another rank has ended */
	TPCK_TWIN_DEVICE,       /* the device fails for good */
	TPCK_TWIN_ANY_STATUS,   /* whoever started the program wants so */
};

enum tpck_twin_word { TPCK_TWIN_FOLLOW, TPCK_TWIN_TAKE_OVER };

enum { TPCK_TWINS_MAX = 2 };

/* What the supervisor shares with one of the twins. */
struct tpck_twin_place {
	_Atomic int32_t process;         /* 0: there is none. [supervisor] */
	_Atomic uint32_t word;           /* enum tpck_twin_word; a futex. [supervisor] */
	_Atomic uint32_t follows;        /* see tpck_supervisor_follows(). [twin] */
	_Atomic uint64_t proven;         /* iterations that the twin has repeated. [twin] */
	char folder[256];                /* of the twin's own, in memory; the supervisor removes it. [twin] */
};

/* Memory that supervisor, program and twins share. */
struct tpck_twin_page {
	struct tpck_twin_place twin[TPCK_TWINS_MAX];
	_Atomic int32_t living;          /* the program's process. [supervisor] */
	_Atomic uint32_t held;           /* snapshots that the living one has held: from the first on there is a twin. [living] */
	_Atomic uint32_t takeovers;      /* [supervisor] */
	_Atomic uint32_t live;           /* the one that took over, or was forked once more, is live. [living] */
	_Atomic uint32_t again;          /* the living one was forked once more. [supervisor] */
	_Atomic uint32_t counts;         /* the end of the one before it is a death of the program's, which was live: one that was forked once more asks in `session`. [supervisor] */
	_Atomic uint32_t failure;        /* enum tpck_failure of the one before the living one. [supervisor] */
	_Atomic uint32_t last;           /* nobody goes on behind the living one's end. [twin, living] */
	_Atomic uint32_t spent;          /* the living one has read what cannot be read twice. [living] */
	_Atomic uint32_t left;           /* the living one executes another program, which has no twin. [living] */
	_Atomic uint32_t excuse;         /* enum tpck_twin_excuse. [living] */
	_Atomic uint32_t stands_in;      /* the process was started on a spare node, in the place of one whose node is lost. [supervisor] */
	_Atomic uint32_t stalls;         /* 1: the living one has ended no iteration for long. [twin] */
	_Atomic uint64_t continued_ns;   /* CLOCK_MONOTONIC at which the living one was last told to go on, having been stopped. [supervisor] */
	uint32_t deaths;                 /* one behind the other, each within an iteration of the last one. [twin] */
	uint64_t died_at;                /* iterations that were done at the last one. [twin] */
	uint64_t differed_ns;            /* CLOCK_MONOTONIC: when it was last said at `warn` that a twin ends; 0: never. [twin] */
	int64_t input_at;                /* place in standard input at the start, if that is a file. [supervisor] */
	char host[64];                   /* where rank 0 is, if that is not where the launcher has said; "" else. [living] */
	char session[256];               /* of the living one, before `held` counts, and before `live` where that one took over. [living] */
};

enum tpck_twin_role {
	TPCK_TWIN_ALONE,  /* a process as ever */
	TPCK_TWIN_LIVING, /* the program, below a supervisor */
	TPCK_TWIN_TWIN,
};

struct tpck_supervised {
	unsigned twins; /* so many twins there are to be, of several ranks one at most; 0: the program is forked once more where it is ended, at best */
	bool stands_in; /* it was started on a spare node, and goes on from what there is, or ends */
};

/* In a process with one thread that has not begun: forks the program, and returns there, and in each twin. In the supervisor the function does not return.
 * ALONE: there is none; *why says why, if that is worth a line. Of several ranks each has its supervisor, and they act together. */
enum tpck_twin_role tpck_supervise(uint32_t rank, uint32_t world, const struct tpck_supervised *how, const char **why);
/* NULL in a process without a supervisor. */
struct tpck_twin_page *tpck_twin_page(void);
/* In a twin, and in what was one: its place in the page, and which one that is. */
struct tpck_twin_place *tpck_twin_own_place(void);
/* The twin that follows, and has come furthest; NULL: none follows. */
struct tpck_twin_place *tpck_twin_nearest(void);
/* Whether this process stands in the place of one that was ended, and goes on by itself as any start does. */
bool tpck_supervisor_again(void);
/* Whether it was started on a spare node. */
bool tpck_supervisor_stands_in(void);
/* The program has read from standard input: where that is no file it cannot be forked once more. */
void tpck_supervisor_spent(void);
/* The program: one that ends with a status other than 0 has this excuse. */
void tpck_supervisor_excuse(enum tpck_twin_excuse excuse);
/* The twin: the living one is to be ended, as it stalls. */
void tpck_supervisor_stalls(void);
/* The twin: it runs forward, and can take over. */
void tpck_supervisor_follows(void);
/* Where rank 0 is, if that is not where the launcher has said; ranks that start from here on are to meet there. */
void tpck_supervisor_meet_at(const char *host);
/* The twin of one of several ranks: the port at which they meet, of their own; 0: there is none. */
unsigned tpck_supervisor_port(void);
/* This process is about to execute a program; and could not. */
void tpck_supervisor_leaves(bool leaves);
/* Whether the fork that is being made is the supervisor's: for handlers of forks. */
bool tpck_supervisor_forks(void);
/* The variable by which `transpckpt run --twin` says of which process it is, by its number: a program that this one starts has it, too. */
#define TPCK_TWIN_PROCESS "TPCK_TWIN_PROCESS"
/* The variable by which a spare node's command says that it starts this process in the place of one whose node is lost. */
#define TPCK_TWIN_STANDS_IN "TPCK_TWIN_STANDS_IN"
/* The variable that says, in a program that has a twin and in what it starts, that there is one. */
#define TPCK_TWIN_BELOW "_TRANSPCKPT_TWIN_BELOW"

#endif
