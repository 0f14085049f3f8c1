/* SPDX-License-Identifier: Apache-2.0 */
/* Ids by which the ranks of communicators meet: from a node to who leads, and from there to all nodes. */
#include "config.h"

#include <string.h>

#include "agent/accord/accord_private.h"

/* Any rank here tells the nodes apart. */
static uint32_t first_rank(const struct launch *launch)
{
	const struct live *live = launch_first(launch);

	return live ? live->session->name.rank : 0;
}

void accord_pass_id(struct agent *agent, struct launch *launch, const struct tpck_communicator_id *id)
{
	struct tpck_accord_message message = accord_message(launch, TPCK_ACCORD_ID);

	message.rank = first_rank(launch);
	accord_tell_leader(agent, launch, &message, id, sizeof *id);
}

void accord_ids_hear(struct agent *agent, struct launch *launch, const struct tpck_accord_message *message, const char *more, size_t size)
{
	struct tpck_accord_message told = accord_message(launch, TPCK_ACCORD_ID);

	if (launch->accord->broken || message->generation != launch->generation || size != sizeof(struct tpck_communicator_id))
		return;
	told.rank = message->rank;
	accord_tell_all(agent, launch, &told, more, size);
}

void accord_ids_obey(struct launch *launch, const struct tpck_accord_message *message, const char *more, size_t size)
{
	struct tpck_communicator_id id;

	/* The ranks of the node that it comes from have heard it. */
	if (size != sizeof id || message->generation != launch->generation || ranks_here_find(&launch->here, message->rank))
		return;
	memcpy(&id, more, sizeof id);
	launch_tell_id(launch, NULL, &id);
}
