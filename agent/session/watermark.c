/* SPDX-License-Identifier: Apache-2.0 */
/* What each tier has of each launch, and drops of copies that wait for it. */
#include "config.h"

#include "agent/session/watermark.h"
#include "runtime/base/tier_settings.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"

/* Other nodes' copies of a rank that is not in this node's memory any more. */
struct put_off {
	uint64_t generation, step, lacks; /* the tiers that do not have the step, a bit each */
	char *identity;
	struct put_off *next;
};

static struct put_off *put_off;
static uint64_t said; /* the generation that a line was about */

_Static_assert(TPCK_TIERS_MAX <= 64, "a bit for each tier");

/* Parts of several nodes are written to the tier that all see; what is copied further is copied from the first. */
static bool is_wanted(const struct launch *launch, size_t tier)
{
	const struct tpck_tier *shared = launch->apart ? home_shared_tier() : home.tier;

	return shared == home.tier || home.tiers.tier[tier] == shared;
}

static uint64_t lacking(const struct launch *launch, uint64_t step)
{
	uint64_t lacks = 0;

	for (size_t i = 0; i < home.tiers.count; i++)
		if (is_wanted(launch, i) && launch->in_tier[i] < step + 1)
			lacks |= 1ull << i;
	return lacks;
}

void watermark_note(struct agent *agent, size_t tier, const struct tpck_point *point)
{
	for (struct launch *launch = agent->launches; launch; launch = launch->next)
		if (launch->generation == point->generation && launch->in_tier[tier] < point->step + 1)
			launch->in_tier[tier] = point->step + 1;
	for (struct put_off **place = &put_off; *place;) {
		struct put_off *drop = *place;

		if (drop->generation == point->generation && drop->step <= point->step)
			drop->lacks &= ~(1ull << tier);
		if (drop->lacks) {
			place = &drop->next;
			continue;
		}
		session_beyond->ended(drop->identity, drop->generation);
		*place = drop->next;
		free(drop->identity);
		free(drop);
	}
}

void watermark_durable(struct agent *agent, struct launch *launch, uint64_t step)
{
	const struct tpck_tier *into = launch->apart ? home_shared_tier() : home.tier;

	for (size_t i = 0; i < home.tiers.count; i++)
		if (home.tiers.tier[i] == into)
			watermark_note(agent, i, &(struct tpck_point){launch->generation, step});
}

bool watermark_of(const struct launch *launch, uint64_t *step, size_t *behind)
{
	uint64_t least = UINT64_MAX;

	for (size_t i = 0; i < home.tiers.count; i++) {
		if (!is_wanted(launch, i) || launch->in_tier[i] >= least)
			continue;
		least = launch->in_tier[i];
		if (behind)
			*behind = i;
	}
	if (!least || least == UINT64_MAX)
		return false;
	*step = least - 1;
	return true;
}

bool watermark_passed(const struct launch *launch)
{
	uint64_t step;

	/* Of what nodes that are lost have left all is durable that can be. */
	if (!launch_newest(launch, &step) || (step <= launch->salvaged && launch->apart && launch_apart->is_broken(launch)))
		return true;
	return lacking(launch, step) == 0;
}

uint64_t watermark_patience_ns(const struct launch *launch)
{
	return watermark_passed(launch) ? 0 : (uint64_t)(home.settings.linger_sec * 1e9);
}

static void say_put_off(const struct launch *launch, uint64_t step)
{
	uint64_t mark;
	size_t behind = 0;

	if (said == launch->generation)
		return;
	said = launch->generation;
	(void)watermark_of(launch, &mark, &behind);
	tpck_log_warn("step %" PRIu64 " goes from this node's memory, and tier '%s' does not have it yet%s", step, home.tiers.name[behind],
		      home.settings.peers.count ? ": copies on other nodes stay until it has" : "");
}

/* A newer start's goes with what it is put off for: earlier ones go with it. */
static void forget_older(const char *identity)
{
	for (struct put_off **place = &put_off; *place;) {
		struct put_off *drop = *place;

		if (strcmp(drop->identity, identity) != 0) {
			place = &drop->next;
			continue;
		}
		*place = drop->next;
		free(drop->identity);
		free(drop);
	}
}

void watermark_let_go(const struct live *live)
{
	struct put_off *drop;
	uint64_t step;

	if (watermark_passed(live->launch) || !launch_newest(live->launch, &step)) {
		session_beyond->ended(live->session->identity, live->session->name.generation);
		return;
	}
	say_put_off(live->launch, step);
	forget_older(live->session->identity);
	drop = calloc(1, sizeof *drop);
	if (!drop)
		return;
	drop->identity = strdup(live->session->identity);
	if (!drop->identity) {
		free(drop);
		return;
	}
	drop->generation = live->session->name.generation;
	drop->step = step;
	drop->lacks = lacking(live->launch, step);
	drop->next = put_off;
	put_off = drop;
}

void watermark_status(const struct launch *launch, json_object *row)
{
	json_object *tiers;
	uint64_t step;
	size_t behind = 0;

	if (home.tiers.count < 2)
		return;
	if (watermark_of(launch, &step, &behind))
		json_object_object_add(row, "watermark", json_object_new_uint64(step));
	if (!watermark_passed(launch))
		json_object_object_add(row, "behind", json_object_new_string(home.tiers.name[behind]));
	tiers = json_object_new_object();
	for (size_t i = 0; i < home.tiers.count; i++)
		if (launch->in_tier[i])
			json_object_object_add(tiers, home.tiers.name[i], json_object_new_uint64(launch->in_tier[i] - 1));
	json_object_object_add(row, "in_tiers", tiers);
}

static void stop(struct agent *agent)
{
	(void)agent;
	while (put_off) {
		struct put_off *drop = put_off;

		put_off = drop->next;
		free(drop->identity);
		free(drop);
	}
}

const struct loop_part watermark_loop = {.stop = stop};
