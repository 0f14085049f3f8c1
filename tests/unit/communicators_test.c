/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators by handle: what is counted comes into the image's index, in order of creation, and is compared with it. */
#include "config.h"

#include <errno.h>

#include "runtime/track/communicator_calls.h"
#include "tests/unit/store_tap.h"

#define is_true(good) tap_ok(good, #good, "")

static char handles[TPCK_COMMUNICATORS_MAX + 1];

static void count(struct tpck_communicator *c, uint64_t from, uint64_t to)
{
	for (uint64_t what = from; what < to; what++)
		tpck_communicator_collective(c, what);
}

/* What a graph makes is counted as what is made one by one, whoever has the list meanwhile. */
static void listed(void)
{
	struct tpck_communicator_call call = {.handle = &handles[2], .kind = TPCK_ALL_REDUCE, .shown = true, .what = 7, .elements = 40};
	struct tpck_communicator *a = tpck_communicator_find(&handles[2]), *b = tpck_communicator_find(&handles[3]);
	struct tpck_communicator_calls *calls = NULL, *early, *whole = NULL;
	uint64_t collectives = a->collectives;
	int rc = 0;

	call.index = a->index;
	b->order = a->order;
	for (int i = 0; i < 3; i++) {
		rc |= tpck_communicator_calls_add(&calls, &call);
		tpck_communicator_collective(b, 7);
	}
	early = tpck_communicator_calls_hold(calls);
	is_true(rc == 0 && tpck_communicator_calls_add(&calls, &call) == 0 && calls != early);
	is_true(a->collectives == collectives);
	tpck_communicator_calls_count(early);
	is_true(a->collectives == collectives + 3 && a->order == b->order);
	tpck_communicator_calls_count(calls);
	is_true(a->collectives == collectives + 7);
	/* A graph that has both as parts; one that has itself. */
	is_true(tpck_communicator_calls_append(&whole, early) == 0 && tpck_communicator_calls_append(&whole, calls) == 0 &&
		tpck_communicator_calls_append(&whole, NULL) == 0 && tpck_communicator_calls_append(&whole, whole) == 0);
	tpck_communicator_calls_count(whole);
	is_true(a->collectives == collectives + 21);
	collectives += 14;
	tpck_communicator_calls_drop(whole);
	tpck_communicator_calls_drop(early);
	for (rc = 0; !rc;)
		rc = tpck_communicator_calls_add(&calls, &call);
	is_true(rc == -ENOSPC);
	/* The communicator's place is another one's now. */
	call.index++;
	tpck_communicator_count(&call);
	is_true(a->collectives == collectives + 7);
	tpck_communicator_calls_drop(calls);
	tpck_communicator_calls_drop(NULL);
	tpck_communicator_calls_count(NULL);
}

/* What the program has is a key: NCCL is told what is behind it, and nothing once that is gone. */
static void keyed(void)
{
	struct tpck_communicator *a = tpck_communicator_reserve(), *b = tpck_communicator_reserve(), *c;
	char *inside = (char *)a + 8;

	is_true(a && b && a != b && tpck_communicator_real(a) == a && !tpck_communicator_find(a));
	atomic_store(&a->real, &handles[7]);
	atomic_store(&b->real, NULL);
	tpck_communicator_begin(a, 900, 4, 3, 1);
	is_true(tpck_communicator_find(a) == a && a->id == 900 && a->size == 4 && a->rank == 3 && a->device == 1);
	is_true(tpck_communicator_real(a) == &handles[7] && !tpck_communicator_real(b));
	/* NCCL's own, and no handles at all. */
	is_true(tpck_communicator_real(&handles[9]) == &handles[9] && !tpck_communicator_real(NULL) && tpck_communicator_real(inside) == inside &&
		tpck_communicator_real(&tpck_communicator_table[TPCK_COMMUNICATORS_MAX]) == &tpck_communicator_table[TPCK_COMMUNICATORS_MAX]);
	is_true(!tpck_communicator_find(inside) && !tpck_communicator_find(&handles[7]));
	/* One that came to nothing, one that ends: their places are free. */
	tpck_communicator_release(b);
	is_true(tpck_communicator_reserve() == b);
	tpck_communicator_remove(a);
	is_true(!tpck_communicator_real(a) && !tpck_communicator_find(a));
	c = tpck_communicator_reserve();
	is_true(c == a);
	tpck_communicator_remove(c); /* nothing was known of it */
	is_true(tpck_communicator_reserve() == a);
	tpck_communicator_release(a);
	tpck_communicator_release(b);
}

int main(void)
{
	struct tpck_communicators all, then;
	char why[200];
	uint64_t changes = tpck_communicators_changes();

	is_true(tpck_communicators_take(&all) == 0 && all.communicators == 0 && all.peers == 0);
	tpck_communicators_free(&all);
	is_true(!tpck_communicators_compare(NULL, 0, NULL, 0, why, sizeof why));
	is_true(!tpck_communicator_find(&handles[0]) && !tpck_communicator_find(NULL));

	is_true(tpck_communicator_add(&handles[0], 100, 4, 1, 0) == 0);
	is_true(tpck_communicator_add(&handles[1], 200, 2, 0, -1) == 0);
	is_true(tpck_communicators_changes() == changes + 2);
	count(tpck_communicator_find(&handles[0]), 0, 5);
	count(tpck_communicator_find(&handles[1]), 5, 7);
	tpck_communicator_transfer(tpck_communicator_find(&handles[1]), 1, false);
	tpck_communicator_transfer(tpck_communicator_find(&handles[1]), 1, false);
	tpck_communicator_transfer(tpck_communicator_find(&handles[1]), 1, true);
	tpck_communicator_transfer(tpck_communicator_find(&handles[1]), 2, true); /* it has no such rank */
	is_true(tpck_communicators_take(&all) == 0 && all.communicators == 2 && all.peers == 1);
	is_true(all.communicator[0].id == 100 && all.communicator[0].size == 4 && all.communicator[0].rank == 1 &&
		all.communicator[0].collectives == 5 && all.communicator[1].collectives == 2 && all.communicator[1].device == -1);
	is_true(all.peer[0].communicator == 1 && all.peer[0].peer == 1 && all.peer[0].sends == 2 && all.peer[0].receives == 1);
	is_true(!tpck_communicators_compare(all.communicator, all.communicators, all.peer, all.peers, why, sizeof why));

	all.communicator[0].id = 7; /* of another run */
	is_true(!tpck_communicators_compare(all.communicator, all.communicators, all.peer, all.peers, why, sizeof why));
	all.communicator[0].collectives++;
	is_true(tpck_communicators_compare(all.communicator, all.communicators, all.peer, all.peers, why, sizeof why) &&
		strcmp(why, "communicator 0 is rank 1 of 4 after 5 collectives, and was rank 1 of 4 after 6") == 0);
	all.communicator[0].collectives--;
	all.communicator[0].order++;
	is_true(tpck_communicators_compare(all.communicator, all.communicators, all.peer, all.peers, why, sizeof why) &&
		strstr(why, "after 5 other ones"));
	all.communicator[0].order--;
	all.peer[0].sends++;
	is_true(tpck_communicators_compare(all.communicator, all.communicators, all.peer, all.peers, why, sizeof why));
	all.peer[0].sends--;
	is_true(tpck_communicators_compare(all.communicator, 1, all.peer, 0, why, sizeof why) &&
		strcmp(why, "there are 2 communicators of NCCL in place of 1") == 0);

	/* The order of calls is a part of it. */
	tpck_communicator_add(&handles[2], 300, 1, 0, 0);
	tpck_communicator_add(&handles[3], 400, 1, 0, 0);
	count(tpck_communicator_find(&handles[2]), 1, 3);
	tpck_communicator_collective(tpck_communicator_find(&handles[3]), 2);
	tpck_communicator_collective(tpck_communicator_find(&handles[3]), 1);
	is_true(tpck_communicators_take(&then) == 0 && then.communicator[2].collectives == then.communicator[3].collectives &&
		then.communicator[2].order != then.communicator[3].order);
	tpck_communicators_free(&then);

	listed();

	/* A handle that is given out again is another one. */
	tpck_communicator_remove(&handles[0]);
	is_true(!tpck_communicator_find(&handles[0]));
	is_true(tpck_communicator_add(&handles[0], 500, 2, 1, 0) == 0);
	is_true(tpck_communicators_take(&then) == 0 && then.communicators == 4 && then.communicator[3].id == 500 &&
		then.communicator[3].index == 4 && then.communicator[3].collectives == 0 && then.peers == 1 &&
		then.peer[0].communicator == 0);
	tpck_communicators_free(&then);
	tpck_communicators_free(&all);

	keyed();
	for (int i = 4; i < TPCK_COMMUNICATORS_MAX; i++)
		tpck_communicator_add(&handles[i], 1, 1, 0, 0);
	is_true(tpck_communicator_add(&handles[TPCK_COMMUNICATORS_MAX], 1, 1, 0, 0) == -ENOSPC);
	is_true(tpck_communicator_find(&handles[TPCK_COMMUNICATORS_MAX - 1]));
	is_true(!tpck_communicator_reserve());
	return tap_done();
}
