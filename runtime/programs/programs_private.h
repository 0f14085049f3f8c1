/* SPDX-License-Identifier: Apache-2.0 */
/* Between the parts of programs: children.c (children, and what the log gets of them) and starts.c (what is started while running
 * forward). */
#ifndef TPCK_RUNTIME_PROGRAMS_PROGRAMS_PRIVATE_H
#define TPCK_RUNTIME_PROGRAMS_PROGRAMS_PRIVATE_H

#include "runtime/programs/programs.h"
#include "runtime/replay/forward.h"
#include "runtime/wire/standin.h"

enum { TPCK_PROGRAM_NAME = 40, TPCK_PROGRAM_PATH = 256 };

/* Payload of TPCK_RECORD_PROGRAM. The program is the ordinal-th that the thread made a child for. */
enum { TPCK_PROGRAM_STARTED, TPCK_PROGRAM_SAID, TPCK_PROGRAM_ENDED, TPCK_PROGRAM_LOST };
struct tpck_record_program {
	uint32_t thread, ordinal;
	uint32_t flags;    /* of one that started: TPCK_PROGRAM_TALKS */
	int32_t status;    /* of one that ended: as wait() gives it */
	uint32_t polls;    /* how often the program asked whether it has ended, and it had not */
	uint32_t stream;   /* of what it said to a pipe, or wrote to a file: 1 or 2; the bytes follow */
	uint64_t path;     /* digest of what was executed; its name follows, without folders, NUL-terminated */
	uint64_t made_ns;  /* when the child was made, by tpck_clock_monotonic_ns() */
};
enum { TPCK_PROGRAM_TALKS = 1 }; /* its standard input is a pipe or a socket of its own */

/* What a child does. */
enum tpck_doing {
	TPCK_DOING_NOTHING, /* it was forked */
	TPCK_DOING_PROGRAM, /* it executes a program */
	TPCK_DOING_STANDIN, /* it plays one that had ended */
	TPCK_DOING_WAITS,   /* it starts one once the program is live */
	TPCK_DOING_WORKER,  /* it goes on in the same program: nothing of it is in the log */
};

/* What the log has of a child; UNKNOWN: while running forward, that it has nothing of what the child is to execute. */
enum { TPCK_NOTED_START = 1, TPCK_NOTED_END = 2, TPCK_NOTED_UNKNOWN = 4 };

/* A child of this process, in memory that both share. */
struct tpck_child {
	_Atomic int32_t pid;         /* 0: nobody's; -1: about to be made */
	_Atomic uint32_t doing;
	uint32_t thread, ordinal, flags;
	uint64_t path, made_ns;
	uint64_t pipes[3];           /* its standard output and error, where they are pipes or sockets; [0] is not used */
	struct tpck_child_file {
		uint64_t file;       /* it, told from others; 0: none */
		int64_t from;        /* where it is written from on */
		char path[TPCK_PROGRAM_PATH];
	} files[3];                  /* the same, where they are files that its parent has opened for it */
	char name[TPCK_PROGRAM_NAME];
	/* its parent's: */
	_Atomic uint32_t noted;      /* TPCK_NOTED_* */
	_Atomic uint32_t polls;
	uint32_t said;               /* bytes in the log */
	bool lost;                   /* more than that */
};

/* ---- children.c ---- */
extern struct tpck_child *tpck_children;
/* Another child of the thread; -1: no place. */
int tpck_child_take(struct tpck_thread *self, int32_t pid);
void tpck_child_free(int place);
/* The place of a child, or -1. */
int tpck_child_of(pid_t child);
/* Whether this is a child that shares its parent's memory (vfork). */
bool tpck_child_shares(void);
/* What the child executes. `own`: this is the child, with the descriptors that the program gets. */
void tpck_child_executes(int place, const char *path, enum tpck_doing doing, bool own);
/* The child is this process, whose descriptors are looked at if it may have its `own`. */
void tpck_child_spawned(int place, pid_t child, bool own);
/* The log gets that it started, or how it ended. */
void tpck_child_note(int place);
void tpck_child_ended(int place, int status);
bool tpck_programs_recording(void);
/* Whether this is the process whose programs are followed, and no child of it. */
bool tpck_programs_own(void);
/* The place of this process, if it is a child of the program's that is about to execute; -1. */
int tpck_child_here(void);

/* ---- starts.c ---- */
bool tpck_programs_is_worker(char *const arguments[]);
bool tpck_programs_forwarding(void);
/* What the log says of the place's program. */
enum tpck_programs_wait tpck_starts_wait(int place, bool polls);
/* Every stand-in of one that had ended may end. */
void tpck_starts_finish_all(void);
/* Whether the thread has come to where its record ends, or has none. */
void tpck_starts_thread(struct tpck_thread *self);

#endif
