/* SPDX-License-Identifier: Apache-2.0 */
/* Launches: what the ranks of a job do together. */
#include "config.h"

#include "agent/session/launch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/session/sessions.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"

const struct session_beyond *session_beyond;
const struct launch_apart *launch_apart;

/* More than any job has; a number beyond it is a fault of somebody's. */
enum { RANKS_MAX = 1 << 20 };
/* How long it takes at most until all processes know what boundary was named. */
#define NAMED_AHEAD_NS 50000000ull

/* ---- members ------------------------------------------------------------------------------ */

static struct launch *launch_new(struct agent *agent, uint64_t key, uint32_t world, bool apart)
{
	struct launch *launch = calloc(1, sizeof *launch);

	if (!launch)
		return NULL;
	launch->accord = apart ? launch_apart->create() : NULL;
	if (apart && !launch->accord) {
		free(launch);
		return NULL;
	}
	launch->key = key;
	launch->world = world;
	launch->apart = apart;
	launch->begun_ns = tpck_clock_monotonic_ns();
	launch->next = agent->launches;
	agent->launches = launch;
	return launch;
}

static void launch_free(struct agent *agent, struct launch *launch)
{
	for (struct launch **place = &agent->launches; *place; place = &(*place)->next)
		if (*place == launch) {
			*place = launch->next;
			break;
		}
	if (launch->accord)
		launch_apart->free(launch);
	tpck_manifest_free(launch->base);
	ranks_here_free(&launch->here);
	free(launch);
}

static void free_if_empty(struct agent *agent, struct launch *launch)
{
	if (!launch_first(launch) && launch->hellos == 0)
		launch_free(agent, launch);
}

struct launch *launch_join(struct agent *agent, const struct tpck_hello *hello, bool was_apart)
{
	uint32_t world = hello->world ? hello->world : 1;
	bool apart = world > 1 && (hello->flags & TPCK_HELLO_APART);
	struct launch *launch;

	/* The first of its ranks has decided. */
	was_apart = was_apart && world > 1;

	if (world > RANKS_MAX || hello->rank >= world)
		return NULL;
	for (launch = agent->launches; launch; launch = launch->next)
		if (world > 1 && launch->key == hello->launch && launch->world == world && launch->apart >= apart && !launch->closed &&
		    !ranks_here_find(&launch->here, hello->rank))
			break;
	if (!launch)
		launch = launch_new(agent, hello->launch, world, apart || was_apart);
	if (launch && !ranks_here_add(&launch->here, hello->rank)) {
		free_if_empty(agent, launch);
		return NULL;
	}
	return launch;
}

struct launch *launch_adopt(struct agent *agent, uint64_t key, uint64_t generation, uint32_t world, bool apart)
{
	struct launch *launch;

	for (launch = agent->launches; launch; launch = launch->next)
		if (launch->generation == generation)
			return launch->world == world && launch->apart == apart ? launch : NULL;
	launch = launch_new(agent, key, world, apart);
	if (launch)
		launch->generation = generation;
	return launch;
}

void launch_leave(struct agent *agent, struct live *live)
{
	struct launch *launch = live->launch;

	ranks_here_find(&launch->here, live->session->name.rank)->live = NULL;
	launch->closed = true;
	live->launch = NULL;
	free_if_empty(agent, launch);
}

void launch_said(struct agent *agent, struct launch *launch, uint32_t hellos)
{
	launch->hellos -= hellos;
	live_settle_launch(launch);
	free_if_empty(agent, launch);
}

struct live *launch_rank(const struct launch *launch, uint32_t rank)
{
	const struct rank_here *row = ranks_here_find(&launch->here, rank);

	return row ? row->live : NULL;
}

struct live *launch_next(const struct launch *launch, uint32_t *at)
{
	while (*at < launch->here.count) {
		struct live *live = launch->here.row[(*at)++].live;

		if (live)
			return live;
	}
	return NULL;
}

struct live *launch_first(const struct launch *launch)
{
	uint32_t at = 0;

	return launch_next(launch, &at);
}

bool launch_is_whole(const struct launch *launch)
{
	if (!launch->apart && launch->here.count < launch->world)
		return false;
	for (uint32_t i = 0; i < launch->here.count; i++) {
		const struct live *live = launch->here.row[i].live;

		if (!live || live->life == LIFE_GONE)
			return false;
	}
	return launch_first(launch) != NULL;
}

bool launch_is_dead(const struct launch *launch)
{
	const struct live *live;
	uint32_t at = 0;

	while ((live = launch_next(launch, &at)))
		if (live->life == LIFE_RUNNING || live->life == LIFE_SETTLING)
			return false;
	return launch->hellos == 0;
}

bool launch_ended_well(const struct launch *launch)
{
	const struct live *live;
	uint32_t at = 0;

	while ((live = launch_next(launch, &at)))
		if (!live->ended_well)
			return false;
	return !launch->died_any;
}

/* ---- commit ------------------------------------------------------------------------------- */

bool launch_newest(const struct launch *launch, uint64_t *step)
{
	const struct live *live;
	uint32_t at = 0;

	if (!launch_is_whole(launch))
		return false;
	if (launch->apart)
		return launch_apart->newest(launch, step);
	while ((live = launch_next(launch, &at)))
		if (live->newest < 0 || live->newest_step != launch_first(launch)->newest_step)
			return false;
	*step = launch_first(launch)->newest_step;
	return true;
}

bool launch_settled(const struct launch *launch)
{
	uint64_t step;

	return !launch->flushing &&
	       (!launch_newest(launch, &step) || (launch->durable_any && launch->durable_step >= step) ||
		(step <= launch->salvaged && launch_apart->is_broken(launch)));
}

static bool held_by_all(const struct launch *launch, uint64_t step)
{
	if (launch->here.count < launch->world)
		return false;
	for (uint32_t i = 0; i < launch->world; i++)
		if (!launch->here.row[i].live || live_image_of(launch->here.row[i].live, step) < 0)
			return false;
	return true;
}

bool launch_is_one_cut(struct launch *launch, struct tpck_counts *counts, uint64_t step)
{
	struct tpck_error err = {0};
	int rc = tpck_counts_match(counts, &err);

	/* A program that does not meet in every iteration may come by here often. */
	if (rc && !launch->cut_said)
		tpck_log_warn("step %" PRIu64 " is abandoned: the ranks are not at the same place: %s", step, err.text);
	else if (rc)
		tpck_log_debug("step %" PRIu64 " is abandoned: %s", step, err.text);
	launch->cut_said = launch->cut_said || rc;
	return rc == 0;
}

int launch_counts(const struct launch *launch, uint64_t step, struct tpck_counts *counts)
{
	const struct live *live;
	uint32_t at = 0;
	int rc = 0;

	while (!rc && (live = launch_next(launch, &at))) {
		int i = live_image_of(live, step);

		if (i >= 0)
			rc = tpck_counts_add_image(counts, &live->images[i].map);
	}
	return rc;
}

/* The images do not change meanwhile. */
static bool one_cut(struct launch *launch, uint64_t step)
{
	struct tpck_counts counts = {0};
	bool is_one = launch_counts(launch, step, &counts) == 0 && launch_is_one_cut(launch, &counts, step);

	tpck_counts_free(&counts);
	return is_one;
}

static void uncommit(struct live *live, uint64_t step, enum tpck_image_state to)
{
	int i = live_image_of(live, step);

	if (i >= 0)
		live_image_state(live, (unsigned)i, TPCK_IMAGE_COMMITTED, to);
}

/*
 * All or none: until every image has changed its state the ones before are kept, and a process that takes one of these
 * back for a newer snapshot meanwhile undoes the rest.
 */
static bool commit(struct agent *agent, struct launch *launch, uint64_t step)
{
	const struct rank_here *rank = launch->here.row;
	uint32_t done = 0;

	for (; done < launch->world; done++) {
		struct live *live = rank[done].live;
		int found = live_image_of(live, step);
		unsigned i = (unsigned)found;
		struct tpck_image_header *header = found < 0 ? NULL : live->images[i].map.header;

		/* All held it a moment ago, and this process has taken its image back since. */
		if (!header)
			break;
		if (atomic_load(&header->state) != TPCK_IMAGE_COMMITTED &&
		    (!live_image_state(live, i, TPCK_IMAGE_HELD, TPCK_IMAGE_COMMITTED)))
			break;
		if (header->step != step) {
			live_image_state(live, i, TPCK_IMAGE_COMMITTED, TPCK_IMAGE_HELD);
			break;
		}
	}
	if (done < launch->world) {
		while (done--)
			uncommit(rank[done].live, step, TPCK_IMAGE_HELD);
		return false;
	}
	/* Only now do the images stay as they are while they are compared. */
	if (launch->world > 1 && !one_cut(launch, step)) {
		while (done--)
			uncommit(rank[done].live, step, TPCK_IMAGE_ABANDONED);
		return false;
	}
	tpck_log_debug("committed step %" PRIu64 " of generation %" PRIu64, step, launch->generation);
	for (uint32_t i = 0; i < launch->world; i++) {
		atomic_store(&rank[i].live->session->control->committed_step, step);
		live_committed(agent, rank[i].live, (unsigned)live_image_of(rank[i].live, step));
	}
	session_beyond->committed(launch);
	return true;
}

/* A rank that holds a newer step has left this one out: nobody needs it. */
static bool missed_by_one(const struct launch *launch, uint64_t step)
{
	const struct live *live;
	uint32_t at = 0;

	while ((live = launch_next(launch, &at))) {
		if (live_image_of(live, step) >= 0)
			continue;
		for (unsigned i = 0; i < live->image_count; i++) {
			const struct tpck_image_header *header = live->images[i].map.header;
			uint32_t state = atomic_load(&((struct tpck_image_header *)(uintptr_t)header)->state);

			if (live->images[i].good && state == TPCK_IMAGE_HELD && live->images[i].good_step > step)
				return true;
		}
	}
	return false;
}

static void abandon_missed(struct launch *launch)
{
	struct live *live;
	uint32_t at = 0;

	while ((live = launch_next(launch, &at))) {
		for (unsigned i = 0; i < live->image_count; i++) {
			uint64_t step = live->images[i].good_step;

			if (!live->images[i].good || live_image_of(live, step) != (int)i || !missed_by_one(launch, step))
				continue;
			if (live_image_state(live, i, TPCK_IMAGE_HELD, TPCK_IMAGE_ABANDONED))
				tpck_log_debug("step %" PRIu64 " of rank %u is abandoned: another rank left it out", step,
					       live->session->name.rank);
		}
	}
}

void launch_held(struct agent *agent, struct live *live)
{
	struct launch *launch = live->launch;
	bool any = false;
	uint64_t best = 0;

	if (launch->apart) {
		launch_apart->held(agent, live);
		return;
	}
	for (unsigned i = 0; i < live->image_count; i++) {
		uint64_t step = live->images[i].good_step;

		if (live->images[i].good && live_image_of(live, step) == (int)i &&
		    atomic_load(&live->images[i].map.header->state) == TPCK_IMAGE_HELD && (!any || step > best) &&
		    held_by_all(launch, step)) {
			any = true;
			best = step;
		}
	}
	if (any)
		commit(agent, launch, best);
	if (launch->world > 1)
		abandon_missed(launch);
}

/* The last agent may have died between committing an image and comparing it. */
static bool one_adopted_cut(struct launch *launch, uint64_t step)
{
	if (launch->world == 1)
		return true;
	for (uint32_t i = 0; i < launch->world; i++) {
		const struct live *live = launch->here.row[i].live;
		int found = live_image_of(live, step);

		if (found < 0 || tpck_image_check(&live->images[found].map, live->images[found].path, NULL))
			return false;
	}
	return one_cut(launch, step);
}

void launch_settle_adopted(struct agent *agent)
{
	for (struct launch *launch = agent->launches; launch; launch = launch->next) {
		struct live *live;
		uint64_t best = 0;
		uint32_t at = 0;
		bool any = false;

		if (launch->apart) {
			launch_apart->adopt(launch);
			continue;
		}
		/* The newest that every rank has committed; what only some have, the last agent was about to. */
		for (unsigned i = 0; launch_is_whole(launch) && i < launch->here.row[0].live->image_count; i++) {
			struct tpck_image_header *header = launch->here.row[0].live->images[i].map.header;
			bool all = atomic_load(&header->state) == TPCK_IMAGE_COMMITTED;

			for (uint32_t r = 1; all && r < launch->world; r++)
				all = live_image_of(launch->here.row[r].live, header->step) >= 0;
			if (all && (!any || header->step > best) && one_adopted_cut(launch, header->step)) {
				best = header->step;
				any = true;
			}
		}
		while ((live = launch_next(launch, &at))) {
			for (unsigned i = 0; i < live->image_count; i++) {
				struct tpck_image_header *header = live->images[i].map.header;

				if (atomic_load(&header->state) != TPCK_IMAGE_COMMITTED)
					continue;
				if (any && header->step == best) {
					live->newest = (int)i;
					live->newest_step = best;
				} else if (!any || header->step > best) {
					live_image_state(live, i, TPCK_IMAGE_COMMITTED, TPCK_IMAGE_HELD);
				} else if (live->pid > 0) {
					/* The last agent kept it while it was read. If all images are such, none would be free again. */
					live_image_state(live, i, TPCK_IMAGE_COMMITTED, TPCK_IMAGE_FREE);
				}
			}
		}
	}
}

/* ---- resuming ----------------------------------------------------------------------------- */

void launch_injected(struct agent *agent, struct launch *launch)
{
	if (!launch->apart && launch->here.count < launch->world)
		return;
	for (uint32_t i = 0; i < launch->here.count; i++) {
		const struct live *live = launch->here.row[i].live;

		if (!live || live->life != LIFE_RUNNING || !atomic_load(&live->session->control->injected))
			return;
	}
	if (launch->began_anew)
		return;
	if (launch->apart)
		launch_apart->injected(agent, launch);
	else
		launch_live(launch);
}

void launch_tell_id(const struct launch *launch, const struct live *from, const struct tpck_communicator_id *id)
{
	struct live *live;
	uint32_t at = 0;

	/* One that does not hear it now asks for it. */
	while ((live = launch_next(launch, &at)))
		if (live != from && live->client)
			(void)client_send(live->client, TPCK_MSG_ID, id, sizeof *id);
}

void launch_pass_id(struct agent *agent, const struct live *from, const struct tpck_communicator_id *id)
{
	struct launch *launch = from->launch;

	launch_tell_id(launch, from, id);
	if (launch->apart)
		launch_apart->pass_id(agent, launch, id);
}

void launch_live(struct launch *launch)
{
	struct live *live;
	uint32_t at = 0;

	while ((live = launch_next(launch, &at)))
		atomic_store(&live->session->control->go, TPCK_GO_LIVE);
}

void launch_start_over(struct launch *launch, const struct live *from, bool again)
{
	struct live *live;
	uint32_t at = 0;

	if (launch->began_anew)
		return;
	launch->began_anew = launch->closed = true;
	launch->over = again ? TPCK_GO_AGAIN : TPCK_GO_OVER;
	while ((live = launch_next(launch, &at)))
		if (live != from && live->life == LIFE_RUNNING)
			atomic_store(&live->session->control->go, launch->over);
}

/* ---- which boundary ----------------------------------------------------------------------- */

void launch_capture(struct agent *agent, struct launch *launch)
{
	uint64_t furthest, iteration_ns;

	if (!launch_is_whole(launch))
		return;
	if (launch->apart) {
		launch_apart->due(agent, launch);
		return;
	}
	launch_pace(launch, &furthest, &iteration_ns);
	/* One is named already that somebody has yet to reach. */
	if (launch->capture_step > furthest)
		return;
	launch_name(launch, furthest + 2 + (iteration_ns ? NAMED_AHEAD_NS / iteration_ns : 0));
}

void launch_pace(const struct launch *launch, uint64_t *furthest, uint64_t *iteration_ns)
{
	const struct live *live;
	uint32_t at = 0;

	*furthest = *iteration_ns = 0;
	while ((live = launch_next(launch, &at))) {
		const struct tpck_status *status = &live->session->control->status;

		if (status->boundaries > *furthest)
			*furthest = status->boundaries;
		if (status->iteration_ns && (!*iteration_ns || status->iteration_ns < *iteration_ns))
			*iteration_ns = status->iteration_ns;
	}
}

void launch_name(struct launch *launch, uint64_t step)
{
	struct live *live;
	uint32_t at = 0;

	launch->capture_step = step;
	while ((live = launch_next(launch, &at)))
		atomic_store(&live->session->control->capture_step, step);
}
