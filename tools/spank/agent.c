/* SPDX-License-Identifier: Apache-2.0 */
/* Starting the agent where the end of the step does not reach it: slurmd's cgroups, a session of its own. */
#include "config.h"

#include "tools/spank/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/digest.h"
#include "runtime/base/door.h"
#include "runtime/base/log.h"
#include "runtime/base/settings.h"
#include "runtime/wire/reach.h"
#include "tools/spank/options.h"
#include "tools/spank/shared.h"
#include "tools/spank/task.h"

enum { START_MS = 10000, SAID = 99 /* what is wrong has been said */, LINE_MAX_BYTES = 2 * PATH_MAX };

/* ---- state folder ------------------------------------------------------------------------- */

void agent_note_slurmd(void)
{
	char path[PATH_MAX];
	int fd;

	if (mkdir(options_state_folder(), 0755) && errno != EEXIST) {
		slurm_error("transpckpt: cannot make %s: %m; agents stay in the cgroups of their steps", options_state_folder());
		return;
	}
	snprintf(path, sizeof path, "%s/slurmd.pid", options_state_folder());
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0 || dprintf(fd, "%d\n", (int)getpid()) < 0)
		slurm_error("transpckpt: cannot write %s: %m; agents stay in the cgroups of their steps", path);
	if (fd >= 0)
		close(fd);
}

int agent_record_path(spank_t spank, char path[static PATH_MAX])
{
	uint32_t job;
	int used;

	if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS)
		return -EINVAL;
	used = snprintf(path, PATH_MAX, "%s/%u.job", options_state_folder(), (unsigned)job);
	return used > 0 && used < PATH_MAX ? 0 : -ENAMETOOLONG;
}

/* ---- cgroups ------------------------------------------------------------------------------ */

/* Where one hierarchy of a line of /proc/PID/cgroup ("ID:CONTROLLERS:PATH") is mounted, by custom. */
static bool procs_file(const char *line, char *path, size_t size)
{
	const char *controllers = strchr(line, ':'), *at = controllers ? strchr(controllers + 1, ':') : NULL;
	int length = at ? (int)(at - controllers) - 1 : 0, used;

	if (!at)
		return false;
	controllers++;
	if (length == 0)
		used = snprintf(path, size, "/sys/fs/cgroup%s%s/cgroup.procs",
				access("/sys/fs/cgroup/unified", F_OK) == 0 ? "/unified" : "", at + 1);
	else
		used = snprintf(path, size, "/sys/fs/cgroup/%.*s%s/cgroup.procs",
				length - (strncmp(controllers, "name=", 5) == 0 ? 5 : 0),
				controllers + (strncmp(controllers, "name=", 5) == 0 ? 5 : 0), at + 1);
	return used > 0 && (size_t)used < size;
}

static size_t read_text(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t used = 0;
	ssize_t got;

	while (fd >= 0 && used + 1 < size && (got = read(fd, text + used, size - 1 - used)) > 0)
		used += (size_t)got;
	if (fd >= 0)
		close(fd);
	text[used] = '\0';
	return used;
}

static bool has_line(const char *text, const char *line, size_t length)
{
	for (; *text; text += strcspn(text, "\n") + (text[strcspn(text, "\n")] == '\n'))
		if (strcspn(text, "\n") == length && memcmp(text, line, length) == 0)
			return true;
	return false;
}

/* Goes to slurmd's cgroups wherever they are not this process's. False: a step's cgroup may still hold it. */
static bool leave_cgroups(void)
{
	static char path[PATH_MAX], slurmd[8192], own[8192];
	bool gone = true;
	long pid;

	snprintf(path, sizeof path, "%s/slurmd.pid", options_state_folder());
	if (!read_text(path, slurmd, sizeof slurmd) || (pid = strtol(slurmd, NULL, 10)) <= 0)
		return false;
	snprintf(path, sizeof path, "/proc/%ld/cgroup", pid);
	if (!read_text(path, slurmd, sizeof slurmd) || !read_text("/proc/self/cgroup", own, sizeof own))
		return false;
	for (char *line = slurmd; *line; ) {
		size_t length = strcspn(line, "\n");
		char *next = line + length + (line[length] == '\n');
		int fd;

		if (!has_line(own, line, length)) {
			line[length] = '\0';
			fd = procs_file(line, path, sizeof path) ? open(path, O_WRONLY | O_CLOEXEC) : -1;
			gone = fd >= 0 && write(fd, "0", 1) == 1 && gone;
			if (fd >= 0)
				close(fd);
		}
		line = next;
	}
	return gone;
}

/* ---- the job ------------------------------------------------------------------------------ */

struct start {
	char job[TPCK_SETTINGS_JOB_MAX + 64], folder[PATH_MAX], program[PATH_MAX], record[PATH_MAX];
	char shared[PATH_MAX]; /* where root makes folders of the memory tier for users; "": they do themselves */
	char **environment; /* of the job */
	uid_t uid;
	gid_t gid;
};

/* Name and folder tell one job from another, as program and folder do for a program that is started by hand: a job
 * that is submitted again is the same. */
static void name_job(spank_t spank, struct start *start)
{
	char name[128] = "", task[32] = "", both[PATH_MAX + 256] = "", folder[PATH_MAX] = "";
	int length;

	if (spank_getenv(spank, "SLURM_JOB_NAME", name, sizeof name) != ESPANK_SUCCESS && !name[0])
		strcpy(name, "job");
	if (spank_getenv(spank, "SLURM_ARRAY_TASK_ID", task + 1, sizeof task - 1) == ESPANK_SUCCESS)
		task[0] = '-';
	if (!getcwd(folder, sizeof folder))
		folder[0] = '\0';
	length = snprintf(both, sizeof both, "%s\n%s", name, folder);
	snprintf(start->job, sizeof start->job, "%.60s-%08x%s", name, (unsigned)tpck_digest64(both, (size_t)length, 0),
		 task[0] ? task : "");
	tpck_settings_job_clean(start->job);
	spank_setenv(spank, "TRANSPCKPT_JOB", start->job, 1);
}

int agent_settings(spank_t spank, struct tpck_settings *settings)
{
	char **environment = NULL, **kept;
	size_t count = 0;

	if (spank_get_item(spank, S_JOB_ENV, &environment) != ESPANK_SUCCESS || !environment)
		return -EINVAL;
	while (environment[count])
		count++;
	kept = calloc(count + 1, sizeof *kept);
	if (!kept)
		return -ENOMEM;
	/* Not its log: this process has one. */
	count = 0;
	for (char **e = environment; *e; e++)
		if (strncmp(*e, "TRANSPCKPT_", 11) == 0 && strncmp(*e, "TRANSPCKPT_LOG=", 15) != 0)
			kept[count++] = *e;
	tpck_log_hold(1);
	(void)tpck_settings_read(settings, kept);
	free(kept);
	return 0;
}

void agent_tier(spank_t spank, const struct tpck_settings *settings, uid_t uid, char path[static PATH_MAX])
{
	char state[PATH_MAX] = "", home[PATH_MAX] = "", folder[TPCK_SETTING_TEXT_MAX];

	if (settings->shm[0]) {
		snprintf(path, PATH_MAX, "%s", settings->shm);
		return;
	}
	if (spank_getenv(spank, "XDG_STATE_HOME", state, sizeof state) != ESPANK_SUCCESS)
		state[0] = '\0';
	if (spank_getenv(spank, "HOME", home, sizeof home) != ESPANK_SUCCESS)
		home[0] = '\0';
	tpck_settings_state_of(state, home, uid, folder, sizeof folder);
	tpck_door_memory(uid, folder, path, PATH_MAX);
}

/* Of those. */
static int prepare(spank_t spank, struct start *start)
{
	char library[PATH_MAX], tier[PATH_MAX];
	struct tpck_settings settings;
	int used, rc = agent_settings(spank, &settings);

	if (rc)
		return rc;
	if (settings.disable)
		return -ECANCELED;
	if (settings.job[0]) {
		snprintf(start->job, sizeof start->job, "%.*s", TPCK_SETTINGS_JOB_MAX, settings.job);
		tpck_settings_job_clean(start->job);
	} else {
		name_job(spank, start);
	}
	if (options_shm_folder(start->uid, start->shared) && strcmp(start->shared, settings.shm) == 0)
		*strrchr(start->shared, '/') = '\0';
	else
		start->shared[0] = '\0';
	agent_tier(spank, &settings, start->uid, tier);
	used = snprintf(start->folder, sizeof start->folder, "%s/%s", tier, start->job);
	if (used < 0 || (size_t)used >= sizeof start->folder - 16)
		return -ENAMETOOLONG;
	if (strchr(start->folder, '\n'))
		return -EINVAL; /* it becomes a line of the record, which root reads */
	if (settings.agent[0]) {
		strcpy(start->program, settings.agent);
	} else if (task_library(library)) {
		used = snprintf(start->program, sizeof start->program, "%.*s/../bin/transpckptd",
				(int)(strrchr(library, '/') - library), library);
		if (used < 0 || (size_t)used >= sizeof start->program)
			return -ENAMETOOLONG;
	} else {
		return -ENOENT;
	}
	/* As it is with the job's name in it. */
	if (spank_get_item(spank, S_JOB_ENV, &start->environment) != ESPANK_SUCCESS)
		return -EINVAL;
	return agent_record_path(spank, start->record);
}

/* ---- the agent ---------------------------------------------------------------------------- */

static void note_record(const struct start *start)
{
	char line[LINE_MAX_BYTES];
	int length = snprintf(line, sizeof line, "%u %u %s\n", (unsigned)start->uid, (unsigned)start->gid, start->folder);
	int fd = open(start->record, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0 || write(fd, line, (size_t)length) != length)
		slurm_error("transpckpt: cannot write %s: %m; the agent is not told of the job's end", start->record);
	if (fd >= 0)
		close(fd);
}

/* The child: root again for what only root can do, then the user for good, then the agent. The threads of the step
 * are not in it. */
static void become_agent(const struct start *start)
{
	char *argv[] = {(char *)start->program, (char *)"--job", (char *)start->job, NULL};
	sigset_t none;
	int null;

	if (seteuid(0) || setegid(0))
		_exit(1);
	if (start->shared[0] && shared_make(start->shared, start->uid, start->gid))
		_exit(SAID);
	note_record(start);
	if (!leave_cgroups())
		slurm_error("transpckpt: the agent cannot leave the step's cgroup, and ends with it: slurmd has to be started with "
			    "this plugin in plugstack.conf");
	/* The step's own may be the last to be killed for memory. */
	null = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (null >= 0) {
		(void)!write(null, "0", 1);
		close(null);
	}
	if (setresgid(start->gid, start->gid, start->gid) || setresuid(start->uid, start->uid, start->uid))
		_exit(1);
	null = open("/dev/null", O_RDWR);
	for (int fd = 0; null >= 0 && fd < 3; fd++)
		dup2(null, fd);
	for (int number = 1; number < NSIG; number++)
		signal(number, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setsid();
	execve(start->program, argv, start->environment);
	_exit(127);
}

/* 0, or -1 behind a line. The agent goes into the background once it listens. */
static int start_agent(const struct start *start)
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0)
		become_agent(start);
	for (int waited = 0; pid > 0; waited += 5) {
		pid_t done = waitpid(pid, &status, WNOHANG);

		if (done == pid || (done < 0 && errno != EINTR))
			break;
		if (waited > START_MS) {
			slurm_error("transpckpt: the agent %s is not there after %d s", start->program, START_MS / 1000);
			return -1;
		}
		tpck_reach_pause(5);
	}
	if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == SAID)
		return -1;
	slurm_error("transpckpt: the agent %s cannot be started: '%s --job %s --foreground' says why", start->program, start->program,
		    start->job);
	return -1;
}

void agent_hold(spank_t spank)
{
	char socket[PATH_MAX + 16];
	struct start start = {0};
	int rc, fd;

	/* The agent that serves the step's tasks is the one that this connection keeps until slurmstepd ends. */
	start.uid = geteuid();
	start.gid = getegid();
	rc = prepare(spank, &start);
	if (rc == -ECANCELED)
		return;
	if (rc) {
		slurm_error("transpckpt: no agent is started (%s)", strerror(-rc));
		return;
	}
	if (start_agent(&start))
		return;
	snprintf(socket, sizeof socket, "%s/agent.sock", start.folder);
	fd = tpck_reach_connect(socket);
	if (fd < 0)
		slurm_error("transpckpt: the agent does not answer at %s: %s", socket, strerror(-fd));
}
