/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of services that nobody can follow. Weights & Biases keeps a run's rows by a program of its own, which is linked statically, and tells
 * it of the run's folder, which the trainer makes. On a resume that program is started for real, is told all rows again, and makes their file;
 * but it refuses to where the file is there already, and all rows from then on would be lost. So when the trainer makes the folder
 * while running forward, the first run's file steps aside. It goes once the process is live, or comes back where the resume is given up.
 * Online, it sends all rows again: the server puts them in the place of those that it has. Where the program asked for a run that is
 * continued (resume="allow"), the server puts them behind those. wandb writes so into the log of the run, and a line says it.
 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/follow/follow_private.h"

enum { MOST = 8, NAME = 200, ATTEMPTS = 100, LOG_MOST = 4 << 20 };

static const char *const endings[] = {".wandb"};
/* What wandb/sdk/wandb_init.py logs of a run that the server has rows of, and where, below the run's folder. */
static const char continued[] = " run resumed\n", run_log[] = "logs/debug.log";

static struct {
	char folder[TPCK_FOLLOW_PATH];
	char name[NAME];
	int attempts; /* as many lie aside: one of the first run, and one of each start that died on its way */
} aside[MOST] TPCK_LARGE;
static unsigned count;

static void aside_name(char *out, size_t size, const char *name, int attempt)
{
	snprintf(out, size, "%s.transpckpt-aside.%d", name, attempt);
}

static bool ends_as_theirs(const char *name)
{
	size_t length = strlen(name);
	bool ends = false;

	for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
		ends = ends || (length > strlen(endings[i]) && strcmp(name + length - strlen(endings[i]), endings[i]) == 0);
	return ends;
}

static bool is_theirs(int folder, const char *name)
{
	struct stat found;

	return strlen(name) < NAME - 32 && ends_as_theirs(name) && !tpck_sys_fstatat(folder, name, &found, AT_SYMLINK_NOFOLLOW) && S_ISREG(found.st_mode);
}

bool tpck_follow_is_service_file(const char *path)
{
	const char *slash = strrchr(path, '/');

	return ends_as_theirs(slash ? slash + 1 : path);
}

static void step_aside(const char *path, int folder, const char *name)
{
	char to[NAME];
	int attempt = 1;

	do
		aside_name(to, sizeof to, name, attempt);
	while (tpck_sys_renameat2(folder, name, folder, to, RENAME_NOREPLACE) && errno == EEXIST && ++attempt < ATTEMPTS);
	if (tpck_sys_faccessat(folder, name, F_OK) == 0)
		return;
	snprintf(aside[count].folder, sizeof aside[count].folder, "%s", path);
	snprintf(aside[count].name, NAME, "%s", name);
	aside[count++].attempts = attempt;
}

static int open_folder(const char *path)
{
	return tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
}

void tpck_services_folder(const char *path)
{
	int saved = errno, fd = open_folder(path);
	char buffer[4096];
	ssize_t got;

	while (fd >= 0 && (got = tpck_sys_getdents(fd, buffer, sizeof buffer)) > 0)
		for (char *at = buffer; at < buffer + got; at += ((struct dirent64 *)at)->d_reclen)
			if (count < MOST && is_theirs(fd, ((struct dirent64 *)at)->d_name))
				step_aside(path, fd, ((struct dirent64 *)at)->d_name);
	if (fd >= 0)
		tpck_sys_close(fd);
	errno = saved;
}

/* Whether the log of the run in the folder says that its server goes on with it. */
static bool is_continued(int folder)
{
	char text[4096];
	size_t kept = 0, overlap = sizeof continued - 2;
	int fd = tpck_sys_openat(folder, run_log, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
	bool found = false;
	ssize_t got;

	for (size_t all = 0; fd >= 0 && !found && all < LOG_MOST && (got = tpck_sys_read(fd, text + kept, sizeof text - kept)) > 0; all += (size_t)got) {
		size_t bytes = kept + (size_t)got;

		found = memmem(text, bytes, continued, sizeof continued - 1);
		kept = bytes < overlap ? bytes : overlap;
		memmove(text, text + bytes - kept, kept);
	}
	if (fd >= 0)
		tpck_sys_close(fd);
	return found;
}

/* Each file at its name, or what lies aside in its place. */
static void settle(bool live)
{
	char from[NAME];

	for (unsigned i = 0; i < count; i++) {
		int folder = open_folder(aside[i].folder);
		struct stat made;
		/* What the service has made since is the whole of it once the process is live, and a part before. */
		bool whole = live && !tpck_sys_fstatat(folder, aside[i].name, &made, AT_SYMLINK_NOFOLLOW);

		if (folder < 0)
			continue;
		if (live && is_continued(folder))
			tpck_log_warn("the server of the run in %s goes on with what it has, and gets rows that it had before this start once more: "
				      "without resume= in wandb.init they take the place of those", aside[i].folder);
		if (!whole) {
			aside_name(from, sizeof from, aside[i].name, 1);
			tpck_sys_renameat(folder, from, folder, aside[i].name);
		}
		for (int attempt = whole ? 1 : 2; attempt <= aside[i].attempts; attempt++) {
			aside_name(from, sizeof from, aside[i].name, attempt);
			tpck_sys_unlinkat(folder, from, 0);
		}
		tpck_sys_close(folder);
	}
	count = 0;
}

void tpck_services_live(void)
{
	settle(true);
}

void tpck_services_abandon(void)
{
	settle(false);
}
