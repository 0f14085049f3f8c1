/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of calls on the owner and the extended attributes of a path. */
#include "config.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "hooks/libc.h"
#include "hooks/libc_machine.h"
#include "runtime/engine/engine.h"
#include "runtime/files/files.h"
#include "runtime/files/layer.h"
#include "shim/driver.h"

/* A call on a path as it is, or on what stands for it while running forward or pending. */
struct place {
	int folder;
	const char *path;
	bool follow, changes;
	bool readable;
	struct tpck_thread *self;
	int tries;
	const char *at;  /* what the call is made on */
	bool follows;    /* it goes where a symbolic link leads */
	long result;     /* the caller's to set, between place_next() and the next one */
	char buffer[TPCK_LAYER_PATH];
};

static void place_begins(struct place *place, int folder, const char *path, bool follow, bool changes)
{
	place->folder = folder;
	place->path = path;
	place->follow = follow;
	place->changes = changes;
	place->readable = tpck_readable_path(path);
	place->self = place->readable ? tpck_engine_enter() : NULL;
	place->tries = -1;
}

/* Whether the call is to be made, once more or for the first time. */
static bool place_next(struct place *place)
{
	if (place->tries++ >= 0 && !(place->at == place->buffer && place->result < 0 && tpck_files_again(place->tries - 1)))
		return false;
	if (!place->readable)
		place->at = place->path;
	else
		place->at = tpck_layer_top.place(TPCK_AT_RECORDED(place->folder, place->path, place->self != NULL), place->follow, place->changes, place->buffer);
	place->follows = place->follow || place->at != place->path;
	place->result = -1;
	return place->at || !place->readable;
}

static int place_ends(struct place *place)
{
	if (place->result < 0 && place->readable && tpck_files_owes())
		tpck_files_through(place->folder, place->path, TPCK_THROUGH_PATH);
	if (place->self)
		tpck_engine_leave(place->self);
	return (int)place->result;
}

TPCK_EXPORT ssize_t listxattr(const char *path, char *list, size_t size)
{
	struct place place;

	place_begins(&place, AT_FDCWD, path, true, false);
	while (place_next(&place))
		place.result = syscall(SYS_listxattr, place.at, list, size);
	return place_ends(&place);
}

TPCK_EXPORT ssize_t llistxattr(const char *path, char *list, size_t size)
{
	struct place place;

	place_begins(&place, AT_FDCWD, path, false, false);
	while (place_next(&place))
		place.result = syscall(place.follows ? SYS_listxattr : SYS_llistxattr, place.at, list, size);
	return place_ends(&place);
}

TPCK_EXPORT ssize_t getxattr(const char *path, const char *name, void *value, size_t size)
{
	struct place place;

	place_begins(&place, AT_FDCWD, path, true, false);
	while (place_next(&place))
		place.result = syscall(SYS_getxattr, place.at, name, value, size);
	return place_ends(&place);
}

TPCK_EXPORT ssize_t lgetxattr(const char *path, const char *name, void *value, size_t size)
{
	struct place place;

	place_begins(&place, AT_FDCWD, path, false, false);
	while (place_next(&place))
		place.result = syscall(place.follows ? SYS_getxattr : SYS_lgetxattr, place.at, name, value, size);
	return place_ends(&place);
}

TPCK_EXPORT int setxattr(const char *path, const char *name, const void *value, size_t size, int flags)
{
	struct place place;

	place_begins(&place, AT_FDCWD, path, true, true);
	while (place_next(&place))
		place.result = syscall(SYS_setxattr, place.at, name, value, size, flags);
	return place_ends(&place);
}

TPCK_EXPORT int lsetxattr(const char *path, const char *name, const void *value, size_t size, int flags)
{
	struct place place;

	place_begins(&place, AT_FDCWD, path, false, true);
	while (place_next(&place))
		place.result = syscall(place.follows ? SYS_setxattr : SYS_lsetxattr, place.at, name, value, size, flags);
	return place_ends(&place);
}

TPCK_EXPORT int removexattr(const char *path, const char *name)
{
	struct place place;

	place_begins(&place, AT_FDCWD, path, true, true);
	while (place_next(&place))
		place.result = syscall(SYS_removexattr, place.at, name);
	return place_ends(&place);
}

TPCK_EXPORT int lremovexattr(const char *path, const char *name)
{
	struct place place;

	place_begins(&place, AT_FDCWD, path, false, true);
	while (place_next(&place))
		place.result = syscall(place.follows ? SYS_removexattr : SYS_lremovexattr, place.at, name);
	return place_ends(&place);
}

TPCK_EXPORT int fchownat(int folder, const char *path, uid_t owner, gid_t group, int flags)
{
	struct place place;

	if (flags & AT_EMPTY_PATH)
		return (int)syscall(SYS_fchownat, folder, path, owner, group, flags);
	place_begins(&place, folder, path, !(flags & AT_SYMLINK_NOFOLLOW), true);
	while (place_next(&place))
		place.result = syscall(SYS_fchownat, folder, place.at, owner, group, place.follows ? 0 : AT_SYMLINK_NOFOLLOW);
	return place_ends(&place);
}

TPCK_EXPORT int chown(const char *path, uid_t owner, gid_t group)
{
	return fchownat(AT_FDCWD, path, owner, group, 0);
}

TPCK_EXPORT int lchown(const char *path, uid_t owner, gid_t group)
{
	return fchownat(AT_FDCWD, path, owner, group, AT_SYMLINK_NOFOLLOW);
}

/* Of the file system that a pending file, or one of the overlay, will be in. */
static const char *around(const char *path, char *buffer)
{
	struct tpck_thread *self = tpck_engine_enter();
	const char *found = tpck_layer_top.around(TPCK_AT_RECORDED(AT_FDCWD, path, self != NULL), buffer);

	if (self)
		tpck_engine_leave(self);
	return found;
}

static long told(long result, const char *path)
{
	if (result < 0)
		tpck_files_through(AT_FDCWD, path, TPCK_THROUGH_PATH);
	return result;
}

/* What may be asked of a path in its file system. */
TPCK_EXPORT long pathconf(const char *path, int name)
{
	static long (*real)(const char *, int);
	char buffer[TPCK_LAYER_PATH];
	const char *at;

	if (!real)
		real = (long (*)(const char *, int))tpck_real_dlsym(RTLD_NEXT, "pathconf");
	if (tpck_unreadable(path))
		return real(path, name);
	/* One of these is of the file, not of where it is. */
	at = name == _PC_ASYNC_IO ? tpck_layer_pending.place(TPCK_AT(AT_FDCWD, path), true, false, buffer) : around(path, buffer);
	return told(at ? real(at, name) : -1, path);
}

/* What is asked of a file system, and what libc says. */
typedef int ask_path(const char *, void *);
typedef int ask_descriptor(int, void *);

/* The record has it, where that keeps what the machine says. */
static int said(const char *name, const char *path, int result, void *found, size_t size, const void *caller)
{
	return tpck_engine_clocks() ? tpck_machine_say(tpck_machine_key(name, path), caller, result, found, size) : result;
}

/* What is asked of a path in its file system. */
static int ask(ask_path *real, const char *name, const char *path, void *found, size_t size, const void *caller)
{
	char buffer[TPCK_LAYER_PATH];
	const char *at;

	if (tpck_unreadable(path))
		return real(path, found);
	at = around(path, buffer);
	return said(name, path, (int)told(at ? real(at, found) : -1, path), found, size, caller);
}

/* Of a descriptor of a file in memory: of where the file will be. */
static int ask_of(ask_descriptor *real, ask_path *at_path, const char *name, int fd, void *found, size_t size, const void *caller)
{
	char buffer[TPCK_LAYER_PATH];
	const char *at = tpck_files_around_descriptor(fd, buffer);

	return said(name, "", at ? at_path(at, found) : real(fd, found), found, size, caller);
}

TPCK_EXPORT int statvfs(const char *restrict path, struct statvfs *restrict found)
{
	static ask_path *real;

	if (!real)
		real = (ask_path *)tpck_real_dlsym(RTLD_NEXT, "statvfs");
	return ask(real, "statvfs", path, found, sizeof *found, __builtin_return_address(0));
}

TPCK_EXPORT int statvfs64(const char *restrict path, struct statvfs64 *restrict found)
{
	static ask_path *real;

	if (!real)
		real = (ask_path *)tpck_real_dlsym(RTLD_NEXT, "statvfs64");
	return ask(real, "statvfs64", path, found, sizeof *found, __builtin_return_address(0));
}

TPCK_EXPORT int statfs(const char *path, struct statfs *found)
{
	static ask_path *real;

	if (!real)
		real = (ask_path *)tpck_real_dlsym(RTLD_NEXT, "statfs");
	return ask(real, "statfs", path, found, sizeof *found, __builtin_return_address(0));
}

TPCK_EXPORT int statfs64(const char *path, struct statfs64 *found)
{
	static ask_path *real;

	if (!real)
		real = (ask_path *)tpck_real_dlsym(RTLD_NEXT, "statfs64");
	return ask(real, "statfs64", path, found, sizeof *found, __builtin_return_address(0));
}

TPCK_EXPORT int fstatvfs(int fd, struct statvfs *found)
{
	static ask_descriptor *real;

	if (!real)
		real = (ask_descriptor *)tpck_real_dlsym(RTLD_NEXT, "fstatvfs");
	return ask_of(real, (ask_path *)statvfs, "fstatvfs", fd, found, sizeof *found, __builtin_return_address(0));
}

TPCK_EXPORT int fstatvfs64(int fd, struct statvfs64 *found)
{
	static ask_descriptor *real;

	if (!real)
		real = (ask_descriptor *)tpck_real_dlsym(RTLD_NEXT, "fstatvfs64");
	return ask_of(real, (ask_path *)statvfs64, "fstatvfs64", fd, found, sizeof *found, __builtin_return_address(0));
}

TPCK_EXPORT int fstatfs(int fd, struct statfs *found)
{
	static ask_descriptor *real;

	if (!real)
		real = (ask_descriptor *)tpck_real_dlsym(RTLD_NEXT, "fstatfs");
	return ask_of(real, (ask_path *)statfs, "fstatfs", fd, found, sizeof *found, __builtin_return_address(0));
}

TPCK_EXPORT int fstatfs64(int fd, struct statfs64 *found)
{
	static ask_descriptor *real;

	if (!real)
		real = (ask_descriptor *)tpck_real_dlsym(RTLD_NEXT, "fstatfs64");
	return ask_of(real, (ask_path *)statfs64, "fstatfs64", fd, found, sizeof *found, __builtin_return_address(0));
}

/* ---- the one name of a path ------------------------------------------------------------------- */

/* libc's goes along the path by calls of its own, and finds nothing where a file is pending. */
TPCK_EXPORT char *realpath(const char *restrict path, char *restrict name)
{
	static char *(*real)(const char *, char *);
	char buffer[TPCK_LAYER_PATH];

	if (!real)
		real = (char *(*)(const char *, char *))tpck_real_dlsym(RTLD_NEXT, "realpath");
	if (!tpck_files_owes() || !tpck_readable_path(path))
		return real(path, name);
	if (!tpck_files_canonical(path, buffer))
		/* What the job does not see has no name. */
		return tpck_layer_pending.access(TPCK_AT(AT_FDCWD, path), F_OK, 0) ? NULL : real(path, name);
	return name ? strcpy(name, buffer) : strdup(buffer);
}

TPCK_EXPORT char *canonicalize_file_name(const char *path)
{
	return realpath(path, NULL);
}

char *__realpath_chk(const char *path, char *name, size_t room);
TPCK_EXPORT char *__realpath_chk(const char *path, char *name, size_t room)
{
	static char *(*real)(const char *, char *, size_t);

	/* Less room than any name may need is libc's, which ends the program. */
	if (room >= PATH_MAX)
		return realpath(path, name);
	if (!real)
		real = (char *(*)(const char *, char *, size_t))tpck_real_dlsym(RTLD_NEXT, "__realpath_chk");
	return real(path, name, room);
}
