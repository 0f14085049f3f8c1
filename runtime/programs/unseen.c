/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs without this library in them: linked statically, or started with an environment of their own. Nobody knows what such a program sends, or
 * writes to files. One that is a service is told everything again by a resume, and does all of it again.
 */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/base/kernel.h"
#include "runtime/base/processes.h"
#include "runtime/follow/follow.h"
#include "runtime/programs/programs_private.h"

struct search {
	const char *process;
	char *files;
	bool known;
};

/* How the descriptor was opened, as open(2) has it; -1: it is not there any more. */
static long flags_of(const char *process, const char *number)
{
	char path[80], text[128];
	const char *flags;
	long got;
	int fd;

	snprintf(path, sizeof path, "/proc/%s/fdinfo/%.20s", process, number);
	fd = tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	got = fd >= 0 ? tpck_sys_read(fd, text, sizeof text - 1) : -1;
	if (fd >= 0)
		tpck_sys_close(fd);
	text[got > 0 ? got : 0] = '\0';
	flags = strstr(text, "flags:");
	return flags ? strtol(flags + 6, NULL, 8) : -1;
}

/* Adds the name of a file that the process has open to write. */
static bool add_file(const char *number, void *what)
{
	struct search *search = what;
	char path[80], target[TPCK_PROGRAM_PATH];
	struct stat found;
	const char *slash;
	long flags, got;

	snprintf(path, sizeof path, "/proc/%s/fd/%.20s", search->process, number);
	flags = flags_of(search->process, number);
	if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY || tpck_sys_fstatat(AT_FDCWD, path, &found, 0) || !S_ISREG(found.st_mode) || !found.st_nlink)
		return false;
	got = tpck_sys_readlink(path, target, sizeof target - 1);
	if (got <= 0 || target[0] != '/')
		return false;
	target[got] = '\0';
	search->known = search->known || tpck_follow_is_service_file(target);
	slash = strrchr(target, '/');
	tpck_child_name_add(search->files, slash + 1);
	return false;
}

bool tpck_unseen(int pid, char files[TPCK_PROGRAM_NAMES])
{
	struct search search = {.files = files};
	char process[16], path[40], nothing[8];
	bool library;

	snprintf(process, sizeof process, "%d", pid);
	/* One that has ended has mapped nothing, as has one that this process must not look at. */
	snprintf(path, sizeof path, "/proc/%d/exe", pid);
	if (tpck_sys_readlink(path, nothing, sizeof nothing) <= 0)
		return false;
	library = tpck_process_names_library(process, "maps");
	if (library)
		return false;
	search.process = process;
	snprintf(path, sizeof path, "/proc/%d/fd", pid);
	(void)tpck_process_any_number(path, add_file, &search);
	return !search.known;
}
