// SPDX-License-Identifier: Apache-2.0
/* copy_file_range between file systems, which kernels refuse and the file that stands for another one must not: what it copies, where
 * it leaves off, and what it leaves alone. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/files/files_private.h"
#include "tests/unit/store_tap.h"

enum { BYTES = 100000, AT = 700, TO_AT = 50, BEFORE = 0xee };

static unsigned char content[BYTES], got[2 * BYTES];
static int from, to;

static void begin(void)
{
	memset(got, BEFORE, sizeof got);
	if (pwrite(from, content, BYTES, 0) != BYTES || pwrite(to, got, sizeof got, 0) != (ssize_t)sizeof got)
		exit(99);
	lseek(from, AT, SEEK_SET);
	lseek(to, TO_AT, SEEK_SET);
	if (pread(to, got, sizeof got, 0) != (ssize_t)sizeof got)
		exit(99);
}

/* Copies so much with or without offsets of its own, and compares everything with what the kernel promises. */
static bool copies(size_t bytes, bool from_offset, bool to_offset)
{
	size_t there = BYTES - AT, wanted = bytes < there ? bytes : there;
	off_t from_at = AT, to_at = TO_AT;
	ssize_t result;

	begin();
	errno = EDOM;
	result = tpck_files_copy_range(from, from_offset ? &from_at : NULL, to, to_offset ? &to_at : NULL, bytes, 0);
	/* The kernel may copy less in one go. */
	while (result > 0 && (size_t)result < wanted) {
		ssize_t more = tpck_files_copy_range(from, from_offset ? &from_at : NULL, to, to_offset ? &to_at : NULL, bytes - (size_t)result, 0);

		if (more <= 0)
			return false;
		result += more;
	}
	if (result != (ssize_t)wanted || errno != EDOM || pread(to, got, sizeof got, 0) != (ssize_t)sizeof got)
		return false;
	for (size_t i = 0; i < sizeof got; i++)
		if (got[i] != (i >= TO_AT && i < TO_AT + wanted ? content[AT + i - TO_AT] : BEFORE))
			return false;
	return from_at == AT + (from_offset ? (off_t)wanted : 0) && to_at == TO_AT + (to_offset ? (off_t)wanted : 0) &&
	       lseek(from, 0, SEEK_CUR) == AT + (from_offset ? 0 : (off_t)wanted) &&
	       lseek(to, 0, SEEK_CUR) == TO_AT + (to_offset ? 0 : (off_t)wanted);
}

static int file(const char *folder)
{
	char path[160];
	int fd;

	snprintf(path, sizeof path, "%s/file", folder);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		exit(99);
	unlink(path);
	rmdir(folder);
	return fd;
}

int main(void)
{
	static const size_t sizes[] = {0, 1, 4097, 16383, 16384, 16385, 40000, BYTES - AT - 1, BYTES - AT, BYTES};
	struct tpck_view *view = calloc(1, sizeof *view);
	char what[80];
	off_t at = AT;
	int reader;

	for (size_t i = 0; i < BYTES; i++)
		content[i] = (unsigned char)(i % 211);
	from = file(tap_folder("/dev/shm"));
	to = file(tap_folder("/tmp"));
	if (!view)
		return 99;
	/* Without a table there is no file that stands for another one: the program gets the kernel's answer. */
	begin();
	if (tpck_files_copy_range(from, &at, to, NULL, 10, 0) < 0)
		tap_ok(errno == EXDEV && at == AT && lseek(to, 0, SEEK_CUR) == TO_AT, "without a table the kernel's answer stays", NULL);
	atomic_store(&tpck_files_view, view);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		for (unsigned offsets = 0; offsets < 4; offsets++) {
			snprintf(what, sizeof what, "%zu bytes%s%s", sizes[i], offsets & 1 ? ", read at an offset" : "",
				 offsets & 2 ? ", written at an offset" : "");
			tap_ok(copies(sizes[i], offsets & 1, offsets & 2), what, NULL);
		}
	begin();
	at = BYTES;
	tap_ok(tpck_files_copy_range(from, &at, to, NULL, 10, 0) == 0 && at == BYTES, "nothing at the end", NULL);
	snprintf(what, sizeof what, "/proc/self/fd/%d", to);
	reader = open(what, O_RDONLY | O_CLOEXEC);
	at = AT;
	tap_ok(tpck_files_copy_range(from, &at, reader, NULL, 10, 0) == -1 && errno == EBADF && at == AT, "what cannot be written is said", NULL);
	close(reader);
	close(from);
	close(to);
	free(view);
	return tap_done();
}
