/* SPDX-License-Identifier: Apache-2.0 */
/* What is owed to processes that end or are gone: BYE, and that what they left in memory goes in the end. */
#include "config.h"

#include <stdio.h>

#include "agent/copies/copies.h"
#include "agent/durable/flush.h"
#include "agent/salvage/salvage.h"
#include "agent/session/watermark.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "tools/agent/leaving.h"

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
		if (live->status != 0 && !live->launch->apart && !launch_settled(live->launch) && !flush_complaint()[0])
			continue;
		live->ending = false;
		client_send(live->client, TPCK_MSG_BYE, NULL, 0);
	}
}

/* The ranks on other nodes are lost, and what is here is no whole step without them, unless somebody has copies (salvage/salvage.h): it may never
 * become durable. */
static bool is_rest(const struct launch *launch)
{
	return launch->apart && !launch_settled(launch) && !launch->flushing && launch_apart->is_broken(launch);
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
	return died_ns + (rest ? (uint64_t)(home.settings.linger_sec * 1e9) : agent_linger_ns(agent) + watermark_patience_ns(launch));
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
			copies_ended(live->session->identity, live->session->name.generation);
		} else {
			watermark_let_go(live);
		}
		live_retire(live);
	}
}

static void consider(struct agent *agent)
{
	answer_endings(agent);
	retire_forgotten(agent);
	live_sweep(agent);
}

static uint64_t deadline(const struct agent *agent)
{
	uint64_t soonest = UINT64_MAX;

	for (const struct live *live = agent->lives; live; live = live->next)
		if (live->life == LIFE_DEAD && !live->jobs && linger_until(agent, live->launch) < soonest)
			soonest = linger_until(agent, live->launch);
	return soonest;
}

const struct loop_part endings_loop = {.consider = consider, .deadline = deadline};
