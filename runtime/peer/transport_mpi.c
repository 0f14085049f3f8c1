/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport over Open MPI, between agents that mpirun has started, one on each node. Its library is loaded only by those.
 *
 * What goes from one rank to another is a sequence of packets, each one message of MPI's, in which links and their messages are.
 * MPI reads and writes packets only, never its user's bytes: a request to a rank that is dead may neither end nor be cancelled, and all
 * that is lost then are a few packets.
 */
#include "config.h"

#include "runtime/peer/transport.h"

#include <errno.h>

#ifndef HAVE_OPENMPI

static int start(struct tpck_transport **transport, const struct tpck_transport_events *events, void *context,
		 uint16_t port, struct tpck_error *err)
{
	(void)transport;
	(void)events;
	(void)context;
	(void)port;
	return tpck_error_set(err, ENOTSUP, "using Open MPI, which this agent was built without");
}

const struct tpck_transport_operations tpck_transport_mpi = {.name = "mpi", .start = start};

#else

#include <dlfcn.h>
#include <mpi.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/peer/rendezvous.h"

enum {
	PACKET_TAG = 1,
	PACKET_BYTES = 256 << 10, /* of a message's bytes in one packet */
	SENT_MOST = 8,            /* packets on their way to one rank */
	RECEIVED_MOST = 64,       /* that come, from all of them */
	SPARES_MOST = 32,         /* kept for the next while something moves */
	ADDRESSES = 1024,
	/* Numbers of the errors that ULFM adds, as of Open MPI 5: version 4's header, of the same binary interface, lacks them. */
	PROC_FAILED = 75, PROC_FAILED_PENDING = 76,
};

#define LOOK_NS 50000000ull    /* for failed ranks */
#define BUSY_NS 20000000ull    /* after a packet the next one is looked for after short pauses */
#define PAUSE_SHORT_NS 50000ull
#define PAUSE_NS 2000000ull
#define STOP_NS 300000000ull

/* clang-format off */
#define MPI_CALLS(X) \
	X(MPI_Init_thread) X(MPI_Finalize) X(MPI_Comm_dup) X(MPI_Comm_size) X(MPI_Comm_rank) X(MPI_Comm_set_errhandler) \
	X(MPI_Allgather) X(MPI_Isend) X(MPI_Improbe) X(MPI_Iprobe) X(MPI_Imrecv) X(MPI_Test) X(MPI_Get_count) \
	X(MPI_Error_class) X(MPI_Error_string) X(MPI_Comm_group) X(MPI_Group_size) X(MPI_Group_translate_ranks) X(MPI_Group_free)
/* clang-format on */
#define FIELD(name) __typeof__(name) *name;
static struct {
	void *library;
	MPI_CALLS(FIELD)
	/* Of ULFM, or NULL. */
	int (*failure_ack)(MPI_Comm comm);
	int (*failure_get_acked)(MPI_Comm comm, MPI_Group *group);
	/* What the header's names are macros for, which would need the library. */
	MPI_Comm world;
	MPI_Datatype byte;
	MPI_Errhandler errors_return;
	bool begun, lost; /* MPI_Init is over; somebody failed */
} mpi;

enum packet_kind { PACKET_OPEN = 1, PACKET_FIRST, PACKET_MORE, PACKET_CLOSE };

/* A link's name is the rank that opened it and that one's number for it. */
struct packet_head {
	uint32_t kind;
	uint32_t opener;     /* the link is the sender's by its own connect() */
	uint64_t link;
	uint64_t count;      /* bytes of the whole message */
	uint64_t offset;     /* of those in this packet */
	uint32_t head_bytes; /* of the message's head, which is before them */
	uint32_t bytes;
};

struct packet {
	MPI_Request request;
	struct rank *rank;
	bool done, good, large;
	struct packet *next;
	size_t size;
	struct packet_head head;
	unsigned char rest[];
};

struct sending {
	struct mpi_link *link;
	enum packet_kind kind;
	void *token;
	size_t head_bytes, count, offset;
	const unsigned char *bytes;
	struct sending *next;
	unsigned char head[TPCK_TRANSPORT_HEAD_MAX];
};

struct rank {
	int number;
	bool failed;
	bool held;           /* an older packet from it is not here yet: of the present look */
	unsigned packets;    /* on their way there */
	struct packet *under_way;
	struct sending *queue, **queue_end;
	char addresses[ADDRESSES];
};

struct mpi_link {
	struct tpck_link link; /* first */
	struct rank *rank;
	uint64_t number;
	bool mine;
	bool open;             /* the user may use it */
	bool close_said, closed_there;
	char why[96];          /* it has failed */
	/* the message that comes */
	bool receiving;
	unsigned char *place;
	size_t count, got, head_bytes;
	unsigned char head[TPCK_TRANSPORT_HEAD_MAX];
	struct mpi_link *next;
};

struct tpck_transport {
	const struct tpck_transport_events *events;
	void *context;
	MPI_Comm comm;
	int size, self;
	uint16_t port;
	struct rank *ranks;
	struct packet *coming, **coming_end;
	unsigned coming_count;
	struct packet *spares;
	unsigned spare_count;
	struct mpi_link *links;
	uint64_t numbers;
	uint64_t look_ns, busy_ns;
	bool broken;
};

static int load(struct tpck_error *err)
{
	if (mpi.library)
		return 0;
	/* MPI's handlers of signals are not wanted in the agent. */
	setenv("OMPI_MCA_opal_signal", "", 0);
	/* MPI's components look for its symbols among all. */
	mpi.library = dlopen("libmpi.so.40", RTLD_NOW | RTLD_GLOBAL);
	if (!mpi.library)
		return tpck_error_set(err, ENOENT, "loading Open MPI (%.200s)", dlerror());
#define FIND(name) \
	if (!(mpi.name = (__typeof__(mpi.name))dlsym(mpi.library, #name))) \
		return tpck_error_set(err, ENOSYS, "finding %s in Open MPI", #name);
	MPI_CALLS(FIND)
	mpi.world = dlsym(mpi.library, "ompi_mpi_comm_world");
	mpi.byte = dlsym(mpi.library, "ompi_mpi_byte");
	mpi.errors_return = dlsym(mpi.library, "ompi_mpi_errors_return");
	if (!mpi.world || !mpi.byte || !mpi.errors_return)
		return tpck_error_set(err, ENOSYS, "finding Open MPI's handles in libmpi.so.40");
	mpi.failure_ack = (__typeof__(mpi.failure_ack))dlsym(mpi.library, "MPIX_Comm_failure_ack");
	mpi.failure_get_acked = (__typeof__(mpi.failure_get_acked))dlsym(mpi.library, "MPIX_Comm_failure_get_acked");
	return 0;
}

/* ---- links -------------------------------------------------------------------------------- */

static struct mpi_link *link_new(struct tpck_transport *t, struct rank *rank, uint64_t number, bool mine)
{
	struct mpi_link *link = calloc(1, sizeof *link);

	if (link) {
		link->rank = rank;
		link->number = number;
		link->mine = mine;
		link->open = true;
		link->next = t->links;
		t->links = link;
	}
	return link;
}

static struct mpi_link *link_of(struct tpck_transport *t, const struct rank *rank, const struct packet_head *head)
{
	for (struct mpi_link *link = t->links; link; link = link->next)
		if (link->rank == rank && link->number == head->link && link->mine == !head->opener)
			return link;
	return NULL;
}

static void link_fail(struct mpi_link *link, const char *why)
{
	if (!link->why[0])
		snprintf(link->why, sizeof link->why, "%s", why);
}

static struct sending *enqueue(struct mpi_link *link, enum packet_kind kind)
{
	struct sending *s = calloc(1, sizeof *s);

	if (s) {
		s->link = link;
		s->kind = kind;
		*link->rank->queue_end = s;
		link->rank->queue_end = &s->next;
	}
	return s;
}

static void dequeue(struct rank *rank, struct sending **place)
{
	struct sending *s = *place;

	*place = s->next;
	if (rank->queue_end == &s->next)
		rank->queue_end = place;
	free(s);
}

static int mpi_connect(struct tpck_transport *t, const char *address, struct tpck_link **out, struct tpck_error *err)
{
	char line[TPCK_TRANSPORT_ADDRESS + 2];
	struct mpi_link *link;

	snprintf(line, sizeof line, "\n%.*s\n", TPCK_TRANSPORT_ADDRESS - 1, address);
	for (int i = 0; i < t->size; i++) {
		struct rank *rank = &t->ranks[i];

		if (!strstr(rank->addresses, line) || rank->failed || t->broken)
			continue;
		link = link_new(t, rank, ++t->numbers, true);
		if (!link)
			return tpck_error_set(err, ENOMEM, "connecting to %s", address);
		if (!enqueue(link, PACKET_OPEN))
			link_fail(link, "no memory");
		*out = &link->link;
		return 0;
	}
	return tpck_error_set(err, ECONNREFUSED, "connecting to %.60s, which is no agent of mpirun's that lives", address);
}

static void mpi_close(struct tpck_transport *t, struct tpck_link *base)
{
	(void)t;
	((struct mpi_link *)base)->open = false; /* the rest is sweep()'s */
}

/* What was not sent any more is not read any more either. */
static void drop_queued(struct tpck_transport *t, struct mpi_link *link)
{
	for (struct sending **place = &link->rank->queue; *place;) {
		struct sending *s = *place;
		void *token = s->token;

		if (s->link != link || (s->kind != PACKET_FIRST && !link->rank->failed)) {
			place = &s->next;
			continue;
		}
		dequeue(link->rank, place);
		if (token)
			t->events->sent(t->context, NULL, token);
	}
}

static bool is_queued(const struct mpi_link *link)
{
	for (const struct sending *s = link->rank->queue; s; s = s->next)
		if (s->link == link)
			return true;
	return false;
}

static bool link_is_over(struct tpck_transport *t, struct mpi_link *link)
{
	if (link->why[0] && link->open) {
		link->open = false;
		t->events->gone(t->context, &link->link, link->why);
	}
	if (link->open)
		return false;
	if (link->receiving) {
		link->receiving = false;
		if (link->place)
			t->events->arrived(t->context, NULL, link->head, link->head_bytes, link->place, link->count, false);
	}
	drop_queued(t, link);
	if (!link->close_said) {
		link->close_said = true;
		if (!link->closed_there && !link->rank->failed)
			(void)enqueue(link, PACKET_CLOSE);
	}
	return !is_queued(link);
}

/* Tells of what has failed, closes what is not wanted, and frees what nothing refers to any more. */
static void sweep(struct tpck_transport *t)
{
	for (struct mpi_link **place = &t->links; *place;) {
		struct mpi_link *link = *place;
		bool over = link_is_over(t, link);

		/* What is new since is before it. */
		while (*place != link)
			place = &(*place)->next;
		if (over) {
			*place = link->next;
			free(link);
		} else {
			place = &link->next;
		}
	}
}

/* ---- failures ----------------------------------------------------------------------------- */

static void rank_failed(struct tpck_transport *t, struct rank *rank, const char *why)
{
	if (rank->failed)
		return;
	rank->failed = mpi.lost = true;
	for (struct mpi_link *link = t->links; link; link = link->next)
		if (link->rank == rank)
			link_fail(link, why);
}

static void look_for_failed(struct tpck_transport *t)
{
	MPI_Group all, failed;
	int count = 0;

	t->look_ns = tpck_clock_monotonic_ns() + LOOK_NS;
	if (!mpi.failure_ack || !mpi.failure_get_acked || mpi.failure_ack(t->comm) || mpi.failure_get_acked(t->comm, &failed))
		return;
	if (mpi.MPI_Group_size(failed, &count) == MPI_SUCCESS && count > 0 && mpi.MPI_Comm_group(t->comm, &all) == MPI_SUCCESS) {
		for (int i = 0, number; i < count; i++)
			if (mpi.MPI_Group_translate_ranks(failed, 1, &i, all, &number) == MPI_SUCCESS && number >= 0 && number < t->size)
				rank_failed(t, &t->ranks[number], "MPI says that it has failed");
		mpi.MPI_Group_free(&all);
	}
	mpi.MPI_Group_free(&failed);
}

/* What a call has returned; false: it has not done what it was to do. */
static bool is_good(struct tpck_transport *t, int rc, struct rank *rank)
{
	char text[MPI_MAX_ERROR_STRING] = "";
	int class = MPI_ERR_OTHER, length;

	if (rc == MPI_SUCCESS)
		return true;
	mpi.MPI_Error_class(rc, &class);
	mpi.MPI_Error_string(rc, text, &length);
	if (class == PROC_FAILED || class == PROC_FAILED_PENDING) {
		look_for_failed(t);
		return false;
	}
	mpi.lost = true;
	if (rank) {
		rank_failed(t, rank, text);
	} else if (!t->broken) {
		t->broken = true;
		tpck_log_warn("MPI fails, and this node works alone until mpirun starts its agents again: %.200s", text);
		for (int i = 0; i < t->size; i++)
			rank_failed(t, &t->ranks[i], text);
	}
	return false;
}

/* ---- packets ------------------------------------------------------------------------------ */

/* Of a size's content behind `head`; a large one has been used before where there is one: what malloc() takes back it gives to the kernel, and a page that is
 * met for the first time costs more than what is copied into it. */
static struct packet *packet_new(struct tpck_transport *t, size_t size)
{
	size_t most = sizeof(struct packet_head) + TPCK_TRANSPORT_HEAD_MAX + PACKET_BYTES;
	bool large = size > PACKET_BYTES / 4 && size <= most;
	struct packet *packet = large ? t->spares : NULL;

	if (packet) {
		t->spares = packet->next;
		t->spare_count--;
	} else {
		packet = malloc(offsetof(struct packet, head) + sizeof packet->head + (large ? most : size));
	}
	if (packet)
		*packet = (struct packet){.size = size, .large = large};
	return packet;
}

static void packet_free(struct tpck_transport *t, struct packet *packet)
{
	if (!packet->large || t->spare_count == SPARES_MOST) {
		free(packet);
		return;
	}
	packet->next = t->spares;
	t->spares = packet;
	t->spare_count++;
}

static void free_spares(struct tpck_transport *t)
{
	while (t->spares) {
		struct packet *packet = t->spares;

		t->spares = packet->next;
		free(packet);
	}
	t->spare_count = 0;
}

/* ---- packets out -------------------------------------------------------------------------- */

static int mpi_send(struct tpck_transport *t, struct tpck_link *base, const void *head, size_t head_bytes,
		    const void *bytes, size_t count, void *token)
{
	struct mpi_link *link = (struct mpi_link *)base;
	struct sending *s = link->open && !link->why[0] ? enqueue(link, PACKET_FIRST) : NULL;

	(void)t;
	if (!s)
		return -ENOTCONN;
	s->token = token;
	s->bytes = bytes;
	s->count = count;
	s->head_bytes = head_bytes;
	memcpy(s->head, head, head_bytes);
	return 0;
}

/* The next packet of what is first in the queue. */
static bool send_packet(struct tpck_transport *t, struct rank *rank)
{
	struct sending *s = rank->queue;
	size_t left = s->count - s->offset, bytes = left < PACKET_BYTES ? left : PACKET_BYTES;
	size_t head_bytes = s->offset ? 0 : s->head_bytes, size = sizeof(struct packet_head) + head_bytes + bytes;
	struct packet *packet = packet_new(t, size);
	struct mpi_link *link = s->link;
	void *token = s->token;

	if (!packet) {
		link_fail(link, "no memory");
		dequeue(rank, &rank->queue);
		if (token)
			t->events->sent(t->context, link->open ? &link->link : NULL, token);
		return false;
	}
	packet->rank = rank;
	packet->head = (struct packet_head){
		.kind = s->kind == PACKET_FIRST && s->offset ? PACKET_MORE : s->kind, .opener = link->mine, .link = link->number,
		.count = s->count, .offset = s->offset, .head_bytes = (uint32_t)head_bytes, .bytes = (uint32_t)bytes};
	memcpy(packet->rest, s->head, head_bytes);
	if (bytes)
		memcpy(packet->rest + head_bytes, s->bytes + s->offset, bytes);
	if (!is_good(t, mpi.MPI_Isend(&packet->head, (int)size, mpi.byte, rank->number, PACKET_TAG, t->comm, &packet->request), rank)) {
		rank_failed(t, rank, "MPI does not send to it");
		packet_free(t, packet);
		return false;
	}
	packet->next = rank->under_way;
	rank->under_way = packet;
	rank->packets++;
	s->offset += bytes;
	if (s->offset < s->count)
		return true;
	dequeue(rank, &rank->queue);
	if (token)
		t->events->sent(t->context, link->open ? &link->link : NULL, token);
	return true;
}

/* Of a failed rank a request may never end: its packet stays. */
static bool send_to(struct tpck_transport *t, struct rank *rank)
{
	bool any = false;

	for (struct packet **place = &rank->under_way; *place;) {
		struct packet *packet = *place;
		int done = 0;

		if (!is_good(t, mpi.MPI_Test(&packet->request, &done, MPI_STATUS_IGNORE), rank))
			done = 1;
		if (!done) {
			place = &packet->next;
			continue;
		}
		*place = packet->next;
		rank->packets--;
		packet_free(t, packet);
		any = true;
	}
	while (rank->queue && rank->packets < SENT_MOST && !rank->failed && send_packet(t, rank))
		any = true;
	return any;
}

/* ---- packets in --------------------------------------------------------------------------- */

/* The link's user may have closed it in any event. */
static void take_bytes(struct tpck_transport *t, struct mpi_link *link, const unsigned char *bytes, size_t count)
{
	if (link->place)
		memcpy(link->place + link->got, bytes, count);
	link->got += count;
	if (link->got < link->count)
		return;
	link->receiving = false;
	if (link->place || !link->count)
		t->events->arrived(t->context, &link->link, link->head, link->head_bytes, link->place, link->count, true);
}

static void take_packet(struct tpck_transport *t, struct rank *rank, const struct packet_head *head, size_t size)
{
	struct mpi_link *link;

	if (size < sizeof *head || size != sizeof *head + head->head_bytes + (size_t)head->bytes || head->head_bytes > TPCK_TRANSPORT_HEAD_MAX)
		return;
	if (head->kind == PACKET_OPEN) {
		link = link_new(t, rank, head->link, false);
		if (link)
			t->events->came(t->context, &link->link);
		return;
	}
	link = link_of(t, rank, head);
	if (!link)
		return;
	if (head->kind == PACKET_CLOSE) {
		link->closed_there = true;
		link_fail(link, "it has closed");
		return;
	}
	if (!link->open || link->why[0])
		return;
	if (link->receiving != (head->kind == PACKET_MORE) || (link->receiving && (head->offset != link->got || head->count != link->count)) ||
	    head->offset + head->bytes > head->count) {
		link_fail(link, "packets are missing");
		return;
	}
	if (!link->receiving) {
		link->count = head->count;
		link->got = 0;
		link->head_bytes = head->head_bytes;
		memcpy(link->head, head + 1, head->head_bytes);
		link->place = link->count ? t->events->place(t->context, &link->link, link->head, link->head_bytes, link->count) : NULL;
		link->receiving = true;
		if (!link->open)
			return;
	}
	take_bytes(t, link, (const unsigned char *)(head + 1) + head->head_bytes, head->bytes);
}

/* Packets are matched in the order in which they were sent. */
static bool match_packets(struct tpck_transport *t)
{
	bool any = false;

	while (t->coming_count < RECEIVED_MOST && !t->broken) {
		struct packet *packet;
		MPI_Message message;
		MPI_Status status;
		int found = 0, size = 0;

		if (!is_good(t, mpi.MPI_Improbe(MPI_ANY_SOURCE, PACKET_TAG, t->comm, &found, &message, &status), NULL) || !found)
			break;
		mpi.MPI_Get_count(&status, mpi.byte, &size);
		packet = packet_new(t, (size_t)size);
		if (!packet) {
			/* The message stays matched for ever: nothing that follows it can be understood. */
			rank_failed(t, &t->ranks[status.MPI_SOURCE], "no memory");
			break;
		}
		packet->rank = &t->ranks[status.MPI_SOURCE];
		if (!is_good(t, mpi.MPI_Imrecv(&packet->head, size, mpi.byte, &message, &packet->request), packet->rank)) {
			packet_free(t, packet);
			break;
		}
		*t->coming_end = packet;
		t->coming_end = &packet->next;
		t->coming_count++;
		any = true;
	}
	return any;
}

static void coming_remove(struct tpck_transport *t, struct packet **place)
{
	struct packet *packet = *place;

	*place = packet->next;
	if (t->coming_end == &packet->next)
		t->coming_end = place;
	t->coming_count--;
}

static bool receive(struct tpck_transport *t)
{
	bool any = match_packets(t);

	for (struct packet *packet = t->coming; packet; packet = packet->next)
		packet->rank->held = false;
	for (struct packet **place = &t->coming; *place;) {
		struct packet *packet = *place;
		int done = 0;

		if (!packet->done) {
			packet->good = is_good(t, mpi.MPI_Test(&packet->request, &done, MPI_STATUS_IGNORE), packet->rank);
			packet->done = done || !packet->good;
		}
		if (!packet->done && packet->rank->failed) {
			/* The packet may never come, and MPI may yet write to it: it is left to MPI. */
			coming_remove(t, place);
			continue;
		}
		if (!packet->done || packet->rank->held) {
			packet->rank->held = true;
			place = &packet->next;
			continue;
		}
		coming_remove(t, place);
		if (packet->good)
			take_packet(t, packet->rank, &packet->head, packet->size);
		else
			rank_failed(t, packet->rank, "what it sent is lost");
		packet_free(t, packet);
		any = true;
	}
	return any;
}

/* ---- the whole ---------------------------------------------------------------------------- */

static bool mpi_progress(struct tpck_transport *t)
{
	bool any = receive(t);

	for (int i = 0; i < t->size; i++)
		any |= send_to(t, &t->ranks[i]);
	if (tpck_clock_monotonic_ns() >= t->look_ns)
		look_for_failed(t);
	sweep(t);
	if (any)
		t->busy_ns = tpck_clock_monotonic_ns() + BUSY_NS;
	return any;
}

static bool is_moving(const struct tpck_transport *t)
{
	for (int i = 0; i < t->size; i++)
		if (!t->ranks[i].failed && (t->ranks[i].queue || t->ranks[i].packets))
			return true;
	return t->coming != NULL;
}

/* MPI has nothing to wait on with others: it is asked again and again, the more rarely the longer nothing has come. */
static void mpi_wait(struct tpck_transport *t, int wake, int timeout_ms)
{
	struct pollfd fd = {.fd = wake, .events = POLLIN};
	uint64_t now = tpck_clock_monotonic_ns(), until = now + (uint64_t)timeout_ms * 1000000;

	for (; now < until; now = tpck_clock_monotonic_ns()) {
		bool moving = is_moving(t);
		bool busy = moving || now < t->busy_ns;
		uint64_t pause = busy ? PAUSE_SHORT_NS : PAUSE_NS;
		struct timespec time = {.tv_nsec = (long)(pause < until - now ? pause : until - now)};
		int found = 0;

		if (!busy)
			free_spares(t);
		if (ppoll(&fd, 1, &time, NULL) > 0 || moving)
			return;
		if (!t->broken && (mpi.MPI_Iprobe(MPI_ANY_SOURCE, PACKET_TAG, t->comm, &found, MPI_STATUS_IGNORE) != MPI_SUCCESS || found))
			return;
	}
}

static uint16_t mpi_port(struct tpck_transport *t)
{
	return t->port;
}

static void mpi_each(struct tpck_transport *t, void (*visit)(void *context, const char *name, const char *addresses), void *context)
{
	for (int i = 0; i < t->size; i++) {
		char *host = t->ranks[i].addresses, *lines = strchr(host, '\n') + 1, name[256];

		snprintf(name, sizeof name, "%.*s", (int)(lines - 1 - host), host);
		if (i != t->self && !t->ranks[i].failed)
			visit(context, name, lines);
	}
}

static void mpi_stop(struct tpck_transport *t)
{
	uint64_t until = tpck_clock_monotonic_ns() + STOP_NS;

	if (!t)
		return;
	for (struct mpi_link *link = t->links; link; link = link->next)
		link->open = false;
	/* The others are told, unless they do not listen. */
	do
		mpi_progress(t);
	while ((t->links || is_moving(t)) && tpck_clock_monotonic_ns() < until);
	for (struct mpi_link *link; (link = t->links);) {
		t->links = link->next;
		for (struct sending **place = &link->rank->queue; *place;)
			if ((*place)->link == link)
				dequeue(link->rank, place);
			else
				place = &(*place)->next;
		free(link);
	}
	/* MPI may still use packets, and so they, the ranks that they name and this stay. */
}

static int meet(struct tpck_transport *t, uint16_t port, struct tpck_error *err)
{
	char (*all)[ADDRESSES] = calloc((size_t)t->size, ADDRESSES), own[ADDRESSES] = "", lines[ADDRESSES - 300];
	int rc;

	if (!all)
		return tpck_error_set(err, ENOMEM, "starting MPI");
	/* No port of any network's: what others say they connect to. */
	t->port = port ? port : (uint16_t)(1 + t->self % 65535);
	if (gethostname(own, 250))
		snprintf(own, sizeof own, "unknown");
	tpck_rendezvous_addresses(t->port, lines, sizeof lines);
	/* The loopback, the last, is everybody's. */
	if (strstr(lines, "127.0.0.1:"))
		*strstr(lines, "127.0.0.1:") = '\0';
	snprintf(own + strlen(own), sizeof own - strlen(own), "\n%s", lines);
	rc = mpi.MPI_Allgather(own, ADDRESSES, mpi.byte, all, ADDRESSES, mpi.byte, t->comm);
	for (int i = 0; i < t->size; i++) {
		struct rank *rank = &t->ranks[i];

		rank->number = i;
		rank->queue_end = &rank->queue;
		memcpy(rank->addresses, all[i], ADDRESSES - 1);
		if (!strchr(rank->addresses, '\n'))
			snprintf(rank->addresses, sizeof rank->addresses, "unknown\n");
	}
	free(all);
	return rc == MPI_SUCCESS ? 0 : tpck_error_set(err, EIO, "exchanging addresses over MPI");
}

static int open_world(struct tpck_transport *t, uint16_t port, struct tpck_error *err)
{
	const char *said = getenv("OMPI_COMM_WORLD_SIZE");
	int rc = MPI_SUCCESS, provided;

	if (!mpi.begun)
		rc = mpi.MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
	if (rc != MPI_SUCCESS || (!mpi.begun && provided < MPI_THREAD_SERIALIZED))
		return tpck_error_set(err, EIO, "starting MPI with calls of several threads, one at a time");
	mpi.begun = true;
	mpi.MPI_Comm_set_errhandler(mpi.world, mpi.errors_return);
	if (mpi.MPI_Comm_dup(mpi.world, &t->comm) != MPI_SUCCESS || mpi.MPI_Comm_size(t->comm, &t->size) != MPI_SUCCESS ||
	    mpi.MPI_Comm_rank(t->comm, &t->self) != MPI_SUCCESS)
		return tpck_error_set(err, EIO, "starting MPI");
	mpi.MPI_Comm_set_errhandler(t->comm, mpi.errors_return);
	if (said && atoi(said) != t->size)
		return tpck_error_set(err, EIO, "starting MPI: mpirun says %s ranks, libmpi.so.40 %d: is it another installation's?", said, t->size);
	t->ranks = calloc((size_t)t->size, sizeof *t->ranks);
	return t->ranks ? meet(t, port, err) : tpck_error_set(err, ENOMEM, "starting MPI");
}

static int start(struct tpck_transport **out, const struct tpck_transport_events *events, void *context, uint16_t port,
		 struct tpck_error *err)
{
	struct tpck_transport *t;
	int rc = load(err);

	if (rc)
		return rc;
	t = calloc(1, sizeof *t);
	if (!t)
		return tpck_error_set(err, ENOMEM, "starting MPI");
	t->events = events;
	t->context = context;
	t->coming_end = &t->coming;
	rc = open_world(t, port, err);
	if (rc) {
		free(t->ranks);
		free(t);
		return rc;
	}
	*out = t;
	return 0;
}

static void mpi_finish(void)
{
	/* MPI_Finalize() waits for all, and for one that has failed for ever. */
	if (mpi.begun && !mpi.lost)
		mpi.MPI_Finalize();
}

const struct tpck_transport_operations tpck_transport_mpi = {
	.name = "mpi", .ordered = true, .start = start, .port = mpi_port, .connect = mpi_connect, .send = mpi_send, .close = mpi_close,
	.progress = mpi_progress, .wait = mpi_wait, .stop = mpi_stop, .each = mpi_each, .finish = mpi_finish,
};

#endif
