/* SPDX-License-Identifier: Apache-2.0 */
/* A job that does not come back leaves no memory tier; what is not published yet, its agent finishes first. */
#include "config.h"

#include "tools/spank/epilog.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <slurm/slurm.h>

#include "runtime/reach/reach.h"
#include "tools/spank/job_record.h"
#include "tools/spank/keeper.h"
#include "tools/spank/line.h"
#include "tools/spank/user.h"

enum { TELL_MS = 2500, TELL_ALL_MS = 6000 };

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
static int tell_agent(void *argument, void *answer)
{
	char socket_path[PATH_MAX + 16];
	struct ucred peer;
	socklen_t size = sizeof peer;
	int fd;

	(void)answer;
	snprintf(socket_path, sizeof socket_path, "%s/agent.sock", (const char *)argument);
	fd = tpck_reach_connect(socket_path);
	if (fd == -ENOENT || fd == -ECONNREFUSED)
		return 0;
	if (fd < 0)
		return fd;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) || peer.pid <= 1 || kill(peer.pid, SIGUSR1))
		return -errno;
	return 0;
}

/* All of them together take so long: a job may have had very many. */
static void tell_agents(uint32_t job, const char *record)
{
	uint64_t until = user_now_ms() + TELL_ALL_MS, now;
	char *text = strdup(record), *rest = text;
	struct record_line line;

	while (text && record_line_parse(&rest, &line)) {
		struct user user = {line.uid, line.gid, NULL, 0};
		int rc = -ETIMEDOUT;

		now = user_now_ms();
		if (now < until)
			rc = user_run(&user, tell_agent, line.folder, NULL, 0, (unsigned)(until - now < TELL_MS ? until - now : TELL_MS));
		if (rc)
			slurm_error("transpckpt: job %u: the agent of %s cannot be told of its end (%s)", (unsigned)job, line.folder, strerror(-rc));
		else
			slurm_info("transpckpt: job %u has ended: %s goes once it is all durable", (unsigned)job, line.folder);
		if (now >= until) {
			slurm_error("transpckpt: job %u: other agents are not told either, since those before took %d s", (unsigned)job, TELL_ALL_MS / 1000);
			break;
		}
	}
	free(text);
}

void epilog_run(spank_t spank)
{
	char *record;
	uint32_t job;

	if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS)
		return;
	record = malloc(RECORD_MAX);
	/* Without one it has not asked for snapshots here. */
	if (record && record_read(job, "job", record) >= 0) {
		if (comes_back(job))
			slurm_info("transpckpt: job %u comes back: its memory tier stays", (unsigned)job);
		else
			tell_agents(job, record);
		record_remove(job, "job");
		keeper_start(job, record);
	}
	free(record);
}
