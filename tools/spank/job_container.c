/* SPDX-License-Identifier: Apache-2.0 */
/* The agent lives in slurmd's mount namespace, which outlives the job's: a job with a /dev/shm of its own gets the agent's folder into it. */
#include "config.h"

#include "tools/spank/job_container.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/mount.h>

#include "runtime/reach/reach.h"
#include "tools/spank/user.h"
#include "tools/spank/user_settings.h"

enum { MOUNT_MS = 10000, OPEN_MS = 3000, LOCK_MS = 3000, MOUNTS_BYTES = 1 << 20 };

/* ---- the user's folder -------------------------------------------------------------------- */

static void make_folders(const char *path)
{
	char part[PATH_MAX];

	snprintf(part, sizeof part, "%s", path);
	for (char *p = part + 1; *p; p++)
		if (*p == '/') {
			*p = '\0';
			(void)mkdir(part, 0700);
			*p = '/';
		}
	(void)mkdir(part, 0700);
}

struct folder {
	const char *path;
	const char *agent; /* of its socket below that; NULL: the folder is made where it is missing */
};

/* As the user. Without the agent there is nothing to be had there, and what is in the job should not be hidden. */
static int open_folder(void *argument, void *answer)
{
	const struct folder *folder = argument;
	struct stat socket;
	int fd;

	(void)answer;
	if (!folder->agent)
		make_folders(folder->path);
	fd = open(folder->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0 && (!folder->agent || fstatat(fd, folder->agent, &socket, AT_SYMLINK_NOFOLLOW) == 0))
		return fd;
	return -errno;
}

/* A folder of the user's own: its descriptor, or -errno. */
static int take_folder(const struct user *user, const char *path, const char *agent, struct stat *found)
{
	struct folder folder = {path, agent};
	int fd = user_run(user, open_folder, &folder, NULL, 0, OPEN_MS), rc = 0;

	if (fd < 0)
		return fd;
	if (fstat(fd, found))
		rc = -errno;
	else if (!S_ISDIR(found->st_mode) || found->st_uid != user->uid)
		rc = -EPERM;
	if (rc)
		close(fd);
	return rc ? rc : fd;
}

/* ---- the memory tier ---------------------------------------------------------------------- */

static size_t read_mounts(long pid, char *text)
{
	char path[64];
	size_t used = 0;
	ssize_t got;
	int fd;

	snprintf(path, sizeof path, "/proc/%ld/mountinfo", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && used + 1 < MOUNTS_BYTES && (got = read(fd, text + used, MOUNTS_BYTES - 1 - used)) > 0)
		used += (size_t)got;
	if (fd >= 0)
		close(fd);
	text[used] = '\0';
	return used;
}

/* Whether what is mounted there would be seen outside of the job. */
static bool spreads(int folder)
{
	char *text = malloc(MOUNTS_BYTES), *next = NULL;
	bool found = false, shared = true;
	struct statx status;

	if (text && statx(folder, "", AT_EMPTY_PATH, STATX_MNT_ID, &status) == 0 && status.stx_mask & STATX_MNT_ID && read_mounts(getpid(), text))
		for (char *line = strtok_r(text, "\n", &next); line && !found; line = strtok_r(NULL, "\n", &next)) {
			char *fields = strstr(line, " - ");

			found = strtoull(line, NULL, 10) == status.stx_mnt_id && fields;
			if (found) {
				*fields = '\0';
				shared = strstr(line, " shared:");
			}
		}
	free(text);
	return shared;
}

/* Tasks of a step come at the same time; the user may hold the lock, too. */
static int lock_folder(int folder)
{
	uint64_t until = user_now_ms() + LOCK_MS;

	while (flock(folder, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK || user_now_ms() > until)
			return -errno;
		tpck_reach_pause(5);
	}
	return 0;
}

/* In a child, by descriptors that the user's own rights have opened. 0, or an errno. */
static int mount_tier(int outside, int inside, const struct place *place, const struct user *user)
{
	char socket[sizeof place->job + 16];
	int from, to, tree, rc, locked;
	struct stat ours, theirs;

	if (setns(outside, CLONE_NEWNS))
		return errno;
	snprintf(socket, sizeof socket, "%s/agent.sock", place->job);
	from = take_folder(user, place->tier, socket, &ours);
	if (from < 0)
		return -from;
	tree = (int)syscall(SYS_open_tree, from, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	rc = errno;
	locked = lock_folder(from);
	if (locked)
		return -locked;
	if (setns(inside, CLONE_NEWNS))
		return errno;
	to = take_folder(user, place->tier, NULL, &theirs);
	if (to < 0)
		return -to;
	if (ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino)
		return 0;
	if (tree < 0 || spreads(to))
		return tree < 0 ? rc : EXDEV;
	return syscall(SYS_move_mount, tree, "", to, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) ? errno : 0;
}

/* ---- the program's files ------------------------------------------------------------------ */

/* A mount as "DEVICE ROOT PLACE", which the line of mountinfo has behind two numbers; NULL: there is no more. */
static char *next_mount(char **text)
{
	char *line = *text, *end;

	if (!*line)
		return NULL;
	*text += strcspn(line, "\n");
	if (**text)
		*(*text)++ = '\0';
	for (int field = 0; field < 2 && (line = strchr(line, ' ')); field++)
		line++;
	end = line;
	for (int field = 0; end && field < 3; field++)
		end = strchr(end + (field > 0), ' ');
	if (end)
		*end = '\0';
	return line && end ? line : (char *)"";
}

/* One entry per mount, NULL behind the last. */
static char **list_mounts(char *text)
{
	size_t count = 1;
	char **list, *mount;

	for (const char *p = text; *p; p++)
		count += *p == '\n';
	list = calloc(count + 1, sizeof *list);
	for (count = 0; list && (mount = next_mount(&text)); count++)
		list[count] = mount;
	return list;
}

/* Adds places of `these` that `those` have not, or have otherwise. False: the list cannot have one of them. */
static bool add_other(char *const *these, char *const *those, char *list, size_t size)
{
	for (; *these; these++) {
		const char *place = strrchr(*these, ' ');
		size_t used = strlen(list);
		bool same = !place;

		for (char *const *other = those; *other && !same; other++)
			same = strcmp(*these, *other) == 0;
		if (same || strncmp(place + 1, "/proc/", 6) == 0 || strncmp(place + 1, "/sys/", 5) == 0 || strncmp(place + 1, "/dev/", 5) == 0)
			continue;
		/* Of the root's own it would be all; a place is written with \ where it has a blank. */
		if (place[2] == '\0' || strpbrk(place + 1, ":\\") || used + strlen(place) + 1 > size)
			return false;
		snprintf(list + used, size - used, "%s%s", used ? ":" : "", place + 1);
	}
	return true;
}

/* The agent would put a file of /tmp into the node's. */
static void leave_files(spank_t spank, const struct place *place, long above)
{
	char *ours = malloc(MOUNTS_BYTES), *theirs = malloc(MOUNTS_BYTES), **here = NULL, **there = NULL;
	char list[TPCK_SETTING_TEXT_MAX];
	bool known = false;

	snprintf(list, sizeof list, "%s", place->files_except);
	if (ours && theirs && read_mounts(getpid(), ours) && read_mounts(above, theirs)) {
		here = list_mounts(ours);
		there = list_mounts(theirs);
		known = here && there && add_other(here, there, list, sizeof list) && add_other(there, here, list, sizeof list);
	}
	spank_setenv(spank, known ? "TRANSPCKPT_FILES_EXCEPT" : "TRANSPCKPT_FILES", known ? list : "none", 1);
	free(there);
	free(here);
	free(theirs);
	free(ours);
}

/* ---- a task ------------------------------------------------------------------------------- */

static int open_namespace(long pid, struct stat *status)
{
	char path[64];
	int fd;

	snprintf(path, sizeof path, "/proc/%ld/ns/mnt", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && fstat(fd, status)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* 0, or the errno of what went wrong. */
static int mount_within(int outside, int inside, const struct place *place, const struct user *user)
{
	uint64_t until = user_now_ms() + MOUNT_MS;
	pid_t child = fork(), done;
	int status = 0;

	if (child == 0)
		_exit(mount_tier(outside, inside, place, user));
	if (child < 0)
		return errno;
	while ((done = waitpid(child, &status, WNOHANG)) == 0 && user_now_ms() < until)
		tpck_reach_pause(1);
	if (done == 0)
		user_end(child);
	return done == child && WIFEXITED(status) ? WEXITSTATUS(status) : ETIMEDOUT;
}

static void enter(spank_t spank, int outside, int inside)
{
	struct user user;
	struct place place;
	int rc = user_of(spank, &user);

	if (!rc)
		rc = place_find(spank, &user, &place);
	if (rc)
		slurm_error("transpckpt: this job has mounts of its own, and its settings cannot be read (%s): snapshots in memory go with the job",
			    strerror(-rc));
	if (rc || place.disabled)
		return;
	leave_files(spank, &place, getppid());
	rc = mount_within(outside, inside, &place, &user);
	if (rc)
		slurm_error("transpckpt: this job has mounts of its own, and %s of the node cannot be mounted there (%s): snapshots in memory go with the "
			    "job. shm=FOLDER in plugstack.conf, a tmpfs that all jobs see, keeps them", place.tier, strerror(rc));
}

void private_enter(spank_t spank)
{
	struct stat there, here;
	int outside = open_namespace(getppid(), &there), inside = open_namespace(getpid(), &here);

	if (outside >= 0 && inside >= 0 && there.st_ino != here.st_ino)
		enter(spank, outside, inside);
	if (inside >= 0)
		close(inside);
	if (outside >= 0)
		close(outside);
}
