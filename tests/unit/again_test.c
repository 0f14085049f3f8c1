/* SPDX-License-Identifier: Apache-2.0 */
/* To whom something is sent again, of what lies behind the step that is gone on from. */
#include "config.h"

#include <sys/socket.h>

#include "runtime/network/spoken.h"
#include "tests/unit/store_tap.h"

static char told[4000];
enum { THREAD = 5, MOST = 2000 };
static struct {
	struct tpck_record record;
	struct tpck_record_talk talk;
	struct tpck_record_peer peer;
} made;

static const struct tpck_record *talk(uint16_t detail, uint32_t ordinal, uint64_t sent, uint8_t place)
{
	bool opens = detail == TPCK_TALK_OPENED || detail == TPCK_TALK_CHILD;

	made.record = (struct tpck_record){(uint32_t)sizeof made.talk + (opens ? (uint32_t)sizeof made.peer : 0), TPCK_RECORD_TALK, detail, 0, 0};
	made.talk = (struct tpck_record_talk){THREAD, ordinal, sent, 0};
	made.peer = (struct tpck_record_peer){.family = AF_INET, .port = 80, .address = {10, 0, 0, place}};
	return &made.record;
}

static const char *lines(void)
{
	char path[] = "/tmp/tried.XXXXXX";
	int to = mkstemp(path), old = dup(2);
	ssize_t got;

	dup2(to, 2);
	tpck_again_say(9);
	dup2(old, 2);
	close(old);
	got = pread(to, told, sizeof told - 1, 0);
	told[got > 0 ? got : 0] = '\0';
	close(to);
	unlink(path);
	return told;
}

/* Of a run by `learn`: who was there, and what of it was changed. */
static void connection(void (*learn)(const struct tpck_record *), uint32_t ordinal, uint8_t place, int judged, bool closes)
{
	learn(talk(TPCK_TALK_OPENED, ordinal, 0, place));
	if (judged)
		learn(talk((uint16_t)judged, ordinal, 0, place));
	learn(talk(TPCK_TALK_RECEIVED, ordinal, 40, place));
	if (closes)
		learn(talk(TPCK_TALK_CLOSED, ordinal, 0, place));
}

int main(void)
{
	connection(tpck_network_learn_sent, 10, 1, TPCK_TALK_UNSAFE, true);
	connection(tpck_network_learn_sent, 11, 2, TPCK_TALK_SAFE, true);
	connection(tpck_network_learn_sent, 12, 3, 0, false);
	/* That nobody is there changes nothing, nor who belongs to the job. */
	connection(tpck_network_learn_sent, 13, 4, TPCK_TALK_UNSAFE, false);
	tpck_network_learn_sent(talk(TPCK_TALK_OWN, 13, 0, 4));
	tpck_network_learn_sent(talk(TPCK_TALK_OPENED, 14, 0, 5));
	tpck_network_learn_sent(talk(TPCK_TALK_FAILED, 14, 0, 5));
	connection(tpck_network_learn_tried, 10, 6, TPCK_TALK_UNSAFE, false);
	tap_ok(strstr(lines(), "behind step 9 is done again, with what it sends; the first run sent something there to 10.0.0.1:80, 10.0.0.3:80\n") &&
		       strstr(told, "starts that left no snapshot sent something there to 10.0.0.6:80\n"),
	       "to whom something is sent again", told);
	tap_ok(!*lines(), "that is said once", told);

	/* Connections of before the step, which are kept. */
	for (uint32_t i = 20; i < 24; i++) {
		tpck_network_learn(talk(TPCK_TALK_OPENED, i, 0, (uint8_t)i));
		tpck_network_learn(talk(i == 22 ? TPCK_TALK_SAFE : TPCK_TALK_UNSAFE, i, 0, 0));
		tpck_network_learn(talk(TPCK_TALK_RECEIVED, i, 40, 0));
	}
	/* 20: the rest of an answer, 21: another request, 22: another question, 23: over before. */
	tpck_network_learn(talk(TPCK_TALK_CLOSED, 23, 0, 0));
	for (uint32_t i = 20; i < 24; i++) {
		const struct tpck_record *record = talk(TPCK_TALK_RECEIVED, i, i == 20 ? 0 : 30, 0);

		tpck_network_learn_behind(record);
		tpck_network_learn_sent(record);
		/* A start notes that once more when it is live. */
		tpck_network_learn_tried(record);
	}
	tpck_spoken_settle();
	tap_ok(strstr(lines(), "the first run sent something there to 10.0.0.21:80\n") && !strstr(told, "no snapshot"), "of connections that are kept those by which a request came", told);

	/* One that is kept, and was over soon behind the step: all of it counts as said before. */
	tpck_network_learn(talk(TPCK_TALK_OPENED, 30, 0, 30));
	tpck_network_learn(talk(TPCK_TALK_UNSAFE, 30, 0, 0));
	for (int i = 0; i < 2; i++) {
		const struct tpck_record *record = talk(i ? TPCK_TALK_CLOSED : TPCK_TALK_RECEIVED, 30, i ? 0 : 30, 0);

		tpck_network_learn_behind(record);
		tpck_network_learn_sent(record);
	}
	tpck_spoken_settle();
	tap_ok(!*lines(), "what counts as said before is not said again", told);

	for (uint32_t i = 0; i < MOST; i++)
		connection(tpck_network_learn_tried, 100 + i, (uint8_t)(40 + i % 3), TPCK_TALK_UNSAFE, false);
	tap_ok(strstr(lines(), "10.0.0.40:80") && strstr(told, "10.0.0.41:80") && strstr(told, "10.0.0.42:80"), "of very many all are looked at", told);
	connection(tpck_network_learn_sent, 10, 1, TPCK_TALK_UNSAFE, true);
	tpck_network_unlearn();
	tap_ok(!*lines(), "what is not gone on from is not said again", told);
	return tap_done();
}
