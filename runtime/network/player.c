/* SPDX-License-Identifier: Apache-2.0 */
/* The player: a thread that says on the library's ends of connections what the log has, behind what the program sends. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/network/played_private.h"

/* A connection of the program's that is played. The player's from when `fd` is there, but while `lock` is held. */
struct played {
	_Atomic int fd;        /* our end; -1: nobody's. The last that is written of a connection */
	int programs;          /* the program's end, as it was made */
	struct tpck_spoken *of;
	bool closing;          /* our end has said that it has nothing more to say */
	bool bound;            /* it is `of`, and no other: what was sent first says so */
	struct tpck_turn *turn;     /* what is awaited next */
	struct tpck_chunk *chunk;   /* what is to be said next; NULL: nothing */
	size_t said;           /* bytes of it */
	uint64_t got;          /* bytes of the turn that the program has sent */
	uint64_t at_ns;        /* when it sent some last */
	uint32_t first;        /* bytes below */
	unsigned char bytes[TPCK_TALK_FIRST];
};

enum { PLAYED = 128 };
/* How long a program that has sent less than in the first run may be silent before it is answered all the same. */
#define SILENT_NS 200000000ull
/* So long it waits for the connection that it began for. */
#define STAYS_NS 3000000000ull
static struct played *_Atomic played;
static _Atomic bool running; /* written with tpck_played_lock, as is what follows */
static uint64_t stays_ns;
static _Atomic int wake = -1;
_Atomic uint64_t tpck_player_moved_ns;

static bool is_handshake(const struct played *at)
{
	return at->first > 2 && at->bytes[0] == 0x16 && at->bytes[1] == 0x03;
}

/* Whether nobody has that one, or one of which it is not known yet, which gets the other one for it. The lock is held. */
static bool let_go(struct tpck_spoken *that, struct tpck_spoken *other)
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

/* Whether a connection may turn out to be another one of the log's: a child's threads keep their own, and a Unix socket has one path. */
static bool may_be(const struct tpck_spoken *other, const struct tpck_spoken *of)
{
	if (other->failed || other->lost || other->child != of->child || (other->child && other->thread != of->thread))
		return false;
	if (other->peer.family == AF_UNIX || of->peer.family == AF_UNIX)
		return tpck_peer_same(&other->peer, &of->peer);
	return other->peer.port == of->peer.port;
}

/* The program has sent what may be its first turn: connections of several threads to the same place come in another order, and which one
 * this is follows from what it says. */
static void bind_first(struct played *at)
{
	uint64_t digest = tpck_network_digest(at->bytes, at->first);

	at->bound = true;
	if (tpck_spoken_opens_with(at->of, at->got, digest))
		return;
	tpck_spin_lock(&tpck_played_lock);
	for (struct tpck_spoken *other = tpck_spoken_all; other; other = other->next)
		if (may_be(other, at->of) && tpck_spoken_opens_with(other, at->got, digest) && let_go(other, at->of)) {
			at->of = other;
			at->turn = other->turns;
			break;
		}
	tpck_spin_unlock(&tpck_played_lock);
}

/* A turn is over: what was sent is compared, and the answer follows. False: it would be a wrong one, and the program is live. */
static bool answer(struct played *at)
{
	struct tpck_turn *turn = at->turn;

	if (turn->digest && turn->digest != tpck_network_digest(at->bytes, at->first)) {
		if (is_handshake(at))
			tpck_played_differs("%s is spoken with by a TLS library that draws other random numbers than in the first run", &at->of->peer, true);
		else if (at->of->unsafe)
			tpck_played_sent_other(&at->of->peer);
		else
			tpck_played_differs("%s is asked for something else than in the first run", &at->of->peer, true);
		if (tpck_played_is_settled() && !at->of->unsafe)
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
		long done = tpck_sys_sendto(at->fd, (const char *)at->chunk->bytes + at->said, at->chunk->count - at->said, MSG_NOSIGNAL | MSG_DONTWAIT, NULL, 0);

		if (done < 0)
			return errno == EAGAIN || errno == EINTR;
		at->said += (size_t)done;
		atomic_store(&tpck_player_moved_ns, tpck_clock_monotonic_ns());
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
	tpck_spin_lock(&tpck_played_lock);
	tpck_sys_close(at->fd);
	at->fd = -1;
	tpck_spin_unlock(&tpck_played_lock);
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
			tpck_sys_shutdown(at->fd, SHUT_WR);
	}
	return goes;
}

static void take(struct played *at, const unsigned char *bytes, size_t count)
{
	atomic_store(&tpck_player_moved_ns, tpck_clock_monotonic_ns());
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
		long got = tpck_sys_recvfrom(at->fd, bytes, sizeof bytes, MSG_DONTWAIT, NULL, NULL);

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
		tpck_sys_shutdown(at->fd, SHUT_WR);
	}
	return true;
}

/* Whether there are any, or may be some soon; in `ends` what to wait for. */
static bool gather(const struct played *all, struct pollfd *ends)
{
	bool goes_on = tpck_network_forwards();

	tpck_spin_lock(&tpck_played_lock);
	goes_on = goes_on || tpck_clock_monotonic_ns() < stays_ns;
	for (int i = 0; i < PLAYED; i++) {
		ends[i] = (struct pollfd){all[i].fd, (short)(POLLIN | (all[i].chunk ? POLLOUT : 0)), 0};
		goes_on = goes_on || all[i].fd >= 0;
	}
	running = goes_on;
	tpck_spin_unlock(&tpck_played_lock);
	ends[PLAYED] = (struct pollfd){wake, POLLIN, 0};
	return goes_on;
}

static void *player_main(void *unused)
{
	struct pollfd *ends = calloc(PLAYED + 1, sizeof *ends);
	struct played *all = played;

	(void)unused;
	tpck_thread_own();
	pthread_setname_np(pthread_self(), "tpck-network");
	while (ends && gather(all, ends)) {
		struct timespec limit = {0, 50000000};
		uint64_t now, woken;

		/* A child has to look whether the root is live. */
		if (tpck_network_is_child())
			(void)tpck_network_child_forwards();
		if (tpck_sys_ppoll(ends, PLAYED + 1, &limit, NULL, 0) < 0 && errno != EINTR)
			break;
		if (ends[PLAYED].revents)
			(void)tpck_sys_read(wake, &woken, sizeof woken);
		now = tpck_clock_monotonic_ns();
		for (int i = 0; i < PLAYED; i++) {
			if (ends[i].fd >= 0 && ends[i].revents && all[i].fd == ends[i].fd)
				serve(&all[i], ends[i].revents);
			if (all[i].fd >= 0 && !tend(&all[i], now))
				close_played(&all[i]);
		}
	}
	free(ends);
	return NULL;
}

bool tpck_player_begin(void)
{
	bool runs;

	if (!played) {
		played = calloc(PLAYED, sizeof *played);
		for (int i = 0; played && i < PLAYED; i++)
			played[i].fd = -1;
		wake = tpck_sys_high(tpck_sys_eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	}
	if (!played || wake < 0)
		return false;
	tpck_spin_lock(&tpck_played_lock);
	runs = running;
	running = true;
	stays_ns = tpck_clock_monotonic_ns() + STAYS_NS;
	tpck_spin_unlock(&tpck_played_lock);
	if (runs || !tpck_thread_start(player_main))
		return true;
	tpck_spin_lock(&tpck_played_lock);
	running = false;
	tpck_spin_unlock(&tpck_played_lock);
	return false;
}

void tpck_player_forked(void)
{
	running = false;
	played = NULL;
	wake = -1;
}

bool tpck_player_plays(int end, int programs, struct tpck_spoken *of)
{
	uint64_t one = 1;
	bool plays = false;

	tpck_spin_lock(&tpck_played_lock);
	for (int i = 0; running && i < PLAYED && !plays; i++)
		if (played[i].fd < 0) {
			memset((char *)&played[i] + offsetof(struct played, programs), 0, sizeof *played - offsetof(struct played, programs));
			played[i].of = of;
			played[i].programs = programs;
			played[i].turn = of->turns;
			played[i].bound = !of->turns || !of->turns->sent;
			played[i].at_ns = tpck_clock_monotonic_ns();
			atomic_store(&played[i].fd, end);
			plays = true;
		}
	tpck_spin_unlock(&tpck_played_lock);
	if (plays)
		(void)tpck_sys_write(wake, &one, sizeof one);
	return plays;
}

void tpck_player_ends(void)
{
	uint64_t one = 1;

	if (!running)
		return;
	tpck_spin_lock(&tpck_played_lock);
	for (int i = 0; i < PLAYED; i++)
		if (played[i].fd >= 0 && played[i].of->whole && !played[i].closing) {
			played[i].closing = true;
			tpck_sys_shutdown(played[i].fd, SHUT_WR);
		}
	tpck_spin_unlock(&tpck_played_lock);
	(void)tpck_sys_write(wake, &one, sizeof one);
}

bool tpck_network_unanswered(unsigned *from, int *fd, char text[TPCK_NETWORK_TEXT])
{
	char peer[TPCK_PEER_TEXT];
	bool found = false;

	if (!running || !tpck_network_forwards() || tpck_played_is_settled())
		return false;
	tpck_spin_lock(&tpck_played_lock);
	for (; *from < PLAYED && !found; ++*from) {
		const struct played *at = &played[*from];

		found = at->fd >= 0 && !at->turn && !at->chunk && !at->of->over && !at->of->cut;
		if (found) {
			*fd = at->programs;
			snprintf(text, TPCK_NETWORK_TEXT, "a thread waits for an answer of %s that the record does not have, and all others for it",
				 tpck_peer_text(&at->of->peer, peer));
		}
	}
	tpck_spin_unlock(&tpck_played_lock);
	return found;
}
