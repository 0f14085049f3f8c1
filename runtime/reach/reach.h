/* SPDX-License-Identifier: Apache-2.0 */
/* How the preloaded library reaches its agent. No signal, child or wait of the program's is touched. */
#ifndef TPCK_RUNTIME_REACH_REACH_H
#define TPCK_RUNTIME_REACH_REACH_H

#include <stddef.h>

#include "runtime/base/error.h"
#include "runtime/base/settings.h"

struct tpck_reach {
	const struct tpck_settings *settings;
	char *const *environment; /* for the agent, less LD_PRELOAD; read by each call */
	const char *job;
	const char *library;      /* path of this library: the agent is found from it */
	const char *start_folder; /* that the process was started in: where paths of settings begin; "": not known */
	char socket[1200];        /* SHM/JOB/agent.sock; filled in by the first call */
	int ahead;                /* one was started by tpck_reach_ahead(): one more than the descriptor that tells whether it has ended; 0: none */
};

/* A copy, never freed, for calls that come later: the program may move and change its own meanwhile. Where there is no memory: `environment` itself. */
char *const *tpck_reach_environment(char *const *environment);
/* Connects to the job's agent, which is started if none answers: at most 5 s. The socket's descriptor, high and
 * closed at an execve, or -errno with err filled in. */
int tpck_reach(struct tpck_reach *who, struct tpck_error *err);
/* Starts one if none answers, and does not wait: what is to be done before tpck_reach(), which then waits for that one, is done
 * meanwhile. What goes wrong is for tpck_reach() to say. */
void tpck_reach_ahead(struct tpck_reach *who);
/* Only connects, within 2 s. -ENOENT or -ECONNREFUSED: there is no agent; -EACCES: it is another user's; -ETIMEDOUT: its queue is full. */
int tpck_reach_connect(const char *socket_path);
void tpck_reach_pause(long ms);
/* Sends the agent a message of this type (enum tpck_message_type) and waits for its answer, which has no payload. 0, -ETIMEDOUT, or
 * another -errno. */
int tpck_reach_ask(int fd, unsigned type, const void *payload, size_t bytes, unsigned answer, unsigned limit_ms);

#endif
