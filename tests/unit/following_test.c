/* SPDX-License-Identifier: Apache-2.0 */
/* Running forward by a log that is still being written: threads wait at its end, get what comes up to the next cut, and stand there once no more comes. */
#include "config.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/digest.h"
#include "runtime/replay/forward.h"
#include "runtime/replay/looks.h"
#include "runtime/replay/readings.h"
#include "runtime/replay/record_log.h"
#include "tests/unit/store_tap.h"

enum { MAIN = 1, OTHER = 7, LATER = 8 };

static struct tpck_log *written;
static char *folder;
static unsigned others_seen;

static void mark(uint32_t thread, uint32_t token)
{
	struct {
		struct tpck_record_mark mark;
		uint32_t token;
	} payload = {{tpck_digest64(&token, sizeof token, 0), 0, 1, 0}, token};

	tpck_log_append(written, TPCK_RECORD_MARK, 1, thread, 0, &payload, sizeof payload.mark + sizeof token);
}

static void boundary(uint64_t step, uint64_t allocations)
{
	struct tpck_record_boundary boundary = {step, allocations, step * 1000, 0};

	tpck_log_append(written, TPCK_RECORD_BOUNDARY, 0, 0, (uint32_t)step, &boundary, sizeof boundary);
}

static void turn(uint32_t thread, uint64_t number)
{
	tpck_log_append(written, TPCK_RECORD_TURN, 0, thread, 0, &number, sizeof number);
}

static void draw(uint32_t thread, uint32_t operations, char letter)
{
	tpck_log_append(written, TPCK_RECORD_CHANCE, 0, thread, operations, &letter, 1);
}

static void see_other(const struct tpck_record *record)
{
	others_seen += record->type == TPCK_RECORD_FILE;
}

static bool extend(void)
{
	return tpck_forward_extend(tpck_log_end(written), see_other) == 0;
}

static void pause_ms(unsigned ms)
{
	nanosleep(&(struct timespec){0, ms * 1000000L}, NULL);
}

/* One call by a thread of its own, which may wait. */
struct asking {
	struct tpck_thread self;
	uint32_t token;                 /* 0: it draws */
	_Atomic int answer;             /* 1 + enum tpck_forward; 0: none yet */
	char letter;
	pthread_t thread;
};

static void *ask_main(void *of)
{
	struct asking *asking = of;
	const struct tpck_record *record = NULL;
	enum tpck_forward answer = asking->token ? tpck_forward_operation(&asking->self, asking->token, 0)
						 : tpck_forward_draw(&asking->self, TPCK_RECORD_CHANCE, &record);

	if (asking->token && answer == TPCK_FORWARD_SAME)
		asking->self.operations++;
	asking->letter = record ? *(const char *)(record + 1) : 0;
	atomic_store(&asking->answer, 1 + (int)answer);
	return NULL;
}

static void ask(struct asking *asking, uint32_t token)
{
	asking->token = token;
	atomic_store(&asking->answer, 0);
	if (pthread_create(&asking->thread, NULL, ask_main, asking))
		_exit(99);
}

/* Whether the call has no answer, and not for want of time. */
static bool waits(struct asking *asking)
{
	pause_ms(60);
	return !atomic_load(&asking->answer);
}

static bool answered(struct asking *asking, enum tpck_forward answer)
{
	pthread_join(asking->thread, NULL);
	return atomic_load(&asking->answer) == 1 + (int)answer;
}

static bool asked(struct asking *asking, uint32_t token, enum tpck_forward answer)
{
	ask(asking, token);
	return answered(asking, answer);
}

/* ---- what was used up goes ---- */

enum { LOOKER = 9, ROUNDS = 1000, SELDOM = 130, KEY = 5, SELDOM_KEY = 6 };
static struct tpck_thread looks_first = {.id = LOOKER}, looks_now = {.id = LOOKER};

static uint64_t time_of(unsigned round, enum tpck_clock clock)
{
	return 1000000 + 1000 * round + clock;
}

/* As the first run does it, up to a boundary. */
static void record_round(unsigned round)
{
	uint32_t value = round * 7;

	tpck_looks_note(&looks_first, written, TPCK_CLOCK_MONOTONIC, time_of(round, TPCK_CLOCK_MONOTONIC));
	tpck_readings_note(&looks_first, written, KEY, &value, sizeof value);
	if (round % SELDOM == 0) {
		tpck_looks_note(&looks_first, written, TPCK_CLOCK_REAL, time_of(round, TPCK_CLOCK_REAL));
		tpck_readings_note(&looks_first, written, SELDOM_KEY, &value, sizeof value);
	}
	tpck_looks_flush(&looks_first, written);
	tpck_readings_flush(&looks_first, written);
	mark(LOOKER, 41);
	looks_first.operations++;
	boundary(100 + round, 4);
}

static bool is_read(uint32_t key, uint32_t value)
{
	const void *bytes = NULL;
	uint32_t count = 0;

	return tpck_forward_reading(&looks_now, key, false, &bytes, &count) == TPCK_FORWARD_SAME && count == sizeof value && !memcmp(bytes, &value, sizeof value);
}

/* The same once more. */
static bool repeat_round(unsigned round)
{
	uint64_t ns = 0;
	bool same = tpck_forward_look(&looks_now, TPCK_CLOCK_MONOTONIC, &ns) == TPCK_FORWARD_SAME && ns == time_of(round, TPCK_CLOCK_MONOTONIC) && is_read(KEY, round * 7);

	if (round % SELDOM == 0)
		same = same && tpck_forward_look(&looks_now, TPCK_CLOCK_REAL, &ns) == TPCK_FORWARD_SAME && ns == time_of(round, TPCK_CLOCK_REAL) &&
		       is_read(SELDOM_KEY, round * 7);
	same = same && tpck_forward_operation(&looks_now, 41, 0) == TPCK_FORWARD_SAME;
	looks_now.operations++;
	return same;
}

static void check_used(void)
{
	size_t before = 0, after;
	unsigned good = 0;
	char text[100];

	for (unsigned round = 0; round < ROUNDS; round++) {
		record_round(round);
		good += extend() && repeat_round(round);
		if (round == ROUNDS / 5)
			before = mallinfo2().uordblks;
	}
	after = mallinfo2().uordblks;
	snprintf(text, sizeof text, "%u of %u, %zu bytes, then %zu", good, ROUNDS, before, after);
	tap_ok(good == ROUNDS, "looks at clocks and readings are the same, however many there were", text);
	tap_ok(after < before + 2 * ROUNDS, "and what was used up takes no memory", text);
}

int main(void)
{
	static struct asking self = {.self = {.id = MAIN}}, other = {.self = {.id = OTHER}}, later = {.self = {.id = LATER}};
	struct tpck_log_position first;
	char path[300];

	folder = tap_folder("/tmp");
	written = tpck_log_new(1 << 26);
	if (!written || tpck_log_attach(written, folder, 1, NULL))
		return 99;
	turn(MAIN, 0);
	mark(MAIN, 11);
	boundary(1, 2);
	first = tpck_log_end(written);
	mark(MAIN, 12); /* behind the cut: not to be seen yet */
	tpck_forward_follow();
	tap_ok(tpck_forward_open(folder, first) == 0, "the log is read up to a cut", "");
	tap_ok(asked(&self, 11, TPCK_FORWARD_SAME) && !tpck_forward_complete(), "what is there is answered; who follows is never at the boundary", "");
	tap_ok(tpck_forward_turn(&self.self, 0) && tpck_forward_turn(&self.self, 1), "it allocates as often as it did", "");
	ask(&self, 12);
	tap_ok(waits(&self), "what lies behind the cut is waited for", "");
	turn(OTHER, 2);
	draw(MAIN, 2, 'a');
	mark(OTHER, 21);
	tpck_log_append(written, TPCK_RECORD_FILE, 0, 0, 0, "", 1);
	boundary(2, 4);
	tap_ok(extend() && answered(&self, TPCK_FORWARD_SAME) && others_seen == 1, "until the next cut; what is nobody's answer is passed on", "");
	tap_ok(asked(&self, 0, TPCK_FORWARD_SAME) && self.letter == 'a', "with what was drawn there", "");
	tap_ok(!tpck_forward_turn(&self.self, 2) && tpck_forward_turn(&other.self, 2), "whose turn it is to allocate comes with it", "");
	ask(&self, 0);
	tap_ok(waits(&self), "a draw more is waited for at the end", "");
	mark(MAIN, 13);
	boundary(3, 4);
	tap_ok(extend() && answered(&self, TPCK_FORWARD_MORE), "and is one more, once there is more to do behind it", "");
	tap_ok(asked(&self, 13, TPCK_FORWARD_SAME), "which follows", "");

	/* More than a segment, of a thread that the first cuts did not know. */
	for (unsigned i = 0; i < 600000; i++)
		draw(LATER, 0, 'l');
	mark(LATER, 31);
	boundary(4, 4);
	tap_ok(tpck_log_end(written).sequence > 0 && extend(), "segments follow one another", "");
	ask(&self, 14);
	tap_ok(waits(&self), "each thread waits for its own", "");
	check_used();
	tpck_forward_last();
	tap_ok(answered(&self, TPCK_FORWARD_END) && !tpck_forward_complete(), "no more will come: it stands at the boundary, and others are on their way", "");
	tap_ok(tpck_forward_late() == OTHER || tpck_forward_late() == LATER, "one of them is named", "");
	tap_ok(asked(&other, 21, TPCK_FORWARD_SAME) && asked(&other, 22, TPCK_FORWARD_END), "one comes", "");
	tap_ok(!tpck_forward_complete() && asked(&later, 0, TPCK_FORWARD_SAME) && later.letter == 'l' && asked(&later, 31, TPCK_FORWARD_SAME), "and the last", "");
	tap_ok(tpck_forward_complete() && tpck_forward_turn(&self.self, 4), "all stand at the boundary", "");
	for (unsigned i = 0; i <= tpck_log_end(written).sequence; i++) {
		snprintf(path, sizeof path, "%s/log.%06u", folder, i);
		unlink(path);
	}
	snprintf(path, sizeof path, "%s/ahead", folder);
	unlink(path);
	rmdir(folder);
	return tap_done();
}
