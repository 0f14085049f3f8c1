/* SPDX-License-Identifier: Apache-2.0 */
/* Whom ranks wait for, by what each has queued: in groups that cross, on several nodes, and with rows that are none. */
#include "config.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "runtime/peer/waiting.h"
#include "runtime/wire/segment.h"
#include "tests/unit/store_tap.h"

enum { RANKS_MAX = 64, MARKS = 3 };
#define SEC 1000000000ull

/* What a test says of one rank. */
struct told {
	uint32_t rank;
	char state;
	struct tpck_waiting_mark mark[MARKS];
};

static char rows[1 << 16];

static size_t rows_of(const struct told *told, size_t count)
{
	size_t size = 0;

	for (size_t i = 0; i < count; i++) {
		struct tpck_waiting_rank row = {.rank = told[i].rank, .pid = (int32_t)(100 + told[i].rank), .state = (uint32_t)told[i].state};

		while (row.marks < MARKS && told[i].mark[row.marks].id)
			row.marks++;
		memcpy(rows + size, &row, sizeof row);
		memcpy(rows + size + sizeof row, told[i].mark, row.marks * sizeof told[i].mark[0]);
		size += sizeof row + row.marks * sizeof told[i].mark[0];
	}
	return size;
}

/* `each` ranks on every host but the last, which has what is left. */
static struct tpck_waiting *told_by(const struct told *told, uint32_t count, uint32_t each)
{
	static const char *const host[] = {"hosta", "hostb", "hostc", "hostd", "hoste", "hostf"};
	struct tpck_waiting *waiting = tpck_waiting_new(count);
	char node[32];

	for (uint32_t at = 0, n = 0; at < count; at += each, n++) {
		snprintf(node, sizeof node, "node%u", n);
		tpck_waiting_put(waiting, node, each < count ? host[n] : "", rows, rows_of(told + at, count - at < each ? count - at : each));
	}
	return waiting;
}

static void says(const struct told *told, uint32_t count, uint32_t each, const char *wanted, const char *what)
{
	struct tpck_waiting *waiting = told_by(told, count, each);
	char text[448];

	tpck_waiting_describe(waiting, text, sizeof text);
	tap_ok(tpck_waiting_all(waiting) && !strcmp(text, wanted), what, text);
	tpck_waiting_free(waiting);
}

#define ON(ID, COUNT, AGE) {.id = ID, .collectives = COUNT, .elements = 64, .age_ns = (AGE) * SEC, .index = (ID) % 10, .last = TPCK_ALL_REDUCE}

static void test_late(void)
{
	const struct told two[] = {{0, 'S', {ON(10, 7, 2)}}, {1, 'S', {ON(10, 6, 3)}}};
	const struct told more[] = {{0, 'S', {ON(10, 9, 2)}}, {1, 'T', {ON(10, 6, 3)}}, {2, 'S', {ON(10, 9, 2)}}, {3, 'D', {ON(10, 8, 2)}}};
	struct told many[40] = {{0}};

	says(two, 2, 2, "rank 1 has not queued collective 7 of communicator 0, ncclAllReduce of 64 elements; rank 0 queued it", "one of two");
	says(two, 2, 1, "rank 1 on hostb has not queued collective 7 of communicator 0, ncclAllReduce of 64 elements; rank 0 queued it",
	     "on another host");
	says(more, 4, 2, "ranks 1 (process 101, which is stopped) and 3 (process 103, which waits for a disk) on hosta and hostb have not queued "
	     "collective 7 of communicator 0; ranks 0 and 2 queued it", "two, on two hosts");
	for (uint32_t r = 0; r < 40; r++)
		many[r] = (struct told){r, 'S', {ON(10, r < 2 ? 5 : 4, 1)}};
	says(many, 40, 8, "ranks 2, 3, 4, 5, 6, 7, 8, 9 and 30 more on hosta, hostb, hostc, hostd and 1 more have not queued collective 5 of "
	     "communicator 0, ncclAllReduce of 64 elements; ranks 0 and 1 queued it", "many");
}

/* 0 and 2, 1 and 3 have each other for data parallelism, 0 and 1, 2 and 3 for tensors. Rank 3 does nothing; rank 2 waits for it,
 * so that rank 0 waits for rank 2. */
static void test_crossing(void)
{
	const struct told four[] = {
		{0, 'S', {ON(20, 4, 1), ON(31, 9, 1)}}, {1, 'S', {ON(41, 4, 1), ON(31, 9, 1)}},
		{2, 'S', {ON(20, 3, 1), ON(51, 9, 1)}}, {3, 'S', {ON(41, 3, 1), ON(51, 8, 1)}},
	};

	says(four, 4, 1, "rank 3 on hostd has not queued collective 4 of communicator 1, ncclAllReduce of 64 elements; rank 1 queued it",
	     "not the one that waits itself");
}

static void test_even(void)
{
	const struct told stopped[] = {{0, 'S', {ON(10, 7, 2)}}, {1, 'T', {ON(10, 7, 3)}}};
	const struct told even[] = {{0, 'S', {ON(10, 7, 2), ON(20, 3, 1)}}, {1, 'S', {ON(10, 7, 3), ON(20, 3, 2)}}};
	const struct told silent[] = {{0, 'S', {{.id = 10, .age_ns = UINT64_MAX}}}, {1, 'S', {{.id = 10, .age_ns = UINT64_MAX}}}};
	const struct told none[] = {{0, 'S', {{0}}}, {1, 'S', {{0}}}};

	says(stopped, 2, 2, "rank 1 (process 101, which is stopped) may hold up the others; every rank has queued the same collectives", "stopped");
	says(even, 2, 1, "every rank has queued the same collectives; the first to call NCCL no more was rank 1 on hostb, after ncclAllReduce of 64 "
	     "elements on communicator 0", "none is late");
	says(silent, 2, 2, "nothing is known of what ranks 0 and 1 wait for", "nothing was queued");
	says(none, 2, 2, "nothing is known of what ranks 0 and 1 wait for", "there is no communicator");
}

static void test_coming(void)
{
	const struct told two[] = {{0, 'S', {ON(10, 7, 2)}}, {1, 'S', {ON(10, 6, 3)}}};
	struct told wrong = {5, 'S', {ON(10, 6, 3)}};
	struct tpck_waiting *waiting = told_by(two, 2, 1);
	char text[24];
	size_t size;

	tpck_waiting_take(waiting, "node1");
	tap_ok(!tpck_waiting_all(waiting), "one gets on", NULL);
	tpck_waiting_take(waiting, "node1");
	tpck_waiting_take(waiting, "nobody");
	size = rows_of(two + 1, 1);
	tap_ok(tpck_waiting_put(waiting, "node2", "hostc", rows, size - 1) == -EINVAL && !tpck_waiting_all(waiting), "rows that are cut off", NULL);
	memset(rows + 4, 0xff, 4);
	tap_ok(tpck_waiting_put(waiting, "node2", "hostc", rows, size) == -EINVAL, "more marks than there are", NULL);
	tap_ok(tpck_waiting_put(waiting, "node2", "hostc", rows, rows_of(&wrong, 1)) == -EINVAL, "a rank that is none", NULL);
	size = rows_of(two, 2);
	tap_ok(!tpck_waiting_put(waiting, "node2", "hostc", rows, size) && tpck_waiting_all(waiting), "another node says it of both", NULL);
	tpck_waiting_take(waiting, "node0");
	tap_ok(tpck_waiting_all(waiting), "who said it before is gone", NULL);
	tpck_waiting_describe(waiting, text, sizeof text);
	tap_ok(!strcmp(text, "rank 1 has not queued c"), "a text that is too long", text);
	tpck_waiting_free(waiting);
}

int main(void)
{
	test_late();
	test_crossing();
	test_even();
	test_coming();
	return tap_done();
}
