/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's state. All of it belongs to the event loop's thread, except where a line says else. */
#ifndef TPCK_AGENT_SESSION_SESSIONS_H
#define TPCK_AGENT_SESSION_SESSIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/home/home.h"
#include "agent/loop/loop.h"
#include "agent/loop/worker.h"
#include "agent/session/client.h"
#include "agent/session/launch.h"
#include "agent/session/live.h"
#include "runtime/base/error.h"
#include "runtime/base/settings.h"
#include "runtime/base/tier_settings.h"
#include "runtime/policy/interval.h"
#include "runtime/store/manifest.h"
#include "runtime/store/memory_tier.h"
#include "runtime/store/program.h"
#include "runtime/store/tiers.h"
#include "runtime/wire/message.h"

struct agent {
	struct client *clients;
	struct live *lives;
	struct launch *launches;

	uint64_t files_died_ns; /* when a process that writes files died last; 0: the program has ended since, or none did */
	bool launched;               /* by mpirun, together with those of the job's other nodes */
	bool together;               /* it ends them all when one ends */
	bool served;                 /* somebody said HELLO since the start */
	bool stopping;               /* SIGTERM: finish the newest, keep the memory tier */
	bool gathering;              /* stopping: all that mpirun has started end now, and it is to be called again */
	bool nobody_returns;         /* SIGUSR1: what is durable does not linger, until the next program comes */
};

/* What becomes of sessions elsewhere: main() says what that is before the beginning. None is NULL. */
struct session_beyond {
	/* A process has said HELLO (with the identity text behind it), and is told how it begins, sooner or later; or it comes from an earlier agent. */
	void (*hello)(struct agent *agent, struct client *client, const struct tpck_hello *hello, const char *identity);
	void (*adopt)(struct agent *agent, struct client *client, const struct tpck_hello *hello);
	/* A process that begins will look at what was saved: TPCK_MSG_LOOKED is sent to it when it may. It waits until the nodes of its launch are known:
	 * TPCK_MSG_MET. */
	void (*look)(struct client *client);
	void (*meet)(struct client *client, const struct tpck_meet *meet);
	/* All ranks of a launch have a new committed image. */
	void (*committed)(struct launch *launch);
	/* The program with this identity ended well: up to this generation nobody comes back. */
	void (*ended)(const char *identity, uint64_t generation);
	/* The program has ended well, and no newer start of it has noted anything: what was kept for the next one goes. The clerk's thread. */
	void (*forget)(const struct tpck_program *program);
	/* QUERY: somebody asks what the agent is at. */
	void (*query)(struct agent *agent, struct client *client);
};
extern const struct session_beyond *session_beyond;

#endif
