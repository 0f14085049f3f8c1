/* SPDX-License-Identifier: Apache-2.0 */
/* What is made durable of a launch that has lost nodes, and who writes what. */
#include "config.h"

#include "agent/peers/peers.h"
#include "agent/salvage/salvage_private.h"
#include "tests/unit/store_tap.h"

enum { WORLD = 4, GENERATION = 7 };
enum { HELD = TPCK_HOLDING_HELD, COMMITTED = TPCK_HOLDING_COMMITTED, COPY = TPCK_HOLDING_COPY, FRAGMENT = TPCK_HOLDING_FRAGMENT };

static struct salvage s;
static uint32_t part_of[WORLD], ordinal[WORLD];
static const struct tpck_error err;

const char *peers_node(void)
{
	return "me";
}

static void begin(void)
{
	tpck_inquiry_free(&s.inquiry);
	free(s.part);
	s = (struct salvage){.generation = GENERATION, .world = WORLD, .part_of = part_of, .ordinal = ordinal};
	memset(part_of, 0xff, sizeof part_of);
	(void)tpck_inquiry_ask(&s.inquiry, "one");
	(void)tpck_inquiry_ask(&s.inquiry, "two");
	(void)tpck_inquiry_ask(&s.inquiry, "three");
}

enum { ME = -1, ONE, TWO, THREE };

/* Ranks `first` and the next one are a part, which a node has of a step. */
static void has_at(int node, uint32_t first, uint64_t generation, uint64_t step, uint32_t kind, unsigned index)
{
	for (uint32_t r = first; r < first + 2; r++) {
		struct tpck_accord_holding row = {.generation = generation, .step = step, .rank = r, .kind = kind, .resumable = 1, .form = first};

		if (kind == FRAGMENT) {
			row.data = 2;
			row.parity = 1;
			row.index = (uint8_t)index;
		}
		salvage_take(&s, node == ME ? TPCK_NO_NAME : (uint32_t)node, &row, 1);
	}
}

static void has(int node, uint32_t first, uint64_t step, uint32_t kind)
{
	has_at(node, first, GENERATION, step, kind, 0);
}

/* Whether this step is chosen, and who writes the two parts. */
static bool is(uint64_t step, const char *zero, enum tpck_left_from zero_from, const char *two, enum tpck_left_from two_from)
{
	return salvage_choose(&s) && s.point.generation == GENERATION && s.point.step == step && s.part_count == 2 && s.part[0].rank == 0 &&
	       s.part[1].rank == 2 && strcmp(s.part[0].node, zero) == 0 && s.part[0].from == zero_from && strcmp(s.part[1].node, two) == 0 &&
	       s.part[1].from == two_from;
}

static void test_copies(void)
{
	begin();
	has(ME, 0, 20, COMMITTED);
	has(ME, 2, 20, COPY);
	ok(is(20, "me", TPCK_LEFT_OWN, "me", TPCK_LEFT_COPY), "one node has all");
	begin();
	has(ONE, 0, 20, COPY);
	has(TWO, 0, 20, COMMITTED);
	has(THREE, 2, 20, COPY);
	ok(is(20, "two", TPCK_LEFT_OWN, "three", TPCK_LEFT_COPY), "what is a node's own is written by it");
	begin();
	has(ME, 0, 23, COMMITTED);
	has(ME, 0, 20, COMMITTED);
	has(TWO, 2, 20, COPY);
	has(THREE, 2, 20, COPY);
	ok(is(20, "me", TPCK_LEFT_OWN, "two", TPCK_LEFT_COPY), "the newest that all ranks have, of two copies one");
	begin();
	has(ME, 0, 20, COMMITTED);
	ok(!salvage_choose(&s), "where a part is lost there is nothing");
	begin();
	has(ME, 0, 20, HELD);
	has(ONE, 2, 20, HELD);
	ok(!salvage_choose(&s), "nor where nobody knows that it was agreed on");
	begin();
	has(ME, 0, 20, HELD);
	has(ONE, 2, 20, COPY);
	ok(is(20, "me", TPCK_LEFT_OWN, "one", TPCK_LEFT_COPY), "there are only copies of what was");
}

static void test_odd(void)
{
	begin();
	has(ME, 0, 20, COMMITTED);
	has_at(ONE, 2, GENERATION - 1, 20, COPY, 0);
	ok(!salvage_choose(&s), "other generations' are not of it");
	begin();
	has(ME, 0, 20, COMMITTED);
	has(ONE, 2, 20, COPY);
	has_at(TWO, 1, GENERATION, 20, COPY, 0);
	has_at(TWO, WORLD - 1, GENERATION, 20, COPY, 0);
	ok(is(20, "me", TPCK_LEFT_OWN, "one", TPCK_LEFT_COPY), "what says that parts are other ones, or that there are more ranks, is left out");
	begin();
	/* Half of the newest is with each of two nodes: no one can write it. */
	has(ME, 0, 23, COMMITTED);
	has(ME, 0, 20, COMMITTED);
	has(ONE, 2, 20, COPY);
	for (int node = ONE; node <= TWO; node++) {
		struct tpck_accord_holding row = {.generation = GENERATION, .step = 23, .rank = 2 + (uint32_t)node, .kind = COPY, .form = 2};

		salvage_take(&s, (uint32_t)node, &row, 1);
	}
	ok(is(20, "me", TPCK_LEFT_OWN, "one", TPCK_LEFT_COPY), "a part that no node has whole makes the step before the newest");
}

static void test_fragments(void)
{
	begin();
	has(ME, 0, 20, COMMITTED);
	has_at(ONE, 2, GENERATION, 20, FRAGMENT, 0);
	ok(!salvage_choose(&s), "one fragment of two is nothing");
	has_at(TWO, 2, GENERATION, 20, FRAGMENT, 2);
	ok(is(20, "me", TPCK_LEFT_OWN, "one", TPCK_LEFT_FRAGMENTS) || !tpck_erasure_can(), "two are enough, and one who has one writes the part");
}

int main(void)
{
	test_copies();
	test_odd();
	test_fragments();
	tpck_inquiry_free(&s.inquiry);
	free(s.part);
	return tap_done();
}
