/* SPDX-License-Identifier: Apache-2.0 */
/* The event loop, and when the agent's work is done. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/store/file.h"
#include "tools/agent/accord/accord.h"
#include "tools/agent/agent.h"
#include "tools/agent/history.h"
#include "tools/agent/peers/peers.h"
#include "tools/agent/salvage/salvage.h"
#include "tools/agent/stash.h"
#include "tools/agent/watermark.h"

/* An agent that nobody has spoken to, or whose last program ended well, waits this long. */
#define FIRST_WAIT_NS 30000000000ull
#define IDLE_WAIT_NS 2000000000ull
/* How soon one that would leave, but not alone, looks again. */
#define LEAVE_AGAIN_NS 200000000ull
/* How often the memory tier is looked for. */
#define LOOK_NS 10000000000ull
#define FILES_LOOK_NS 500000000ull

double agent_backoff(double last)
{
	const double first = 1, longest = 60;

	return last <= 0 ? first : last * 2 < longest ? last * 2 : longest;
}

int agent_watch(struct agent *agent, struct watch *watch)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = watch};

	return epoll_ctl(agent->epoll, EPOLL_CTL_ADD, watch->fd, &event) ? -errno : 0;
}

void agent_unwatch(struct agent *agent, struct watch *watch)
{
	epoll_ctl(agent->epoll, EPOLL_CTL_DEL, watch->fd, NULL);
}

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
	if (agent->signalled && !(agent->launched && info.ssi_pid == (uint32_t)getppid()))
		agent->stop_now = true;
	else if (!agent->signalled)
		tpck_log_info("told to end by process %u; the newest snapshots are made durable first", info.ssi_pid);
	agent->stopping = agent->signalled = true;
}

/* Memory is all that the next agents need: as mpirun without ULFM does it, nobody waits for disks, since a start may wait for mpirun, and no rank
 * has snapshots meanwhile. */
static void gather(struct agent *agent)
{
	agent->stopping = agent->stop_now = agent->gathering = true;
}

void agent_gather(struct agent *agent, const char *host)
{
	if (agent->stopping)
		return;
	tpck_log_info("the agent of %s has died, and the next one there works alone: all others end, so that mpirun is called again; what is in memory stays", host);
	gather(agent);
}

void agent_told_to_end(struct agent *agent, const char *host)
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

static void outbox_ready(struct agent *agent, struct watch *watch)
{
	(void)watch;
	outbox_deliver(&agent->outbox, agent);
}

/* ---- what follows from a change ----------------------------------------------------------- */

/* What is owed to a process that ends: with status 0 what is being written, else the newest. */
static void answer_endings(struct agent *agent)
{
	for (struct live *live = agent->lives; live; live = live->next) {
		bool checking = false;

		for (unsigned i = 0; i < live->image_count; i++)
			checking = checking || live->images[i].checking;
		if (!live->ending || checking || live->launch->flushing || !live->client)
			continue;
		/* A store that does not work is not waited for. */
		if (live->status != 0 && !live->launch->apart && !launch_settled(live->launch) && !agent->flush_said[0])
			continue;
		live->ending = false;
		client_send(live->client, TPCK_MSG_BYE, NULL, 0);
	}
}

static bool all_durable(const struct agent *agent)
{
	for (const struct launch *launch = agent->launches; launch; launch = launch->next)
		if (!launch_settled(launch) && !(launch->apart && accord_is_broken(launch)))
			return false;
	return true;
}

static uint64_t linger_ns(const struct agent *agent)
{
	return agent->nobody_returns ? 0 : (uint64_t)(agent->settings.linger_sec * 1e9);
}

/* The ranks on other nodes are lost, and what is here is no whole step without them, unless somebody has copies (salvage/salvage.h): it may never
 * become durable. */
static bool is_rest(const struct launch *launch)
{
	return launch->apart && !launch_settled(launch) && !launch->flushing && accord_is_broken(launch);
}

/* When the memory of a launch whose processes died is no longer kept for them to come back; UINT64_MAX: it is not dead, or
 * not durable. The rest of one lingers even if nobody was to return: a job that is submitted again goes on with it. */
static uint64_t linger_until(const struct agent *agent, const struct launch *launch)
{
	const struct live *live;
	uint64_t died_ns = 0;
	uint32_t at = 0;
	bool rest = is_rest(launch);

	if (!launch_is_dead(launch) || !(rest || launch_settled(launch)) || (rest && salvage_needs(launch->generation)))
		return UINT64_MAX;
	while ((live = launch_next(launch, &at)))
		if (live->died_ns > died_ns)
			died_ns = live->died_ns;
	return died_ns + (rest ? (uint64_t)(agent->settings.linger_sec * 1e9) : linger_ns(agent) + watermark_patience_ns(agent, launch));
}

/* One that is not durable stays until it is, however long that takes, but where it is only the rest of one. */
static void retire_forgotten(struct agent *agent)
{
	uint64_t now = tpck_clock_monotonic_ns();

	for (struct live *live = agent->lives; live; live = live->next) {
		if (live->life != LIFE_DEAD || linger_until(agent, live->launch) > now)
			continue;
		/* Who has a copy, as this node may have of theirs, need not keep it either: it would be for ever. */
		if (is_rest(live->launch)) {
			tpck_log_warn("what rank %u left in memory goes, and is not durable: its other ranks' nodes did not come back",
				      live->session->name.rank);
			peers_ended(agent, live->session->identity, live->session->name.generation);
		} else {
			watermark_let_go(agent, live);
		}
		live_retire(agent, live);
	}
}

/* When the agent has nothing more to wait for; UINT64_MAX: it has. */
static uint64_t leave_at(struct agent *agent)
{
	uint64_t first = agent->settings.peers.count ? linger_ns(agent) : FIRST_WAIT_NS, linger;
	uint64_t idle = agent->idle_since_ns + (agent->served || agent->nobody_returns ? IDLE_WAIT_NS : first);

	if (agent->clients || agent->jobs || agent->lives || files_owed())
		return UINT64_MAX;
	/* A program that died may come back, and read what it has saved. */
	linger = agent->files_died_ns && files_kept() ? agent->files_died_ns + linger_ns(agent) : 0;
	if (peers_leave_at(agent) > linger)
		linger = peers_leave_at(agent);
	return linger > idle ? linger : idle;
}

/* The store does not work: what was to become durable first is here when the next agent begins. */
static void say_what_stays(struct agent *agent)
{
	uint64_t step;

	if (!agent->flush_said[0])
		return;
	salvage_say_kept(agent);
	for (struct launch *launch = agent->launches; launch; launch = launch->next)
		if (!launch_settled(launch) && launch_newest(launch, &step))
			tpck_log_warn("step %" PRIu64 " of generation %" PRIu64 " is not durable, and stays in memory: %s", step,
				      launch->generation, agent->flush_said);
}

static void consider_leaving(struct agent *agent)
{
	uint64_t now = tpck_clock_monotonic_ns();

	/* Somebody removed the memory tier: there is nothing left to keep, and nobody can reach us. */
	if (now >= agent->look_ns) {
		agent->look_ns = now + LOOK_NS;
		if (access(agent->socket_path, F_OK) != 0 && errno == ENOENT) {
			tpck_log_warn("%s was removed; ending", agent->folder);
			agent->stopping = agent->leaving = true;
			return;
		}
	}
	/* Once it is: of what comes later, as from programs that run, there is no end. */
	if (agent->stopping && !agent->jobs && (!files_owed() || files_failing()) && !peers_hold_lost() &&
	    ((all_durable(agent) && !salvage_owes(agent)) || now < agent->flush_retry_ns))
		agent->through = true;
	if (agent->stop_now || (agent->through && (!agent->together || peers_may_leave(true)))) {
		say_what_stays(agent);
		agent->leaving = true;
		return;
	}
	if (agent->clients || agent->jobs || agent->lives || files_owed())
		agent->idle_since_ns = now;
	if (!agent->through && peers_may_leave(leave_at(agent) <= now))
		agent->leaving = true;
}

void agent_consider(struct agent *agent)
{
	hello_consider(agent);
	accord_consider(agent);
	salvage_consider(agent);
	flush_consider(agent);
	stash_consider(agent);
	copies_consider(agent);
	history_consider(agent);
	peers_consider(agent);
	stall_consider(agent);
	answer_endings(agent);
	retire_forgotten(agent);
	live_sweep(agent);
	consider_leaving(agent);
}

static uint64_t next_deadline(struct agent *agent)
{
	uint64_t soonest = flush_deadline(agent), leave = leave_at(agent), now = tpck_clock_monotonic_ns();

	/* The agent would leave, but not alone. */
	if (leave <= now || agent->through)
		leave = now + LEAVE_AGAIN_NS;
	if (leave < soonest)
		soonest = leave;
	if (copies_deadline(agent) < soonest)
		soonest = copies_deadline(agent);
	if (stash_deadline(agent) < soonest)
		soonest = stash_deadline(agent);
	if (history_deadline(agent) < soonest)
		soonest = history_deadline(agent);
	if (stall_deadline(agent) < soonest)
		soonest = stall_deadline(agent);
	if (accord_deadline(agent) < soonest)
		soonest = accord_deadline(agent);
	if (peers_meets_deadline(agent) < soonest)
		soonest = peers_meets_deadline(agent);
	if (salvage_deadline(agent) < soonest)
		soonest = salvage_deadline(agent);
	for (const struct live *live = agent->lives; live; live = live->next)
		if (live->life == LIFE_DEAD && !live->jobs && linger_until(agent, live->launch) < soonest)
			soonest = linger_until(agent, live->launch);
	for (const struct client *client = agent->clients; client; client = client->next)
		if (client->deferred && client->deferred_until_ns < soonest)
			soonest = client->deferred_until_ns;
	return soonest;
}

static int timeout_ms(struct agent *agent)
{
	uint64_t now = tpck_clock_monotonic_ns(), at = next_deadline(agent);

	if (agent->look_ns < at)
		at = agent->look_ns;
	/* The files' thread tells nobody when it is done. */
	if ((files_owed() || peers_hold_files()) && (at == UINT64_MAX || at > now + FILES_LOOK_NS))
		at = now + FILES_LOOK_NS;
	return at <= now ? 0 : (int)((at - now) / 1000000 + 1);
}

static int prepare_loop(struct agent *agent, struct tpck_error *err)
{
	sigset_t signals;
	int rc;

	agent->epoll = epoll_create1(EPOLL_CLOEXEC);
	rc = agent->epoll < 0 ? -errno : outbox_make(&agent->outbox);
	if (rc)
		return tpck_error_set(err, -rc, "starting the event loop");
	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	/* Who opens a file that we have a lease of breaks it: the kernel lets us know, and a lease is given back at once anyway. */
	signal(SIGIO, SIG_IGN);
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGUSR1);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	agent->signals = (struct watch){signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK), signals_ready};
	agent->outbox_watch = (struct watch){agent->outbox.event, outbox_ready};
	rc = agent->signals.fd < 0 ? -errno : agent_watch(agent, &agent->signals);
	if (!rc)
		rc = agent_watch(agent, &agent->outbox_watch);
	if (!rc)
		rc = worker_start(&agent->clerk, &agent->outbox);
	if (!rc)
		rc = worker_start(&agent->checker, &agent->outbox);
	if (!rc)
		rc = worker_start(&agent->flusher, &agent->outbox);
	if (!rc)
		rc = worker_start(&agent->prefaulter, &agent->outbox);
	if (!rc)
		rc = worker_start(&agent->stasher, &agent->outbox);
	if (!rc)
		rc = copies_start(agent);
	if (!rc)
		rc = history_start(agent);
	return rc ? tpck_error_set(err, -rc, "starting the event loop") : 0;
}

int agent_begin(struct agent *agent, struct tpck_error *err)
{
	int rc = prepare_loop(agent, err);

	if (rc)
		return rc;
	agent->begun_ns = agent->idle_since_ns = tpck_clock_monotonic_ns();
	flush_clear_remains(agent);
	live_adopt_all(agent);
	files_begin(agent);
	rc = peers_start(agent, err);
	if (rc)
		return rc;
	agent->served = agent->lives != NULL || files_owed();
	return client_listen(agent, err);
}

void agent_loop(struct agent *agent)
{
	for (;;) {
		struct epoll_event event;
		struct watch *watch;

		agent_consider(agent);
		if (agent->leaving)
			return;
		/* One at a time: what it does may free what the next would be about. */
		if (epoll_wait(agent->epoll, &event, 1, timeout_ms(agent)) != 1)
			continue;
		watch = event.data.ptr;
		watch->ready(agent, watch);
	}
}
