/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of opening files. Only opening is hooked: a descriptor is a real one, whatever is done with it. */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hooks/hooks.h"
#include "hooks/libc.h"
#include "hooks/libc_machine.h"
#include "hooks/libc_random.h"
#include "runtime/engine/engine.h"
#include "runtime/files/files.h"
#include "runtime/files/layer.h"
#include "runtime/programs/programs.h"
#include "shim/driver.h"

#define AT(folder, path) TPCK_AT_RECORDED(folder, path, self != NULL)

static bool is_random(const char *path)
{
	return strcmp(path, "/dev/urandom") == 0 || strcmp(path, "/dev/random") == 0;
}

static int open_file(int folder, const char *path, int flags, mode_t mode, const void *caller)
{
	struct tpck_thread *self;
	int fd;

	if (tpck_unreadable(path))
		return (int)syscall(SYS_openat, folder, path, flags, mode);
	if (tpck_machine_open(path, flags, caller, &fd))
		return fd;
	self = tpck_engine_enter();
	fd = tpck_layer_top.open(AT(folder, path), flags, mode);
	if (fd >= 0 && (flags & O_ACCMODE) != O_RDONLY)
		tpck_programs_writes(fd, flags);
	if (self) {
		tpck_random_note(fd, is_random(path));
		tpck_engine_leave(self);
	}
	return fd;
}

static bool wants_mode(int flags)
{
	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE;
}

static mode_t mode_of(int flags, va_list args)
{
	return wants_mode(flags) ? va_arg(args, mode_t) : 0;
}

TPCK_EXPORT int open(const char *path, int flags, ...)
{
	mode_t mode;
	va_list args;

	va_start(args, flags);
	mode = mode_of(flags, args);
	va_end(args);
	return open_file(AT_FDCWD, path, flags, mode, __builtin_return_address(0));
}

TPCK_EXPORT int open64(const char *path, int flags, ...)
{
	mode_t mode;
	va_list args;

	va_start(args, flags);
	mode = mode_of(flags, args);
	va_end(args);
	return open_file(AT_FDCWD, path, flags | O_LARGEFILE, mode, __builtin_return_address(0));
}

TPCK_EXPORT int openat(int folder, const char *path, int flags, ...)
{
	mode_t mode;
	va_list args;

	va_start(args, flags);
	mode = mode_of(flags, args);
	va_end(args);
	return open_file(folder, path, flags, mode, __builtin_return_address(0));
}

TPCK_EXPORT int openat64(int folder, const char *path, int flags, ...)
{
	mode_t mode;
	va_list args;

	va_start(args, flags);
	mode = mode_of(flags, args);
	va_end(args);
	return open_file(folder, path, flags | O_LARGEFILE, mode, __builtin_return_address(0));
}

TPCK_EXPORT int creat(const char *path, mode_t mode)
{
	return open_file(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode, NULL);
}

TPCK_EXPORT int creat64(const char *path, mode_t mode)
{
	return open_file(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC | O_LARGEFILE, mode, NULL);
}

/* As calls are compiled with _FORTIFY_SOURCE. Flags that want a mode are libc's, which ends the program. */
static int open_checked(const char *symbol, const char *path, int flags)
{
	int (*real)(const char *, int) = (int (*)(const char *, int))tpck_real_dlsym(RTLD_NEXT, symbol);

	return real(path, flags);
}

static int openat_checked(const char *symbol, int folder, const char *path, int flags)
{
	int (*real)(int, const char *, int) = (int (*)(int, const char *, int))tpck_real_dlsym(RTLD_NEXT, symbol);

	return real(folder, path, flags);
}

int __open_2(const char *path, int flags);
TPCK_EXPORT int __open_2(const char *path, int flags)
{
	return wants_mode(flags) ? open_checked("__open_2", path, flags) : open_file(AT_FDCWD, path, flags, 0, __builtin_return_address(0));
}

int __open64_2(const char *path, int flags);
TPCK_EXPORT int __open64_2(const char *path, int flags)
{
	return wants_mode(flags) ? open_checked("__open64_2", path, flags)
				 : open_file(AT_FDCWD, path, flags | O_LARGEFILE, 0, __builtin_return_address(0));
}

int __openat_2(int folder, const char *path, int flags);
TPCK_EXPORT int __openat_2(int folder, const char *path, int flags)
{
	return wants_mode(flags) ? openat_checked("__openat_2", folder, path, flags) : open_file(folder, path, flags, 0, __builtin_return_address(0));
}

int __openat64_2(int folder, const char *path, int flags);
TPCK_EXPORT int __openat64_2(int folder, const char *path, int flags)
{
	return wants_mode(flags) ? openat_checked("__openat64_2", folder, path, flags)
				 : open_file(folder, path, flags | O_LARGEFILE, 0, __builtin_return_address(0));
}

/* ---- temporary names: glibc draws them and opens inside, where no symbol of ours is asked ---- */

static bool temporary_name(char *at)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
	unsigned char drawn[6];

	if (getrandom(drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn)
		return false;
	for (size_t i = 0; i < sizeof drawn; i++)
		at[i] = letters[drawn[i] % (sizeof letters - 1)];
	return true;
}

static char *temporary_place(char *pattern, int suffix)
{
	size_t length = strlen(pattern);

	if (suffix < 0 || length < (size_t)suffix + 6 || strncmp(pattern + length - (size_t)suffix - 6, "XXXXXX", 6) != 0) {
		errno = EINVAL;
		return NULL;
	}
	return pattern + length - (size_t)suffix - 6;
}

static int temporary(char *pattern, int suffix, int flags)
{
	char *place = temporary_place(pattern, suffix);
	int saved = errno, fd = -1;

	for (int tries = 0; place && tries < 10000; tries++) {
		if (!temporary_name(place))
			return -1;
		fd = open_file(AT_FDCWD, pattern, (flags & ~O_ACCMODE) | O_RDWR | O_CREAT | O_EXCL, 0600, NULL);
		if (fd >= 0)
			errno = saved;
		if (fd >= 0 || errno != EEXIST)
			break;
	}
	return fd;
}

TPCK_EXPORT int mkstemp(char *pattern)
{
	return temporary(pattern, 0, 0);
}

TPCK_EXPORT int mkstemp64(char *pattern)
{
	return temporary(pattern, 0, O_LARGEFILE);
}

TPCK_EXPORT int mkostemp(char *pattern, int flags)
{
	return temporary(pattern, 0, flags);
}

TPCK_EXPORT int mkostemp64(char *pattern, int flags)
{
	return temporary(pattern, 0, flags | O_LARGEFILE);
}

TPCK_EXPORT int mkstemps(char *pattern, int suffix)
{
	return temporary(pattern, suffix, 0);
}

TPCK_EXPORT int mkstemps64(char *pattern, int suffix)
{
	return temporary(pattern, suffix, O_LARGEFILE);
}

TPCK_EXPORT int mkostemps(char *pattern, int suffix, int flags)
{
	return temporary(pattern, suffix, flags);
}

TPCK_EXPORT int mkostemps64(char *pattern, int suffix, int flags)
{
	return temporary(pattern, suffix, flags | O_LARGEFILE);
}

TPCK_EXPORT char *mkdtemp(char *pattern)
{
	char *place = temporary_place(pattern, 0);
	int saved = errno;

	for (int tries = 0; place && tries < 10000 && temporary_name(place); tries++) {
		if (!mkdir(pattern, 0700)) {
			errno = saved;
			return pattern;
		}
		if (errno != EEXIST)
			break;
	}
	return NULL;
}

/* ---- stdio: glibc opens inside fopen(), where no symbol of ours is asked ---- */

static int flags_of(const char *mode)
{
	int flags = *mode == 'r' ? O_RDONLY : *mode == 'w' ? O_WRONLY | O_CREAT | O_TRUNC : O_WRONLY | O_CREAT | O_APPEND;

	for (const char *m = mode + 1; *m && *m != ','; m++) {
		if (*m == '+')
			flags = (flags & ~O_ACCMODE) | O_RDWR;
		else if (*m == 'x')
			flags |= O_EXCL;
		else if (*m == 'e')
			flags |= O_CLOEXEC;
	}
	return flags;
}

static FILE *open_stream(const struct tpck_at *at, const char *mode)
{
	int fd = tpck_layer_top.open(at, flags_of(mode), 0666);
	FILE *stream;

	if (fd < 0)
		return NULL;
	stream = fdopen(fd, mode);
	if (!stream)
		tpck_files_close(fd);
	return stream;
}

static FILE *real_stream(const char *path, const char *mode, FILE *(*real)(const char *, const char *))
{
	FILE *stream = real(path, mode);

	if (!stream)
		tpck_files_through(AT_FDCWD, path, TPCK_THROUGH_PATH);
	TPCK_MAYBE_NULL(mode);
	if (stream && mode && (flags_of(mode) & O_ACCMODE) != O_RDONLY)
		tpck_files_opened(fileno(stream), flags_of(mode));
	if (stream && mode && (flags_of(mode) & O_ACCMODE) != O_RDONLY)
		tpck_programs_writes(fileno(stream), flags_of(mode));
	return stream;
}

static FILE *stream_open(const char *path, const char *mode, const void *caller, FILE *(*real)(const char *, const char *))
{
	struct tpck_thread *self;
	FILE *stream;

	if (tpck_unreadable(path))
		return real(path, mode);
	if (tpck_unreadable(mode))
		return real(path, mode);
	if (tpck_machine_stream(path, mode, caller, &stream))
		return stream;
	self = tpck_engine_enter();
	if (tpck_layer_top.redirects(AT(AT_FDCWD, path), flags_of(mode))) {
		stream = open_stream(AT(AT_FDCWD, path), mode);
	} else {
		tpck_layer_top.touches(AT(AT_FDCWD, path), flags_of(mode));
		stream = real_stream(path, mode, real);
		if (stream && self && is_random(path)) {
			tpck_random_note(fileno(stream), true);
			tpck_random_stream_note(stream);
		}
	}
	if (self)
		tpck_engine_leave(self);
	return stream;
}

#define REAL(name, type)                                              \
	static type real;                                             \
	if (!real)                                                    \
	real = (type)tpck_real_dlsym(RTLD_NEXT, name)

typedef FILE *(*fopen_type)(const char *, const char *);
typedef FILE *(*freopen_type)(const char *, const char *, FILE *);

TPCK_EXPORT FILE *fopen(const char *restrict path, const char *restrict mode)
{
	REAL("fopen", fopen_type);
	return stream_open(path, mode, __builtin_return_address(0), real);
}

TPCK_EXPORT FILE *fopen64(const char *restrict path, const char *restrict mode)
{
	REAL("fopen64", fopen_type);
	return stream_open(path, mode, __builtin_return_address(0), real);
}

/* freopen of a path while running forward, or of one that is taken: the stream gets another descriptor in place of its own. */
static FILE *stream_reopen(const char *path, const char *mode, FILE *stream, freopen_type real)
{
	struct tpck_thread *self = tpck_engine_enter();
	bool there = tpck_readable_path(path) && tpck_readable_path(mode), ours;
	uint64_t closing;
	char link[64];
	int fd;

	(void)tpck_hooks_stream_closes(stream);
	closing = tpck_files_closing(fileno(stream));
	ours = there && tpck_layer_top.redirects(AT(AT_FDCWD, path), flags_of(mode));
	if (ours) {
		fd = tpck_layer_top.open(AT(AT_FDCWD, path), flags_of(mode), 0666);
		if (fd >= 0) {
			snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
			stream = real(link, *mode == 'w' ? "r+" : mode, stream);
			if (stream)
				tpck_files_copied(fd, fileno(stream));
			tpck_files_close(fd);
		} else {
			fclose(stream);
			stream = NULL;
		}
	} else {
		if (there)
			tpck_layer_top.touches(AT(AT_FDCWD, path), flags_of(mode));
		stream = real(path, mode, stream);
		if (stream && there && (flags_of(mode) & O_ACCMODE) != O_RDONLY)
			tpck_programs_writes(fileno(stream), flags_of(mode));
	}
	tpck_files_closed(closing, true);
	if (self)
		tpck_engine_leave(self);
	return stream;
}

TPCK_EXPORT FILE *freopen(const char *restrict path, const char *restrict mode, FILE *restrict stream)
{
	REAL("freopen", freopen_type);
	return stream_reopen(path, mode, stream, real);
}

TPCK_EXPORT FILE *freopen64(const char *restrict path, const char *restrict mode, FILE *restrict stream)
{
	REAL("freopen64", freopen_type);
	return stream_reopen(path, mode, stream, real);
}
