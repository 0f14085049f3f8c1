/* SPDX-License-Identifier: Apache-2.0 */
/* What was sent to others behind the step that is gone on from: it is sent again once the program is live, and a line says to whom. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/network/spoken.h"

/* The senders: the run that the step is of; and starts that had gone on from there. */
enum who { FIRST_RUN, TRIED, WHO };
enum { OPEN_MOST = 1024 };

static struct again {
	uint32_t thread, ordinal;
	struct tpck_record_peer peer;
	bool says, safe, unsafe;
	const struct tpck_spoken *known; /* it was there at the step; NULL: it was not */
	struct again *next;
} *open_ones[WHO];
static unsigned open_count;
static char names[WHO][TPCK_PEER_NAMES] TPCK_LARGE;
static bool lacks;

/* Of a thread of its own pace what lies behind the step may count as said before it. */
static bool is_said(const struct tpck_spoken *known)
{
	for (const struct tpck_late *late = known->late; late; late = late->next)
		if (!late->counts && (late->record.detail == TPCK_TALK_ASKED || ((const struct tpck_record_talk *)(&late->record + 1))->sent))
			return false;
	return known->own || known->late;
}

static void settle(enum who who, const struct again *of)
{
	if (of->says && (of->unsafe || !of->safe) && !(of->known && is_said(of->known)) && tpck_whose_elsewhere(&of->peer) != TPCK_WHOSE_NODE)
		tpck_peer_name_add(names[who], &of->peer);
}

static void settle_all(void)
{
	for (int who = 0; who < WHO; who++)
		while (open_ones[who]) {
			struct again *of = open_ones[who];

			open_ones[who] = of->next;
			settle((enum who)who, of);
			free(of);
		}
	open_count = 0;
}

static struct again **place_of(enum who who, const struct tpck_record_talk *talk)
{
	struct again **place = &open_ones[who];

	while (*place && ((*place)->thread != talk->thread || (*place)->ordinal != talk->ordinal))
		place = &(*place)->next;
	return place;
}

static void drop(struct again **place)
{
	struct again *of = *place;

	*place = of->next;
	free(of);
	open_count--;
}

static struct again *add(enum who who, const struct tpck_record_talk *talk, const struct tpck_record_peer *peer, const struct tpck_spoken *known)
{
	struct again *of;

	if (open_count == OPEN_MOST)
		settle_all();
	of = calloc(1, sizeof *of);
	if (!of) {
		lacks = true;
		return NULL;
	}
	*of = (struct again){.thread = talk->thread, .ordinal = talk->ordinal, .peer = *peer, .known = known, .next = open_ones[who]};
	of->safe = known && known->safe;
	of->unsafe = known && known->unsafe;
	open_ones[who] = of;
	open_count++;
	return of;
}

static void learn(enum who who, const struct tpck_record *record)
{
	const struct tpck_record_talk *talk = (const void *)(record + 1);
	const struct tpck_spoken *known;
	struct tpck_record_peer peer;
	struct again **place, *of;

	if (record->type != TPCK_RECORD_TALK || record->bytes < sizeof *talk)
		return;
	if (record->detail == TPCK_TALK_DATAGRAM) {
		if (tpck_datagram_peer(record, &peer) && tpck_whose_elsewhere(&peer) != TPCK_WHOSE_NODE)
			tpck_peer_name_add(names[who], &peer);
		return;
	}
	place = place_of(who, talk);
	of = *place;
	if (record->detail == TPCK_TALK_OPENED || record->detail == TPCK_TALK_CHILD) {
		if (record->bytes < sizeof *talk + sizeof peer)
			return;
		memcpy(&peer, talk + 1, sizeof peer);
		if (of) {
			settle(who, of);
			drop(place);
		}
		if (!peer.error)
			(void)add(who, talk, &peer, NULL);
		return;
	}
	/* A start that goes live closes what was open then, and has noted once more what it was told of that. */
	known = of || who != FIRST_RUN ? NULL : tpck_spoken_of(talk->thread, talk->ordinal);
	if (known && !known->over && !known->failed && !known->own)
		of = add(who, talk, &known->peer, known);
	if (!of)
		return;
	of->safe |= record->detail == TPCK_TALK_SAFE;
	of->unsafe |= record->detail == TPCK_TALK_UNSAFE;
	of->says |= record->detail == TPCK_TALK_UNSAFE || record->detail == TPCK_TALK_ASKED || talk->sent;
	if (record->detail == TPCK_TALK_FAILED || record->detail == TPCK_TALK_OWN || (record->detail == TPCK_TALK_CLOSED && !of->known)) {
		if (record->detail == TPCK_TALK_CLOSED)
			settle(who, of);
		drop(place_of(who, talk));
	}
}

void tpck_network_learn_sent(const struct tpck_record *record)
{
	learn(FIRST_RUN, record);
}

void tpck_network_learn_tried(const struct tpck_record *record)
{
	learn(TRIED, record);
}

void tpck_again_unlearn(void)
{
	settle_all();
	memset(names, 0, sizeof names);
	lacks = false;
}

void tpck_again_say(uint64_t step)
{
	static const char *const whose[WHO] = {[FIRST_RUN] = "the first run", [TRIED] = "starts that left no snapshot"};

	settle_all();
	for (int who = 0; who < WHO; who++)
		if (names[who][0])
			tpck_log_warn("what comes behind step %llu is done again, with what it sends; %s sent something there to %s", (unsigned long long)step, whose[who], names[who]);
	if (lacks)
		tpck_log_warn("there is no memory for all that was sent to others behind step %llu, which is sent again", (unsigned long long)step);
	memset(names, 0, sizeof names);
}
