// SPDX-License-Identifier: Apache-2.0
/* The agent's control group as version 2 has it: which of the job's limits it gets, in what order, and what is said. The folder is no kernel's: a file system
 * in memory at /sys/fs/cgroup, of this process alone, in which a new folder gets the files that the kernel makes there (Documentation/admin-guide/cgroup-v2.rst). */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/store_tap.h"
#include "tools/spank/groups.h"
#include "tools/spank/job_record.h"

#define check(good, what) tap_ok(good, what, said)
#define SCOPE "/sys/fs/cgroup/system.slice/node_slurmstepd.scope"
#define JOB SCOPE "/job_7"
#define OURS SCOPE "/transpckpt_7"

static char said[2000];      /* lines of the plugin's */
static char written[2000];   /* names of files below the agent's group, as they were opened for writing */
static const char *missing;  /* a file that the kernel does not make in it */

/* What a group without limits says, of kernel 6.1 with the controllers memory, cpu, cpuset and pids. */
static const struct {
	const char *name, *text;
} files[] = {
	{"cgroup.procs", ""}, {"cgroup.kill", ""}, {"cpu.max", "max 100000\n"}, {"cpu.weight", "100\n"}, {"cpuset.cpus", "\n"}, {"cpuset.mems", "\n"},
	{"memory.high", "max\n"}, {"memory.max", "max\n"}, {"memory.swap.max", "max\n"}, {"pids.max", "max\n"},
};

/* ---- what the plugin asks ------------------------------------------------------------------- */

void slurm_error(const char *format, ...);

void slurm_error(const char *format, ...)
{
	size_t used = strlen(said);
	va_list rest;

	va_start(rest, format);
	vsnprintf(said + used, sizeof said - used, format, rest);
	va_end(rest);
}

long record_slurmd_is(void)
{
	return 2;
}

size_t record_text(const char *path, char *text, size_t size)
{
	FILE *file = strncmp(path, "/proc/", 6) == 0 ? NULL : fopen(path, "r");
	size_t got = 0;

	if (strcmp(path, "/proc/self/cgroup") == 0)
		got = (size_t)snprintf(text, size, "0::/system.slice/node_slurmstepd.scope/job_7/step_0/user/task_0\n");
	else if (strcmp(path, "/proc/2/cgroup") == 0)
		got = (size_t)snprintf(text, size, "0::/system.slice/node.service\n");
	else if (file)
		got = fread(text, 1, size - 1, file);
	if (file)
		fclose(file);
	text[got] = '\0';
	return got;
}

int record_path(uint32_t job, const char *kind, char path[static PATH_MAX])
{
	return snprintf(path, PATH_MAX, "/sys/fs/cgroup/%u.%s", (unsigned)job, kind) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

int record_add(uint32_t job, const char *kind, const char *line)
{
	(void)job;
	return strcmp(kind, "groups") == 0 && strcmp(line, OURS) == 0 ? 0 : -EINVAL;
}

long record_read(uint32_t job, const char *kind, char text[static RECORD_MAX])
{
	(void)job;
	(void)kind;
	return snprintf(text, RECORD_MAX, OURS "\n");
}

bool record_has(const char *text, const char *line, size_t length)
{
	return strncmp(text, line, length) == 0 && (text[length] == '\n' || !text[length]);
}

/* ---- what the kernel does --------------------------------------------------------------------- */

static void put(const char *folder, const char *name, const char *text)
{
	char path[300];
	FILE *file;

	snprintf(path, sizeof path, "%s/%s", folder, name);
	file = fopen(path, "w");
	if (!file || fputs(text, file) < 0 || fclose(file))
		exit(99);
}

int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);

int __wrap_mkdir(const char *path, mode_t mode)
{
	int rc = __real_mkdir(path, mode);

	for (size_t i = 0; !rc && i < sizeof files / sizeof *files; i++)
		if (!missing || strcmp(files[i].name, missing) != 0)
			put(path, files[i].name, files[i].text);
	return rc;
}

int __wrap_open(const char *path, int flags, ...)
{
	size_t used = strlen(written);

	if (strncmp(path, OURS "/", strlen(OURS "/")) == 0 && (flags & O_ACCMODE) != O_RDONLY) {
		snprintf(written + used, sizeof written - used, "%s ", path + strlen(OURS "/"));
		/* What is written is the new value, whatever was there; a file that is not there is not made. */
		return flags & O_CREAT ? -1 : __real_open(path, flags | O_TRUNC);
	}
	return __real_open(path, flags, 0600);
}

static bool says(const char *name, const char *wanted)
{
	char path[300], text[100];

	snprintf(path, sizeof path, OURS "/%s", name);
	return record_text(path, text, sizeof text) == strlen(wanted) && strcmp(text, wanted) == 0;
}

static bool enter(void)
{
	written[0] = said[0] = '\0';
	return groups_enter(7);
}

static void leave(void)
{
	char path[300];

	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		snprintf(path, sizeof path, OURS "/%s", files[i].name);
		unlink(path);
	}
	rmdir(OURS);
}

/* ---- the cases --------------------------------------------------------------------------------- */

static void test_limits(void)
{
	const char *in;

	check(enter() && !said[0], "the agent's process goes to a group of the job's own, without a word");
	check(says("memory.max", "1073741824\n") && says("memory.high", "max\n") && says("memory.swap.max", "0\n"), "with the job's memory");
	in = strstr(written, "cgroup.procs");
	check(says("cpu.max", "200000 100000\n") && says("cpu.weight", "50\n") && says("cpuset.cpus", "0-1\n"), "its cores");
	check(says("pids.max", "64\n"), "and processes");
	check(says("cpuset.mems", "\n") && !strstr(written, "cpuset.mems"), "what the job has not chosen is left as it is");
	check(says("cgroup.procs", "0") && in && strcmp(in, "cgroup.procs ") == 0,
	      "nobody is in it before it has its limits");
	put(JOB, "memory.max", "max\n");
	check(enter() && says("memory.max", "1073741824\n") && strcmp(written, "cgroup.procs ") == 0, "who comes later gets no other ones");
	put(JOB, "memory.max", "1073741824\n");
	leave();
}

static void test_missing(void)
{
	/* A scope whose cgroup.subtree_control does not have all controllers. */
	unlink(JOB "/pids.max");
	missing = "pids.max";
	check(enter() && !said[0] && says("memory.max", "1073741824\n"), "a controller that there is not is left out");
	leave();
	missing = "memory.max";
	check(enter() && strstr(said, "memory.max cannot be set in " OURS) && says("pids.max", "max\n") && says("cgroup.procs", "0"),
	      "a limit that cannot be set is a line, and the others are");
	leave();
	missing = NULL;
}

static void test_end(void)
{
	pid_t child;
	bool used;

	(void)enter();
	used = groups_used(7);
	put(OURS, "cgroup.procs", "");
	check(used, "a group with a process in it is used");
	written[0] = '\0';
	put(OURS, "cgroup.procs", "1\n");
	/* Nobody dies of it here, and nothing is waited for: the file of the kernel's is what is looked at. */
	put(OURS, "cgroup.kill", "");
	child = fork();
	if (child == 0) {
		groups_kill(7);
		_exit(0);
	}
	for (int tries = 0; tries < 3000 && !says("cgroup.kill", "1"); tries++)
		usleep(1000);
	check(says("cgroup.kill", "1"), "its end is asked of the kernel, for all at once");
	leave();
	(void)waitpid(child, NULL, 0);
}

int main(void)
{
	if (geteuid() != 0 || unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("tmpfs", "/sys/fs/cgroup", "tmpfs", 0, "mode=755")) {
		puts("1..0 # SKIP no mount namespace of its own");
		return 77;
	}
	if (__real_mkdir("/sys/fs/cgroup/system.slice", 0755) || __real_mkdir(SCOPE, 0755) || __wrap_mkdir(JOB, 0755))
		return 99;
	put(JOB, "memory.max", "1073741824\n");
	put(JOB, "memory.swap.max", "0\n");
	put(JOB, "cpu.max", "200000 100000\n");
	put(JOB, "cpu.weight", "50\n");
	put(JOB, "cpuset.cpus", "0-1\n");
	put(JOB, "pids.max", "64\n");
	test_limits();
	test_missing();
	test_end();
	return tap_done();
}
