/* SPDX-License-Identifier: Apache-2.0 */
/* The link to the agent: finding or starting it, saying hello, and the messages that go to and fro
 * while the program runs. Only tpck_agent_hello() waits, and that for a bounded time. */
#ifndef TPCK_RUNTIME_ENGINE_AGENT_LINK_H
#define TPCK_RUNTIME_ENGINE_AGENT_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/base/settings.h"
#include "runtime/engine/ranks.h"
#include "runtime/wire/message.h"
#include "runtime/wire/segment.h"

struct tpck_agent_options {
	const struct tpck_settings *settings;
	char *const *environment;  /* for the agent, less LD_PRELOAD */
	const char *job;
	const char *identity;
	uint32_t identity_bytes;
	const char *library;       /* path of this library: the agent is found from it */
	const char *start_folder;  /* that the process was started in: where paths of settings begin; "": not known */
	const struct tpck_ranks *ranks;
	void *control_at;          /* NULL, or the page of memory in whose place the control page is mapped */
	bool resume, late;         /* an offer is wanted; it comes too late to be taken */
	uint32_t flags;            /* TPCK_HELLO_* besides */
	uint32_t failure;          /* as in struct tpck_hello */
	uint64_t resume_step;      /* UINT64_MAX: the newest */
	uint64_t forward_max_ns;   /* 0: no limit */
};

/* Connects (starting the agent if none answers), says hello, waits for the welcome at most 10 s (with a resume, as
 * long as verifying what is offered takes) and
 * maps the control page. 0 or -errno with err filled in. */
int tpck_agent_hello(const struct tpck_agent_options *options, struct tpck_welcome *welcome,
		     struct tpck_control **control, struct tpck_error *err);
/* Sends a message without waiting; one that cannot be sent is dropped (the control page and the
 * images say the same). */
void tpck_agent_send(enum tpck_message_type type, const void *payload, uint32_t bytes);
/* Whether the agent is gone. Before tpck_agent_start() nobody looks for another but tpck_agent_seek(). */
bool tpck_agent_lost(void);
/* Finds or starts another agent and says hello again for the same session, for up to some seconds; nothing while another thread does so. */
void tpck_agent_seek(void);
/* Called by the link's thread. */
struct tpck_agent_events {
	void (*ready)(const struct tpck_prepare *granted);
	void (*surprise)(const struct tpck_held *what);
	void (*id)(const struct tpck_communicator_id *told);
	void (*again)(void); /* another agent has taken the session over */
	void (*tick)(void); /* some times a second */
	bool (*look)(void); /* as often, and for as long as it says so some hundred times */
};
/* Starts the thread: it listens, and when the agent dies finds or starts another and says hello
 * again for the same session. 0 or -errno. */
int tpck_agent_start(const struct tpck_agent_events *events);
/* Says ENDING and waits at most `seconds` for BYE. False: it did not come. */
bool tpck_agent_end(int status, double seconds);

#endif
