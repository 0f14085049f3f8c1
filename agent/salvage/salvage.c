/* SPDX-License-Identifier: Apache-2.0 */
/* When what lost nodes had is made durable, and what those who are left say to each other about it. */
#include "config.h"

#include "agent/salvage/salvage.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/accord/joint_launches.h"
#include "agent/copies/copies.h"
#include "agent/durable/flush.h"
#include "agent/peers/peers.h"
#include "agent/salvage/salvage_private.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"

#define SEC 1000000000ull
/* How long a start may come first: it finds all in memory, and needs nothing of the store. Not one that has asked already. */
#define AFTER_NS (20 * SEC)
#define ASKED_NS (60 * SEC)
#define LATER_NS (20 * SEC)
/* All that are left find so at the same time: they begin one after the other, and who hears of another one leaves it to that. */
#define STAGGER_NS (SEC / 10)
enum { STAGGERED = 30 };
#define FOLLOW_NS (15 * SEC)
/* How long nodes may take to say what they have; as long as that makes nothing whole (accord/launch_start.c). */
#define ASK_NS (3 * SEC)
#define PATIENT_NS (10 * SEC)
#define LOOK_NS (SEC / 20)
/* How often others are asked anew at once (may_do_again). */
enum { TRIES = 8 };
/* In so long all see who is lost (peers/links.c): until then somebody may still take for there what this agent, which is to end, does not. */
#define PROVEN_NS (12 * SEC)
/* How often it is looked whether an owner is there. */
#define PROOF_NS (SEC / 5)

static struct {
	struct salvage *list;
	uint64_t numbers;
	uint64_t asked_ns;     /* when a start asked for what is here */
	uint64_t stopping_ns;  /* when this agent was told to end */
} salvages;

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static struct salvage *salvage_of(uint64_t generation)
{
	struct salvage *s = salvages.list;

	while (s && s->generation != generation)
		s = s->next;
	return s;
}

static struct salvage *salvage_at(uint64_t number)
{
	struct salvage *s = salvages.list;

	while (s && (s->number != number || s->phase == SALVAGE_IDLE))
		s = s->next;
	return s;
}

struct launch *salvage_launch(struct agent *agent, uint64_t generation)
{
	for (struct launch *launch = agent->launches; launch; launch = launch->next)
		if (launch->generation == generation && launch_first(launch))
			return launch;
	return NULL;
}

char *salvage_identity(struct agent *agent, const struct salvage *s, uint32_t *rank, uint32_t *ordinal)
{
	const struct launch *launch = salvage_launch(agent, s->generation);

	if (launch) {
		*rank = launch_first(launch)->session->name.rank;
		*ordinal = launch_first(launch)->session->name.ordinal;
		return strdup(launch_first(launch)->session->identity);
	}
	for (uint32_t r = 0; s->part_of && r < s->world; r++) {
		char *identity = copies_left_identity(s->generation, r, s->ordinal[r]);

		if (!identity)
			continue;
		*rank = r;
		*ordinal = s->ordinal[r];
		return identity;
	}
	return NULL;
}

/* ---- what is left ------------------------------------------------------------------------- */

static struct salvage *note(uint64_t generation, uint32_t world)
{
	struct salvage *s = salvage_of(generation);

	if (s || !world)
		return s;
	s = calloc(1, sizeof *s);
	if (!s)
		return NULL;
	s->generation = generation;
	s->world = world;
	s->since_ns = tpck_clock_monotonic_ns();
	s->next = salvages.list;
	return salvages.list = s;
}

/* Ranks that are here wait for others that are lost, or have died of it. */
static bool is_left(const struct agent *agent, const struct launch *launch)
{
	return launch->apart && launch->generation && (agent->stopping || launch_is_dead(launch)) && accord_is_broken(launch) &&
	       !launch_settled(launch);
}

static void note_all(struct agent *agent)
{
	struct copies_left *rows;
	size_t count = copies_left(&rows);
	struct salvage *s;

	for (s = salvages.list; s; s = s->next)
		s->left = s->unproven = false;
	for (const struct launch *launch = agent->launches; launch; launch = launch->next)
		if (is_left(agent, launch) && (s = note(launch->generation, launch->world)))
			s->left = true;
	for (size_t i = 0; i < count; i++) {
		bool unproven = rows[i].there && agent->stopping && rows[i].seen_ns < salvages.stopping_ns;

		if ((rows[i].there && !unproven) || !(s = note(rows[i].generation, rows[i].world)))
			continue;
		s->left = s->left || !unproven;
		s->unproven = s->unproven || unproven;
	}
	free(rows);
}

static void forget(struct salvage *s)
{
	tpck_inquiry_free(&s->inquiry);
	free(s->part_of);
	free(s->ordinal);
	free(s->part);
	s->part_of = s->ordinal = NULL;
	s->part = NULL;
	s->part_count = 0;
	s->phase = SALVAGE_IDLE;
}

/* What is not left any more: its owner has come back, or a newer start has made it history. */
static void sweep(void)
{
	for (struct salvage **place = &salvages.list; *place;) {
		struct salvage *s = *place;

		if (s->left || s->unproven || s->phase != SALVAGE_IDLE) {
			place = &s->next;
			continue;
		}
		*place = s->next;
		forget(s);
		free(s);
	}
}

static bool is_wanted(const struct salvage *s)
{
	return s->left && !s->done && !s->gave_up;
}

bool salvage_owes(void)
{
	for (const struct salvage *s = salvages.list; s; s = s->next)
		if (is_wanted(s) || s->phase != SALVAGE_IDLE || (s->unproven && !s->done))
			return true;
	return false;
}

bool salvage_needs(uint64_t generation)
{
	const struct salvage *s = salvage_of(generation);

	return s && (is_wanted(s) || s->phase != SALVAGE_IDLE);
}

void salvage_say_kept(struct agent *agent)
{
	for (const struct salvage *s = salvages.list; s; s = s->next)
		if (s->left && !s->done && !salvage_launch(agent, s->generation))
			tpck_log_warn("what lost nodes had of generation %" PRIu64 " is not durable, and its copies here stay in memory: %s",
				      s->generation, flush_complaint());
}

/* ---- saying ------------------------------------------------------------------------------- */

static struct tpck_accord_message message_of(const struct salvage *s, enum tpck_accord_kind kind)
{
	return (struct tpck_accord_message){
		.kind = kind, .world = s->world, .number = s->number, .generation = s->generation, .step = s->point.step,
	};
}

/* What another one, or this one, says that has come of it. */
static void saved(struct agent *agent, uint64_t generation, uint64_t step, enum tpck_left_end end)
{
	struct launch *launch = salvage_launch(agent, generation);
	struct salvage *s = salvage_of(generation);

	bool done = end == TPCK_LEFT_DURABLE || end == TPCK_LEFT_HISTORY;
	uint64_t newest, now = tpck_clock_monotonic_ns();

	/* What is newer here, and the others do not have, is no step. */
	if (done && launch && launch->apart && launch_newest(launch, &newest))
		launch->salvaged = newest;
	if (end == TPCK_LEFT_DURABLE && launch && launch->apart && (!launch->durable_any || step > launch->durable_step))
		flush_stored(agent, launch, step);
	if (!s)
		return;
	s->leader[0] = '\0';
	s->done = done;
	s->tries = 0;
	s->gave_up = end == TPCK_LEFT_NOTHING || (end == TPCK_LEFT_FAILED && agent->stopping) ||
		     (end == TPCK_LEFT_LATER && agent->stopping && now > later(s->since_ns, salvages.stopping_ns) + PROVEN_NS);
	s->next_ns = now + (agent->stopping ? SEC : LATER_NS);
}

static void end(struct agent *agent, struct salvage *s, enum tpck_left_end how)
{
	struct tpck_accord_message message = message_of(s, TPCK_ACCORD_SAVED);

	message.value = how;
	peers_talk(NULL, &message, s->why, how == TPCK_LEFT_FAILED ? strlen(s->why) + 1 : 0);
	forget(s);
	saved(agent, s->generation, s->point.step, how);
	if (how == TPCK_LEFT_FAILED)
		s->next_ns = flush_retry_ns();
}

/* ---- what is here of a launch ------------------------------------------------------------- */

static size_t holdings(struct agent *agent, uint64_t generation, struct tpck_accord_holding **rows)
{
	const struct launch *launch = salvage_launch(agent, generation);
	struct tpck_accord_holding *own = NULL, *grown;
	size_t count = launch && launch->apart ? accord_holdings_of(launch, &own) : 0, copies;
	struct copies_held *held;

	copies = copies_left_of(generation, &held);
	grown = reallocarray(own, count + copies + 1, sizeof *grown);
	if (!grown) {
		free(own);
		free(held);
		*rows = NULL;
		return 0;
	}
	for (size_t i = 0; i < copies; i++)
		grown[count++] = (struct tpck_accord_holding){
			.generation = held[i].point.generation, .step = held[i].point.step, .rank = held[i].rank, .ordinal = held[i].ordinal,
			.resumable = held[i].resumable, .kind = held[i].fragment.data ? TPCK_HOLDING_FRAGMENT : TPCK_HOLDING_COPY, .form = held[i].form,
			.data = (uint8_t)held[i].fragment.data, .parity = (uint8_t)held[i].fragment.parity, .index = (uint8_t)held[i].fragment.index,
		};
	free(held);
	*rows = grown;
	return count;
}

/* How things are here with a launch that somebody asks about. */
static enum tpck_left standing(struct agent *agent, uint64_t generation)
{
	const struct launch *launch = salvage_launch(agent, generation);
	const struct salvage *s = salvage_of(generation);

	if (s && s->phase > SALVAGE_ASKING)
		return TPCK_LEFT_LED;
	/* Of several nodes' launches the leader alone knows whether all are there. */
	if (launch && (!launch->apart || (accord_leads(launch) && !accord_is_broken(launch))))
		return TPCK_LEFT_TENDED;
	return launch && !launch_is_dead(launch) ? TPCK_LEFT_RUNS : TPCK_LEFT_DEAD;
}

static void answer(struct agent *agent, const char *node, const struct tpck_accord_message *message)
{
	struct tpck_accord_message said = *message;
	struct tpck_accord_holding *rows;
	size_t count = holdings(agent, message->generation, &rows);

	said.kind = TPCK_ACCORD_HAS_LEFT;
	said.value = standing(agent, message->generation);
	peers_talk(node, &said, rows, count * sizeof *rows);
	free(rows);
}

/* ---- asking ------------------------------------------------------------------------------- */

static void ask_node(void *context, const char *node)
{
	struct salvage *s = context;

	(void)tpck_inquiry_ask(&s->inquiry, node);
}

/* To one, or to all (NULL). */
static void say_left(const struct agent *agent, const struct salvage *s, const char *node)
{
	struct tpck_accord_message message = message_of(s, TPCK_ACCORD_LEFT);

	message.value = agent->stopping;
	peers_talk(node, &message, NULL, 0);
}

static void ask(struct agent *agent, struct salvage *s)
{
	struct tpck_accord_holding *rows;
	size_t count;

	if (!salvages.numbers)
		salvages.numbers = tpck_clock_realtime_ns();
	s->number = ++salvages.numbers;
	s->point = (struct tpck_point){s->generation, 0};
	s->part_of = malloc(s->world * sizeof *s->part_of);
	s->ordinal = calloc(s->world, sizeof *s->ordinal);
	if (!s->part_of || !s->ordinal) {
		forget(s);
		s->next_ns = tpck_clock_monotonic_ns() + LATER_NS;
		return;
	}
	memset(s->part_of, 0xff, s->world * sizeof *s->part_of);
	s->phase = SALVAGE_ASKING;
	s->runs = s->tended = s->failed = s->again = s->hopeless = false;
	s->led[0] = s->why[0] = '\0';
	s->asked_ns = tpck_clock_monotonic_ns();
	accord_each_node(ask_node, s);
	count = holdings(agent, s->generation, &rows);
	salvage_take(s, TPCK_NO_NAME, rows, count);
	free(rows);
	say_left(agent, s, NULL);
}

static void hear_left(struct agent *agent, const char *node, const struct tpck_accord_message *message)
{
	struct salvage *s = salvage_of(message->generation);

	/* Of two who ask the first by name goes on. */
	if (s && s->phase == SALVAGE_ASKING && strcmp(node, peers_node()) < 0)
		forget(s);
	if (s && s->phase == SALVAGE_IDLE) {
		snprintf(s->leader, sizeof s->leader, "%s", node);
		s->leader_until_ns = tpck_clock_monotonic_ns() + FOLLOW_NS;
	}
	answer(agent, node, message);
}

static void hear_has(const char *node, const struct tpck_accord_message *message, const char *more, size_t size)
{
	struct salvage *s = salvage_at(message->number);
	struct tpck_accord_holding *rows;
	uint32_t number;

	if (!s || s->phase != SALVAGE_ASKING || !tpck_inquiry_answered(&s->inquiry, node, &number))
		return;
	s->runs = s->runs || message->value == TPCK_LEFT_RUNS;
	s->tended = s->tended || message->value == TPCK_LEFT_TENDED;
	if (message->value == TPCK_LEFT_LED)
		snprintf(s->led, sizeof s->led, "%s", node);
	rows = calloc(size / sizeof *rows + 1, sizeof *rows);
	if (!rows)
		return;
	memcpy(rows, more, size / sizeof *rows * sizeof *rows);
	salvage_take(s, number, rows, size / sizeof *rows);
	free(rows);
}

static bool is_asked_out(struct salvage *s, uint64_t now)
{
	struct tpck_point point;

	if ((!s->inquiry.waiting && !peers_settling()) || now >= s->asked_ns + PATIENT_NS)
		return true;
	return (!s->inquiry.waiting || now >= s->asked_ns + ASK_NS) &&
	       tpck_consensus(s->inquiry.rows, s->inquiry.count, NULL, 0, s->world, UINT64_MAX, &point);
}

static void choose(struct agent *agent, struct salvage *s)
{
	if (s->led[0]) {
		forget(s);
		snprintf(s->leader, sizeof s->leader, "%s", s->led);
		s->leader_until_ns = tpck_clock_monotonic_ns() + FOLLOW_NS;
	} else if (s->tended || (s->runs && !agent->stopping)) {
		end(agent, s, TPCK_LEFT_LATER);
	} else if (!salvage_choose(s)) {
		tpck_log_info("of generation %" PRIu64 " no step of all %u ranks is left in memory and copies", s->generation, s->world);
		end(agent, s, TPCK_LEFT_NOTHING);
	} else {
		s->phase = SALVAGE_LOOKING;
		salvage_look(agent, s);
	}
}

/* ---- writing ------------------------------------------------------------------------------ */

static void fail(struct agent *agent, struct salvage *s)
{
	if (s->again && !s->hopeless && ++s->tries < TRIES) {
		forget(s);
		s->next_ns = 0;
		return;
	}
	flush_failed(s->point.step, s->why);
	end(agent, s, s->hopeless ? TPCK_LEFT_NOTHING : TPCK_LEFT_FAILED);
}

static void tell_part(struct agent *agent, const struct salvage *s, struct salvage_part *part)
{
	struct tpck_accord_message message = message_of(s, TPCK_ACCORD_WRITE);

	part->told = true;
	message.rank = part->rank;
	message.ordinal = part->ordinal;
	message.value = part->from;
	message.value2 = s->part_count == 1;
	if (strcmp(part->node, peers_node()) == 0)
		salvage_write(agent, part->node, &message);
	else
		peers_talk(part->node, &message, NULL, 0);
}

/* What nodes have of their own at once, and then the copies one by one, since who writes one keeps all others from writing. */
static void go_on(struct agent *agent, struct salvage *s)
{
	struct salvage_part *next = NULL;

	for (size_t i = 0; i < s->part_count; i++) {
		if (s->part[i].told && !s->part[i].written)
			return;
		if (!s->part[i].told && !next)
			next = &s->part[i];
	}
	if (s->failed) {
		fail(agent, s);
	} else if (next) {
		tell_part(agent, s, next);
	} else if (s->part_count == 1) {
		end(agent, s, TPCK_LEFT_DURABLE);
	} else {
		s->phase = SALVAGE_JOINING;
		salvage_join(agent, s);
	}
}

void salvage_looked(struct agent *agent, uint64_t number, bool there)
{
	struct salvage *s = salvage_at(number);
	struct tpck_ranks lost = {0};

	if (!s || s->phase != SALVAGE_LOOKING)
		return;
	if (there) {
		end(agent, s, TPCK_LEFT_HISTORY);
		return;
	}
	for (size_t i = 0; i < s->part_count; i++)
		if (s->part[i].from != TPCK_LEFT_OWN)
			tpck_ranks_add(&lost, s->part[i].rank, s->part[i].rank);
	tpck_log_info("step %" PRIu64 " of generation %" PRIu64 " is made durable of what is left; from copies what came from rank %s", s->point.step,
		      s->generation, tpck_ranks_text(&lost));
	s->phase = SALVAGE_WRITING;
	number = s->number;
	for (size_t i = 0; (s = salvage_at(number)) && i < s->part_count; i++)
		if (s->part[i].from == TPCK_LEFT_OWN && !s->part[i].told)
			tell_part(agent, s, &s->part[i]);
	if (s)
		go_on(agent, s);
}

/* A copy was bad or went, or somebody else is at it. */
static bool may_do_again(uint64_t error)
{
	return error == EBADMSG || error == ENOENT || error == EAGAIN || error == EBUSY;
}

static void hear_written(struct agent *agent, const char *node, const struct tpck_accord_message *message, const char *why)
{
	struct salvage *s = salvage_at(message->number);

	for (size_t i = 0; s && s->phase == SALVAGE_WRITING && i < s->part_count; i++) {
		struct salvage_part *part = &s->part[i];

		if (part->rank != message->rank || !part->told || part->written || strcmp(part->node, node) != 0)
			continue;
		part->written = true;
		if (message->value == ECANCELED) {
			end(agent, s, TPCK_LEFT_HISTORY);
			return;
		}
		if (message->value && !s->failed) {
			s->failed = true;
			s->again = may_do_again(message->value);
			/* A store without locks, where two could write one thing in two ways. */
			s->hopeless = message->value == ENOLCK || message->value == ENOTSUP || message->value == ENOSYS;
			snprintf(s->why, sizeof s->why, "%.290s", why);
		}
		go_on(agent, s);
		return;
	}
}

void salvage_wrote(struct agent *agent, const char *node, const struct tpck_accord_message *message, int rc, const char *why)
{
	struct tpck_accord_message said = *message;

	said.kind = TPCK_ACCORD_WRITTEN;
	said.value = (uint64_t)-rc;
	if (strcmp(node, peers_node()) == 0)
		hear_written(agent, node, &said, why);
	else
		peers_talk(node, &said, why, rc ? strlen(why) + 1 : 0);
}

void salvage_joined(struct agent *agent, uint64_t number, int rc, const char *why)
{
	struct salvage *s = salvage_at(number);

	if (!s || s->phase != SALVAGE_JOINING)
		return;
	if (!rc || rc == -ECANCELED) {
		end(agent, s, rc ? TPCK_LEFT_HISTORY : TPCK_LEFT_DURABLE);
		return;
	}
	snprintf(s->why, sizeof s->why, "%.200s%s", why, rc == -EAGAIN ? ": is TRANSPCKPT_DIR one folder that all nodes see?" : "");
	/* Somebody may have tidied up meanwhile; else no later attempt finds them either. */
	s->again = rc == -EAGAIN;
	s->hopeless = s->again && s->tries;
	fail(agent, s);
}

/* ---- hearing ------------------------------------------------------------------------------ */

static void asked(void)
{
	salvages.asked_ns = tpck_clock_monotonic_ns();
}

static void said(struct agent *agent, const char *node, const char *host, const struct tpck_accord_message *message, const char *more, size_t size)
{
	struct salvage *s = salvage_of(message->generation);

	(void)host;
	if (message->kind == TPCK_ACCORD_ASK)
		asked();
	if (message->kind < TPCK_ACCORD_LEFT)
		return;
	if (s && strcmp(s->leader, node) == 0)
		s->leader_until_ns = tpck_clock_monotonic_ns() + FOLLOW_NS;
	switch ((enum tpck_accord_kind)message->kind) {
	case TPCK_ACCORD_LEFT:
		hear_left(agent, node, message);
		break;
	case TPCK_ACCORD_HAS_LEFT:
		hear_has(node, message, more, size);
		break;
	case TPCK_ACCORD_WRITE:
		salvage_write(agent, node, message);
		break;
	case TPCK_ACCORD_WRITTEN:
		hear_written(agent, node, message, size ? more : "");
		break;
	case TPCK_ACCORD_SAVED:
		if (s && s->phase == SALVAGE_IDLE && message->value == TPCK_LEFT_FAILED && size)
			flush_failed(message->step, more);
		if (!s || s->phase == SALVAGE_IDLE)
			saved(agent, message->generation, message->step, (enum tpck_left_end)message->value);
		break;
	default:
		break;
	}
}

/* Whoever is met while others are asked is asked too. */
static void met(struct agent *agent, const char *node)
{
	for (struct salvage *s = salvages.list; s; s = s->next) {
		s->gave_up = false;
		if (s->phase == SALVAGE_ASKING && !tpck_inquiry_ask(&s->inquiry, node))
			say_left(agent, s, node);
	}
}

static void lost(struct agent *agent, const char *node, const char *host)
{
	struct salvage *s, *next;

	(void)host;
	for (s = salvages.list; s; s = next) {
		bool writes = false;

		next = s->next;
		if (strcmp(s->leader, node) == 0)
			s->leader[0] = '\0';
		tpck_inquiry_gone(&s->inquiry, node);
		for (size_t i = 0; i < s->part_count; i++)
			writes = writes || (s->part[i].told && !s->part[i].written && strcmp(s->part[i].node, node) == 0);
		if (s->phase == SALVAGE_WRITING && writes) {
			s->again = true;
			snprintf(s->why, sizeof s->why, "a node that was to write a part of it is gone");
			fail(agent, s);
		}
	}
}

const struct peers_hearer salvage_hears = {.met = met, .lost = lost, .said = said, .asked = asked, .needs = salvage_needs};

/* ---- time --------------------------------------------------------------------------------- */

static void count_before(void *context, const char *node)
{
	unsigned *before = context;

	*before += strcmp(node, peers_node()) < 0;
}

static uint64_t stagger_of(struct agent *agent, uint64_t generation)
{
	const struct launch *launch = salvage_launch(agent, generation);
	unsigned before = 0;

	if (launch && launch->apart && accord_leads(launch))
		return 0;
	accord_each_node(count_before, &before);
	return (before < STAGGERED ? before : STAGGERED) * STAGGER_NS;
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* What is in memory would go then. */
static uint64_t last_at(const struct salvage *s)
{
	return s->since_ns + (uint64_t)(home.settings.linger_sec * 1e9);
}

/* When what is left is made durable: at once where this agent is to end, or nobody comes back; else a start may come first. */
static uint64_t due_at(const struct agent *agent, const struct salvage *s)
{
	uint64_t at = s->since_ns;

	if (agent->stopping)
		at = later(at, salvages.stopping_ns);
	else if (!agent->nobody_returns)
		at = sooner(later(at + AFTER_NS, salvages.asked_ns ? salvages.asked_ns + ASKED_NS : 0), last_at(s));
	return later(later(at, s->leader[0] ? s->leader_until_ns : 0), s->next_ns) +
	       stagger_of((struct agent *)(uintptr_t)agent, s->generation);
}

/* A newer start of it is on its way here, or runs: it makes older ones history. */
static bool is_followed(const struct agent *agent, const struct salvage *s)
{
	for (const struct live *live = agent->lives; live; live = live->next)
		if (live->life == LIFE_RUNNING && live->session->name.generation > s->generation)
			return true;
	for (const struct launch *launch = agent->launches; launch; launch = launch->next)
		if (launch->hellos)
			return true;
	return false;
}

static void advance(struct agent *agent, struct salvage *s, uint64_t now)
{
	if (s->phase == SALVAGE_ASKING && is_asked_out(s, now)) {
		choose(agent, s);
	} else if (s->phase == SALVAGE_IDLE && is_wanted(s) && now >= due_at(agent, s)) {
		s->leader[0] = '\0';
		if (!agent->stopping && now < last_at(s) && is_followed(agent, s))
			s->next_ns = sooner(now + LATER_NS, last_at(s));
		else
			ask(agent, s);
	}
}

static void consider_all(struct agent *agent)
{
	uint64_t now = tpck_clock_monotonic_ns();

	if (!home.settings.peers.count)
		return;
	if (agent->stopping && !salvages.stopping_ns) {
		salvages.stopping_ns = now;
		for (struct salvage *s = salvages.list; s; s = s->next) {
			s->gave_up = false;
			s->next_ns = 0;
		}
	}
	note_all(agent);
	for (struct salvage *s = salvages.list; s; s = s->next)
		advance(agent, s, now);
	sweep();
}

static uint64_t deadline(const struct agent *agent)
{
	uint64_t soonest = UINT64_MAX, now = tpck_clock_monotonic_ns();

	for (const struct salvage *s = salvages.list; s; s = s->next) {
		uint64_t at = UINT64_MAX;

		if (s->phase == SALVAGE_ASKING)
			at = now + LOOK_NS;
		else if (s->phase == SALVAGE_IDLE && is_wanted(s))
			at = due_at(agent, s);
		else if (s->unproven)
			at = now + PROOF_NS;
		if (at < soonest)
			soonest = at;
	}
	return soonest;
}

const struct loop_part salvage_loop = {.consider = consider_all, .deadline = deadline};
