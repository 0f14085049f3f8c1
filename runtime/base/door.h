/* SPDX-License-Identifier: Apache-2.0 */
/* The one door to a folder of ours on a node that others are on: it is opened once, looked at, and what is below it is reached from
 * its descriptor. doc/security.md says what that is for. */
#ifndef TPCK_RUNTIME_BASE_DOOR_H
#define TPCK_RUNTIME_BASE_DOOR_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "runtime/base/error.h"

/* Flags of open() for a file of ours that is read: a link is not followed, and a FIFO, a terminal or a device lets nobody wait. */
#define TPCK_DOOR_READ (O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY)

enum {
	TPCK_DOOR_MAKE = 1,   /* made with mode 0700 where nothing is */
	TPCK_DOOR_ABOVE = 2,  /* nobody else may put another folder into its place: the folder above it is looked at too */
	TPCK_DOOR_STICKY = 4, /* with the sticky bit others may write to it: the caller looks at each folder in it as well */
};
/* A descriptor of O_PATH for *at() calls, or -errno. -ENOENT: nothing is there. -EPERM: a link, no folder, another user's, or one
 * that others may write to; tpck_door_refused() has the words. System calls only, and errno stays. */
int tpck_door_open(int above, const char *path, int flags);
/* What is some names below a folder of ours into whose place others may put another one, as STORE/JOB/keep/ID is two below STORE/JOB: that
 * folder is looked at, and so is each below it; no link is followed. The first: a folder's descriptor, O_PATH; TPCK_DOOR_MAKE makes those
 * below. The second: of a file or folder, the file's own name included, as open() gives it. The third removes a file: 0. -errno else; errno stays. */
int tpck_door_folder(const char *path, unsigned names, int flags);
int tpck_door_file(const char *path, unsigned names, int flags, unsigned mode);
int tpck_door_remove(const char *path, unsigned names);
/* Makes, with mode 0700, those folders above the path's last name that are not there; who opens that one sees what came of it. errno stays. */
void tpck_door_above(const char *path);
/* A file below a folder, for reading: -EPERM where it is no regular file. */
int tpck_door_read(int folder, const char *name);

/* The line about a folder that was refused, with the setting that names another one. Returns -EPERM, or the -errno of `code`. */
int tpck_door_refused(const char *path, int code, const char *setting, struct tpck_error *err);

/* The memory tier's folder where no setting names one: /dev/shm/transpckpt-UID. Where something else is at that name it has a random
 * part, which a link in the user's state folder keeps for all programs, agents and commands. errno stays. */
enum { TPCK_DOOR_MEMORY_NAME = 64 }; /* bytes of the longest, with its NUL */
void tpck_door_memory(uid_t uid, const char *state, char *path, size_t size);

#endif
