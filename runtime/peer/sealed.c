/* SPDX-License-Identifier: Apache-2.0 */
/* A transport whose messages are sealed. All is the user's thread's but what two threads do with a message's bytes. */
#include "config.h"

#include "runtime/base/lock_order.h"
#include "runtime/peer/sealed.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"

enum {
	/* What is not larger is sealed and opened at once, as long as nothing before it is with a thread: that takes some microseconds. */
	SMALL = 16 << 10,
	/* Memory for bytes that is kept for the next, and from which size on. */
	SPARE_BYTES = TPCK_SEALED_PIECE + 4096, SPARE_LEAST = 64 << 10, SPARES_MOST = 16,
};
#define SPARE_NS 1000000000ull

/* A message's bytes, for a thread; first in what they belong to. */
struct work {
	void (*run)(struct work *work);  /* NULL: there are none, and it keeps its place among the others */
	void (*done)(struct work *work); /* the user's thread */
	bool good;
	struct work *next;
};

struct works {
	struct work *first, **end;
};

struct hand {
	pthread_t thread;
	pthread_cond_t wake;
	struct works waiting;
	bool running;
	struct tpck_transport *transport;
};

/* Of a size's room behind it. */
struct block {
	struct block *next;
	bool spare;
};

struct outbound {
	struct block block; /* first */
	struct work work;
	struct sealed_link *link;
	void *token;
	uint64_t number;
	const void *given;     /* the user's bytes */
	size_t count, head_bytes;
	unsigned char head[TPCK_TRANSPORT_HEAD_MAX]; /* sealed */
	unsigned char bytes[];
};

struct inbound {
	struct block block; /* first */
	struct work work;
	struct sealed_link *link;
	uint64_t number;
	bool here;             /* its bytes are */
	void *place;           /* where the user wants them */
	size_t count, head_bytes;
	struct inbound *next;
	unsigned char head[TPCK_TRANSPORT_HEAD_MAX]; /* opened */
	unsigned char bytes[];
};

struct sealed_link {
	struct tpck_link link; /* first */
	struct tpck_transport *transport;
	struct tpck_link *under; /* NULL: it is gone */
	bool open;             /* the user may use it */
	char why[120];         /* it is to end */
	bool broken;           /* because of what came */
	unsigned uses;         /* by what is under way */
	bool sealed, strict, has_come;
	struct tpck_seal seal;
	uint64_t sent, taken;  /* numbers of the next message that is sent, and that is taken */
	unsigned sealing, opening; /* messages that a thread has */
	struct inbound *coming; /* not taken yet, by number */
	uint64_t held;         /* bytes of these and of those that are being opened */
	struct sealed_link *next;
};

struct tpck_transport {
	const struct tpck_transport_operations *ops;
	struct tpck_transport *under;
	const struct tpck_transport_events *events;
	void *context;
	struct sealed_link *links;
	struct hand sealer, opener;
	pthread_mutex_t lock;  /* of the hands' work, and of: */
	struct works done;
	bool stop;
	_Atomic int wake;
	struct block *spares;
	unsigned spare_count;
	uint64_t spare_ns;     /* when one was used last */
};

/* ---- memory ------------------------------------------------------------------------------- */

/* What is in front of the room, of either kind. */
enum { BEFORE = sizeof(struct outbound) > sizeof(struct inbound) ? sizeof(struct outbound) : sizeof(struct inbound) };

/* Memory that malloc() has given back to the kernel takes about as long to get again as sealing what comes into it. */
static void *block_new(struct tpck_transport *t, size_t before, size_t room)
{
	bool spare = room >= SPARE_LEAST && room <= SPARE_BYTES;
	struct block *block = spare ? t->spares : NULL;

	if (block) {
		t->spares = block->next;
		t->spare_count--;
	} else {
		block = malloc(spare ? BEFORE + SPARE_BYTES : before + room);
	}
	if (block) {
		memset(block, 0, before);
		block->spare = spare;
	}
	return block;
}

static void block_free(struct tpck_transport *t, struct block *block)
{
	if (!block->spare || t->spare_count == SPARES_MOST) {
		free(block);
		return;
	}
	block->next = t->spares;
	t->spares = block;
	t->spare_count++;
	t->spare_ns = tpck_clock_monotonic_ns();
}

static void free_spares(struct tpck_transport *t)
{
	while (t->spares) {
		struct block *block = t->spares;

		t->spares = block->next;
		free(block);
	}
	t->spare_count = 0;
}

/* ---- threads ------------------------------------------------------------------------------ */

static void works_init(struct works *works)
{
	works->first = NULL;
	works->end = &works->first;
}

static void works_put(struct works *works, struct work *work)
{
	work->next = NULL;
	*works->end = work;
	works->end = &work->next;
}

static struct work *works_take(struct works *works)
{
	struct work *work = works->first;

	if (work) {
		works->first = work->next;
		if (!works->first)
			works->end = &works->first;
	}
	return work;
}

static void *hand_main(void *argument)
{
	struct hand *hand = argument;
	struct tpck_transport *t = hand->transport;
	uint64_t one = 1;
	int wake;

	pthread_mutex_lock(&t->lock);
	while (!t->stop) {
		struct work *work = works_take(&hand->waiting);

		if (!work) {
			pthread_cond_wait(&hand->wake, &t->lock);
			continue;
		}
		pthread_mutex_unlock(&t->lock);
		if (work->run)
			work->run(work);
		pthread_mutex_lock(&t->lock);
		works_put(&t->done, work);
		wake = t->wake;
		if (wake >= 0)
			(void)!write(wake, &one, sizeof one);
	}
	pthread_mutex_unlock(&t->lock);
	return NULL;
}

/* Without it the user's thread does the work. */
static void hand_start(struct tpck_transport *t, struct hand *hand, const char *name)
{
	if (hand->running)
		return;
	hand->transport = t;
	hand->running = pthread_create(&hand->thread, NULL, hand_main, hand) == 0;
	if (hand->running)
		(void)pthread_setname_np(hand->thread, name);
}

static void hand_give(struct hand *hand, struct work *work)
{
	struct tpck_transport *t = hand->transport;

	if (!hand->running) {
		if (work->run)
			work->run(work);
		work->done(work);
		return;
	}
	pthread_mutex_lock(&t->lock);
	works_put(&hand->waiting, work);
	pthread_cond_signal(&hand->wake);
	pthread_mutex_unlock(&t->lock);
}

static bool take_done(struct tpck_transport *t)
{
	struct work *work;
	bool any = false;

	for (;;) {
		pthread_mutex_lock(&t->lock);
		work = works_take(&t->done);
		pthread_mutex_unlock(&t->lock);
		if (!work)
			return any;
		any = true;
		work->done(work);
	}
}

/* ---- links -------------------------------------------------------------------------------- */

static struct sealed_link *link_new(struct tpck_transport *t, struct tpck_link *under)
{
	struct sealed_link *link = calloc(1, sizeof *link);

	if (link) {
		link->transport = t;
		link->under = under;
		link->open = true;
		under->owner = link;
		link->next = t->links;
		t->links = link;
	}
	return link;
}

/* The user hears of it with the next sweep(): what called this goes on. */
static void link_fail(struct sealed_link *link, const char *why)
{
	if (!link->why[0])
		snprintf(link->why, sizeof link->why, "%s", why);
}

static void link_break(struct sealed_link *link, uint64_t number, const char *why)
{
	if (link->broken || !link->open)
		return;
	link->broken = true;
	snprintf(link->why, sizeof link->why, "message %" PRIu64 " %s", number, why);
}

static void inbound_free(struct inbound *in)
{
	struct sealed_link *link = in->link;

	link->held -= in->count;
	link->uses--;
	block_free(link->transport, &in->block);
}

static void link_close(struct sealed_link *link)
{
	struct tpck_transport *t = link->transport;

	link->open = false;
	if (link->under)
		t->ops->close(t->under, link->under);
	link->under = NULL;
	/* Messages that the transport still writes to are freed when it says that it does not any more. */
	for (struct inbound *in; (in = link->coming);) {
		link->coming = in->next;
		if (in->here)
			inbound_free(in);
	}
}

/* Tells of what has ended, and frees what nothing refers to any more. */
static void sweep(struct tpck_transport *t)
{
	for (struct sealed_link *link = t->links; link; link = link->next)
		/* What came before the other side was gone is taken first. */
		if (link->open && link->why[0] && (link->broken || !link->opening)) {
			link_close(link);
			t->events->gone(t->context, &link->link, link->why);
		}
	for (struct sealed_link **place = &t->links; *place;) {
		struct sealed_link *link = *place;

		if (link->open || link->uses) {
			place = &link->next;
		} else {
			*place = link->next;
			free(link);
		}
	}
}

static int sealed_connect(struct tpck_transport *t, const char *address, struct tpck_link **out, struct tpck_error *err)
{
	struct tpck_link *under;
	struct sealed_link *link;
	int rc = t->ops->connect(t->under, address, &under, err);

	if (rc)
		return rc;
	link = link_new(t, under);
	if (!link) {
		t->ops->close(t->under, under);
		return tpck_error_set(err, ENOMEM, "connecting to %s", address);
	}
	*out = &link->link;
	return 0;
}

static void sealed_proven(struct tpck_transport *t, struct tpck_link *base)
{
	struct sealed_link *link = (struct sealed_link *)base;

	if (link->under)
		t->ops->proven(t->under, link->under);
}

static void sealed_close(struct tpck_transport *t, struct tpck_link *base)
{
	(void)t;
	link_close((struct sealed_link *)base); /* the rest is sweep()'s */
}

void tpck_sealed_use(struct tpck_link *base, const struct tpck_seal *seal, bool strict)
{
	struct sealed_link *link = (struct sealed_link *)base;

	hand_start(link->transport, &link->transport->sealer, "tpck-seal");
	hand_start(link->transport, &link->transport->opener, "tpck-open");
	link->seal = *seal;
	link->sealed = true;
	link->strict = strict;
}

bool tpck_sealed_has_come(const struct tpck_link *link)
{
	return ((const struct sealed_link *)link)->has_come;
}

bool tpck_sealed_is_broken(const struct tpck_link *link)
{
	return ((const struct sealed_link *)link)->broken;
}

/* ---- messages out ------------------------------------------------------------------------- */

static void outbound_end(struct outbound *out)
{
	struct sealed_link *link = out->link;
	struct tpck_transport *t = link->transport;
	void *token = out->token;

	block_free(t, &out->block);
	if (token)
		t->events->sent(t->context, link->open ? &link->link : NULL, token);
	link->uses--;
}

static void outbound_run(struct work *work)
{
	struct outbound *out = (struct outbound *)((char *)work - offsetof(struct outbound, work));

	work->good = tpck_seal_bytes(&out->link->seal, out->number, out->given, out->count, out->bytes) == 0;
}

/* To the transport below. A message that does not go leaves a gap, behind which nothing is taken. */
static void outbound_go(struct outbound *out)
{
	struct sealed_link *link = out->link;
	struct tpck_transport *t = link->transport;
	size_t count = out->count ? out->count + TPCK_SEAL_TAG : 0;

	if (!link->under || !out->work.good ||
	    t->ops->send(t->under, link->under, out->head, out->head_bytes, count ? out->bytes : NULL, count, out)) {
		link_fail(link, "what is sent does not go");
		outbound_end(out);
	}
}

static void outbound_done(struct work *work)
{
	struct outbound *out = (struct outbound *)((char *)work - offsetof(struct outbound, work));

	out->link->sealing--;
	outbound_go(out);
}

static int send_plain(struct sealed_link *link, const void *head, size_t head_bytes, const void *bytes, size_t count, void *token)
{
	struct tpck_transport *t = link->transport;
	struct outbound *out = token ? block_new(t, sizeof *out, 0) : NULL;
	int rc;

	if (token && !out)
		return -ENOMEM;
	if (out) {
		out->link = link;
		out->token = token;
		link->uses++;
	}
	rc = t->ops->send(t->under, link->under, head, head_bytes, bytes, count, out);
	if (rc && out) {
		link->uses--;
		block_free(t, &out->block);
	}
	return rc;
}

static int sealed_send(struct tpck_transport *t, struct tpck_link *base, const void *head, size_t head_bytes, const void *bytes,
		       size_t count, void *token)
{
	struct sealed_link *link = (struct sealed_link *)base;
	struct outbound *out;
	int rc;

	if (!link->open || !link->under || link->why[0])
		return -ENOTCONN;
	if (!link->sealed)
		return send_plain(link, head, head_bytes, bytes, count, token);
	if (head_bytes + TPCK_SEAL_HEAD_MORE > TPCK_TRANSPORT_HEAD_MAX)
		return -EMSGSIZE;
	out = block_new(t, sizeof *out, count ? count + TPCK_SEAL_TAG : 0);
	if (!out)
		return -ENOMEM;
	rc = tpck_seal_head(&link->seal, link->sent, head, head_bytes, count, out->head);
	if (rc) {
		block_free(t, &out->block);
		if (rc == -EOVERFLOW)
			link_fail(link, "its numbers of messages are used up");
		return rc;
	}
	out->link = link;
	out->token = token;
	out->number = link->sent++;
	out->head_bytes = head_bytes + TPCK_SEAL_HEAD_MORE;
	out->given = bytes;
	out->count = count;
	out->work = (struct work){.run = count ? outbound_run : NULL, .done = outbound_done, .good = true};
	link->uses++;
	if (count > SMALL || link->sealing) {
		link->sealing++;
		hand_give(&t->sealer, &out->work);
		return 0;
	}
	if (count)
		outbound_run(&out->work);
	outbound_go(out);
	return 0;
}

/* ---- messages in -------------------------------------------------------------------------- */

static void take(struct sealed_link *link);

static void inbound_run(struct work *work)
{
	struct inbound *in = (struct inbound *)((char *)work - offsetof(struct inbound, work));

	work->good = tpck_seal_open_bytes(&in->link->seal, in->number, in->bytes, in->count, in->place) == 0;
}

/* The user gets it, or is told that nobody writes to its place any more. */
static void deliver(struct inbound *in)
{
	struct sealed_link *link = in->link;
	struct tpck_transport *t = link->transport;
	bool whole;

	if (!in->work.good)
		link_break(link, in->number, "does not verify");
	whole = link->open && !link->broken && in->work.good;
	if (in->place || (!in->count && whole))
		t->events->arrived(t->context, link->open ? &link->link : NULL, in->head, in->head_bytes, in->place, in->count, whole);
	inbound_free(in);
}

static void inbound_done(struct work *work)
{
	struct inbound *in = (struct inbound *)((char *)work - offsetof(struct inbound, work));
	struct sealed_link *link = in->link;

	link->opening--;
	deliver(in);
	take(link);
}

/* Takes those whose turn it is. What is with the thread is before all that comes here, and what is behind it goes there too, so that the order stays. */
static void take(struct sealed_link *link)
{
	struct tpck_transport *t = link->transport;

	while (link->open && !link->broken && link->coming && link->coming->here && link->coming->number == link->taken) {
		struct inbound *in = link->coming;

		link->coming = in->next;
		link->taken++;
		if (in->count) {
			in->place = t->events->place(t->context, &link->link, in->head, in->head_bytes, in->count);
			if (!in->place) {
				inbound_free(in);
				continue;
			}
		}
		in->work = (struct work){.run = in->count ? inbound_run : NULL, .done = inbound_done, .good = true};
		if (in->count > SMALL || link->opening) {
			link->opening++;
			hand_give(&t->opener, &in->work);
			continue;
		}
		if (in->count)
			inbound_run(&in->work);
		deliver(in);
	}
}

/* By its head: what may come next. NULL: it ends the link, or is not kept. */
static struct inbound *inbound_new(struct sealed_link *link, const void *head, size_t head_bytes, size_t count)
{
	struct tpck_transport *t = link->transport;
	struct tpck_seal_front front;
	struct inbound *in, **place = &link->coming;

	if (link->why[0] || !link->open)
		return NULL;
	if (!link->sealed) {
		link_break(link, 0, "is sealed, and nothing has been agreed on");
		return NULL;
	}
	(void)tpck_seal_is(head, head_bytes, &front);
	while (*place && (*place)->number < front.number)
		place = &(*place)->next;
	if (front.number < link->taken || (*place && (*place)->number == front.number)) {
		link_break(link, front.number, "came before");
		return NULL;
	}
	if (front.number - link->taken >= TPCK_SEALED_AHEAD || (t->ops->ordered && front.number != link->taken)) {
		link_break(link, front.number, "is not the next one");
		return NULL;
	}
	if (count != (front.count ? front.count + TPCK_SEAL_TAG : 0) || link->held + front.count > TPCK_SEALED_HELD) {
		link_break(link, front.number, "has another length than its head says, or than there is room for");
		return NULL;
	}
	in = block_new(t, sizeof *in, count);
	if (!in) {
		link_fail(link, "no memory");
		return NULL;
	}
	if (head_bytes > sizeof in->head || tpck_seal_open_head(&link->seal, head, head_bytes, in->head)) {
		link_break(link, front.number, "does not verify");
		block_free(t, &in->block);
		return NULL;
	}
	link->has_come = true;
	in->link = link;
	in->number = front.number;
	in->head_bytes = front.head_bytes;
	in->count = front.count;
	in->next = *place;
	*place = in;
	link->held += in->count;
	link->uses++;
	return in;
}

/* ---- what comes from below ---------------------------------------------------------------- */

static void on_came(void *context, struct tpck_link *under)
{
	struct tpck_transport *t = context;
	struct sealed_link *link = link_new(t, under);

	if (link)
		t->events->came(t->context, &link->link);
	else
		t->ops->close(t->under, under);
}

static void on_gone(void *context, struct tpck_link *under, const char *why)
{
	struct sealed_link *link = under->owner;

	(void)context;
	if (!link)
		return;
	link->under = NULL;
	link_fail(link, why);
}

/* Whether a message that is not sealed may come over this link. */
static bool may_be_plain(struct sealed_link *link)
{
	if (link->sealed && (link->strict || link->has_come))
		link_break(link, link->taken, "is not sealed");
	return link->open && !link->why[0];
}

static void *on_place(void *context, struct tpck_link *under, const void *head, size_t head_bytes, size_t bytes)
{
	struct tpck_transport *t = context;
	struct sealed_link *link = under->owner;
	struct tpck_seal_front front;
	struct inbound *in;

	if (!link)
		return NULL;
	if (!tpck_seal_is(head, head_bytes, &front))
		return may_be_plain(link) ? t->events->place(t->context, &link->link, head, head_bytes, bytes) : NULL;
	in = inbound_new(link, head, head_bytes, bytes);
	return in ? in->bytes : NULL;
}

static void sealed_arrived(struct sealed_link *link, struct inbound *in, bool whole)
{
	struct inbound **place = &link->coming;

	if (link->open && whole) {
		in->here = true;
		take(link);
		return;
	}
	/* Nothing behind it is taken. */
	while (*place && *place != in)
		place = &(*place)->next;
	if (*place)
		*place = in->next;
	inbound_free(in);
	link_fail(link, "a message did not come whole");
}

static void on_arrived(void *context, struct tpck_link *under, const void *head, size_t head_bytes, void *bytes, size_t count,
		       bool whole)
{
	struct tpck_transport *t = context;
	struct sealed_link *link = under ? under->owner : NULL;
	struct tpck_seal_front front;
	struct inbound *in;

	if (tpck_seal_is(head, head_bytes, &front)) {
		in = bytes ? (struct inbound *)((char *)bytes - offsetof(struct inbound, bytes)) : link ? inbound_new(link, head, head_bytes, 0) : NULL;
		if (in)
			sealed_arrived(in->link, in, whole);
		return;
	}
	if (bytes || (link && may_be_plain(link)))
		t->events->arrived(t->context, link && link->open ? &link->link : NULL, head, head_bytes, bytes, count, whole && link && !link->broken);
}

static void on_sent(void *context, struct tpck_link *under, void *token)
{
	(void)context;
	(void)under;
	outbound_end(token);
}

static const struct tpck_transport_events events_below = {
	.came = on_came, .gone = on_gone, .place = on_place, .arrived = on_arrived, .sent = on_sent,
};

/* ---- the whole ---------------------------------------------------------------------------- */

static const struct tpck_transport_operations *below;

static int sealed_start(struct tpck_transport **out, const struct tpck_transport_events *events, void *context, uint16_t port,
			struct tpck_error *err)
{
	struct tpck_transport *t = calloc(1, sizeof *t);
	int rc;

	if (!t)
		return tpck_error_set(err, ENOMEM, "starting a transport");
	t->ops = below;
	t->events = events;
	t->context = context;
	t->wake = -1;
	pthread_mutex_init(&t->lock, NULL);
	works_init(&t->done);
	for (int i = 0; i < 2; i++) {
		struct hand *hand = i ? &t->opener : &t->sealer;

		works_init(&hand->waiting);
		pthread_cond_init(&hand->wake, NULL);
		hand->transport = t;
	}
	rc = t->ops->start(&t->under, &events_below, t, port, err);
	if (rc) {
		free(t);
		return rc;
	}
	*out = t;
	return 0;
}

static bool sealed_progress(struct tpck_transport *t)
{
	bool any = t->ops->progress(t->under);

	any = take_done(t) || any;
	sweep(t);
	return any;
}

static void sealed_wait(struct tpck_transport *t, int wake, int timeout_ms)
{
	bool done;

	t->wake = wake;
	pthread_mutex_lock(&t->lock);
	done = t->done.first != NULL;
	pthread_mutex_unlock(&t->lock);
	if (t->spares && tpck_clock_monotonic_ns() > t->spare_ns + SPARE_NS)
		free_spares(t);
	if (!done)
		t->ops->wait(t->under, wake, timeout_ms);
}

static uint16_t sealed_port(struct tpck_transport *t)
{
	return t->ops->port(t->under);
}

static bool sealed_outdated(struct tpck_transport *t)
{
	return t->ops->outdated(t->under);
}

static void sealed_each(struct tpck_transport *t, void (*visit)(void *context, const char *name, const char *addresses), void *context)
{
	t->ops->each(t->under, visit, context);
}

/* What it has not begun is not done any more. */
static void hand_stop(struct hand *hand)
{
	struct tpck_transport *t = hand->transport;
	struct work *work;

	if (hand->running) {
		pthread_mutex_lock(&t->lock);
		pthread_cond_signal(&hand->wake);
		pthread_mutex_unlock(&t->lock);
		pthread_join(hand->thread, NULL);
		hand->running = false;
	}
	while ((work = works_take(&hand->waiting))) {
		work->good = false;
		works_put(&t->done, work);
	}
}

static void sealed_stop(struct tpck_transport *t)
{
	if (!t)
		return;
	for (struct sealed_link *link = t->links; link; link = link->next)
		link_close(link);
	pthread_mutex_lock(&t->lock);
	t->stop = true;
	pthread_mutex_unlock(&t->lock);
	hand_stop(&t->sealer);
	hand_stop(&t->opener);
	take_done(t);
	t->ops->stop(t->under);
	sweep(t);
	free_spares(t);
	/* What the transport below has left to its library refers to the links, and to this. */
	if (!t->links)
		free(t);
}

const struct tpck_transport_operations *tpck_sealed_over(const struct tpck_transport_operations *under)
{
	static struct tpck_transport_operations over;

	below = under;
	over = (struct tpck_transport_operations){
		.name = under->name, .ordered = true, .start = sealed_start, .port = sealed_port, .connect = sealed_connect,
		.proven = under->proven ? sealed_proven : NULL, .send = sealed_send, .close = sealed_close, .progress = sealed_progress, .wait = sealed_wait, .stop = sealed_stop,
		.outdated = under->outdated ? sealed_outdated : NULL, .each = under->each ? sealed_each : NULL, .finish = under->finish,
	};
	return &over;
}
