/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trainer's own checkpoint files (doc/files.md). A file that is opened for writing and wanted gets a descriptor of
 * another one, in memory or beside its target; when the last descriptor is closed the agent makes it durable and
 * puts it at its path in one step. Until then the calls on its path (tpck_layer_pending, layer.h) and those here show it to the processes of the job, and
 * to them alone, by the job's table (runtime/view/view.h).
 *
 * Each function is the call of that name as a process of the job sees it: it returns what that returns, with errno
 * set, and makes the real call where nothing is pending. They may be called from any thread, and take no lock of
 * the host's. Where something cannot be done behind the program's back they wait until what is pending has been
 * published, and then make the real call.
 */
#ifndef TPCK_RUNTIME_FILES_FILES_H
#define TPCK_RUNTIME_FILES_FILES_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#include "runtime/base/settings.h"

/* At load, with the job's name, this library's path and the folder the process began in; all of them stay. */
void tpck_files_start(const struct tpck_settings *settings, const char *job, const char *library, const char *start_folder);
/* Whether this program handles files of others and has nothing of its own to save (tpck_rules_tool()). Known once the files have started. */
bool tpck_files_of_tool(void);
/* At the normal end: what is open is whole; waits for what is owed, at most so long. */
void tpck_files_end(int status, double seconds);
/* What this process saves from here on is of this generation and timeline, and of the step that is there when it is opened. The step stays where it is. */
void tpck_files_dated(uint64_t generation, uint64_t timeline, const uint64_t *step);
/* Patterns of names of what the job had saved before and this process has opened to read it, each once; how many there are. None is noted from here on. */
unsigned tpck_files_loaded(uint64_t *patterns, unsigned room);
/* Around a fork, and in the forked child. */
void tpck_files_forking(bool before);
void tpck_files_forked(void);
/* Nothing new is taken while this holds (running forward). */
void tpck_files_pause(bool paused);
/* The root is another from here on: no path of this process is looked at any more. What it has open is whole at its close. */
void tpck_files_leave_root(void);
/* Waits until all that is owed now has been published. False: it cannot be. */
bool tpck_files_settle(void);
/* The same of what is owed to the file system of this path, and of what that waits for. */
bool tpck_files_settle_at(int folder, const char *path);
/* The same if something of this path is pending. Absolute path. */
void tpck_files_settle_path(const char *path);

/* Whether something may be pending by the last part of this path. */
bool tpck_files_may_be_pending(const char *path);
int tpck_files_mknod(int folder, const char *path, mode_t mode, dev_t device);
/* bind(2) of a local socket to a path, which has an end. */
int tpck_files_bind(int fd, const void *address, unsigned bytes, const char *path);
/* Before connect(2) to such a path. -1: errno is what it fails with. */
int tpck_files_connects(int fd, const char *path);
enum { TPCK_FILES_PATH = 4096 };
/* Whether the failed call is to be made once more: the file may have been published just then. */
bool tpck_files_again(int tries);
/* Before the kernel runs what is at the path: a file that is pending is put there first. -1: errno is what running it fails with. */
int tpck_files_runs(int folder, const char *path);
/* Where a question about the file system of a descriptor that writes a pending file is to be asked; NULL: of the descriptor itself. */
const char *tpck_files_around_descriptor(int fd, char *buffer);
/* The one name of a file that is pending, in a buffer of TPCK_FILES_PATH bytes. False: the kernel knows. */
bool tpck_files_canonical(const char *path, char *buffer);

/* Before a call that writes so many bytes at `at`, or where the descriptor stands (-1): what is to be given to grown() behind
 * it. -1: errno is what the call fails with. */
int tpck_files_grows(int fd, int64_t at, uint64_t bytes);
int tpck_files_stream_grows(FILE *stream, uint64_t bytes);
void tpck_files_grown(int grows);
/* Before a call that files in memory do not have: one goes on beside its target if it can. -1: errno is what the disk says. */
int tpck_files_leaves_memory(int fd);
/* Whether this process writes a file that is pending. */
bool tpck_files_some(void);
/* Around a call that copies or maps a descriptor: it stays the one of that file meanwhile. */
bool tpck_files_hold(int fd, int other);
void tpck_files_let_go(bool held);

/* A file was opened just now, by a call that was not made here. */
void tpck_files_opened(int fd, int flags);
/* A device is copied to this memory of the host's. */
void tpck_files_target(const void *address, size_t bytes);
/* So much has been written from there. */
enum { TPCK_FILES_MUCH = 64 << 10 };
void tpck_files_wrote_much(int fd, const void *buffer, size_t bytes);
static inline void tpck_files_wrote(int fd, const void *buffer, ssize_t bytes)
{
	if (__builtin_expect(bytes >= TPCK_FILES_MUCH, 0))
		tpck_files_wrote_much(fd, buffer, (size_t)bytes);
}
struct iovec;
void tpck_files_wrote_parts(int fd, const struct iovec *parts, size_t bytes);

/* Descriptors. */
int tpck_files_close(int fd);
/* A stream is about to be closed: what must be given to closed() with its outcome. 0: nothing. The errno that its closing is
 * to tell is returned: nothing can be put at its path on this disk for the time being. */
uint64_t tpck_files_closing(int fd);
int tpck_files_closed(uint64_t closing, bool whole);
/* `to` is a copy of `from` now; what `to` was is closed. */
void tpck_files_copied(int from, int to);
int tpck_files_fsync(int fd, bool data);
/* So much was written by a call that is a sync, too (RWF_DSYNC): what that returns. */
ssize_t tpck_files_wrote_synced(int fd, ssize_t bytes);
/* Before the real calls. Of a descriptor's file system, or of all (-1): what is owed to it, and what this process has open. 0, or -1. */
int tpck_files_sync_all(int fd);
/* sync_file_range(2). */
int tpck_files_sync_range(int fd, off_t at, off_t bytes, unsigned flags);
/* msync(2). */
int tpck_files_msync(void *address, size_t bytes, int flags);
/* Byte ranges of it are about to be locked: it is the program's own file from here on, or is where it will be. */
void tpck_files_locks(int fd);
/* The descriptor's file is about to be mapped, and written through the mapping. */
void tpck_files_maps(int fd);
/* copy_file_range(2), also between memory and the file system that the file will be in. */
ssize_t tpck_files_copy_range(int from, off_t *from_at, int to, off_t *to_at, size_t bytes, unsigned flags);
/* sendfile(2). */
ssize_t tpck_files_send(int to, int from, off_t *at, size_t bytes);
void tpck_files_close_range(unsigned first, unsigned last);
void tpck_files_mapped(int fd, const void *address, size_t bytes);
void tpck_files_unmapped(const void *address, size_t bytes);
void tpck_files_remapped(const void *address, size_t bytes, const void *at, size_t now);

/* Whether anything is pending in the job: what libc lists inside itself is not what the job sees. */
bool tpck_files_owes(void);
/* A call on a path has failed. Where errno is ENOENT or ENOTDIR it becomes what the job is to be told of a path that leads through
 * what is pending (ENOTDIR), or through what is about to go (ENOENT). */
enum tpck_through {
	TPCK_THROUGH_FOLDERS, /* all parts but the last are to be folders, */
	TPCK_THROUGH_PATH,    /* the last one too if there is a slash behind it, */
	TPCK_THROUGH_ALL,     /* the last one too */
};
void tpck_files_through(int folder, const char *path, enum tpck_through how);
/* Listings: what was pending in a folder when its listing began; NULL: nothing. */
struct tpck_files_listing *tpck_files_listing_begin(int folder);
void tpck_files_listing_end(struct tpck_files_listing *listing);
/* Whether a name of the real folder is one that the job does not see. Each is asked for. */
bool tpck_files_hides(struct tpck_files_listing *listing, const char *name);
/* A name that only the job sees, behind the last real one, or NULL. */
const char *tpck_files_more(struct tpck_files_listing *listing);
/* The same for a stream, which was opened or rewound just now, or is closed. */
void tpck_files_listing_opened(DIR *folder);
void tpck_files_listing_closed(DIR *folder);
bool tpck_files_stream_hides(DIR *folder, const char *name);
struct dirent *tpck_files_stream_more(DIR *folder);

#endif
