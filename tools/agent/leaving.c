/* SPDX-License-Identifier: Apache-2.0 */
/* When the agent's work is done, and who tells it to end. */
#include "config.h"

#include "tools/agent/leaving.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "agent/copies/copies.h"
#include "agent/durable/flush.h"
#include "agent/files/publisher.h"
#include "agent/peers/peers.h"
#include "agent/salvage/salvage.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"

/* An agent that nobody has spoken to, or whose last program ended well, waits this long. */
#define FIRST_WAIT_NS 30000000000ull
#define IDLE_WAIT_NS 2000000000ull
/* How soon one that would leave, but not alone, looks again. */
#define LEAVE_AGAIN_NS 200000000ull
/* How often the memory tier is looked for. */
#define LOOK_NS 10000000000ull
#define FILES_LOOK_NS 500000000ull

static struct {
	struct watch signals;
	uint64_t idle_since_ns, look_ns;
	bool signalled, stop_now; /* by a first one, and a second */
	bool through;             /* stopping: it would leave, but may wait for the others of mpirun's */
} leaving;

/* ---- being told --------------------------------------------------------------------------- */

static void signals_ready(struct agent *agent, struct watch *watch)
{
	struct signalfd_siginfo info;

	if (read(watch->fd, &info, sizeof info) != sizeof info)
		return;
	if (info.ssi_signo == SIGUSR1) {
		tpck_log_info("told by process %u that no program comes back; what is durable does not stay in memory", info.ssi_pid);
		agent->nobody_returns = true;
		return;
	}
	/* mpirun passes on what it is told itself, or tells all since one is gone: who has told before does not mean it twice. */
	if (leaving.signalled && !(agent->launched && info.ssi_pid == (uint32_t)getppid()))
		leaving.stop_now = true;
	else if (!leaving.signalled)
		tpck_log_info("told to end by process %u; the newest snapshots are made durable first", info.ssi_pid);
	agent->stopping = leaving.signalled = true;
}

/* Memory is all that the next agents need: as mpirun without ULFM does it, nobody waits for disks, since a start may wait for mpirun, and no rank
 * has snapshots meanwhile. */
static void gather(struct agent *agent)
{
	agent->stopping = leaving.stop_now = agent->gathering = true;
}

/* With ULFM: the agent of this host has died, and its next one, which mpirun has not started, works alone. */
static void works_alone(struct agent *agent, const char *host)
{
	if (agent->stopping)
		return;
	tpck_log_info("the agent of %s has died, and the next one there works alone: all others end, so that mpirun is called again; what is in memory stays", host);
	gather(agent);
}

/* Another agent of the same mpirun's is told to end, and so are all; with ULFM, where each ends for itself, it gathers them. */
static void another_ends(struct agent *agent, const char *host)
{
	if (agent->stopping)
		return;
	if (!agent->together) {
		tpck_log_info("the agent of %s ends, so that mpirun is called again, and this one with it; what is in memory stays", host);
		gather(agent);
		return;
	}
	tpck_log_info("the agent of %s is told to end, and mpirun would end this one with it; the newest snapshots are made durable first", host);
	agent->stopping = true;
}

const struct peers_hearer leaving_hears = {.ending = another_ends, .alone = works_alone};

/* ---- when --------------------------------------------------------------------------------- */

static bool all_durable(const struct agent *agent)
{
	for (const struct launch *launch = agent->launches; launch; launch = launch->next)
		if (!launch_settled(launch) && !(launch->apart && launch_apart->is_broken(launch)))
			return false;
	return true;
}

uint64_t agent_linger_ns(const struct agent *agent)
{
	return agent->nobody_returns ? 0 : (uint64_t)(home.settings.linger_sec * 1e9);
}

/* When the agent has nothing more to wait for; UINT64_MAX: it has. */
static uint64_t leave_at(const struct agent *agent)
{
	uint64_t first = home.settings.peers.count ? agent_linger_ns(agent) : FIRST_WAIT_NS, linger;
	uint64_t idle = leaving.idle_since_ns + (agent->served || agent->nobody_returns ? IDLE_WAIT_NS : first);

	if (agent->clients || loop.jobs || agent->lives || files_owed(agent->stopping))
		return UINT64_MAX;
	/* A program that died may come back, and read what it has saved. */
	linger = agent->files_died_ns && files_kept() ? agent->files_died_ns + agent_linger_ns(agent) : 0;
	if (copies_leave_at() > linger)
		linger = copies_leave_at();
	return linger > idle ? linger : idle;
}

/* The store does not work: what was to become durable first is here when the next agent begins. */
static void say_what_stays(struct agent *agent)
{
	uint64_t step;

	if (!flush_complaint()[0])
		return;
	salvage_say_kept(agent);
	for (struct launch *launch = agent->launches; launch; launch = launch->next)
		if (!launch_settled(launch) && launch_newest(launch, &step))
			tpck_log_warn("step %" PRIu64 " of generation %" PRIu64 " is not durable, and stays in memory: %s", step,
				      launch->generation, flush_complaint());
}

static void consider(struct agent *agent)
{
	uint64_t now = tpck_clock_monotonic_ns();

	/* Somebody removed the memory tier: there is nothing left to keep, and nobody can reach us. */
	if (now >= leaving.look_ns) {
		leaving.look_ns = now + LOOK_NS;
		if (access(home.socket_path, F_OK) != 0 && errno == ENOENT) {
			tpck_log_warn("%s was removed; ending", home.folder);
			agent->stopping = true;
			loop_end();
			return;
		}
	}
	/* Once it is: of what comes later, as from programs that run, there is no end. */
	if (agent->stopping && !loop.jobs && (!files_owed(agent->stopping) || files_failing()) && !copies_hold_lost() &&
	    ((all_durable(agent) && !salvage_owes()) || now < flush_retry_ns()))
		leaving.through = true;
	if (leaving.stop_now || (leaving.through && (!agent->together || peers_may_leave(true)))) {
		say_what_stays(agent);
		loop_end();
		return;
	}
	if (agent->clients || loop.jobs || agent->lives || files_owed(agent->stopping))
		leaving.idle_since_ns = now;
	if (!leaving.through && peers_may_leave(leave_at(agent) <= now))
		loop_end();
}

static uint64_t deadline(const struct agent *agent)
{
	uint64_t leave = leave_at(agent), now = tpck_clock_monotonic_ns();

	/* The agent would leave, but not alone. */
	if (leave <= now || leaving.through)
		leave = now + LEAVE_AGAIN_NS;
	if (leaving.look_ns < leave)
		leave = leaving.look_ns;
	/* The files' thread tells nobody when it is done. */
	if ((files_owed(agent->stopping) || copies_hold_files()) && leave > now + FILES_LOOK_NS)
		leave = now + FILES_LOOK_NS;
	return leave;
}

/* Before any thread is made, which would take signals otherwise. */
static int begin(struct agent *agent, struct tpck_error *err)
{
	(void)agent;
	sigset_t signals;

	(void)err;
	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	/* Who opens a file that we have a lease of breaks it: the kernel lets us know, and a lease is given back at once anyway. */
	signal(SIGIO, SIG_IGN);
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGUSR1);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	leaving.signals = (struct watch){signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK), signals_ready};
	leaving.idle_since_ns = tpck_clock_monotonic_ns();
	return leaving.signals.fd < 0 ? -errno : loop_watch(&leaving.signals);
}

const struct loop_part leaving_loop = {.begin = begin, .consider = consider, .deadline = deadline};
