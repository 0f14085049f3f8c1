/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a stand-in is told (tools/standin). While a program is run forward, a stand-in takes the place of a program that its first
 * run had started: it says what that one said, and ends as that one ended. A plan is a file: struct tpck_standin_plan, pieces of
 * output, then the program's path, its arguments and its variables, each NUL-terminated.
 */
#ifndef TPCK_RUNTIME_WIRE_STANDIN_H
#define TPCK_RUNTIME_WIRE_STANDIN_H

#include <stdatomic.h>
#include <stdint.h>

#define TPCK_STANDIN_MAGIC 0x6e69646e61747374ull
/* In the session folder: the control page, and plans, which end with the child's process id or the place's number. */
#define TPCK_STANDIN_CONTROL "programs"
#define TPCK_STANDIN_PLAN "program"
/* The file that a program's output goes to while it is run forward, as /proc/PID/fd names it. */
#define TPCK_STANDIN_DIVERTED "/memfd:tpck-output"

enum { TPCK_STANDIN_PLACES = 1024, TPCK_STANDIN_TAKEN = 1 << 16, TPCK_STANDIN_SESSION = 300 };
enum {
	TPCK_STANDIN_STARTS = 1, /* the program is started once its parent is live */
};
/* And its parent has heard the end of what it says to that stream, 1 or 2. */
#define TPCK_STANDIN_CLOSES(stream) (1u << (stream))

struct tpck_standin_plan {
	uint64_t magic;
	uint32_t version;   /* TPCK_WIRE_VERSION */
	uint32_t place;     /* its own in the control page */
	uint32_t flags;
	int32_t status;     /* as wait() gives it; nothing where it starts the program */
	uint32_t arguments, variables;
	uint64_t output;    /* bytes of the pieces: struct tpck_standin_piece, then its bytes */
	char control[320];  /* path of the page */
};

struct tpck_standin_piece {
	uint32_t stream;    /* 1: standard output, 2: standard error */
	uint32_t bytes;
};

/* Shared by the program and its stand-ins. */
struct tpck_standin_page {
	_Atomic uint32_t live;   /* the program is live: 1; it is not to be: 2 */
	_Atomic uint32_t others; /* stand-ins of programs that the program has started, which take places from the last one on */
	_Atomic uint32_t finish[TPCK_STANDIN_PLACES]; /* its parent waits for its end */
	_Atomic uint64_t live_ns; /* when it became that, by tpck_clock_monotonic_ns() */
	_Atomic uint32_t taken[TPCK_STANDIN_TAKEN / 32]; /* a bit for each program of the record, in its order: it was stood in for, or started anew */
	/* Programs that have said once more what they had said, as nothing could drop it; the name of one of them, NUL-terminated, is written before they are counted. */
	_Atomic uint32_t twice;
	char twice_name[40];
	/* Of a twin: it has not been told to take over; its record goes up to this cut of that session, whose folder's path is NUL-terminated: odd while that is
	 * written. `news` is a futex: something of this is new. */
	_Atomic uint32_t follows, news, cut_writes;
	int32_t process; /* the twin */
	char session[TPCK_STANDIN_SESSION];
	uint64_t cut_sequence, cut_offset;
};

#endif
