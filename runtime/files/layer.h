/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process of the job sees at a path, in layers. A call on a path goes to the first of them, and down to the next where a layer has nothing to say:
 *
 *   tpck_layer_top      follow/top_layer.c     what another process of the job has made that runs forward; compilers' files that are hidden
 *   tpck_layer_follow   follow/follow_layer.c  the record, or, while running forward, the overlay
 *   tpck_layer_pending  files/pending_layer.c  the program's own files that are not at their paths yet
 *   tpck_layer_kernel   files/real_layer.c     what the kernel says
 *
 * Calls that the job's view of files differs for and that are in no table: files/files.h (descriptors, listings, sockets), follow/follow.h (listings).
 * doc/interception.md has a row for each call of libc's.
 */
#ifndef TPCK_RUNTIME_FILES_LAYER_H
#define TPCK_RUNTIME_FILES_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

/* A path as a call gives it, and what the layers have found out about it on the way down. The path can be read. All of it is the caller's, and stays during the
 * call only. */
struct tpck_at {
	int folder;           /* AT_FDCWD, or the descriptor of a folder: where a path begins that is not absolute */
	const char *path;
	bool recorded;        /* a call of the program's while something is recorded or run forward; else the layer of the record is passed by */
	bool absent;          /* the kernel had nothing by that name a moment ago, not even a link */
	const char *absolute; /* the same path from the root on, without links, "." and ".."; NULL: it was not asked for, or has some */
};
#define TPCK_AT(folder, path) TPCK_AT_RECORDED(folder, path, false)
#define TPCK_AT_RECORDED(folder, path, recorded) (&(const struct tpck_at){(folder), (path), (recorded), false, NULL})

struct statx;
/* Each operation is the call of that name as a process of the job sees it: it returns what that returns, with errno set, and the real call is made by the last
 * layer. Any thread; no lock of the host's is taken. */
struct tpck_layer {
	int (*open)(const struct tpck_at *at, int flags, mode_t mode);
	int (*stat)(const struct tpck_at *at, struct stat *found, int flags);
	int (*statx)(const struct tpck_at *at, int flags, unsigned mask, struct statx *found);
	int (*access)(const struct tpck_at *at, int mode, int flags);
	ssize_t (*readlink)(const struct tpck_at *at, char *target, size_t size);
	int (*truncate)(const struct tpck_at *at, off_t bytes);
	int (*chmod)(const struct tpck_at *at, mode_t mode);
	int (*times)(const struct tpck_at *at, const struct timespec times[2], int flags);
	int (*mkdir)(const struct tpck_at *at, mode_t mode);
	int (*symlink)(const char *target, const struct tpck_at *at);
	int (*link)(const struct tpck_at *from, const struct tpck_at *to, int flags);
	int (*unlink)(const struct tpck_at *at, int flags);
	int (*rename)(const struct tpck_at *from, const struct tpck_at *to, unsigned flags);
	/* Where a call on the attributes of a file is to be made: the path itself, or what stands for it, in `buffer` of TPCK_LAYER_PATH bytes, absolute and
	 * with links followed. `changes`: the call changes them, and what is whole is published first. NULL: errno says what the call fails with. */
	const char *(*place)(const struct tpck_at *at, bool follow, bool changes, char *buffer);
	/* Where a question about the file system of a path is to be asked: the path itself, or a folder, in such a buffer. NULL: errno says what it fails
	 * with. */
	const char *(*around)(const struct tpck_at *at, char *buffer);
	/* Whether open() may give another descriptor than the kernel would: a stream must be made of it. */
	bool (*redirects)(const struct tpck_at *at, int flags);
	/* libc is about to open the path by a call of its own. */
	void (*touches)(const struct tpck_at *at, int flags);
};
enum { TPCK_LAYER_PATH = 4096 };

extern const struct tpck_layer tpck_layer_top __attribute__((visibility("hidden")));
extern const struct tpck_layer tpck_layer_follow __attribute__((visibility("hidden")));
extern const struct tpck_layer tpck_layer_pending __attribute__((visibility("hidden")));
extern const struct tpck_layer tpck_layer_kernel __attribute__((visibility("hidden")));

#endif
