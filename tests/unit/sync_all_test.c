/* SPDX-License-Identifier: Apache-2.0 */
/* Many files are synced together: each is answered for, a bad one by its own error, more of them than are under way at a time, and where the kernel takes no more. */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/store/sync_all.h"
#include "tests/unit/store_tap.h"

enum { FILES = 100, BAD = 37, NONE = 70 };

static unsigned taken = UINT_MAX; /* so many submissions the kernel takes */

/* In place of the library's: a kernel that takes no more from some time on. */
int io_uring_submit_and_wait(struct io_uring *ring, unsigned wait)
{
	static int (*real)(struct io_uring *, unsigned);

	if (!real)
		real = (int (*)(struct io_uring *, unsigned))dlsym(RTLD_NEXT, "io_uring_submit_and_wait");
	if (!taken)
		return -EBADR;
	taken -= taken != UINT_MAX;
	return real(ring, wait);
}

static bool answers(size_t count)
{
	int fd[FILES], result[FILES], pipes[2];
	char *folder = tap_folder("/tmp"), path[160];
	bool good = pipe(pipes) == 0;

	for (size_t i = 0; i < count; i++) {
		snprintf(path, sizeof path, "%s/%zu", folder, i);
		fd[i] = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		good = good && fd[i] >= 0 && write(fd[i], path, sizeof path) == sizeof path;
		unlink(path);
		result[i] = 1;
	}
	rmdir(folder);
	/* A pipe cannot be synced. */
	if (count > BAD && good)
		good = dup2(pipes[1], fd[BAD]) == fd[BAD];
	if (count > NONE) {
		close(fd[NONE]);
		fd[NONE] = -1;
	}
	tpck_sync_all(fd, result, count);
	for (size_t i = 0; i < count; i++) {
		good = good && result[i] == (i == BAD ? -EINVAL : 0);
		if (fd[i] >= 0)
			close(fd[i]);
	}
	close(pipes[0]);
	close(pipes[1]);
	return good;
}

int main(void)
{
	tap_ok(answers(FILES), "a hundred files, one that cannot be synced, and one that is none", NULL);
	tap_ok(answers(1), "one file", NULL);
	tap_ok(answers(0), "no file", NULL);
	taken = 0;
	tap_ok(answers(FILES), "a kernel that takes none: all are answered for", NULL);
	taken = 3;
	tap_ok(answers(FILES), "one that takes some: all are answered for", NULL);
	return tap_done();
}
