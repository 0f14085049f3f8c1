/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Latecomers: ranks that were ready when the leader said that all begin, and whose node has not heard it, since its agent died then, or the leader's.
 * Nothing has come of them, and the others wait at the step that they go on from: the leader has them made ready again, and says it again.
 */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/accord/accord_private.h"
#include "agent/session/welcome.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"

/* How long they may take: the others wait. */
#define LATE_NS 600000000000ull

struct accord_late {
	char node[TPCK_PEER_NAME];
	uint64_t attempt; /* of its STAGE; 0: it has heard nothing yet */
	struct accord_late *next;
};

/* ---- as the node that waits --------------------------------------------------------------- */

void accord_late_ask(struct agent *agent, struct launch *launch, const char *leader, uint64_t number)
{
	struct accord *accord = launch->accord;

	/* Nobody is followed until the answer is there: this may be an old launch of the same job. */
	snprintf(accord->leader, sizeof accord->leader, "%s", leader);
	accord->number = number;
	accord_say_members(agent, launch);
	accord->leader[0] = '\0';
}

/* ---- as the leader ------------------------------------------------------------------------ */

static struct accord_late *find(const struct accord *accord, const char *node)
{
	struct accord_late *late = accord->latecomers;

	while (late && strcmp(late->node, node) != 0)
		late = late->next;
	return late;
}

static struct accord_late *find_or_add(struct accord *accord, const char *node)
{
	struct accord_late *late = find(accord, node);

	if (late)
		return late;
	late = calloc(1, sizeof *late);
	if (!late)
		return NULL;
	snprintf(late->node, sizeof late->node, "%s", node);
	late->next = accord->latecomers;
	accord->latecomers = late;
	return late;
}

/* What a rank was made ready for says of which start it is. Of one that went on from nothing a node may not have heard yet. */
static bool is_of(const struct launch *launch, const struct tpck_accord_message *message)
{
	const struct accord *accord = launch->accord;

	if (accord->broken || accord->live || launch->began_anew || (launch_first(launch) && launch_is_dead(launch)))
		return false;
	if (message->generation)
		return message->generation == launch->generation;
	/* Who goes on in the place of one that has failed belongs to the next. */
	return !accord->resumed && !(message->value & (TPCK_HELLO_IN_PLACE | TPCK_HELLO_TAKES_OVER | TPCK_HELLO_STANDS_IN)) &&
	       !tpck_ledger_where(accord->ledger, message->rank);
}

bool accord_late_hear(struct launch *launch, const char *node, const struct tpck_accord_message *message,
		      const struct tpck_accord_member *member)
{
	struct accord *accord = launch->accord;
	bool asks = (message->value & (TPCK_HELLO_RESUME | TPCK_HELLO_LATE)) == TPCK_HELLO_RESUME;

	if (!message->value2 || accord->phase != ACCORD_RUNNING || (!launch->closed && !accord->resumed))
		return false;
	if (!is_of(launch, message) || !find_or_add(accord, node) ||
	    tpck_roll_enter(accord->roll, message->rank, message->ordinal, &member->key, member->form, asks) ||
	    tpck_ledger_join(accord->ledger, message->rank, node))
		return true;
	tpck_log_info("rank %" PRIu32 " has not heard yet that all ranks of generation %" PRIu64 " begin", message->rank, launch->generation);
	accord_announce(launch, node, TPCK_LEAD_LATE);
	accord_late_consider(launch);
	return true;
}

static void say_start(const struct launch *launch, const char *node)
{
	const struct accord *accord = launch->accord;
	struct tpck_accord_message start = accord_message(launch, TPCK_ACCORD_START);

	start.value = accord->resumed ? TPCK_BEGINS_STAGED : launch->own ? TPCK_BEGINS_OWN : TPCK_BEGINS_ANEW;
	start.value2 = accord->ports;
	peers_talk(node, &start, accord->notice, strlen(accord->notice) + 1);
	accord_late_forget((struct launch *)launch, node);
}

void accord_late_consider(struct launch *launch)
{
	struct accord *accord = launch->accord;
	struct accord_late *next;

	if (!accord->latecomers || !tpck_ledger_is_complete(accord->ledger))
		return;
	for (struct accord_late *late = accord->latecomers; late; late = next) {
		struct tpck_accord_message stage = accord_message(launch, TPCK_ACCORD_STAGE);

		next = late->next;
		if (!accord->resumed) {
			say_start(launch, late->node);
		} else if (!late->attempt) {
			/* What it had got from others it has. */
			late->attempt = stage.value2 = ++accord->attempt;
			stage.parent = accord->point.generation;
			stage.step = accord->point.step;
			peers_talk(late->node, &stage, NULL, 0);
			accord->until_ns = tpck_clock_monotonic_ns() + LATE_NS;
		}
	}
}

void accord_late_staged(struct agent *agent, struct launch *launch, const char *node, const struct tpck_accord_message *message, const char *why)
{
	struct accord *accord = launch->accord;
	struct accord_late *late = find(accord, node);

	if (!late || message->generation != launch->generation || message->value2 != late->attempt)
		return;
	if (message->value == LAUNCH_STAGED_ALL) {
		say_start(launch, node);
	} else {
		struct tpck_accord_message over = accord_message(launch, TPCK_ACCORD_OVER);

		tpck_log_warn("step %" PRIu64 " of generation %" PRIu64 ": rank %" PRIu32 ", whose agent was gone: %s", accord->point.step,
			      accord->point.generation, message->rank, why);
		over.parent = accord->point.generation;
		over.step = accord->point.step;
		over.value = 1;
		accord_late_free(accord);
		accord_tell_all(agent, launch, &over, NULL, 0);
	}
}

void accord_late_forget(struct launch *launch, const char *node)
{
	struct accord_late *late = find(launch->accord, node), **place = &launch->accord->latecomers;

	if (!late)
		return;
	while (*place != late)
		place = &(*place)->next;
	*place = late->next;
	free(late);
}

void accord_late_free(struct accord *accord)
{
	while (accord->latecomers) {
		struct accord_late *late = accord->latecomers;

		accord->latecomers = late->next;
		free(late);
	}
}

bool accord_late_any(const struct launch *launch)
{
	return launch->accord->latecomers != NULL;
}

void accord_late_adopt(struct launch *launch)
{
	struct accord *accord = launch->accord;
	const struct live *live = launch_rank(launch, 0);

	if (!live || !live->session->control->parent_generation)
		return;
	accord->resumed = true;
	accord->point = (struct tpck_point){live->session->control->parent_generation, live->session->control->resume_step};
	accord->ports = welcome_ports(live->session);
}
