/* SPDX-License-Identifier: Apache-2.0 */
/* Starting the ranks of a launch that are here, as its leader says (runtime/peer/accord.h). Event loop. */
#ifndef TPCK_AGENT_HELLO_HELLO_H
#define TPCK_AGENT_HELLO_HELLO_H

#include "agent/session/sessions.h"
#include "runtime/peer/accord.h"

struct hello_job;

/* A process says HELLO; or it comes from an earlier agent. Both are of struct session_beyond. */
void hello_begin(struct agent *agent, struct client *client, const struct tpck_hello *hello, const char *identity);
void hello_adopt(struct agent *agent, struct client *client, const struct tpck_hello *hello);
/* Clients whose answer was deferred. */
extern const struct loop_part hello_loop;

/* Makes all ranks that wait ready to go on from a point, as `generation`; accord_staged() says how that went. It may be called
 * again with another point, or as another generation. The sources are copied. */
void hello_try(struct agent *agent, struct launch *launch, const struct tpck_point *point, const struct tpck_accord_source *sources,
	       size_t count);
/* Welcomes them: with what was staged, or to begin from their beginning. The notice is a line for the user, or with what was staged what is behind that line. */
void hello_go(struct agent *agent, struct launch *launch, bool staged, uint64_t ports, const char *notice);
/* Visits those that have been, or are being, made ready, and have yet to be welcomed. */
void hello_each_staged(struct agent *agent, struct launch *launch,
		       void (*visit)(struct agent *agent, struct launch *launch, const struct tpck_hello *hello, const char *identity));
/* Processes that wait are told to run without the agent. */
void hello_refuse(struct agent *agent, struct launch *launch, const char *why);
/* How many of its ranks wait, and until when the first of them does. */
uint32_t hello_waiting(const struct agent *agent, const struct launch *launch, uint64_t *until_ns);
/* Of the ports that they may meet at. */
uint64_t hello_ports(void);
/* One more than any generation that left a trace here or in the store, and noted in all. Clerk. */
uint64_t hello_generation(void);

#endif
