/* SPDX-License-Identifier: Apache-2.0 */
/* How long this node's ranks may run without word from a majority of the job's agents. */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>

#include "agent/spares/spares_private.h"
#include "agent/twins/twin_sets.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"

struct lease {
	uint64_t now, until_ns;
	uint32_t voters, there; /* there: of them, this node too */
	uint32_t most;          /* that this agent has known */
	bool armed;
};

static int newest_first(const void *a, const void *b)
{
	uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;

	return (one < other) - (one > other);
}

/* When the last of a majority was heard. UINT64_MAX: this node is that by itself; 0: so many were never heard. */
static uint64_t heard_by_majority(uint32_t voters)
{
	size_t need = voters / 2 + 1 - 1, count = 0;
	uint64_t *heard, found;

	if (!need)
		return UINT64_MAX;
	heard = calloc(voters, sizeof *heard);
	for (const struct host *host = spares.hosts; heard && host && count < voters; host = host->next)
		heard[count++] = host->heard_ns;
	if (!heard || count < need) {
		free(heard);
		return 0;
	}
	qsort(heard, count, sizeof *heard, newest_first);
	found = heard[need - 1];
	free(heard);
	return found;
}

static void renew(void *context, uint64_t generation, struct tpck_twin_set *set)
{
	const struct lease *lease = context;
	uint64_t until = atomic_load(&set->lease_ns), heard;
	uint32_t before = atomic_load(&set->voters), voters = lease->voters;

	/* An agent that was started anew has not met all of them yet that the one before it knew. */
	if (before > lease->most && lease->now < spares.begun_ns + FORGET_NS)
		voters = before;
	else if (!lease->armed) {
		atomic_store(&set->lease_ns, 0);
		atomic_store(&set->voters, 0);
		return;
	}
	/* What is over stays over: somebody else may have begun since. */
	if (until && lease->now >= until) {
		if (spares.lapsed < generation)
			tpck_log_error("this node hears %u of the job's %u agents: its ranks of generation %" PRIu64 " end, since a spare node may go on with them",
				       lease->there - 1, lease->voters - 1, generation);
		spares.lapsed = generation > spares.lapsed ? generation : spares.lapsed;
		return;
	}
	heard = heard_by_majority(voters);
	if (heard == UINT64_MAX)
		atomic_store(&set->lease_ns, 0);
	/* Ranks that begin where a majority is not heard are told of to nobody, and run as without spare nodes. */
	else if (heard + LEASE_NS > lease->now && heard + LEASE_NS > until)
		atomic_store(&set->lease_ns, heard + LEASE_NS);
	atomic_store(&set->voters, voters);
}

void lease_consider(uint64_t now)
{
	struct lease lease = {.now = now, .voters = 1, .there = 1, .armed = spares.spare || host_any_spare()};
	uint64_t last;

	for (struct host *host = spares.hosts; host; host = host->next) {
		uint64_t heard = peers_heard_ns(host->name);

		if (heard > host->heard_ns)
			host->heard_ns = heard;
		lease.voters++;
		lease.there += host->there;
	}
	spares.most = lease.most = lease.voters > spares.most ? lease.voters : spares.most;
	/* A majority does without one that does not come back. Others do not: of ever fewer hosts that are counted they would become one themselves. */
	last = heard_by_majority(lease.voters);
	for (struct host *host = spares.hosts, *next; host; host = next) {
		next = host->next;
		if (!host->there && now >= host->lost_ns + FORGET_NS && last != UINT64_MAX && last + LEASE_NS > now)
			host_drop(host);
	}
	twins_each(renew, &lease);
}
