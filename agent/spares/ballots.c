/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may start the ranks of a node that is lost. A spare node asks all; whoever has not heard of that node for LOST_NS agrees, with one spare node at a time. With
 * a majority of all agents, itself included, it begins: among these is one at least whom the lost node has not heard for LEASE_NS, if it lives.
 */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "agent/spares/spares_private.h"
#include "agent/twins/twin_sets.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"

static void send(const char *node, enum tpck_accord_kind kind, const char *name, uint64_t generation)
{
	struct tpck_accord_message message = spares_message(kind);
	char text[TPCK_PEER_NAME] = "";

	snprintf(text, sizeof text, "%s", name);
	message.generation = generation;
	peers_talk(node, &message, text, sizeof text);
}

static bool is_lost(const struct host *host, uint64_t now)
{
	return !host->there && now >= host->lost_ns + LOST_NS;
}

/* Whether another one than was agreed on may start the host's ranks: of spare nodes that ask at one time the one whose name is first gets to it. */
static bool may_change(const struct host *lost, const char *candidate, uint64_t now)
{
	const struct host *other = host_find(lost->candidate);

	if (strcmp(lost->candidate, peers_host()) == 0)
		return strcmp(candidate, lost->candidate) < 0;
	return !other || is_lost(other, now) || now >= lost->agreed_ns + AGREED_NS;
}

/* Whether this node agrees that the host's ranks are started by that one. */
static bool agrees(struct host *lost, const char *candidate, uint64_t now)
{
	if (!is_lost(lost, now) || (lost->candidate[0] && strcmp(lost->candidate, candidate) != 0 && !may_change(lost, candidate, now)))
		return false;
	snprintf(lost->candidate, sizeof lost->candidate, "%s", candidate);
	lost->agreed_ns = now;
	return true;
}

static void fork_again(void *context, uint64_t generation, struct tpck_twin_set *set)
{
	(void)context;
	(void)generation;
	atomic_fetch_add(&set->again, 1);
	atomic_store(&set->away, 0);
	tpck_twin_set_signal(set, set->world);
}

/* The host's ranks are started by that one from here on. */
static void stands(const char *name, const char *by)
{
	struct host *lost = host_find(name), *stander = host_find(by);

	wards_move(name, by);
	if (lost && stander)
		stander->begins = lost->ranks + lost->begins;
	if (lost)
		host_drop(lost);
	twins_each(fork_again, NULL);
}

static void take_over(struct agent *agent, struct host *lost)
{
	char name[TPCK_PEER_NAME];
	uint64_t generation;
	size_t ranks = wards_count(lost->name, &generation);

	snprintf(name, sizeof name, "%s", lost->name);
	tpck_log_warn("%s is lost, and ends its ranks if it is not: the %zu ranks that it had of generation %" PRIu64 " are started here", name, ranks, generation);
	send(NULL, TPCK_ACCORD_STAND, name, generation);
	stands(name, peers_host());
	wards_start(agent, peers_host());
}

void ballots_consider(struct agent *agent)
{
	uint64_t now = tpck_clock_monotonic_ns(), generation;

	if (!spares.spare)
		return;
	for (struct host *lost = spares.hosts; lost; lost = lost->next) {
		size_t ranks = is_lost(lost, now) ? wards_count(lost->name, &generation) : 0;
		uint32_t voters = 1, votes = 1;

		if (ranks > spares.room && !lost->ballot_ns) {
			lost->ballot_ns = now;
			tpck_log_warn("%s is lost, and had %zu ranks: %" PRIu64 " can be started here (TRANSPCKPT_SPARE_RANKS), so none is", lost->name, ranks, spares.room);
		}
		if (!ranks || ranks > spares.room || !agrees(lost, peers_host(), now))
			continue;
		for (const struct host *host = spares.hosts; host; host = host->next) {
			voters++;
			votes += host->there && strcmp(host->voted, lost->name) == 0 && now < host->voted_ns + VOTE_NS;
		}
		if (votes >= voters / 2 + 1) {
			take_over(agent, lost);
			return;
		}
		if (now < lost->ballot_ns + SEC)
			continue;
		if (!lost->ballot_ns)
			tpck_log_info("%s is lost: %zu ranks that it had may be started here, if %u of %u agents have lost it", lost->name, ranks, voters / 2 + 1,
				      voters);
		lost->ballot_ns = now;
		send(NULL, TPCK_ACCORD_BALLOT, lost->name, generation);
	}
}

void ballots_take(struct agent *agent, const char *from, const struct tpck_accord_message *message, const char *more, size_t size)
{
	struct host *host = host_find(from), *lost;
	char name[TPCK_PEER_NAME];

	(void)agent;
	if (size != sizeof name || !host || !host->there)
		return;
	memcpy(name, more, sizeof name);
	name[sizeof name - 1] = '\0';
	lost = host_find(name);
	if (message->kind == TPCK_ACCORD_VOTE) {
		snprintf(host->voted, sizeof host->voted, "%s", name);
		host->voted_ns = tpck_clock_monotonic_ns();
	} else if (message->kind == TPCK_ACCORD_STAND) {
		tpck_log_warn("%s is lost: the ranks that it had of generation %" PRIu64 " are started on %s", name, message->generation, from);
		stands(name, from);
	} else if (!lost || agrees(lost, from, tpck_clock_monotonic_ns())) {
		/* Who was never heard of here is not heard by that one, either. */
		send(host->node, TPCK_ACCORD_VOTE, name, message->generation);
	}
}
