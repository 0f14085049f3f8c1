/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport over plain TCP: one port, at the addresses that others are told, and nothing else that listens. What comes from somebody who has not proved himself is read by this
 * file and by those who ask for the proof, and costs one connection: there are only so many of these, each for a short time only.
 *
 * In front of each message is a frame. Bytes go from the sender's memory to the socket, and from there to where the receiver wants them. Of a
 * large message `sent` is told once the receiver has said that all of it is there: what the kernel has taken may be on its way for long.
 */
#include "config.h"

#include "runtime/peer/transport.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/peer/address.h"

/* Another one where struct frame or its use changes. */
#define FRAME_MAGIC 0x31504354u /* "TCP1" */
enum frame_flag {
	FRAME_ANSWERED = 1, /* it counts among those that the receiver says are there */
	FRAME_THERE = 2,    /* no message: `count` of those are there, since the connection began */
};

/* In front of a message: its head, and its bytes, follow. Integers are little endian. */
struct frame {
	uint32_t magic;
	uint16_t head_bytes, flags;
	uint64_t count;
};

enum {
	ANSWERED_LEAST = 16 << 10,
	READ_BYTES = 16 << 10,      /* that are read at once of small messages, and of what is behind a large one */
	TURN_BYTES = 4 << 20,       /* of one connection, before others have their turn */
	PIECES = 32,                /* of one write */
	EVENTS = 64, ACCEPTED = 32, /* in one turn */
	/* Connections that have come whose other side has not proved itself: all of them, those from one address, and bytes of a message. */
	UNPROVEN_MOST = 1024, UNPROVEN_EACH = 64, UNPROVEN_BYTES = 64 << 10,
	CARRIERS_MOST = 64, LOCAL_MOST = 64,
	PORTS_TRIED = 20,
};
#define SEC 1000000000ull
/* How long a connection may take to prove itself; and how long at least, where there is no room for another one. */
#define UNPROVEN_NS (10 * SEC)
#define UNPROVEN_LEAST_NS SEC
#define PAUSE_NS (SEC / 10)
/* How often it is looked whether this machine has other addresses by now. */
#define ADDRESSES_NS (10 * SEC)

struct outgoing {
	struct tcp_link *link;
	void *token;
	const void *bytes;
	size_t count, front;   /* bytes; frame and head in front of them */
	size_t gone;           /* of all that */
	struct outgoing *next;
	struct frame frame;    /* the head is right behind it */
	char head[];
};

struct queue {
	struct outgoing *first, **end;
};

struct tcp_link {
	struct tpck_link link; /* first */
	struct tpck_transport *transport;
	int fd;                /* -1: closed */
	bool open;             /* the user may use it, once it knows it */
	bool known;            /* the user does */
	bool mine;             /* this side has connected */
	bool connecting, proven, wants_room;
	struct in6_addr from;  /* of one that has come */
	char why[96];          /* it is to end */
	unsigned uses;         /* by messages whose `sent` is to be told */
	struct queue waiting;  /* to be written; the first one may have begun */
	struct queue written;  /* that the receiver is to say are there */
	uint64_t answered;     /* that it has said */
	uint64_t there;        /* that are there of the other side's */
	struct outgoing *saying; /* that says so, and has not begun */
	/* The message that comes: */
	size_t have;           /* bytes of frame and head */
	struct frame frame;
	char head[TPCK_TRANSPORT_HEAD_MAX];
	bool placed;           /* the user was asked for a place */
	void *place;           /* NULL: the bytes are dropped */
	uint64_t got;          /* bytes */
	struct tcp_link *next;
};

/* Who has connected and is no agent of the job, as far as can be seen. */
enum stranger { STRANGER_SPEAKS, STRANGER_IS_SILENT, STRANGERS };

struct unproven {
	struct tcp_link *link;
	struct in6_addr from;  /* the link's */
	uint64_t since_ns;
};

/* Of one address, which is a struct sockaddr_in or sockaddr_in6 without a port. */
struct listener {
	int fd;
	struct sockaddr_storage address;
	socklen_t bytes;
};

struct tpck_transport {
	const struct tpck_transport_events *events;
	void *context;
	int epoll;
	struct listener listeners[LOCAL_MOST + 1]; /* the last one may be of the loopback */
	size_t listener_count;
	bool listening;        /* they are looked at */
	uint64_t listen_ns;    /* not before */
	uint64_t addresses_ns; /* when addresses are looked at */
	uint16_t port;
	struct tcp_link *links;
	struct queue done;     /* messages whose `sent` is to be told */
	struct unproven unproven[UNPROVEN_MOST]; /* that have come, the oldest one first */
	size_t unproven_count, unproven_most;
	uint64_t turned_away[STRANGERS]; /* connections */
	bool has_more;         /* addresses than when it was started */
	char carriers[CARRIERS_MOST][IF_NAMESIZE]; /* then */
	size_t carrier_count;
	char buffer[READ_BYTES];
};

static void queue_init(struct queue *queue)
{
	queue->first = NULL;
	queue->end = &queue->first;
}

static void queue_put(struct queue *queue, struct outgoing *message)
{
	message->next = NULL;
	*queue->end = message;
	queue->end = &message->next;
}

static struct outgoing *queue_take(struct queue *queue)
{
	struct outgoing *message = queue->first;

	if (message) {
		queue->first = message->next;
		if (!queue->first)
			queue->end = &queue->first;
	}
	return message;
}

/* ---- links -------------------------------------------------------------------------------- */

/* The user hears of it with the next sweep(): what called this goes on. */
static void link_fail(struct tcp_link *link, const char *why)
{
	if (!link->why[0])
		snprintf(link->why, sizeof link->why, "%s", why);
}

static void look_at(struct tcp_link *link, bool room)
{
	struct epoll_event event = {.events = EPOLLIN | (room ? EPOLLOUT : 0), .data.ptr = link};

	if (link->wants_room == room)
		return;
	if (epoll_ctl(link->transport->epoll, EPOLL_CTL_MOD, link->fd, &event))
		link_fail(link, strerror(errno));
	link->wants_room = room;
}

/* Of a socket, which is the link's from then on, or closed. */
static struct tcp_link *link_new(struct tpck_transport *t, int fd, bool connecting)
{
	struct tcp_link *link = calloc(1, sizeof *link);
	struct epoll_event event = {.events = EPOLLIN | (connecting ? EPOLLOUT : 0), .data.ptr = link};
	int one = 1;

	if (!link || epoll_ctl(t->epoll, EPOLL_CTL_ADD, fd, &event)) {
		free(link);
		close(fd);
		return NULL;
	}
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	link->transport = t;
	link->fd = fd;
	link->open = true;
	link->mine = link->connecting = link->wants_room = connecting;
	queue_init(&link->waiting);
	queue_init(&link->written);
	link->next = t->links;
	t->links = link;
	return link;
}

static void unproven_remove(struct tpck_transport *t, const struct tcp_link *link)
{
	for (size_t i = 0; i < t->unproven_count; i++)
		if (t->unproven[i].link == link) {
			t->unproven_count--;
			memmove(&t->unproven[i], &t->unproven[i + 1], (t->unproven_count - i) * sizeof t->unproven[0]);
			return;
		}
}

/* There may be very many: the first one is said, the tenth, the hundredth. */
static void turn_away(struct tcp_link *link, enum stranger stranger)
{
	static const char *const why[STRANGERS] = {"it sends what is no message of an agent's", "it has not proved itself"};
	struct tpck_transport *t = link->transport;
	char from[INET6_ADDRSTRLEN] = "", text[256];
	uint64_t count = ++t->turned_away[stranger];
	bool four = IN6_IS_ADDR_V4MAPPED(&link->from);

	link_fail(link, why[stranger]);
	while (count % 10 == 0)
		count /= 10;
	if (count != 1)
		return;
	(void)inet_ntop(four ? AF_INET : AF_INET6, &link->from.s6_addr[four ? 12 : 0], from, sizeof from);
	snprintf(text, sizeof text, "a connection from %s to port %u is ended, since %s; such connections so far: %" PRIu64, from, t->port, why[stranger],
		 t->turned_away[stranger]);
	/* What speaks may also be an agent with another transport. */
	if (stranger == STRANGER_SPEAKS)
		tpck_log_warn("%s; TRANSPCKPT_TRANSPORT has to be the same on all nodes", text);
	else
		tpck_log_info("%s", text);
}

/* Nothing more goes or comes. */
static void link_shut(struct tcp_link *link)
{
	struct tpck_transport *t = link->transport;
	struct outgoing *message;

	close(link->fd);
	link->fd = -1;
	if (!link->proven)
		unproven_remove(t, link);
	link->saying = NULL;
	while ((message = queue_take(&link->written)) || (message = queue_take(&link->waiting)))
		queue_put(&t->done, message);
	if (link->place) {
		void *place = link->place;

		link->place = NULL;
		t->events->arrived(t->context, NULL, link->head, link->frame.head_bytes, place, link->frame.count, false);
	}
}

static bool tell_done(struct tpck_transport *t)
{
	struct outgoing *message;
	bool any = false;

	while ((message = queue_take(&t->done))) {
		struct tcp_link *link = message->link;

		if (message->token)
			t->events->sent(t->context, link->open ? &link->link : NULL, message->token);
		link->uses--;
		free(message);
		any = true;
	}
	return any;
}

/* Tells of what has ended, and frees what nothing refers to any more. */
static void sweep(struct tpck_transport *t)
{
	for (struct tcp_link *link = t->links; link; link = link->next) {
		if (link->open && link->why[0]) {
			link->open = false;
			if (link->known)
				t->events->gone(t->context, &link->link, link->why);
		}
		if (!link->open && link->fd >= 0)
			link_shut(link);
	}
	tell_done(t);
	for (struct tcp_link **place = &t->links; *place;) {
		struct tcp_link *link = *place;

		if (link->fd < 0 && !link->uses) {
			*place = link->next;
			free(link);
		} else {
			place = &link->next;
		}
	}
}

static void tcp_close(struct tpck_transport *t, struct tpck_link *base)
{
	(void)t;
	((struct tcp_link *)base)->open = false; /* the rest is sweep()'s */
}

static void tcp_proven(struct tpck_transport *t, struct tpck_link *base)
{
	struct tcp_link *link = (struct tcp_link *)base;

	link->proven = true;
	unproven_remove(t, link);
}

/* ---- messages out ------------------------------------------------------------------------- */

static struct outgoing *message_new(struct tcp_link *link, unsigned flags, const void *head, size_t head_bytes, const void *bytes, size_t count)
{
	struct outgoing *message = malloc(sizeof *message + head_bytes);

	if (!message)
		return NULL;
	*message = (struct outgoing){
		.link = link, .bytes = bytes, .count = count, .front = sizeof message->frame + head_bytes,
		.frame = {.magic = FRAME_MAGIC, .head_bytes = (uint16_t)head_bytes, .flags = (uint16_t)flags, .count = count},
	};
	if (head_bytes)
		memcpy(message->head, head, head_bytes);
	link->uses++;
	return message;
}

static size_t pieces_of(const struct tcp_link *link, struct iovec pieces[PIECES])
{
	size_t count = 0;

	for (struct outgoing *m = link->waiting.first; m && count + 2 <= PIECES; m = m->next) {
		if (m->gone < m->front)
			pieces[count++] = (struct iovec){(char *)&m->frame + m->gone, m->front - m->gone};
		if (m->count) {
			size_t gone = m->gone < m->front ? 0 : m->gone - m->front;

			pieces[count++] = (struct iovec){(char *)(uintptr_t)m->bytes + gone, m->count - gone};
		}
	}
	return count;
}

/* The socket has taken these bytes. */
static void went(struct tcp_link *link, size_t bytes)
{
	struct tpck_transport *t = link->transport;
	struct outgoing *m;

	while ((m = link->waiting.first) && bytes) {
		size_t rest = m->front + m->count - m->gone, now = bytes < rest ? bytes : rest;

		/* What it says is not changed any more. */
		if (m == link->saying)
			link->saying = NULL;
		m->gone += now;
		bytes -= now;
		if (now < rest)
			return;
		queue_put(queue_take(&link->waiting)->frame.flags & FRAME_ANSWERED ? &link->written : &t->done, m);
	}
}

/* What the socket takes now. */
static void write_some(struct tcp_link *link)
{
	struct iovec pieces[PIECES];

	while (link->waiting.first && !link->why[0]) {
		struct msghdr all = {.msg_iov = pieces, .msg_iovlen = pieces_of(link, pieces)};
		ssize_t rc = sendmsg(link->fd, &all, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (rc < 0 && errno == EINTR)
			continue;
		if (rc < 0 && errno != EAGAIN)
			link_fail(link, strerror(errno));
		if (rc < 0)
			break;
		went(link, (size_t)rc);
	}
	if (!link->why[0])
		look_at(link, link->waiting.first != NULL);
}

static int tcp_send(struct tpck_transport *t, struct tpck_link *base, const void *head, size_t head_bytes, const void *bytes, size_t count,
		    void *token)
{
	struct tcp_link *link = (struct tcp_link *)base;
	struct outgoing *message;
	bool first;

	(void)t;
	if (!link->open || link->why[0])
		return -ENOTCONN;
	if (head_bytes > TPCK_TRANSPORT_HEAD_MAX)
		return -EMSGSIZE;
	message = message_new(link, token && count >= ANSWERED_LEAST ? FRAME_ANSWERED : 0, head, head_bytes, bytes, count);
	if (!message)
		return -ENOMEM;
	message->token = token;
	first = !link->waiting.first;
	queue_put(&link->waiting, message);
	if (first && !link->connecting)
		write_some(link);
	return 0;
}

/* Says how many large messages are there, as soon as the message that goes now has gone. */
static void say_there(struct tcp_link *link)
{
	struct outgoing *message, *first = link->waiting.first;

	link->there++;
	if (link->saying) {
		link->saying->frame.count = link->there;
		return;
	}
	message = message_new(link, FRAME_THERE, NULL, 0, NULL, 0);
	if (!message) {
		link_fail(link, "no memory");
		return;
	}
	message->frame.count = link->there;
	link->saying = message;
	if (!first) {
		queue_put(&link->waiting, message);
		write_some(link);
	} else if (first->gone) {
		message->next = first->next;
		first->next = message;
		if (!message->next)
			link->waiting.end = &message->next;
	} else {
		message->next = first;
		link->waiting.first = message;
	}
}

static void take_there(struct tcp_link *link, uint64_t there)
{
	struct outgoing *message;

	while (link->answered < there && (message = queue_take(&link->written))) {
		queue_put(&link->transport->done, message);
		link->answered++;
	}
	if (link->answered != there)
		link_fail(link, "it says that what was not sent is there");
}

/* ---- messages in -------------------------------------------------------------------------- */

/* A frame and its head are here: where do the bytes go? */
static void begin_bytes(struct tcp_link *link)
{
	struct tpck_transport *t = link->transport;

	link->placed = true;
	if (!link->known) {
		link->known = true;
		t->events->came(t->context, &link->link);
	}
	if (link->open && !link->why[0] && link->frame.count)
		link->place = t->events->place(t->context, &link->link, link->head, link->frame.head_bytes, link->frame.count);
}

static void end_message(struct tcp_link *link)
{
	struct tpck_transport *t = link->transport;
	void *place = link->place;

	link->have = 0;
	link->got = 0;
	link->placed = false;
	link->place = NULL;
	if (link->frame.flags & FRAME_ANSWERED)
		say_there(link);
	if (place || !link->frame.count)
		t->events->arrived(t->context, link->open ? &link->link : NULL, link->head, link->frame.head_bytes, place, link->frame.count,
				   link->open);
}

static void bad_frame(struct tcp_link *link)
{
	if (link->proven || link->mine)
		link_fail(link, "it sends what is no message of an agent's");
	else
		turn_away(link, STRANGER_SPEAKS);
}

/* Whether a frame may be one of an agent's; others end the connection. */
static bool check_frame(struct tcp_link *link)
{
	const struct frame *frame = &link->frame;

	if (frame->magic != FRAME_MAGIC || frame->head_bytes > sizeof link->head || (frame->flags & ~(FRAME_ANSWERED | FRAME_THERE)) ||
	    (frame->flags & FRAME_THERE ? frame->head_bytes || frame->flags != FRAME_THERE : !frame->head_bytes))
		bad_frame(link);
	/* Nor does an agent send such before it is known. */
	else if (!link->proven && (frame->flags & FRAME_THERE || frame->count > UNPROVEN_BYTES))
		bad_frame(link);
	return !link->why[0];
}

static size_t copied(char *to, size_t *have, size_t wanted, const char *bytes, size_t count)
{
	size_t now = count < wanted - *have ? count : wanted - *have;

	memcpy(to + *have, bytes, now);
	*have += now;
	return now;
}

/* What has been read into the buffer. */
static void take(struct tcp_link *link, const char *bytes, size_t count)
{
	while (count && link->open && !link->why[0]) {
		size_t used = 0;

		if (link->have < sizeof link->frame) {
			used = copied((char *)&link->frame, &link->have, sizeof link->frame, bytes, count);
			if (link->have == sizeof link->frame && check_frame(link) && link->frame.flags & FRAME_THERE) {
				take_there(link, link->frame.count);
				link->have = 0;
			}
		} else if (link->have < sizeof link->frame + link->frame.head_bytes) {
			size_t have = link->have - sizeof link->frame;

			used = copied(link->head, &have, link->frame.head_bytes, bytes, count);
			link->have = sizeof link->frame + have;
		} else {
			used = count < link->frame.count - link->got ? count : link->frame.count - link->got;
			if (link->place)
				memcpy((char *)link->place + link->got, bytes, used);
			link->got += used;
		}
		bytes += used;
		count -= used;
		if (link->have < sizeof link->frame || link->have < sizeof link->frame + link->frame.head_bytes || link->why[0])
			continue;
		if (!link->placed)
			begin_bytes(link);
		if (link->got == link->frame.count)
			end_message(link);
	}
}

/* Right to its place, as far as it is known; what is behind it to the buffer. */
static void read_some(struct tcp_link *link)
{
	struct tpck_transport *t = link->transport;
	size_t sum = 0;

	while (sum < TURN_BYTES && link->open && !link->why[0]) {
		size_t rest = link->place ? link->frame.count - link->got : 0, straight;
		struct iovec pieces[] = {{link->place ? (char *)link->place + link->got : t->buffer, rest}, {t->buffer, sizeof t->buffer}};
		struct msghdr all = {.msg_iov = pieces + !rest, .msg_iovlen = 1 + (rest != 0)};
		ssize_t rc = recvmsg(link->fd, &all, MSG_DONTWAIT);

		if (rc < 0 && errno == EINTR)
			continue;
		if (rc < 0 && errno == EAGAIN)
			return;
		if (rc <= 0) {
			link_fail(link, rc ? strerror(errno) : "it has closed the connection");
			return;
		}
		sum += (size_t)rc;
		straight = (size_t)rc < rest ? (size_t)rc : rest;
		if (straight) {
			link->got += straight;
			if (link->got == link->frame.count)
				end_message(link);
		}
		take(link, t->buffer, (size_t)rc - straight);
		if ((size_t)rc < rest + sizeof t->buffer)
			return;
	}
}

/* ---- connections -------------------------------------------------------------------------- */

static int tcp_connect(struct tpck_transport *t, const char *address, struct tpck_link **out, struct tpck_error *err)
{
	struct sockaddr_storage where;
	struct tcp_link *link;
	socklen_t bytes;
	int rc, fd;

	if (tpck_address_read(address, &where, &bytes))
		return tpck_error_set(err, EINVAL, "connecting to '%.60s'", address);
	/* Of a family that this node does not have, mostly. */
	rc = tpck_address_route((struct sockaddr *)&where, bytes);
	if (rc)
		return tpck_error_set(err, -rc, "connecting to %s", address);
	fd = socket(where.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return tpck_error_set(err, errno, "connecting to %s", address);
	if (connect(fd, (struct sockaddr *)&where, bytes) && errno != EINPROGRESS) {
		rc = errno;
		close(fd);
		return tpck_error_set(err, rc, "connecting to %s", address);
	}
	link = link_new(t, fd, true);
	if (!link)
		return tpck_error_set(err, ENOMEM, "connecting to %s", address);
	link->known = true;
	*out = &link->link;
	return 0;
}

static void connected(struct tcp_link *link)
{
	socklen_t bytes = sizeof(int);
	int problem = 0;

	if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &problem, &bytes) || problem) {
		link_fail(link, strerror(problem ? problem : errno));
		return;
	}
	link->connecting = false;
}

static void look_for_connections(struct tpck_transport *t, bool look)
{
	if (t->listening == look)
		return;
	t->listening = look;
	for (size_t i = 0; i < t->listener_count; i++) {
		struct epoll_event event = {.events = EPOLLIN, .data.ptr = &t->listeners[i]};

		(void)epoll_ctl(t->epoll, look ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, t->listeners[i].fd, &event);
	}
}

/* The one that an event is of, or NULL: it is a link's. */
static const struct listener *listener_of(const struct tpck_transport *t, const void *data)
{
	for (size_t i = 0; i < t->listener_count; i++)
		if (data == &t->listeners[i])
			return &t->listeners[i];
	return NULL;
}

static struct in6_addr origin(const struct sockaddr_storage *address)
{
	struct in6_addr from = {0};

	if (address->ss_family == AF_INET6)
		return ((const struct sockaddr_in6 *)address)->sin6_addr;
	/* As one of IPv6's, ::ffff:10.0.0.1. */
	from.s6_addr[10] = from.s6_addr[11] = 0xff;
	memcpy(&from.s6_addr[12], &((const struct sockaddr_in *)address)->sin_addr, sizeof(struct in_addr));
	return from;
}

/* Whether there is room for one more that has not proved itself. The oldest one goes of an address that has many, or where all room is taken. */
static bool make_room(struct tpck_transport *t, const struct in6_addr *from, uint64_t now)
{
	struct unproven *oldest = NULL;
	size_t same = 0;

	for (size_t i = 0; i < t->unproven_count && from; i++)
		if (memcmp(&t->unproven[i].from, from, sizeof *from) == 0) {
			oldest = oldest ? oldest : &t->unproven[i];
			same++;
		}
	if (same < UNPROVEN_EACH) {
		if (t->unproven_count < t->unproven_most)
			return true;
		oldest = &t->unproven[0];
		if (now < oldest->since_ns + UNPROVEN_LEAST_NS)
			return false;
	}
	turn_away(oldest->link, STRANGER_IS_SILENT);
	unproven_remove(t, oldest->link);
	return true;
}

/* Takes connections that wait. While there is no room for more the kernel keeps them. */
static void accept_some(struct tpck_transport *t, const struct listener *listener, uint64_t now)
{
	for (int i = 0; i < ACCEPTED; i++) {
		struct sockaddr_storage address = {0};
		socklen_t bytes = sizeof address;
		struct in6_addr from;
		struct tcp_link *link;
		int fd = -1;

		if (t->unproven_count < t->unproven_most || make_room(t, NULL, now))
			fd = accept4(listener->fd, (struct sockaddr *)&address, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
		else
			errno = EMFILE;
		if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
			look_for_connections(t, false);
			t->listen_ns = now + PAUSE_NS;
			return;
		}
		if (fd < 0 && errno == EAGAIN)
			return;
		if (fd < 0)
			continue;
		from = origin(&address);
		link = make_room(t, &from, now) ? link_new(t, fd, false) : (close(fd), NULL);
		if (!link)
			continue;
		link->from = from;
		t->unproven[t->unproven_count++] = (struct unproven){link, from, now};
	}
}

/* Ends connections that have had their time to prove themselves. */
static void end_unproven(struct tpck_transport *t, uint64_t now)
{
	while (t->unproven_count && now > t->unproven[0].since_ns + UNPROVEN_NS) {
		turn_away(t->unproven[0].link, STRANGER_IS_SILENT);
		unproven_remove(t, t->unproven[0].link);
	}
}

/* ---- where it listens ----------------------------------------------------------------------- */

/* A socket that listens at one address, or -errno. The address may not be there yet, as one of IPv6 that its network is still asked for. */
static int listen_at(const struct listener *where, uint16_t port)
{
	struct sockaddr_storage address = where->address;
	int one = 1, rc, fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (address.ss_family == AF_INET6) {
		((struct sockaddr_in6 *)&address)->sin6_port = htons(port);
		(void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
		(void)setsockopt(fd, IPPROTO_IPV6, IPV6_FREEBIND, &one, sizeof one);
	} else {
		((struct sockaddr_in *)&address)->sin_port = htons(port);
		(void)setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &one, sizeof one);
	}
	/* An agent that comes after one that died at the same port finds its connections still waiting for their end. */
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) || bind(fd, (struct sockaddr *)&address, where->bytes) || listen(fd, SOMAXCONN)) {
		rc = -errno;
		close(fd);
		return rc;
	}
	return fd;
}

static uint16_t port_of(int fd)
{
	struct sockaddr_storage own = {0};
	socklen_t bytes = sizeof own;

	(void)getsockname(fd, (struct sockaddr *)&own, &bytes);
	return ntohs(own.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&own)->sin6_port : ((struct sockaddr_in *)&own)->sin_port);
}

/* What others are told: the addresses that are chosen, and the loopback's, which is first here, since it is there on all nodes. */
static size_t addresses_now(struct listener list[LOCAL_MOST + 1])
{
	struct sockaddr_in loopback = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct tpck_local local[LOCAL_MOST];
	size_t count = tpck_address_chosen(local, LOCAL_MOST);

	memset(list, 0, (LOCAL_MOST + 1) * sizeof *list);
	memcpy(&list[0].address, &loopback, sizeof loopback);
	list[0].bytes = sizeof loopback;
	for (size_t i = 0; i < count; i++) {
		list[i + 1].address = local[i].address;
		list[i + 1].bytes = local[i].bytes;
	}
	return count + 1;
}

static bool is_at(const struct listener *list, size_t count, const struct listener *one)
{
	for (size_t i = 0; i < count; i++)
		if (list[i].bytes == one->bytes && memcmp(&list[i].address, &one->address, one->bytes) == 0)
			return true;
	return false;
}

static void stop_listening(struct tpck_transport *t)
{
	look_for_connections(t, false);
	while (t->listener_count)
		close(t->listeners[--t->listener_count].fd);
}

/* At all addresses, at one port; of a family that this machine does not have there is none. */
static int listen_at_all(struct tpck_transport *t, uint16_t port)
{
	struct listener list[LOCAL_MOST + 1];
	size_t count = addresses_now(list);
	int rc = -EADDRNOTAVAIL;

	t->port = port;
	for (size_t i = 0; i < count; i++) {
		list[i].fd = listen_at(&list[i], t->port);
		if (list[i].fd == -EAFNOSUPPORT)
			continue;
		if (list[i].fd < 0) {
			rc = list[i].fd;
			stop_listening(t);
			return rc;
		}
		t->listeners[t->listener_count++] = list[i];
		t->port = port_of(list[i].fd);
		rc = 0;
	}
	look_for_connections(t, true);
	return rc;
}

/* A port that is free at one address may be taken at another. */
static int begin_listening(struct tpck_transport *t, uint16_t port)
{
	int rc = -EADDRINUSE;

	for (int tries = 0; rc == -EADDRINUSE && tries < (port ? 1 : PORTS_TRIED); tries++)
		rc = listen_at_all(t, port);
	return rc;
}

/* Addresses come, and go. */
static void look_at_addresses(struct tpck_transport *t)
{
	struct listener list[LOCAL_MOST + 1];
	size_t count = addresses_now(list), kept = 0;
	bool listening = t->listening;

	look_for_connections(t, false);
	for (size_t i = 0; i < t->listener_count; i++)
		if (is_at(list, count, &t->listeners[i]))
			t->listeners[kept++] = t->listeners[i];
		else
			close(t->listeners[i].fd);
	t->listener_count = kept;
	for (size_t i = 0; i < count; i++) {
		if (is_at(t->listeners, t->listener_count, &list[i]))
			continue;
		list[i].fd = listen_at(&list[i], t->port);
		if (list[i].fd >= 0) {
			t->listeners[t->listener_count++] = list[i];
			t->has_more = true;
		}
	}
	look_for_connections(t, listening);
}

/* ---- the whole ---------------------------------------------------------------------------- */

static bool tcp_progress(struct tpck_transport *t)
{
	struct epoll_event events[EVENTS];
	uint64_t now = tpck_clock_monotonic_ns();
	bool any = tell_done(t);
	int count;

	if (now > t->addresses_ns) {
		look_at_addresses(t);
		t->addresses_ns = now + ADDRESSES_NS;
	}
	if (!t->listening && now > t->listen_ns)
		look_for_connections(t, true);
	count = epoll_wait(t->epoll, events, EVENTS, 0);
	for (int i = 0; i < count; i++) {
		const struct listener *listener = listener_of(t, events[i].data.ptr);
		struct tcp_link *link = events[i].data.ptr;

		if (listener) {
			accept_some(t, listener, now);
			continue;
		}
		if (link->connecting)
			connected(link);
		if (link->open && !link->why[0] && events[i].events & EPOLLOUT)
			write_some(link);
		if (link->open && !link->why[0] && events[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP))
			read_some(link);
	}
	end_unproven(t, now);
	sweep(t);
	return any || count > 0;
}

static void tcp_wait(struct tpck_transport *t, int wake, int timeout_ms)
{
	struct pollfd fds[] = {{.fd = wake, .events = POLLIN}, {.fd = t->epoll, .events = POLLIN}};

	if (!t->done.first)
		(void)poll(fds, 2, timeout_ms);
}

static uint16_t tcp_port(struct tpck_transport *t)
{
	return t->port;
}

static void tcp_stop(struct tpck_transport *t)
{
	if (!t)
		return;
	for (struct tcp_link *link = t->links; link; link = link->next)
		link->open = false;
	sweep(t);
	stop_listening(t);
	if (t->epoll >= 0)
		close(t->epoll);
	free(t);
}

/* Of its descriptors the agent needs most for other things. */
static size_t unproven_most(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur / 8 >= UNPROVEN_MOST)
		return UNPROVEN_MOST;
	return limit.rlim_cur / 8 + 1;
}

static int start(struct tpck_transport **out, const struct tpck_transport_events *events, void *context, uint16_t port, struct tpck_error *err)
{
	struct tpck_transport *t = calloc(1, sizeof *t);
	int rc;

	if (!t)
		return tpck_error_set(err, ENOMEM, "listening for agents of other nodes");
	t->events = events;
	t->context = context;
	queue_init(&t->done);
	t->unproven_most = unproven_most();
	t->addresses_ns = tpck_clock_monotonic_ns() + ADDRESSES_NS;
	t->carrier_count = tpck_address_carriers(t->carriers, CARRIERS_MOST);
	t->epoll = epoll_create1(EPOLL_CLOEXEC);
	rc = t->epoll < 0 ? -errno : begin_listening(t, port);
	if (rc) {
		tcp_stop(t);
		return tpck_error_set(err, -rc, "listening for agents of other nodes at port %u", port);
	}
	*out = t;
	return 0;
}

/* A transport listens at what has come, but what others were told of this node's addresses is as of the start. */
static bool tcp_outdated(struct tpck_transport *t)
{
	look_at_addresses(t);
	return t->has_more || tpck_address_has_more_carriers(t->carriers, t->carrier_count);
}

const struct tpck_transport_operations tpck_transport_tcp = {
	.name = "tcp", .ordered = true, .start = start, .port = tcp_port, .connect = tcp_connect, .proven = tcp_proven, .send = tcp_send,
	.close = tcp_close, .progress = tcp_progress, .wait = tcp_wait, .stop = tcp_stop, .outdated = tcp_outdated,
};
