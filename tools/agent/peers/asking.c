/* SPDX-License-Identifier: Apache-2.0 */
/* What a start gets from other nodes, and is offered of the copies that are here. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "tools/agent/peers/private.h"

#define SEC 1000000000ull
/* How long a start waits for others to say what they have, and for one of them to go on giving it. */
#define ASK_NS (3 * SEC)
#define GET_NS (10 * SEC)
/* As long as a copy that is on its way may take, and how often that is looked at. */
#define BUSY_NS (60 * SEC)
#define LOOK_NS (SEC / 20)

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
	char identity[];
};

static void get_run(struct errand *errand)
{
	struct get_errand *get = (struct get_errand *)errand;
	struct peer *peer = peer_of_serial(get->serial);
	struct tpck_peer_message head = {
		.transfer = get->number, .generation = get->point.generation, .step = get->point.step, .rank = get->rank,
		.ordinal = get->ordinal,
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
	if (ask->rc == 0) {
		tpck_log_info("got a copy of step %" PRIu64 " of generation %" PRIu64 " from %s", answer->point.step,
			      answer->point.generation, answer->host);
		return true;
	}
	tpck_log_warn("the copy of step %" PRIu64 " of generation %" PRIu64 " that %s has cannot be had: %s", answer->point.step,
		      answer->point.generation, answer->host, ask->why);
	return false;
}

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
			for (size_t i = 0; i < catalog.count; i++) {
				const struct tpck_member *member =
					tpck_manifest_member(catalog.manifests[i], request->rank, request->ordinal);

				if (member && strcmp(member->identity, request->identity) == 0 &&
				    tpck_point_compare(&catalog.manifests[i]->point, &newest) > 0)
					newest = catalog.manifests[i]->point;
			}
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
	uint64_t until = tpck_clock_monotonic_ns() + ASK_NS;

	if (!ask)
		return;
	newest = newest_here(agent, store, request);
	peers_errand(&ask->errand);
	pthread_mutex_lock(&peers.lock);
	while (is_open(ask) && wait_change(until))
		;
	while (ask->posted && !request->told_only) {
		struct ask_answer *best = NULL;
		int order = 0;

		for (unsigned i = 0; i < ask->count; i++)
			if (ask->answers[i].serial && tpck_point_compare(&ask->answers[i].point, &newest) > 0 &&
			    tpck_program_allows(request->program, &ask->answers[i].point) == TPCK_ALLOWED) {
				/* Of equals by name: who is asked first is not chance. */
				if (best)
					order = tpck_point_compare(&ask->answers[i].point, &best->point);
				if (best && order == 0)
					order = strcmp(best->host, ask->answers[i].host);
				if (!best || order > 0)
					best = &ask->answers[i];
			}
		if (!best || fetch(ask, best))
			break;
		best->serial = 0;
		request->lost = best->point;
		snprintf(request->lost_why, sizeof request->lost_why, "%.100s: %.180s", best->host, ask->why);
	}
	take_out(ask);
	/* One that the thread has not come to yet is its to look at. */
	while (!ask->posted && !peers.ended)
		pthread_cond_wait(&peers.changed, &peers.lock);
	pthread_mutex_unlock(&peers.lock);
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
	uint64_t until = tpck_clock_monotonic_ns() + ASK_NS;

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

	if (!peers.agent->settings.peers)
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
