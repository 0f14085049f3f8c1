/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that speaks with other nodes' agents: who is there, who they are, whether they still are. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/loop/trouble.h"
#include "agent/peers/peers_private.h"
#include "runtime/base/clock.h"
#include "runtime/base/lock_order.h"
#include "runtime/base/log.h"
#include "runtime/peer/rendezvous.h"
#include "runtime/peer/sealed.h"

#define SEC 1000000000ull
/* A peer is spoken to every second, and one that is silent for so long is dead: the network may not say so. */
#define TICK_NS SEC
/* How often an agent that knows nobody looks at its interfaces. */
#define RENEW_NS (2 * SEC)
#define SILENCE_NS (8 * SEC)
#define WAIT_NS (SEC / 10)
/* One of the two connects at once, the other only if that does not happen. */
#define YIELD_NS (3 * SEC)
#define TOUCH_NS (30 * SEC)
/* So long one is looked for that somebody has told of. */
#define TOLD_NS (600 * SEC)
#define CLEAR_NS (1800 * SEC)
/* Who comes looks for the others, so those need not look for him: once nothing has changed for so long they look less often. */
#define QUIET_NS (30 * SEC)
#define LOOK_NS (10 * SEC)
/* So many lines in so long say who has connected and is no peer. */
#define REFUSED_NS (600 * SEC)
enum { REFUSED_LINES = 4, SHOWN = 200 };
enum { PING_WORKING = 1, PING_STAYING = 2, PING_ENDING = 4 };

struct peers peers = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
static const struct peers_cargo *cargo;

void peers_carry(const struct peers_cargo *carried)
{
	cargo = carried;
}

/* Somebody who may be there: a file of the rendezvous, an entry of TRANSPCKPT_NODES, a node of Slurm's list, the one where the ranks meet,
 * one that this one has told of, or one that mpirun has started. */
struct lead {
	char name[TPCK_PEER_NAME];
	char addresses[1024];
	char node[TPCK_PEER_NAME]; /* who answered there; "": nobody yet */
	unsigned tries;
	uint64_t seen_ns, next_ns;
	bool found;                /* by the present look; one that mpirun knows to be gone is not found any more */
	bool listed;               /* the environment names it, or who was told of it */
	bool told;                 /* its name is a node's, which is not looked for for ever */
	bool met;                  /* the agent of the host of this name was a peer */
	struct lead *next;
};

static struct {
	struct lead *leads;
	uint64_t serials;      /* of the newest peer */
	/* when each is next due */
	uint64_t tick_ns, touch_ns, clear_ns, resolve_ns, list_ns, unquiet_ns, renew_ns;
} links;

/* ---- sending ------------------------------------------------------------------------------ */

int peer_send(struct peer *peer, enum tpck_peer_type type, const struct tpck_peer_message *fields, const void *bytes,
	      size_t count, void *token)
{
	struct tpck_peer_message head = fields ? *fields : (struct tpck_peer_message){0};

	head.magic = TPCK_PEER_MAGIC;
	head.version = TPCK_PEER_VERSION;
	head.type = (uint16_t)type;
	return peers.ops->send(peers.transport, peer->link, &head, sizeof head, bytes, count, token);
}

/* Tokens of texts are odd, those of what is carried for others are not. */
int peer_send_text(struct peer *peer, enum tpck_peer_type type, const struct tpck_peer_message *fields, const char *text,
		   size_t count)
{
	char *copy = count ? malloc(count) : NULL;
	int rc;

	if (!count)
		return peer_send(peer, type, fields, NULL, 0, NULL);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, text, count);
	rc = peer_send(peer, type, fields, copy, count, copy + 1);
	if (rc)
		free(copy);
	return rc;
}

void peer_say_failed(struct peer *peer, uint64_t transfer, const char *why)
{
	(void)peer_send_text(peer, TPCK_PEER_FAIL, &(struct tpck_peer_message){.transfer = transfer}, why, strlen(why) + 1);
}

struct say_errand {
	struct errand errand; /* first */
	uint64_t serial;
	enum tpck_peer_type type;
	struct tpck_peer_message head;
	size_t size;
	char bytes[];
};

static void say_run(struct errand *errand)
{
	struct say_errand *say = (struct say_errand *)errand;

	for (struct peer *peer = peers.list; peer; peer = peer->next)
		if (peer->state == PEER_KNOWN && (!say->serial || peer->serial == say->serial))
			(void)peer_send_text(peer, say->type, &say->head, say->bytes, say->size);
	free(say);
}

void peers_say(uint64_t serial, enum tpck_peer_type type, const struct tpck_peer_message *fields, const void *bytes, size_t count)
{
	struct say_errand *say = malloc(sizeof *say + count);

	if (!say)
		return;
	*say = (struct say_errand){.errand.run = say_run, .serial = serial, .type = type, .size = count};
	if (fields)
		say->head = *fields;
	if (count)
		memcpy(say->bytes, bytes, count);
	peers_errand(&say->errand);
}

static void on_sent(void *context, struct tpck_link *link, void *token)
{
	(void)context;
	(void)link;
	if ((uintptr_t)token & 1)
		free((char *)token - 1);
	else
		cargo->sent(token);
}

/* ---- coming and going --------------------------------------------------------------------- */

struct peer *peer_of_serial(uint64_t serial)
{
	for (struct peer *peer = peers.list; peer; peer = peer->next)
		if (peer->serial == serial)
			return peer;
	return NULL;
}

static struct peer *peer_new(struct tpck_link *link, bool mine)
{
	struct peer *peer = calloc(1, sizeof *peer);

	if (!peer)
		return NULL;
	peer->link = link;
	peer->mine = mine;
	peer->serial = ++links.serials;
	peer->begun_ns = peer->heard_ns = tpck_clock_monotonic_ns();
	link->owner = peer;
	pthread_mutex_lock(&peers.lock);
	peer->next = peers.list;
	peers.list = peer;
	pthread_mutex_unlock(&peers.lock);
	return peer;
}

static void peer_free(struct peer *peer)
{
	pthread_mutex_lock(&peers.lock);
	for (struct peer **place = &peers.list; *place; place = &(*place)->next)
		if (*place == peer) {
			*place = peer->next;
			break;
		}
	pthread_cond_broadcast(&peers.changed);
	pthread_mutex_unlock(&peers.lock);
	cargo->gone(peer);
	free(peer->where);
	free(peer);
}

static struct peer *another_of(const struct peer *peer)
{
	for (struct peer *other = peers.list; other; other = other->next)
		if (other != peer && other->state == PEER_KNOWN && strcmp(other->other.node, peer->other.node) == 0)
			return other;
	return NULL;
}

/* One that was to end, and would: all whom it knew would, too. mpirun ends within seconds who does not follow. */
static void note_left(const struct peer *peer)
{
	pthread_mutex_lock(&peers.lock);
	peers.left = peers.left || (peer->ending && !peer->staying);
	pthread_mutex_unlock(&peers.lock);
}

static void peer_lost(struct peer *peer, const char *why)
{
	if (peer->state == PEER_KNOWN && !another_of(peer)) {
		tpck_log_info("the agent of %s is gone: %s", peer->other.host, why);
		note_left(peer);
		peers_news(peer, PEERS_LOST, NULL, 0);
	}
	peer_free(peer);
}

static void peer_close(struct peer *peer, const char *why)
{
	peer->link->owner = NULL;
	peers.ops->close(peers.transport, peer->link);
	peer_lost(peer, why);
}

static void on_came(void *context, struct tpck_link *link)
{
	(void)context;
	if (!peer_new(link, false))
		peers.ops->close(peers.transport, link);
}

static void on_gone(void *context, struct tpck_link *link, const char *why)
{
	struct peer *peer = link->owner;

	(void)context;
	if (!peer)
		return;
	if (tpck_sealed_is_broken(link))
		tpck_log_warn("the connection to the agent of %.100s is ended, since it brought what that agent has not sent: %s; who is between the "
			      "nodes may have changed it", peer->other.host[0] ? peer->other.host : peer->address, why);
	peer_lost(peer, why);
}

/* Whether a lead names the address that a peer was reached at. */
static bool leads_to(const struct lead *lead, const struct peer *peer)
{
	return peer->mine && tpck_rendezvous_has(lead->addresses, peer->address);
}

/* ---- who somebody is ---------------------------------------------------------------------- */

struct proof_text {
	char label[8];
	struct tpck_greeting asked, by;
};

static struct proof_text proof_text(const char *label, const struct tpck_greeting *asked, const struct tpck_greeting *by)
{
	struct proof_text text = {.asked = *asked, .by = *by};

	memcpy(text.label, label, strlen(label));
	memset(text.asked.proof, 0, sizeof text.asked.proof);
	memset(text.by.proof, 0, sizeof text.by.proof);
	return text;
}

static void introduce(struct peer *peer, uint32_t by, enum tpck_seal_level level, uint32_t ciphers)
{
	struct tpck_greeting *self = &peer->self;

	memset(self, 0, sizeof *self);
	self->by = by;
	self->level = (uint16_t)level;
	self->ciphers = (uint16_t)ciphers;
	tpck_nonce(peer->kept, self->nonce);
	snprintf(self->job, sizeof self->job, "%.120s", home.job);
	memcpy(self->node, peers.node, sizeof self->node);
	memcpy(self->host, peers.host, sizeof self->host);
	memcpy(self->domain, peers.domain, sizeof self->domain);
}

/* What somebody says who has proved nothing, for a line: other characters in it could be lines of their own, or orders to a terminal. */
static void show(const char *text, size_t count, char out[SHOWN + 1])
{
	size_t i;

	for (i = 0; i < count && i < SHOWN && text[i]; i++)
		out[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
	out[i] = '\0';
}

/* Who has connected says of himself what he likes: lines about such are few. */
static bool may_say(const struct peer *peer, uint64_t now)
{
	static uint64_t since_ns;
	static unsigned said;

	if (peer->mine)
		return true;
	if (now > since_ns + REFUSED_NS) {
		since_ns = now;
		said = 0;
	}
	return said++ < REFUSED_LINES;
}

static void refuse(struct peer *peer, const char *why)
{
	struct tpck_error err = {0};
	char host[SHOWN + 1];

	show(peer->other.host, sizeof peer->other.host, host);
	tpck_error_set(&err, 0, "no copies from or to an agent of another node (%.100s): %s",
		       host[0] ? host : peer->address[0] ? peer->address : "which connected here", why);
	if (may_say(peer, tpck_clock_monotonic_ns()))
		trouble_complain(&err);
	/* The text is to arrive: it is closed a moment later, or by the other side. */
	peer->state = PEER_REFUSED;
	(void)peer_send_text(peer, TPCK_PEER_REFUSE, NULL, why, strlen(why) + 1);
}

static void greet(struct peer *peer, uint32_t by)
{
	introduce(peer, by, peers.level, tpck_seal_ciphers());
	peer->state = PEER_GREETED;
	(void)peer_send_text(peer, TPCK_PEER_GREET, NULL, (char *)&peer->self, sizeof peer->self);
}

static void known(struct peer *peer)
{
	bool first = !another_of(peer);
	char sealed[80];

	if (peers.ops->proven)
		peers.ops->proven(peers.transport, peer->link);
	pthread_mutex_lock(&peers.lock);
	peer->state = PEER_KNOWN;
	peer->staying = peers.ops->each != NULL;
	peers.met++;
	peers.met_ns = tpck_clock_monotonic_ns();
	peers.unheard += first;
	/* At once: who waits for others to be known or to answer must see either. */
	cargo->known(peer);
	pthread_cond_broadcast(&peers.changed);
	pthread_mutex_unlock(&peers.lock);
	for (struct lead *lead = links.leads; lead; lead = lead->next) {
		if (leads_to(lead, peer))
			memcpy(lead->node, peer->other.node, sizeof lead->node);
		lead->met = lead->met || strcmp(lead->name, peer->other.host) == 0;
	}
	meeting_known(peer);
	nodes_known(peer);
	if (first) {
		tpck_seal_describe(peer->level, peer->cipher, sealed, sizeof sealed);
		tpck_log_info("the agent of %s (domain %s) is a peer; what is sent is %s", peer->other.host, peer->other.domain, sealed);
		peers_news(peer, PEERS_MET, NULL, 0);
	}
}

static bool take_greeting(struct peer *peer, const void *bytes, size_t count)
{
	if (count != sizeof peer->other)
		return false;
	pthread_mutex_lock(&peers.lock);
	memcpy(&peer->other, bytes, sizeof peer->other);
	peer->other.job[TPCK_PEER_NAME - 1] = peer->other.node[TPCK_PEER_NAME - 1] = '\0';
	peer->other.host[TPCK_PEER_NAME - 1] = peer->other.domain[TPCK_PEER_NAME - 1] = '\0';
	pthread_mutex_unlock(&peers.lock);
	return strcmp(peer->other.job, peer->self.job[0] ? peer->self.job : home.job) == 0;
}

static bool is_secret(uint32_t by)
{
	return by == TPCK_SECRET_JOB || (by == TPCK_SECRET_USER && peers.listed);
}

static bool proven(const char *label, const struct tpck_greeting *asked, const struct tpck_greeting *by)
{
	struct proof_text text = proof_text(label, asked, by);

	return by->by == asked->by && tpck_proof_check(peers.secret[by->by], &text, sizeof text, by->proof) == 0;
}

static void prove(const char *label, const struct tpck_greeting *asked, struct tpck_greeting *by)
{
	struct proof_text text = proof_text(label, asked, by);

	tpck_proof(peers.secret[by->by], &text, sizeof text, by->proof);
}

/* Both have the ANSWER: what follows is sealed as it says, with keys of GREET and ANSWER. False: it says what this side does not agree to. */
static bool seal(struct peer *peer)
{
	struct { struct tpck_greeting greet, answer; } said = {peer->mine ? peer->self : peer->other, peer->mine ? peer->other : peer->self};
	uint8_t shared[TPCK_NONCE_BYTES];
	struct tpck_seal made;

	memset(said.greet.proof, 0, sizeof said.greet.proof);
	memset(said.answer.proof, 0, sizeof said.answer.proof);
	if (said.answer.level < peers.level || said.answer.level > TPCK_SEAL_ENCRYPT)
		return false;
	if (said.answer.level == TPCK_SEAL_OFF)
		return true;
	if (!said.answer.ciphers || said.answer.ciphers != tpck_seal_choose(tpck_seal_ciphers(), said.answer.ciphers) ||
	    tpck_nonce_shared(peer->kept, peer->other.nonce, shared))
		return false;
	tpck_seal_make(&made, said.answer.level, said.answer.ciphers, peers.secret[said.answer.by], shared, &said, sizeof said, peer->mine);
	/* Who has asked knows the other one by now. Who has answered may get a text in clear, which says why there will be no proof. */
	tpck_sealed_use(peer->link, &made, peer->mine);
	pthread_mutex_lock(&peers.lock);
	peer->level = said.answer.level;
	peer->cipher = said.answer.ciphers;
	pthread_mutex_unlock(&peers.lock);
	return true;
}

static bool is_greeting(const struct tpck_greeting *first, const struct tpck_greeting *again)
{
	struct tpck_greeting same = *again;

	memcpy(same.proof, first->proof, sizeof same.proof);
	return memcmp(first, &same, sizeof same) == 0;
}

/* Messages of one who is not known yet. False: it is not spoken to any more. */
static bool get_to_know(struct peer *peer, const struct tpck_peer_message *head, const void *bytes, size_t count)
{
	static const char *const other_secret = "it does not have the job's secret, or is of another job";

	if (head->type == TPCK_PEER_GREET && !peer->mine && peer->state == PEER_CONNECTING) {
		if (!take_greeting(peer, bytes, count) || !is_secret(peer->other.by)) {
			refuse(peer, other_secret);
			return true;
		}
		introduce(peer, peer->other.by, peer->other.level > peers.level ? peer->other.level : peers.level,
			  tpck_seal_choose(tpck_seal_ciphers(), peer->other.ciphers));
		prove("answer", &peer->other, &peer->self);
		peer->state = PEER_GREETED;
		(void)peer_send_text(peer, TPCK_PEER_ANSWER, NULL, (char *)&peer->self, sizeof peer->self);
		return seal(peer);
	}
	if (head->type == TPCK_PEER_ANSWER && peer->mine && peer->state == PEER_GREETED) {
		if (!take_greeting(peer, bytes, count) || !proven("answer", &peer->self, &peer->other)) {
			refuse(peer, other_secret);
			return true;
		}
		if (strcmp(peer->other.node, peers.node) == 0) {
			for (struct lead *lead = links.leads; lead; lead = lead->next)
				if (leads_to(lead, peer))
					memcpy(lead->node, peers.node, sizeof lead->node);
			return false;
		}
		if (!seal(peer)) {
			refuse(peer, "it does not agree to what TRANSPCKPT_PEER_SECURITY asks for here");
			return true;
		}
		prove("proof", &peer->other, &peer->self);
		(void)peer_send_text(peer, TPCK_PEER_PROOF, NULL, (char *)&peer->self, sizeof peer->self);
		known(peer);
		return true;
	}
	if (head->type == TPCK_PEER_PROOF && !peer->mine && peer->state == PEER_GREETED) {
		struct tpck_greeting before = peer->other;

		if (!take_greeting(peer, bytes, count) || !is_greeting(&before, &peer->other) ||
		    (peer->level != TPCK_SEAL_OFF && !tpck_sealed_has_come(peer->link)) || !proven("proof", &peer->self, &peer->other)) {
			refuse(peer, other_secret);
			return true;
		}
		known(peer);
		return true;
	}
	if (head->type == TPCK_PEER_REFUSE) {
		struct tpck_error err = {0};
		char text[SHOWN + 1];

		show(bytes, count, text);
		tpck_error_set(&err, 0, "an agent of another node (%.60s) takes no copies from here: %s",
			       peer->address[0] ? peer->address : "which connected here", text);
		if (may_say(peer, tpck_clock_monotonic_ns()))
			trouble_complain(&err);
	}
	return false;
}

static void lead_add(void *context, const char *name, const char *addresses)
{
	struct lead *lead = links.leads;

	(void)context;
	while (lead && strcmp(lead->name, name) != 0)
		lead = lead->next;
	if (!lead) {
		lead = calloc(1, sizeof *lead);
		if (!lead)
			return;
		snprintf(lead->name, sizeof lead->name, "%s", name);
		lead->seen_ns = tpck_clock_monotonic_ns();
		lead->next = links.leads;
		links.leads = lead;
	}
	snprintf(lead->addresses, sizeof lead->addresses, "%s", addresses);
	lead->found = true;
}

/* Where the ranks meet one is known that this one may not know. */
static void told_of(char *text, size_t count)
{
	char *addresses;

	if (!meeting_there(text, count, &addresses) || strcmp(text, peers.node) == 0)
		return;
	lead_add(NULL, text, addresses);
	for (struct lead *lead = links.leads; lead; lead = lead->next)
		if (strcmp(lead->name, text) == 0) {
			lead->listed = lead->told = true;
			lead->seen_ns = tpck_clock_monotonic_ns();
			snprintf(lead->node, sizeof lead->node, "%s", text);
		}
}

/* ---- messages ----------------------------------------------------------------------------- */

static void take_ping(struct peer *peer, const struct tpck_peer_message *message, char *text, size_t count)
{
	bool told;

	(void)text;
	(void)count;
	pthread_mutex_lock(&peers.lock);
	peer->working = (message->value & PING_WORKING) != 0;
	peer->staying = (message->value & PING_STAYING) != 0;
	told = (message->value & PING_ENDING) && !peer->ending;
	peer->ending = (message->value & PING_ENDING) != 0;
	if (peer->working)
		cargo->serves(peer);
	pthread_mutex_unlock(&peers.lock);
	if (told)
		peers_news(peer, PEERS_ENDING, NULL, 0);
}

static void take_accord(struct peer *peer, const struct tpck_peer_message *message, char *text, size_t count)
{
	(void)message;
	peers_news(peer, PEERS_SAID, text, count);
}

static void take_where(struct peer *peer, const struct tpck_peer_message *message, char *text, size_t count)
{
	(void)message;
	meeting_where(peer, text, count);
}

static void take_master(struct peer *peer, const struct tpck_peer_message *message, char *text, size_t count)
{
	(void)peer;
	(void)count;
	(void)listed_follow(text, message->value);
}

static void take_there(struct peer *peer, const struct tpck_peer_message *message, char *text, size_t count)
{
	(void)peer;
	(void)message;
	told_of(text, count);
}

static void take_node(struct peer *peer, const struct tpck_peer_message *message, char *text, size_t count)
{
	(void)message;
	nodes_said(peer, text, count);
}

/* Who hears which message of a peer that is known; others are for who has something carried. `text` has `count` bytes and a NUL behind them. CHUNK comes in
 * pieces, to where on_place() says. */
static void (*const hears[])(struct peer *peer, const struct tpck_peer_message *message, char *text, size_t count) = {
	[TPCK_PEER_PING] = take_ping,
	[TPCK_PEER_ACCORD] = take_accord,
	[TPCK_PEER_WHERE] = take_where,
	[TPCK_PEER_MASTER] = take_master,
	[TPCK_PEER_THERE] = take_there,
	[TPCK_PEER_NODE] = take_node,
};

static bool is_message(const void *head, size_t head_bytes)
{
	const struct tpck_peer_message *message = head;

	/* One of another version is of another length, and is told so. */
	return head_bytes >= offsetof(struct tpck_peer_message, transfer) && message->magic == TPCK_PEER_MAGIC &&
	       (message->version != TPCK_PEER_VERSION || head_bytes == sizeof *message);
}

static void *on_place(void *context, struct tpck_link *link, const void *head, size_t head_bytes, size_t bytes)
{
	const struct tpck_peer_message *message = head;
	struct peer *peer = link->owner;

	(void)context;
	if (!peer || !is_message(head, head_bytes) || message->version != TPCK_PEER_VERSION)
		return bytes <= 4096 ? malloc(bytes + 1) : NULL;
	if (peer->state != PEER_KNOWN)
		return bytes <= 4096 ? malloc(bytes + 1) : NULL;
	if (message->type == TPCK_PEER_CHUNK)
		return cargo->place(peer, message, bytes);
	return bytes < TPCK_PEER_TEXT_MAX ? malloc(bytes + 1) : NULL;
}

static void on_arrived(void *context, struct tpck_link *link, const void *head, size_t head_bytes, void *bytes,
		       size_t count, bool whole)
{
	const struct tpck_peer_message *message = head;
	struct peer *peer = link ? link->owner : NULL;
	/* A message without bytes has an empty text. */
	char nothing[1] = "", *text = bytes ? bytes : nothing;

	(void)context;
	if (is_message(head, head_bytes) && message->version == TPCK_PEER_VERSION && message->type == TPCK_PEER_CHUNK &&
	    (!peer || peer->state == PEER_KNOWN)) {
		cargo->arrived(peer, bytes, count, whole);
		return;
	}
	if (!peer || !whole) {
		free(bytes);
		return;
	}
	if (peer->state == PEER_REFUSED) {
		free(bytes);
		return;
	}
	peer->heard_ns = tpck_clock_monotonic_ns();
	count = bytes ? count : 0;
	text[count] = '\0';
	if (!is_message(head, head_bytes)) {
		refuse(peer, "it sends what is no message");
	} else if (message->version != TPCK_PEER_VERSION) {
		char why[100];

		snprintf(why, sizeof why, "it speaks version %u of the peers' protocol, this is %d", message->version,
			 TPCK_PEER_VERSION);
		refuse(peer, why);
	} else if (peer->state != PEER_KNOWN) {
		if (!get_to_know(peer, message, text, count))
			peer_close(peer, "refused");
	} else if (message->type < sizeof hears / sizeof *hears && hears[message->type]) {
		hears[message->type](peer, message, text, count);
	} else if (!cargo->message(peer, message, text, count)) {
		tpck_log_debug("%s sends a message of type %u", peer->other.host, message->type);
	}
	free(bytes);
}

/* ---- looking for others ------------------------------------------------------------------- */

/* The agent's file is there still. */
static bool lead_is_known(void *context, const char *name)
{
	struct lead *lead = links.leads;

	(void)context;
	while (lead && (lead->listed || strcmp(lead->name, name) != 0))
		lead = lead->next;
	if (lead)
		lead->found = true;
	return lead != NULL;
}

/* Those that mpirun has started. */
static void look_for_launched(void)
{
	for (struct lead *lead = links.leads; lead; lead = lead->next)
		lead->found = false;
	peers.ops->each(peers.transport, lead_add, NULL);
}

/* With ULFM: an agent has died whose node has another one, which mpirun has not started. The others hear of it with the next sign of life. */
static void look_for_alone(void)
{
	if (!peers.ops->each || peers.agent->together || peers.ending)
		return;
	for (const struct lead *lead = links.leads; lead; lead = lead->next) {
		if (lead->found || !alone_is(lead->name))
			continue;
		pthread_mutex_lock(&peers.lock);
		peers.ending = true;
		pthread_mutex_unlock(&peers.lock);
		peers_news_of(lead->name, PEERS_ALONE);
		return;
	}
}

static void listed_add(const char *name, const char *addresses)
{
	lead_add(NULL, name, addresses);
	for (struct lead *lead = links.leads; lead; lead = lead->next)
		lead->listed = lead->listed || strcmp(lead->name, name) == 0;
}

static bool is_reached(const struct lead *lead)
{
	for (const struct peer *peer = peers.list; peer; peer = peer->next)
		if ((lead->node[0] && strcmp(peer->other.node, lead->node) == 0) ||
		    leads_to(lead, peer) || (lead->listed && peer->state == PEER_KNOWN && strcmp(peer->other.host, lead->name) == 0))
			return true;
	return lead->node[0] && strcmp(lead->node, peers.node) == 0;
}

/* Whether other hosts' files are in the store: it is shared, and shows all there are. */
static bool store_shows_others(void)
{
	size_t length = strlen(peers.host);

	for (const struct lead *lead = links.leads; lead; lead = lead->next)
		if (!lead->listed && (strncmp(lead->name, peers.host, length) != 0 || lead->name[length] != '.'))
			return true;
	return false;
}

static void forget_told(uint64_t now)
{
	for (struct lead **place = &links.leads, *lead; (lead = *place);) {
		if (lead->told && is_reached(lead))
			lead->seen_ns = now;
		if (lead->told && now > lead->seen_ns + TOLD_NS) {
			*place = lead->next;
			free(lead);
		} else {
			place = &lead->next;
		}
	}
}

static void look_for_nodes(uint64_t now)
{
	char list[TPCK_SETTING_TEXT_MAX], *rest = list, *name, addresses[1024];
	uint16_t port;

	if (now < links.resolve_ns)
		return;
	links.resolve_ns = now + 20 * SEC;
	snprintf(list, sizeof list, "%s", home.settings.nodes);
	while ((name = strtok_r(rest, ", ", &rest)))
		if (tpck_rendezvous_resolve(name, TPCK_PEERS_PORT, addresses, sizeof addresses, &port, NULL) == 0)
			lead_add(NULL, name, addresses);
}

/* The address at this place of the lead's; false: there is none. */
static bool address_of(const struct lead *lead, unsigned place, char address[TPCK_TRANSPORT_ADDRESS])
{
	const char *line = lead->addresses, *end;

	while ((end = strchr(line, '\n')) && place--)
		line = end + 1;
	if (end)
		snprintf(address, TPCK_TRANSPORT_ADDRESS, "%.*s", (int)(end - line), line);
	return end != NULL;
}

/* One address after the other, from try to try; those that this node has no way to, as of the other family, at once. */
static void try_lead(struct lead *lead, uint64_t now)
{
	char address[TPCK_TRANSPORT_ADDRESS];
	struct tpck_link *link = NULL;
	struct peer *peer;
	unsigned count = 0;

	while (address_of(lead, count, address))
		count++;
	for (unsigned i = 0; i < count && !link; i++) {
		(void)address_of(lead, lead->tries++ % count, address);
		if (peers.ops->connect(peers.transport, address, &link, NULL))
			link = NULL;
	}
	lead->next_ns = now + (link && lead->tries < 2 * count ? SEC / 4 : lead->listed && !lead->told && listed_is_master() ? SEC : 10 * SEC);
	if (!link)
		return;
	peer = peer_new(link, true);
	if (!peer) {
		peers.ops->close(peers.transport, link);
		return;
	}
	peer->again = lead->met;
	snprintf(peer->address, sizeof peer->address, "%.60s", address);
	greet(peer, lead->listed ? TPCK_SECRET_USER : TPCK_SECRET_JOB);
}

static void look_for_files(uint64_t now)
{
	if (now < links.list_ns)
		return;
	if (!peers.scanned)
		links.unquiet_ns = now + QUIET_NS;
	for (struct lead *lead = links.leads; lead; lead = lead->next)
		lead->found = false;
	tpck_rendezvous_each(peers.folder, peers.node, lead_is_known, lead_add, NULL);
	for (struct lead **place = &links.leads; *place;) {
		struct lead *lead = *place;

		if (lead->listed) {
			place = &lead->next;
		} else if (lead->found) {
			if (!lead->node[0] || !is_reached(lead))
				links.unquiet_ns = now + QUIET_NS;
			snprintf(lead->node, sizeof lead->node, "%s", lead->name);
			place = &lead->next;
		} else {
			*place = lead->next;
			free(lead);
			links.unquiet_ns = now + QUIET_NS;
		}
	}
	links.list_ns = now < links.unquiet_ns ? 0 : now + LOOK_NS;
}

static void look(uint64_t now)
{
	if (peers.ops->each)
		look_for_launched();
	else if (home.settings.nodes[0])
		look_for_nodes(now);
	else
		look_for_files(now);
	if (peers.listed && !(listed_is_master() && store_shows_others()))
		listed_look(now, listed_add);
	forget_told(now);
	for (struct lead *lead = links.leads; lead; lead = lead->next) {
		/* Where the ranks meet nobody knows of this one. */
		bool first = !peers.scanned || strcmp(peers.node, lead->name) < 0 || (listed_is_master() && lead->listed && !lead->told);

		if ((lead->found || !peers.ops->each) && now >= lead->next_ns && !is_reached(lead) && (first || now > lead->seen_ns + YIELD_NS))
			try_lead(lead, now);
	}
	pthread_mutex_lock(&peers.lock);
	peers.scanned = true;
	pthread_cond_broadcast(&peers.changed);
	pthread_mutex_unlock(&peers.lock);
}

/*
 * What has no carrier when the transport is started stays unknown to it: an agent that begins while its node's network is down would stay alone. False: it does
 * not run now.
 */
static bool renew_transport(uint64_t now)
{
	static uint16_t had_port;
	struct tpck_error err = {0};
	char addresses[4096];

	if (peers.transport) {
		if (now < links.renew_ns || !peers.ops->outdated)
			return true;
		links.renew_ns = now + RENEW_NS;
		for (const struct peer *peer = peers.list; peer; peer = peer->next)
			if (peer->state == PEER_KNOWN)
				return true;
		if (!peers.ops->outdated(peers.transport))
			return true;
		while (peers.list)
			peer_close(peers.list, "an interface has come up");
		/* Whoever has read this node's file already goes by it. */
		had_port = peers.ops->port(peers.transport);
		peers.ops->stop(peers.transport);
		peers.transport = NULL;
	}
	if ((!had_port || peers.ops->start(&peers.transport, &peers_events, NULL, had_port, &err)) &&
	    peers.ops->start(&peers.transport, &peers_events, NULL, peers.port, &err)) {
		peers.transport = NULL;
		tpck_log_debug("%s", err.text);
		return false;
	}
	tpck_log_info("an interface has come up: listening for others anew, at port %u", peers.ops->port(peers.transport));
	tpck_rendezvous_addresses(peers.ops->port(peers.transport), addresses, sizeof addresses);
	if (peers.folder[0] && !home.settings.nodes[0] && tpck_rendezvous_write(peers.folder, peers.node, addresses, &err))
		tpck_log_warn("%s", err.text);
	for (struct lead *lead = links.leads; lead; lead = lead->next)
		lead->next_ns = 0;
	return true;
}

static void tick(uint64_t now)
{
	struct peer *next;
	uint64_t own;

	links.tick_ns = now + TICK_NS;
	if (!renew_transport(now))
		return;
	look_for_alone();
	pthread_mutex_lock(&peers.lock);
	own = (peers.working ? PING_WORKING : 0) | (peers.staying && peers.ops->each ? PING_STAYING : 0) | (peers.ending ? PING_ENDING : 0);
	peers.tick_now = false;
	pthread_mutex_unlock(&peers.lock);
	for (struct peer *peer = peers.list; peer; peer = next) {
		next = peer->next;
		if (peer->state == PEER_REFUSED)
			peer_close(peer, "refused");
		else if (now > peer->heard_ns + SILENCE_NS)
			peer_close(peer, "it does not answer any more");
		else if (peer->state == PEER_KNOWN)
			(void)peer_send(peer, TPCK_PEER_PING, &(struct tpck_peer_message){.value = own}, NULL, 0, NULL);
	}
	cargo->tick(now);
	look(now);
	if (peers.folder[0] && now > links.touch_ns) {
		if (now > links.clear_ns)
			tpck_rendezvous_clear(peers.folder, peers.node);
		else
			tpck_rendezvous_touch(peers.folder, peers.node);
		links.clear_ns = now > links.clear_ns ? now + CLEAR_NS : links.clear_ns;
		links.touch_ns = now + TOUCH_NS;
	}
}

/* ---- the thread --------------------------------------------------------------------------- */

void peers_errand(struct errand *errand)
{
	uint64_t one = 1;

	errand->next = NULL;
	pthread_mutex_lock(&peers.lock);
	*peers.errands_end = errand;
	peers.errands_end = &errand->next;
	pthread_mutex_unlock(&peers.lock);
	(void)!write(peers.wake, &one, sizeof one);
}

static bool run_errands(void)
{
	struct errand *errand, *next;
	uint64_t count;
	bool stop;

	(void)!read(peers.wake, &count, sizeof count);
	pthread_mutex_lock(&peers.lock);
	errand = peers.errands;
	peers.errands = NULL;
	peers.errands_end = &peers.errands;
	stop = peers.stop;
	if (peers.tick_now)
		links.tick_ns = 0;
	pthread_mutex_unlock(&peers.lock);
	for (; errand; errand = next) {
		next = errand->next;
		errand->run(errand);
	}
	return !stop;
}

const struct tpck_transport_events peers_events = {
	.came = on_came, .gone = on_gone, .place = on_place, .arrived = on_arrived, .sent = on_sent,
};

/* Milliseconds until then, rounded up. */
static int wait_ms(uint64_t until_ns)
{
	uint64_t now = tpck_clock_monotonic_ns();

	if (until_ns <= now)
		return 0;
	return until_ns - now < WAIT_NS ? (int)((until_ns - now + 999999) / 1000000) : (int)(WAIT_NS / 1000000);
}

void *peers_thread(void *unused)
{
	(void)unused;
	while (run_errands()) {
		uint64_t now = tpck_clock_monotonic_ns(), resume_ns;

		if (now >= links.tick_ns)
			tick(now);
		resume_ns = cargo->resume();
		if (!peers.transport)
			(void)poll(&(struct pollfd){.fd = peers.wake, .events = POLLIN}, 1, wait_ms(links.tick_ns));
		else if (!peers.ops->progress(peers.transport))
			peers.ops->wait(peers.transport, peers.wake, wait_ms(resume_ns));
	}
	while (peers.list)
		peer_close(peers.list, "this one ends");
	peers.ops->stop(peers.transport);
	peers.transport = NULL;
	pthread_mutex_lock(&peers.lock);
	peers.ended = true;
	pthread_cond_broadcast(&peers.changed);
	pthread_mutex_unlock(&peers.lock);
	return NULL;
}
