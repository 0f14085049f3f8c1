/* SPDX-License-Identifier: Apache-2.0 */
/* What agents say to each other about launches goes between the event loop and the thread that has the network. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "agent/peers/peers_private.h"
#include "runtime/base/lock_order.h"

/* To one node, or to all. */
struct talk {
	struct errand errand; /* first */
	char node[TPCK_PEER_NAME];
	size_t size;
	char bytes[];
};

/* A node has two connections for a moment when both sides made one. */
static bool is_first_of_node(const struct peer *peer)
{
	for (const struct peer *other = peers.list; other != peer; other = other->next)
		if (other->state == PEER_KNOWN && strcmp(other->other.node, peer->other.node) == 0)
			return false;
	return true;
}

static void talk_run(struct errand *errand)
{
	struct talk *talk = (struct talk *)errand;

	for (struct peer *peer = peers.list; peer; peer = peer->next)
		if (peer->state == PEER_KNOWN && (!talk->node[0] || strcmp(talk->node, peer->other.node) == 0) &&
		    is_first_of_node(peer))
			(void)peer_send_text(peer, TPCK_PEER_ACCORD, NULL, talk->bytes, talk->size);
	free(talk);
}

void peers_talk(const char *node, const struct tpck_accord_message *message, const void *more, size_t size)
{
	struct talk *talk = peers.on ? calloc(1, sizeof *talk + sizeof *message + size) : NULL;

	if (!talk)
		return;
	talk->errand.run = talk_run;
	if (node)
		memcpy(talk->node, node, strnlen(node, sizeof talk->node - 1));
	memcpy(talk->bytes, message, sizeof *message);
	if (size)
		memcpy(talk->bytes + sizeof *message, more, size);
	talk->size = sizeof *message + size;
	peers_errand(&talk->errand);
}

/* ---- to the event loop -------------------------------------------------------------------- */

struct news {
	struct job job; /* first */
	enum peers_news what;
	char node[TPCK_PEER_NAME], host[TPCK_PEER_NAME];
	size_t size;
	union {
		struct tpck_accord_message message;
		char bytes[1];
	} said[];
};

static void heard_of_met(void)
{
	pthread_mutex_lock(&peers.lock);
	peers.unheard--;
	pthread_mutex_unlock(&peers.lock);
}

static void news_done(struct agent *agent, struct job *job)
{
	struct news *news = (struct news *)job;

	switch (news->what) {
	case PEERS_MET:
		heard_of_met();
		hearers_met(agent, news->node);
		break;
	case PEERS_LOST:
		hearers_lost(agent, news->node, news->host);
		break;
	case PEERS_ENDING:
		hearers_ending(agent, news->host);
		break;
	case PEERS_ALONE:
		hearers_alone(agent, news->host);
		break;
	case PEERS_SAID:
		hearers_said(agent, news->node, news->host, &news->said->message, news->said->bytes + sizeof news->said->message,
			     news->size - sizeof news->said->message);
		break;
	}
	free(news);
}

static void news_post(const char *node, const char *host, enum peers_news what, const void *bytes, size_t size)
{
	struct news *news;

	/* A NUL behind whatever text there is. */
	news = calloc(1, sizeof *news + sizeof news->said[0] + size + 1);
	if (!news && what == PEERS_MET)
		heard_of_met();
	if (!news)
		return;
	news->job.done = news_done;
	news->what = what;
	memcpy(news->node, node, strnlen(node, sizeof news->node - 1));
	memcpy(news->host, host, strnlen(host, sizeof news->host - 1));
	news->size = size;
	if (size)
		memcpy(news->said, bytes, size);
	outbox_post(&news->job);
}

void peers_news(const struct peer *peer, enum peers_news what, const void *bytes, size_t size)
{
	if (what != PEERS_SAID || size >= sizeof(struct tpck_accord_message))
		news_post(peer->other.node, peer->other.host, what, bytes, size);
}

void peers_news_of(const char *host, enum peers_news what)
{
	news_post("", host, what, NULL, 0);
}

const char *peers_node(void)
{
	return peers.node;
}

const char *peers_host(void)
{
	return peers.host;
}

bool peers_on(void)
{
	return peers.on;
}

bool peers_awaited(void)
{
	return peers.awaited;
}

/* Under the lock. again: those count, too, that were here before, and are lost: they may be dead. */
static bool is_connecting(bool again)
{
	bool connecting = !peers.scanned;

	for (const struct peer *peer = peers.list; peer; peer = peer->next)
		connecting = connecting || ((peer->state == PEER_CONNECTING || peer->state == PEER_GREETED) && (again || !peer->again));
	return connecting;
}

bool peers_connecting(void)
{
	bool connecting;

	pthread_mutex_lock(&peers.lock);
	connecting = is_connecting(true);
	pthread_mutex_unlock(&peers.lock);
	return connecting;
}

bool peers_unmet(void)
{
	return peers.unheard || is_connecting(false);
}

bool peers_settling(void)
{
	bool settling;

	pthread_mutex_lock(&peers.lock);
	settling = peers.unheard || is_connecting(true);
	pthread_mutex_unlock(&peers.lock);
	return settling;
}

bool peers_has(const char *node)
{
	bool has = false;

	pthread_mutex_lock(&peers.lock);
	for (const struct peer *peer = peers.list; peer; peer = peer->next)
		has = has || (peer->state == PEER_KNOWN && strcmp(peer->other.node, node) == 0);
	pthread_mutex_unlock(&peers.lock);
	return has;
}

uint64_t peers_heard_ns(const char *host)
{
	uint64_t heard = 0;

	pthread_mutex_lock(&peers.lock);
	for (const struct peer *peer = peers.list; peer; peer = peer->next)
		if (peer->state == PEER_KNOWN && strcmp(peer->other.host, host) == 0 && peer->heard_ns > heard)
			heard = peer->heard_ns;
	pthread_mutex_unlock(&peers.lock);
	return heard;
}

void peers_heard(uint64_t generation)
{
	pthread_mutex_lock(&peers.lock);
	if (generation > peers.generation)
		peers.generation = generation;
	pthread_mutex_unlock(&peers.lock);
}
