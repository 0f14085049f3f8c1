/* SPDX-License-Identifier: Apache-2.0 */
/* Takeovers that are stopped. */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/hello/hello_private.h"
#include "agent/session/events.h"
#include "agent/session/invariants.h"
#include "runtime/base/log.h"
#include "runtime/store/stage.h"

static bool takes_place(const struct hello_job *h)
{
	bool any = false;

	for (size_t i = 0; i < h->count; i++)
		any = any || (h->part[i].hello.flags & (TPCK_HELLO_TAKES_OVER | TPCK_HELLO_IN_PLACE));
	return any;
}

static bool has_offer(const struct hello_job *h)
{
	for (size_t i = 0; i < h->count; i++)
		if (h->part[i].rc || !h->offer[i].made)
			return false;
	return h->count > 0;
}

static bool has_state(const struct hello_part *part, const struct tpck_point *point)
{
	char path[TPCK_PATH_MAX];
	struct tpck_image image = {0};
	bool has;

	if (tpck_path_join(path, sizeof path, part->session->path, TPCK_RESUME_IMAGE) || tpck_image_open(&image, path, false, NULL))
		return false;
	has = atomic_load(&image.header->state) == TPCK_IMAGE_COMMITTED && image.header->step == point->step && image.header->generation == point->generation;
	tpck_image_close(&image);
	return has;
}

/* What is known here of who was this rank. */
static void look_at_former(struct agent *agent, const struct hello_part *part, const struct tpck_point *point, struct invariant_rank *rank)
{
	for (const struct live *live = agent->lives; live; live = live->next) {
		const struct tpck_session_name *name = &live->session->name;

		if (live->pid == part->client->pid || name->rank != part->hello.rank || name->ordinal != part->hello.ordinal ||
		    strcmp(live->session->identity, part->identity) != 0)
			continue;
		if (live->pid > 0 && live->life != LIFE_DEAD && live->life != LIFE_GONE && !live->ending && kill(live->pid, 0) == 0)
			rank->former = (int)live->pid;
		/* Of several nodes the leader may have died with the word that a step is committed; what it chooses now all hold. */
		if (name->generation == point->generation && rank->world > 1 && !live->launch->apart && atomic_load(&live->session->control->committed_step) < point->step)
			rank->committed = false;
	}
}

bool hello_holds(struct agent *agent, struct hello_job *h)
{
	struct invariant_rank *ranks;
	char why[200];
	bool hold;

	if (!takes_place(h) || !has_offer(h))
		return true;
	ranks = calloc(h->count, sizeof *ranks);
	if (!ranks)
		return true;
	for (size_t i = 0; i < h->count; i++) {
		const struct hello_part *part = &h->part[i];

		ranks[i] = (struct invariant_rank){
			.rank = part->hello.rank, .ordinal = part->hello.ordinal, .world = part->hello.world, .point = h->offer[i].point, .committed = true,
			.has_state = has_state(part, &h->offer[i].point),
		};
		look_at_former(agent, part, &h->offer[i].point, &ranks[i]);
	}
	hold = invariants_hold(ranks, h->count, h->launch->apart, why, sizeof why);
	if (!hold) {
		tpck_log_error("nobody goes on in the place of who has failed at step %llu: %s", (unsigned long long)h->offer[0].point.step, why);
		history_stopped(&h->offer[0].point, why);
		for (size_t i = 0; i < h->count; i++) {
			h->offer[i].made = false;
			tpck_stage_clear(h->part[i].session->path);
			snprintf(h->offer[i].notice, sizeof h->offer[i].notice, "not going on at step %llu: %s", (unsigned long long)h->offer[i].point.step, why);
		}
	}
	free(ranks);
	return hold;
}

void hello_check(struct agent *agent, struct hello_job *h)
{
	/* Ranks that are on several nodes were looked at before their leader had them go. */
	if (!h->launch->apart)
		(void)hello_holds(agent, h);
}
