/* SPDX-License-Identifier: Apache-2.0 */
/* What the log says of connections: where one ends for who runs forward, and which numbers were drawn for it. */
#include "config.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/network/spoken.h"
#include "runtime/replay/forward.h"
#include "tests/unit/store_tap.h"

enum { MAIN = 1, HELPER = 7 };
static struct tpck_log *new_log;

static void talk(uint16_t detail, uint32_t thread, uint32_t ordinal, uint64_t sent, const char *got)
{
	struct tpck_record_talk record = {thread, ordinal, sent, 0};
	struct tpck_record_peer peer = {.family = AF_INET, .port = 80, .address = {10, 0, 0, 1}};
	const void *payload = detail == TPCK_TALK_OPENED ? (const void *)&peer : got;
	size_t bytes = detail == TPCK_TALK_OPENED ? sizeof peer : got ? strlen(got) : 0;
	char *out = tpck_log_append(new_log, TPCK_RECORD_TALK, detail, 0, 0, NULL, sizeof record + bytes);

	memcpy(out, &record, sizeof record);
	if (bytes)
		memcpy(out + sizeof record, payload, bytes);
}

/* One encrypted request with its answer, or without. */
static void asks(uint32_t thread, uint32_t ordinal, bool first, bool answered)
{
	talk(TPCK_TALK_ASKED, thread, ordinal, 0, NULL);
	if (first)
		talk(TPCK_TALK_UNSAFE, thread, ordinal, 0, NULL);
	/* What comes behind the first request may be tickets. */
	talk(TPCK_TALK_RECEIVED, thread, ordinal, 70, answered ? "answer" : "ticket");
	if (answered)
		talk(TPCK_TALK_ANSWERED, thread, ordinal, 0, NULL);
}

static void begins(uint32_t thread, uint32_t ordinal, bool encrypted)
{
	talk(TPCK_TALK_OPENED, thread, ordinal, 0, NULL);
	if (encrypted)
		talk(TPCK_TALK_RECEIVED, thread, ordinal, 300, "hello");
}

static void draw(uint32_t thread, uint32_t talks, uint32_t number, char value)
{
	struct tpck_record_drawn drawn = {number};
	char *out = tpck_log_append(new_log, TPCK_RECORD_DRAWN, 0, thread, talks, NULL, sizeof drawn + 1);

	memcpy(out, &drawn, sizeof drawn);
	out[sizeof drawn] = value;
}

static char drawn(struct tpck_thread *self, uint32_t talks, uint32_t number)
{
	const struct tpck_record *record = tpck_forward_drawn(self, talks, number);

	return record ? ((const char *)(record + 1))[sizeof(struct tpck_record_drawn)] : '-';
}

static const struct tpck_spoken *spoken(uint32_t thread, uint32_t ordinal)
{
	const struct tpck_spoken *of = tpck_spoken_all;

	while (of && (of->thread != thread || of->ordinal != ordinal))
		of = of->next;
	return of;
}

/* A connection's turns as "300 70" and how it ends. */
static const char *text_of(uint32_t thread, uint32_t ordinal)
{
	static char text[200];
	const struct tpck_spoken *of = spoken(thread, ordinal);

	if (!of)
		return "none";
	text[0] = '\0';
	for (const struct tpck_turn *turn = of->turns; turn; turn = turn->next)
		snprintf(text + strlen(text), sizeof text - strlen(text), "%llu ", (unsigned long long)turn->sent);
	snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s%s", tpck_spoken_is_question(of) ? "question" : of->cut ? "cut" : of->over ? "over" : "open",
		 of->ended ? " ended" : "", of->lost ? " lost" : "");
	return text;
}

static void is(uint32_t thread, uint32_t ordinal, const char *want, const char *what)
{
	const char *text = text_of(thread, ordinal);

	tap_ok(strcmp(text, want) == 0, what, text);
}

int main(void)
{
	static struct tpck_thread helper = {.id = HELPER}, main_thread = {.id = MAIN};
	static const uint32_t tokens[] = {11};
	struct tpck_record_mark mark = {tpck_network_digest(tokens, sizeof tokens), 0, 1, 0};
	char *folder = tap_folder("/tmp"), *out;
	struct tpck_log_reader *reader;
	const struct tpck_record *record;

	new_log = tpck_log_new(1 << 24);
	if (!new_log || tpck_log_attach(new_log, folder, 1, NULL))
		return 99;
	/* The main thread uses the device. */
	out = tpck_log_append(new_log, TPCK_RECORD_MARK, 1, MAIN, 1, NULL, sizeof mark + sizeof tokens);
	memcpy(out, &mark, sizeof mark);
	memcpy(out + sizeof mark, tokens, sizeof tokens);

	begins(HELPER, 0, true);
	asks(HELPER, 0, true, true);
	asks(HELPER, 0, false, true);
	asks(HELPER, 0, false, false);
	begins(HELPER, 1, true);
	asks(HELPER, 1, true, false);
	begins(MAIN, 0, true);
	asks(MAIN, 0, true, true);
	asks(MAIN, 0, false, false);
	begins(HELPER, 2, true);
	asks(HELPER, 2, true, true);
	asks(HELPER, 2, false, false);
	talk(TPCK_TALK_ENDED, HELPER, 2, 0, NULL);
	begins(HELPER, 3, true);
	asks(HELPER, 3, true, true);
	asks(HELPER, 3, false, false);
	talk(TPCK_TALK_CUT, HELPER, 3, 0, NULL);
	/* Not encrypted: what comes is an answer. */
	begins(HELPER, 4, false);
	talk(TPCK_TALK_UNSAFE, HELPER, 4, 0, NULL);
	talk(TPCK_TALK_RECEIVED, HELPER, 4, 40, "answer");
	talk(TPCK_TALK_RECEIVED, HELPER, 4, 41, NULL);
	begins(HELPER, 5, false);
	talk(TPCK_TALK_UNSAFE, HELPER, 5, 0, NULL);
	talk(TPCK_TALK_RECEIVED, HELPER, 5, 40, NULL);
	begins(HELPER, 6, false);
	talk(TPCK_TALK_RECEIVED, HELPER, 6, 40, "old");
	begins(HELPER, 6, false);
	talk(TPCK_TALK_RECEIVED, HELPER, 6, 50, "new");
	/* A node of the job's, as came to be known; nothing of it is played. */
	begins(MAIN, 1, false);
	talk(TPCK_TALK_UNSAFE, MAIN, 1, 0, NULL);
	talk(TPCK_TALK_RECEIVED, MAIN, 1, 40, "real");
	talk(TPCK_TALK_OWN, MAIN, 1, 20, NULL);
	draw(HELPER, 1, 0, 'a');
	draw(HELPER, 1, 1, 'b');
	draw(HELPER, 2, 0, 'c');
	draw(HELPER, 2, 1, 'd');
	/* Made anew, once the program was live. */
	draw(HELPER, 2, 0, 'C');
	draw(HELPER, 3, 0, 'e');

	if (tpck_forward_open(folder, tpck_log_end(new_log)) || tpck_log_open(&reader, folder, tpck_log_end(new_log)))
		return 99;
	while ((record = tpck_log_next(reader)))
		tpck_network_learn(record);
	tpck_spoken_settle();
	is(HELPER, 0, "300 70 70 cut ended", "encrypted, kept: it ends behind the last answer, whatever came of the handshake");
	is(HELPER, 1, "300 70 question", "encrypted: tickets are no answer to the first request");
	is(MAIN, 0, "300 70 70 open", "a thread that has a place at the boundary asks on the way what it had asked");
	is(HELPER, 2, "300 70 70 over ended", "a connection that the other end has ended without an answer ends so again");
	is(HELPER, 3, "300 70 cut ended", "one that was cut short ends where it did for the process that was live then");
	is(HELPER, 4, "40 cut ended", "not encrypted, kept: the same");
	is(HELPER, 5, "40 question", "not encrypted: the first request is asked anew");
	is(HELPER, 6, "50 question", "of two of one number the later one counts");
	tap_ok(spoken(MAIN, 1) && spoken(MAIN, 1)->whole && tpck_spoken_find(main_thread.id, 1, &spoken(MAIN, 1)->peer, false) == spoken(MAIN, 0),
	       "what came to be known as the job's own is not played", "");
	tap_ok(drawn(&helper, 1, 0) == 'a' && drawn(&helper, 2, 0) == 'C' && drawn(&helper, 2, 1) == '-' && drawn(&helper, 3, 0) == 'e',
	       "numbers belong to a connection, and the later ones count", "");
	return tap_done();
}
