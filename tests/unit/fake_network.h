/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A network for tests of what it carries: the agent's own thread and links (agent/peers), over a transport that brings what the test gives it and shows the
 * test what is sent. config.h comes before.
 */
#ifndef TPCK_TESTS_UNIT_FAKE_NETWORK_H
#define TPCK_TESTS_UNIT_FAKE_NETWORK_H

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "agent/peers/links.h"
#include "agent/peers/peers_private.h"
#include "runtime/peer/sealed.h"

enum { NETWORK_NODES = 8, NETWORK_SENT = 4096 };

/* The test's: what is sent to the node of this number. In the network's thread. */
static void network_said(unsigned node, const struct tpck_peer_message *head, const void *bytes, size_t count);

/* NULL, or also the test's: what other nodes do by themselves, asked again and again in the network's thread; false: nothing now. */
static bool (*network_turn)(void);

/* Other nodes are links by their numbers. */
struct tpck_transport {
	const struct tpck_transport_events *events;
	void *context;
	struct tpck_link link[NETWORK_NODES];
	/* What was sent, and is not told to have been. */
	struct {
		struct tpck_link *link;
		void *token;
	} sent[NETWORK_SENT];
	unsigned sent_count;
};
static struct tpck_transport network;
static pthread_t network_thread;

static int network_start(struct tpck_transport **transport, const struct tpck_transport_events *events, void *context, uint16_t port,
			 struct tpck_error *err)
{
	(void)port;
	(void)err;
	network.events = events;
	network.context = context;
	*transport = &network;
	return 0;
}

static uint16_t network_port(struct tpck_transport *transport)
{
	(void)transport;
	return 1;
}

static int network_connect(struct tpck_transport *transport, const char *address, struct tpck_link **link, struct tpck_error *err)
{
	(void)transport;
	(void)link;
	return tpck_error_set(err, ENETUNREACH, "connecting to %s", address);
}

static int network_send(struct tpck_transport *transport, struct tpck_link *link, const void *head, size_t head_bytes, const void *bytes,
			size_t count, void *token)
{
	(void)head_bytes;
	if (transport->sent_count == NETWORK_SENT)
		return -ENOBUFS;
	if (token) {
		transport->sent[transport->sent_count].link = link;
		transport->sent[transport->sent_count++].token = token;
	}
	network_said((unsigned)(link - transport->link), head, bytes, count);
	return 0;
}

/* The link is not used any more, and nothing that was sent is told to be its. */
static void network_close(struct tpck_transport *transport, struct tpck_link *link)
{
	link->owner = NULL;
	for (unsigned i = 0; i < transport->sent_count; i++)
		if (transport->sent[i].link == link)
			transport->sent[i].link = NULL;
}

static bool network_progress(struct tpck_transport *transport)
{
	bool any = transport->sent_count > 0;

	for (unsigned i = 0; i < transport->sent_count; i++)
		transport->events->sent(transport->context, transport->sent[i].link, transport->sent[i].token);
	transport->sent_count = 0;
	return (network_turn && network_turn()) || any;
}

static void network_wait(struct tpck_transport *transport, int wake, int timeout_ms)
{
	(void)transport;
	(void)poll(&(struct pollfd){.fd = wake, .events = POLLIN}, 1, timeout_ms);
}

static void network_stop(struct tpck_transport *transport)
{
	network_turn = NULL;
	(void)network_progress(transport);
}

static const struct tpck_transport_operations network_operations = {
	.name = "fake", .ordered = true, .start = network_start, .port = network_port, .connect = network_connect, .send = network_send,
	.close = network_close, .progress = network_progress, .wait = network_wait, .stop = network_stop,
};

/* This node speaks with others from now on; until then it knows none. */
static inline void network_begin(struct agent *agent, const struct peers_cargo *cargo)
{
	struct tpck_error err = {0};

	peers_carry(cargo);
	peers.agent = agent;
	peers.level = TPCK_SEAL_OFF;
	peers.ops = tpck_sealed_over(&network_operations);
	peers.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	peers.errands_end = &peers.errands;
	strcpy(peers.node, "here.1");
	strcpy(peers.host, "here");
	strcpy(peers.domain, "here");
	peers.on = true;
	if (outbox_make() < 0 || peers.ops->start(&peers.transport, &peers_events, NULL, 0, &err) ||
	    pthread_create(&network_thread, NULL, peers_thread, NULL))
		abort();
}

static inline void network_end(void)
{
	uint64_t one = 1;

	pthread_mutex_lock(&peers.lock);
	peers.stop = true;
	pthread_mutex_unlock(&peers.lock);
	if (write(peers.wake, &one, sizeof one) != sizeof one || pthread_join(network_thread, NULL))
		abort();
	peers.on = false;
	close(peers.wake);
}

/* ---- other nodes: the network's thread -------------------------------------------------------- */

static inline struct tpck_peer_message network_head(enum tpck_peer_type type, const struct tpck_peer_message *fields)
{
	struct tpck_peer_message head = *fields;

	head.magic = TPCK_PEER_MAGIC;
	head.version = TPCK_PEER_VERSION;
	head.type = (uint16_t)type;
	return head;
}

/* Where bytes of the node's message go; NULL: they are not wanted. */
static inline void *network_place(unsigned node, const struct tpck_peer_message *head, size_t count)
{
	struct tpck_link *link = &network.link[node];

	return link->owner ? network.events->place(network.context, link, head, sizeof *head, count) : NULL;
}

/* The bytes are there; or they do not come (not `whole`), since the node is lost. */
static inline void network_arrived(unsigned node, const struct tpck_peer_message *head, void *place, size_t count, bool whole)
{
	struct tpck_link *link = &network.link[node];

	network.events->arrived(network.context, whole && link->owner ? link : NULL, head, sizeof *head, place, count, whole);
}

static inline void network_bring_now(unsigned node, enum tpck_peer_type type, const struct tpck_peer_message *fields, const void *bytes, size_t count)
{
	const struct tpck_peer_message head = network_head(type, fields);
	void *place = count ? network_place(node, &head, count) : NULL;

	if (place)
		memcpy(place, bytes, count);
	if (place || (!count && network.link[node].owner))
		network_arrived(node, &head, place, count, true);
}

static inline void network_lose_now(unsigned node)
{
	struct tpck_link *link = &network.link[node];

	if (!link->owner)
		return;
	network.events->gone(network.context, link, "the test has ended it");
	network_close(&network, link);
}

/* ---- other nodes: any thread ------------------------------------------------------------------ */

struct network_news {
	struct errand errand; /* first */
	unsigned node;
	char name[TPCK_PEER_NAME];
	struct tpck_peer_message head;
	size_t count;
	char bytes[];
};

static void network_meet_run(struct errand *errand)
{
	struct network_news *news = (struct network_news *)errand;
	struct peer *peer;

	network.events->came(network.context, &network.link[news->node]);
	peer = peers.list;
	pthread_mutex_lock(&peers.lock);
	memcpy(peer->other.node, news->name, sizeof peer->other.node);
	memcpy(peer->other.host, news->name, sizeof peer->other.host);
	peer->state = PEER_KNOWN;
	pthread_cond_broadcast(&peers.changed);
	pthread_mutex_unlock(&peers.lock);
	free(news);
}

static void network_lose_run(struct errand *errand)
{
	struct network_news *news = (struct network_news *)errand;

	network_lose_now(news->node);
	free(news);
}

static void network_bring_run(struct errand *errand)
{
	struct network_news *news = (struct network_news *)errand;

	network_bring_now(news->node, news->head.type, &news->head, news->bytes, news->count);
	free(news);
}

static inline struct network_news *network_news(unsigned node, void (*run)(struct errand *errand), size_t count)
{
	struct network_news *news = calloc(1, sizeof *news + count);

	if (!news)
		abort();
	news->errand.run = run;
	news->node = node;
	news->count = count;
	return news;
}

/* Whether a node of this name is a peer now. */
static inline void network_await(const char *name, bool there)
{
	while (peers_has(name) != there)
		usleep(1000);
}

/* The node of this number is a peer, by this name, which is its host's, too. */
static inline void network_meet(unsigned node, const char *name)
{
	struct network_news *news = network_news(node, network_meet_run, 0);

	strcpy(news->name, name);
	peers_errand(&news->errand);
	network_await(name, true);
}

static inline void network_lose(unsigned node, const char *name)
{
	peers_errand(&network_news(node, network_lose_run, 0)->errand);
	network_await(name, false);
}

/* The node says something. */
static inline void network_bring(unsigned node, enum tpck_peer_type type, const struct tpck_peer_message *fields, const void *bytes, size_t count)
{
	struct network_news *news = network_news(node, network_bring_run, count);

	news->head = network_head(type, fields);
	if (count)
		memcpy(news->bytes, bytes, count);
	peers_errand(&news->errand);
}

static void network_settle_run(struct errand *errand)
{
	struct network_news *news = (struct network_news *)errand;

	pthread_mutex_lock(&peers.lock);
	news->count = 1;
	pthread_cond_broadcast(&peers.changed);
	pthread_mutex_unlock(&peers.lock);
}

/* What has been brought before has been heard. */
static inline void network_settle(void)
{
	struct network_news *news = network_news(0, network_settle_run, 0);

	peers_errand(&news->errand);
	pthread_mutex_lock(&peers.lock);
	while (!news->count)
		pthread_cond_wait(&peers.changed, &peers.lock);
	pthread_mutex_unlock(&peers.lock);
	free(news);
}

/* The number of the connection to the node of this name; 0: there is none. */
static inline uint64_t network_serial(const char *name)
{
	uint64_t serial = 0;

	pthread_mutex_lock(&peers.lock);
	for (const struct peer *peer = peers.list; peer; peer = peer->next)
		if (strcmp(peer->other.node, name) == 0)
			serial = peer->serial;
	pthread_mutex_unlock(&peers.lock);
	return serial;
}

#endif
