/* SPDX-License-Identifier: Apache-2.0 */
/* What the command prints, without what a terminal would take for orders. */
#include "config.h"

#include "tools/cli/plain.h"

#include <errno.h>
#include <stdint.h>
#include <unistd.h>

enum { PIECE = 1024 };

static size_t put_hexadecimal(char *out, const char *prefix, unsigned char byte)
{
	size_t used = 0;

	while (*prefix)
		out[used++] = *prefix++;
	out[used++] = "0123456789abcdef"[byte >> 4];
	out[used++] = "0123456789abcdef"[byte & 15];
	return used;
}

size_t plain_text(const char *text, size_t size, char *out)
{
	size_t used = 0;

	for (size_t i = 0; i < size; i++) {
		unsigned char byte = (unsigned char)text[i], next = i + 1 < size ? (unsigned char)text[i + 1] : 0;

		if (byte < 0x20 && byte != '\n' && byte != '\t') {
			used += put_hexadecimal(out + used, "\\x", byte);
		} else if (byte == 0xc2 && next >= 0x80 && next < 0xa0) {
			used += put_hexadecimal(out + used, "\\u00", next);
			i++;
		} else {
			out[used++] = (char)byte;
		}
	}
	return used;
}

static int write_whole(int fd, const char *bytes, size_t size)
{
	while (size) {
		ssize_t put = write(fd, bytes, size);

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return -1;
		bytes += put;
		size -= (size_t)put;
	}
	return 0;
}

static ssize_t put(void *cookie, const char *text, size_t size)
{
	char out[4 * PIECE];

	for (size_t at = 0; at < size;) {
		size_t piece = size - at < PIECE ? size - at : PIECE;

		/* A character of two bytes stays whole. */
		if (piece > 1 && at + piece < size && (unsigned char)text[at + piece - 1] == 0xc2)
			piece--;
		if (write_whole((int)(intptr_t)cookie, out, plain_text(text + at, piece, out)))
			return 0;
		at += piece;
	}
	return (ssize_t)size;
}

static FILE *open_plain(int fd, int buffering, FILE *before)
{
	FILE *stream = fopencookie((void *)(intptr_t)fd, "w", (cookie_io_functions_t){.write = put});

	if (!stream)
		return before;
	setvbuf(stream, NULL, buffering, BUFSIZ);
	return stream;
}

void plain_streams(void)
{
	stdout = open_plain(STDOUT_FILENO, isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF, stdout);
	stderr = open_plain(STDERR_FILENO, _IOLBF, stderr);
}
