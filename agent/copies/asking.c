/* SPDX-License-Identifier: Apache-2.0 */
/* What a start gets from other nodes, and is offered of the copies that are here. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/copies/copies_private.h"
#include "agent/home/headroom.h"
#include "agent/loop/trouble.h"
#include "runtime/base/clock.h"
#include "runtime/base/lock_order.h"
#include "runtime/base/log.h"

#define SEC 1000000000ull
/* How long a start waits for others to say what they have. */
#define ASK_NS (3 * SEC)
/* Where nothing is found, by links that lose packets: one that is dead is given up before. */
#define PATIENT_NS (10 * SEC)

struct ask *ask_of(uint64_t number)
{
	for (struct ask *ask = copies_here.asks; ask; ask = ask->next)
		if (ask->number == number)
			return ask;
	return NULL;
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

uint64_t ask_number(void)
{
	static _Atomic uint64_t numbers;

	/* Apart from the numbers that the other side gives. */
	return 1ull << 63 | ++numbers;
}

static struct ask *ask_new(const char *identity, uint32_t rank, uint32_t ordinal)
{
	struct ask *ask = peers.on ? calloc(1, sizeof *ask) : NULL;

	if (!ask)
		return NULL;
	ask->errand.run = ask_run;
	ask->identity = identity;
	ask->rank = rank;
	ask->ordinal = ordinal;
	ask->number = ask_number();
	pthread_mutex_lock(&peers.lock);
	ask->next = copies_here.asks;
	copies_here.asks = ask;
	pthread_mutex_unlock(&peers.lock);
	return ask;
}

/* Under the lock. */
static void take_out(const struct ask *ask)
{
	for (struct ask **place = &copies_here.asks; *place; place = &(*place)->next)
		if (*place == ask) {
			*place = ask->next;
			break;
		}
}

/* Those that are here first, then by what they have, and by name: who is asked first is not chance. */
static int compare_answers(const void *one, const void *other)
{
	const struct ask_answer *a = one, *b = other;

	if ((a->serial == ASK_HERE) != (b->serial == ASK_HERE))
		return a->serial == ASK_HERE ? -1 : 1;
	if (a->fragment.index != b->fragment.index)
		return a->fragment.index < b->fragment.index ? -1 : 1;
	return strcmp(a->host, b->host);
}

static bool same_code(const struct ask_answer *a, const struct ask_answer *b)
{
	return a->fragment.data == b->fragment.data && a->fragment.parity == b->fragment.parity &&
	       tpck_point_compare(&a->point, &b->point) == 0;
}

/* From all that have the same as this one: it whole, or fragments of it. If it cannot be had they are of no use any more. Under the lock, which is let go of while it waits. */
static bool get(struct ask *ask, const struct ask_answer *answer)
{
	struct ask_answer like = *answer, *list = calloc(ASK_ANSWERS, sizeof *list);
	unsigned count = 0;
	int rc = -ENOMEM;

	for (unsigned i = 0; list && i < ask->count; i++)
		if (ask->answers[i].serial && same_code(&ask->answers[i], &like))
			list[count++] = ask->answers[i];
	if (list)
		qsort(list, count, sizeof *list, compare_answers);
	pthread_mutex_unlock(&peers.lock);
	copies_here_want(ask->identity, ask->rank, ask->ordinal, &like.point);
	if (list && like.fragment.data && !tpck_erasure_can())
		snprintf(ask->why, sizeof ask->why, "this agent was built without ISA-L");
	else if (list)
		rc = pull_snapshot(ask, list, count);
	free(list);
	if (rc && like.fragment.data)
		tpck_log_warn("step %" PRIu64 " of generation %" PRIu64 " cannot be put together of fragments: %s", like.point.step, like.point.generation,
			      ask->why);
	pthread_mutex_lock(&peers.lock);
	for (unsigned i = 0; rc && i < ask->count; i++)
		if (same_code(&ask->answers[i], &like))
			ask->answers[i].serial = 0;
	return rc == 0;
}

/* ---- fragments ---------------------------------------------------------------------------- */

/* What is here is like an answer of this node's own. */
static void add_fragments_here(struct ask *ask)
{
	size_t count;
	struct tpck_peer_told *rows = copies_here_pieces(ask->identity, ask->rank, ask->ordinal, &count);

	for (size_t i = 0; i < count && ask->count < ASK_ANSWERS; i++) {
		struct ask_answer *answer = &ask->answers[ask->count++];

		*answer = (struct ask_answer){.serial = ASK_HERE, .point = {rows[i].generation, rows[i].step}, .fragment = rows[i].fragment,
					      .part = rows[i].part};
		memcpy(answer->host, peers.host, sizeof answer->host);
	}
	free(rows);
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

/* ---- asking ------------------------------------------------------------------------------- */

/* The newest that is here or in the store. */
static struct tpck_point newest_here(bool store, const struct offer_request *request)
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
	for (size_t t = store ? 0 : 1; t < home.tiers.count; t++) {
		struct tpck_catalog catalog;

		home_enter(t);
		if (tpck_catalog_load(&catalog, home.tiers.tier[t], NULL, NULL, NULL, NULL) == 0) {
			for (size_t i = 0; i < catalog.count; i++)
				if (tpck_manifest_is_of(catalog.manifests[i], request->rank, request->ordinal, request->identity) &&
				    tpck_point_compare(&catalog.manifests[i]->point, &newest) > 0)
					newest = catalog.manifests[i]->point;
			tpck_catalog_free(&catalog);
		}
		home_leave(t);
	}
	return newest;
}

struct offer_request *copies_first(struct offer_request *requests, size_t count)
{
	struct offer_request *first = requests;

	for (size_t i = 1; i < count; i++)
		if (requests[i].rank < first->rank)
			first = &requests[i];
	return first;
}

void copies_fetch(bool store, struct offer_request *request)
{
	struct ask *ask = ask_new(request->identity, request->rank, request->ordinal);
	struct tpck_point newest;
	uint64_t begun = tpck_clock_monotonic_ns();

	if (!ask)
		return;
	newest = newest_here(store, request);
	add_fragments_here(ask);
	peers_errand(&ask->errand);
	pthread_mutex_lock(&peers.lock);
	while (is_open(ask) && wait_change(begun + ASK_NS))
		;
	while (!newest.generation && !ask->count && !request->told_only && is_open(ask) && wait_change(begun + PATIENT_NS))
		;
	while (ask->posted && !request->told_only) {
		struct ask_answer *best = NULL, like;
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
		if (!best)
			break;
		like = *best;
		if (get(ask, &like))
			break;
		request->lost = like.point;
		if (like.fragment.data)
			snprintf(request->lost_why, sizeof request->lost_why, "%.280s", ask->why);
		else
			snprintf(request->lost_why, sizeof request->lost_why, "%.100s: %.180s", ask->why_host, ask->why);
	}
	for (unsigned i = 0; i < ask->count && !request->told_only; i++)
		if (ask->answers[i].serial && ask->answers[i].part && tpck_point_compare(&ask->answers[i].point, &newest) > 0)
			request->in_parts = true;
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
		    ask->answers[i].fragment.data && get(ask, &ask->answers[i]))
			return true;
	return false;
}

int copies_gather(const char *identity, uint32_t rank, uint32_t ordinal, const struct tpck_point *point,
		  struct tpck_error *err)
{
	char why[sizeof ((struct ask *)0)->why] = "this node's agent is alone";
	struct ask *ask;

	copies_here_want(identity, rank, ordinal, point);
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

int copies_get(const char *node, const char *identity, uint32_t rank, uint32_t ordinal,
	       const struct tpck_point *point, struct tpck_error *err)
{
	struct ask_answer from = {.point = *point};
	char why[sizeof ((struct ask *)0)->why] = "it is not a peer";
	struct ask *ask;

	copies_here_want(identity, rank, ordinal, point);
	if (is_here(identity, rank, ordinal, point))
		return 0;
	ask = ask_new(identity, rank, ordinal);
	if (ask) {
		bool found;

		pthread_mutex_lock(&peers.lock);
		found = find_peer(node, &from);
		/* Nobody is asked what there is. */
		take_out(ask);
		pthread_mutex_unlock(&peers.lock);
		if (found)
			snprintf(why, sizeof why, "%s", pull_snapshot(ask, &from, 1) ? ask->why : "it came, and is gone again");
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

	if (bytes && !room_for(bytes, reason, sizeof reason))
		rc = tpck_error_set(&err, ENOSPC, "going on from a peer's copy: %s", reason);
	if (!rc)
		rc = tpck_replica_fill(copy->replica, slot, &err);
	if (rc)
		trouble_complain(&err);
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

void copies_candidates_at(struct offer_request *requests, size_t count, const struct tpck_point *point)
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

void copies_candidates(struct offer_request *requests, size_t count)
{
	const struct offer_request *first = copies_first(requests, count);
	struct tpck_point point;
	struct copy *copy;
	unsigned slot;

	if (!home.settings.peers.count)
		return;
	copy = copy_pin(first->identity, first->rank, first->ordinal, NULL, &slot);
	if (!copy)
		return;
	point = copy->slot[slot].point;
	copies_candidates_at(requests, count, &point);
	copy_unpin(copy, slot);
}

void copies_got(void)
{
	copies_here_want_none();
}

bool copies_release(struct offer_request *requests, size_t count)
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
