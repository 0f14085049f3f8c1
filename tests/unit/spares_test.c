/* SPDX-License-Identifier: Apache-2.0 */
/* Who may start the ranks of a node that is lost, and how long a node's ranks may run that hears few others. What lies in the past is put there. */
#include "config.h"

#include <string.h>

#include "agent/home/home.h"
#include "agent/loop/trouble.h"
#include "agent/spares/spares_private.h"
#include "agent/twins/twin_sets.h"
#include "runtime/base/clock.h"
#include "runtime/wire/command.h"
#include "tests/unit/store_tap.h"

enum { GENERATION = 7 };

/* ---- what is around ------------------------------------------------------------------------- */

struct home home;
static union {
	struct tpck_twin_set set;
	char bytes[sizeof(struct tpck_twin_set) + 2 * sizeof(struct tpck_twin_seat)];
} of = {.set = {.world = 2, .apart = 1}};
static struct agent agent;
static struct tpck_error err;
static uint64_t heard_ago[26];           /* of hosts a to z */
static enum tpck_accord_kind said_kind;  /* last */
static char said_to[TPCK_PEER_NAME];
static unsigned started;

bool peers_on(void) { return true; }
const char *peers_host(void) { return "me"; }
uint64_t peers_heard_ns(const char *host)
{
	return tpck_clock_monotonic_ns() - heard_ago[host[0] - 'a'];
}

void peers_talk(const char *node, const struct tpck_accord_message *message, const void *more, size_t size)
{
	(void)more;
	(void)size;
	said_kind = message->kind;
	snprintf(said_to, sizeof said_to, "%s", node ? node : "all");
}

void twins_each(void (*visit)(void *context, uint64_t generation, struct tpck_twin_set *set), void *context)
{
	visit(context, GENERATION, &of.set);
}

void twins_each_seat(void (*visit)(void *context, uint64_t generation, const struct tpck_twin_set *set, uint32_t rank), void *context)
{
	visit(context, GENERATION, &of.set, 0);
}

bool client_send(struct client *client, enum tpck_message_type type, const void *payload, size_t size)
{
	(void)client;
	(void)payload;
	(void)size;
	started += type == TPCK_MSG_STAND;
	return true;
}

void trouble_complain(const struct tpck_error *error)
{
	printf("# %s\n", error->text);
}

/* ---- what happens --------------------------------------------------------------------------- */

static void comes(const char *host, bool spare, uint32_t ranks)
{
	struct tpck_accord_message message = {.kind = TPCK_ACCORD_SPARE, .value = 8, .value2 = spare, .rank = ranks};

	spares_hears.said(&agent, host, host, &message, "", 0);
}

static void goes(const char *host, uint64_t ago)
{
	spares_hears.lost(&agent, host, host);
	host_find(host)->lost_ns -= ago;
	heard_ago[host[0] - 'a'] = ago;
}

static void says(const char *from, enum tpck_accord_kind kind, const char *of_host)
{
	struct tpck_accord_message message = {.kind = kind, .generation = GENERATION};
	char text[TPCK_PEER_NAME] = "";

	snprintf(text, sizeof text, "%s", of_host);
	said_kind = 0;
	spares_hears.said(&agent, from, from, &message, text, sizeof text);
}

static void tells(const char *from, uint32_t rank)
{
	struct tpck_accord_message message = {.kind = TPCK_ACCORD_COMMAND, .generation = GENERATION, .rank = rank, .world = 2};
	char *text;
	size_t size;

	if (tpck_command_read(getpid(), &text, &size, &err))
		exit(99);
	spares_hears.said(&agent, from, from, &message, text, size);
	free(text);
}

static void begin(void)
{
	while (spares.hosts)
		host_drop(spares.hosts);
	memset(heard_ago, 0, sizeof heard_ago);
	spares.spare = false;
	spares.room = spares.lapsed = 0;
	spares.most = 0;
	spares.begun_ns = tpck_clock_monotonic_ns() - 2 * FORGET_NS;
	atomic_store(&of.set.lease_ns, 0);
	atomic_store(&of.set.voters, 0);
	atomic_store(&of.set.again, 0);
	atomic_store(&of.set.away, 0);
}

static bool lease_is(uint64_t from, uint64_t to)
{
	uint64_t now = tpck_clock_monotonic_ns(), lease;

	lease_consider(now);
	lease = atomic_load(&of.set.lease_ns);
	return lease >= now + from && lease <= now + to;
}

/* ---- the tests ------------------------------------------------------------------------------ */

static void leases(void)
{
	begin();
	comes("a", false, 1);
	comes("b", false, 1);
	lease_consider(tpck_clock_monotonic_ns());
	ok(!atomic_load(&of.set.lease_ns) && !atomic_load(&of.set.voters), "without a spare node ranks run whoever is heard");
	comes("c", true, 0);
	ok(lease_is(LEASE_NS - SEC, LEASE_NS + SEC) && atomic_load(&of.set.voters) == 4, "with one they run for a while from when a majority was heard last");
	goes("a", 5 * SEC);
	ok(lease_is(LEASE_NS - SEC, LEASE_NS + SEC), "three of four are a majority");
	goes("b", 5 * SEC);
	ok(atomic_load(&of.set.lease_ns) && !lease_is(LEASE_NS + SEC, UINT64_MAX / 2), "two of four are not");
	heard_ago[2] = 2 * LEASE_NS;
	lease_consider(tpck_clock_monotonic_ns() + 2 * LEASE_NS);
	ok(spares.lapsed == GENERATION, "then the ranks end");
	memset(heard_ago, 0, sizeof heard_ago);
	comes("a", false, 1);
	comes("b", false, 1);
	atomic_store(&of.set.lease_ns, 1);
	lease_consider(tpck_clock_monotonic_ns());
	ok(atomic_load(&of.set.lease_ns) == 1, "which stays so, whoever is heard again");

	begin();
	comes("a", false, 1);
	comes("b", false, 1);
	comes("c", true, 0);
	goes("a", LEASE_NS + SEC);
	goes("b", LEASE_NS + SEC);
	for (struct host *host = spares.hosts; host; host = host->next)
		host->heard_ns = host->there ? host->heard_ns : 1;
	lease_consider(tpck_clock_monotonic_ns());
	ok(!atomic_load(&of.set.lease_ns) && !spares.lapsed, "ranks that begin where a majority is not heard run without");
	goes("a", FORGET_NS + SEC);
	goes("b", FORGET_NS + SEC);
	(void)lease_is(0, 0);
	ok(host_find("a") && host_find("b"), "where a majority is not heard hosts that do not come back count");
	comes("b", false, 1);
	heard_ago[1] = 0;
	(void)lease_is(0, 0);
	ok(lease_is(LEASE_NS - SEC, LEASE_NS + SEC) && atomic_load(&of.set.voters) == 3, "a majority does without those");
}

static void votes(void)
{
	begin();
	comes("a", false, 1);
	comes("b", true, 0);
	comes("c", true, 0);
	says("b", TPCK_ACCORD_BALLOT, "a");
	ok(said_kind != TPCK_ACCORD_VOTE, "nobody agrees that a host is lost that is there");
	goes("a", LOST_NS - SEC);
	says("b", TPCK_ACCORD_BALLOT, "a");
	ok(said_kind != TPCK_ACCORD_VOTE, "nor one that is not lost for long enough");
	ok(atomic_load(&of.set.away) == 1, "ranks that end meanwhile wait");
	goes("a", LOST_NS + SEC);
	says("b", TPCK_ACCORD_BALLOT, "a");
	ok(said_kind == TPCK_ACCORD_VOTE && strcmp(said_to, "b") == 0, "but then");
	says("c", TPCK_ACCORD_BALLOT, "a");
	ok(said_kind != TPCK_ACCORD_VOTE, "with one spare node only");
	says("b", TPCK_ACCORD_BALLOT, "a");
	ok(said_kind == TPCK_ACCORD_VOTE, "as often as that one asks");
	host_find("a")->agreed_ns -= AGREED_NS;
	says("c", TPCK_ACCORD_BALLOT, "a");
	ok(said_kind == TPCK_ACCORD_VOTE, "and with another one where that one asks no more");
	says("b", TPCK_ACCORD_BALLOT, "a");
	ok(said_kind != TPCK_ACCORD_VOTE, "but not with both");
	host_find("a")->agreed_ns -= AGREED_NS;
	says("b", TPCK_ACCORD_BALLOT, "a");
	goes("b", LOST_NS + SEC);
	says("c", TPCK_ACCORD_BALLOT, "a");
	ok(said_kind == TPCK_ACCORD_VOTE && strcmp(said_to, "c") == 0, "and with another one once that is lost itself");
	says("c", TPCK_ACCORD_STAND, "a");
	ok(atomic_load(&of.set.again) == 1 && !atomic_load(&of.set.away) && !host_find("a"), "where one stands in, all here are forked once more");
	comes("a", false, 0);
	says("c", TPCK_ACCORD_BALLOT, "a");
	ok(said_kind != TPCK_ACCORD_VOTE, "a host that is there again is not lost");
}

static void stands(void)
{
	struct client command = {.spare = true, .spare_ranks = 8};
	uint64_t generation;

	begin();
	agent.clients = &command;
	spares.spare = true;
	spares.room = 8;
	comes("a", false, 2);
	comes("b", false, 1);
	comes("c", false, 1);
	comes("z", true, 0);
	tells("a", 0);
	tells("a", 1);
	ok(wards_count("a", &generation) == 2 && generation == GENERATION, "it is known how two ranks were started");
	goes("a", LOST_NS - SEC);
	said_kind = 0;
	ballots_consider(&agent);
	ok(!said_kind, "nobody is asked before their host is lost for long enough");
	goes("a", LOST_NS + SEC);
	ballots_consider(&agent);
	ok(said_kind == TPCK_ACCORD_BALLOT && !started, "then all are");
	says("b", TPCK_ACCORD_VOTE, "a");
	ballots_consider(&agent);
	ok(!started, "two of five are not enough");
	says("c", TPCK_ACCORD_VOTE, "b");
	ballots_consider(&agent);
	ok(!started, "nor who agrees to something else");
	says("c", TPCK_ACCORD_VOTE, "a");
	host_find("b")->voted_ns -= VOTE_NS;
	ballots_consider(&agent);
	ok(!started, "nor a vote of some time ago: who gave it may hear the node again");
	says("b", TPCK_ACCORD_VOTE, "a");
	says("z", TPCK_ACCORD_BALLOT, "a");
	ok(said_kind != TPCK_ACCORD_VOTE, "a spare node that asks does not agree with one whose name is behind its own");
	ballots_consider(&agent);
	ok(started == 2 && said_kind == TPCK_ACCORD_STAND && !wards_count("a", &generation) && !host_find("a"), "three are: both ranks are started here");
	ballots_consider(&agent);
	ok(started == 2, "once");

	comes("a", false, 2);
	tells("a", 0);
	tells("a", 1);
	goes("a", LOST_NS + SEC);
	ballots_consider(&agent);
	says("b", TPCK_ACCORD_BALLOT, "a");
	ok(said_kind == TPCK_ACCORD_VOTE, "but with one whose name is before it,");
	says("c", TPCK_ACCORD_VOTE, "a");
	says("b", TPCK_ACCORD_VOTE, "a");
	ballots_consider(&agent);
	ok(started == 2, "and leaves the ranks to that one");
	comes("a", false, 2);
	spares.room = 1;
	goes("a", LOST_NS + SEC);
	says("b", TPCK_ACCORD_VOTE, "a");
	says("c", TPCK_ACCORD_VOTE, "a");
	ballots_consider(&agent);
	ok(started == 2, "more ranks than there is room for are not started");
	agent.clients = NULL;
}

int main(void)
{
	snprintf(home.folder, sizeof home.folder, "%s", tap_folder("/tmp"));
	snprintf(home.settings.peer_security, sizeof home.settings.peer_security, "encrypt");
	leases();
	votes();
	stands();
	return tap_done();
}
