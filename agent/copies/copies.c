/* SPDX-License-Identifier: Apache-2.0 */
/* What the network carries for copies, when they begin and end, how long this agent stays for them, and what is seen of them. */
#include "config.h"

#include "agent/copies/copies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/copies/copies_private.h"
#include "runtime/base/lock_order.h"

/* ---- what the network carries --------------------------------------------------------------- */

static void gone(struct peer *peer)
{
	transfer_gone(peer);
	owed_gone(peer);
	held_gone(peer);
}

/* One that serves nobody may be there only for copies that it has of this one's. */
static void serves(const struct peer *peer)
{
	for (struct copy *copy = copies_here.list; copy; copy = copy->next)
		if (strcmp(copy->owner, peer->other.host) == 0)
			copy->seen_ns = peer->heard_ns;
}

/* Who hears which message. */
static void (*const hears[])(struct peer *peer, const struct tpck_peer_message *message, char *text, size_t count) = {
	[TPCK_PEER_OFFER] = transfer_message,
	[TPCK_PEER_WANT] = transfer_message,
	[TPCK_PEER_HAVE] = transfer_message,
	[TPCK_PEER_FAIL] = transfer_message,
	[TPCK_PEER_DROP] = transfer_message,
	[TPCK_PEER_MARK] = transfer_message,
	[TPCK_PEER_ASK] = transfer_message,
	[TPCK_PEER_TELL] = transfer_message,
	[TPCK_PEER_GET] = transfer_message,
	[TPCK_PEER_FILE_BEGIN] = held_message,
	[TPCK_PEER_FILE_BYTES] = held_message,
	[TPCK_PEER_FILE_RECORD] = held_message,
	[TPCK_PEER_FILE_GONE] = held_message,
	[TPCK_PEER_FILE_HAS] = owed_message,
	[TPCK_PEER_FILE_KEPT] = owed_message,
	[TPCK_PEER_FILE_FULL] = owed_message,
	[TPCK_PEER_FILE_LOOK] = held_message,
	[TPCK_PEER_FILE_LOOKED] = held_message,
	[TPCK_PEER_FILE_TAKE] = held_message,
	[TPCK_PEER_FILE_TOOK] = held_message,
	[TPCK_PEER_FILE_TAKEN] = held_message,
};

static bool message(struct peer *peer, const struct tpck_peer_message *head, char *text, size_t count)
{
	if (head->type >= sizeof hears / sizeof *hears || !hears[head->type])
		return false;
	hears[head->type](peer, head, text, count);
	return true;
}

static void *place(struct peer *peer, const struct tpck_peer_message *head, size_t bytes)
{
	void *pulled;

	return pulling_place(peer, head, bytes, &pulled) ? pulled : incoming_place(peer, head, bytes);
}

static void arrived(struct peer *peer, void *bytes, size_t count, bool whole)
{
	if (!pulling_arrived(peer, bytes, count, whole))
		incoming_arrived(peer, bytes, count, whole);
}

/* Tokens of files' bytes have the second bit, those of chunks, which transfers own, do not. */
static void sent(void *token)
{
	if ((uintptr_t)token & 2)
		owed_sent((char *)token - 2);
	else
		outgoing_sent(token);
}

const struct peers_cargo copies_cargo = {
	.known = transfer_greet,
	.gone = gone,
	.serves = serves,
	.message = message,
	.place = place,
	.arrived = arrived,
	.sent = sent,
	.tick = pulling_tick,
	.resume = outgoing_resume,
};
const struct peers_hearer copies_hears = {.met = sending_met};

/* ---- parts of the loop ------------------------------------------------------------------------ */

/* Copies that are in the memory tier are found before anybody can ask for them. */
static int find(struct agent *agent, struct tpck_error *err)
{
	(void)agent;
	(void)err;
	if (home.settings.peers.count)
		copies_here_find();
	return 0;
}

const struct loop_part copies_found_loop = {.begin = find};

static int begin(struct agent *agent, struct tpck_error *err)
{
	(void)agent;
	(void)err;
	if (peers.on) {
		held_begin();
		owed_begin();
	}
	return 0;
}

static void stop(struct agent *agent)
{
	(void)agent;
	if (peers.on) {
		owed_end();
		held_end();
	}
}

const struct loop_part copies_loop = {.begin = begin, .stop = stop};

static void consider(struct agent *agent)
{
	owed_consider_alone();
	held_consider(agent);
	if (peers.on)
		owned_consider(agent);
}

const struct loop_part copies_state_loop = {.consider = consider};

uint64_t copies_leave_at(void)
{
	uint64_t until;

	if (!home.settings.peers.count)
		return 0;
	pthread_mutex_lock(&peers.lock);
	until = copies_here_until();
	for (const struct peer *peer = peers.list; peer; peer = peer->next)
		if (peer->state == PEER_KNOWN && peer->working)
			until = UINT64_MAX;
	pthread_mutex_unlock(&peers.lock);
	return copies_hold_files() ? UINT64_MAX : until;
}

void copies_fragment_status(json_object *row, const struct tpck_fragment *fragment)
{
	char code[32];

	if (!fragment->data)
		return;
	snprintf(code, sizeof code, "%u+%u", fragment->data, fragment->parity);
	json_object_object_add(row, "fragment", json_object_new_int64(fragment->index));
	json_object_object_add(row, "code", json_object_new_string(code));
}

void copies_status(json_object *json)
{
	json_object *held, *given, *row;

	if (!home.settings.peers.count)
		return;
	held = json_object_new_array();
	given = json_object_new_array();
	pthread_mutex_lock(&peers.lock);
	for (const struct copy *copy = copies_here.list; copy; copy = copy->next) {
		int slot = copy_newest(copy);

		if (slot < 0)
			continue;
		row = json_object_new_object();
		json_object_object_add(row, "owner", json_object_new_string(copy->owner));
		json_object_object_add(row, "generation", json_object_new_uint64(copy->slot[slot].point.generation));
		json_object_object_add(row, "step", json_object_new_uint64(copy->slot[slot].point.step));
		json_object_object_add(row, "rank", json_object_new_int64(copy->member[0].rank));
		json_object_object_add(row, "ordinal", json_object_new_int64(copy->member[0].ordinal));
		json_object_object_add(row, "ranks", json_object_new_int64(copy->ranks));
		copies_fragment_status(row, &copy->replica->fragment);
		json_object_array_add(held, row);
	}
	pthread_mutex_unlock(&peers.lock);
	owned_status(given);
	json_object_object_add(json, "copies_here", held);
	json_object_object_add(json, "copies_elsewhere", given);
	json_object_object_add(json, "files_here", held_status());
	pace_status(json);
}
