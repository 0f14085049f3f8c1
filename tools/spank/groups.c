/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever the user runs in the agent's place, or from it, has the memory, cores and devices that the job has, and an end. */
#include "config.h"

#include "tools/spank/groups.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/bpf.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <slurm/spank.h>

#include "runtime/reach/reach.h"
#include "tools/spank/job_record.h"

#define OURS "/transpckpt_"
enum { DEVICE_PROGRAMS = 64, TEXT = 8192, KILL_TRIES = 500, KILL_PAUSE_MS = 10 };

/* ---- where -------------------------------------------------------------------------------- */

/* Where the hierarchy of a line of /proc/PID/cgroup ("ID:CONTROLLERS:PATH") is mounted, by custom; its path in *at. False: no such line. */
static bool mount_of(const char *line, char *mount, size_t size, const char **at)
{
	const char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
	int length = path ? (int)(path - controllers) - 1 : 0, used;

	if (!path)
		return false;
	controllers++;
	if (length == 0) {
		used = snprintf(mount, size, "/sys/fs/cgroup%s", access("/sys/fs/cgroup/unified", F_OK) == 0 ? "/unified" : "");
	} else {
		int named = strncmp(controllers, "name=", 5) == 0 ? 5 : 0;

		used = snprintf(mount, size, "/sys/fs/cgroup/%.*s", length - named, controllers + named);
	}
	*at = path + 1;
	return used > 0 && (size_t)used < size;
}

/* The job's group in a step's path, "[...][/uid_N]/job_N/step_...": its bytes, and those of the group that all jobs are in. False: there is none. */
static bool job_in(const char *path, uint32_t job, size_t *jobs, size_t *above)
{
	char name[32];
	int length = snprintf(name, sizeof name, "/job_%u", (unsigned)job);

	for (const char *at = path; (at = strstr(at, name)); at++)
		if (at[length] == '/' || !at[length]) {
			size_t before = (size_t)(at - path), slash = before;

			while (slash && path[slash - 1] != '/')
				slash--;
			*jobs = before + (size_t)length;
			*above = slash && strncmp(path + slash, "uid_", 4) == 0 ? slash - 1 : before;
			return true;
		}
	return false;
}

struct places {
	char jobs[PATH_MAX], ours[PATH_MAX];
};

/* In version 1 nobody can read which devices a group has lost, but a group below has lost them, too. It ends behind the job's all the same. */
static bool is_of_devices(const char *line)
{
	const char *controllers = strchr(line, ':');

	return controllers && strncmp(controllers, ":devices:", strlen(":devices:")) == 0;
}

static bool places_of(const char *line, uint32_t job, struct places *places)
{
	size_t jobs, above;
	const char *path;
	char mount[128];
	int used[2];

	if (!mount_of(line, mount, sizeof mount, &path) || !job_in(path, job, &jobs, &above))
		return false;
	used[0] = snprintf(places->jobs, PATH_MAX, "%s%.*s", mount, (int)jobs, path);
	used[1] = snprintf(places->ours, PATH_MAX, "%s%.*s" OURS "%u", mount, (int)(is_of_devices(line) ? jobs : above), path, (unsigned)job);
	return used[0] < PATH_MAX && used[1] < PATH_MAX;
}

/* ---- limits ------------------------------------------------------------------------------- */

static bool put(const char *folder, const char *file, const char *text)
{
	char path[PATH_MAX + 64];
	size_t length = strlen(text);
	bool good;
	int fd;

	snprintf(path, sizeof path, "%s/%s", folder, file);
	fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return false;
	good = write(fd, text, length) == (ssize_t)length;
	close(fd);
	return good;
}

static bool get(const char *folder, const char *file, char text[static TEXT])
{
	char path[PATH_MAX + 64];

	snprintf(path, sizeof path, "%s/%s", folder, file);
	return record_text(path, text, TEXT) > 0;
}

static bool is_of_version_2(const char *folder)
{
	struct statfs found;

	return statfs(folder, &found) == 0 && found.f_type == CGROUP2_SUPER_MAGIC;
}

/* Of version 2: programs of the kernel's that are asked of each device, and that are those of the job's group from then on. */
static int copy_device_programs(int from, int to)
{
	uint32_t programs[DEVICE_PROGRAMS];
	union bpf_attr query = {.query = {.target_fd = (uint32_t)from, .attach_type = BPF_CGROUP_DEVICE, .prog_ids = (uintptr_t)programs, .prog_cnt = DEVICE_PROGRAMS}};

	if (syscall(SYS_bpf, BPF_PROG_QUERY, &query, sizeof query))
		return -errno;
	for (uint32_t i = 0; i < query.query.prog_cnt; i++) {
		union bpf_attr one = {.prog_id = programs[i]};
		int program = (int)syscall(SYS_bpf, BPF_PROG_GET_FD_BY_ID, &one, sizeof one), rc;
		union bpf_attr attach = {.target_fd = (uint32_t)to, .attach_bpf_fd = (uint32_t)program, .attach_type = BPF_CGROUP_DEVICE, .attach_flags = BPF_F_ALLOW_MULTI};

		if (program < 0)
			return -errno;
		rc = syscall(SYS_bpf, BPF_PROG_ATTACH, &attach, sizeof attach) ? -errno : 0;
		close(program);
		if (rc)
			return rc;
	}
	return 0;
}

static void copy_devices(const struct places *places)
{
	int from = open(places->jobs, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	int to = open(places->ours, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	int rc = from < 0 || to < 0 ? -errno : copy_device_programs(from, to);

	/* A kernel without such programs takes no device away from anybody. */
	if (rc && rc != -EINVAL && rc != -ENOSYS)
		slurm_error("transpckpt: the job's devices cannot be set in %s: %s", places->ours, strerror(-rc));
	if (from >= 0)
		close(from);
	if (to >= 0)
		close(to);
}

/* What the kernel or the hierarchy does not have is left out; memory.memsw has to come behind the limit that it may not be below. */
static void copy_limits(const struct places *places)
{
	static const char *const files[] = {
		"cpuset.cpus", "cpuset.mems", "cpu.max", "cpu.cfs_quota_us", "cpu.shares", "cpu.weight", "pids.max",
		"memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.max", "memory.high", "memory.swap.max",
	};
	char text[TEXT];

	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		bool empty = !get(places->jobs, files[i], text) || text[0] == '\n';

		if (!empty && !put(places->ours, files[i], text))
			slurm_error("transpckpt: the job's %s cannot be set in %s: %m", files[i], places->ours);
	}
	if (is_of_version_2(places->ours))
		copy_devices(places);
}

/* Limits are there before anybody can be in it: the lock is that of the job's record. */
static bool make(uint32_t job, const struct places *places)
{
	char path[PATH_MAX];
	int lock, rc;

	if (record_path(job, "making", path))
		return false;
	lock = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (lock < 0 || flock(lock, LOCK_EX)) {
		if (lock >= 0)
			close(lock);
		return false;
	}
	rc = mkdir(places->ours, 0755) ? -errno : 0;
	if (!rc)
		copy_limits(places);
	close(lock);
	if (!rc || rc == -EEXIST)
		rc = record_add(job, "groups", places->ours);
	return rc == 0;
}

/* ---- going there -------------------------------------------------------------------------- */

/* slurmd's, of the same hierarchy. */
static bool enter_slurmds(const char *line)
{
	char mount[128], folder[PATH_MAX];
	const char *path;
	int used;

	if (!mount_of(line, mount, sizeof mount, &path))
		return false;
	used = snprintf(folder, sizeof folder, "%s%s", mount, path);
	return used > 0 && (size_t)used < sizeof folder && put(folder, "cgroup.procs", "0");
}

/* The line of the same hierarchy, by its number. */
static const char *same_hierarchy(const char *text, const char *line)
{
	size_t length = strcspn(line, ":") + 1;

	for (; *text; text += strcspn(text, "\n") + (text[strcspn(text, "\n")] == '\n'))
		if (strncmp(text, line, length) == 0)
			return text;
	return NULL;
}

static size_t next_line(char **text, char **line)
{
	size_t length = strcspn(*text, "\n");

	*line = *text;
	*text += length + ((*text)[length] == '\n');
	(*line)[length] = '\0';
	return length;
}

bool groups_enter(uint32_t job)
{
	static char own[TEXT], slurmd[TEXT], path[64];
	static struct places places;
	char *text = own, *line;
	bool gone = true;

	snprintf(path, sizeof path, "/proc/%ld/cgroup", record_slurmd_is());
	if (!record_slurmd_is() || !record_text(path, slurmd, sizeof slurmd) || !record_text("/proc/self/cgroup", own, sizeof own))
		return false;
	while (*text) {
		size_t length = next_line(&text, &line);
		const char *there;

		if (record_has(slurmd, line, length))
			continue;
		if (places_of(line, job, &places) && make(job, &places) && put(places.ours, "cgroup.procs", "0"))
			continue;
		there = same_hierarchy(slurmd, line);
		if (there) {
			char copy[PATH_MAX];

			snprintf(copy, sizeof copy, "%.*s", (int)strcspn(there, "\n"), there);
			gone = enter_slurmds(copy) && gone;
		}
	}
	return gone;
}

void groups_take_over(uint32_t job, pid_t agent)
{
	static char own[TEXT], its[TEXT], path[64], number[32];
	static struct places places;
	char *text = own, *line;

	snprintf(path, sizeof path, "/proc/%ld/cgroup", (long)agent);
	snprintf(number, sizeof number, "%ld", (long)agent);
	if (agent <= 1 || !record_text(path, its, sizeof its) || !record_text("/proc/self/cgroup", own, sizeof own))
		return;
	while (*text) {
		const char *there;
		char name[32];

		(void)next_line(&text, &line);
		there = same_hierarchy(its, line);
		if (!there || !places_of(line, job, &places))
			continue;
		snprintf(name, sizeof name, OURS "%u", (unsigned)job);
		there = memmem(there, strcspn(there, "\n"), OURS, strlen(OURS));
		/* One that is elsewhere is none of ours, and one that is in this job's is there. */
		if (there && (strncmp(there, name, strlen(name)) != 0 || there[strlen(name)] != '\n') && make(job, &places))
			(void)put(places.ours, "cgroup.procs", number);
	}
}

/* ---- the end ------------------------------------------------------------------------------ */

/* False: somebody is in it. What is below the job's group has kept Slurm from removing that. */
static bool remove_group(char *group)
{
	char *name = strrchr(group, '/'), *above;
	bool gone = rmdir(group) == 0 || errno != EBUSY;

	*name = '\0';
	above = strrchr(group, '/');
	if (gone && above && strncmp(above, "/job_", 5) == 0)
		(void)rmdir(group);
	*name = '/';
	return gone;
}

bool groups_used(uint32_t job)
{
	char *text = malloc(RECORD_MAX), procs[TEXT], *at = text, *line;
	bool used = false;

	if (!text || record_read(job, "groups", text) <= 0)
		at = NULL;
	while (at && *at) {
		(void)next_line(&at, &line);
		used = used || get(line, "cgroup.procs", procs) || !remove_group(line);
	}
	free(text);
	return used;
}

/* A number may be another process's by now: the process is held first, and looked at. */
static void kill_one(pid_t pid, const char *group)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	char path[64], text[TEXT], name[64];

	snprintf(name, sizeof name, "%s\n", strrchr(group, '/'));
	snprintf(path, sizeof path, "/proc/%ld/cgroup", (long)pid);
	if (fd >= 0 && record_text(path, text, sizeof text) && strstr(text, name))
		(void)syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
	if (fd >= 0)
		close(fd);
}

static void kill_group(const char *group)
{
	char procs[TEXT], *rest = procs, *line;
	bool frozen;

	/* All at once where the kernel can; else nobody makes others meanwhile. */
	if (put(group, "cgroup.kill", "1"))
		return;
	frozen = put(group, "freezer.state", "FROZEN");
	if (get(group, "cgroup.procs", procs))
		while (*rest)
			if (next_line(&rest, &line))
				kill_one((pid_t)strtol(line, NULL, 10), group);
	if (frozen)
		(void)put(group, "freezer.state", "THAWED");
}

void groups_kill(uint32_t job)
{
	char *text = malloc(RECORD_MAX), *at, *line;

	for (int tries = 0; text && tries < KILL_TRIES && groups_used(job); tries++) {
		if (record_read(job, "groups", text) > 0)
			for (at = text; *at; )
				if (next_line(&at, &line))
					kill_group(line);
		tpck_reach_pause(KILL_PAUSE_MS);
	}
	free(text);
}
