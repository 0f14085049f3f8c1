/* SPDX-License-Identifier: Apache-2.0 */
/* needs: cores=0.5 about=7s */
/*
 * How far the agreement of many ranks goes: the leader's real code (peer/ledger.h, inquiry.h, consensus.h, placement.h, store/cut.h,
 * store/publish.h) over a modelled network and store. Each message takes its time on the leader's link and MESSAGE_NS of its processor, and then what its
 * handling took here, by this thread's clock; nodes work beside each other, so the slowest counts.
 *
 *   scale [RANKS]...    without arguments 1000 10000 100000
 *
 * Says what each takes, and by how much that grew. It fails where a result is wrong, or where the work for one node grows
 * with the number of nodes.
 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/peer/accord.h"
#include "runtime/peer/inquiry.h"
#include "runtime/peer/ledger.h"
#include "runtime/peer/placement.h"
#include "runtime/peer/protocol.h"
#include "runtime/store/cut.h"
#include "runtime/store/manifest_text.h"
#include "runtime/store/parts.h"
#include "runtime/store/publish.h"
#include "tests/sim-scale/agents.h"
#include "tests/unit/store_tap.h"

/* The model: a link of 10 Gb/s at each node, 50 us away, and what a message costs besides its handling. */
#define LATENCY_NS 50000.0
#define NS_A_BYTE 0.8
#define MESSAGE_NS 2000.0
/* How much more a node may cost with ten times as many, at the best of some turns: a cache has its limits, and what is looked for is ten. */
#define GROWTH_MAX 7.0
#define ANSWER_NS 1000000.0 /* of the store */
enum { RACK = 16, COPIES = 2, STEP = 300, TURNS = 7, PLACED = 40, HEAD_BYTES = 4096 };
/* What whoever joins may need of memory: so much, and the 20th part of all marks. */
enum { MEMORY_LEAST = 8 << 20, MEMORY_SHARE = 20 };
/* Whole marks that are here, of 141 KB each, and 3 ms to make and to read: without arguments, and with. */
enum { MARKS_USUAL = 125, MARKS_MOST = 1250 };

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

/* ---- joining the parts of a checkpoint ------------------------------------------------------- */

/* A node's part, of ranks of a GiB each, which refers to two older checkpoints of its own. */
static struct tpck_manifest *part_of(uint32_t first)
{
	struct tpck_manifest *part = calloc(1, sizeof *part);
	char path[64];

	part->point = (struct tpck_point){4, STEP};
	part->parent = (struct tpck_point){3, 7};
	part->world = world;
	part->part = true;
	part->created_ns = first + 1;
	part->stored_bytes = 1u << 30;
	part->member_count = world - first < EACH ? world - first : EACH;
	part->members = calloc(EACH, sizeof *part->members);
	snprintf(path, sizeof path, "step-%012d.g4/data.%u", STEP, first);
	tpck_manifest_container(part, path, (uint64_t)EACH << 30);
	for (uint32_t i = 1; i <= 2; i++) {
		snprintf(path, sizeof path, "step-%012d.g4/data.%u", STEP - 10 * i, first);
		tpck_manifest_container(part, path, (uint64_t)EACH << 30);
	}
	for (uint32_t m = 0; m < part->member_count; m++) {
		struct tpck_member *member = &part->members[m];

		member->rank = first + m;
		member->identity = calloc(1, IDENTITY_BYTES + 1);
		memset(member->identity, 'i', IDENTITY_BYTES);
		snprintf(member->identity, IDENTITY_BYTES, "rank %u", member->rank);
		member->identity[strlen(member->identity)] = '\n';
		member->data_bytes = 1u << 30;
		member->resumable = true;
		member->objects = calloc(1, sizeof *member->objects);
		member->object_count = 1;
		tpck_object_make(&member->objects[0], TPCK_OBJECT_IMAGE, "image.data", member->data_bytes);
		for (size_t i = 0; i < member->objects[0].count; i++) {
			member->objects[0].chunks[i].container = i % 3;
			member->objects[0].chunks[i].offset = ((uint64_t)m << 30) + i * TPCK_CHUNK_BYTES;
			memset(member->objects[0].chunks[i].digest, (int)(m + 31 * i), 16);
		}
	}
	return part;
}

/* The store: what each node has marked, of which, where there are many, all but two have only their beginnings here, and what is published. Each
 * answer takes a while, as that of a file system on other machines does. */
struct store {
	struct tpck_tier tier; /* first */
	char (*heads)[HEAD_BYTES];
	char **mark; /* by node */
	char *published;
	size_t published_bytes;
	_Atomic uint32_t answers, whole_marks, waiting, waiting_most; /* how many wait for an answer at a time */
};
static struct store store;

static void answer(void)
{
	uint32_t now = atomic_fetch_add(&store.waiting, 1) + 1, most = atomic_load(&store.waiting_most);

	atomic_fetch_add(&store.answers, 1);
	while (now > most && !atomic_compare_exchange_weak(&store.waiting_most, &most, now))
		;
	nanosleep(&(struct timespec){0, (long)ANSWER_NS}, NULL);
	atomic_fetch_sub(&store.waiting, 1);
}

static uint32_t middle(void)
{
	return nodes / 2;
}

/* Which node's it is; UINT32_MAX: nobody's. */
static uint32_t node_of(const char *path, const char *kind)
{
	const char *name = strchr(path, '/');
	size_t length = strlen(kind);

	return name && strncmp(name + 1, kind, length) == 0 ? (uint32_t)strtoul(name + 1 + length, NULL, 10) / EACH : UINT32_MAX;
}

static int store_get(struct tpck_tier *tier, const char *path, uint64_t offset, void *buffer, size_t bytes, struct tpck_error *err)
{
	uint32_t n = node_of(path, "mark.r");

	(void)tier;
	(void)offset;
	answer();
	if (n == UINT32_MAX && bytes == 1)
		return 0;
	if (n >= nodes || bytes > HEAD_BYTES)
		return tpck_error_set(err, ENOENT, "%s", path);
	memcpy(buffer, store.heads[n], bytes);
	return 0;
}

static int store_get_text(struct tpck_tier *tier, const char *path, size_t limit, char **text, size_t *size, struct tpck_error *err)
{
	uint32_t n = node_of(path, "mark.r");
	const char *from = strstr(path, TPCK_MANIFEST) ? store.published : n < nodes ? store.mark[n] : NULL;

	(void)tier;
	(void)limit;
	answer();
	if (!from)
		return tpck_error_set(err, ENOENT, "%s", path);
	atomic_fetch_add(&store.whole_marks, n != UINT32_MAX);
	*text = strdup(from);
	if (size)
		*size = strlen(from);
	return 0;
}

static int store_list(struct tpck_tier *tier, const char *folder, int (*visit)(void *context, const char *name), void *context,
		      struct tpck_error *err)
{
	char name[64];
	int rc = 0;

	(void)tier;
	(void)folder;
	(void)err;
	answer();
	for (uint32_t n = nodes; !rc && n-- > 0;) {
		snprintf(name, sizeof name, "mark.r%u.o0", n * EACH);
		rc = visit(context, name);
	}
	return rc;
}

static int store_commit(struct tpck_tier *tier, const char *path, const char *text, size_t size, struct tpck_error *err)
{
	(void)tier;
	(void)path;
	(void)err;
	answer();
	store.published = strdup(text);
	store.published_bytes = size;
	return 0;
}

static int store_mark(struct tpck_tier *tier, const char *path, const char *text, struct tpck_error *err)
{
	(void)tier;
	(void)path;
	(void)text;
	(void)err;
	answer();
	return 0;
}

static const struct tpck_tier_operations store_operations = {
	.kind = "modelled", .get = store_get, .get_text = store_get_text, .list = store_list, .commit_if_absent = store_commit, .mark = store_mark,
};

static uint32_t marks_most = MARKS_USUAL;

/* Whether whole marks of all are here: they are much of what such a checkpoint's reader has to read. */
static bool marks_are_whole(void)
{
	return nodes <= marks_most;
}

/* Every node has marked its part. */
static size_t mark_all(void)
{
	size_t bytes = 0;

	store = (struct store){.tier = {.operations = &store_operations, .root = "/model"}};
	store.heads = calloc(nodes, sizeof *store.heads);
	store.mark = calloc(nodes, sizeof *store.mark);
	for (uint32_t n = 0; n < nodes; n++) {
		struct tpck_manifest *part = part_of(n * EACH), *head = NULL;
		static const uint8_t none[16];
		struct tpck_error err = {0};
		char *text = NULL;
		size_t size = 0;

		if (n == 0 || n == middle() || marks_are_whole()) {
			if (tpck_mark_format(part, &text, &err))
				abort();
			store.mark[n] = strdup(text);
			bytes = strlen(text);
		} else if (tpck_part_head(&head, part, none, bytes) || tpck_manifest_format(head, &text, &size, &err)) {
			abort();
		}
		/* What is behind a head is not looked at. */
		memset(store.heads[n], ' ', HEAD_BYTES);
		memcpy(store.heads[n], text, strlen(text) < HEAD_BYTES ? strlen(text) : HEAD_BYTES);
		free(text);
		tpck_manifest_free(head);
		tpck_manifest_free(part);
	}
	return bytes;
}

static double process_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* A line of /proc/self/status, in bytes. */
static size_t status_of(const char *key)
{
	FILE *file = fopen("/proc/self/status", "re");
	char line[200];
	size_t kilobytes = 0;

	while (file && fgets(line, sizeof line, file))
		if (strncmp(line, key, strlen(key)) == 0)
			kilobytes = strtoull(line + strlen(key), NULL, 10);
	if (file)
		fclose(file);
	return kilobytes << 10;
}

/* What one agent needs for something. */
struct cost {
	double ns, busy_ns; /* with the store's answers; of the processor */
	size_t memory, text; /* at most; of the manifest */
	uint32_t answers, whole_marks, waiting_most;
	bool right;
};

static bool join_them(void)
{
	struct tpck_point point = {4, STEP};
	struct tpck_manifest *whole = NULL;
	struct tpck_error err = {0};
	bool right = tpck_publish_join(&store.tier, &point, world, NULL, NULL, &whole, &err) == 0 && whole->part_count == nodes &&
		     whole->container_count == 3 * (size_t)nodes && tpck_manifest_bytes(whole) == (uint64_t)world << 30;

	tpck_manifest_free(whole);
	return right;
}

/* A node of a start that goes on from it, and then writes the next part. */
static bool read_one(void)
{
	struct tpck_point point = {4, STEP};
	struct tpck_manifest *whole = NULL;
	struct tpck_error err = {0};
	uint32_t rank = middle() * EACH + 1;
	bool right = tpck_manifest_load(&whole, &store.tier, &point, &err) == 0 && tpck_manifest_need(whole, &store.tier, rank, &err) == 0 &&
		     whole->member_count == ranks_of(middle()) && tpck_manifest_member(whole, rank, 0);

	tpck_manifest_free(whole);
	return right;
}

/* Whether it is the part that is next. */
static int take_part(void *context, size_t i, const struct tpck_manifest *part, const struct tpck_error *why)
{
	size_t *next = context;

	(void)why;
	return part && i == (*next)++ && part->members[0].rank == i * EACH && part->member_count == ranks_of((uint32_t)i) ? 0 : -EBADMSG;
}

/* What whoever verifies or copies it reads of marks. */
static bool read_all(void)
{
	struct tpck_point point = {4, STEP};
	struct tpck_manifest *whole = NULL;
	struct tpck_error err = {0};
	size_t next = 0;
	bool right = tpck_manifest_load(&whole, &store.tier, &point, &err) == 0 &&
		     tpck_manifest_each_part(&store.tier, whole, take_part, &next) == 0 && next == nodes;

	tpck_manifest_free(whole);
	return right;
}

/* The same with one after another, to compare with. */
static bool read_singly(void)
{
	struct tpck_point point = {4, STEP};
	struct tpck_manifest *whole = NULL, *part;
	struct tpck_error err = {0};
	bool right = tpck_manifest_load(&whole, &store.tier, &point, &err) == 0;

	for (uint32_t n = 0; right && n < nodes; n++) {
		right = tpck_manifest_part(&part, &store.tier, whole, n, &err) == 0;
		if (right)
			tpck_manifest_free(part);
	}
	tpck_manifest_free(whole);
	return right;
}

/* In a process of its own, whose memory is what it had at most. */
static struct cost cost_of(bool (*work)(void))
{
	struct cost cost = {0};
	int pipes[2];
	pid_t child;

	malloc_trim(0);
	if (pipe(pipes))
		return cost;
	child = fork();
	if (child == 0) {
		double wall = process_ns(CLOCK_MONOTONIC), busy = process_ns(CLOCK_PROCESS_CPUTIME_ID);
		size_t before = status_of("VmRSS:");

		store.answers = store.whole_marks = store.waiting_most = 0;
		cost.right = work();
		cost.ns = process_ns(CLOCK_MONOTONIC) - wall;
		cost.busy_ns = process_ns(CLOCK_PROCESS_CPUTIME_ID) - busy;
		cost.memory = status_of("VmHWM:") - before;
		cost.text = store.published_bytes;
		cost.answers = store.answers;
		cost.whole_marks = store.whole_marks;
		cost.waiting_most = store.waiting_most;
		_exit(write(pipes[1], &cost, sizeof cost) != sizeof cost);
	}
	close(pipes[1]);
	if (child < 0 || read(pipes[0], &cost, sizeof cost) != sizeof cost)
		cost.right = false;
	close(pipes[0]);
	if (child > 0)
		waitpid(child, NULL, 0);
	return cost;
}

/* Of what is said of each number of ranks. */
struct row {
	double step_ns, step_busy_ns, start_ns, start_busy_ns, place_ns;
	struct cost join, reader, all, singly; /* the last two where whole marks are here */
	struct agent_costs leader, follower;
	size_t part_bytes, step_bytes, ledger_bytes, start_memory;
	uint32_t nodes;
};

/* ---- agents -------------------------------------------------------------------------------- */

/* One that does not lead is the same however many others there are. */
enum { FOLLOWER_GROWTH_PERCENT = 10 };

static void run_agents(uint32_t ranks, struct row *row)
{
	char what[120];

	row->leader = agent_that_leads(ranks);
	snprintf(what, sizeof what, "%u ranks: an agent leads them through a start and a step", ranks);
	tap_ok(row->leader.right, what, NULL);
	row->follower = agent_that_follows(ranks);
	snprintf(what, sizeof what, "%u ranks: another one is led", ranks);
	tap_ok(row->follower.right, what, NULL);
	/* Identities as they are would be all of it. */
	snprintf(what, sizeof what, "%u ranks: the leader does not keep their identities' texts", ranks);
	tap_ok(row->leader.running < (size_t)ranks * IDENTITY_BYTES / 4, what, NULL);
}

static void print_agents(uint32_t ranks, const struct row *row, const struct row *last)
{
	const struct agent_costs *leader = &row->leader, *follower = &row->follower;

	printf("# %7u ranks with identities of %.1f KB: the leader's memory %7.2f MB while it chooses what all go on from, %7.2f MB then; %.3f s of "
	       "its processor for %.2f MB that ranks say of themselves, %.3f s for their ends; another agent's memory %.1f KB",
	       ranks, IDENTITY_BYTES / 1e3, (double)leader->choosing / 1e6, (double)leader->running / 1e6, leader->members_ns / 1e9,
	       (double)leader->said / 1e6, leader->ended_ns / 1e9, (double)follower->running / 1e3);
	if (last)
		printf("; %.1f times the nodes: leader's memory x %.1f, another one's x %.2f", (double)row->nodes / last->nodes,
		       (double)leader->running / (double)last->leader.running, (double)follower->running / (double)last->follower.running);
	printf("\n");
}

/* ---- all of it ------------------------------------------------------------------------------ */

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
	row->part_bytes = mark_all();
	row->join = cost_of(join_them);
	snprintf(what, sizeof what, "%u ranks: parts are joined, and of marks but the first one only heads are read", ranks);
	tap_ok(row->join.right && row->join.whole_marks == 1, what, NULL);
	/* What one checkpoint's marks have is not to be in one agent's memory. */
	snprintf(what, sizeof what, "%u ranks: whoever joins needs a small part of the memory that all marks would take", ranks);
	tap_ok(row->join.memory < MEMORY_LEAST + nodes * row->part_bytes / MEMORY_SHARE, what, NULL);
	right = join_them() && right;
	row->reader = cost_of(read_one);
	snprintf(what, sizeof what, "%u ranks: a node that goes on reads the manifest and its own part", ranks);
	tap_ok(row->reader.right && row->reader.answers == 2 && row->reader.whole_marks == 1, what, NULL);
	if (marks_are_whole()) {
		row->all = cost_of(read_all);
		row->singly = cost_of(read_singly);
		snprintf(what, sizeof what, "%u ranks: whoever verifies or copies reads each mark once, up to sixteen at a time, and has them in order", ranks);
		tap_ok(row->all.right && row->singly.right && row->all.whole_marks == nodes && row->all.waiting_most > 1 && row->all.waiting_most <= 16 &&
			       row->singly.waiting_most == 1, what, NULL);
	}
	free(store.heads);
	for (uint32_t n = 0; n < nodes; n++)
		free(store.mark[n]);
	free(store.mark);
	free(store.published);
	row->nodes = nodes;
	tpck_ledger_free(ledger);
	free(names);
	run_agents(ranks, row);
	return right;
}

static void print(uint32_t ranks, const struct row *row, const struct row *last)
{
	printf("# %7u ranks on %6u nodes: step committed %8.3f ms (leader works %8.3f, %7.3f MB to it), consensus at a start %8.3f ms "
	       "(works %8.3f), placement %6.3f ms a node, leader's memory for these %6.1f + %6.1f MB",
	       ranks, row->nodes, row->step_ns / 1e6, row->step_busy_ns / 1e6, (double)row->step_bytes / 1e6, row->start_ns / 1e6,
	       row->start_busy_ns / 1e6, row->place_ns / 1e6, (double)row->ledger_bytes / 1e6, (double)row->start_memory / 1e6);
	if (last)
		printf("; %.1f times the nodes: step x %.1f, consensus x %.1f, placement x %.1f", (double)row->nodes / last->nodes,
		       row->step_ns / last->step_ns, row->start_ns / last->start_ns, row->place_ns / last->place_ns);
	printf("\n# %7u ranks of a GiB: a node's mark is %.0f KB, the manifest %.2f MB; joining takes %.3f s with answers of %.0f us (%.3f s of the "
	       "processor, %u answers) and %.1f MB, a node's reading %.1f ms and %.1f MB\n",
	       ranks, (double)row->part_bytes / 1e3, (double)row->join.text / 1e6, row->join.ns / 1e9, ANSWER_NS / 1e3, row->join.busy_ns / 1e9,
	       row->join.answers, (double)row->join.memory / 1e6, row->reader.ns / 1e6, (double)row->reader.memory / 1e6);
	if (row->all.ns)
		printf("# %7u ranks of a GiB: reading all marks takes %.3f s (%.3f s of processors) and %.1f MB, one after another %.3f s (%.3f s) and "
		       "%.1f MB\n", ranks, row->all.ns / 1e9, row->all.busy_ns / 1e9, (double)row->all.memory / 1e6, row->singly.ns / 1e9,
		       row->singly.busy_ns / 1e9, (double)row->singly.memory / 1e6);
}

static bool grows(const struct row *row, const struct row *last)
{
	return row->leader.members_ns / row->nodes > GROWTH_MAX * last->leader.members_ns / last->nodes ||
	       row->leader.ended_ns / row->nodes > GROWTH_MAX * last->leader.ended_ns / last->nodes ||
	       row->join.busy_ns / row->nodes > GROWTH_MAX * last->join.busy_ns / last->nodes ||
	       row->step_busy_ns / row->nodes > GROWTH_MAX * last->step_busy_ns / last->nodes ||
	       row->start_busy_ns / row->nodes > GROWTH_MAX * last->start_busy_ns / last->nodes;
}

int main(int count, char **arguments)
{
	static const char *const usual[] = {"1000", "10000", "100000"};
	struct row last = {0};
	char what[120];

	if (count > 1)
		marks_most = MARKS_MOST;
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
		print_agents((uint32_t)ranks, &row, last.nodes ? &last : NULL);
		snprintf(what, sizeof what, "%lu ranks: a node costs the leader what it cost with fewer", ranks);
		if (last.nodes)
			tap_ok(!grows(&row, &last), what, NULL);
		snprintf(what, sizeof what, "%lu ranks: an agent that does not lead needs the memory that it needed with fewer", ranks);
		if (last.nodes)
			tap_ok(row.follower.running * 100 <= last.follower.running * (100 + FOLLOWER_GROWTH_PERCENT) &&
				       row.follower.choosing * 100 <= last.follower.choosing * (100 + FOLLOWER_GROWTH_PERCENT),
			       what, NULL);
		last = row;
	}
	return tap_done();
}
