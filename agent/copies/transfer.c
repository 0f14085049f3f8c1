/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of snapshots between peers: who has what, who gets it, and what comes of it. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/copies/copies_private.h"
#include "agent/loop/trouble.h"
#include "runtime/base/clock.h"
#include "runtime/base/lock_order.h"
#include "runtime/base/log.h"

/* ---- asking ------------------------------------------------------------------------------- */

static void take_ask(struct peer *peer, const struct tpck_peer_message *head, const char *identity)
{
	struct tpck_peer_message answer = {.transfer = head->transfer};
	struct tpck_point point;
	unsigned slot;
	struct copy *copy = copy_pin(identity, head->rank, head->ordinal, NULL, &slot);
	size_t count = 0, size;
	struct tpck_peer_told *pieces = copies_here_pieces(identity, head->rank, head->ordinal, &count);
	char *other = (char *)pieces;

	size = count * sizeof *pieces;
	outgoing_hurry();
	if (copy) {
		answer.value = 1;
		point = copy->slot[slot].point;
		copy_unpin(copy, slot);
	} else if (!size) {
		free(other);
		other = copies_here_other(identity, head->rank, &point);
		answer.value = other ? 2 : 0;
		size = other ? strlen(other) + 1 : 0;
	}
	if (answer.value) {
		answer.generation = point.generation;
		answer.step = point.step;
	}
	copies_inquire(peer, head, &answer, identity, other, size, false);
}

/* Somebody has the program only as it was started otherwise: the newest is what the user is told of. */
static void note_other(struct ask *ask, const struct tpck_peer_message *head, const char *identity)
{
	struct tpck_point point = {head->generation, head->step};

	if (!identity[0] || (ask->other_identity && tpck_point_compare(&point, &ask->other_point) <= 0))
		return;
	free(ask->other_identity);
	ask->other_identity = strdup(identity);
	ask->other_point = point;
}

static void add_answer(struct ask *ask, const struct peer *peer, const struct tpck_peer_told *told)
{
	struct ask_answer *answer = &ask->answers[ask->count];

	if (ask->count == ASK_ANSWERS)
		return;
	if (told->generation > peers.generation)
		peers.generation = told->generation;
	ask->count++;
	*answer = (struct ask_answer){.serial = peer->serial, .point = {told->generation, told->step}, .fragment = told->fragment, .part = told->part};
	memcpy(answer->host, peer->other.host, sizeof answer->host);
}

static void take_tell(struct peer *peer, const struct tpck_peer_message *head, const char *text, size_t count)
{
	struct ask *ask;

	pthread_mutex_lock(&peers.lock);
	ask = ask_of(head->transfer);
	if (ask) {
		ask->answered++;
		if (head->value && head->generation > peers.generation)
			peers.generation = head->generation;
		if (head->value == 2)
			note_other(ask, head, count ? text : "");
		if (head->value == 1)
			add_answer(ask, peer, &(struct tpck_peer_told){.generation = head->generation, .step = head->step});
		for (size_t i = 0; head->value != 2 && i < count / sizeof(struct tpck_peer_told); i++) {
			struct tpck_peer_told told;

			memcpy(&told, text + i * sizeof told, sizeof told);
			if (tpck_fragment_is_valid(&told.fragment) || (told.part && !told.fragment.data))
				add_answer(ask, peer, &told);
		}
		pthread_cond_broadcast(&peers.changed);
	}
	pthread_mutex_unlock(&peers.lock);
}

static void get_done(struct agent *agent, struct job *base)
{
	struct parcel *parcel = (struct parcel *)base;

	(void)agent;
	tpck_log_info("%s of step %" PRIu64 " of generation %" PRIu64 " was %s: %.1f MiB in %.3f s",
		      parcel->fragment[0].data ? "a fragment" : "a copy", parcel->manifest->point.step, parcel->manifest->point.generation, parcel->has[0] ? "given to a peer" : "asked for, but not taken",
		      (double)parcel->sent_bytes / (1 << 20), (double)(tpck_clock_monotonic_ns() - parcel->begun_ns) / 1e9);
	parcel_free(parcel);
}

/* The images of a copy, to be sent. */
static int open_parts(struct parcel *parcel, struct tpck_error *err)
{
	const struct tpck_replica *replica = parcel->copy->replica;
	char path[TPCK_PATH_MAX];

	parcel->part = calloc(parcel->manifest->member_count, sizeof *parcel->part);
	if (!parcel->part)
		return tpck_error_set(err, ENOMEM, "reading a copy");
	/* Fragments are read as they are sent. */
	if (parcel->fragment[0].data)
		return 0;
	parcel->parts = (uint32_t)parcel->manifest->member_count;
	for (uint32_t m = 0; m < parcel->parts; m++) {
		const struct tpck_member *member = &parcel->manifest->members[m];

		tpck_replica_path(replica, member, parcel->part[m].log_folder, sizeof parcel->part[m].log_folder);
		tpck_replica_image_path(replica, member, parcel->slot, path, sizeof path);
		if (tpck_image_open(&parcel->part[m].image, path, false, err))
			return -err->code;
	}
	return 0;
}

static void take_get(struct peer *peer, const struct tpck_peer_message *head, const char *identity)
{
	struct parcel *parcel = calloc(1, sizeof *parcel);
	struct tpck_point point = {head->generation, head->step};
	struct tpck_error err = {0};

	if (head->fragment.data && !tpck_fragment_is_valid(&head->fragment)) {
		free(parcel);
		peer_say_failed(peer, head->transfer, "there is no such fragment");
		return;
	}
	outgoing_hurry();
	if (parcel) {
		parcel->fragment[0] = head->fragment;
		parcel->copy = copy_pin_fragment(identity, head->rank, head->ordinal, &point, &head->fragment, &parcel->slot);
	}
	if (!parcel || !parcel->copy) {
		if (parcel)
			parcel_free(parcel);
		copies_inquire(peer, head, NULL, identity, NULL, 0, true);
		return;
	}
	parcel->job.done = get_done;
	parcel->transfer = head->transfer;
	parcel->size = parcel->copy->replica->text_size[parcel->slot];
	parcel->text = strdup(parcel->copy->replica->text[parcel->slot]);
	parcel->targets = 1;
	parcel->target[0] = peer->serial;
	if (!parcel->text || tpck_manifest_parse(&parcel->manifest, parcel->text, parcel->size, "of a copy", &err) ||
	    open_parts(parcel, &err)) {
		trouble_complain(&err);
		peer_say_failed(peer, head->transfer, err.text);
		parcel_free(parcel);
		return;
	}
	outgoing_send(parcel);
}

/* One answer is enough from one that there are two connections to. */
static bool is_asked(const struct peer *peer)
{
	for (struct peer *other = peers.list; other && other != peer; other = other->next)
		if (other->state == PEER_KNOWN && strcmp(other->other.node, peer->other.node) == 0)
			return true;
	return false;
}

void transfer_greet(struct peer *peer)
{
	for (struct ask *ask = copies_here.asks; ask; ask = ask->next) {
		struct tpck_peer_message head = {.transfer = ask->number, .rank = ask->rank, .ordinal = ask->ordinal};

		if (!ask->posted || is_asked(peer))
			continue;
		if (peer_send_text(peer, TPCK_PEER_ASK, &head, ask->identity, strlen(ask->identity) + 1) == 0)
			ask->asked++;
	}
}

/* ---- messages ----------------------------------------------------------------------------- */

static void take_fail(struct peer *peer, const struct tpck_peer_message *head, const char *why)
{
	if (outgoing_fail(peer, head->transfer, why))
		return;
	if (!pulling_fail(peer, head->transfer, why))
		incoming_fail(peer, head->transfer, why);
}

/* What a start looks for before it asks its agent: in the memory tier, since no folder may be shared. generation 0: of some, which who
 * tells it does not know; a marker that says more stays. */
static void mark(const char *identity, uint64_t generation, bool present)
{
	struct tpck_program *program;
	struct tpck_error err = {0};

	if (tpck_program_load(&program, home.folder, NULL, identity, &err) == 0) {
		uint64_t marked = tpck_program_marked(program, home.folder, NULL);

		if (present && marked <= generation && tpck_program_mark(program, generation, home.folder, NULL, &err))
			trouble_complain(&err);
		else if (!present && marked <= generation && tpck_program_unmark(program, home.folder, NULL, &err))
			trouble_complain(&err);
		tpck_program_free(program);
	} else {
		trouble_complain(&err);
	}
}

void transfer_message(struct peer *peer, const struct tpck_peer_message *head, char *text, size_t count)
{
	switch (head->type) {
	case TPCK_PEER_OFFER:
		if (count && !pulling_offer(peer, head, text, count))
			incoming_offer(peer, head, text, count);
		break;
	case TPCK_PEER_WANT:
		outgoing_want(peer, head->transfer, text, count);
		break;
	case TPCK_PEER_HAVE:
		outgoing_have(peer, head->transfer);
		break;
	case TPCK_PEER_FAIL:
		take_fail(peer, head, count ? text : "");
		break;
	case TPCK_PEER_DROP:
		if (count)
			copies_here_drop(text, head->generation);
		if (count && head->value)
			mark(text, head->generation, false);
		break;
	case TPCK_PEER_MARK:
		if (count)
			mark(text, head->generation, true);
		break;
	case TPCK_PEER_ASK:
		take_ask(peer, head, count ? text : "");
		break;
	case TPCK_PEER_TELL:
		take_tell(peer, head, text, count);
		break;
	case TPCK_PEER_GET:
		take_get(peer, head, count ? text : "");
		break;
	default:
		tpck_log_debug("%s sends a message of type %u", peer->other.host, head->type);
	}
}

void transfer_gone(struct peer *peer)
{
	outgoing_gone(peer);
	incoming_gone(peer);
	pulling_gone(peer);
}
