/* SPDX-License-Identifier: Apache-2.0 */
/* Priorities, the order in which memory's end ends processes, and a control group: given away and taken back. */
#include "config.h"

#include "runtime/twin/manners.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"

/* As ioprio_set(2) has them; glibc has no header for it. */
enum { IO_OF_PROCESS = 1, IO_OF_GROUP = 2, IO_CLASS_SHIFT = 13, IO_REAL_TIME = 1, IO_IDLE = 3 };
enum { NICER_BY = 10, NICE_MAX = 19, OOM_FIRST = 1000, PATH = 600 };

static struct {
	bool nice_given, io_given, oom_given;
	int nice, nicer, io, oom; /* before, and what it was made */
	char group[PATH];         /* "FOLDER/cgroup.procs" of the group that it was in; "": it was not moved */
} former TPCK_LARGE;

/* ---- the processor ------------------------------------------------------------------------------------ */

/* Making it smaller is allowed down to RLIMIT_NICE, and to whoever may make it smaller at all. */
static bool nice_can_come_back(int now)
{
	struct rlimit limit;

	if (tpck_sys_prlimit(0, RLIMIT_NICE, NULL, &limit) == 0 && limit.rlim_cur >= (rlim_t)(20 - now))
		return true;
	return now > -20 && tpck_sys_setpriority(PRIO_PROCESS, 0, now - 1) == 0 && tpck_sys_setpriority(PRIO_PROCESS, 0, now) == 0;
}

static void give_processor(void)
{
	int now = tpck_sys_getpriority(PRIO_PROCESS, 0);

	former.nice = now;
	former.nicer = now + NICER_BY < NICE_MAX ? now + NICER_BY : NICE_MAX;
	if (former.nicer == now || !nice_can_come_back(now))
		return;
	former.nice_given = tpck_sys_setpriority(PRIO_PROCESS, 0, former.nicer) == 0;
}

/* A program that has changed its priority itself has done so from where it was put. */
static void take_processor(void)
{
	int own = tpck_sys_getpriority(PRIO_PROCESS, tpck_sys_getpid()) - former.nicer;

	if (former.nice_given && tpck_sys_setpriority(PRIO_PGRP, 0, former.nice + own))
		tpck_log_warn("the process that took over has priority %d, and not %d as before: %m", former.nicer, former.nice);
}

/* ---- the disk ------------------------------------------------------------------------------------------ */

static void give_disk(void)
{
	former.io = tpck_sys_ioprio_get(IO_OF_PROCESS, 0);
	/* Not everybody may go back to real time. */
	if (former.io < 0 || former.io >> IO_CLASS_SHIFT == IO_REAL_TIME)
		return;
	former.io_given = tpck_sys_ioprio_set(IO_OF_PROCESS, 0, IO_IDLE << IO_CLASS_SHIFT) == 0;
}

static void take_disk(void)
{
	if (former.io_given && tpck_sys_ioprio_set(IO_OF_GROUP, 0, former.io))
		tpck_log_warn("the process that took over reads and writes when nobody else does: %m");
}

/* ---- memory -------------------------------------------------------------------------------------------- */

static bool write_number(const char *path, int number)
{
	int fd = tpck_sys_openat(AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0);
	char text[16];
	bool done;

	if (fd < 0)
		return false;
	snprintf(text, sizeof text, "%d", number);
	done = tpck_sys_write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	if (!done && !errno)
		errno = EIO;
	tpck_sys_close(fd);
	return done;
}

static bool read_oom(int *number)
{
	int fd = tpck_sys_openat(AT_FDCWD, "/proc/self/oom_score_adj", O_RDONLY | O_CLOEXEC, 0);
	char text[16] = "";
	bool good = fd >= 0 && tpck_sys_read_full(fd, text, sizeof text - 1) > 0;

	if (fd >= 0)
		tpck_sys_close(fd);
	*number = atoi(text);
	return good;
}

/* Whoever may not go below what somebody has set hears that by trying: then it stays at what it can be. */
static void give_memory(void)
{
	const char *path = "/proc/self/oom_score_adj";

	if (!read_oom(&former.oom) || former.oom == OOM_FIRST || !write_number(path, former.oom + 1))
		return;
	if (!write_number(path, former.oom))
		return;
	former.oom_given = write_number(path, OOM_FIRST);
}

/* ---- the control group --------------------------------------------------------------------------------- */

static bool is_group(const char *path)
{
	int fd = tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	struct statfs found;
	bool is = fd >= 0 && tpck_sys_fstatfs(fd, &found) == 0 && found.f_type == CGROUP2_SUPER_MAGIC;

	if (fd >= 0)
		tpck_sys_close(fd);
	return is;
}

/* "0::/PATH" of this process; below where the hierarchy that `folder` is in is mounted. */
static bool find_group(const char *folder, char group[PATH])
{
	int fd = tpck_sys_openat(AT_FDCWD, "/proc/self/cgroup", O_RDONLY | O_CLOEXEC, 0);
	char text[4096] = "", top[PATH], above[PATH], *line = text, *slash;

	if (fd < 0)
		return false;
	(void)tpck_sys_read_full(fd, text, sizeof text - 1);
	tpck_sys_close(fd);
	while (line && strncmp(line, "0::", 3) != 0) {
		line = strchr(line, '\n');
		line += line != NULL;
	}
	if (!line)
		return false;
	line += 3;
	line[strcspn(line, "\n")] = '\0';
	snprintf(top, sizeof top, "%s", folder);
	snprintf(above, sizeof above, "%s", folder);
	while ((slash = strrchr(above, '/')) && slash > above) {
		*slash = '\0';
		if (!is_group(above))
			break;
		snprintf(top, sizeof top, "%s", above);
	}
	return snprintf(group, PATH, "%s%s/cgroup.procs", top, strcmp(line, "/") == 0 ? "" : line) < PATH;
}

static void move_in(const char *folder)
{
	char into[PATH], group[PATH];

	if (!is_group(folder)) {
		tpck_log_warn("TRANSPCKPT_TWIN_CGROUP=%s is no folder of a control group of version 2: the twin is where the program is", folder);
		return;
	}
	if (snprintf(into, sizeof into, "%s/cgroup.procs", folder) >= (int)sizeof into || !find_group(folder, group)) {
		tpck_log_warn("TRANSPCKPT_TWIN_CGROUP=%s is not used: it is not known which group the program is in", folder);
		return;
	}
	/* Where it is now it may go: so it may come back. */
	if (!write_number(group, tpck_sys_getpid())) {
		tpck_log_warn("TRANSPCKPT_TWIN_CGROUP=%s is not used, since the twin could not come back from there (%s: %m)", folder, group);
		return;
	}
	if (!write_number(into, tpck_sys_getpid())) {
		tpck_log_warn("the twin cannot be moved to TRANSPCKPT_TWIN_CGROUP=%s: %m", folder);
		return;
	}
	snprintf(former.group, sizeof former.group, "%s", group);
}

/* ---- all ----------------------------------------------------------------------------------------------- */

void tpck_manners_begin(const char *cgroup)
{
	if (*cgroup)
		move_in(cgroup);
	give_processor();
	give_disk();
	give_memory();
}

static void take_from(pid_t process)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/oom_score_adj", process);
	if (former.oom_given && !write_number(path, former.oom) && process == tpck_sys_getpid())
		tpck_log_warn("the process that took over is still the first to be ended where memory is short: %m");
	if (former.group[0] && !write_number(former.group, process) && process == tpck_sys_getpid())
		tpck_log_warn("the process that took over cannot leave TRANSPCKPT_TWIN_CGROUP (%s: %m)", former.group);
}

void tpck_manners_end(void)
{
	pid_t group = tpck_sys_getpgid(0);
	char buffer[4096];
	ssize_t got;
	int folder;

	take_processor();
	take_disk();
	if (!former.oom_given && !former.group[0])
		return;
	take_from(tpck_sys_getpid());
	/* What it has made is in its group. */
	folder = tpck_sys_openat(AT_FDCWD, "/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	while (folder >= 0 && (got = tpck_sys_getdents(folder, buffer, sizeof buffer)) > 0)
		for (char *at = buffer; at < buffer + got; at += ((struct dirent64 *)at)->d_reclen) {
			pid_t process = atoi(((struct dirent64 *)at)->d_name);

			if (process > 0 && process != tpck_sys_getpid() && tpck_sys_getpgid(process) == group)
				take_from(process);
		}
	if (folder >= 0)
		tpck_sys_close(folder);
}
