/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks on several nodes that wait for each other: each node tells the leader of its own, and the leader tells all. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "agent/accord/accord_private.h"
#include "agent/session/stall.h"
#include "runtime/base/clock.h"

void accord_stalled(struct agent *agent, struct launch *launch, uint64_t age_ns, const char *rows, size_t size)
{
	struct tpck_accord_message message = accord_message(launch, TPCK_ACCORD_STALLED);
	char *more = calloc(1, TPCK_PEER_NAME + size);

	if (!more)
		return;
	message.value = age_ns;
	strcpy(more, peers_host());
	if (size)
		memcpy(more + TPCK_PEER_NAME, rows, size);
	accord_tell_leader(agent, launch, &message, more, TPCK_PEER_NAME + size);
	free(more);
}

static void tell(struct agent *agent, struct launch *launch, const char *text)
{
	struct tpck_accord_message message = accord_message(launch, TPCK_ACCORD_WAITING);

	accord_tell_all(agent, launch, &message, text, strlen(text) + 1);
}

/* Some get on, and so do all, in a moment. */
static void go_on(struct agent *agent, struct launch *launch, const char *node)
{
	struct accord *accord = launch->accord;

	accord_stalls_forget(launch, node);
	if (!accord->waiting_ns)
		return;
	stall_over(accord->waiting_ns);
	accord->waiting_ns = 0;
	tell(agent, launch, "");
}

void accord_stalls_hear(struct agent *agent, struct launch *launch, const char *node, const struct tpck_accord_message *message,
			const char *more, size_t size)
{
	struct accord *accord = launch->accord;
	uint64_t now = tpck_clock_monotonic_ns();
	char host[TPCK_PEER_NAME], text[STALL_TEXT];

	if (accord->broken || message->generation != launch->generation || size < sizeof host)
		return;
	memcpy(host, more, sizeof host);
	host[sizeof host - 1] = '\0';
	if (size == sizeof host) {
		go_on(agent, launch, node);
		return;
	}
	if (!accord->waiting)
		accord->waiting = tpck_waiting_new(launch->world);
	if (!accord->waiting || tpck_waiting_put(accord->waiting, node, host, more + sizeof host, size - sizeof host))
		return;
	/* Ranks that get on have ended their last iterations at about the same time. */
	if (accord->waiting_ns || !tpck_waiting_all(accord->waiting))
		return;
	accord->waiting_ns = now > message->value ? now - message->value : 1;
	stall_describe(accord->waiting, accord->waiting_ns, text);
	tell(agent, launch, text);
}

void accord_stalls_obey(struct launch *launch, const char *text, size_t size)
{
	if (size && !text[size - 1])
		stall_show(launch, text);
}

void accord_stalls_forget(struct launch *launch, const char *node)
{
	if (launch->accord->waiting)
		tpck_waiting_take(launch->accord->waiting, node);
}
