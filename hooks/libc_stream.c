/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks of what writes by libc's streams, for processes of which it is kept how much they write to which file (runtime/programs/writings.h). A stream writes by a
 * call inside of libc. But what it holds back is known before such a function and behind it, and so is what the function adds: the rest has been written.
 */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "hooks/hooks.h"
#include "hooks/libc.h"
#include "runtime/base/layout.h"
#include "runtime/programs/programs.h"
#include "shim/driver.h"

#undef putc
#undef putchar
#undef putc_unlocked
#undef fputc_unlocked
#undef putchar_unlocked

#define REAL(name)                                               \
	static __typeof__(&name) real;                           \
	if (__builtin_expect(!real, 0))                          \
	real = (__typeof__(&name))tpck_real_dlsym(RTLD_NEXT, #name)

/* In struct _IO_FILE (libioP.h, since glibc 2.0): what is in its buffer is to be written; an error was met. */
enum { PUTTING = 0x0800, FAILED = 0x0020 };
/* Streams of this process that write to a file that is followed. What more there are is not counted at the process's end. */
enum { STREAMS = 16 };
static struct followed {
	FILE *_Atomic stream;
	_Atomic size_t promised; /* bytes that it holds back, and that count as being written, as the process ends */
} followed[STREAMS] TPCK_LARGE;
static _Atomic uint32_t followed_most;

/* The first fields of struct _IO_wide_data (libioP.h, since glibc 2.2). */
struct wide {
	wchar_t *read_ptr, *read_end, *read_base, *write_base, *write_ptr;
};

/* False: it is not known how many bytes its wide characters will be; then *bytes is less. */
static bool held_back(const FILE *stream, size_t *bytes)
{
	const struct wide *wide = (const struct wide *)stream->_wide_data;
	size_t characters = 0;
	bool known = true;

	*bytes = 0;
	if (!(stream->_flags & PUTTING))
		return true;
	if (stream->_mode > 0 && wide && wide->write_ptr > wide->write_base)
		known = tpck_hooks_wide_bytes(wide->write_base, (size_t)(wide->write_ptr - wide->write_base), &characters);
	*bytes = (size_t)(stream->_IO_write_ptr - stream->_IO_write_base) + characters;
	return known;
}

static struct followed *followed_of(FILE *stream, bool new)
{
	uint32_t most = atomic_load(&followed_most);

	for (uint32_t i = 0; i < most; i++)
		if (atomic_load(&followed[i].stream) == stream)
			return &followed[i];
	for (uint32_t i = 0; new && i < STREAMS; i++) {
		FILE *none = NULL;

		if (!atomic_compare_exchange_strong(&followed[i].stream, &none, stream))
			continue;
		while (most <= i && !atomic_compare_exchange_weak(&followed_most, &most, i + 1))
			;
		return &followed[i];
	}
	return NULL;
}

void tpck_hooks_stream_begins_slow(struct tpck_hooks_stream *at, FILE *stream)
{
	int saved = errno, fd = stream->_fileno;
	struct followed *of;
	size_t promised;

	at->fd = -1;
	if (fd < 0 || !tpck_programs_child_counts(fd))
		return;
	/* The function has the stream for itself, too; if it were cancelled nobody would give it back. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &at->cancels);
	flockfile(stream);
	at->fd = fd;
	at->stream = stream;
	at->unsure = !held_back(stream, &at->held_back);
	of = followed_of(stream, true);
	promised = of ? atomic_exchange(&of->promised, 0) : 0;
	if (promised)
		tpck_programs_child_wrote(fd, promised, 0);
	tpck_programs_child_writing(fd, at->held_back);
	errno = saved;
}

void tpck_hooks_stream_ended_slow(const struct tpck_hooks_stream *at, size_t more, bool good)
{
	int saved = errno;
	size_t all = at->held_back + more, left;
	bool known = held_back(at->stream, &left) && !at->unsure;

	/* What is lost by an error is not known. */
	tpck_programs_child_wrote(at->fd, at->held_back, known && good && !(at->stream->_flags & FAILED) && left <= all ? (ssize_t)(all - left) : 0);
	funlockfile(at->stream);
	pthread_setcancelstate(at->cancels, NULL);
	errno = saved;
}

static void begins(struct tpck_hooks_stream *at, FILE *stream)
{
	tpck_hooks_stream_begins(at, stream);
}

/* What it gave back is -1 where it failed. */
static int ended(const struct tpck_hooks_stream *at, size_t more, int result)
{
	tpck_hooks_stream_ended(at, more, result >= 0);
	return result;
}

int tpck_hooks_stream_closes(FILE *stream)
{
	int saved = errno, lost = 0;
	struct followed *of;

	if (!tpck_programs_child_some())
		return 0;
	/* One that reads would go back to where the program is, which its end does not do. */
	if (stream->_flags & PUTTING && fflush(stream))
		lost = errno;
	tpck_programs_child_closes(fileno(stream));
	of = followed_of(stream, false);
	if (of)
		atomic_store(&of->stream, NULL);
	errno = saved;
	return lost;
}

/* At the process's end libc writes what streams hold back, when nothing of this library comes to pass any more. */
__attribute__((destructor)) static TPCK_AT_START void ends(void)
{
	uint32_t most = atomic_load(&followed_most);

	for (uint32_t i = 0; i < most && tpck_programs_child_some(); i++) {
		FILE *stream = atomic_load(&followed[i].stream);
		size_t bytes = 0;

		if (!stream || !tpck_readable(stream, sizeof *stream) || !held_back(stream, &bytes) || !bytes || atomic_exchange(&followed[i].promised, bytes))
			continue;
		tpck_programs_child_writing(stream->_fileno, bytes);
	}
}

/* ---- texts and characters ------------------------------------------------------------------- */

TPCK_EXPORT int fputs(const char *restrict text, FILE *restrict stream)
{
	struct tpck_hooks_stream at;

	REAL(fputs);
	begins(&at, stream);
	return ended(&at, at.fd < 0 ? 0 : strlen(text), real(text, stream));
}

TPCK_EXPORT int fputs_unlocked(const char *restrict text, FILE *restrict stream)
{
	struct tpck_hooks_stream at;

	REAL(fputs_unlocked);
	begins(&at, stream);
	return ended(&at, at.fd < 0 ? 0 : strlen(text), real(text, stream));
}

TPCK_EXPORT int puts(const char *text)
{
	struct tpck_hooks_stream at;

	REAL(puts);
	begins(&at, stdout);
	return ended(&at, at.fd < 0 ? 0 : strlen(text) + 1, real(text));
}

TPCK_EXPORT int fputc(int c, FILE *stream)
{
	struct tpck_hooks_stream at;

	REAL(fputc);
	begins(&at, stream);
	return ended(&at, 1, real(c, stream));
}

TPCK_EXPORT int putc(int c, FILE *stream)
{
	struct tpck_hooks_stream at;

	REAL(putc);
	begins(&at, stream);
	return ended(&at, 1, real(c, stream));
}

TPCK_EXPORT int putchar(int c)
{
	struct tpck_hooks_stream at;

	REAL(putchar);
	begins(&at, stdout);
	return ended(&at, 1, real(c));
}

/* What putc_unlocked() and its like, which are no calls, come to where there is no room in the buffer. */
int __overflow(FILE *stream, int c);
TPCK_EXPORT int __overflow(FILE *stream, int c)
{
	struct tpck_hooks_stream at;

	REAL(__overflow);
	begins(&at, stream);
	return ended(&at, c != EOF, real(stream, c));
}

/* ---- by a format --------------------------------------------------------------------------------- */

/* As code calls them that is compiled with _FORTIFY_SOURCE. */
int __fprintf_chk(FILE *stream, int flag, const char *format, ...);
int __vfprintf_chk(FILE *stream, int flag, const char *format, va_list list);
int __printf_chk(int flag, const char *format, ...);
int __vprintf_chk(int flag, const char *format, va_list list);
int __dprintf_chk(int fd, int flag, const char *format, ...);
int __vdprintf_chk(int fd, int flag, const char *format, va_list list);

TPCK_EXPORT int vfprintf(FILE *restrict stream, const char *restrict format, va_list list)
{
	struct tpck_hooks_stream at;
	int put;

	REAL(vfprintf);
	begins(&at, stream);
	put = real(stream, format, list);
	return ended(&at, put > 0 ? (size_t)put : 0, put);
}

TPCK_EXPORT int __vfprintf_chk(FILE *stream, int flag, const char *format, va_list list)
{
	struct tpck_hooks_stream at;
	int put;

	REAL(__vfprintf_chk);
	begins(&at, stream);
	put = real(stream, flag, format, list);
	return ended(&at, put > 0 ? (size_t)put : 0, put);
}

#define LISTED(call)                \
	int put;                    \
	va_list list;               \
	va_start(list, format);     \
	put = call;                 \
	va_end(list);               \
	return put

TPCK_EXPORT int fprintf(FILE *restrict stream, const char *restrict format, ...)
{
	LISTED(vfprintf(stream, format, list));
}

TPCK_EXPORT int __fprintf_chk(FILE *stream, int flag, const char *format, ...)
{
	LISTED(__vfprintf_chk(stream, flag, format, list));
}

TPCK_EXPORT int vprintf(const char *restrict format, va_list list)
{
	return vfprintf(stdout, format, list);
}

TPCK_EXPORT int __vprintf_chk(int flag, const char *format, va_list list)
{
	return __vfprintf_chk(stdout, flag, format, list);
}

TPCK_EXPORT int printf(const char *restrict format, ...)
{
	LISTED(vfprintf(stdout, format, list));
}

TPCK_EXPORT int __printf_chk(int flag, const char *format, ...)
{
	LISTED(__vfprintf_chk(stdout, flag, format, list));
}

/* To a descriptor, by a stream that is there for the call only. */
TPCK_EXPORT int vdprintf(int fd, const char *restrict format, va_list list)
{
	int put;

	REAL(vdprintf);
	tpck_programs_child_writing(fd, 0);
	put = real(fd, format, list);
	tpck_programs_child_wrote(fd, 0, put);
	return put;
}

TPCK_EXPORT int __vdprintf_chk(int fd, int flag, const char *format, va_list list)
{
	int put;

	REAL(__vdprintf_chk);
	tpck_programs_child_writing(fd, 0);
	put = real(fd, flag, format, list);
	tpck_programs_child_wrote(fd, 0, put);
	return put;
}

TPCK_EXPORT int dprintf(int fd, const char *restrict format, ...)
{
	LISTED(vdprintf(fd, format, list));
}

TPCK_EXPORT int __dprintf_chk(int fd, int flag, const char *format, ...)
{
	LISTED(__vdprintf_chk(fd, flag, format, list));
}

/* ---- what was held back -------------------------------------------------------------------------- */

/* Moving in a file writes what is held back. */
#define MOVES(name, ...)                                              \
	struct tpck_hooks_stream at;                                  \
	REAL(name);                                                   \
	begins(&at, stream);                                          \
	return ended(&at, 0, real(stream, __VA_ARGS__))

TPCK_EXPORT int fseek(FILE *stream, long by, int from)
{
	MOVES(fseek, by, from);
}

TPCK_EXPORT int fseeko(FILE *stream, off_t by, int from)
{
	MOVES(fseeko, by, from);
}

TPCK_EXPORT int fseeko64(FILE *stream, off64_t by, int from)
{
	MOVES(fseeko64, by, from);
}

TPCK_EXPORT int fsetpos(FILE *stream, const fpos_t *to)
{
	MOVES(fsetpos, to);
}

TPCK_EXPORT int fsetpos64(FILE *stream, const fpos64_t *to)
{
	MOVES(fsetpos64, to);
}

TPCK_EXPORT void rewind(FILE *stream)
{
	struct tpck_hooks_stream at;

	REAL(rewind);
	begins(&at, stream);
	real(stream);
	tpck_hooks_stream_ended(&at, 0, true);
}

/* Streams that are followed are flushed one by one, and then all others by the real function. */
static int flush_all(int (*real)(FILE *))
{
	uint32_t most = atomic_load(&followed_most);
	struct tpck_hooks_stream at;
	int result = 0;

	for (uint32_t i = 0; i < most; i++) {
		FILE *stream = atomic_load(&followed[i].stream);

		if (!stream || !tpck_readable(stream, sizeof *stream))
			continue;
		begins(&at, stream);
		if (at.fd >= 0 && ended(&at, 0, real(stream)))
			result = EOF;
	}
	return real(NULL) ? EOF : result;
}

static int flush_each(int (*real)(FILE *))
{
	bool changes = tpck_follow_changes();
	int result = tpck_programs_child_some() ? flush_all(real) : real(NULL);

	tpck_follow_changed(changes);
	return result;
}

TPCK_EXPORT int fflush(FILE *stream)
{
	struct tpck_hooks_stream at;

	REAL(fflush);
	if (!stream)
		return flush_each(real);
	begins(&at, stream);
	return ended(&at, 0, real(stream));
}

TPCK_EXPORT int fflush_unlocked(FILE *stream)
{
	struct tpck_hooks_stream at;

	REAL(fflush_unlocked);
	if (!stream)
		return flush_each(real);
	begins(&at, stream);
	return ended(&at, 0, real(stream));
}
