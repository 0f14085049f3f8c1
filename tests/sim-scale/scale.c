/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far the agreement of many ranks goes: the leader's real code (peer/ledger.h, inquiry.h, consensus.h, placement.h, store/cut.h)
 * over a modelled network. Each message takes its time on the leader's link and MESSAGE_NS of its processor, and then what its
 * handling took here, by this thread's clock; nodes work beside each other, so the slowest counts.
 *
 *   scale [RANKS]...    without arguments 1000 10000 100000
 *
 * Says what each takes, and by how much that grew. It fails where a result is wrong, or where the work for one node grows
 * with the number of nodes.
 */
#include "config.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/peer/accord.h"
#include "runtime/peer/inquiry.h"
#include "runtime/peer/ledger.h"
#include "runtime/peer/message.h"
#include "runtime/peer/placement.h"
#include "runtime/store/cut.h"
#include "runtime/store/manifest.h"
#include "tests/unit/store_tap.h"

/* The model: a link of 10 Gb/s at each node, 50 us away, and what a message costs besides its handling. */
#define LATENCY_NS 50000.0
#define NS_A_BYTE 0.8
#define MESSAGE_NS 2000.0
/* How much more a node may cost with ten times as many, at the best of some turns: a cache has its limits, and what is looked for is ten. */
#define GROWTH_MAX 7.0
enum { EACH = 8, RACK = 16, COPIES = 2, STEP = 300, TURNS = 7, PLACED = 40, IDENTITY_BYTES = 2000 };

/* ---- the model ---------------------------------------------------------------------------- */

static double begun_ns;

static double thread_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void begin(void)
{
	begun_ns = thread_ns();
}

static double end(void)
{
	return thread_ns() - begun_ns;
}

/* One side of the leader: when its link and its processor are free again, and what the processor has done. */
struct leader {
	double link_ns, free_ns, busy_ns;
};

/* A message that was sent at `sent`, and that is handled in `took`. */
static void hears(struct leader *leader, double sent, size_t bytes, double took)
{
	double here = sent + LATENCY_NS;

	leader->link_ns = (here > leader->link_ns ? here : leader->link_ns) + (double)bytes * NS_A_BYTE;
	if (leader->link_ns > leader->free_ns)
		leader->free_ns = leader->link_ns;
	leader->free_ns += MESSAGE_NS + took;
	leader->busy_ns += took;
}

/* To all nodes, one after another; returns when the last has it. */
static double says(struct leader *leader, uint32_t nodes, size_t bytes)
{
	leader->free_ns += nodes * (MESSAGE_NS > (double)bytes * NS_A_BYTE ? MESSAGE_NS : (double)bytes * NS_A_BYTE);
	return leader->free_ns + LATENCY_NS;
}

static void works(struct leader *leader, double took)
{
	leader->free_ns += took;
	leader->busy_ns += took;
}

/* ---- the cluster -------------------------------------------------------------------------- */

static uint32_t world, nodes;
static char (*names)[24];
static struct tpck_ledger *ledger;

static void join_all(void)
{
	nodes = (world + EACH - 1) / EACH;
	names = calloc(nodes, sizeof *names);
	for (uint32_t n = 0; n < nodes; n++)
		snprintf(names[n], sizeof *names, "node%06u", n);
	ledger = tpck_ledger_new(world);
	for (uint32_t r = 0; r < world; r++)
		tpck_ledger_join(ledger, r, names[r / EACH]);
}

static uint32_t ranks_of(uint32_t n)
{
	return n + 1 < nodes ? EACH : world - n * EACH;
}

/* ---- a step of a running job ---------------------------------------------------------------- */

/* A rank is in the communicator of all, in that of its node, and in one with the ranks of its place on the other nodes. */
static void count_ranks(struct tpck_counts *counts, uint32_t n, uint64_t collectives, uint32_t wrong)
{
	for (uint32_t i = 0; i < ranks_of(n); i++) {
		uint32_t r = n * EACH + i, beside = world / EACH + (i < world % EACH);
		struct tpck_counted rows[] = {
			{1, collectives + (r == wrong), 7, world, r, r + 1, 0},
			{1000 + n, 10 * collectives, 7, ranks_of(n), i, i + 1, 0},
			{10 + i, 3 * collectives, 7, beside, n, n + 1, 0},
		};

		tpck_counts_add(counts, rows, 3, NULL, 0);
	}
	tpck_counts_merge(counts);
}

struct outcome {
	double ns, busy_ns, slowest_node_ns;
	size_t bytes;
	bool right;
};

/* From the moment in which all nodes hold it until all know that it is committed. */
static struct outcome step(uint64_t number, uint32_t wrong)
{
	struct outcome outcome = {0};
	struct leader leader = {0};
	struct tpck_counts all = {0};
	struct tpck_error err = {0};

	for (uint32_t n = 0; n < nodes; n++) {
		struct tpck_counts here = {0};
		size_t bytes;
		double took;

		begin();
		count_ranks(&here, n, number, wrong);
		took = end();
		if (took > outcome.slowest_node_ns)
			outcome.slowest_node_ns = took;
		bytes = sizeof(struct tpck_peer_message) + sizeof(struct tpck_accord_message) + here.counted_count * sizeof *here.counted;
		outcome.bytes += bytes;
		begin();
		tpck_ledger_held(ledger, names[n], number, ranks_of(n), here.counted, here.counted_count, here.transferred, here.transferred_count);
		hears(&leader, 0, bytes, end());
		tpck_counts_free(&here);
	}
	begin();
	outcome.right = tpck_ledger_whole(ledger) == number && tpck_ledger_counts(ledger, number, &all) == 0 &&
			(tpck_counts_match(&all, &err) == 0) == (wrong == UINT32_MAX);
	if (wrong == UINT32_MAX)
		tpck_ledger_committed(ledger, number);
	else
		tpck_ledger_give_up(ledger, number);
	tpck_counts_free(&all);
	works(&leader, end());
	outcome.ns = says(&leader, nodes, sizeof(struct tpck_peer_message) + sizeof(struct tpck_accord_message)) + outcome.slowest_node_ns;
	outcome.busy_ns = leader.busy_ns;
	return outcome;
}

/* ---- a start behind the loss of a node ------------------------------------------------------ */

/* The node whose memory is gone, and that which has its copies. */
static uint32_t lost(void)
{
	return nodes / 3;
}

static uint32_t holder(uint32_t n)
{
	return (n + RACK) % nodes;
}

static void tells(struct tpck_inquiry *inquiry, uint32_t number, uint32_t rank, uint64_t at, enum tpck_holding kind)
{
	tpck_inquiry_add(inquiry, &(struct tpck_evidence){.point = {4, at}, .rank = rank, .kind = kind, .node = number});
}

/* All hold the newest step but one node, whose copies are of the one before. */
static size_t answers(struct tpck_inquiry *inquiry, uint32_t n)
{
	size_t before = inquiry->count;
	uint32_t of = (n + nodes - RACK % nodes) % nodes, number;

	if (!tpck_inquiry_answered(inquiry, names[n], &number))
		return 0;
	for (uint32_t i = 0; n != lost() && i < ranks_of(n); i++) {
		tells(inquiry, number, n * EACH + i, STEP - 10, TPCK_HOLDING_COMMITTED);
		tells(inquiry, number, n * EACH + i, STEP, TPCK_HOLDING_COMMITTED);
		tells(inquiry, number, n * EACH + i, STEP + 10, TPCK_HOLDING_HELD);
	}
	for (uint32_t i = 0; n != lost() && i < ranks_of(of); i++) {
		tells(inquiry, number, of * EACH + i, STEP - 10, TPCK_HOLDING_COPY);
		tells(inquiry, number, of * EACH + i, STEP, TPCK_HOLDING_COPY);
	}
	return (inquiry->count - before) * sizeof(struct tpck_accord_holding);
}

/* From the question until each node knows what its ranks go on from, and where that is. */
static struct outcome start(size_t *memory)
{
	struct outcome outcome = {0};
	struct leader leader = {0};
	struct tpck_inquiry inquiry = {0};
	struct tpck_point newest = {0};
	size_t before = mallinfo2().uordblks, at = 0, moved = 0;
	double asked;
	const char *node;

	begin();
	for (uint32_t n = 0; n < nodes; n++)
		tpck_inquiry_ask(&inquiry, names[n]);
	works(&leader, end());
	asked = says(&leader, nodes, sizeof(struct tpck_peer_message) + sizeof(struct tpck_accord_message) + EACH * 33);
	for (uint32_t n = 0; n < nodes; n++) {
		size_t bytes;
		double took;

		begin();
		bytes = answers(&inquiry, n);
		took = end();
		outcome.bytes += bytes;
		hears(&leader, asked, sizeof(struct tpck_peer_message) + sizeof(struct tpck_accord_message) + bytes, took);
	}
	begin();
	outcome.right = inquiry.waiting == 0 && tpck_consensus(inquiry.rows, inquiry.count, NULL, 0, world, UINT64_MAX, &newest) &&
			newest.step == STEP;
	while ((node = tpck_ledger_node(ledger, &at))) {
		uint32_t here = tpck_names_find(&inquiry.nodes, node), next = 0, rank;

		while (tpck_ledger_rank(ledger, node, &next, &rank)) {
			const struct tpck_evidence *from = tpck_consensus_source(inquiry.rows, inquiry.count, &newest, rank, here);

			outcome.right = outcome.right && from && from->node == (here == lost() ? holder(here) : here);
			moved += from && from->node != here;
		}
	}
	outcome.right = outcome.right && moved == ranks_of(lost());
	works(&leader, end());
	*memory = mallinfo2().uordblks - before;
	outcome.ns = says(&leader, nodes, sizeof(struct tpck_peer_message) + sizeof(struct tpck_accord_message));
	outcome.busy_ns = leader.busy_ns;
	tpck_inquiry_free(&inquiry);
	return outcome;
}

/* ---- where copies go ------------------------------------------------------------------------ */

static struct outcome place(void)
{
	struct outcome outcome = {.right = true};
	struct tpck_place *places = calloc(nodes, sizeof *places);
	char (*racks)[16] = calloc(nodes, sizeof *racks);
	size_t chosen[COPIES];

	for (uint32_t n = 0; n < nodes; n++) {
		snprintf(racks[n], sizeof *racks, "rack%u", n / RACK);
		places[n] = (struct tpck_place){names[n], racks[n]};
	}
	for (uint32_t i = 0; i < PLACED; i++) {
		uint32_t n = (uint32_t)((uint64_t)i * nodes / PLACED);
		double took;

		begin();
		outcome.right = tpck_placement(places, nodes, racks[n], names[n], COPIES, chosen) == COPIES && outcome.right;
		took = end();
		if (took > outcome.slowest_node_ns)
			outcome.slowest_node_ns = took;
		outcome.right = outcome.right && chosen[0] / RACK != n / RACK && chosen[1] / RACK != n / RACK &&
				chosen[0] / RACK != chosen[1] / RACK;
	}
	free(places);
	free(racks);
	return outcome;
}

/* ---- a manifest ----------------------------------------------------------------------------- */

/* A node's part, of ranks of a GiB each. */
static struct tpck_manifest *part_of(uint32_t first)
{
	struct tpck_manifest *part = calloc(1, sizeof *part);

	part->point = (struct tpck_point){4, STEP};
	part->world = world;
	part->part = true;
	part->member_count = EACH;
	part->members = calloc(EACH, sizeof *part->members);
	tpck_manifest_container(part, "step-000000000300.g4/part.0", (uint64_t)EACH << 30);
	for (uint32_t m = 0; m < EACH; m++) {
		struct tpck_member *member = &part->members[m];

		member->rank = first + m;
		member->identity = calloc(1, IDENTITY_BYTES + 1);
		memset(member->identity, 'i', IDENTITY_BYTES);
		member->data_bytes = 1u << 30;
		member->resumable = true;
		member->objects = calloc(1, sizeof *member->objects);
		member->object_count = 1;
		tpck_object_make(&member->objects[0], TPCK_OBJECT_IMAGE, "image.data", member->data_bytes);
		for (size_t i = 0; i < member->objects[0].count; i++) {
			member->objects[0].chunks[i].offset = ((uint64_t)m << 30) + i * TPCK_CHUNK_BYTES;
			memset(member->objects[0].chunks[i].digest, (int)(m + 31 * i), 16);
		}
	}
	return part;
}

/* What one agent does with each part: it reads the mark's text, and writes it into the whole one's. */
static struct outcome join_one(void)
{
	struct tpck_manifest *part = part_of(0), *read = NULL;
	struct outcome outcome = {0};
	struct tpck_error err = {0};
	char *text = NULL, *again = NULL;
	size_t size;

	outcome.right = tpck_manifest_format(part, &text, &outcome.bytes, &err) == 0;
	for (unsigned turn = 0; turn < TURNS && outcome.right; turn++) {
		double took;

		begin();
		outcome.right = tpck_manifest_parse_part(&read, text, outcome.bytes, "a part", &err) == 0 &&
				tpck_manifest_format(read, &again, &size, &err) == 0 && size == outcome.bytes;
		took = end();
		if (!outcome.ns || took < outcome.ns)
			outcome.ns = took;
		tpck_manifest_free(read);
		free(again);
		read = NULL;
		again = NULL;
	}
	free(text);
	tpck_manifest_free(part);
	return outcome;
}

/* ---- all of it ------------------------------------------------------------------------------ */

/* Of what is said of each number of ranks. */
struct row {
	double step_ns, step_busy_ns, start_ns, start_busy_ns, place_ns, part_ns;
	size_t part_bytes, step_bytes, ledger_bytes, start_memory;
	uint32_t nodes;
};

static bool better(double *best, double ns)
{
	if (*best && *best <= ns)
		return false;
	*best = ns;
	return true;
}

static bool run(uint32_t ranks, struct row *row)
{
	size_t before = mallinfo2().uordblks;
	bool right = true;
	uint64_t number = 100;
	char what[120];

	world = ranks;
	join_all();
	for (unsigned turn = 0; turn < TURNS; turn++, number += 10) {
		struct outcome outcome = step(number, UINT32_MAX);

		right = right && outcome.right;
		better(&row->step_ns, outcome.ns);
		better(&row->step_busy_ns, outcome.busy_ns);
		row->step_bytes = outcome.bytes;
	}
	snprintf(what, sizeof what, "%u ranks: a step that all nodes hold is one cut", ranks);
	tap_ok(right, what, NULL);
	snprintf(what, sizeof what, "%u ranks: one rank that counted something else is found", ranks);
	tap_ok(step(number, ranks / 2).right, what, NULL);
	row->ledger_bytes = mallinfo2().uordblks - before;
	right = true;
	for (unsigned turn = 0; turn < TURNS; turn++) {
		struct outcome outcome = start(&row->start_memory);

		right = right && outcome.right;
		better(&row->start_ns, outcome.ns);
		better(&row->start_busy_ns, outcome.busy_ns);
	}
	snprintf(what, sizeof what, "%u ranks: behind a lost node all go on at the newest step that copies have, and it from those", ranks);
	tap_ok(right, what, NULL);
	{
		struct outcome outcome = place();

		row->place_ns = outcome.slowest_node_ns;
		snprintf(what, sizeof what, "%u ranks: copies go to two other racks", ranks);
		tap_ok(outcome.right, what, NULL);
	}
	{
		struct outcome outcome = join_one();

		row->part_ns = outcome.ns;
		row->part_bytes = outcome.bytes;
		snprintf(what, sizeof what, "%u ranks: a node's part of a manifest is read as it was written", ranks);
		tap_ok(outcome.right, what, NULL);
	}
	row->nodes = nodes;
	tpck_ledger_free(ledger);
	free(names);
	return right;
}

static void print(uint32_t ranks, const struct row *row, const struct row *last)
{
	printf("# %7u ranks on %6u nodes: step committed %8.3f ms (leader works %8.3f, %7.3f MB to it), consensus at a start %8.3f ms "
	       "(works %8.3f), placement %6.3f ms a node, leader's memory %6.1f + %6.1f MB, another agent's 0",
	       ranks, row->nodes, row->step_ns / 1e6, row->step_busy_ns / 1e6, (double)row->step_bytes / 1e6, row->start_ns / 1e6,
	       row->start_busy_ns / 1e6, row->place_ns / 1e6, (double)row->ledger_bytes / 1e6, (double)row->start_memory / 1e6);
	if (last)
		printf("; %.1f times the nodes: step x %.1f, consensus x %.1f, placement x %.1f", (double)row->nodes / last->nodes,
		       row->step_ns / last->step_ns, row->start_ns / last->start_ns, row->place_ns / last->place_ns);
	printf("\n# %7u ranks of a GiB: a node's part of the manifest is %.0f KB, and takes whoever joins it %.2f ms: all of them, one after another, "
	       "%.1f MB and %.2f s (the product)\n",
	       ranks, (double)row->part_bytes / 1e3, row->part_ns / 1e6, row->nodes * (double)row->part_bytes / 1e6,
	       row->nodes * row->part_ns / 1e9);
}

static bool grows(const struct row *row, const struct row *last)
{
	return row->step_busy_ns / row->nodes > GROWTH_MAX * last->step_busy_ns / last->nodes ||
	       row->start_busy_ns / row->nodes > GROWTH_MAX * last->start_busy_ns / last->nodes;
}

int main(int count, char **arguments)
{
	static const char *const usual[] = {"1000", "10000", "100000"};
	struct row last = {0};
	char what[120];

	for (int i = 1; i < (count > 1 ? count : 4); i++) {
		const char *text = count > 1 ? arguments[i] : usual[i - 1];
		unsigned long ranks = strtoul(text, NULL, 10);
		struct row row = {0};

		/* So that there are racks enough. */
		if (ranks < (COPIES + 1) * RACK * EACH || ranks > 10000000) {
			fprintf(stderr, "scale: %s: ranks are %u to 10000000\n", text, (COPIES + 1) * RACK * EACH);
			return 2;
		}
		run((uint32_t)ranks, &row);
		print((uint32_t)ranks, &row, last.nodes ? &last : NULL);
		snprintf(what, sizeof what, "%lu ranks: a node costs the leader what it cost with fewer", ranks);
		if (last.nodes)
			tap_ok(!grows(&row, &last), what, NULL);
		last = row;
	}
	return tap_done();
}
