/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files, output and paths (doc/interception.md, files). While recording, the log gets for every path that the
 * program touches what was there at the first touch, and old versions that it may read again are
 * kept. While running forward, nothing is done to the outside: what the program writes, renames
 * and removes lives in an overlay of scratch files, which begins from what the log says was there.
 * At inject the overlay is the truth as of the boundary, and the real files are made to agree.
 *
 * Calls on paths come by tpck_layer_follow (files/layer.h); here is what else it is told, and asked.
 */
#ifndef TPCK_RUNTIME_FOLLOW_FOLLOW_H
#define TPCK_RUNTIME_FOLLOW_FOLLOW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "runtime/replay/forward.h"
#include "runtime/replay/record_log.h"

/* What was at a path at its first touch: payload of TPCK_RECORD_FILE with detail TPCK_FILE_FIRST. Behind a symbolic link's
 * come where it leads and its path, each NUL-terminated. All paths are canonical (follow/names.c). With TPCK_FILE_LISTING: `path` is the folder's, then names follow, each a type letter ('d', 'f', 'l') and a
 * NUL-terminated string, in the order in which they were listed. With TPCK_FILE_READ: struct
 * tpck_record_read, then the path, NUL-terminated. With TPCK_FILE_BEGUN: of no path; `mtime` is when the program
 * was started first, by tpck_clock_coarse_ns(), `bytes` the process that goes on from here. */
enum { TPCK_FILE_FIRST, TPCK_FILE_LISTING, TPCK_FILE_READ, TPCK_FILE_BEGUN, TPCK_FILE_AGAIN };
struct tpck_record_file {
	uint64_t path;      /* digest of the absolute path */
	uint32_t mode;      /* st_mode; 0: nothing there */
	uint32_t names;
	uint64_t bytes;
	int64_t mtime_s, mtime_ns;
};

/* A file that was read, as it was then (follow/contents.h). `names` is 1 for standard input. */
struct tpck_record_read {
	struct tpck_record_file file;
	uint64_t content;   /* digest of its content */
};

/* Recording into `log`; versions are kept below `keep` ("": none), and a list of the paths that come to be
 * in this timeline. */
void tpck_follow_record(struct tpck_log *log, const char *keep, uint64_t timeline);
/* A program that has met no device: what it looks at may be gone into later, at the latest when it meets one. `pid`: its own. */
void tpck_follow_early(pid_t pid);
void tpck_follow_device(void);
/* Whether access() and stat() of a path that begins there may ask the kernel before anybody here looks at the path: no device has
 * been met, and nothing is pending. The two calls are for a path of which nobody knows whether it can be read. */
bool tpck_follow_asks_first(int folder);
int tpck_follow_first_access(const char *path, int mode, int flags);
int tpck_follow_first_stat(const char *path, struct stat *found, int flags);
/* Around a call that changes the program's folder. */
void tpck_follow_leaves(void);
void tpck_follow_left(void);
/* Running forward: what file records say comes from here, by tpck_follow_learn(). Standard output
 * and error go nowhere until inject unless `output_again`. settles: files of the run before come to their paths first. 0 or -errno. */
int tpck_follow_forward(const char *scratch, bool output_again, bool settles);
void tpck_follow_learn(const struct tpck_record *record);
/* When the run that is resumed was started first, as learnt. */
uint64_t tpck_follow_begun_ns(void);
/* Forgets all that was learnt: the program begins anew. */
void tpck_follow_unlearn(void);
/* Makes the outside agree with the overlay at this step's boundary and gives open scratch descriptors their real files. On
 * failure *why says what could not be done. */
int tpck_follow_inject(uint64_t step, char *why, size_t size);
/* All ranks have done so. */
void tpck_follow_injected(void);
/* Prints the end of what went to standard error while running forward: it may say why the program gave up. */
void tpck_follow_say_error(void);
/* Standard output and error back in their place, nothing else (before starting over). */
void tpck_follow_abandon(void);

/* Shared memory or a semaphore of this path is made; and whether it was, in this timeline. */
void tpck_follow_shares(const char *path);
bool tpck_follow_shared(const char *path);
/* Whether the program has written to the file while running forward. */
bool tpck_follow_has_written(const char *path);
/* What the files that the program has written take in memory while it runs forward. */
uint64_t tpck_follow_scratch_bytes(void);
/* A folder to list in place of path (the caller opens and then forgets it), or NULL: list the real one. */
const char *tpck_follow_listing(const char *path);
/* The same for the folder of a descriptor that is about to be listed: it becomes that folder. */
void tpck_follow_listing_of(int fd);
/* A folder that was opened by this path is being listed. */
void tpck_follow_listed(const char *path, int fd);
/* A file that the program held at the boundary has the identity that it had while running forward, and while running forward one
 * that has no name to the kernel has those of the overlay. For all that tells one. */
extern _Atomic uint32_t tpck_still_open_aliases __attribute__((visibility("hidden")));
extern _Atomic bool tpck_overlay_scratch __attribute__((visibility("hidden"))); /* running forward */
struct statx;
void tpck_follow_shown(struct stat *found);
void tpck_follow_shown_x(struct statx *found);
static inline bool tpck_follow_shows(void)
{
	return __builtin_expect(atomic_load_explicit(&tpck_still_open_aliases, memory_order_relaxed) != 0 ||
				atomic_load_explicit(&tpck_overlay_scratch, memory_order_relaxed), 0);
}
/* Around a call of the program that changes a file, by a path or by a descriptor. While running forward it waits as the real files come to be what the overlay
 * says: what it wrote to a scratch file meanwhile would be lost. tpck_follow_changed() gets what the first one gave. */
bool tpck_follow_changes_slow(void);
bool tpck_follow_writes_to_slow(int fd);
void tpck_follow_changed_slow(void);
static inline bool tpck_follow_changes(void)
{
	return __builtin_expect(atomic_load_explicit(&tpck_overlay_scratch, memory_order_relaxed), 0) && tpck_follow_changes_slow();
}
static inline bool tpck_follow_writes_to(int fd)
{
	return __builtin_expect(atomic_load_explicit(&tpck_overlay_scratch, memory_order_relaxed), 0) && tpck_follow_writes_to_slow(fd);
}
static inline void tpck_follow_changed(bool changes)
{
	if (__builtin_expect(changes, 0))
		tpck_follow_changed_slow();
}
/* A program has ended that this thread had started: what is at paths that the trainer does not write itself may be another thing since. */
void tpck_follow_others_ran(void);
/* Whether the path lies in a temporary file or folder that the program has made while running forward. Takes no lock. */
bool tpck_follow_scratch(const char *path);
/* Whether the file is one of those of services that are known (services.c). */
bool tpck_follow_is_service_file(const char *path);
/* True: a call that the overlay cannot answer was made on one of its paths. */
const char *tpck_follow_difference(void);

/* In the child of a fork that is to go on with what the program has of files: the threads that held locks are not there. */
void tpck_follow_forked(void);
/* While running forward: what is at this path, by the one name of it (follow/names.c), is not there until the process makes it. */
void tpck_follow_hide(const char *path);
/* ---- the program's output while it runs forward, which goes into memory ---- */
extern _Atomic bool tpck_follow_diverted __attribute__((visibility("hidden")));
/* Of a process that is made meanwhile, and stays: its standard output and error are the program's real ones. In that process, or a child that shares the
 * program's memory and is about to execute. Which of them changed, a bit each. */
unsigned tpck_follow_output_give(void);
/* In a forked child, behind that: the library's own descriptors of the real output are closed there. */
void tpck_follow_output_leave(void);
/* The descriptor of the library's own that is the real file of this one, or -1. */
int tpck_follow_output_real(int fd);
/* Which file the real output 1 or 2 is. False: it is not known. */
bool tpck_follow_output_is(int which, uint64_t *device, uint64_t *inode);
/* Descriptors that nobody closes meanwhile: programs close all that are not their own. */
bool tpck_follow_keeps_slow(int fd);
static inline bool tpck_follow_keeps(int fd)
{
	return __builtin_expect(atomic_load_explicit(&tpck_follow_diverted, memory_order_relaxed), 0) && tpck_follow_keeps_slow(fd);
}
static inline bool tpck_follow_keeps_any(void)
{
	return __builtin_expect(atomic_load_explicit(&tpck_follow_diverted, memory_order_relaxed), 0);
}
/* The lowest of them from this one on. False: there is none. */
bool tpck_follow_kept_from(unsigned first, unsigned *kept);
/* ---- what processes see of the overlay that the program has made and that run for real (seen.c) ---- */
/* Before running forward: in this session's folder. */
void tpck_follow_show(const char *session);
/* In another session's, too. */
void tpck_follow_show_too(const char *from, const char *session);
/* In such a process: what is in the session's folder, or, with NULL, what it has from the process that it was forked from. */
void tpck_follow_see(const char *session);
extern _Atomic bool tpck_follow_sees_now __attribute__((visibility("hidden")));
static inline bool tpck_follow_sees(void)
{
	return __builtin_expect(atomic_load_explicit(&tpck_follow_sees_now, memory_order_relaxed), 0);
}

/* ---- a process that a twin has made (held.c) ---- */
/* From here on this process changes nothing that others know: look() is called at each path, and calls tpck_follow_unhold() where it may; wait() returns
 * behind that. Both by any thread, at the same time too. */
void tpck_follow_hold(void (*look)(void), void (*wait)(void));
/* kept: what the process changes stays in its memory from here on (tpck_follow_forked()); else it is real. */
void tpck_follow_unhold(bool kept);
/* Whether the path is in a folder for temporary files or shared memory, where such a process may make what is its own. */
bool tpck_follow_may_be_own(const char *path);
static inline bool tpck_follow_held(void)
{
	return __builtin_expect(atomic_load_explicit(&tpck_forward_held_now, memory_order_relaxed), 0);
}

/* A process that is held is about to listen at that address: returns once it may. */
void tpck_follow_listens(const struct sockaddr *address, socklen_t bytes);
/* Whether a socket of that name, if it stands beside others, is none of theirs. */
bool tpck_follow_may_listen(const char *path);
/* ---- names of Unix sockets, while running forward (sockets.c) ---- */
/* The name, made absolute, and its digest. False: there is none. */
bool tpck_follow_socket_name(const char *path, char *absolute, size_t size, uint64_t *digest);
/* To this process's calls on paths a socket is at `path` from here on, which is really at `target`; NULL: there as well. -1 with errno: something is at `path`. */
int tpck_follow_socket(const char *path, const char *target);
/* Before the program makes one there: what a killed run has left goes. False, with errno: something is there. */
bool tpck_follow_socket_may(const char *path);
/* The program makes a named pipe. 0: a killed run has left it, and it counts as made; -1 with errno: something is there; 1: it is to be made. */
int tpck_follow_pipe(int folder, const char *path);
/* And it was made: this process's calls on paths find it. */
void tpck_follow_made_pipe(int folder, const char *path);

/* Before running forward: another process, which the program makes again, writes to the path, too. Where the program itself writes to it, by a descriptor that the other
 * one may have been given, the file is the real one. */
void tpck_follow_given(const char *path);

#endif
