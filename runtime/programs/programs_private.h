/* SPDX-License-Identifier: Apache-2.0 */
/* Between the parts of programs: children.c (children, and what the log gets of them), known.c (what it says), starts.c (what is started while running
 * forward), written.c (what this process writes to files, if the program has made it), unwritten.c (what of that is taken back), former.c (what processes of
 * the run that is gone on from have noted), unseen.c (programs that nobody can follow) and undecided.c (what a twin has forked). */
#ifndef TPCK_RUNTIME_PROGRAMS_PROGRAMS_PRIVATE_H
#define TPCK_RUNTIME_PROGRAMS_PROGRAMS_PRIVATE_H

#include <sys/stat.h>

#include "runtime/programs/programs.h"
#include "runtime/programs/writings.h"
#include "runtime/replay/forward.h"
#include "runtime/wire/standin.h"

enum { TPCK_PROGRAM_NAME = 40, TPCK_PROGRAM_PATH = 256, TPCK_PROGRAM_NAMES = 160 };

/* Payload of TPCK_RECORD_PROGRAM. The program is the ordinal-th that the thread made a child for. */
enum {
	TPCK_PROGRAM_STARTED,
	TPCK_PROGRAM_SAID,   /* bytes follow; none: its parent has heard that there are no more of that stream */
	TPCK_PROGRAM_ENDED, TPCK_PROGRAM_LOST,
	TPCK_PROGRAM_FORKED, /* the child executed nothing, and has ended */
	TPCK_PROGRAM_MADE,   /* a forked child made a file or folder where nothing was; its path follows, NUL-terminated */
	TPCK_PROGRAM_WROTE,  /* the process that is known by the number `thread` writes to a file, whose path follows, NUL-terminated */
};
struct tpck_record_program {
	uint32_t thread, ordinal; /* of a forked child's: what tpck_child_take() calls it */
	uint32_t flags;    /* TPCK_PROGRAM_TALKS, TPCK_PROGRAM_UNSURE */
	int32_t status;    /* of one that ended: as wait() gives it */
	uint32_t polls;    /* how often the program asked whether it has ended, and it had not */
	uint32_t stream;   /* of what it said to a pipe, or wrote to a file: 1 or 2; the bytes follow */
	uint64_t path;     /* digest of what was executed; its name follows, without folders, NUL-terminated */
	uint64_t made_ns;  /* when the child was made, by tpck_clock_monotonic_ns() */
	uint64_t arguments; /* digest of what it was given, of a program */
};
enum {
	TPCK_PROGRAM_TALKS = 1,  /* its standard input is a pipe or a socket of its own */
	TPCK_PROGRAM_NESTED = 4, /* a forked child started it */
	TPCK_PROGRAM_UNSURE = 2, /* of a forked child: not all that it started is in the log */
};

/* What a child does. */
enum tpck_doing {
	TPCK_DOING_NOTHING, /* it was forked */
	TPCK_DOING_PROGRAM, /* it executes a program */
	TPCK_DOING_STANDIN, /* it plays one that had ended */
	TPCK_DOING_WAITS,   /* it starts one once the program is live */
	TPCK_DOING_WORKER,  /* it goes on in the same program: nothing of it is in the log */
};

/* What the log has of a child. While running forward: UNKNOWN: it has nothing of what the child is to execute, or, with NO_END, nothing of its end;
 * AWAITED: a thread that stands at the boundary has started it, or waits for it, and it begins once this process is live. */
enum { TPCK_NOTED_START = 1, TPCK_NOTED_END = 2, TPCK_NOTED_UNKNOWN = 4, TPCK_NOTED_NO_END = 8, TPCK_NOTED_AWAITED = 16 };

/* A child of this process, or of one of its forked children, in memory that all of them share. */
struct tpck_child {
	_Atomic int32_t pid;         /* 0: nobody's; -1: about to be made */
	int32_t parent;              /* who made it: this process, or a forked child */
	_Atomic uint32_t doing;
	uint32_t thread, ordinal, flags;
	uint64_t path, arguments, made_ns;
	bool nested;                 /* a forked child made it */
	bool ahead;                  /* while running forward: the record does not have it, and gets it at once */
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
	_Atomic uint32_t waited;     /* while running forward: 1 + enum tpck_forward of who waits for its end, since before it executed; 0: nobody */
	uint32_t seat;               /* its place in the page that stand-ins share, which others' children are in as well */
	uint32_t said;               /* bytes in the log */
	bool lost;                   /* more than that */
	unsigned closed;             /* a bit for each stream whose end is in the log */
	bool looked;                 /* for its end, as that had to be near */
	_Atomic bool decided;        /* in a twin: the record has its end */
};

/* ---- children.c ---- */
extern struct tpck_child *tpck_children;
/* How many there are, some of them others'. */
uint32_t tpck_children_used(void);
/* The thread that made the place's child has come to where its record ends. */
void tpck_child_passes(int place);
bool tpck_child_has_passed(int place);
/* A program that had ended is started again, by this process or a forked child; their names. */
void tpck_child_again(const char *name);
const char *tpck_children_again(void);
/* Whether it is this process's child. */
bool tpck_child_own(int place);
/* Whether this process is a forked child, or a program that was started, whose own children are followed. What it starts goes by a name of its own, and to the
 * log by the process that has the log. */
bool tpck_child_nested(void);
/* This program that was started belongs to the root; NULL: to none. */
void tpck_child_belongs(const struct tpck_root *root);
/* What forked children have for the log lies in this folder from here on, until it is there. */
void tpck_child_session(const char *folder);
/* Nobody has to learn any more what tpck_programs_left() calls with. */
void tpck_child_mail_learnt(void);
/* This process is a forked child that goes on, and may do what others see: what it wrote the first time is taken back. True: it had ended the first time, and
 * what it does stays in its memory. */
bool tpck_child_goes_on(void);
/* Another child of the thread; -1: no place. */
int tpck_child_take(struct tpck_thread *self, int32_t pid);
void tpck_child_free(int place);
/* The place of a child, or -1. */
int tpck_child_of(pid_t child);
/* Whether this is a child that shares its parent's memory (vfork). */
bool tpck_child_shares(void);
/* The path, or what the kernel calls the file where it is the path of a descriptor, whose number differs from run to run: in `name`. */
const char *tpck_child_program(const char *path, char *name, size_t size);
/* What the child executes. `fds`: this process's descriptors that are the program's 0 to 2, -1 none; NULL: not known. */
void tpck_child_executes(int place, const char *path, enum tpck_doing doing, const int fds[3]);
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

/* This process is a forked child that made a file or folder where nothing was. */
void tpck_child_made(const char *path);

/* This process with the log: the one of that number writes to the path. */
void tpck_child_wrote(uint32_t writer, const char *path);

/* ---- written.c ---- */
/* The process may be a program that was started: asks() is called when there is something to note, and says whose it is. */
void tpck_written_started(void (*asks)(void));
/* Of the descriptors 1 and 2 of such a program, which go where the output of its root goes: a bit each. */
unsigned tpck_written_outputs(void);
/* The same of a program that was started: it belongs to the root; NULL: to none. */
void tpck_written_belongs(const struct tpck_root *root);
/* The process is a forked child that was made then, and has this number: what it writes to files is noted there. NULL: it is not noted. `family`: the number of the
 * one child of the process with the log that it comes from. */
void tpck_written_forked(struct tpck_writings *writings, uint64_t made_ns, uint32_t number, uint32_t family);
/* The process has opened a file to write, with these flags. */
void tpck_written_opened(int fd, int flags);

/* ---- unwritten.c ---- */
/* The settings say where there may be a file without a name before there is a session: the folder of the memory tier. */
void tpck_unwritten_with(const struct tpck_settings *settings);
/* For processes that this one makes; NULL: there is no memory for it. */
struct tpck_writings *tpck_unwritten_all(void);
/* This program that was started belongs to the root, and so do its children. */
void tpck_unwritten_belongs(const struct tpck_root *root);
/* Before a boundary's record: the log is told who writes; a line, the first time that something was written of which there is no entry. */
void tpck_unwritten_boundary(void);
/* The log has the end of the process of that number. */
void tpck_unwritten_ended(uint32_t writer);
/* While running forward, once the log is learnt: what the first run's processes wrote that are made again. */
void tpck_unwritten_inherit(void);
/* The process of that number is made again: what it and its family wrote in the first run is taken back. A line says of what it cannot be. */
void tpck_unwritten_of(uint32_t writer);
/* Whether it is such an entry, and of this file. */
bool tpck_written_is(const struct tpck_writing *entry, uint32_t kind, const struct stat *found);
/* The entry is done with. False: it was already. */
bool tpck_written_settles(struct tpck_writings *writings, struct tpck_writing *entry);

/* ---- former.c ---- */
/* The entries in that session of the run that is gone on from, of processes that are made again, are `to`'s as well from here on. False: not all is known of
 * what they wrote. */
bool tpck_former_inherit(const char *session, struct tpck_writings *to);
/* Whether those processes may have noted more since. */
bool tpck_former_is_kept(void);
/* What they have noted since is inherited, too. */
void tpck_former_read(struct tpck_writings *to);
/* Whether not all is known of what they wrote since. */
bool tpck_former_lack(void);
/* From here on nothing more is read. */
void tpck_former_end(void);
/* How much the process of an inherited entry has written by now, at most. */
int64_t tpck_former_wrote(const struct tpck_writing *entry);
/* Whether the entry's process is there still. */
bool tpck_former_lives(const struct tpck_writing *entry);
/* Waits until none of those processes is there. All who make processes wait for that together, as long as *of says. */
void tpck_former_await(struct tpck_writings_head *of);

/* ---- unseen.c ---- */
/* Whether the program of that process is there, and this library is not in it, nor is it one whose files are known (follow/services.c). The names of files that it has
 * open to write are added to `files`. */
bool tpck_unseen(int pid, char files[TPCK_PROGRAM_NAMES]);

/* ---- undecided.c ---- */
/* In a forked child: true, if a twin made it that follows; then it leaves what others see until that is decided. stays() is called where its files are to stay in
 * its memory. */
bool tpck_undecided_begins(void (*stays)(void));
/* The same in a program that was started, and goes on with the work of the one that has started it. */
void tpck_undecided_started(void);
/* Learns what the twin's record has by now. False: it cannot be read. */
bool tpck_undecided_learn(void);
/* The process is about to start that program: waits until it is decided, or the record has the program's end. */
void tpck_undecided_await(const struct tpck_child *program);
/* Whether it is not decided yet. */
bool tpck_undecided_look(void);

/* ---- known.c ---- */
/* What the log says of a program. */
struct tpck_known {
	const struct tpck_record_program *started;
	const char *name;
	int32_t status;
	uint32_t polls;
	bool ended, lost, forked;
	unsigned closed;   /* a bit for each stream that it has nothing more to say to */
	uint32_t ended_as; /* the how-manieth end this is, from 1 */
	uint32_t index; /* the how-manieth of the record it is, from 0 */
	bool taken;     /* as tpck_known_take() has it, of one that has no place in the page that is shared */
	struct tpck_known_said {
		const struct tpck_record_program *record;
		uint32_t bytes;
		struct tpck_known_said *next;
	} *said, **said_end;
	struct tpck_known_made {
		const char *path;
		struct tpck_known_made *next;
	} *made; /* by a forked child, where nothing was */
	struct tpck_known *next;
};
/* NULL: nothing of it. */
struct tpck_known *tpck_known_of(uint32_t thread, uint32_t ordinal);
/* Whether that is this program. */
bool tpck_known_is(const struct tpck_known *of, uint64_t path);
/* A process that is made again does it, or has it stood in for. False: one did already. `page`: which all of them share, NULL: there is none. */
bool tpck_known_take(struct tpck_known *of, struct tpck_standin_page *page);
/* The oldest such program of a forked child's that nobody has taken, or NULL. */
struct tpck_known *tpck_known_alike(uint64_t path, uint64_t arguments, struct tpck_standin_page *page);
/* Whether the log has the end of the process that is known by the number, so that it is not made again, or what it does has no effect. */
bool tpck_known_ended(uint32_t number);
/* Whether one that has not ended wrote to a file. */
bool tpck_known_wrote(void);
/* Whether the log has nothing of the child but that it made or wrote what may be its own: it goes on in the same program. */
bool tpck_known_goes_on(uint32_t thread, uint32_t ordinal);
/* What the log has behind the boundary, or what starts had there that left no snapshot: names, and how many. */
const char *tpck_known_behind(bool tried, unsigned *count);
void tpck_child_name_add(char names[TPCK_PROGRAM_NAMES], const char *name);

/* ---- starts.c ---- */
/* The session that the program goes on with has another folder: what others look for is there, too. */
void tpck_starts_move(const char *to);
/* In a forked child that stays, or a program that was started, while the process with the log runs forward: these of its descriptors go where that one's output does. */
void tpck_starts_output(unsigned descriptors);
/* In a forked child: it is the child at this place. True: it, or the program that it executes, had ended in the first run. */
bool tpck_starts_forked(int place);
bool tpck_programs_forwarding(void);
/* What the log says of the place's program. */
enum tpck_programs_wait tpck_starts_wait(int place, bool polls);
/* Before a boundary's record: a line of programs that have said once more what they had said. */
void tpck_starts_boundary(void);
/* Whether what is started, and waited for, is looked for in the record. */
bool tpck_starts_follow(void);
/* The how-manieth it was whose end the record has, from 1; 0: it has none of it. */
uint32_t tpck_starts_ended_as(int place);
/* The place's stand-in may end, if it is one; and every one of this process's. */
void tpck_starts_finish(int place);
void tpck_starts_finish_all(void);
/* Whether the thread has come to where its record ends, or has none: before it starts a program. */
void tpck_starts_thread(struct tpck_thread *self);
/* The same before a fork. */
void tpck_starts_fork(struct tpck_thread *self);
/* Learns what the folder's log has of programs up to the cut. The records stay mapped. False: it cannot be read. */
bool tpck_starts_learn(const char *folder, struct tpck_log_position cut);
/* The session's folder, or, of a twin and its processes, the twin's. */
const char *tpck_starts_folder(void);
/* What is shared with stand-ins and forked children, or NULL. */
struct tpck_standin_page *tpck_starts_page(void);

#endif
