/* SPDX-License-Identifier: Apache-2.0 */
/* Starting the agent where the end of the step does not reach it: in control groups and a session of its own. */
#include "config.h"

#include "tools/spank/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/reach/reach.h"
#include "tools/spank/groups.h"
#include "tools/spank/job_record.h"
#include "tools/spank/options.h"
#include "tools/spank/shared.h"
#include "tools/spank/task.h"
#include "tools/spank/user.h"
#include "tools/spank/user_settings.h"

enum { START_MS = 10000, CONNECT_MS = 5000, SAID = 99 /* what is wrong has been said */, LINE_MAX_BYTES = 2 * PATH_MAX };

struct start {
	struct place place;
	char folder[PATH_MAX], program[PATH_MAX];
	char shared[PATH_MAX]; /* where root makes folders of the memory tier for users; "": they do themselves */
	char **environment; /* of the job, less what loads code of others; the agent's own copy */
	struct user user;
	uint32_t job;
};

/* What the loader would take into a program that is not the job's. */
static bool is_loaders(const char *variable)
{
	return strncmp(variable, "LD_", 3) == 0 || strncmp(variable, "GLIBC_TUNABLES=", 15) == 0;
}

static char **environment_of(spank_t spank)
{
	char **all = NULL, **kept;
	size_t count = 0;

	if (spank_get_item(spank, S_JOB_ENV, &all) != ESPANK_SUCCESS || !all)
		return NULL;
	while (all[count])
		count++;
	kept = calloc(count + 1, sizeof *kept);
	count = 0;
	for (char **e = all; kept && *e; e++)
		if (!is_loaders(*e))
			kept[count++] = *e;
	return kept;
}

/* The agent is this installation's, or plugstack.conf's: which one root takes out of the step is not the user's to say. */
static int find_program(char program[static PATH_MAX])
{
	const char *named = options_agent();
	char library[PATH_MAX];
	int used;

	if (named)
		used = snprintf(program, PATH_MAX, "%s", named);
	else if (task_library(library))
		used = snprintf(program, PATH_MAX, "%.*s/../bin/transpckptd", (int)(strrchr(library, '/') - library), library);
	else
		return -ENOENT;
	return used > 0 && used < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int prepare(spank_t spank, struct start *start)
{
	int used, rc = user_of(spank, &start->user);

	if (!rc && spank_get_item(spank, S_JOB_ID, &start->job) != ESPANK_SUCCESS)
		rc = -EINVAL;
	if (!rc)
		rc = place_find(spank, &start->user, &start->place);
	if (rc)
		return rc;
	if (start->place.disabled)
		return -ECANCELED;
	if (!start->place.named)
		spank_setenv(spank, "TRANSPCKPT_JOB", start->place.job, 1);
	if (options_shm_folder(start->user.uid, start->shared) && strcmp(start->shared, start->place.tier) == 0)
		*strrchr(start->shared, '/') = '\0';
	else
		start->shared[0] = '\0';
	used = snprintf(start->folder, sizeof start->folder, "%s/%s", start->place.tier, start->place.job);
	if (used < 0 || (size_t)used >= sizeof start->folder - 16)
		return -ENAMETOOLONG;
	/* As it is with the job's name in it. */
	start->environment = environment_of(spank);
	return start->environment ? find_program(start->program) : -ENOMEM;
}

/* ---- the agent ---------------------------------------------------------------------------- */

static void note_record(const struct start *start)
{
	char line[LINE_MAX_BYTES];
	int rc;

	snprintf(line, sizeof line, "%u %u %s", (unsigned)start->user.uid, (unsigned)start->user.gid, start->folder);
	rc = record_add(start->job, "job", line);
	if (rc)
		slurm_error("transpckpt: job %u: its record in %s cannot be written (%s): the agent is not told of the job's end", (unsigned)start->job,
			    options_state_folder(), strerror(-rc));
}

/* The child: root again for what only root can do, then the user for good, then the agent. The threads of the step
 * are not in it. */
static void become_agent(const struct start *start)
{
	char *argv[] = {(char *)start->program, (char *)"--job", (char *)start->place.job, NULL};
	sigset_t none;
	int null;

	if (seteuid(0) || setegid(0))
		_exit(1);
	if (start->shared[0] && shared_make(start->shared, start->user.uid, start->user.gid))
		_exit(SAID);
	note_record(start);
	if (!groups_enter(start->job))
		slurm_error("transpckpt: the agent cannot leave the step's cgroup, and ends with it: slurmd has to be started with "
			    "this plugin in plugstack.conf");
	/* The step's own may be the last to be killed for memory. */
	null = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (null >= 0) {
		(void)!write(null, "0", 1);
		close(null);
	}
	if (user_become(&start->user))
		_exit(1);
	null = open("/dev/null", O_RDWR);
	for (int fd = 0; null >= 0 && fd < 3; fd++)
		dup2(null, fd);
	syscall(SYS_close_range, 3, ~0u, 0);
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
	uint64_t until = user_now_ms() + START_MS;
	int status = -1;
	pid_t pid = fork();

	if (pid == 0)
		become_agent(start);
	while (pid > 0) {
		pid_t done = waitpid(pid, &status, WNOHANG);

		if (done == pid || (done < 0 && errno != EINTR))
			break;
		if (user_now_ms() > until) {
			slurm_error("transpckpt: the agent %s is not there after %d s", start->program, START_MS / 1000);
			user_end(pid);
			return -1;
		}
		tpck_reach_pause(5);
	}
	if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == SAID)
		return -1;
	slurm_error("transpckpt: the agent %s cannot be started: '%s --job %s --foreground' says why", start->program, start->program,
		    start->place.job);
	return -1;
}

/* As the user, whose path the socket's is. */
static int connect_to(void *argument, void *answer)
{
	(void)answer;
	return tpck_reach_connect(argument);
}

/* A socket that the user's own process listens at, or -EPROTO: nothing is read from it. */
static int look_at(int fd, uid_t uid, pid_t *pid)
{
	struct ucred peer;
	socklen_t size = sizeof peer;
	int domain, rc = 0;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) || peer.uid != uid)
		rc = -EPROTO;
	size = sizeof domain;
	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) || domain != AF_UNIX)
		rc = -EPROTO;
	*pid = rc ? 0 : peer.pid;
	return rc;
}

/* An agent that an earlier job of that name has left is in that job's group, and would end with it. */
static void take_over(const struct start *start, pid_t agent)
{
	pid_t child = fork();
	uint64_t until = user_now_ms() + CONNECT_MS;

	if (child == 0) {
		if (seteuid(0) == 0 && setegid(0) == 0)
			groups_take_over(start->job, agent);
		_exit(0);
	}
	while (child > 0 && waitpid(child, NULL, WNOHANG) == 0 && user_now_ms() < until)
		tpck_reach_pause(1);
}

void agent_hold(spank_t spank)
{
	char socket[PATH_MAX + 16];
	struct start start = {0};
	pid_t agent;
	int rc, fd;

	rc = prepare(spank, &start);
	if (rc && rc != -ECANCELED)
		slurm_error("transpckpt: no agent is started (%s)", strerror(-rc));
	if (!rc && start_agent(&start) == 0) {
		/* The agent that serves the step's tasks is the one that this connection keeps until slurmstepd ends. */
		snprintf(socket, sizeof socket, "%s/agent.sock", start.folder);
		fd = user_run(&start.user, connect_to, socket, NULL, 0, CONNECT_MS);
		rc = fd < 0 ? fd : look_at(fd, start.user.uid, &agent);
		if (rc)
			slurm_error("transpckpt: the agent does not answer at %s: %s", socket, strerror(-rc));
		else
			take_over(&start, agent);
	}
	free(start.environment);
}
