/* SPDX-License-Identifier: Apache-2.0 */
/* Running forward: draws come at the count of operations at which they were drawn, and where copies went is compared. */
#include "config.h"

#include <errno.h>
#include <stdint.h>
#include <unistd.h>

#include "runtime/base/digest.h"
#include "runtime/replay/forward.h"
#include "runtime/replay/looks.h"
#include "runtime/wire/segment.h"
#include "tests/unit/store_tap.h"

enum { MAIN = 1, OTHER = 77, HELPER = 99 };

static struct tpck_log *new_log;

static void mark(uint32_t thread, const uint32_t *tokens, uint32_t count, uint64_t places)
{
	struct tpck_record_mark mark = {tpck_digest64(tokens, count * sizeof *tokens, count), places, count, 0};
	char *out = tpck_log_append(new_log, TPCK_RECORD_MARK, 1, thread, 1, NULL, sizeof mark + count * sizeof *tokens);

	memcpy(out, &mark, sizeof mark);
	memcpy(out + sizeof mark, tokens, count * sizeof *tokens);
}

static void draw(enum tpck_record_type type, uint32_t thread, uint32_t operations, char value)
{
	tpck_log_append(new_log, type, 0, thread, operations, &value, 1);
}

/* The value of the next draw; '+': more than in the first run, 'e': at the boundary, '?': foreign. */
static char drawn(struct tpck_thread *self, enum tpck_record_type type)
{
	const struct tpck_record *record = NULL;
	enum tpck_forward found = tpck_forward_draw(self, type, &record);

	return found == TPCK_FORWARD_SAME   ? *(const char *)(record + 1)
	       : found == TPCK_FORWARD_MORE ? '+'
	       : found == TPCK_FORWARD_END  ? 'e'
					    : '?';
}

/* The thread looked at a clock before its operation of that count. */
static void looked(struct tpck_thread *thread, uint64_t operations, enum tpck_clock clock, uint64_t ns)
{
	thread->operations = operations;
	tpck_looks_note(thread, new_log, clock, ns);
}

/* What the next look says: 0 where nothing is known; '+', 'e' and '?' in *how as above, '=' where it is as in the first run. */
static uint64_t look(struct tpck_thread *self, enum tpck_clock clock, char *how)
{
	uint64_t ns;
	enum tpck_forward found = tpck_forward_look(self, clock, &ns);

	*how = found == TPCK_FORWARD_SAME ? '=' : found == TPCK_FORWARD_MORE ? '+' : found == TPCK_FORWARD_END ? 'e' : '?';
	return ns;
}

static bool operates(struct tpck_thread *self, uint32_t token, uint64_t places)
{
	self->places = places;
	if (tpck_forward_operation(self, token, 0) != TPCK_FORWARD_SAME)
		return false;
	self->operations++;
	return true;
}

int main(void)
{
	static struct tpck_thread self = {.id = MAIN}, other = {.id = OTHER}, helper = {.id = HELPER}, first_self = {.id = MAIN},
				  first_helper = {.id = HELPER};
	static const uint32_t first[] = {11, 12, 13}, second[] = {14}, others[] = {21, 22};
	struct tpck_record_boundary boundary = {1, 0, 0, 0};
	char *folder = tap_folder("/tmp"), path[256], how;

	new_log = tpck_log_new(1 << 24);
	if (!new_log || tpck_log_attach(new_log, folder, 1, NULL))
		return 99;
	draw(TPCK_RECORD_CHANCE, MAIN, 0, 'a');
	draw(TPCK_RECORD_CHANCE, MAIN, 0, 'b');
	draw(TPCK_RECORD_CHANCE, MAIN, 2, 'c');
	draw(TPCK_RECORD_CHANCE, MAIN, 2, 'd');
	draw(TPCK_RECORD_CHANCE, MAIN, 2, 'e');
	looked(&first_self, 1, TPCK_CLOCK_MONOTONIC, 7000);
	looked(&first_self, 1, TPCK_CLOCK_REAL, 90);
	looked(&first_self, 1, TPCK_CLOCK_MONOTONIC, 7500);
	looked(&first_self, 3, TPCK_CLOCK_MONOTONIC, 8000);
	looked(&first_self, 3, TPCK_CLOCK_MONOTONIC, 8001);
	looked(&first_self, 4, TPCK_CLOCK_REAL, 80);
	looked(&first_self, 4, TPCK_CLOCK_MONOTONIC, 9000);
	looked(&first_helper, 0, TPCK_CLOCK_REAL, 55);
	draw(TPCK_RECORD_CHANCE, HELPER, 0, 'x');
	mark(MAIN, first, 3, 1234);
	mark(OTHER, others, 2, 5678);
	draw(TPCK_RECORD_CHANCE, MAIN, 3, 'f');
	draw(TPCK_RECORD_CHANCE, MAIN, 4, 'g');
	mark(MAIN, second, 1, 0);
	tpck_looks_flush(&first_self, new_log);
	tpck_looks_flush(&first_helper, new_log);
	tpck_log_append(new_log, TPCK_RECORD_BOUNDARY, 0, 0, 1, &boundary, sizeof boundary);
	tap_ok(tpck_forward_open(folder, tpck_log_end(new_log)) == 0, "the log is read", "");

	tap_ok(drawn(&self, TPCK_RECORD_CHANCE) == 'a' && drawn(&self, TPCK_RECORD_CHANCE) == 'b',
	       "as often as in the first run: the same", "");
	tap_ok(drawn(&self, TPCK_RECORD_CHANCE) == '+' && drawn(&self, TPCK_RECORD_CHANCE) == '+',
	       "more often: a draw of its own, and what comes later is not used up", "");
	tap_ok(!look(&self, TPCK_CLOCK_MONOTONIC, &how) && how == '+', "a look at the clock before the first one", "");
	tap_ok(tpck_forward_first_look(TPCK_CLOCK_MONOTONIC) == 7000 && tpck_forward_first_look(TPCK_CLOCK_REAL) == 90 &&
		       !tpck_forward_first_look(TPCK_CLOCK_BOOT), "where clocks began", "");
	tap_ok(operates(&self, 11, 0) && look(&self, TPCK_CLOCK_MONOTONIC, &how) == 7000 && how == '=' &&
		       look(&self, TPCK_CLOCK_REAL, &how) == 90 && how == '=' && look(&self, TPCK_CLOCK_MONOTONIC, &how) == 7500 && how == '=', "clocks", "");
	tap_ok(look(&self, TPCK_CLOCK_MONOTONIC, &how) == 7500 && how == '+' && look(&self, TPCK_CLOCK_REAL, &how) == 90 && how == '+' &&
		       !look(&self, TPCK_CLOCK_THREAD, &how) && how == '+', "one look more is told the last one", "");
	tap_ok(operates(&self, 12, 0) && drawn(&self, TPCK_RECORD_CHANCE) == 'c', "between the next two operations", "");
	tap_ok(operates(&self, 13, 1234) && drawn(&self, TPCK_RECORD_CHANCE) == 'f', "less often: the rest is left out", "");
	tap_ok(look(&self, TPCK_CLOCK_MONOTONIC, &how) == 8000 && how == '=', "a look", "");
	tap_ok(!tpck_forward_complete() && operates(&self, 14, 0) && drawn(&self, TPCK_RECORD_CHANCE) == 'g' &&
		       drawn(&self, TPCK_RECORD_CHANCE) == 'e',
	       "behind the last operation: what was drawn before the boundary, then it stands there", "");
	tap_ok(drawn(&helper, TPCK_RECORD_CHANCE) == 'x' && drawn(&helper, TPCK_RECORD_CHANCE) == '?',
	       "a thread without operations gets what it drew, then the truth", "");
	tap_ok(look(&self, TPCK_CLOCK_MONOTONIC, &how) == 9000 && how == '=' && !look(&self, TPCK_CLOCK_MONOTONIC, &how) && how == 'e' &&
		       look(&self, TPCK_CLOCK_REAL, &how) == 80 && how == '=', "so with clocks", "");
	tap_ok(look(&helper, TPCK_CLOCK_REAL, &how) == 55 && how == '=' && !look(&helper, TPCK_CLOCK_REAL, &how) && how == '?', "the same of clocks", "");
	tap_ok(tpck_forward_late() == OTHER, "who is late has a name", "");
	tap_ok(operates(&other, 21, 0) && !tpck_forward_by_chance(), "the mark's end is where places are compared", "");
	tap_ok(!operates(&other, 22, 5679) && tpck_forward_by_chance() && strstr(tpck_forward_difference(), "lies elsewhere"),
	       "a copy to another place is a difference, perhaps by chance", tpck_forward_difference());
	snprintf(path, sizeof path, "%s/log.000000", folder);
	unlink(path);
	rmdir(folder);
	return tap_done();
}
