/* SPDX-License-Identifier: Apache-2.0 */
/* A process of root's that outlives the epilog and nothing else. It touches what is the user's as the user. */
#include "config.h"

#include "tools/spank/keeper.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <syslog.h>
#include <unistd.h>

#include "runtime/base/door.h"
#include "runtime/reach/reach.h"
#include "tools/spank/groups.h"
#include "tools/spank/job_record.h"
#include "tools/spank/line.h"
#include "tools/spank/options.h"
#include "tools/spank/user.h"

enum { LOOK_MS = 500, PAUSE_MAX_MS = 16000, FOLDER_MS = 60000, DEEP = 32 };

/* ---- as the user -------------------------------------------------------------------------- */

static void empty(int folder, int deep)
{
	DIR *list = fdopendir(folder);
	struct dirent *entry;

	while (list && (entry = readdir(list))) {
		int below;

		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if (unlinkat(dirfd(list), entry->d_name, 0) == 0 || (errno != EISDIR && errno != EPERM) || deep == DEEP)
			continue;
		below = openat(dirfd(list), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (below >= 0)
			empty(below, deep + 1);
		(void)unlinkat(dirfd(list), entry->d_name, AT_REMOVEDIR);
	}
	if (list)
		closedir(list);
	else
		close(folder);
}

static int is_there(void *argument, void *answer)
{
	struct stat found;

	(void)answer;
	return lstat(argument, &found) ? -errno : 0;
}

/* The folder has been one of an agent's, by its lock, and none serves it. */
static int remove_folder(void *argument, void *answer)
{
	char *path = argument, socket[4096 + 16], *name = strrchr(path, '/');
	int fd, folder, above;
	struct stat lock;

	(void)answer;
	snprintf(socket, sizeof socket, "%s/agent.sock", path);
	fd = tpck_reach_connect(socket);
	if (fd >= 0 || (fd != -ENOENT && fd != -ECONNREFUSED) || !name || name == path)
		return -EBUSY;
	*name++ = '\0';
	above = tpck_door_open(AT_FDCWD, path, TPCK_DOOR_STICKY);
	folder = above < 0 ? above : tpck_door_open(above, name, 0);
	if (folder < 0)
		return folder;
	if (fstatat(folder, "agent.lock", &lock, AT_SYMLINK_NOFOLLOW) || !S_ISREG(lock.st_mode))
		return -ENOENT;
	folder = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (folder >= 0)
		empty(folder, 0);
	return unlinkat(above, name, AT_REMOVEDIR) ? -errno : 0;
}

/* ---- the process -------------------------------------------------------------------------- */

static void detach(void)
{
	int null = open("/dev/null", O_RDWR);

	setsid();
	prctl(PR_SET_NAME, "transpckpt-keep", 0, 0, 0);
	for (int fd = 0; null >= 0 && fd < 3; fd++)
		dup2(null, fd);
	syscall(SYS_close_range, 3, ~0u, 0);
	(void)!chdir("/");
}

/* The job has steps here again, which have a record. */
static bool is_back(uint32_t job)
{
	char path[PATH_MAX];

	return record_path(job, "job", path) == 0 && access(path, F_OK) == 0;
}

/* Calls that, as its user, for each folder of the record. Whether one of them said 0. */
static bool each_folder(const char *record, user_work *work)
{
	char *text = strdup(record), *rest = text;
	struct record_line line;
	bool any = false;

	while (text && record_line_parse(&rest, &line)) {
		struct user user = {line.uid, line.gid, NULL, 0};

		any = user_run(&user, work, line.folder, NULL, 0, FOLDER_MS) == 0 || any;
	}
	free(text);
	return any;
}

static void keep(uint32_t job, const char *record)
{
	uint64_t until = user_now_ms() + options_stay_sec() * 1000ull;
	unsigned pause = LOOK_MS;

	while (!is_back(job)) {
		bool used = groups_used(job);

		if (!used && !each_folder(record, is_there))
			break;
		if (user_now_ms() >= until) {
			if (used)
				syslog(LOG_DAEMON | LOG_ERR, "transpckpt: job %u: what it has left here is ended, %u s behind its end", (unsigned)job,
				       options_stay_sec());
			groups_kill(job);
			(void)each_folder(record, remove_folder);
			break;
		}
		/* Folders are looked at by a process each. */
		pause = used ? LOOK_MS : pause < PAUSE_MAX_MS ? 2 * pause : pause;
		tpck_reach_pause((long)(until - user_now_ms() < pause ? until - user_now_ms() : pause));
	}
	if (is_back(job))
		return;
	record_remove(job, "groups");
	record_remove(job, "making");
}

void keeper_start(uint32_t job, const char *record)
{
	int ends[2];
	pid_t child;
	char byte;

	if (pipe2(ends, O_CLOEXEC))
		ends[0] = ends[1] = -1;
	child = ends[0] < 0 ? -1 : fork();
	if (child == 0) {
		detach();
		keep(job, record);
		_exit(0);
	}
	if (child < 0)
		slurm_error("transpckpt: job %u: nothing ends what it may have left here: %m", (unsigned)job);
	if (ends[0] < 0)
		return;
	/* slurmd ends the epilog's process group behind it: the child has left that once it has closed its end. */
	close(ends[1]);
	(void)!read(ends[0], &byte, 1);
	close(ends[0]);
}
