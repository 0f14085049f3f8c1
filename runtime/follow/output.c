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

void tpck_output_back(void)
{
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
