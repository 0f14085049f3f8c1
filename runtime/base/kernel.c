/* SPDX-License-Identifier: Apache-2.0 */
/* Reading until there is enough. */
#include "config.h"

#include <errno.h>

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
