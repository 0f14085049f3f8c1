/* SPDX-License-Identifier: Apache-2.0 */
/* What a launch's leader knows of its nodes: who is there, who is through, which steps are whole. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "runtime/peer/ledger.h"
#include "runtime/wire/segment.h"
#include "tests/unit/store_tap.h"

enum { MANY = 3000, EACH = 8, WORLD_ID = 0x77 };

static struct tpck_ledger *ledger;

static const char *name_of(unsigned n)
{
	static char name[32];

	snprintf(name, sizeof name, "node%u", n);
	return name;
}

/* `nodes` with `each` ranks. */
static void begin(unsigned nodes, unsigned each)
{
	tpck_ledger_free(ledger);
	ledger = tpck_ledger_new(nodes * each);
	for (unsigned r = 0; r < nodes * each; r++)
		tpck_ledger_join(ledger, r, name_of(r / each));
}

/* All ranks of a node, which are next to each other in one communicator. */
static void holds(unsigned n, unsigned each, uint64_t step, uint64_t collectives)
{
	unsigned world = 4 * each;
	struct tpck_counted row = {WORLD_ID, collectives, 1, world, n * each, (n + 1) * each, 0};

	tpck_ledger_held(ledger, name_of(n), step, each, &row, 1, NULL, 0);
}

static int cut_of(uint64_t step)
{
	struct tpck_counts counts = {0};
	int rc = tpck_ledger_counts(ledger, step, &counts);

	rc = rc ? rc : tpck_counts_match(&counts, NULL);
	tpck_counts_free(&counts);
	return rc;
}

static unsigned nodes_there(void)
{
	unsigned count = 0;
	size_t at = 0;

	while (tpck_ledger_node(ledger, &at))
		count++;
	return count;
}

static const char *ranks_of(const char *node)
{
	static char text[100];
	uint32_t at = 0, rank;

	text[0] = '\0';
	while (tpck_ledger_rank(ledger, node, &at, &rank))
		snprintf(text + strlen(text), sizeof text - strlen(text), " %u", rank);
	return text;
}

static void nodes(void)
{
	ledger = tpck_ledger_new(4);
	tap_ok(!tpck_ledger_is_complete(ledger) && !tpck_ledger_where(ledger, 0) && nodes_there() == 0, "nobody is there", NULL);
	begin(4, 1);
	tap_ok(tpck_ledger_is_complete(ledger) && nodes_there() == 4 && strcmp(tpck_ledger_where(ledger, 2), "node2") == 0, "all are", NULL);
	tap_ok(tpck_ledger_leave(ledger, "node2") && !tpck_ledger_leave(ledger, "node2") && !tpck_ledger_leave(ledger, "other") &&
		       !tpck_ledger_is_complete(ledger) && !tpck_ledger_where(ledger, 2) && nodes_there() == 3,
	       "one is gone", NULL);
	tpck_ledger_join(ledger, 2, "node1");
	tap_ok(tpck_ledger_is_complete(ledger) && nodes_there() == 3, "its rank is where another is", NULL);
	tpck_ledger_join(ledger, 2, "node1");
	tpck_ledger_join(ledger, 1, "node9");
	tap_ok(tpck_ledger_is_complete(ledger) && nodes_there() == 4, "it says so twice, and the other moves", NULL);
	tap_ok(strcmp(ranks_of("node1"), " 2") == 0 && strcmp(ranks_of("node2"), "") == 0 && strcmp(ranks_of("node9"), " 1") == 0,
	       "each node has its ranks", ranks_of("node1"));
	tpck_ledger_join(ledger, 0, "node1");
	tpck_ledger_join(ledger, 3, "node1");
	tap_ok(strcmp(ranks_of("node1"), " 0 2 3") == 0, "in their order", ranks_of("node1"));
	tpck_ledger_free(ledger);
	ledger = NULL;
	begin(MANY, EACH);
	tap_ok(tpck_ledger_is_complete(ledger) && nodes_there() == MANY, "many nodes", NULL);
	for (unsigned n = 0; n < MANY; n++)
		if (!tpck_ledger_leave(ledger, name_of(n)))
			break;
	tap_ok(nodes_there() == 0, "and all of them gone", NULL);
}

static void rounds(void)
{
	begin(3, 2);
	tpck_ledger_begin(ledger, TPCK_ROUND_COPY);
	tap_ok(!tpck_ledger_done(ledger, TPCK_ROUND_COPY, "node0") && !tpck_ledger_done(ledger, TPCK_ROUND_COPY, "node0") &&
		       !tpck_ledger_done(ledger, TPCK_ROUND_COPY, "node2") && !tpck_ledger_done(ledger, TPCK_ROUND_COPY, "strange"),
	       "some are through, and one says so twice", NULL);
	tpck_ledger_leave(ledger, "node0");
	tap_ok(!tpck_ledger_done(ledger, TPCK_ROUND_COPY, "node1"), "not all, with one that is gone", NULL);
	tpck_ledger_join(ledger, 0, "node0");
	tpck_ledger_join(ledger, 1, "node0");
	tap_ok(tpck_ledger_done(ledger, TPCK_ROUND_COPY, "node0"), "it is back, and says it again", NULL);
	tap_ok(!tpck_ledger_done(ledger, TPCK_ROUND_FLUSH, "node0"), "another round is another one", NULL);
	tpck_ledger_begin(ledger, TPCK_ROUND_COPY);
	tap_ok(!tpck_ledger_done(ledger, TPCK_ROUND_COPY, "node0") && !tpck_ledger_done(ledger, TPCK_ROUND_COPY, "node1") &&
		       tpck_ledger_done(ledger, TPCK_ROUND_COPY, "node2"),
	       "the next one", NULL);
	tpck_ledger_begin(ledger, TPCK_ROUND_STAGE);
	tpck_ledger_done(ledger, TPCK_ROUND_STAGE, "node0");
	tpck_ledger_done(ledger, TPCK_ROUND_STAGE, "node1");
	tpck_ledger_join(ledger, 0, "next0");
	tpck_ledger_join(ledger, 1, "next0");
	tap_ok(!tpck_ledger_leave(ledger, "node0") && tpck_ledger_is_complete(ledger) && !tpck_ledger_done(ledger, TPCK_ROUND_STAGE, "node2") &&
		       tpck_ledger_done(ledger, TPCK_ROUND_STAGE, "next0"),
	       "a node's next agent comes before the last one is known to be gone: that was through, and this is not", NULL);
}

static void steps(void)
{
	begin(4, 2);
	for (unsigned n = 0; n < 3; n++)
		holds(n, 2, 10, 7);
	tap_ok(tpck_ledger_whole(ledger) == 0 && tpck_ledger_missed(ledger) == 0, "three of four hold it", NULL);
	holds(2, 2, 10, 7);
	tap_ok(tpck_ledger_whole(ledger) == 0, "one of them says so again", NULL);
	holds(3, 1, 10, 7);
	tap_ok(tpck_ledger_whole(ledger) == 0, "of the fourth one rank only", NULL);
	holds(3, 2, 10, 7);
	tap_ok(tpck_ledger_whole(ledger) == 10 && cut_of(10) == 0, "all do, and it is a cut", NULL);
	tpck_ledger_committed(ledger, 10);
	tap_ok(tpck_ledger_whole(ledger) == 0 && tpck_ledger_missed(ledger) == 0, "it is committed", NULL);
	for (unsigned n = 0; n < 4; n++)
		holds(n, 2, 20, n == 3 ? 8 : 7);
	tap_ok(tpck_ledger_whole(ledger) == 20 && cut_of(20) != 0, "counts that differ are no cut", NULL);
	tpck_ledger_give_up(ledger, 20);
	tap_ok(tpck_ledger_whole(ledger) == 0 && tpck_ledger_missed(ledger) == 0, "it is given up", NULL);
	for (unsigned n = 0; n < 4; n++) {
		holds(n, 2, 30, 9);
		holds(n, 2, 40, 9);
	}
	tap_ok(tpck_ledger_whole(ledger) == 40, "of two the newer one", NULL);
	tpck_ledger_committed(ledger, 40);
	tap_ok(tpck_ledger_whole(ledger) == 0, "and the older one is history", NULL);
	for (unsigned n = 0; n < 4; n++)
		holds(n, 2, 50, 9);
	tpck_ledger_leave(ledger, "node1");
	tap_ok(tpck_ledger_whole(ledger) == 0, "a node is gone with what it held", NULL);
}

static void missed(void)
{
	begin(4, 2);
	holds(0, 2, 10, 7);
	holds(1, 2, 20, 7);
	tap_ok(tpck_ledger_missed(ledger) == 10, "a node holds a newer one and not this", NULL);
	tpck_ledger_give_up(ledger, 10);
	tap_ok(tpck_ledger_missed(ledger) == 0, "it is given up", NULL);
	holds(2, 2, 10, 7);
	tap_ok(tpck_ledger_missed(ledger) == 10, "for whoever comes with it later, too", NULL);
	tpck_ledger_give_up(ledger, 10);
	holds(2, 2, 15, 7);
	tap_ok(tpck_ledger_missed(ledger) == 15, "the newer one came first", NULL);
	tpck_ledger_give_up(ledger, 15);
	tpck_ledger_give_up(ledger, 18);
	holds(0, 2, 18, 7);
	tap_ok(tpck_ledger_missed(ledger) == 18, "given up before anybody held it", NULL);
	tpck_ledger_give_up(ledger, 18);
	for (unsigned n = 0; n < 4; n++)
		holds(n, 2, 20, 7);
	tap_ok(tpck_ledger_whole(ledger) == 20, "and the newer one becomes whole", NULL);
	begin(4, 2);
	tpck_ledger_give_up(ledger, 10);
	holds(0, 2, 10, 7);
	tap_ok(tpck_ledger_missed(ledger) == 10, "a rank has left it out, says its node, before another says that it holds it", NULL);
	tpck_ledger_committed(ledger, 10);
	tap_ok(tpck_ledger_missed(ledger) == 0, "until a newer one is committed", NULL);
	/* A program that never comes to one. */
	begin(4, 2);
	for (uint64_t step = 1; step < 5000; step++)
		tpck_ledger_give_up(ledger, step);
	for (unsigned n = 0; n < 4; n++)
		for (uint64_t step = 6000; step < 6000 + 3 * TPCK_IMAGES_MAX; step++)
			holds(n, 2, step, 7);
	tap_ok(tpck_ledger_whole(ledger) == 6000 + 3 * TPCK_IMAGES_MAX - 1, "many that come to nothing", NULL);
}

/* ---- going live, and the deaths of those who lead ----------------------------------------- */

enum { GOING = 4, DEATHS = 2 };

/* Nodes of one rank each; the first one's agent leads, and dies once it has told those whose bits are in `hear` to go live, each time. A node that is not
 * ready becomes so when `late` leaders have died. */
struct going {
	bool ready[GOING], live[GOING];
	bool wrong; /* one went live, and another was not ready */
};

static void go_live(struct going *going, unsigned n)
{
	going->live[n] = true;
	for (unsigned i = 0; i < GOING; i++)
		going->wrong = going->wrong || !going->ready[i];
}

/* The next leader: all nodes join and say what they are, from `first` on. */
static void lead_on(struct going *going, unsigned first, unsigned hear)
{
	begin(GOING, 1);
	for (unsigned i = 0; i < GOING; i++) {
		unsigned n = (first + i) % GOING;
		enum tpck_ready to = going->ready[n] ? tpck_ledger_ready(ledger, name_of(n), going->live[n]) : TPCK_READY_NOBODY;

		for (unsigned k = 0; k < GOING; k++)
			if ((hear >> k & 1) && (to == TPCK_READY_ALL || (to == TPCK_READY_THIS && k == n)))
				go_live(going, k);
	}
}

static void going(void)
{
	unsigned tried = 0, bad = 0, not_all = 0;

	/* Which hear it of the first leader and of the second, from whom on they say it, and which node is ready only for the latter; GOING: all are. */
	for (unsigned choice = 0; choice < (1u << (DEATHS * GOING)) * GOING * (GOING + 1); choice++) {
		unsigned first = choice >> (DEATHS * GOING), late = first / GOING;
		struct going state = {0};

		for (unsigned n = 0; n < GOING; n++)
			state.ready[n] = n != late;
		lead_on(&state, 0, choice & ((1u << GOING) - 1));
		if (late < GOING)
			state.ready[late] = true;
		lead_on(&state, first % GOING, choice >> GOING & ((1u << GOING) - 1));
		/* One that lives. */
		lead_on(&state, first % GOING, (1u << GOING) - 1);
		tried++;
		bad += state.wrong;
		for (unsigned n = 0; n < GOING; n++)
			not_all += !state.live[n];
	}
	tap_ok(tried == 5120 && bad == 0, "none goes live before all are ready, whoever hears it of leaders that die", NULL);
	tap_ok(not_all == 0, "and then all do, by the next one that lives", NULL);
	begin(3, 1);
	tpck_ledger_leave(ledger, "node2");
	tap_ok(tpck_ledger_ready(ledger, "node0", false) == TPCK_READY_NOBODY && tpck_ledger_ready(ledger, "node1", true) == TPCK_READY_ALL,
	       "where one is live nobody is waited for", NULL);
	begin(3, 1);
	tap_ok(tpck_ledger_ready(ledger, "node0", false) == TPCK_READY_NOBODY && tpck_ledger_ready(ledger, "node0", false) == TPCK_READY_NOBODY &&
		       tpck_ledger_ready(ledger, "node1", false) == TPCK_READY_NOBODY,
	       "what is said twice counts once", NULL);
	tpck_ledger_leave(ledger, "node1");
	tap_ok(tpck_ledger_ready(ledger, "node2", false) == TPCK_READY_NOBODY, "and not for one that is gone", NULL);
	tpck_ledger_join(ledger, 1, "node1");
	tap_ok(tpck_ledger_ready(ledger, "node1", false) == TPCK_READY_ALL && tpck_ledger_ready(ledger, "node2", false) == TPCK_READY_THIS,
	       "its next agent is told with all, and whoever says it later alone", NULL);
}

static void pace(void)
{
	struct tpck_pace all;

	begin(3, 2);
	tpck_ledger_pace(ledger, "node0", &(struct tpck_pace){40, 900, 3});
	tpck_ledger_pace(ledger, "node2", &(struct tpck_pace){42, 700, 2});
	tpck_ledger_pace(ledger, "node2", &(struct tpck_pace){41, 800, 3});
	tpck_ledger_pace(ledger, "strange", &(struct tpck_pace){99, 1, 1});
	all = tpck_ledger_pace_of_all(ledger);
	tap_ok(all.furthest == 42 && all.iteration_ns == 800 && all.images == 3, "the furthest, the fastest, the fewest images", NULL);
}

int main(void)
{
	nodes();
	rounds();
	steps();
	missed();
	going();
	pace();
	tpck_ledger_free(ledger);
	return tap_done();
}
