/* SPDX-License-Identifier: Apache-2.0 */
/* Accords: who leads which launch, and who hears what. */
#include "config.h"

#include "agent/accord/joint_launches.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/accord/accord_private.h"
#include "agent/programs/identity_text.h"
#include "agent/session/welcome.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"

/* What other nodes' agents lead. */
struct lead {
	char node[TPCK_PEER_NAME], host[TPCK_PEER_NAME];
	uint64_t key, number, generation;
	uint32_t world;
	bool closed, lacks, resumed;
	bool late; /* while it is said */
	char notice[300];
	struct lead *next;
};

static struct lead *leads;
static uint64_t numbers;

/* ---- life --------------------------------------------------------------------------------- */

struct accord *accord_new(void)
{
	return calloc(1, sizeof(struct accord));
}

void accord_free(struct launch *launch)
{
	struct accord *accord = launch->accord;

	if (!accord)
		return;
	if (accord->leads) {
		struct tpck_accord_message closed = accord_message(launch, TPCK_ACCORD_CLOSED);

		peers_talk(NULL, &closed, NULL, 0);
	}
	free(accord->identity);
	tpck_roll_free(accord->roll);
	tpck_ledger_free(accord->ledger);
	tpck_inquiry_free(&accord->inquiry);
	tpck_waiting_free(accord->waiting);
	accord_late_free(accord);
	free(accord->to_stage);
	free(accord->stored);
	free(accord);
	launch->accord = NULL;
}

struct tpck_accord_message accord_message(const struct launch *launch, enum tpck_accord_kind kind)
{
	return (struct tpck_accord_message){
		.kind = kind, .world = launch->world, .key = launch->key, .number = launch->accord->number,
		.generation = launch->generation,
	};
}

void accord_adopt(struct launch *launch)
{
	struct accord *accord = launch->accord;
	struct live *live;
	uint32_t at = 0;

	launch->closed = true;
	accord->phase = ACCORD_RUNNING;
	while ((live = launch_next(launch, &at))) {
		uint64_t step = atomic_load(&live->session->control->committed_step);
		int i = step ? live_image_of(live, step) : -1;

		for (unsigned k = 0; k < live->image_count; k++)
			if (atomic_load(&live->images[k].map.header->state) == TPCK_IMAGE_COMMITTED) {
				atomic_fetch_add(&live->images[k].map.header->pins, 1);
				live->images[k].adopted = true;
			}
		if (i < 0)
			continue;
		live->newest = i;
		live->newest_step = accord->committed = step;
	}
	/* Who led may have told some only. */
	accord->live = accord_has_live(launch);
	if (accord_is_starting(launch))
		accord->until_ns = tpck_clock_monotonic_ns() + ACCORD_NEXT_NS;
}

/* ---- speaking ----------------------------------------------------------------------------- */

void accord_tell_leader(struct agent *agent, struct launch *launch, struct tpck_accord_message *message, const void *more, size_t size)
{
	struct accord *accord = launch->accord;

	message->number = accord->number;
	if (accord->leads)
		accord_hear(agent, launch, peers_node(), message, more, size);
	else if (accord->leader[0])
		peers_talk(accord->leader, message, more, size);
}

static void tell_others(struct launch *launch, struct tpck_accord_message *message, const void *more, size_t size)
{
	const char *node;
	size_t at = 0;

	message->number = launch->accord->number;
	while ((node = tpck_ledger_node(launch->accord->ledger, &at)))
		if (strcmp(node, peers_node()) != 0)
			peers_talk(node, message, more, size);
}

void accord_tell_all(struct agent *agent, struct launch *launch, struct tpck_accord_message *message, const void *more, size_t size)
{
	tell_others(launch, message, more, size);
	accord_obey(agent, launch, message, more, size);
}

void accord_do_and_tell_all(struct agent *agent, struct launch *launch, struct tpck_accord_message *message, const void *more, size_t size)
{
	accord_obey(agent, launch, message, more, size);
	tell_others(launch, message, more, size);
}

void accord_announce(const struct launch *launch, const char *node, enum tpck_lead whom)
{
	const struct accord *accord = launch->accord;
	struct tpck_accord_message message = accord_message(launch, TPCK_ACCORD_LEAD);

	/* As long as it is being staged nobody has begun. */
	if (accord->phase != ACCORD_RUNNING)
		message.generation = 0;
	if (accord->resumed) {
		message.parent = accord->point.generation;
		message.step = accord->point.step;
	}
	message.value = whom;
	message.value2 = accord->lacks;
	peers_talk(node, &message, accord->notice, strlen(accord->notice) + 1);
}

static void announce(const struct launch *launch, const char *node)
{
	accord_announce(launch, node, launch->closed ? TPCK_LEAD_CLOSED : TPCK_LEAD_OPEN);
}

/* ---- who leads ---------------------------------------------------------------------------- */

static const struct tpck_hello *hello_of(const struct client *client)
{
	return (const struct tpck_hello *)client->deferred;
}

void accord_say_member(struct agent *agent, struct launch *launch, struct tpck_accord_message *message, const char *identity)
{
	struct accord *accord = launch->accord;
	struct tpck_accord_member member = {.form = ""};

	_Static_assert(sizeof member.form >= IDENTITY_FORM, "a form and its NUL");
	tpck_identity_key(identity, &member.key);
	identity_form(identity, member.form);
	if (accord->leads && message->rank == 0) {
		char *text = strdup(identity);

		if (!text)
			return;
		free(accord->identity);
		accord->identity = text;
	}
	accord_tell_leader(agent, launch, message, &member, sizeof member);
}

static void say_member(struct agent *agent, struct launch *launch, const struct tpck_hello *hello, const char *identity)
{
	struct tpck_accord_message message = accord_message(launch, TPCK_ACCORD_MEMBER);

	message.rank = hello->rank;
	message.ordinal = hello->ordinal;
	message.step = hello->resume_step;
	message.value = hello->flags;
	message.value2 = 1;
	if (!message.generation)
		message.generation = welcome_missed(hello->launch, hello->rank, hello->ordinal);
	accord_say_member(agent, launch, &message, identity);
}

void accord_say_members(struct agent *agent, struct launch *launch)
{
	for (struct client *client = agent->clients; client; client = client->next)
		if (client->launch == launch && client->deferred && !client->busy)
			say_member(agent, launch, hello_of(client), client->deferred + sizeof(struct tpck_hello));
	hello_each_staged(agent, launch, say_member);
}

/* The others have begun: so do those who wait here. */
static void follow(struct agent *agent, struct launch *launch, uint64_t generation, const char *notice)
{
	launch->generation = generation;
	launch->accord->phase = ACCORD_RUNNING;
	hello_go(agent, launch, false, 0, notice);
}

static bool is_followed(const struct agent *agent, const struct lead *lead)
{
	for (const struct launch *launch = agent->launches; launch; launch = launch->next)
		if (launch->apart && launch->accord->number == lead->number && strcmp(launch->accord->leader, lead->node) == 0)
			return true;
	return false;
}

static void find_leader(struct agent *agent, struct launch *launch)
{
	struct accord *accord = launch->accord;

	for (struct lead *lead = leads; lead; lead = lead->next) {
		bool runs = accord->phase == ACCORD_RUNNING && launch->generation;

		if (lead->key != launch->key || lead->world != launch->world || is_followed(agent, lead) ||
		    (runs && lead->generation != launch->generation))
			continue;
		if (!runs && !lead->late && (lead->closed || (lead->generation && lead->resumed))) {
			if (lead->generation)
				accord_late_ask(agent, launch, lead->node, lead->number);
			continue;
		}
		memcpy(accord->leader, lead->node, sizeof accord->leader);
		accord->number = lead->number;
		accord->lacks = lead->lacks;
		accord->next_ns = 0;
		accord->late = !runs && lead->late;
		if (accord->late)
			return;
		accord_say_members(agent, launch);
		if (runs)
			accord_rejoin(agent, launch);
		else if (lead->generation)
			follow(agent, launch, lead->generation, lead->notice);
		return;
	}
}

/* False: there is no memory, and nobody leads. */
static bool lead(struct launch *launch)
{
	struct accord *accord = launch->accord;

	accord->roll = tpck_roll_new(launch->world);
	accord->ledger = tpck_ledger_new(launch->world);
	if (!accord->roll || !accord->ledger) {
		tpck_roll_free(accord->roll);
		tpck_ledger_free(accord->ledger);
		accord->roll = NULL;
		accord->ledger = NULL;
		return false;
	}
	if (!numbers)
		numbers = tpck_clock_realtime_ns();
	accord->leads = true;
	accord->number = ++numbers;
	accord->announced = launch->generation;
	if (launch->generation)
		accord_late_adopt(launch);
	snprintf(accord->leader, sizeof accord->leader, "%s", peers_node());
	announce(launch, NULL);
	return true;
}

static bool is_taken(const struct agent *agent, const struct launch *launch, uint32_t rank)
{
	for (const struct launch *other = agent->launches; other; other = other->next) {
		const struct live *live;

		if (other == launch || !other->apart || other->key != launch->key || other->world != launch->world || other->began_anew)
			continue;
		live = launch_rank(other, rank);
		if (live && live->life == LIFE_RUNNING)
			return true;
	}
	return false;
}

void accord_came(struct agent *agent, struct launch *launch, const struct tpck_hello *hello, const char *identity)
{
	struct accord *accord = launch->accord;
	char why[200];

	if (peers_awaited()) {
		/* The process says it again to that one. */
		tpck_log_info("rank %u of %u waits for the agent that mpirun is to start here", hello->rank, launch->world);
		return;
	}
	if (!peers_on()) {
		hello_refuse(agent, launch, "some of the ranks are on other nodes, and this node's agent does not speak with others (TRANSPCKPT_PEERS, UCX)");
		return;
	}
	if (is_taken(agent, launch, hello->rank)) {
		snprintf(why, sizeof why, "another process is rank %u already", hello->rank);
		hello_refuse(agent, launch, why);
		return;
	}
	if (accord->leader[0]) {
		say_member(agent, launch, hello, identity);
		return;
	}
	if (hello->rank != 0) {
		find_leader(agent, launch);
		return;
	}
	if (lead(launch))
		accord_say_members(agent, launch);
	else
		hello_refuse(agent, launch, "out of memory");
}

void accord_welcomed(struct launch *launch)
{
	struct accord *accord = launch->accord;

	if (!accord->leads || accord->announced == launch->generation)
		return;
	accord->announced = launch->generation;
	announce(launch, NULL);
}

static void note_lead(struct agent *agent, const char *node, const char *host, const struct tpck_accord_message *message,
		      const char *notice)
{
	struct lead *lead = leads;

	while (lead && (lead->number != message->number || strcmp(lead->node, node) != 0))
		lead = lead->next;
	if (!lead) {
		lead = calloc(1, sizeof *lead);
		if (!lead)
			return;
		lead->next = leads;
		leads = lead;
	}
	snprintf(lead->node, sizeof lead->node, "%s", node);
	snprintf(lead->host, sizeof lead->host, "%s", host);
	snprintf(lead->notice, sizeof lead->notice, "%.290s", notice);
	lead->key = message->key;
	lead->world = message->world;
	lead->number = message->number;
	lead->generation = message->generation;
	lead->closed = message->value != TPCK_LEAD_OPEN;
	lead->late = message->value == TPCK_LEAD_LATE;
	lead->lacks = message->value2 != 0;
	lead->resumed = message->parent != 0;
	for (struct launch *launch = agent->launches; launch; launch = launch->next) {
		struct accord *accord = launch->accord;

		if (!launch->apart || accord->leads || accord->broken ||
		    (launch->closed && (!launch->generation || accord->phase != ACCORD_RUNNING)))
			continue;
		if (accord->number == lead->number && strcmp(accord->leader, node) == 0)
			accord->lacks = lead->lacks;
		if (!accord->leader[0])
			find_leader(agent, launch);
		else if (accord->number == lead->number && strcmp(accord->leader, node) == 0 && lead->generation && accord->phase == ACCORD_GATHERING &&
			 !accord->late)
			follow(agent, launch, lead->generation, lead->notice);
	}
	lead->late = false;
}

/* number 0: all that the node leads. */
static void forget_leads(const char *node, uint64_t number)
{
	for (struct lead **place = &leads; *place;) {
		struct lead *lead = *place;

		if (strcmp(lead->node, node) == 0 && (!number || lead->number == number)) {
			*place = lead->next;
			free(lead);
		} else {
			place = &lead->next;
		}
	}
}

/* ---- hearing ------------------------------------------------------------------------------ */

void accord_obey(struct agent *agent, struct launch *launch, const struct tpck_accord_message *message, const char *more, size_t size)
{
	if (message->kind <= TPCK_ACCORD_OVER)
		accord_start_obey(agent, launch, message, more, size);
	else if (message->kind == TPCK_ACCORD_WAITING)
		accord_stalls_obey(launch, more, size);
	else if (message->kind == TPCK_ACCORD_ID)
		accord_ids_obey(launch, message, more, size);
	else
		accord_steps_obey(agent, launch, message, more, size);
}

void accord_hear(struct agent *agent, struct launch *launch, const char *node, const struct tpck_accord_message *message,
		 const char *more, size_t size)
{
	if (message->rank >= launch->world)
		return;
	if (message->kind <= TPCK_ACCORD_OVER)
		accord_start_hear(agent, launch, node, message, more, size);
	else if (message->kind == TPCK_ACCORD_ID)
		accord_ids_hear(agent, launch, message, more, size);
	else if (message->kind == TPCK_ACCORD_STALLED)
		accord_stalls_hear(agent, launch, node, message, more, size);
	else
		accord_steps_hear(agent, launch, node, message, more, size);
}

static struct launch *launch_of(struct agent *agent, const char *node, const struct tpck_accord_message *message)
{
	for (struct launch *launch = agent->launches; launch; launch = launch->next)
		if (launch->apart && launch->accord->number == message->number && launch->world == message->world &&
		    (launch->accord->leads || strcmp(launch->accord->leader, node) == 0))
			return launch;
	return NULL;
}

/* Nothing comes of the launch that ranks here wait in, since one of its others is gone: whoever is in that one's place may lead the next. */
static void leave_closed(struct agent *agent, struct launch *launch)
{
	struct accord *accord = launch->accord;
	uint64_t until;

	if (accord->phase != ACCORD_GATHERING || !hello_waiting(agent, launch, &until)) {
		launch->closed = true;
		return;
	}
	accord->leader[0] = '\0';
	accord->number = 0;
	find_leader(agent, launch);
}

static void said(struct agent *agent, const char *node, const char *host, const struct tpck_accord_message *message, const char *more, size_t size)
{
	struct launch *launch = launch_of(agent, node, message);

	if (message->kind == TPCK_ACCORD_LEAD) {
		note_lead(agent, node, host, message, size ? more : "");
	} else if (message->kind == TPCK_ACCORD_CLOSED) {
		forget_leads(node, message->number);
		if (launch && !launch->accord->leads && !launch->accord->late)
			leave_closed(agent, launch);
	} else if (message->kind == TPCK_ACCORD_ASK) {
		accord_answer(agent, node, message, more, size);
	} else if (message->kind == TPCK_ACCORD_RETIRE) {
		accord_retire(agent, message->generation, more, size);
	} else if (message->kind >= TPCK_ACCORD_LEFT) {
		return; /* salvage hears it, or who looks after twins */
	} else if (message->kind == TPCK_ACCORD_HOLDS) {
		if (launch && launch->accord->leads)
			accord_take_holdings(launch, node, message, more, size);
	} else if (launch && launch->accord->leads) {
		accord_hear(agent, launch, node, message, more, size);
	} else if (launch) {
		accord_obey(agent, launch, message, more, size);
	}
}

static void met(struct agent *agent, const char *node)
{
	accord_note_node(node, true);
	for (struct launch *launch = agent->launches; launch; launch = launch->next)
		if (launch->apart && launch->accord->leads && !launch->accord->broken) {
			announce(launch, node);
			accord_ask_met(launch, node);
		}
}

/* False: it had none. */
static bool ranks_leave(struct accord *accord, const char *node)
{
	uint32_t at = 0, rank;

	while (tpck_ledger_rank(accord->ledger, node, &at, &rank))
		tpck_roll_leave(accord->roll, rank);
	return tpck_ledger_leave(accord->ledger, node);
}

static void lost(struct agent *agent, const char *node, const char *host)
{
	accord_note_node(node, false);
	forget_leads(node, 0);
	for (struct launch *launch = agent->launches; launch; launch = launch->next) {
		struct accord *accord = launch->accord;

		if (!launch->apart)
			continue;
		accord_stalls_forget(launch, node);
		accord_late_forget(launch, node);
		if (accord->broken)
			continue;
		if (accord->leads ? ranks_leave(accord, node) : strcmp(accord->leader, node) == 0)
			accord_break(agent, launch, host);
	}
	accord_forget_asked(agent, node);
}

const struct launch_apart accord_apart = {
	.create = accord_new,
	.free = accord_free,
	.came = accord_came,
	.staged = accord_staged,
	.welcomed = accord_welcomed,
	.held = accord_held,
	.adopt = accord_adopt,
	.newest = accord_newest,
	.due = accord_due,
	.may_flush = accord_may_flush,
	.hurries = accord_hurries,
	.flush = accord_flush,
	.joined = accord_joined,
	.is_broken = accord_is_broken,
	.pass_id = accord_pass_id,
	.injected = accord_injected,
	.over = accord_over,
	.stalled = accord_stalled,
	.ended = accord_ended,
};

const struct peers_hearer accord_hears = {.met = met, .lost = lost, .said = said, .copied = accord_copied};

/* Those that follow do not know who else has ranks: whether all are there is as the leader says. */
static void say_what_lacks(const struct launch *launch)
{
	struct accord *accord = launch->accord;
	bool lacks = accord->leads && accord->phase == ACCORD_RUNNING && launch->generation && !tpck_ledger_is_complete(accord->ledger);

	if (!accord->leads || accord->lacks == lacks)
		return;
	accord->lacks = lacks;
	announce(launch, NULL);
}

static void consider(struct agent *agent)
{
	accord_answer_all(agent);
	for (struct launch *launch = agent->launches; launch; launch = launch->next) {
		struct accord *accord = launch->accord;

		if (!launch->apart)
			continue;
		if (accord->leads && launch->closed && !accord->closed_said) {
			struct tpck_accord_message closed = accord_message(launch, TPCK_ACCORD_CLOSED);

			accord->closed_said = true;
			peers_talk(NULL, &closed, NULL, 0);
			/* Ranks of its generation may still come. */
			if (accord->phase == ACCORD_RUNNING && launch->generation)
				announce(launch, NULL);
		}
		/* The node's last agent led the launch. */
		if (accord->phase == ACCORD_RUNNING && launch->generation && !accord->leader[0] && launch_rank(launch, 0) && !accord->broken && peers_on() && lead(launch))
			accord_rejoin(agent, launch);
		if (agent->stopping && !accord->leads && !accord->haste_said && !launch_settled(launch)) {
			struct tpck_accord_message haste = accord_message(launch, TPCK_ACCORD_HASTE);

			accord->haste_said = true;
			accord_tell_leader(agent, launch, &haste, NULL, 0);
		}
		accord_start_consider(agent, launch);
		say_what_lacks(launch);
	}
}

static uint64_t deadline(const struct agent *agent)
{
	uint64_t soonest = accord_answer_deadline(), now = tpck_clock_monotonic_ns();

	for (const struct launch *launch = agent->launches; launch; launch = launch->next) {
		if (launch->apart && launch->accord->next_ns && launch->accord->next_ns < soonest)
			soonest = launch->accord->next_ns;
		if (!launch->apart || !launch->accord->until_ns)
			continue;
		if (launch->accord->until_ns < soonest)
			soonest = launch->accord->until_ns;
		/* Who is met says nothing to this thread. */
		if ((launch->accord->phase == ACCORD_GATHERING || launch->accord->phase == ACCORD_ASKING) && now + ACCORD_LOOK_NS < soonest)
			soonest = now + ACCORD_LOOK_NS;
	}
	return soonest;
}

const struct loop_part accord_loop = {.consider = consider, .deadline = deadline};
