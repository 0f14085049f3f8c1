/* SPDX-License-Identifier: Apache-2.0 */
/* What a start gets from other nodes, and is offered of the copies that are here. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/base/log.h"
#include "tools/agent/peers/private.h"

#define SEC 1000000000ull
/* How long a start waits for others to say what they have, and for one of them to go on giving it. */
#define ASK_NS (3 * SEC)
/* Where nothing is found, by links that lose packets: one that is dead is given up before. */
#define PATIENT_NS (10 * SEC)
#define GET_NS (30 * SEC)
/* As long as a copy that is on its way may take, and how often that is looked at. */
#define BUSY_NS (60 * SEC)
#define LOOK_NS (SEC / 20)

struct ask *ask_of(uint64_t number)
{
	for (struct ask *ask = peers.asks; ask; ask = ask->next)
		if (ask->number == number)
			return ask;
	return NULL;
}

void ask_moved(uint64_t transfer, uint64_t serial, bool over, int rc, const char *why)
{
	struct ask *ask;

	pthread_mutex_lock(&peers.lock);
	ask = ask_of(transfer);
	if (ask && ask->getting && ask->from == serial) {
		ask->moved_ns = tpck_clock_monotonic_ns();
		if (over) {
			ask->got = true;
			ask->rc = rc;
			snprintf(ask->why, sizeof ask->why, "%s", why);
			pthread_cond_broadcast(&peers.changed);
		}
	}
	pthread_mutex_unlock(&peers.lock);
}

static void ask_run(struct errand *errand)
{
	struct ask *ask = (struct ask *)errand;

	/* Those that become known later are asked then. The asker must not see it posted, and nobody asked yet. */
	pthread_mutex_lock(&peers.lock);
	ask->posted = true;
	for (struct peer *peer = peers.list; peer; peer = peer->next)
		if (peer->state == PEER_KNOWN)
			transfer_greet(peer);
	pthread_cond_broadcast(&peers.changed);
	pthread_mutex_unlock(&peers.lock);
}

struct get_errand {
	struct errand errand; /* first */
	uint64_t serial, number;
	uint32_t rank, ordinal;
	struct tpck_point point;
	struct tpck_fragment fragment;
	char identity[];
};

static void get_run(struct errand *errand)
{
	struct get_errand *get = (struct get_errand *)errand;
	struct peer *peer = peer_of_serial(get->serial);
	struct tpck_peer_message head = {
		.transfer = get->number, .generation = get->point.generation, .step = get->point.step, .rank = get->rank,
		.ordinal = get->ordinal, .fragment = get->fragment,
	};

	if (peer)
		(void)peer_send_text(peer, TPCK_PEER_GET, &head, get->identity, strlen(get->identity) + 1);
	free(get);
}

/* The lock is held, and let go of while it waits. False: the time is over. */
static bool wait_change(uint64_t until_ns)
{
	uint64_t now = tpck_clock_monotonic_ns();
	struct timespec until;

	if (now >= until_ns)
		return false;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += (time_t)((until_ns - now) / SEC);
	until.tv_nsec += (long)((until_ns - now) % SEC);
	if (until.tv_nsec >= (long)SEC) {
		until.tv_nsec -= (long)SEC;
		until.tv_sec++;
	}
	pthread_cond_timedwait(&peers.changed, &peers.lock, &until);
	return true;
}

/* Whether somebody may still say something. */
static bool is_open(const struct ask *ask)
{
	if (!ask->posted || !peers.scanned || ask->answered < ask->asked)
		return true;
	for (const struct peer *peer = peers.list; peer; peer = peer->next)
		if (peer->state == PEER_CONNECTING || peer->state == PEER_GREETED)
			return true;
	return false;
}

static struct ask *ask_new(const char *identity, uint32_t rank, uint32_t ordinal)
{
	static uint64_t numbers;
	struct ask *ask = peers.on ? calloc(1, sizeof *ask) : NULL;

	if (!ask)
		return NULL;
	ask->errand.run = ask_run;
	ask->identity = identity;
	ask->rank = rank;
	ask->ordinal = ordinal;
	/* Apart from the numbers that the other side gives. */
	ask->number = 1ull << 63 | ++numbers;
	pthread_mutex_lock(&peers.lock);
	ask->next = peers.asks;
	peers.asks = ask;
	pthread_mutex_unlock(&peers.lock);
	return ask;
}

/* Under the lock. */
static void take_out(const struct ask *ask)
{
	for (struct ask **place = &peers.asks; *place; place = &(*place)->next)
		if (*place == ask) {
			*place = ask->next;
			break;
		}
}

/* One attempt. Under the lock, which is let go of while it waits. */
static bool fetch_once(struct ask *ask, const struct ask_answer *answer)
{
	struct get_errand *get = calloc(1, sizeof *get + strlen(ask->identity) + 1);

	if (!get)
		return false;
	get->errand.run = get_run;
	get->serial = ask->from = answer->serial;
	get->number = ask->number;
	get->rank = ask->rank;
	get->ordinal = ask->ordinal;
	get->point = ask->wanted = answer->point;
	get->fragment = ask->wanted_fragment = answer->fragment;
	strcpy(get->identity, ask->identity);
	ask->getting = true;
	ask->got = false;
	ask->moved_ns = tpck_clock_monotonic_ns();
	pthread_mutex_unlock(&peers.lock);
	peers_errand(&get->errand);
	pthread_mutex_lock(&peers.lock);
	while (!ask->got && wait_change(ask->moved_ns + GET_NS))
		;
	ask->getting = false;
	if (!ask->got) {
		ask->rc = -ETIMEDOUT;
		snprintf(ask->why, sizeof ask->why, "it does not go on");
	}
	return ask->rc == 0;
}

/*
 * As fetch_once(). Where it is to be there may be a copy on its way already, mostly this very one: who has it sends it by
 * himself, too. That is no fault of the copy's, and is waited for.
 */
static bool fetch(struct ask *ask, const struct ask_answer *answer)
{
	uint64_t until = tpck_clock_monotonic_ns() + BUSY_NS, now;

	ask->rc = -ENOMEM;
	snprintf(ask->why, sizeof ask->why, "out of memory");
	while (!fetch_once(ask, answer) && ask->rc == -EBUSY && (now = tpck_clock_monotonic_ns()) < until) {
		uint64_t look = now + LOOK_NS;

		while (wait_change(look < until ? look : until))
			;
	}
	if (answer->fragment.data) {
		if (ask->rc)
			tpck_log_warn("fragment %u of %u+%u of step %" PRIu64 " of generation %" PRIu64 " that %s has cannot be had: %s",
				      answer->fragment.index, answer->fragment.data, answer->fragment.parity, answer->point.step,
				      answer->point.generation, answer->host, ask->why);
		else
			tpck_log_info("got fragment %u of %u+%u of step %" PRIu64 " of generation %" PRIu64 " from %s", answer->fragment.index,
				      answer->fragment.data, answer->fragment.parity, answer->point.step, answer->point.generation, answer->host);
		return ask->rc == 0;
	}
	if (ask->rc == 0) {
		tpck_log_info("got a copy of step %" PRIu64 " of generation %" PRIu64 " from %s", answer->point.step,
			      answer->point.generation, answer->host);
		return true;
	}
	tpck_log_warn("the copy of step %" PRIu64 " of generation %" PRIu64 " that %s has cannot be had: %s", answer->point.step,
		      answer->point.generation, answer->host, ask->why);
	return false;
}

/* ---- fragments ---------------------------------------------------------------------------- */

/* What is here is like an answer of this node's own. */
static void add_fragments_here(struct ask *ask)
{
	size_t count;
	struct tpck_peer_told *rows = copies_here_fragments(ask->identity, ask->rank, ask->ordinal, &count);

	for (size_t i = 0; i < count && ask->count < ASK_ANSWERS; i++) {
		struct ask_answer *answer = &ask->answers[ask->count++];

		*answer = (struct ask_answer){.serial = ASK_HERE, .point = {rows[i].generation, rows[i].step}, .fragment = rows[i].fragment,
					      .part = rows[i].part};
		memcpy(answer->host, peers.host, sizeof answer->host);
	}
	free(rows);
}

static bool same_code(const struct ask_answer *a, const struct ask_answer *b)
{
	return a->fragment.data == b->fragment.data && a->fragment.parity == b->fragment.parity &&
	       tpck_point_compare(&a->point, &b->point) == 0;
}

/* Under the lock: whether with this answer there are enough fragments of it; of a whole copy it is itself. */
static bool gather_may(const struct ask *ask, const struct ask_answer *answer)
{
	uint32_t found = 0;

	for (unsigned i = 0; i < ask->count; i++)
		if (ask->answers[i].serial && same_code(&ask->answers[i], answer))
			found |= 1u << ask->answers[i].fragment.index;
	return !answer->fragment.data || __builtin_popcount(found) >= answer->fragment.data;
}

/* Fragments that are here, each of another index. */
struct gathered {
	struct tpck_fragment code;
	unsigned count;
	struct copy *copy[TPCK_FRAGMENTS_MAX];
	unsigned slot[TPCK_FRAGMENTS_MAX];
	/* of the chunk that is put together */
	uint8_t *bytes[TPCK_FRAGMENTS_MAX];
	uint16_t index[TPCK_FRAGMENTS_MAX];
	const uint8_t *good[TPCK_FRAGMENTS_MAX];
	unsigned good_count;
	uint64_t damaged; /* fragments of chunks */
};

static bool pin_fragment(struct gathered *g, const struct ask *ask, const struct ask_answer *answer)
{
	struct copy *copy = copy_pin_fragment(ask->identity, ask->rank, ask->ordinal, &answer->point, &answer->fragment, &g->slot[g->count]);

	if (copy)
		g->copy[g->count++] = copy;
	return copy != NULL;
}

/* Those that came for this go. */
static void let_go(struct gathered *g)
{
	pthread_mutex_lock(&peers.lock);
	for (unsigned i = 0; i < g->count; i++)
		if (g->copy[i]->gathered)
			g->copy[i]->doomed = true;
	pthread_mutex_unlock(&peers.lock);
	for (unsigned i = 0; i < g->count; i++)
		copy_unpin(g->copy[i], g->slot[i]);
	for (unsigned i = 0; i < TPCK_FRAGMENTS_MAX; i++)
		free(g->bytes[i]);
}

static void read_fragments(struct gathered *g, const struct tpck_peer_want *at, size_t size)
{
	uint8_t said[16], digest[16];

	g->good_count = 0;
	for (unsigned i = 0; i < g->count; i++) {
		if (tpck_replica_fragment(g->copy[i]->replica, g->slot[i], at, g->bytes[i], said, NULL))
			continue;
		tpck_digest128(g->bytes[i], size, digest);
		if (memcmp(said, digest, sizeof digest) != 0) {
			g->damaged++;
			continue;
		}
		g->index[g->good_count] = g->copy[i]->replica->fragment.index;
		g->good[g->good_count++] = g->bytes[i];
	}
}

/* The next choice of `of` out of `count`, ascending. */
static bool next_choice(unsigned *choice, unsigned of, unsigned count)
{
	for (unsigned i = of; i-- > 0;)
		if (choice[i] < count - of + i) {
			choice[i]++;
			for (unsigned j = i + 1; j < of; j++)
				choice[j] = choice[j - 1] + 1;
			return true;
		}
	return false;
}

/* A chunk of what is coming, out of any K fragments that are good and give what the chunk's digest says. -EAGAIN: there are none such. */
static int put_together(struct gathered *g, struct tpck_replica *to, const struct tpck_peer_want *at, struct tpck_error *err)
{
	enum { CHOICES = 1000 };
	size_t length = to->coming->members[at->member].objects[at->object].chunks[at->chunk].length;
	unsigned choice[TPCK_FRAGMENTS_MAX], k = g->code.data, tries = 0;

	read_fragments(g, at, tpck_fragment_bytes(&g->code, length));
	if (g->good_count < k) {
		tpck_error_set(err, 0, "chunk %u of %s has %u good fragments of %u that it takes", at->chunk,
			       to->coming->members[at->member].objects[at->object].name, g->good_count, k);
		return -EAGAIN;
	}
	for (unsigned i = 0; i < k; i++)
		choice[i] = i;
	do {
		uint16_t index[TPCK_FRAGMENTS_MAX];
		const uint8_t *fragment[TPCK_FRAGMENTS_MAX];
		uint8_t *place = tpck_replica_place(to, at, length);
		int rc;

		if (!place)
			return tpck_error_set(err, ENOMEM, "putting fragments together");
		for (unsigned i = 0; i < k; i++) {
			index[i] = g->index[choice[i]];
			fragment[i] = g->good[choice[i]];
		}
		rc = tpck_erasure_join(&g->code, index, fragment, place, length);
		if (rc)
			(void)tpck_replica_take(to, at, place, false, NULL, NULL);
		else
			rc = tpck_replica_take(to, at, place, true, NULL, err);
		if (rc != -EBADMSG)
			return rc ? tpck_error_set(err, -rc, "putting fragments together") : 0;
	} while (++tries < CHOICES && next_choice(choice, k, g->good_count));
	tpck_error_set(err, 0, "chunk %u of %s is not what its digest says, whichever of %u fragments it is made of", at->chunk,
		       to->coming->members[at->member].objects[at->object].name, g->good_count);
	return -EAGAIN;
}

/* All chunks, into a copy of the whole. -EAGAIN: with more fragments it may be. */
static int put_all_together(struct gathered *g, struct tpck_error *err)
{
	const struct tpck_replica *from = g->copy[0]->replica;
	struct tpck_manifest *manifest;
	struct tpck_peer_want *want = NULL;
	char *text = strdup(from->text[g->slot[0]]), reason[200];
	size_t size = from->text_size[g->slot[0]], count = 0;
	struct copy *copy;
	int rc = text ? tpck_manifest_parse(&manifest, text, size, "of a fragment", err) : tpck_error_set(err, ENOMEM, "putting fragments together");

	if (rc) {
		free(text);
		return rc;
	}
	rc = copy_for(manifest, &(struct tpck_fragment){0}, g->copy[0]->owner, 0, true, &copy, err);
	if (rc) {
		tpck_manifest_free(manifest);
		free(text);
		return rc == -EALREADY ? 0 : rc;
	}
	if (!copy_room(copy, manifest, 1, reason, sizeof reason))
		rc = tpck_error_set(err, 0, "no room for what fragments are put together to: %s", reason);
	if (!rc)
		rc = tpck_replica_begin(copy->replica, manifest, text, size, copy->to, &want, &count, err);
	if (rc) {
		tpck_manifest_free(manifest);
		free(text);
		copy_filled(copy, rc == -EALREADY);
		return rc == -EALREADY ? 0 : rc;
	}
	for (size_t i = 0; i < count && !rc; i++)
		rc = put_together(g, copy->replica, &want[i], err);
	free(want);
	if (!rc)
		rc = tpck_replica_finish(copy->replica, err);
	else
		tpck_replica_abort(copy->replica);
	copy_filled(copy, rc == 0);
	return rc;
}

/* The answer with a fragment that is not here yet, here ones first; NULL: there is none. */
static struct ask_answer *next_fragment(struct ask *ask, const struct ask_answer *like, uint32_t have)
{
	struct ask_answer *found = NULL;

	for (unsigned i = 0; i < ask->count; i++) {
		struct ask_answer *answer = &ask->answers[i];

		if (answer->serial && same_code(answer, like) && !(have >> answer->fragment.index & 1) &&
		    (!found || answer->serial == ASK_HERE ||
		     (found->serial != ASK_HERE && answer->fragment.index < found->fragment.index)))
			found = answer;
	}
	return found;
}

/*
 * The same for fragments: as many are got here as are needed, one after the other, and put together. Each chunk is compared with its digest; where that does
 * not come out another one's fragments are got. Those who gave none, or no good one, are not asked again.
 */
static bool gather(struct ask *ask, const struct ask_answer *answer)
{
	struct ask_answer like = *answer, *next;
	struct gathered g = {.code = like.fragment};
	struct tpck_error err = {0};
	unsigned needed = like.fragment.data;
	uint32_t have = 0;
	int rc = tpck_erasure_can() ? -EAGAIN : tpck_error_set(&err, 0, "this agent was built without ISA-L");

	for (unsigned i = 0; i < like.fragment.data + like.fragment.parity && rc == -EAGAIN; i++)
		if (!(g.bytes[i] = malloc(tpck_fragment_bytes(&like.fragment, TPCK_CHUNK_BYTES))))
			rc = tpck_error_set(&err, ENOMEM, "putting fragments together");
	while (rc == -EAGAIN && (next = next_fragment(ask, &like, have))) {
		struct ask_answer one = *next;
		bool got = one.serial == ASK_HERE || fetch(ask, &one);

		/* Whether it is of use or not. */
		next->serial = 0;
		pthread_mutex_unlock(&peers.lock);
		if (got && pin_fragment(&g, ask, &one))
			have |= 1u << one.fragment.index;
		if (g.count >= needed) {
			rc = put_all_together(&g, &err);
			needed = g.count + 1;
		}
		pthread_mutex_lock(&peers.lock);
	}
	pthread_mutex_unlock(&peers.lock);
	let_go(&g);
	pthread_mutex_lock(&peers.lock);
	if (rc == 0) {
		tpck_log_info("step %" PRIu64 " of generation %" PRIu64 " is put together of %u fragments of %u+%u, %" PRIu64 " of whose chunks were damaged",
			      like.point.step, like.point.generation, g.count, like.fragment.data, like.fragment.parity, g.damaged);
		return true;
	}
	/* The others of this step are of no use either. */
	for (unsigned i = 0; i < ask->count; i++)
		if (same_code(&ask->answers[i], &like))
			ask->answers[i].serial = 0;
	snprintf(ask->why, sizeof ask->why, "%.190s", err.text[0] ? err.text : "too few of its fragments can be had");
	tpck_log_warn("step %" PRIu64 " of generation %" PRIu64 " cannot be put together of fragments: %s", like.point.step, like.point.generation,
		      ask->why);
	return false;
}

/* ---- asking ------------------------------------------------------------------------------- */

/* The newest that is here or in the store. */
static struct tpck_point newest_here(struct agent *agent, bool store, const struct offer_request *request)
{
	struct tpck_point newest = {0};
	unsigned slot;
	struct copy *copy = copy_pin(request->identity, request->rank, request->ordinal, NULL, &slot);

	if (copy) {
		newest = copy->slot[slot].point;
		copy_unpin(copy, slot);
	}
	for (size_t i = 0; i < request->memory_count; i++)
		if (!request->memory[i].identity_differs && tpck_point_compare(&request->memory[i].point, &newest) > 0)
			newest = request->memory[i].point;
	for (size_t t = store ? 0 : 1; t < agent->tiers.count; t++) {
		struct tpck_catalog catalog;

		pthread_mutex_lock(&store_in_use);
		if (tpck_catalog_load(&catalog, agent->tiers.tier[t], NULL, NULL, NULL, NULL) == 0) {
			for (size_t i = 0; i < catalog.count; i++)
				if (tpck_manifest_is_of(catalog.manifests[i], request->rank, request->ordinal, request->identity) &&
				    tpck_point_compare(&catalog.manifests[i]->point, &newest) > 0)
					newest = catalog.manifests[i]->point;
			tpck_catalog_free(&catalog);
		}
		pthread_mutex_unlock(&store_in_use);
	}
	return newest;
}

struct offer_request *peers_first(struct offer_request *requests, size_t count)
{
	struct offer_request *first = requests;

	for (size_t i = 1; i < count; i++)
		if (requests[i].rank < first->rank)
			first = &requests[i];
	return first;
}

void peers_fetch(struct agent *agent, bool store, struct offer_request *request)
{
	struct ask *ask = ask_new(request->identity, request->rank, request->ordinal);
	struct tpck_point newest;
	uint64_t begun = tpck_clock_monotonic_ns();

	if (!ask)
		return;
	newest = newest_here(agent, store, request);
	add_fragments_here(ask);
	peers_errand(&ask->errand);
	pthread_mutex_lock(&peers.lock);
	while (is_open(ask) && wait_change(begun + ASK_NS))
		;
	while (!newest.generation && !ask->count && !request->told_only && is_open(ask) && wait_change(begun + PATIENT_NS))
		;
	while (ask->posted && !request->told_only) {
		struct ask_answer *best = NULL;
		int order = 0;

		for (unsigned i = 0; i < ask->count; i++)
			if (ask->answers[i].serial && !ask->answers[i].part && tpck_point_compare(&ask->answers[i].point, &newest) > 0 &&
			    gather_may(ask, &ask->answers[i]) && tpck_program_allows(request->program, &ask->answers[i].point) == TPCK_ALLOWED) {
				/* Of equals by name: who is asked first is not chance. */
				if (best)
					order = tpck_point_compare(&ask->answers[i].point, &best->point);
				if (best && order == 0)
					order = (best->fragment.data != 0) - (ask->answers[i].fragment.data != 0);
				if (best && order == 0)
					order = strcmp(best->host, ask->answers[i].host);
				if (!best || order > 0)
					best = &ask->answers[i];
			}
		if (!best || (best->fragment.data ? gather(ask, best) : fetch(ask, best)))
			break;
		request->lost = best->point;
		if (best->fragment.data)
			snprintf(request->lost_why, sizeof request->lost_why, "%.280s", ask->why);
		else
			snprintf(request->lost_why, sizeof request->lost_why, "%.100s: %.180s", best->host, ask->why);
		best->serial = 0;
	}
	take_out(ask);
	/* One that the thread has not come to yet is its to look at. */
	while (!ask->posted && !peers.ended)
		pthread_cond_wait(&peers.changed, &peers.lock);
	pthread_mutex_unlock(&peers.lock);
	copies_here_drop_left(request->identity, request->rank, request->ordinal);
	free(request->other_identity);
	request->other_identity = ask->other_identity;
	request->other_point = ask->other_point;
	free(ask);
}

static bool is_here(const char *identity, uint32_t rank, uint32_t ordinal, const struct tpck_point *point)
{
	unsigned slot;
	struct copy *copy = copy_pin(identity, rank, ordinal, point, &slot);

	if (copy)
		copy_unpin(copy, slot);
	return copy != NULL;
}

/* Under the lock. An agent that has just begun may not be known here yet. */
static bool find_peer(const char *node, struct ask_answer *answer)
{
	uint64_t until = tpck_clock_monotonic_ns() + PATIENT_NS;

	do
		for (const struct peer *peer = peers.list; peer; peer = peer->next)
			if (peer->state == PEER_KNOWN && strcmp(peer->other.node, node) == 0) {
				answer->serial = peer->serial;
				memcpy(answer->host, peer->other.host, sizeof answer->host);
				return true;
			}
	while (strcmp(node, peers.node) != 0 && wait_change(until));
	return false;
}

/* Under the lock: of this point by fragments, whoever has them. */
static bool gather_at(struct ask *ask, const struct tpck_point *point)
{
	uint64_t until = tpck_clock_monotonic_ns() + ASK_NS;

	while (is_open(ask) && wait_change(until))
		;
	snprintf(ask->why, sizeof ask->why, "there are too few fragments of it");
	for (unsigned i = 0; ask->posted && i < ask->count; i++)
		if (ask->answers[i].serial && tpck_point_compare(&ask->answers[i].point, point) == 0 && gather_may(ask, &ask->answers[i]) &&
		    ask->answers[i].fragment.data && gather(ask, &ask->answers[i]))
			return true;
	return false;
}

int peers_gather(struct agent *agent, const char *identity, uint32_t rank, uint32_t ordinal, const struct tpck_point *point,
		 struct tpck_error *err)
{
	char why[sizeof ((struct ask *)0)->why] = "this node's agent is alone";
	struct ask *ask;

	(void)agent;
	if (is_here(identity, rank, ordinal, point))
		return 0;
	ask = ask_new(identity, rank, ordinal);
	if (ask) {
		add_fragments_here(ask);
		peers_errand(&ask->errand);
		pthread_mutex_lock(&peers.lock);
		if (!gather_at(ask, point))
			memcpy(why, ask->why, sizeof why);
		take_out(ask);
		/* One that the thread has not come to yet is its to look at. */
		while (!ask->posted && !peers.ended)
			pthread_cond_wait(&peers.changed, &peers.lock);
		pthread_mutex_unlock(&peers.lock);
		free(ask->other_identity);
		free(ask);
	}
	if (is_here(identity, rank, ordinal, point))
		return 0;
	return tpck_error_set(err, ENOENT, "putting step %" PRIu64 " of generation %" PRIu64 " together for rank %u: %s", point->step, point->generation,
			      rank, why);
}

int peers_get(struct agent *agent, const char *node, const char *identity, uint32_t rank, uint32_t ordinal,
	      const struct tpck_point *point, struct tpck_error *err)
{
	struct ask_answer from = {.point = *point};
	char why[sizeof ((struct ask *)0)->why] = "it is not a peer";
	struct ask *ask;

	(void)agent;
	if (is_here(identity, rank, ordinal, point))
		return 0;
	ask = ask_new(identity, rank, ordinal);
	if (ask) {
		pthread_mutex_lock(&peers.lock);
		if (find_peer(node, &from) && !fetch(ask, &from))
			memcpy(why, ask->why, sizeof why);
		take_out(ask);
		pthread_mutex_unlock(&peers.lock);
		free(ask);
	}
	if (is_here(identity, rank, ordinal, point))
		return 0;
	return tpck_error_set(err, ENOENT, "getting the copy of step %" PRIu64 " of generation %" PRIu64 " for rank %u from %s: %s", point->step,
			      point->generation, rank, node, why);
}

/* ---- what is offered ---------------------------------------------------------------------- */

/* Chunks that are equal are there once, as long as nobody starts from them. */
static int make_whole(const struct copy *copy, unsigned slot)
{
	uint64_t bytes = tpck_replica_fill_needs(copy->replica, slot);
	struct tpck_error err = {0};
	char reason[200];
	int rc = 0;

	if (bytes && !prepare_room(peers.agent, bytes, reason, sizeof reason))
		rc = tpck_error_set(&err, ENOSPC, "going on from a peer's copy: %s", reason);
	if (!rc)
		rc = tpck_replica_fill(copy->replica, slot, &err);
	if (rc)
		agent_complain(&err);
	return rc;
}

static void add_candidate(struct offer_request *request, struct copy *copy, unsigned slot)
{
	const struct tpck_manifest *manifest = copy->replica->slot[slot];
	const struct tpck_member *member = tpck_manifest_member(manifest, request->rank, request->ordinal);
	struct memory_candidate *grown, *candidate;

	grown = member ? reallocarray(request->memory, request->memory_count + 1, sizeof *grown) : NULL;
	if (!grown)
		return;
	copy_pin_again(copy, slot);
	request->memory = grown;
	candidate = &grown[request->memory_count++];
	*candidate = (struct memory_candidate){
		.copy = copy, .image = slot, .point = manifest->point, .resumable = member->resumable, .cut = member->cut,
		.identity = member->identity, .identity_differs = strcmp(member->identity, request->identity) != 0,
	};
	tpck_replica_image_path(copy->replica, member, slot, candidate->image_path, sizeof candidate->image_path);
	tpck_replica_path(copy->replica, member, candidate->session_path, sizeof candidate->session_path);
}

static bool is_candidate(const struct offer_request *request, const struct copy *copy, unsigned slot)
{
	for (size_t i = 0; i < request->memory_count; i++)
		if (request->memory[i].copy == copy && request->memory[i].image == slot)
			return true;
	return false;
}

void peers_candidates_at(struct offer_request *requests, size_t count, const struct tpck_point *point)
{
	for (size_t r = 0; r < count; r++) {
		unsigned slot;
		struct copy *copy = copy_pin(requests[r].identity, requests[r].rank, requests[r].ordinal, point, &slot);

		if (!copy)
			continue;
		if (!is_candidate(&requests[r], copy, slot) && make_whole(copy, slot) == 0)
			for (size_t i = 0; i < count; i++)
				add_candidate(&requests[i], copy, slot);
		copy_unpin(copy, slot);
	}
}

void peers_candidates(struct offer_request *requests, size_t count)
{
	const struct offer_request *first = peers_first(requests, count);
	struct tpck_point point;
	struct copy *copy;
	unsigned slot;

	if (!peers.agent->settings.peers.count)
		return;
	copy = copy_pin(first->identity, first->rank, first->ordinal, NULL, &slot);
	if (!copy)
		return;
	point = copy->slot[slot].point;
	peers_candidates_at(requests, count, &point);
	copy_unpin(copy, slot);
}

bool peers_release(struct offer_request *requests, size_t count)
{
	bool bad = false;

	/* The good ones first: the place of a bad one is free with its last pin. */
	for (int round = 0; round < 2; round++)
		for (size_t r = 0; r < count; r++)
			for (size_t i = 0; i < requests[r].memory_count; i++) {
				struct memory_candidate *candidate = &requests[r].memory[i];

				if (!candidate->copy || candidate->bad != (round == 1))
					continue;
				if (candidate->bad)
					copy_discard(candidate->copy, candidate->image);
				else
					copy_unpin(candidate->copy, candidate->image);
				bad = bad || candidate->bad;
			}
	/* Copies stand behind the sessions. */
	for (size_t r = 0; r < count; r++)
		while (requests[r].memory_count && requests[r].memory[requests[r].memory_count - 1].copy)
			requests[r].memory_count--;
	return bad;
}
