/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that the program starts (doc/outside.md, "Programs that the trainer starts"). What the first run did to the outside is not done again: a copy of a checkpoint, a
 * job that is submitted, a message. While recording, the log gets of each program that a thread starts, by fork or vfork and exec,
 * by posix_spawn or by system: what it was, what was read from its output through a pipe, and how it ended. While running forward
 * one that had ended is not started again: a stand-in takes its place (wire/standin.h), a process like any other to wait for, to
 * kill and to read from. One that had not ended is started when the program is live.
 *
 * Started for real are: a fork that executes nothing; what is known to go on in the same program (Python's multiprocessing, loky,
 * compile workers); compilers at work in temporary folders or compilers' caches, whose files were hidden; a program that had not
 * ended and is spoken with through a pipe or socket as its standard input, or had run for half a minute (a service); and programs that are started
 * by these, but for a fork that executes nothing: what it starts is followed as what its parent starts.
 */
#ifndef TPCK_RUNTIME_PROGRAMS_PROGRAMS_H
#define TPCK_RUNTIME_PROGRAMS_PROGRAMS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include "runtime/replay/record_log.h"
#include "runtime/replay/root.h"

struct tpck_settings;

/* Recording into the log from here on. The settings stay where they are. */
void tpck_programs_record(struct tpck_log *log, const struct tpck_settings *with);
/* The log is in this session's folder from here on, where it is noted, too, what forked children write to files. 0, or -errno: it cannot be. */
int tpck_programs_session(const char *folder);
/* Calls with each record that forked children of the run that is gone on from had, and that was not in its log yet, during the call only. */
void tpck_programs_left(const char *folder, void (*call)(const struct tpck_record *record));
/* Before a boundary's record: what is known by then of programs goes before it. */
void tpck_programs_boundary(void);

/* ---- running forward ---- */
void tpck_programs_learn(const struct tpck_record *record);
/* A file that the program has written while running forward, and to which a process writes, too, that it has made and that has not ended; or NULL. */
const char *tpck_programs_share(void);
/* The overlay is told to which files such processes write. tpck_programs_forward() does so, but in a twin, whose program has none of its own yet. */
void tpck_programs_give(void);
/* Learns records behind the cut: what they say was started will be started again. */
void tpck_programs_learn_behind(const struct tpck_record *record);
/* The same of a start that had gone on from the cut, and left no snapshot. */
void tpck_programs_learn_tried(const struct tpck_record *record);
void tpck_programs_unlearn(void);
/* Whether the record has a program that was started. */
bool tpck_programs_any(void);
/* `session`: the folder for plans; `library`: this library's path, beside which the stand-in is. 0, or -errno: programs are started
 * for real then. */
int tpck_programs_forward(const char *session, const char *library);
/* The program is about to be live at this step: what the first run's forked children wrote to files behind it, and will write once more, is taken
 * back where nobody else wrote to the file. A line says where it could not be. */
void tpck_programs_unwrite(uint64_t step);
/* The program is live, at this step: programs that had not ended are started. Lines say which. */
void tpck_programs_live(uint64_t step);
/* In a twin: its record goes up to this cut of that session by now. `further`: it goes on following; else it takes over. */
void tpck_programs_follow_to(const char *session, struct tpck_log_position cut, bool further);
/* ---- names of shared memory and semaphores (shared_names.c) ---- */
enum { TPCK_SHARED_NAME = 256, TPCK_SHARED_PATH = 300 };
/* What a name of shm_open() or sem_open() is for this process: itself, or, beside a living process that has it, one of its own, in `own`. */
const char *tpck_shared_name(const char *name, char own[TPCK_SHARED_NAME]);
/* Before a call that may make it, of the kind "" or TPCK_SEMAPHORES: whether it is not there. `forward`: what a killed run has left of that name goes. */
bool tpck_shared_makes(const char *kind, const char *name, bool forward);
/* And it was made. */
void tpck_shared_made(const char *kind, const char *name, bool forward);
/* A twin begins: what others have left that were killed goes. */
void tpck_shared_begin(void);
/* A twin takes over: its names are the program's from here on. Before tpck_programs_follow_to(), and behind it for what was made meanwhile. */
void tpck_shared_real(void);
/* ---- Unix sockets of a twin's own (own_sockets.c) ---- */
/* A twin is about to have the socket listen at the path, which the living process has: the address in its place. False: it cannot have one. */
bool tpck_own_socket_begins(int fd, const char *path, struct sockaddr_un *own);
/* A twin takes over: symbolic links to its sockets, and to those of its processes, are at their paths. Before tpck_programs_follow_to(). */
void tpck_own_sockets_real(void);
/* What a process of a twin connects to in place of the path. False: nothing is in its place. */
bool tpck_own_socket_at(const char *path, struct sockaddr_un *own);
/* getsockname(), or getpeername(), of a socket that has such an address: the program's own. False: it is another one. */
bool tpck_own_socket_name(int fd, bool peer, struct sockaddr *address, socklen_t *bytes);
/* The program begins anew: no stand-in starts anything. */
void tpck_programs_abandon(void);
/* NULL, or what is to be started that the first run did not start, or did not wait for: it waits, and its parent may wait for it. */
const char *tpck_programs_difference(void);
/* Whether the program waits for something that begins only once it is live. *polls: how often it has asked whether such programs have ended. */
enum tpck_programs_stop {
	TPCK_PROGRAMS_GO,
	TPCK_PROGRAMS_MAY_STOP, /* there is such a program, and nobody knows who waits for it, and how */
	TPCK_PROGRAMS_STOP,     /* a thread that stands at the boundary has started one, or waits for it */
};
enum tpck_programs_stop tpck_programs_stops(uint32_t *polls);

/* ---- a program that was started ---- */
/* This process may be one that another process of the job has started: what it writes to files is noted, and once there is something `asks` is called, which
 * calls tpck_programs_belongs() as soon as it is known whose it is (runtime/network/network.h). `library`: as for tpck_programs_forward(). */
void tpck_programs_started(void (*asks)(void), const char *library);
/* Whether a program with these arguments goes on with the work of the one that has started it. */
bool tpck_programs_is_worker(char *const arguments[]);
/* NULL: it is nobody's. Else what it starts is followed as what its root's forked children start. */
void tpck_programs_belongs(const struct tpck_root *root);

/* ---- forks ---- */
void tpck_programs_forking(void);
/* In the child. True: while running forward, one that had ended in the first run, as itself or as a program that it executes: what it did was done.
 * stays(): is called by any thread once that turns out later to be so, in the child of a twin. */
bool tpck_programs_forked_child(void (*stays)(void));
/* In the child of a fork: its number, which it has in each run, or 0. */
uint32_t tpck_programs_child(void);
/* In a process that is about to execute a program, or 0: the number that it is known by in each run, as tpck_programs_child() is of a fork. */
uint32_t tpck_programs_here(void);
/* The same of a program that tpck_programs_spawned() was told of. */
uint32_t tpck_programs_number(int place);
/* In such a child, once it may use the overlay: what it made in the first run is not there yet. */
void tpck_programs_hide(void);

/* ---- starting ---- */
/* What is to be executed in place of a program; `plan` is where `arguments` point to. */
struct tpck_programs_instead {
	const char *path;
	bool plays; /* it plays the program; else it starts it later */
	char *arguments[3], *variables[1];
	char plan[360];
};
/* Called in a child, before it executes `path`: true, if something else is to be executed instead. Afterwards, if that failed,
 * tpck_programs_failed(). Makes system calls only. */
bool tpck_programs_execute(const char *path, char *const arguments[], char *const variables[], struct tpck_programs_instead *instead);
void tpck_programs_failed(void);
/* What tpck_programs_execute() is for an exec, around posix_spawn(), in the parent. `fds`: which of the parent's descriptors will be the child's 0 to 2, -1 none;
 * NULL: that is not known. *place is for tpck_programs_spawned(), with the child's id, or 0: none came to be. `own`: its descriptors are to be looked at there. */
bool tpck_programs_spawn(const char *path, char *const arguments[], char *const variables[], const int fds[3], struct tpck_programs_instead *instead, int *place);
void tpck_programs_spawned(int place, pid_t child, bool own);
/* Around system(): true, if it has been done by the first run, with *status. */
bool tpck_programs_system(const char *command, int *status, int *place);
void tpck_programs_system_ended(int place, int status);

/* Whether what this process starts is followed. */
bool tpck_programs_followed(void);

/* ---- the program's output, in processes that are made again ---- */
extern _Atomic uint32_t tpck_programs_output __attribute__((visibility("hidden"))); /* the descriptors 1 and 2 that go there, a bit each */
bool tpck_programs_drops_slow(int fd);
/* While the process that has the log runs forward: what is written there was said by the first run. */
static inline bool tpck_programs_drops(int fd)
{
	return __builtin_expect(atomic_load_explicit(&tpck_programs_output, memory_order_relaxed) != 0, 0) && tpck_programs_drops_slow(fd);
}
/* The descriptor is closed, or becomes another file. */
static inline void tpck_programs_output_ends(int fd)
{
	if (__builtin_expect(atomic_load_explicit(&tpck_programs_output, memory_order_relaxed) != 0, 0) && (fd == 1 || fd == 2))
		atomic_fetch_and(&tpck_programs_output, ~(1u << fd));
}

/* ---- what the parent sees of them ---- */
extern _Atomic uint32_t tpck_programs_places __attribute__((visibility("hidden"))); /* 0: no child was made */
void tpck_programs_read_slow(int fd, const void *bytes, size_t count);
/* Bytes were read from the descriptor; 0: there are no more. */
static inline void tpck_programs_read(int fd, const void *bytes, ssize_t count)
{
	if (__builtin_expect(count >= 0 && atomic_load_explicit(&tpck_programs_places, memory_order_relaxed), 0))
		tpck_programs_read_slow(fd, bytes, (size_t)count);
}
/* Running forward: whether a program says what comes there that begins once the process is live; its name. */
bool tpck_programs_awaits(int fd, char name[40]);
/* Both ends of a pair of sockets: what is read from one the other has said. */
void tpck_programs_paired(int one, int other);
/* A name is about to go. In a forked child what a program has made that it started, and that is taken away, is not there for a second time: such a
 * program has to be started again. */
extern _Atomic uint32_t tpck_programs_products __attribute__((visibility("hidden"))); /* programs that may have made something, in such a child */
void tpck_programs_takes_slow(int folder, const char *path);
void tpck_programs_writes_slow(int fd, int flags);
static inline void tpck_programs_takes(int folder, const char *path)
{
	if (__builtin_expect(atomic_load_explicit(&tpck_programs_products, memory_order_relaxed) != 0, 0))
		tpck_programs_takes_slow(folder, path);
}
/* Whether this is a process whose files are noted, or a program of which it is not known, and has written to none. */
enum { TPCK_CHILD_NONE, TPCK_CHILD_NOTES, TPCK_CHILD_UNSURE };
extern _Atomic uint32_t tpck_programs_child_writes __attribute__((visibility("hidden")));
static inline bool tpck_programs_child_some(void)
{
	return __builtin_expect(atomic_load_explicit(&tpck_programs_child_writes, memory_order_relaxed) != TPCK_CHILD_NONE, 0);
}
/* Whether what is written by the descriptor is counted, or it is not known yet whether it is. */
bool tpck_programs_child_counts(int fd);
void tpck_programs_child_writes_slow(int fd, size_t bytes, ssize_t done, bool before);
void tpck_programs_child_copies_slow(int from, int to);
void tpck_programs_child_closed_range_slow(unsigned first, unsigned last);
bool tpck_programs_child_made_before_slow(int folder, const char *path);
void tpck_programs_child_closes_slow(int fd);
void tpck_programs_child_made_slow(int folder, const char *path);
/* A file was opened to be written, with these flags: it is this process's own. */
static inline void tpck_programs_writes(int fd, int flags)
{
	if (__builtin_expect((atomic_load_explicit(&tpck_programs_products, memory_order_relaxed) |
			      atomic_load_explicit(&tpck_programs_child_writes, memory_order_relaxed)) != 0, 0))
		tpck_programs_writes_slow(fd, flags);
}
/* A descriptor is about to be closed, and all has been written to it. */
static inline void tpck_programs_child_closes(int fd)
{
	if (__builtin_expect(atomic_load_explicit(&tpck_programs_child_writes, memory_order_relaxed) == TPCK_CHILD_NOTES, 0))
		tpck_programs_child_closes_slow(fd);
}
/* So many bytes are about to be written by the descriptor. */
static inline void tpck_programs_child_writing(int fd, size_t bytes)
{
	if (__builtin_expect(atomic_load_explicit(&tpck_programs_child_writes, memory_order_relaxed) != 0, 0))
		tpck_programs_child_writes_slow(fd, bytes, 0, true);
}
/* And the call gave that. */
static inline void tpck_programs_child_wrote(int fd, size_t bytes, ssize_t done)
{
	if (__builtin_expect(atomic_load_explicit(&tpck_programs_child_writes, memory_order_relaxed) != 0, 0))
		tpck_programs_child_writes_slow(fd, bytes, done, false);
}
/* `to` is what `from` is. */
static inline void tpck_programs_child_copies(int from, int to)
{
	if (__builtin_expect(atomic_load_explicit(&tpck_programs_child_writes, memory_order_relaxed) == TPCK_CHILD_NOTES, 0))
		tpck_programs_child_copies_slow(from, to);
}
/* So many descriptors were closed. */
static inline void tpck_programs_child_closed_range(unsigned first, unsigned last)
{
	if (__builtin_expect(atomic_load_explicit(&tpck_programs_child_writes, memory_order_relaxed) == TPCK_CHILD_NOTES, 0))
		tpck_programs_child_closed_range_slow(first, last);
}
/* A folder could not be made, as it is there. True: the first run's process made it, and it counts as made. */
static inline bool tpck_programs_child_made_before(int folder, const char *path)
{
	return __builtin_expect(atomic_load_explicit(&tpck_programs_child_writes, memory_order_relaxed) != 0, 0) && tpck_programs_child_made_before_slow(folder, path);
}
/* A folder was made. */
static inline void tpck_programs_child_made(int folder, const char *path)
{
	if (__builtin_expect(atomic_load_explicit(&tpck_programs_child_writes, memory_order_relaxed) != 0, 0))
		tpck_programs_child_made_slow(folder, path);
}
enum tpck_programs_wait {
	TPCK_PROGRAMS_ASK,     /* the kernel is asked, as the caller says */
	TPCK_PROGRAMS_NOT_YET, /* it has not ended yet */
	TPCK_PROGRAMS_ENDS,    /* it has ended: the kernel is asked, and waited for */
};
/* Before a wait for `*child`, or with -1 for any, which becomes the one that the first run was told of there. `polls`: it returns at once. */
enum tpck_programs_wait tpck_programs_waits(pid_t *child, bool polls);
/* What such a wait gave: 0, or the child that ended with `status`. `asked`: for which; `polls` as above. */
void tpck_programs_waited(pid_t asked, bool polls, pid_t child, int status);

#endif
