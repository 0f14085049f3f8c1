/* SPDX-License-Identifier: Apache-2.0 */
/* Where nodes know of each other no more than the one at which the ranks meet, each tells that one where it is, and that one tells the
 * others. A rank that begins on a node that knew nothing of it waits for what they say. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/peers/peers_private.h"
#include "runtime/base/clock.h"
#include "runtime/base/lock_order.h"
#include "runtime/peer/rendezvous.h"

enum { ADDRESSES = 1024 };
/* A rank that begins waits so long for the others; they have said what they have so long behind being met; looked after so often. */
#define WAIT_NS 10000000000ull
#define SAY_NS 200000000ull
#define OTHERS_NS 2000000000ull
#define AGAIN_NS 20000000ull

static void tell(struct peer *peer, const struct peer *of)
{
	char text[TPCK_PEER_NAME + ADDRESSES + 2];
	int length;

	if (peer == of || peer->state != PEER_KNOWN || !of->where || strcmp(peer->other.node, of->other.node) == 0)
		return;
	length = snprintf(text, sizeof text, "%s\n%s", of->other.node, of->where);
	if (length < (int)sizeof text)
		(void)peer_send_text(peer, TPCK_PEER_THERE, NULL, text, (size_t)length);
}

void meeting_known(struct peer *peer)
{
	char addresses[ADDRESSES];

	if (!listed_is_master())
		return;
	listed_say(peer->serial);
	tpck_rendezvous_addresses(peers.ops->port(peers.transport), addresses, sizeof addresses);
	(void)peer_send_text(peer, TPCK_PEER_WHERE, NULL, addresses, strlen(addresses));
}

void meeting_where(struct peer *peer, const char *text, size_t count)
{
	if (!count || count >= ADDRESSES || !listed_is_master() || !listed_here())
		return;
	free(peer->where);
	peer->where = strndup(text, count);
	for (struct peer *other = peers.list; other; other = other->next) {
		tell(other, peer);
		tell(peer, other);
	}
}

bool meeting_there(char *text, size_t count, char **addresses)
{
	char *end = count < TPCK_PEER_NAME + ADDRESSES ? memchr(text, '\n', count) : NULL;

	if (!end || end == text || end - text >= TPCK_PEER_NAME || !listed_is_master())
		return false;
	*end = '\0';
	*addresses = end + 1;
	return true;
}

/* ---- ranks that wait for it ------------------------------------------------------------------ */

/* Of other nodes, and when the last of them came. */
static uint32_t known_nodes(uint64_t *met_ns)
{
	uint32_t known = 0;

	pthread_mutex_lock(&peers.lock);
	*met_ns = peers.met_ns;
	for (const struct peer *peer = peers.list; peer; peer = peer->next) {
		const struct peer *other = peers.list;

		while (other != peer && !(other->state == PEER_KNOWN && strcmp(other->other.node, peer->other.node) == 0))
			other = other->next;
		known += peer->state == PEER_KNOWN && other == peer;
	}
	pthread_mutex_unlock(&peers.lock);
	return known;
}

static bool have_met(const struct client *client, uint64_t now)
{
	uint64_t met_ns;
	uint32_t known = known_nodes(&met_ns);

	if (now >= client->meets_until_ns)
		return true;
	/* Who is met says at once what it has; where nobody says how many there are, others may be on their way. */
	return client->meets ? known + 1 >= client->meets && now >= met_ns + SAY_NS : known && now >= met_ns + OTHERS_NS;
}

void peers_meet_for(struct client *client, const struct tpck_meet *meet)
{
	peers_master(meet->master);
	client->meets = meet->nodes;
	client->meets_until_ns = tpck_clock_monotonic_ns() + WAIT_NS;
	/* Nobody is looked for. */
	if (!peers.on || !(peers.listed || home.settings.nodes[0]))
		client->meets_until_ns = 1;
}

void meeting_consider(struct agent *agent)
{
	uint64_t now = tpck_clock_monotonic_ns();
	struct client *next;

	for (struct client *client = agent->clients; client; client = next) {
		next = client->next;
		if (!client->meets_until_ns || !have_met(client, now))
			continue;
		client->meets_until_ns = 0;
		client_send(client, TPCK_MSG_MET, NULL, 0);
	}
}

uint64_t meeting_deadline(const struct agent *agent)
{
	for (const struct client *client = agent->clients; client; client = client->next)
		if (client->meets_until_ns)
			return tpck_clock_monotonic_ns() + AGAIN_NS;
	return UINT64_MAX;
}
