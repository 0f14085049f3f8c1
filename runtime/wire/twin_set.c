/* SPDX-License-Identifier: Apache-2.0 */
/* What supervisors and agent both look at in a set of twins. */
#include "config.h"

#include "runtime/wire/twin_set.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/kernel.h"

/* The kernel's marks of a process that is ending (PF_EXITING and PF_SIGNALED of include/linux/sched.h), in proc(5)'s field of flags. */
enum { EXITING = 0x4, SIGNALED = 0x400 };
/* Fields of /proc/PID/stat, counted from the one behind the name. */
enum { FIELD_STATE = 0, FIELD_FLAGS = 6 };

/* "pid (name) state ...": the name may hold anything. */
bool tpck_twin_set_is_ending(int32_t process)
{
	char path[40], text[600], *at;
	ssize_t got;
	int fd;

	snprintf(path, sizeof path, "/proc/%d/stat", process);
	fd = tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	got = fd < 0 ? -1 : tpck_sys_read(fd, text, sizeof text - 1);
	if (fd >= 0)
		tpck_sys_close(fd);
	if (got <= 0)
		return true;
	text[got] = '\0';
	at = strrchr(text, ')');
	for (int field = FIELD_STATE; at && field <= FIELD_FLAGS; field++) {
		at = strchr(at + 1, ' ');
		if (at && field == FIELD_STATE && (at[1] == 'Z' || at[1] == 'X'))
			return true;
	}
	return at && strtoul(at + 1, NULL, 10) & (EXITING | SIGNALED);
}

void tpck_twin_set_signal(const struct tpck_twin_set *set, uint32_t rank)
{
	for (uint32_t i = 0; i < set->world; i++) {
		int32_t supervisor = atomic_load(&set->seat[i].supervisor);

		if (i != rank && supervisor > 0)
			tpck_sys_kill(supervisor, SIGCHLD);
	}
}

bool tpck_twin_set_is_whole(const struct tpck_twin_set *set)
{
	if (!tpck_twin_set_decides(set))
		return atomic_load(&set->all_whole);
	for (uint32_t i = 0; i < set->world; i++)
		if (!atomic_load(&set->seat[i].supervisor))
			return false;
	return true;
}
