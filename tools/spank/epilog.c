/* SPDX-License-Identifier: Apache-2.0 */
/* A job that does not come back leaves no memory tier; what is not published yet, its agent finishes first. */
#include "config.h"

#include "tools/spank/epilog.h"

#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/slurm.h>

#include "runtime/wire/reach.h"
#include "tools/spank/agent.h"

enum { TELL_SEC = 5 };

/* A requeued job is pending again while its nodes are still being cleaned. SLURM_RESTART_COUNT only tells of the times
 * before. Who cannot be asked is taken to come back: the agent's TRANSPCKPT_LINGER_SEC ends it all the same. */
static bool comes_back(uint32_t job)
{
	job_info_msg_t *found = NULL;
	bool back = false;

	if (slurm_load_job(&found, job, 0) != SLURM_SUCCESS) {
		slurm_error("transpckpt: job %u: slurmctld does not say whether it is requeued; its memory tier stays as long as its "
			    "agent lingers", (unsigned)job);
		return true;
	}
	for (uint32_t i = 0; i < found->record_count; i++) {
		uint32_t state = found->job_array[i].job_state;

		back = back || (state & JOB_STATE_BASE) == JOB_PENDING ||
		       (state & (JOB_REQUEUE | JOB_REQUEUE_HOLD | JOB_SPECIAL_EXIT | JOB_REQUEUE_FED));
	}
	slurm_free_job_info_msg(found);
	return back;
}

/* As the user, so that the path and whoever listens there are the user's own. */
static void tell_agent(uid_t uid, gid_t gid, const char *folder)
{
	char socket_path[PATH_MAX + 16];
	struct ucred peer;
	socklen_t size = sizeof peer;
	int fd;

	/* The user's socket may let one wait. */
	alarm(TELL_SEC);
	if (setgroups(0, NULL) || setresgid(gid, gid, gid) || setresuid(uid, uid, uid))
		_exit(1);
	snprintf(socket_path, sizeof socket_path, "%s/agent.sock", folder);
	fd = tpck_reach_connect(socket_path);
	if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) || peer.pid <= 1)
		_exit(fd == -ENOENT || fd == -ECONNREFUSED ? 0 : 1);
	_exit(kill(peer.pid, SIGUSR1) ? 1 : 0);
}

void epilog_run(spank_t spank)
{
	char path[PATH_MAX], *line = NULL;
	size_t size = 0;
	uint32_t job;
	FILE *record;

	if (agent_record_path(spank, path) || spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS)
		return;
	record = fopen(path, "re");
	if (!record)
		return; /* it has not asked for snapshots here */
	if (comes_back(job)) {
		slurm_info("transpckpt: job %u comes back: its memory tier stays", (unsigned)job);
		fclose(record);
		unlink(path);
		return;
	}
	while (getline(&line, &size, record) > 0) {
		char folder[PATH_MAX];
		unsigned uid, gid;
		int status = 0;
		pid_t pid;

		if (sscanf(line, "%u %u %4095[^\n]", &uid, &gid, folder) != 3)
			continue;
		pid = fork();
		if (pid == 0)
			tell_agent((uid_t)uid, (gid_t)gid, folder);
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
			slurm_error("transpckpt: job %u: the agent of %s cannot be told of its end", (unsigned)job, folder);
		else
			slurm_info("transpckpt: job %u has ended: %s goes once it is all durable", (unsigned)job, folder);
	}
	free(line);
	fclose(record);
	unlink(path);
}
