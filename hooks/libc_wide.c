/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks of what writes wide characters by libc's streams, as libc_stream.c has those of bytes. A stream holds back characters, and makes bytes of them as it writes:
 * how many these are is what the character is in the locale's encoding.
 */
#include "config.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <wchar.h>

#include "hooks/hooks.h"
#include "hooks/libc.h"
#include "runtime/programs/programs.h"
#include "shim/driver.h"

#define REAL(name)                                               \
	static __typeof__(&name) real;                           \
	if (__builtin_expect(!real, 0))                          \
	real = (__typeof__(&name))tpck_real_dlsym(RTLD_NEXT, #name)

#undef putwc
#undef putwchar
#undef putwc_unlocked
#undef putwchar_unlocked
#undef fputwc_unlocked

bool tpck_hooks_wide_bytes(const wchar_t *text, size_t count, size_t *bytes)
{
	char encoded[MB_LEN_MAX];
	mbstate_t state = {0};
	size_t sum = 0;

	for (size_t i = 0; i < count; i++) {
		/* Encodings of locales have these as they are. */
		size_t has = text[i] >= 0 && text[i] < 0x80 ? 1 : wcrtomb(encoded, text[i], &state);

		if (has == (size_t)-1)
			return false;
		sum += has;
	}
	*bytes = sum;
	return true;
}

/* Of a character that has no bytes the stream fails. */
static wint_t put(struct tpck_hooks_stream *at, wchar_t c, wint_t result)
{
	size_t bytes = 0;

	if (at->fd >= 0)
		(void)tpck_hooks_wide_bytes(&c, 1, &bytes);
	tpck_hooks_stream_ended(at, bytes, result != WEOF);
	return result;
}

static int put_all(struct tpck_hooks_stream *at, const wchar_t *text, int result)
{
	size_t bytes = 0;
	bool known = at->fd < 0 || tpck_hooks_wide_bytes(text, wcslen(text), &bytes);

	tpck_hooks_stream_ended(at, bytes, known && result >= 0);
	return result;
}

TPCK_EXPORT wint_t fputwc(wchar_t c, FILE *stream)
{
	struct tpck_hooks_stream at;

	REAL(fputwc);
	tpck_hooks_stream_begins(&at, stream);
	return put(&at, c, real(c, stream));
}

TPCK_EXPORT wint_t fputwc_unlocked(wchar_t c, FILE *stream)
{
	struct tpck_hooks_stream at;

	REAL(fputwc_unlocked);
	tpck_hooks_stream_begins(&at, stream);
	return put(&at, c, real(c, stream));
}

TPCK_EXPORT wint_t putwc(wchar_t c, FILE *stream)
{
	return fputwc(c, stream);
}

TPCK_EXPORT wint_t putwc_unlocked(wchar_t c, FILE *stream)
{
	return fputwc_unlocked(c, stream);
}

TPCK_EXPORT wint_t putwchar(wchar_t c)
{
	return fputwc(c, stdout);
}

TPCK_EXPORT wint_t putwchar_unlocked(wchar_t c)
{
	return fputwc_unlocked(c, stdout);
}

/* What putwc_unlocked() comes to in code that has it as a macro. */
wint_t __woverflow(FILE *stream, wint_t c);
TPCK_EXPORT wint_t __woverflow(FILE *stream, wint_t c)
{
	struct tpck_hooks_stream at;
	wint_t result;

	REAL(__woverflow);
	tpck_hooks_stream_begins(&at, stream);
	if (c != WEOF)
		return put(&at, (wchar_t)c, real(stream, c));
	result = real(stream, c);
	tpck_hooks_stream_ended(&at, 0, result != WEOF);
	return result;
}

TPCK_EXPORT int fputws(const wchar_t *restrict text, FILE *restrict stream)
{
	struct tpck_hooks_stream at;

	REAL(fputws);
	tpck_hooks_stream_begins(&at, stream);
	return put_all(&at, text, real(text, stream));
}

TPCK_EXPORT int fputws_unlocked(const wchar_t *restrict text, FILE *restrict stream)
{
	struct tpck_hooks_stream at;

	REAL(fputws_unlocked);
	tpck_hooks_stream_begins(&at, stream);
	return put_all(&at, text, real(text, stream));
}

/* ---- by a format --------------------------------------------------------------------------------- */

int __fwprintf_chk(FILE *stream, int flag, const wchar_t *format, ...);
int __vfwprintf_chk(FILE *stream, int flag, const wchar_t *format, va_list list);
int __wprintf_chk(int flag, const wchar_t *format, ...);
int __vwprintf_chk(int flag, const wchar_t *format, va_list list);

/* The function says how many characters it has put, but not of how many bytes. Longer ones count a byte for each, which is never too much. */
enum { MADE = 512 };

static int put_format(struct tpck_hooks_stream *at, const wchar_t *format, va_list list, int characters)
{
	size_t bytes = characters > 0 ? (size_t)characters : 0;
	wchar_t made[MADE];

	if (at->fd >= 0 && characters > 0 && characters < MADE && vswprintf(made, MADE, format, list) == characters)
		(void)tpck_hooks_wide_bytes(made, (size_t)characters, &bytes);
	tpck_hooks_stream_ended(at, bytes, characters >= 0);
	return characters;
}

#define FORMATTED(call)                                      \
	struct tpck_hooks_stream at;                         \
	va_list again;                                       \
	int characters;                                      \
	tpck_hooks_stream_begins(&at, stream);               \
	va_copy(again, list);                                \
	characters = put_format(&at, format, again, call);   \
	va_end(again);                                       \
	return characters

TPCK_EXPORT int vfwprintf(FILE *restrict stream, const wchar_t *restrict format, va_list list)
{
	REAL(vfwprintf);
	FORMATTED(real(stream, format, list));
}

TPCK_EXPORT int __vfwprintf_chk(FILE *stream, int flag, const wchar_t *format, va_list list)
{
	REAL(__vfwprintf_chk);
	FORMATTED(real(stream, flag, format, list));
}

#define LISTED(call)                \
	int characters;             \
	va_list list;               \
	va_start(list, format);     \
	characters = call;          \
	va_end(list);               \
	return characters

TPCK_EXPORT int fwprintf(FILE *restrict stream, const wchar_t *restrict format, ...)
{
	LISTED(vfwprintf(stream, format, list));
}

TPCK_EXPORT int __fwprintf_chk(FILE *stream, int flag, const wchar_t *format, ...)
{
	LISTED(__vfwprintf_chk(stream, flag, format, list));
}

TPCK_EXPORT int vwprintf(const wchar_t *restrict format, va_list list)
{
	return vfwprintf(stdout, format, list);
}

TPCK_EXPORT int __vwprintf_chk(int flag, const wchar_t *format, va_list list)
{
	return __vfwprintf_chk(stdout, flag, format, list);
}

TPCK_EXPORT int wprintf(const wchar_t *restrict format, ...)
{
	LISTED(vfwprintf(stdout, format, list));
}

TPCK_EXPORT int __wprintf_chk(int flag, const wchar_t *format, ...)
{
	LISTED(__vfwprintf_chk(stdout, flag, format, list));
}
