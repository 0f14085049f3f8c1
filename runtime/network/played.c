/* SPDX-License-Identifier: Apache-2.0 */
/* Running forward: the other ends of connections are played from the log. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/network/network_private.h"
#include "runtime/replay/forward.h"

/* What the program sends, and what the other end says behind it. */
struct turn {
	uint64_t sent, digest; /* as in struct tpck_record_talk */
	struct chunk {
		const void *bytes;
		size_t count;
		struct chunk *next;
	} *chunks, **chunks_end;
	struct turn *next;
};

/* A connection that the log has. */
struct spoken {
	uint32_t thread, ordinal;
	struct tpck_record_peer peer;
	bool failed, lost, safe, unsafe;
	bool answered; /* something has come behind its first request */
	bool over;    /* one of both has ended it */
	bool ended;   /* the other end has */
	bool taken;   /* it is the program's again */
	bool whole;   /* all of it has been said */
	struct turn *turns, **turns_end;
	struct late {
		struct late *next;
		bool counts;
		struct tpck_record record; /* its payload follows */
	} *late, **late_end; /* records from behind the cut */
	struct spoken *next;
};

/* A connection of the program's that is played. The player's, but while `lock` is held. */
struct played {
	int fd;                /* our end; -1: nobody's */
	int programs;          /* the program's end, as it was made */
	struct spoken *of;
	bool closing;          /* our end has said that it has nothing more to say */
	bool bound;            /* it is `of`, and no other: what was sent first says so */
	struct turn *turn;     /* what is awaited next */
	struct chunk *chunk;   /* what is to be said next; NULL: nothing */
	size_t said;           /* bytes of it */
	uint64_t got;          /* bytes of the turn that the program has sent */
	uint64_t at_ns;        /* when it sent some last */
	uint32_t first;        /* bytes below */
	unsigned char bytes[TPCK_TALK_FIRST];
};

enum { PLAYED = 128, NAMES = 160, HIGH = 512, SOON = 4, LATE_MOST = 4 << 20 };
/* How long a program that has sent less than in the first run may be silent before it is answered all the same. */
#define SILENT_NS 200000000ull
#define SETTLE_NS 2000000000ull
#define MOVES_NS 300000000ull
static struct spoken *spoken, **spoken_end;
static struct played *played;
static tpck_spin lock;
_Atomic bool tpck_network_forwarding_now;
static bool running;      /* the player's thread */
static int wake = -1;
static _Atomic uint64_t moved_ns;
static _Atomic uint32_t waiting, waiting_at_boundary;
static size_t late_bytes;
static char difference[200];
static _Atomic bool differs_at_once, differs_later;
static _Atomic bool settled; /* it goes live: nothing differs any more */
static char mismatched[NAMES], again[NAMES];
static void (*diverges)(const char *what);

/* ---- what the log says ------------------------------------------------------------------------------ */

static struct spoken *spoken_of(uint32_t thread, uint32_t ordinal)
{
	struct spoken *found = spoken;

	while (found && (found->thread != thread || found->ordinal != ordinal))
		found = found->next;
	return found;
}

static struct turn *turn_new(struct spoken *of, uint64_t sent, uint64_t digest)
{
	struct turn *turn = calloc(1, sizeof *turn);

	if (!turn) {
		of->lost = true;
		return NULL;
	}
	turn->sent = sent;
	turn->digest = digest;
	turn->chunks_end = &turn->chunks;
	*of->turns_end = turn;
	of->turns_end = &turn->next;
	return turn;
}

static struct turn *turn_last(const struct spoken *of)
{
	struct turn *last = of->turns;

	while (last && last->next)
		last = last->next;
	return last;
}

static void learn_opened(const struct tpck_record *record, const struct tpck_record_talk *talk)
{
	struct spoken *of = spoken_of(talk->thread, talk->ordinal), *next;

	if (record->bytes < sizeof *talk + sizeof of->peer)
		return;
	if (!of) {
		of = calloc(1, sizeof *of);
		if (!of)
			return;
		*(spoken_end ? spoken_end : &spoken) = of;
		spoken_end = &of->next;
	}
	/* A thread of its own pace had made fewer when the run was gone on from: what it made last by that number counts. */
	next = of->next;
	*of = (struct spoken){.thread = talk->thread, .ordinal = talk->ordinal, .next = next};
	of->turns_end = &of->turns;
	of->late_end = &of->late;
	memcpy(&of->peer, talk + 1, sizeof of->peer);
	of->failed = of->peer.error != 0;
}

void tpck_network_learn(const struct tpck_record *record)
{
	const struct tpck_record_talk *talk = (const void *)(record + 1);
	struct spoken *of;
	struct chunk *chunk;
	struct turn *turn;

	if (record->type != TPCK_RECORD_TALK || record->bytes < sizeof *talk)
		return;
	if (record->detail == TPCK_TALK_OPENED) {
		learn_opened(record, talk);
		return;
	}
	of = spoken_of(talk->thread, talk->ordinal);
	if (!of)
		return;
	turn = turn_last(of);
	if (talk->sent)
		turn = turn_new(of, talk->sent, talk->digest);
	if (record->detail == TPCK_TALK_RECEIVED && record->bytes > sizeof *talk) {
		chunk = calloc(1, sizeof *chunk);
		if (!turn)
			turn = turn_new(of, 0, 0);
		if (!chunk || !turn) {
			free(chunk);
			of->lost = true;
			return;
		}
		chunk->bytes = talk + 1;
		chunk->count = record->bytes - sizeof *talk;
		*turn->chunks_end = chunk;
		turn->chunks_end = &chunk->next;
		of->answered |= of->safe || of->unsafe;
	}
	of->ended |= record->detail == TPCK_TALK_ENDED;
	of->over |= record->detail == TPCK_TALK_ENDED || record->detail == TPCK_TALK_CLOSED;
	of->failed |= record->detail == TPCK_TALK_FAILED;
	of->lost |= record->detail == TPCK_TALK_LOST;
	of->safe |= record->detail == TPCK_TALK_SAFE;
	of->unsafe |= record->detail == TPCK_TALK_UNSAFE;
}

void tpck_network_learn_behind(const struct tpck_record *record)
{
	const struct tpck_record_talk *talk = (const void *)(record + 1);
	struct spoken *of;
	struct late *late;

	if (record->type != TPCK_RECORD_TALK || record->bytes < sizeof *talk || record->bytes > LATE_MOST)
		return;
	of = spoken_of(talk->thread, talk->ordinal);
	if (!of || of->over || of->lost || of->failed)
		return;
	/* Another connection of that number. */
	if (record->detail == TPCK_TALK_OPENED) {
		of->late_end = NULL;
		return;
	}
	late = of->late_end && late_bytes + record->bytes <= LATE_MOST ? malloc(sizeof *late + record->bytes) : NULL;
	if (!late)
		return;
	late_bytes += record->bytes;
	late->next = NULL;
	memcpy(&late->record, record, sizeof *record + record->bytes);
	*of->late_end = late;
	of->late_end = &late->next;
}

/* Threads that the record does not wait for have no place at the cut: of what one was told there the rest lies behind it. That counts up to the next
 * request; of a connection that was soon over all of it. */
static void learn_late(struct spoken *of)
{
	unsigned turns = 0;
	bool over = false;

	for (const struct late *late = of->late; late; late = late->next) {
		turns += ((const struct tpck_record_talk *)(&late->record + 1))->sent > 0;
		over |= late->record.detail == TPCK_TALK_ENDED || late->record.detail == TPCK_TALK_CLOSED;
	}
	for (struct late *late = of->late; late; late = late->next) {
		if (((const struct tpck_record_talk *)(&late->record + 1))->sent && !(over && turns <= SOON))
			return;
		late->counts = true;
		tpck_network_learn(&late->record);
	}
}

/* Whether its first request has no answer in the log: it counts as not made. Where requests cannot be told from a handshake that is two turns. */
static bool is_open_question(const struct spoken *of)
{
	const struct turn *last = turn_last(of);

	if (of->over || of->lost || of->failed)
		return false;
	if (of->safe || of->unsafe)
		return !of->answered;
	return !last || last == of->turns || (last == of->turns->next && !last->chunks);
}

void tpck_network_unlearn(void)
{
	spoken = NULL;
	spoken_end = NULL;
}

static void add_name(char names[NAMES], const struct tpck_record_peer *peer)
{
	char text[TPCK_PEER_TEXT];
	size_t used = strlen(names);

	tpck_peer_text(peer, text);
	if (!strstr(names, text))
		snprintf(names + used, NAMES - used, "%s%s", used ? ", " : "", text);
}

static void differs(const char *what, const struct tpck_record_peer *peer, bool at_once)
{
	char text[TPCK_PEER_TEXT];

	tpck_spin_lock(&lock);
	if (!difference[0])
		snprintf(difference, sizeof difference, what, tpck_peer_text(peer, text));
	tpck_spin_unlock(&lock);
	atomic_store(at_once ? &differs_at_once : &differs_later, true);
	/* Before there is a device nobody looks. */
	if (at_once && diverges && !atomic_load(&settled))
		diverges(difference);
}

const char *tpck_network_difference(bool *at_once)
{
	*at_once = atomic_load(&differs_at_once);
	return tpck_network_forwards() && !atomic_load(&settled) && (*at_once || (atomic_load(&differs_later) && atomic_load(&waiting))) ? difference : NULL;
}

static int high(int fd)
{
	int moved = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, HIGH);

	if (moved < 0)
		return fd;
	syscall(SYS_close, fd);
	return moved;
}

/* ---- the player ---------------------------------------------------------------------------------------- */

static bool same_place(const struct tpck_record_peer *one, const struct tpck_record_peer *other)
{
	return one->family == other->family && one->port == other->port && memcmp(one->address, other->address, sizeof one->address) == 0;
}

/* The first turn in which something is sent, or the last one. */
static const struct turn *opening(const struct spoken *of)
{
	const struct turn *turn = of->turns;

	while (turn && !turn->sent && turn->next)
		turn = turn->next;
	return turn;
}

static bool opens_with(const struct spoken *of, uint64_t got, uint64_t digest)
{
	const struct turn *turn = opening(of);

	return turn && turn->sent == got && (!turn->digest || turn->digest == digest);
}

static bool is_handshake(const struct played *at)
{
	return at->first > 2 && at->bytes[0] == 0x16 && at->bytes[1] == 0x03;
}

/* Whether nobody has that one, or one of which it is not known yet, which gets the other one for it. The lock is held. */
static bool let_go(struct spoken *that, struct spoken *other)
{
	struct played *has = NULL;

	for (int i = 0; i < PLAYED && that->taken && !has; i++)
		if (played[i].fd >= 0 && played[i].of == that && !played[i].bound)
			has = &played[i];
	if (that->taken && !has)
		return false;
	that->taken = true;
	other->taken = has != NULL;
	if (has) {
		has->of = other;
		has->turn = other->turns;
	}
	return true;
}

/* The program has sent what may be its first turn: connections of several threads to the same place come in another order, and which one
 * this is follows from what it says. */
static void bind_first(struct played *at)
{
	uint64_t digest = tpck_network_digest(at->bytes, at->first);

	at->bound = true;
	if (opens_with(at->of, at->got, digest))
		return;
	tpck_spin_lock(&lock);
	for (struct spoken *other = spoken; other; other = other->next)
		if (!other->failed && !other->lost && other->peer.port == at->of->peer.port && opens_with(other, at->got, digest) && let_go(other, at->of)) {
			at->of = other;
			at->turn = other->turns;
			break;
		}
	tpck_spin_unlock(&lock);
}

/* A turn is over: what was sent is compared, and the answer follows. False: it would be a wrong one, and the program is live. */
static bool answer(struct played *at)
{
	struct turn *turn = at->turn;

	if (turn->digest && turn->digest != tpck_network_digest(at->bytes, at->first)) {
		if (is_handshake(at))
			differs("%s is spoken with by a TLS library that draws other random numbers than in the first run", &at->of->peer, true);
		else if (at->of->unsafe)
			add_name(mismatched, &at->of->peer);
		else
			differs("%s is asked for something else than in the first run", &at->of->peer, true);
		if (atomic_load(&settled) && !at->of->unsafe)
			return false;
	}
	at->chunk = turn->chunks;
	at->said = 0;
	at->turn = turn->next;
	at->got = 0;
	at->first = 0;
	return true;
}

/* Says what is to be said, as far as there is room. False: the connection is gone. */
static bool say(struct played *at)
{
	while (at->chunk) {
		long done = syscall(SYS_sendto, at->fd, (const char *)at->chunk->bytes + at->said, at->chunk->count - at->said, MSG_NOSIGNAL | MSG_DONTWAIT, NULL, 0);

		if (done < 0)
			return errno == EAGAIN || errno == EINTR;
		at->said += (size_t)done;
		atomic_store(&moved_ns, tpck_clock_monotonic_ns());
		if (at->said == at->chunk->count) {
			at->chunk = at->chunk->next;
			at->said = 0;
		}
	}
	return true;
}

static void close_played(struct played *at)
{
	/* What the program leaves unread the first run left unread. */
	if (!at->turn)
		at->of->whole = true;
	tpck_spin_lock(&lock);
	syscall(SYS_close, at->fd);
	at->fd = -1;
	tpck_spin_unlock(&lock);
}

/* As far as it goes without another byte of the program's. */
static bool go_on(struct played *at)
{
	bool goes = true;

	while (goes && !at->chunk && at->turn && (!at->turn->sent || at->got >= at->turn->sent)) {
		if (!at->bound)
			bind_first(at);
		goes = answer(at) && say(at);
	}
	if (goes && !at->chunk && !at->turn && !at->of->whole) {
		at->of->whole = true;
		at->closing = at->of->ended;
		if (at->closing)
			syscall(SYS_shutdown, at->fd, SHUT_WR);
	}
	return goes;
}

static void take(struct played *at, const unsigned char *bytes, size_t count)
{
	atomic_store(&moved_ns, tpck_clock_monotonic_ns());
	at->at_ns = tpck_clock_monotonic_ns();
	while (count) {
		uint64_t awaited = at->turn && at->turn->sent > at->got && (at->bound || at->turn->sent - at->got >= count) ? at->turn->sent - at->got : count;
		size_t part = awaited < count ? (size_t)awaited : count;
		size_t fits = TPCK_TALK_FIRST - at->first < part ? TPCK_TALK_FIRST - at->first : part;

		memcpy(at->bytes + at->first, bytes, fits);
		at->first += (uint32_t)fits;
		at->got += part;
		bytes += part;
		count -= part;
		if (!count || !go_on(at))
			break;
	}
}

static void serve(struct played *at, short events)
{
	unsigned char bytes[16384];
	bool goes = true;

	if (events & POLLIN) {
		long got = syscall(SYS_recvfrom, at->fd, bytes, sizeof bytes, MSG_DONTWAIT, NULL, NULL);

		if (got > 0)
			take(at, bytes, (size_t)got);
		else
			goes = got < 0 && (errno == EAGAIN || errno == EINTR);
	}
	goes = goes && !(events & (POLLERR | POLLNVAL)) && say(at) && go_on(at);
	if (!goes)
		close_played(at);
}

/* A program that sends fewer bytes than it did is answered, too: a number is shorter, a header is missing. */
static void look_for_silence(struct played *at, uint64_t now)
{
	if (at->chunk || !at->turn || !at->got || now < at->at_ns + SILENT_NS)
		return;
	if (!at->bound)
		bind_first(at);
	if ((at->turn && !answer(at)) || !say(at) || !go_on(at))
		close_played(at);
}

/* Once the program is live the other end has nothing more to say than what is under way. False: the connection is over. */
static bool tend(struct played *at, uint64_t now)
{
	if (!go_on(at))
		return false;
	look_for_silence(at, now);
	if (at->fd >= 0 && at->of->whole && !at->closing && !tpck_network_forwards()) {
		at->closing = true;
		syscall(SYS_shutdown, at->fd, SHUT_WR);
	}
	return true;
}

/* How many there are; in `ends` what to wait for. */
static unsigned gather(struct pollfd *ends)
{
	unsigned count = 0;

	tpck_spin_lock(&lock);
	for (int i = 0; i < PLAYED; i++) {
		ends[i] = (struct pollfd){played[i].fd, (short)(POLLIN | (played[i].chunk ? POLLOUT : 0)), 0};
		count += played[i].fd >= 0;
	}
	tpck_spin_unlock(&lock);
	ends[PLAYED] = (struct pollfd){wake, POLLIN, 0};
	return count;
}

static void *player_main(void *unused)
{
	struct pollfd *ends = calloc(PLAYED + 1, sizeof *ends);

	(void)unused;
	tpck_thread_own();
	pthread_setname_np(pthread_self(), "tpck-network");
	while (ends && (gather(ends) || tpck_network_forwards())) {
		struct timespec limit = {0, 50000000};
		uint64_t now, woken;

		if (syscall(SYS_ppoll, ends, PLAYED + 1, &limit, NULL, 0) < 0 && errno != EINTR)
			break;
		if (ends[PLAYED].revents)
			(void)syscall(SYS_read, wake, &woken, sizeof woken);
		now = tpck_clock_monotonic_ns();
		for (int i = 0; i < PLAYED; i++) {
			if (ends[i].fd >= 0 && ends[i].revents && played[i].fd == ends[i].fd)
				serve(&played[i], ends[i].revents);
			if (played[i].fd >= 0 && !tend(&played[i], now))
				close_played(&played[i]);
		}
	}
	free(ends);
	return NULL;
}

static void tell(const struct spoken *of)
{
	char peer[TPCK_PEER_TEXT], turns[200] = "";

	for (const struct turn *turn = of->turns; turn && strlen(turns) < sizeof turns - 40; turn = turn->next) {
		size_t bytes = 0;

		for (const struct chunk *chunk = turn->chunks; chunk; chunk = chunk->next)
			bytes += chunk->count;
		snprintf(turns + strlen(turns), sizeof turns - strlen(turns), " %llu>%zu", (unsigned long long)turn->sent, bytes);
	}
	tpck_log_debug("connection %u of thread %u, to %s:%s%s%s%s%s", of->ordinal, of->thread, tpck_peer_text(&of->peer, peer), turns, of->over ? ", over" : "",
		       of->failed ? ", failed" : "", of->lost ? ", not whole" : "", is_open_question(of) ? ", not answered" : "");
}

void tpck_network_forward(void (*diverged)(const char *what))
{
	diverges = diverged;
	atomic_store(&tpck_network_forwarding_now, true);
	if (!spoken)
		return;
	for (struct spoken *of = spoken; of; of = of->next)
		learn_late(of), tell(of);
	played = calloc(PLAYED, sizeof *played);
	for (int i = 0; played && i < PLAYED; i++)
		played[i].fd = -1;
	wake = high((int)syscall(SYS_eventfd2, 0, EFD_CLOEXEC | EFD_NONBLOCK));
	running = played && wake >= 0 && !tpck_thread_start(player_main);
}

/* ---- connecting ---------------------------------------------------------------------------------------- */

enum match { MATCH_NOT, MATCH_PORT, MATCH_PLACE, MATCH_THREADS_PORT, MATCH_EXACT_PORT, MATCH_THREADS_PLACE, MATCH_EXACT };

static enum match matches(const struct spoken *of, const struct tpck_thread *self, uint32_t ordinal, const struct tpck_record_peer *peer, bool any)
{
	bool place = same_place(&of->peer, peer);

	if (of->taken || of->peer.port != peer->port || (any && is_open_question(of)))
		return MATCH_NOT;
	if (of->thread != self->id)
		return !any ? MATCH_NOT : place ? MATCH_PLACE : MATCH_PORT;
	if (of->ordinal == ordinal)
		return place ? MATCH_EXACT : MATCH_EXACT_PORT;
	return place ? MATCH_THREADS_PLACE : MATCH_THREADS_PORT;
}

/* Which connection of the log this is; until something is sent that may change. A name may mean another address by now, and one that asks for several
 * at once gets them in another order. any: it may be another thread's, too. */
static struct spoken *find(const struct tpck_thread *self, uint32_t ordinal, const struct tpck_record_peer *peer, bool any)
{
	enum match best = MATCH_NOT;
	struct spoken *found = NULL;

	for (struct spoken *of = spoken; of; of = of->next) {
		enum match match = matches(of, self, ordinal, peer, any);

		if (match > best) {
			best = match;
			found = of;
		}
	}
	return found;
}

/* Whether all that was said there changed nothing. */
static bool all_safe(const struct tpck_record_peer *peer)
{
	bool some = false;

	for (const struct spoken *of = spoken; of; of = of->next)
		if (same_place(&of->peer, peer) && !of->failed) {
			if (!of->safe || of->unsafe)
				return false;
			some = true;
		}
	return some;
}

/* A socket of ours that listens where only this machine gets to, for the one connection. */
static int listen_for(int family, struct tpck_network_connect *state)
{
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, found;
	struct sockaddr_in6 six = {.sin6_family = AF_INET6};
	int fd = (int)syscall(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t bytes = sizeof found;

	if (fd < 0)
		return -1;
	fd = high(fd);
	if (syscall(SYS_bind, fd, &four, sizeof four) || syscall(SYS_listen, fd, 1) || syscall(SYS_getsockname, fd, &found, &bytes)) {
		syscall(SYS_close, fd);
		return -1;
	}
	memset(&state->instead, 0, sizeof state->instead);
	if (family == AF_INET) {
		memcpy(&state->instead, &found, sizeof found);
	} else {
		/* The same address as one of IPv6. */
		six.sin6_port = found.sin_port;
		six.sin6_addr.s6_addr[10] = six.sin6_addr.s6_addr[11] = 0xff;
		memcpy(&six.sin6_addr.s6_addr[12], &four.sin_addr, sizeof four.sin_addr);
		memcpy(&state->instead, &six, sizeof six);
	}
	return fd;
}

/* Until the program is live; one that begins anew goes from here. */
static void wait_for_live(bool at_boundary)
{
	struct timespec pause = {0, 1000000};

	atomic_fetch_add(&waiting, 1);
	atomic_fetch_add(&waiting_at_boundary, at_boundary);
	while (tpck_network_forwards())
		syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, NULL);
	atomic_fetch_sub(&waiting_at_boundary, at_boundary);
	atomic_fetch_sub(&waiting, 1);
}

enum tpck_network_way tpck_played_connects(struct tpck_thread *self, int fd, const struct tpck_record_peer *peer, struct tpck_network_connect *state)
{
	enum tpck_forward stands = tpck_forward_stands(self);
	struct spoken *of;
	bool plays = false;

	(void)fd;
	tpck_spin_lock(&lock);
	of = find(self, state->ordinal, peer, stands != TPCK_FORWARD_SAME);
	if (of)
		of->taken = true;
	tpck_spin_unlock(&lock);
	if (of && of->failed) {
		of->whole = true;
		state->error = of->peer.error ? of->peer.error : ECONNREFUSED;
		return TPCK_NETWORK_FAILS;
	}
	/* Threads that share work, as a pool's that fetches files, ask for other things than they did, by another number of connections. */
	if (of ? of->safe && !of->unsafe && (of->lost || stands == TPCK_FORWARD_FOREIGN) : stands == TPCK_FORWARD_FOREIGN && all_safe(peer)) {
		tpck_spin_lock(&lock);
		if (of && of->lost)
			add_name(again, peer);
		if (of)
			of->whole = true;
		tpck_spin_unlock(&lock);
		return TPCK_NETWORK_NOTED;
	}
	if (of && of->lost)
		differs("what %s answered to the first run is not in the record, and it may not be asked again", peer, true);
	else if (of)
		plays = running && (state->listener = listen_for(((const struct sockaddr *)&state->address)->sa_family, state)) >= 0;
	else if (stands != TPCK_FORWARD_END)
		differs("a connection to %s is made that the first run did not make there", peer, stands == TPCK_FORWARD_SAME);
	if (plays) {
		state->spoken = of;
		return TPCK_NETWORK_INSTEAD;
	}
	if (of && !of->lost)
		differs("nothing can stand in for %s", peer, true);
	wait_for_live(stands == TPCK_FORWARD_END);
	/* The program is live: what comes is noted as ever. */
	return TPCK_NETWORK_NOTED;
}

void tpck_played_connected(struct tpck_network_connect *state, int fd, int error)
{
	struct spoken *of = state->spoken;
	struct pollfd comes = {state->listener, POLLIN, 0};
	struct timespec limit = {2, 0};
	int end = -1, on = 1;
	uint64_t one = 1;

	if ((!error || error == EINPROGRESS || error == EINTR) && syscall(SYS_ppoll, &comes, 1, &limit, NULL, 0) > 0)
		end = (int)syscall(SYS_accept4, state->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	syscall(SYS_close, state->listener);
	if (end < 0) {
		differs("nothing can stand in for %s", &of->peer, true);
		return;
	}
	end = high(end);
	(void)syscall(SYS_fcntl, end, F_SETFL, O_NONBLOCK);
	(void)syscall(SYS_setsockopt, end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	(void)tpck_talk_begin(fd, TPCK_TALK_PLAYED, state, &of->peer);
	tpck_spin_lock(&lock);
	for (int i = 0; end >= 0 && i < PLAYED; i++)
		if (played[i].fd < 0) {
			memset(&played[i], 0, sizeof played[i]);
			played[i].of = of;
			played[i].programs = fd;
			played[i].turn = of->turns;
			played[i].bound = !of->turns || !of->turns->sent;
			played[i].at_ns = tpck_clock_monotonic_ns();
			played[i].fd = end;
			end = -1;
		}
	tpck_spin_unlock(&lock);
	if (end >= 0) {
		syscall(SYS_close, end);
		differs("nothing can stand in for %s", &of->peer, true);
	}
	(void)syscall(SYS_write, wake, &one, sizeof one);
}

bool tpck_network_unanswered(unsigned *from, int *fd, char text[TPCK_NETWORK_TEXT])
{
	char peer[TPCK_PEER_TEXT];
	bool found = false;

	if (!running || !tpck_network_forwards() || atomic_load(&settled))
		return false;
	tpck_spin_lock(&lock);
	for (; *from < PLAYED && !found; ++*from) {
		const struct played *at = &played[*from];

		found = at->fd >= 0 && !at->turn && !at->chunk && !at->of->over;
		if (found) {
			*fd = at->programs;
			snprintf(text, TPCK_NETWORK_TEXT, "a thread waits for an answer of %s that the record does not have, and all others for it",
				 tpck_peer_text(&at->of->peer, peer));
		}
	}
	tpck_spin_unlock(&lock);
	return found;
}

/* ---- going live ----------------------------------------------------------------------------------------- */

enum tpck_network_stop tpck_network_stops(void)
{
	if (!tpck_network_forwards() || !atomic_load(&waiting))
		return TPCK_NETWORK_GO;
	return atomic_load(&waiting_at_boundary) ? TPCK_NETWORK_STOP : TPCK_NETWORK_MAY_STOP;
}

static bool all_said(void)
{
	const struct spoken *of = spoken;

	while (of && (of->whole || (!of->taken && is_open_question(of))))
		of = of->next;
	return !of;
}

void tpck_network_settle(void)
{
	struct timespec pause = {0, 2000000};
	uint64_t begun = tpck_clock_monotonic_ns(), now = begun;

	if (!tpck_network_forwards())
		return;
	atomic_store(&moved_ns, begun);
	while (!all_said() && !atomic_load(&differs_at_once) && now - begun < SETTLE_NS && (now < atomic_load(&moved_ns) + MOVES_NS)) {
		syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, NULL);
		now = tpck_clock_monotonic_ns();
	}
	atomic_store(&settled, !atomic_load(&differs_at_once));
}

static void note_late(const struct late *late)
{
	const struct tpck_record_talk *talk = (const void *)(&late->record + 1);

	tpck_talk_note(late->record.detail, talk, talk + 1, late->record.bytes - sizeof *talk);
}

void tpck_network_live(uint64_t step)
{
	char open[NAMES] = "", unsaid[NAMES] = "";
	unsigned long long at = step;
	uint64_t one = 1;

	if (!tpck_network_forwards())
		return;
	for (struct spoken *of = spoken; of; of = of->next) {
		if (!of->whole && !of->failed)
			add_name(unsaid, &of->peer);
		else if (of->taken && !of->over && !of->failed && !of->lost)
			add_name(open, &of->peer);
	}
	if (again[0])
		tpck_log_info("what came by these connections is more than the record holds, and was asked for again on the way to step %llu: %s", at, again);
	if (mismatched[0])
		tpck_log_warn("what was sent on the way to step %llu is not what the first run had sent; it was not sent again, and the answers were those of then: %s", at, mismatched);
	if (unsaid[0])
		tpck_log_warn("threads were not as far as in the first run at step %llu: what they had sent before that step may be sent again: %s", at, unsaid);
	if (open[0])
		tpck_log_info("connections that were open at step %llu are closed, for the program to make them anew: %s", at, open);
	/* The log goes on at the cut, without what lay behind it. */
	for (struct spoken *of = spoken; of; of = of->next)
		for (const struct late *late = of->late; late && late->counts && of->taken; late = late->next)
			note_late(late);
	/* Connections end there for who runs forward next. */
	for (struct spoken *of = spoken; of; of = of->next)
		of->over = of->over || of->failed || of->lost || !of->taken;
	atomic_store(&tpck_network_forwarding_now, false);
	for (struct spoken *of = spoken; of; of = of->next)
		if (!of->over)
			tpck_talk_note(TPCK_TALK_ENDED, &(struct tpck_record_talk){.thread = of->thread, .ordinal = of->ordinal}, NULL, 0);
	tpck_talks_leave(TPCK_TALK_MUTE);
	/* What a connection that is kept does next may be at once: its other end is gone by then. */
	tpck_spin_lock(&lock);
	for (int i = 0; running && i < PLAYED; i++)
		if (played[i].fd >= 0 && played[i].of->whole && !played[i].closing) {
			played[i].closing = true;
			syscall(SYS_shutdown, played[i].fd, SHUT_WR);
		}
	tpck_spin_unlock(&lock);
	if (wake >= 0)
		(void)syscall(SYS_write, wake, &one, sizeof one);
}
