/* SPDX-License-Identifier: Apache-2.0 */
/* Who is a spare node, and what nodes say to each other of themselves. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/spares/spares_private.h"
#include "agent/twins/twin_sets.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"

struct spares spares;
/* What was said last. */
static struct {
	bool any, spare;
	uint64_t room;
	uint32_t ranks;
} said_last;

struct host *host_find(const char *name)
{
	struct host *host = spares.hosts;

	while (host && strcmp(host->name, name) != 0)
		host = host->next;
	return host;
}

struct host *host_make(const char *name)
{
	struct host *host = host_find(name);

	if (host)
		return host;
	host = calloc(1, sizeof *host);
	if (!host)
		return NULL;
	snprintf(host->name, sizeof host->name, "%s", name);
	host->next = spares.hosts;
	spares.hosts = host;
	return host;
}

void host_drop(struct host *host)
{
	for (struct host **place = &spares.hosts; *place; place = &(*place)->next)
		if (*place == host) {
			*place = host->next;
			break;
		}
	free(host);
}

bool host_any_spare(void)
{
	for (const struct host *host = spares.hosts; host; host = host->next)
		if (host->spare)
			return true;
	return false;
}

struct tpck_accord_message spares_message(enum tpck_accord_kind kind)
{
	return (struct tpck_accord_message){.kind = kind};
}

/* ---- what this node says -------------------------------------------------------------------------- */

static void count_rank(void *context, uint64_t generation, const struct tpck_twin_set *set, uint32_t rank)
{
	const struct tpck_twin_seat *seat = &set->seat[rank];

	(void)generation;
	*(uint32_t *)context += atomic_load(&seat->supervisor) > 0 && !atomic_load(&seat->ended);
}

static void say(const char *node, uint32_t ranks)
{
	struct tpck_accord_message message = spares_message(TPCK_ACCORD_SPARE);

	message.value = spares.room;
	message.value2 = spares.spare;
	message.rank = ranks;
	peers_talk(node, &message, NULL, 0);
}

static void say_changes(void)
{
	uint32_t ranks = 0;

	twins_each_seat(count_rank, &ranks);
	if (said_last.any && said_last.spare == spares.spare && said_last.room == spares.room && said_last.ranks == ranks)
		return;
	said_last = (typeof(said_last)){true, spares.spare, spares.room, ranks};
	say(NULL, ranks);
}

static void met(struct agent *agent, const char *node)
{
	(void)agent;
	say(node, said_last.ranks);
}

/* ---- what others say ------------------------------------------------------------------------------ */

static void set_away(void *context, uint64_t generation, struct tpck_twin_set *set)
{
	uint32_t away = *(uint32_t *)context;

	(void)generation;
	if (atomic_exchange(&set->away, away) != away)
		tpck_twin_set_signal(set, set->world);
}

/* Whether a node is lost that had ranks, and whose ranks somebody may be about to start. */
static void look_who_is_away(uint64_t now)
{
	bool any = spares.spare || host_any_spare();
	uint32_t away = 0;

	for (const struct host *host = spares.hosts; host; host = host->next)
		away |= any && (host->ranks || host->begins) && (host->there ? now > host->heard_ns + SILENT_NS : now < host->lost_ns + AWAY_NS);
	twins_each(set_away, &away);
}

static void hear_of_host(const char *node, const char *name, const struct tpck_accord_message *message)
{
	struct host *host = host_make(name);

	if (!host)
		return;
	/* What others said of it when it was not there is over. */
	for (struct host *other = spares.hosts; other && !host->there; other = other->next)
		if (strcmp(other->voted, name) == 0)
			other->voted[0] = '\0';
	if (message->value2 && !host->spare)
		tpck_log_info("%s is a spare node for %llu ranks", name, (unsigned long long)message->value);
	snprintf(host->node, sizeof host->node, "%s", node);
	host->there = true;
	host->lost_ns = host->ballot_ns = 0;
	host->heard_ns = tpck_clock_monotonic_ns();
	host->candidate[0] = '\0';
	host->spare = message->value2 != 0;
	host->room = message->value;
	host->ranks = message->rank;
	host->begins = host->ranks ? 0 : host->begins;
}

static void said(struct agent *agent, const char *node, const char *host, const struct tpck_accord_message *message, const char *more, size_t size)
{
	switch ((enum tpck_accord_kind)message->kind) {
	case TPCK_ACCORD_SPARE:
		hear_of_host(node, host, message);
		break;
	case TPCK_ACCORD_COMMAND:
		wards_note(host, message, more, size);
		break;
	case TPCK_ACCORD_BALLOT:
	case TPCK_ACCORD_VOTE:
	case TPCK_ACCORD_STAND:
		ballots_take(agent, host, message, more, size);
		break;
	default:
		return;
	}
	look_who_is_away(tpck_clock_monotonic_ns());
}

/* A node of that name may have an agent again by now. */
static void lost(struct agent *agent, const char *node, const char *name)
{
	struct host *host = host_find(name);

	(void)agent;
	if (!host || strcmp(host->node, node) != 0)
		return;
	host->there = false;
	host->lost_ns = tpck_clock_monotonic_ns();
	look_who_is_away(host->lost_ns);
}

const struct peers_hearer spares_hears = {.met = met, .lost = lost, .said = said};

/* ---- time ----------------------------------------------------------------------------------------- */

/* The command says how many ranks it can start, as long as it is there. */
static void look_for_command(const struct agent *agent)
{
	spares.spare = false;
	spares.room = 0;
	for (const struct client *client = agent->clients; client; client = client->next)
		if (client->spare) {
			spares.spare = true;
			spares.room += client->spare_ranks;
		}
}

static void consider(struct agent *agent)
{
	static uint64_t next_ns;
	uint64_t now = tpck_clock_monotonic_ns();

	if (!peers_on())
		return;
	look_for_command(agent);
	say_changes();
	wards_tell();
	if (now < next_ns)
		return;
	next_ns = now + LOOK_NS / 2;
	lease_consider(now);
	look_who_is_away(now);
	ballots_consider(agent);
}

static uint64_t deadline(const struct agent *agent)
{
	(void)agent;
	return spares.spare || host_any_spare() ? tpck_clock_monotonic_ns() + LOOK_NS : UINT64_MAX;
}

static int begin(struct agent *agent, struct tpck_error *err)
{
	(void)agent;
	(void)err;
	spares.begun_ns = tpck_clock_monotonic_ns();
	return 0;
}

const struct loop_part spares_loop = {.begin = begin, .consider = consider, .deadline = deadline};

void spares_status(json_object *json)
{
	json_object *list = json_object_new_array();

	for (const struct host *host = spares.hosts; host; host = host->next) {
		json_object *row;

		if (!host->spare)
			continue;
		row = json_object_new_object();
		json_object_object_add(row, "host", json_object_new_string(host->name));
		json_object_object_add(row, "there", json_object_new_boolean(host->there));
		json_object_object_add(row, "ranks", json_object_new_uint64(host->room));
		json_object_array_add(list, row);
	}
	json_object_object_add(json, "spares", list);
}
