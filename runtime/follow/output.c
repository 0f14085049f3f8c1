/* SPDX-License-Identifier: Apache-2.0 */
/* Standard output and error while running forward: they go into memory, of which only the end is ever said. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/base/unsignalled.h"
#include "runtime/follow/follow.h"
#include "runtime/follow/follow_private.h"

static int real_output[3] = {-1, -1, -1};
/* What is in their place. */
static struct sink {
	dev_t device;
	ino_t inode;
} sinks[3];
_Atomic bool tpck_follow_diverted;

int tpck_output_divert(void)
{
	for (int fd = 1; fd <= 2; fd++) {
		struct stat found;
		int sink;

		if (tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH))
			continue;
		real_output[fd] = tpck_sys_high(tpck_sys_dup(fd));
		sink = tpck_sys_memfd_create("tpck-output", 1u);
		if (real_output[fd] < 0 || sink < 0)
			return -errno;
		tpck_sys_dup3(sink, fd, 0);
		tpck_sys_close(sink);
		if (!tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH))
			sinks[fd] = (struct sink){found.st_dev, found.st_ino};
		atomic_store(&tpck_follow_diverted, true);
		if (isatty(real_output[fd]))
			setvbuf(fd == 1 ? stdout : stderr, NULL, fd == 1 ? _IOLBF : _IONBF, 0);
	}
	return 0;
}

void tpck_output_flush(void)
{
	if (real_output[1] >= 0 && isatty(real_output[1]))
		fflush(stdout);
}

int tpck_follow_output_real(int fd)
{
	struct stat found;

	if (!atomic_load(&tpck_follow_diverted) || fd < 0 || tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH))
		return -1;
	for (int i = 1; i <= 2; i++)
		if (real_output[i] >= 0 && sinks[i].device == found.st_dev && sinks[i].inode == found.st_ino)
			return real_output[i];
	return -1;
}

unsigned tpck_follow_output_give(void)
{
	int saved = errno;
	unsigned given = 0;

	for (int fd = 1; fd <= 2 && atomic_load(&tpck_follow_diverted); fd++) {
		int real = tpck_follow_output_real(fd);

		if (real >= 0 && tpck_sys_dup3(real, fd, 0) >= 0)
			given |= 1u << fd;
	}
	errno = saved;
	return given;
}

void tpck_follow_output_leave(void)
{
	int saved = errno;

	atomic_store(&tpck_follow_diverted, false);
	for (int fd = 1; fd <= 2; fd++) {
		if (real_output[fd] >= 0)
			tpck_sys_close(real_output[fd]);
		real_output[fd] = -1;
	}
	errno = saved;
}

bool tpck_follow_output_is(int which, uint64_t *device, uint64_t *inode)
{
	struct stat found;
	int fd = atomic_load(&tpck_follow_diverted) ? real_output[which] : which;

	if (fd < 0 || tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH))
		return false;
	*device = found.st_dev;
	*inode = found.st_ino;
	return true;
}

bool tpck_follow_keeps_slow(int fd)
{
	return fd >= 0 && (fd == real_output[1] || fd == real_output[2]);
}

bool tpck_follow_kept_from(unsigned first, unsigned *kept)
{
	bool found = false;

	for (int i = 1; i <= 2 && atomic_load(&tpck_follow_diverted); i++)
		if (real_output[i] >= 0 && (unsigned)real_output[i] >= first && (!found || (unsigned)real_output[i] < *kept)) {
			*kept = (unsigned)real_output[i];
			found = true;
		}
	return found;
}

void tpck_output_back(void)
{
	atomic_store(&tpck_follow_diverted, false);
	for (int fd = 1; fd <= 2; fd++) {
		if (real_output[fd] < 0)
			continue;
		tpck_sys_dup3(real_output[fd], fd, 0);
		tpck_sys_close(real_output[fd]);
		real_output[fd] = -1;
	}
}

void tpck_follow_say_error(void)
{
	struct tpck_unsignalled signals;
	char text[2048];
	off_t end = tpck_sys_lseek(2, 0, SEEK_END);
	off_t from = end > (off_t)sizeof text ? end - (off_t)sizeof text : 0;
	ssize_t got = real_output[2] >= 0 ? tpck_sys_pread(2, text, sizeof text, from) : 0;

	tpck_unsignalled_begin(&signals);
	if (got > 0)
		(void)!tpck_sys_write(real_output[2], text, got);
	tpck_unsignalled_end(&signals);
}
