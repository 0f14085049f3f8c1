/* SPDX-License-Identifier: Apache-2.0 */
/* Reading until there is enough, and descriptors of the library's own. */
#include "config.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "runtime/base/kernel.h"

ssize_t tpck_sys_read_full(int fd, void *bytes, size_t count)
{
	size_t done = 0;
	ssize_t got = 1;

	while (done < count && got) {
		got = tpck_sys_read(fd, (char *)bytes + done, count - done);
		if (got < 0 && errno != EINTR)
			return -1;
		done += got > 0 ? (size_t)got : 0;
	}
	return (ssize_t)done;
}

ssize_t tpck_sys_pread_full(int fd, void *bytes, size_t count, off_t at)
{
	size_t done = 0;
	ssize_t got = 1;

	while (done < count && got) {
		got = tpck_sys_pread(fd, (char *)bytes + done, count - done, at + (off_t)done);
		if (got < 0 && errno != EINTR)
			return -1;
		done += got > 0 ? (size_t)got : 0;
	}
	return (ssize_t)done;
}

int tpck_sys_high(int fd)
{
	static _Atomic long from;
	struct rlimit limit;
	int moved = -1;

	if (fd < 0)
		return fd;
	/* Where it was good a moment ago it mostly is. */
	if (from)
		moved = tpck_sys_fcntl(fd, F_DUPFD_CLOEXEC, from);
	if (moved < 0) {
		if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur > 4096)
			limit.rlim_cur = 1024;
		from = (long)(limit.rlim_cur / 2);
		moved = tpck_sys_fcntl(fd, F_DUPFD_CLOEXEC, from);
	}
	if (moved < 0)
		return fd;
	tpck_sys_close(fd);
	return moved;
}
