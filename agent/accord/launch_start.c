/* SPDX-License-Identifier: Apache-2.0 */
/* The start of a launch on several nodes: who is there, what each node has, and what all go on from. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/accord/accord_private.h"
#include "agent/programs/identity_text.h"
#include "agent/session/clerk.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"

#define SEC 1000000000ull
/* How long nodes may take to say what they have; to be met before; and ranks to make ready. */
#define ASK_NS (3 * SEC)
/*
 * As long as there is nothing to go on from they may take longer, and so may those that are still being met: by a link that loses packets an answer can
 * take that long, and what the job has must not be passed over for it. One that is dead is given up before.
 */
#define PATIENT_NS (10 * SEC)
#define STAGE_NS (600 * SEC)
/* How often all are asked anew since somebody was gone that was to give a part: later on it counts as one that is not good. */
enum { GONE_TIMES = 8 };

const char accord_gone[] = "not resuming: a node that has ranks of this job is gone";

/* Nodes that have been met, and which of them are there: by their names' numbers. */
static struct {
	struct tpck_names names;
	bool *is_there;
	size_t room;           /* of is_there */
} met;

void accord_note_node(const char *name, bool there)
{
	uint32_t number = there ? tpck_names_add(&met.names, name) : tpck_names_find(&met.names, name);

	if (number == TPCK_NO_NAME)
		return;
	if (number >= met.room) {
		size_t room = 2 * (size_t)number + 16;
		bool *grown = realloc(met.is_there, room * sizeof *grown);

		if (!grown)
			return;
		memset(grown + met.room, 0, (room - met.room) * sizeof *grown);
		met.is_there = grown;
		met.room = room;
	}
	met.is_there[number] = there;
}

void accord_each_node(void (*visit)(void *context, const char *node), void *context)
{
	for (size_t i = 0; i < met.names.count && i < met.room; i++)
		if (met.is_there[i])
			visit(context, met.names.name[i]);
}

static bool asks(uint64_t flags)
{
	return (flags & (TPCK_HELLO_RESUME | TPCK_HELLO_LATE)) == TPCK_HELLO_RESUME;
}

/* ---- what all have ------------------------------------------------------------------------ */

static void take_rows(struct launch *launch, uint32_t node, const struct tpck_accord_holding *rows, size_t count)
{
	struct accord *accord = launch->accord;

	for (size_t i = 0; i < count; i++)
		if (rows[i].resumable && tpck_roll_is(accord->roll, rows[i].rank, rows[i].ordinal, rows[i].form) &&
		    tpck_inquiry_add(&accord->inquiry, &(struct tpck_evidence){
							       .point = {rows[i].generation, rows[i].step}, .rank = rows[i].rank,
							       .kind = rows[i].kind, .node = node, .data = rows[i].data,
							       .parity = rows[i].parity, .index = rows[i].index,
						       }))
			break;
}

void accord_take_holdings(struct launch *launch, const char *node, const struct tpck_accord_message *message,
			  const char *more, size_t size)
{
	struct accord *accord = launch->accord;
	struct tpck_accord_holding *rows;
	uint32_t number;

	if (accord->phase != ACCORD_ASKING || !tpck_inquiry_answered(&accord->inquiry, node, &number))
		return;
	peers_heard(message->value);
	rows = calloc(size / sizeof *rows + 1, sizeof *rows);
	if (!rows)
		return;
	memcpy(rows, more, size / sizeof *rows * sizeof *rows);
	take_rows(launch, number, rows, size / sizeof *rows);
	free(rows);
}

void accord_forget_asked(struct agent *agent, const char *node)
{
	for (struct launch *launch = agent->launches; launch; launch = launch->next)
		if (launch->apart)
			tpck_inquiry_gone(&launch->accord->inquiry, node);
}

char *accord_forms(const struct launch *launch, size_t *size)
{
	const struct tpck_names *names = tpck_roll_forms(launch->accord->roll);
	char *forms = malloc(names->count * IDENTITY_FORM + 1);

	*size = names->count * IDENTITY_FORM;
	for (size_t i = 0; forms && i < names->count; i++)
		memcpy(forms + i * IDENTITY_FORM, names->name[i], IDENTITY_FORM);
	return forms;
}

static void ask_node(const struct launch *launch, const char *node)
{
	struct tpck_accord_message message = accord_message(launch, TPCK_ACCORD_ASK);
	size_t size;
	char *forms = accord_forms(launch, &size);

	message.ordinal = launch->accord->ordinal;
	if (forms)
		peers_talk(node, &message, forms, size);
	free(forms);
}

/* One that there is no memory for is not waited for. */
static void add_asked(void *inquiry, const char *node)
{
	(void)tpck_inquiry_ask(inquiry, node);
}

static void ask(struct agent *agent, struct launch *launch)
{
	struct accord *accord = launch->accord;
	struct accord_holdings here;
	size_t size;
	char *forms = accord_forms(launch, &size);

	if (!forms)
		return;
	accord_each_node(add_asked, &accord->inquiry);
	here = accord_holdings_here(agent, forms, size);
	take_rows(launch, TPCK_NO_NAME, here.row, here.count);
	free(here.row);
	free(forms);
	ask_node(launch, NULL);
}

void accord_ask_met(struct launch *launch, const char *node)
{
	struct accord *accord = launch->accord;
	size_t waiting = accord->inquiry.waiting;

	if (accord->phase == ACCORD_ASKING && accord->leads && !tpck_inquiry_ask(&accord->inquiry, node) && accord->inquiry.waiting > waiting)
		ask_node(launch, node);
}

/* Whether all have said what they have, or enough for as long as it took. */
static bool is_asked_out(const struct launch *launch, uint64_t now)
{
	struct accord *accord = launch->accord;
	struct tpck_point point;

	if ((!accord->inquiry.waiting && !peers_settling()) || now >= accord->asked_ns + PATIENT_NS)
		return true;
	return (!accord->inquiry.waiting || now >= accord->asked_ns + ASK_NS) &&
	       tpck_consensus(accord->inquiry.rows, accord->inquiry.count, NULL, 0, launch->world, accord->wanted, &point);
}

/* ---- the leader's choice ------------------------------------------------------------------ */

void accord_start_anew(struct agent *agent, struct launch *launch, const char *notice)
{
	struct accord *accord = launch->accord;
	struct tpck_accord_message message;

	snprintf(accord->notice, sizeof accord->notice, "%.290s", notice);
	if (!launch->generation) {
		/* The others hear of it once there is a generation. */
		accord->phase = ACCORD_RUNNING;
		accord->until_ns = 0;
		hello_go(agent, launch, false, hello_ports(), accord->notice);
		return;
	}
	message = accord_message(launch, TPCK_ACCORD_START);
	message.value = accord->own.chosen ? TPCK_BEGINS_OWN : TPCK_BEGINS_ANEW;
	message.value2 = hello_ports();
	accord_do_and_tell_all(agent, launch, &message, accord->notice, strlen(accord->notice) + 1);
}

/* What ranks of one node get from others; malloc'd. NULL: there is no memory. */
static struct tpck_accord_source *sources_for(struct launch *launch, const char *node, size_t *size)
{
	struct accord *accord = launch->accord;
	uint32_t here = tpck_names_find(&accord->inquiry.nodes, node), at = 0, r;
	struct tpck_accord_source *sources = calloc(tpck_ledger_ranks(accord->ledger, node) + 1, sizeof *sources);
	size_t count = 0;

	while (sources && tpck_ledger_rank(accord->ledger, node, &at, &r)) {
		const struct tpck_evidence *from;

		from = tpck_consensus_source(accord->inquiry.rows, accord->inquiry.count, &accord->point, r, here);
		if (!from || (from->node == here && from->kind != TPCK_HOLDING_FRAGMENT))
			continue;
		sources[count] = (struct tpck_accord_source){.rank = r, .ordinal = tpck_roll_ordinal(accord->roll, r)};
		if (from->kind != TPCK_HOLDING_FRAGMENT)
			snprintf(sources[count].node, sizeof sources[count].node, "%s",
				 from->node == TPCK_NO_NAME ? peers_node() : accord->inquiry.nodes.name[from->node]);
		count++;
	}
	*size = count * sizeof *sources;
	return sources;
}

/* False: there is no memory. */
static bool say_stage(struct agent *agent, struct launch *launch, const char *node, struct tpck_accord_message *message)
{
	size_t size;
	struct tpck_accord_source *sources = sources_for(launch, node, &size);

	if (sources && strcmp(node, peers_node()) != 0)
		peers_talk(node, message, sources, size);
	else if (sources)
		accord_obey(agent, launch, message, (char *)sources, size);
	free(sources);
	return sources != NULL;
}

void accord_stage_next(struct agent *agent, struct launch *launch)
{
	struct accord *accord = launch->accord;
	struct tpck_accord_message message = accord_message(launch, TPCK_ACCORD_STAGE);
	const char *node;
	char notice[200] = "";
	size_t at = 0;
	bool there = true;

	accord->phase = ACCORD_STAGING;
	accord->until_ns = tpck_clock_monotonic_ns() + STAGE_NS;
	accord->failed = accord->gone = false;
	message.value2 = ++accord->attempt;
	tpck_ledger_begin(accord->ledger, TPCK_ROUND_STAGE);
	if (!tpck_consensus(accord->inquiry.rows, accord->inquiry.count, accord->stored, accord->stored_count, launch->world,
			    accord->wanted, &accord->point)) {
		if (accord->wanted != UINT64_MAX)
			snprintf(notice, sizeof notice, "there is no checkpoint of step %" PRIu64 " to resume at", accord->wanted);
		accord_start_anew(agent, launch, accord->notice[0] ? accord->notice : notice);
		return;
	}
	if (own_start_is_chosen(&accord->own, &accord->point)) {
		accord_start_anew(agent, launch, accord->own.said);
		return;
	}
	tpck_log_debug("step %" PRIu64 " of generation %" PRIu64 " is what all go on from, %.3f s after they were asked", accord->point.step,
		       accord->point.generation, (double)(tpck_clock_monotonic_ns() - accord->asked_ns) / 1e9);
	message.parent = accord->point.generation;
	message.step = accord->point.step;
	while (there && (node = tpck_ledger_node(accord->ledger, &at)))
		there = strcmp(node, peers_node()) == 0 || say_stage(agent, launch, node, &message);
	/* This one last: what it says may be the answer that was waited for. */
	if (!there || !say_stage(agent, launch, peers_node(), &message))
		accord_start_anew(agent, launch, "out of memory");
}

/* What was said is forgotten, and so is what is to be made ready. */
static void ask_anew(struct accord *accord)
{
	tpck_inquiry_free(&accord->inquiry);
	free(accord->to_stage);
	accord->to_stage = NULL;
	accord->asked_times++;
	accord->notice[0] = '\0';
	accord->phase = ACCORD_GATHERING;
	accord->until_ns = 0;
}

/* A rank's part was not what it should be: it is not asked for again. */
static void note_failure(struct launch *launch, uint32_t rank, const char *why)
{
	struct accord *accord = launch->accord;
	const char *node = tpck_ledger_where(accord->ledger, rank);
	struct tpck_evidence *tried = tpck_consensus_source(accord->inquiry.rows, accord->inquiry.count, &accord->point, rank,
							    tpck_names_find(&accord->inquiry.nodes, node ? node : ""));

	if (tried)
		tpck_consensus_bad(accord->inquiry.rows, accord->inquiry.count, tried);
	for (size_t i = 0; !tried && i < accord->stored_count; i++)
		if (tpck_point_compare(&accord->stored[i], &accord->point) == 0)
			accord->stored[i--] = accord->stored[--accord->stored_count];
	snprintf(accord->notice, sizeof accord->notice, "rank %u: %.270s", rank, why);
	tpck_log_warn("step %" PRIu64 " of generation %" PRIu64 ": %s", accord->point.step, accord->point.generation, accord->notice);
	accord->failed = true;
}

static void hear_staged(struct agent *agent, struct launch *launch, const char *node, const struct tpck_accord_message *message,
			const char *why)
{
	struct accord *accord = launch->accord;
	struct tpck_accord_message start;

	if (accord->phase == ACCORD_RUNNING) {
		accord_late_staged(agent, launch, node, message, why);
		return;
	}
	/* What was made ready for an earlier attempt may have been taken away. */
	if (accord->phase != ACCORD_STAGING || message->generation != launch->generation || message->value2 != accord->attempt)
		return;
	if (message->value == LAUNCH_STAGED_GONE && accord->gone_times < GONE_TIMES)
		accord->gone = true;
	else if (message->value != LAUNCH_STAGED_ALL)
		note_failure(launch, message->rank, why);
	if (!tpck_ledger_done(accord->ledger, TPCK_ROUND_STAGE, node))
		return;
	if (accord->gone) {
		accord->gone_times++;
		ask_anew(accord);
		return;
	}
	if (accord->failed) {
		accord_stage_next(agent, launch);
		return;
	}
	tpck_log_info("all %u ranks go on from step %" PRIu64 " of generation %" PRIu64, launch->world, accord->point.step,
		      accord->point.generation);
	start = accord_message(launch, TPCK_ACCORD_START);
	start.value = TPCK_BEGINS_STAGED;
	start.value2 = hello_ports() | (accord->moved ? TPCK_ACCORD_MOVED : 0);
	accord_do_and_tell_all(agent, launch, &start, accord->own.said, strlen(accord->own.said) + 1);
}

/* An agent is gone. Nobody has begun: its node's next one is as good, and has what this one had. */
static void wait_for_next(struct launch *launch)
{
	struct accord *accord = launch->accord;

	/* As long as nothing is staged ranks are waited for by their HELLOs. */
	if (accord->next_ns || launch->staged || accord->phase > ACCORD_ASKING)
		accord->next_ns = tpck_clock_monotonic_ns() + ACCORD_NEXT_NS;
	accord->late = false;
	ask_anew(accord);
	if (!accord->leads)
		accord->leader[0] = '\0';
}

static bool wait_here(struct agent *agent, const struct launch *launch)
{
	size_t size;
	char *forms = accord_forms(launch, &size);
	bool going = forms && accord_are_going(agent, launch->accord->ordinal, forms, size);

	free(forms);
	return going;
}

static void hear_member(struct agent *agent, struct launch *launch, const char *node, const struct tpck_accord_message *message, const char *more,
			size_t size)
{
	struct accord *accord = launch->accord;
	struct tpck_accord_member member;

	if (size != sizeof member || (launch->closed && accord->phase != ACCORD_RUNNING))
		return;
	memcpy(&member, more, sizeof member);
	if (strnlen(member.form, sizeof member.form) != IDENTITY_FORM - 1 || accord_late_hear(launch, node, message, &member) ||
	    tpck_roll_enter(accord->roll, message->rank, message->ordinal, &member.key, member.form, asks(message->value)) ||
	    tpck_ledger_join(accord->ledger, message->rank, node))
		return;
	if (message->rank == 0) {
		accord->ordinal = message->ordinal;
		accord->wanted = message->step;
		accord->moved = message->value & TPCK_HELLO_STANDS_IN;
	}
	if (launch->closed) {
		accord_late_consider(launch);
		accord_catch_up(agent, launch, node);
	}
	/* All were there: this agent, or the one before it, has been lost, which is not known here yet. */
	else if (launch->accord->phase == ACCORD_ASKING || launch->accord->phase == ACCORD_CHOOSING || launch->accord->phase == ACCORD_STAGING)
		wait_for_next(launch);
}

/* Who began without asking will not come to any step but its own: none goes on then. */
static bool is_begun(const struct launch *launch, bool *some_ask)
{
	*some_ask = tpck_roll_asking(launch->accord->roll) > 0;
	return tpck_roll_begun(launch->accord->roll) > 0;
}

static void hear_injected(struct agent *agent, struct launch *launch, const char *node, const struct tpck_accord_message *message)
{
	struct accord *accord = launch->accord;
	struct tpck_accord_message said = accord_message(launch, TPCK_ACCORD_LIVE);
	enum tpck_ready ready;

	if (accord->broken)
		return;
	if (launch->began_anew) {
		/* The node was not here when the others heard of that. */
		said.kind = TPCK_ACCORD_OVER;
		said.parent = message->parent;
		said.step = message->step;
		said.value = 1;
		ready = TPCK_READY_THIS;
	} else {
		ready = tpck_ledger_ready(accord->ledger, node, message->value != 0);
	}
	if (ready == TPCK_READY_ALL)
		accord_tell_all(agent, launch, &said, NULL, 0);
	else if (ready == TPCK_READY_THIS && strcmp(node, peers_node()) != 0)
		peers_talk(node, &said, NULL, 0);
}

void accord_start_hear(struct agent *agent, struct launch *launch, const char *node, const struct tpck_accord_message *message,
		       const char *more, size_t size)
{
	struct tpck_accord_message said = *message;

	switch ((enum tpck_accord_kind)message->kind) {
	case TPCK_ACCORD_MEMBER:
		hear_member(agent, launch, node, message, more, size);
		break;
	case TPCK_ACCORD_STAGED:
		hear_staged(agent, launch, node, message, size ? more : "");
		break;
	case TPCK_ACCORD_INJECTED:
		hear_injected(agent, launch, node, message);
		break;
	case TPCK_ACCORD_OVER:
		accord_tell_all(agent, launch, &said, NULL, 0);
		break;
	default:
		break;
	}
}

/* ---- as the leader says ------------------------------------------------------------------- */

void accord_promote(struct agent *agent, const struct tpck_point *point)
{
	for (struct live *live = agent->lives; live; live = live->next) {
		int i = live->session->name.generation == point->generation ? live_image_of(live, point->step) : -1;

		if (i < 0 || !live_image_state(live, (unsigned)i, TPCK_IMAGE_HELD, TPCK_IMAGE_COMMITTED))
			continue;
		/* Who is through with it must not take it for one that a newer has replaced. */
		if (live->newest < 0 || point->step > live->newest_step) {
			live->newest = i;
			live->newest_step = point->step;
		}
	}
}

static void begin_anew(struct launch *launch, const struct tpck_accord_message *message)
{
	struct tpck_point point = {message->parent, message->step};
	struct live *live;
	uint32_t at = 0;

	if (launch->began_anew)
		return;
	tpck_log_warn("a rank of another node does not resume at step %" PRIu64 ": all begin anew", message->step);
	while (!message->value && (live = launch_next(launch, &at)))
		clerk_tell(live, NEWS_DIVERGED, &point, TPCK_DEATH_FAR);
	launch_start_over(launch, NULL, message->value != 0);
}

/* Nobody goes back to it. */
static void forget_choice(struct accord *accord)
{
	tpck_inquiry_free(&accord->inquiry);
	free(accord->stored);
	accord->stored = NULL;
	accord->stored_count = 0;
}

/* The newest of what the leader wants, once nothing is under way. */
static void stage_wanted(struct agent *agent, struct launch *launch)
{
	struct accord *accord = launch->accord;
	struct accord_stage *stage = accord->to_stage;

	accord->to_stage = NULL;
	launch->generation = stage->message.generation;
	accord->point = (struct tpck_point){stage->message.parent, stage->message.step};
	accord->trying = true;
	accord_promote(agent, &accord->point);
	hello_try(agent, launch, &accord->point, stage->sources, stage->count);
	free(stage);
}

static void want_stage(struct agent *agent, struct launch *launch, const struct tpck_accord_message *message, const char *more, size_t size)
{
	struct accord *accord = launch->accord;
	size_t count = size / sizeof *accord->to_stage->sources;
	struct accord_stage *stage = malloc(sizeof *stage + count * sizeof *stage->sources);

	/* Then the leader hears nothing, and begins without in its time. */
	if (!stage)
		return;
	stage->message = *message;
	stage->count = count;
	if (count)
		memcpy(stage->sources, more, count * sizeof *stage->sources);
	free(accord->to_stage);
	accord->to_stage = stage;
	accord->attempt = message->value2;
	accord->phase = ACCORD_STAGING;
	if (!accord->trying)
		stage_wanted(agent, launch);
}

void accord_start_obey(struct agent *agent, struct launch *launch, const struct tpck_accord_message *message, const char *more, size_t size)
{
	struct accord *accord = launch->accord;

	switch ((enum tpck_accord_kind)message->kind) {
	case TPCK_ACCORD_STAGE:
		want_stage(agent, launch, message, more, size);
		break;
	case TPCK_ACCORD_START:
		launch->generation = message->generation;
		/* Nobody else is to come. */
		launch->closed = launch->closed || accord->late;
		accord->late = false;
		accord->resumed = message->value == TPCK_BEGINS_STAGED;
		launch->own = message->value == TPCK_BEGINS_OWN;
		accord->ports = message->value2;
		if (!(message->value2 & TPCK_ACCORD_MOVED) || !peers_address(accord->leader, launch->meeting_host, sizeof launch->meeting_host))
			launch->meeting_host[0] = '\0';
		accord->phase = ACCORD_RUNNING;
		accord->until_ns = accord->next_ns = 0;
		forget_choice(accord);
		/* What is under way is through first. */
		if (accord->trying)
			accord->given_up = true;
		else
			hello_go(agent, launch, accord->resumed, message->value2, size ? more : "");
		break;
	case TPCK_ACCORD_LIVE:
		if (launch->began_anew)
			break;
		accord->live = true;
		launch_live(launch);
		break;
	case TPCK_ACCORD_OVER:
		/* Those who were to come late wait for the others again. */
		if (accord->late)
			wait_for_next(launch);
		else
			begin_anew(launch, message);
		break;
	default:
		break;
	}
}

void accord_staged(struct agent *agent, struct launch *launch, enum launch_staged how, uint32_t rank, const char *why)
{
	struct accord *accord = launch->accord;
	struct tpck_accord_message message = accord_message(launch, TPCK_ACCORD_STAGED);

	accord->trying = false;
	message.parent = accord->point.generation;
	message.step = accord->point.step;
	message.rank = rank;
	message.value = how;
	message.value2 = accord->attempt;
	if (accord->broken || accord->given_up)
		hello_go(agent, launch, false, 0, "not resuming: a node that has ranks of this job is gone, or was not ready in time");
	else if (accord->to_stage)
		stage_wanted(agent, launch);
	/* Else it was for a leader that is gone. */
	else if (accord->phase == ACCORD_STAGING)
		accord_tell_leader(agent, launch, &message, why, how == LAUNCH_STAGED_ALL ? 0 : strlen(why) + 1);
}

void accord_injected(struct agent *agent, struct launch *launch)
{
	struct tpck_accord_message message = accord_message(launch, TPCK_ACCORD_INJECTED);

	if (launch->accord->injected_said || !launch->accord->leader[0])
		return;
	launch->accord->injected_said = true;
	message.value = launch->accord->live;
	message.parent = launch_first(launch)->session->control->parent_generation;
	message.step = launch_first(launch)->session->control->resume_step;
	accord_tell_leader(agent, launch, &message, NULL, 0);
}

void accord_over(struct agent *agent, struct live *live, bool again)
{
	struct tpck_accord_message message = accord_message(live->launch, TPCK_ACCORD_OVER);

	message.parent = live->session->control->parent_generation;
	message.step = live->session->control->resume_step;
	message.value = again;
	accord_tell_leader(agent, live->launch, &message, NULL, 0);
}

/* ---- time --------------------------------------------------------------------------------- */

bool accord_has_live(const struct launch *launch)
{
	const struct live *live;
	uint32_t at = 0;

	while ((live = launch_next(launch, &at)))
		if (atomic_load(&live->session->control->go) == TPCK_GO_LIVE)
			return true;
	return false;
}

bool accord_is_starting(const struct launch *launch)
{
	const struct live *live;
	uint32_t at = 0;

	while ((live = launch_next(launch, &at)))
		if (live->life == LIFE_RUNNING && live->session->control->parent_generation &&
		    atomic_load(&live->session->control->go) == TPCK_GO_WAIT)
			return true;
	return false;
}

/* Those on their way to their step have waited long enough for the agent that is gone: they try it once more. */
static void start_over(struct agent *agent, struct launch *launch)
{
	struct accord *accord = launch->accord;
	struct tpck_accord_message over = accord_message(launch, TPCK_ACCORD_OVER);
	const struct live *live;
	uint32_t at = 0;

	if (!accord_is_starting(launch) || accord->live ||
	    (accord->leads ? tpck_ledger_is_complete(accord->ledger) && !accord_late_any(launch) : accord->leader[0] != 0))
		return;
	while ((live = launch_next(launch, &at))) {
		over.parent = live->session->control->parent_generation;
		over.step = live->session->control->resume_step;
	}
	over.value = 1;
	if (accord->leads)
		accord_tell_all(agent, launch, &over, NULL, 0);
	else
		launch_start_over(launch, NULL, true);
}

/* Those that wait, or make ready, do not wait for the rest. */
static void break_start(struct agent *agent, struct launch *launch)
{
	struct accord *accord = launch->accord;

	launch->closed = accord->broken = true;
	accord->until_ns = accord->next_ns = 0;
	tpck_log_warn("a node's agent is gone, where ranks of this job are that are to go on: they start over");
	/* The clerk may be choosing its generation: the others hear of it then. */
	if (accord->phase == ACCORD_CHOOSING)
		return;
	if (accord->leads && accord->phase != ACCORD_RUNNING)
		accord_start_anew(agent, launch, accord_gone);
	else if (launch->staged && !accord->trying)
		hello_go(agent, launch, false, 0, accord_gone);
	accord->phase = ACCORD_RUNNING;
}

void accord_break(struct agent *agent, struct launch *launch, const char *host)
{
	struct accord *accord = launch->accord;

	if (accord->phase == ACCORD_GATHERING || accord->phase == ACCORD_ASKING || (accord->phase != ACCORD_RUNNING && !launch->closed)) {
		if (accord->phase > ACCORD_ASKING)
			tpck_log_warn("the agent of %s is gone, where ranks of this job are that are to go on: they wait until it is back", host);
		wait_for_next(launch);
		return;
	}
	if (accord->phase == ACCORD_RUNNING && !launch->staged) {
		launch->closed = true;
		/* Of processes that are gone themselves there is nothing to come. */
		if (!accord->live)
			accord->until_ns = tpck_clock_monotonic_ns() + ACCORD_NEXT_NS;
		if (accord_is_starting(launch)) {
			tpck_log_warn("the agent of %s is gone, where ranks of generation %" PRIu64 " are: those that are ready wait until it is back",
				      host, launch->generation);
		} else if (!launch_is_dead(launch)) {
			tpck_log_warn("the agent of %s is gone, where ranks of generation %" PRIu64 " are: no snapshots until it is back",
				      host, launch->generation);
		}
		accord->flushing = 0;
		if (!accord->leads)
			accord->leader[0] = '\0';
		return;
	}
	break_start(agent, launch);
}

static void give_up_waiting(struct agent *agent, struct launch *launch)
{
	struct accord *accord = launch->accord;
	char why[200];

	if (peers_awaited()) {
		hello_refuse(agent, launch, "some of the ranks are on other nodes, and mpirun has not started this node's agent in time (TRANSPCKPT_TRANSPORT=mpi)");
		return;
	}
	if (!accord->leads) {
		hello_refuse(agent, launch, accord->leader[0] ? "the other ranks of this job did not come in time"
							      : "rank 0 of this job, whose node's agent leads, did not come in time");
		return;
	}
	for (uint32_t r = 0; r < launch->world; r++)
		if (!tpck_ledger_where(accord->ledger, r)) {
			snprintf(why, sizeof why, "not resuming: rank %u did not come in time", r);
			accord_start_anew(agent, launch, why);
			return;
		}
}

void accord_start_consider(struct agent *agent, struct launch *launch)
{
	struct accord *accord = launch->accord;
	uint64_t now = tpck_clock_monotonic_ns(), until;
	bool some_ask;

	if (accord->phase == ACCORD_RUNNING) {
		if (accord->until_ns && now >= accord->until_ns) {
			accord->until_ns = 0;
			start_over(agent, launch);
		}
		/* Processes that run already come when they first use their device. */
		if (accord->broken && hello_waiting(agent, launch, &until))
			hello_refuse(agent, launch, "a node that has ranks of this job is gone");
		else if (launch->generation && hello_waiting(agent, launch, &until))
			hello_go(agent, launch, false, 0, "");
		return;
	}
	if (accord->phase == ACCORD_GATHERING) {
		if (accord->leads && is_begun(launch, &some_ask)) {
			accord_start_anew(agent, launch, some_ask ? "not resuming: another rank of this job has begun from its beginning" : "");
		} else if (accord->next_ns && (launch->closed || now >= accord->next_ns) &&
			   !(accord->leads && tpck_ledger_is_complete(accord->ledger))) {
			break_start(agent, launch);
		} else if (accord->leads && tpck_ledger_is_complete(accord->ledger) && !accord->until_ns) {
			accord->until_ns = now + ASK_NS;
		} else if (accord->leads && tpck_ledger_is_complete(accord->ledger) &&
			   ((!peers_settling() && !wait_here(agent, launch)) || now >= accord->until_ns)) {
			accord->phase = ACCORD_ASKING;
			accord->next_ns = 0;
			accord->asked_ns = now;
			accord->until_ns = now + ASK_NS;
			ask(agent, launch);
		} else if (hello_waiting(agent, launch, &until) && now >= until) {
			give_up_waiting(agent, launch);
		}
	}
	if (accord->phase == ACCORD_ASKING) {
		if (is_asked_out(launch, now))
			accord_begin_survey(agent, launch);
		else if (now >= accord->until_ns)
			accord->until_ns = now + ACCORD_LOOK_NS;
	}
	if (accord->phase == ACCORD_STAGING && accord->leads && accord->until_ns && now >= accord->until_ns) {
		accord->until_ns = 0;
		accord_start_anew(agent, launch, "not resuming: a node did not make ready in time");
	}
}
