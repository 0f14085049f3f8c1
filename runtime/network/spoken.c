/* SPDX-License-Identifier: Apache-2.0 */
/* What the log says of connections to who does not belong to the job. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/network/spoken.h"
#include "runtime/replay/forward.h"

enum { SOON = 4, LATE_MOST = 4 << 20 };
struct tpck_spoken *tpck_spoken_all;
enum { BUCKETS = 1024 };
static struct tpck_spoken **spoken_end, *unsaid, *buckets[BUCKETS] TPCK_LARGE;
static size_t late_bytes;

static struct tpck_spoken **bucket_of(uint32_t thread, uint32_t ordinal)
{
	return &buckets[(thread * 37 + ordinal) % BUCKETS];
}

struct tpck_spoken *tpck_spoken_of(uint32_t thread, uint32_t ordinal)
{
	struct tpck_spoken *found = *bucket_of(thread, ordinal);

	while (found && (found->thread != thread || found->ordinal != ordinal))
		found = found->bucket;
	return found;
}

static struct tpck_turn *turn_new(struct tpck_spoken *of, uint64_t sent, uint64_t digest)
{
	struct tpck_turn *turn = calloc(1, sizeof *turn);

	if (!turn) {
		of->lost = true;
		return NULL;
	}
	turn->sent = sent;
	turn->digest = digest;
	turn->chunks_end = &turn->chunks;
	*of->turns_end = turn;
	of->turns_end = &turn->next;
	of->last = turn;
	return turn;
}

/* What was asked behind the last answer counts as not asked. */
static void cut_short(struct tpck_spoken *of)
{
	struct tpck_turn **rest = of->known ? &of->known->next : &of->turns;

	*rest = NULL;
	of->turns_end = rest;
	of->last = of->known;
	of->cut = of->ended = true;
}

static void learn_opened(const struct tpck_record *record, const struct tpck_record_talk *talk)
{
	struct tpck_spoken *of = tpck_spoken_of(talk->thread, talk->ordinal), *next, *bucket;

	if (record->bytes < sizeof *talk + sizeof of->peer)
		return;
	if (!of) {
		of = calloc(1, sizeof *of);
		if (!of)
			return;
		*(spoken_end ? spoken_end : &tpck_spoken_all) = of;
		spoken_end = &of->next;
		of->bucket = *bucket_of(talk->thread, talk->ordinal);
		*bucket_of(talk->thread, talk->ordinal) = of;
	}
	/* A thread of its own pace had made fewer when the run was gone on from: what it made last by that number counts. */
	next = of->next;
	bucket = of->bucket;
	*of = (struct tpck_spoken){.thread = talk->thread, .ordinal = talk->ordinal, .child = record->detail == TPCK_TALK_CHILD, .next = next, .bucket = bucket};
	of->turns_end = &of->turns;
	of->late_end = &of->late;
	memcpy(&of->peer, talk + 1, sizeof of->peer);
	of->failed = of->peer.error != 0;
}

static void learn_drawn(struct tpck_spoken *of, const struct tpck_record *record)
{
	const struct tpck_record_talk *talk = (const void *)(record + 1);
	const struct tpck_record_drawn *drawn = (const void *)(talk + 1);
	struct tpck_spoken_draw *draw = record->bytes >= sizeof *talk + sizeof *drawn ? calloc(1, sizeof *draw) : NULL;

	if (!draw)
		return;
	*draw = (struct tpck_spoken_draw){drawn->number, (uint32_t)(record->bytes - sizeof *talk - sizeof *drawn), drawn + 1, of->draws};
	of->draws = draw;
}

const void *tpck_spoken_drawn(const struct tpck_spoken *of, uint32_t number, size_t count)
{
	for (const struct tpck_spoken_draw *draw = of->draws; draw; draw = draw->next)
		if (draw->number == number && draw->count == count)
			return draw->bytes;
	return NULL;
}

void tpck_network_learn(const struct tpck_record *record)
{
	const struct tpck_record_talk *talk = (const void *)(record + 1);
	struct tpck_spoken *of;
	struct tpck_chunk *chunk;
	struct tpck_turn *turn;

	if (record->type != TPCK_RECORD_TALK || record->bytes < sizeof *talk || record->detail == TPCK_TALK_DATAGRAM)
		return;
	if (record->detail == TPCK_TALK_OPENED || record->detail == TPCK_TALK_CHILD) {
		learn_opened(record, talk);
		return;
	}
	of = tpck_spoken_of(talk->thread, talk->ordinal);
	if (!of)
		return;
	if (record->detail == TPCK_TALK_DRAWN) {
		learn_drawn(of, record);
		return;
	}
	turn = of->last;
	if (talk->sent)
		turn = turn_new(of, talk->sent, talk->digest);
	if (record->detail == TPCK_TALK_RECEIVED && record->bytes > sizeof *talk) {
		chunk = calloc(1, sizeof *chunk);
		if (!turn)
			turn = turn_new(of, 0, 0);
		if (!chunk || !turn) {
			free(chunk);
			of->lost = true;
			return;
		}
		chunk->bytes = talk + 1;
		chunk->count = record->bytes - sizeof *talk;
		*turn->chunks_end = chunk;
		turn->chunks_end = &chunk->next;
		of->answered |= (of->safe || of->unsafe) && !of->asks;
		of->known = of->asking ? of->known : turn;
	}
	if (record->detail == TPCK_TALK_ASKED) {
		of->asks = of->asking = true;
	} else if (record->detail == TPCK_TALK_ANSWERED) {
		of->answered = true;
		of->asking = false;
		of->known = of->last;
	} else if (record->detail == TPCK_TALK_CUT) {
		cut_short(of);
		of->over = true;
	}
	of->ended |= record->detail == TPCK_TALK_ENDED;
	of->over |= record->detail == TPCK_TALK_ENDED || record->detail == TPCK_TALK_CLOSED;
	of->failed |= record->detail == TPCK_TALK_FAILED;
	of->lost |= record->detail == TPCK_TALK_LOST;
	of->safe |= record->detail == TPCK_TALK_SAFE;
	of->unsafe |= record->detail == TPCK_TALK_UNSAFE;
	of->own |= record->detail == TPCK_TALK_OWN;
}

void tpck_network_learn_behind(const struct tpck_record *record)
{
	const struct tpck_record_talk *talk = (const void *)(record + 1);
	struct tpck_spoken *of;
	struct tpck_late *late;

	if (record->type != TPCK_RECORD_TALK || record->bytes < sizeof *talk || record->bytes > LATE_MOST || record->detail == TPCK_TALK_DATAGRAM)
		return;
	of = tpck_spoken_of(talk->thread, talk->ordinal);
	if (!of || of->over || of->lost || of->failed)
		return;
	/* Another connection of that number. */
	if (record->detail == TPCK_TALK_OPENED || record->detail == TPCK_TALK_CHILD) {
		of->late_end = NULL;
		return;
	}
	late = of->late_end && late_bytes + record->bytes <= LATE_MOST ? malloc(sizeof *late + record->bytes) : NULL;
	if (!late)
		return;
	late_bytes += record->bytes;
	late->next = NULL;
	memcpy(&late->record, record, sizeof *record + record->bytes);
	*of->late_end = late;
	of->late_end = &late->next;
}

/* Threads that the record does not wait for have no place at the cut: of what one was told there the rest lies behind it. That counts up to the next
 * request; of a connection that was soon over all of it. */
static void learn_late(struct tpck_spoken *of)
{
	unsigned turns = 0;
	bool over = false;

	for (const struct tpck_late *late = of->late; late; late = late->next) {
		turns += ((const struct tpck_record_talk *)(&late->record + 1))->sent > 0;
		over |= late->record.detail == TPCK_TALK_ENDED || late->record.detail == TPCK_TALK_CLOSED;
	}
	for (struct tpck_late *late = of->late; late; late = late->next) {
		if (((const struct tpck_record_talk *)(&late->record + 1))->sent && !(over && turns <= SOON))
			return;
		late->counts = true;
		tpck_network_learn(&late->record);
	}
}

/* Whether its first request has no answer in the log: it counts as not made. Where requests cannot be told from a handshake that is two turns. */
bool tpck_spoken_is_question(const struct tpck_spoken *of)
{
	const struct tpck_turn *last = of->last;

	if (of->over || of->lost || of->failed)
		return false;
	if (of->safe || of->unsafe)
		return !of->answered;
	return !last || last == of->turns || (last == of->turns->next && !last->chunks);
}

bool tpck_network_says_any(void)
{
	for (const struct tpck_spoken *of = tpck_spoken_all; of; of = of->next)
		if (of->turns && (of->unsafe || !of->safe) && !of->own)
			return true;
	return false;
}

void tpck_network_unlearn(void)
{
	tpck_again_unlearn();
	tpck_spoken_all = NULL;
	spoken_end = NULL;
	memset(buckets, 0, sizeof buckets);
}

static void tell(const struct tpck_spoken *of)
{
	char peer[TPCK_PEER_TEXT], turns[200] = "";

	for (const struct tpck_turn *turn = of->turns; turn && strlen(turns) < sizeof turns - 40; turn = turn->next) {
		size_t bytes = 0;

		for (const struct tpck_chunk *chunk = turn->chunks; chunk; chunk = chunk->next)
			bytes += chunk->count;
		snprintf(turns + strlen(turns), sizeof turns - strlen(turns), " %llu>%zu", (unsigned long long)turn->sent, bytes);
	}
	tpck_log_debug("connection %u of thread %u, to %s:%s%s%s%s%s", of->ordinal, of->thread, tpck_peer_text(&of->peer, peer), turns, of->over ? ", over" : "",
		       of->own ? ", the job's own" : of->failed ? ", failed" : of->cut ? ", cut short" : "", of->lost ? ", not whole" : "", tpck_spoken_is_question(of) ? ", not answered" : "");
}

void tpck_spoken_settle(void)
{
	for (struct tpck_spoken *of = tpck_spoken_all; of; of = of->next) {
		learn_late(of);
		of->own = of->own || tpck_whose_elsewhere(&of->peer) == TPCK_WHOSE_NODE;
		/* Nothing of it is said here. By a Unix socket such a one is known again. */
		if (of->own) {
			of->late = NULL;
			of->whole = of->over = true;
			of->taken = of->peer.family != AF_UNIX;
		}
		if (!of->over && !of->lost && !of->failed && of->last != of->known && !tpck_spoken_is_question(of) && !tpck_forward_uses_device(of->thread))
			cut_short(of);
		tell(of);
	}
	unsaid = tpck_spoken_all;
}

bool tpck_spoken_all_said(void)
{
	while (unsaid && (unsaid->child || unsaid->whole || (!unsaid->taken && tpck_spoken_is_question(unsaid))))
		unsaid = unsaid->next;
	return !unsaid;
}

/* ---- which one it is ------------------------------------------------------------------------------------ */

/* The first turn in which something is sent, or the last one. */
static const struct tpck_turn *opening(const struct tpck_spoken *of)
{
	const struct tpck_turn *turn = of->turns;

	while (turn && !turn->sent && turn->next)
		turn = turn->next;
	return turn;
}

bool tpck_spoken_opens_with(const struct tpck_spoken *of, uint64_t got, uint64_t digest)
{
	const struct tpck_turn *turn = opening(of);

	return turn && turn->sent == got && (!turn->digest || turn->digest == digest);
}

enum match { MATCH_NOT, MATCH_PORT, MATCH_PLACE, MATCH_THREADS_PORT, MATCH_EXACT_PORT, MATCH_THREADS_PLACE, MATCH_EXACT };

static enum match matches(const struct tpck_spoken *of, uint32_t thread, uint32_t ordinal, const struct tpck_record_peer *peer, bool any)
{
	bool place = tpck_peer_same(&of->peer, peer);

	if (!place && (of->peer.family == AF_UNIX || peer->family == AF_UNIX))
		return MATCH_NOT;
	if (of->taken || of->peer.port != peer->port || (any && tpck_spoken_is_question(of)))
		return MATCH_NOT;
	if (of->thread != thread)
		return !any || of->child || tpck_network_is_child() ? MATCH_NOT : place ? MATCH_PLACE : MATCH_PORT;
	if (of->ordinal == ordinal)
		return place ? MATCH_EXACT : MATCH_EXACT_PORT;
	return place ? MATCH_THREADS_PLACE : MATCH_THREADS_PORT;
}

/* A name may mean another address by now, and one that asks for several at once gets them in another order. */
struct tpck_spoken *tpck_spoken_find(uint32_t thread, uint32_t ordinal, const struct tpck_record_peer *peer, bool any)
{
	struct tpck_spoken *found = tpck_spoken_of(thread, ordinal);
	enum match best = MATCH_NOT;

	if (found && matches(found, thread, ordinal, peer, any) == MATCH_EXACT)
		return found;
	found = NULL;

	for (struct tpck_spoken *of = tpck_spoken_all; of; of = of->next) {
		enum match match = matches(of, thread, ordinal, peer, any);

		if (match > best) {
			best = match;
			found = of;
		}
	}
	return found;
}

bool tpck_spoken_all_safe(const struct tpck_record_peer *peer, bool child)
{
	bool some = false;

	for (const struct tpck_spoken *of = tpck_spoken_all; of; of = of->next)
		if (of->child == child && tpck_peer_same(&of->peer, peer) && !of->failed) {
			if (!of->safe || of->unsafe)
				return false;
			some = true;
		}
	return some;
}

static void note_late(const struct tpck_late *late)
{
	const struct tpck_record_talk *talk = (const void *)(&late->record + 1);

	tpck_talk_note(late->record.detail, talk, talk + 1, late->record.bytes - sizeof *talk);
}

void tpck_spoken_note_late(void)
{
	for (struct tpck_spoken *of = tpck_spoken_all; of; of = of->next)
		for (const struct tpck_late *late = of->late; late && late->counts && (of->taken || of->child); late = late->next)
			note_late(late);
}
