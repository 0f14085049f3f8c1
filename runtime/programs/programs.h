/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that the program starts (DESIGN 6.6). What the first run did to the outside is not done again: a copy of a checkpoint, a
 * job that is submitted, a message. While recording, the log gets of each program that a thread starts, by fork or vfork and exec,
 * by posix_spawn or by system: what it was, what was read from its output through a pipe, and how it ended. While running forward
 * one that had ended is not started again: a stand-in takes its place (wire/standin.h), a process like any other to wait for, to
 * kill and to read from. One that had not ended is started when the program is live.
 *
 * Started for real are: a fork that executes nothing; what is known to go on in the same program (Python's multiprocessing, loky,
 * compile workers); compilers at work in temporary folders or compilers' caches, whose files were hidden; a program that had not
 * ended and is spoken with through a pipe or socket as its standard input, or had run for half a minute (a service); and programs started by such children.
 */
#ifndef TPCK_RUNTIME_PROGRAMS_PROGRAMS_H
#define TPCK_RUNTIME_PROGRAMS_PROGRAMS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "runtime/replay/log.h"

/* Recording into the log from here on; once more once the program that is run forward is live. */
void tpck_programs_record(struct tpck_log *log);
/* Before a boundary's record: what is known by then of programs goes before it. */
void tpck_programs_boundary(void);

/* ---- running forward ---- */
void tpck_programs_learn(const struct tpck_record *record);
/* Learns records behind the cut: what they say was started will be started again. */
void tpck_programs_learn_behind(const struct tpck_record *record);
void tpck_programs_unlearn(void);
/* `session`: the folder for plans; `library`: this library's path, beside which the stand-in is. 0, or -errno: programs are started
 * for real then. */
int tpck_programs_forward(const char *session, const char *library);
/* The program is live, at this step: programs that had not ended are started. Lines say which. */
void tpck_programs_live(uint64_t step);
/* The program begins anew: no stand-in starts anything. */
void tpck_programs_abandon(void);
/* NULL, or what is to be started that the first run did not start: it waits, and its parent may wait for it. */
const char *tpck_programs_difference(void);

/* ---- forks ---- */
void tpck_programs_forking(void);
void tpck_programs_forked_child(void);

/* ---- starting ---- */
/* What is to be executed in place of a program; `plan` is where `arguments` point to. */
struct tpck_programs_instead {
	const char *path;
	char *arguments[3], *variables[1];
	char plan[360];
};
/* Called in a child, before it executes `path`: true, if something else is to be executed instead. Afterwards, if that failed,
 * tpck_programs_failed(). Makes system calls only. */
bool tpck_programs_execute(const char *path, char *const arguments[], char *const variables[], struct tpck_programs_instead *instead);
void tpck_programs_failed(void);
/* What tpck_programs_execute() is for an exec, around posix_spawn(), in the parent. *place is for tpck_programs_spawned(), with the child's id, or 0: none came to be. `own`: it may
 * have other descriptors than its parent. */
bool tpck_programs_spawn(const char *path, char *const arguments[], char *const variables[], struct tpck_programs_instead *instead, int *place);
void tpck_programs_spawned(int place, pid_t child, bool own);
/* Around system(): true, if it has been done by the first run, with *status. */
bool tpck_programs_system(int *status, int *place);
void tpck_programs_system_ended(int place, int status);

/* ---- what the parent sees of them ---- */
extern _Atomic uint32_t tpck_programs_places __attribute__((visibility("hidden"))); /* taken so far; 0: no child was made */
void tpck_programs_read_slow(int fd, const void *bytes, size_t count);
/* Bytes were read from the descriptor. */
static inline void tpck_programs_read(int fd, const void *bytes, ssize_t count)
{
	if (__builtin_expect(count > 0 && atomic_load_explicit(&tpck_programs_places, memory_order_relaxed), 0))
		tpck_programs_read_slow(fd, bytes, (size_t)count);
}
enum tpck_programs_wait {
	TPCK_PROGRAMS_ASK,     /* the kernel is asked, as the caller says */
	TPCK_PROGRAMS_NOT_YET, /* it has not ended yet */
	TPCK_PROGRAMS_ENDS,    /* it has ended: the kernel is asked, and waited for */
};
/* Before a wait for `child`, or with -1 for any. `polls`: it returns at once. */
enum tpck_programs_wait tpck_programs_waits(pid_t child, bool polls);
/* What such a wait gave: 0, or the child that ended with `status`. `asked`: for which; `polls` as above. */
void tpck_programs_waited(pid_t asked, bool polls, pid_t child, int status);

#endif
