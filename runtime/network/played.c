/* SPDX-License-Identifier: Apache-2.0 */
/* Running forward: connections are made to the player instead, or wait until the process is live. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/kernel.h"
#include "runtime/base/log.h"
#include "runtime/network/played_private.h"
#include "runtime/replay/forward.h"

enum { NAMES = TPCK_PEER_NAMES };
#define SETTLE_NS 2000000000ull
#define MOVES_NS 300000000ull
_Atomic bool tpck_network_forwarding_now;
tpck_spin tpck_played_lock;
static bool running; /* the player */
static tpck_spin child_begins; /* the player of a forked child */
static _Atomic uint32_t waiting, waiting_at_boundary;
static char difference[200];
static _Atomic bool differs_at_once, differs_later;
static _Atomic bool settled; /* it goes live: nothing differs any more */
static char mismatched[NAMES], again[NAMES], passed[NAMES];
static void (*diverges)(const char *what);

void tpck_played_sent_other(const struct tpck_record_peer *peer)
{
	if (tpck_network_is_child() || tpck_network_is_started())
		tpck_network_child_sent_other(peer);
	else
		tpck_peer_name_add(mismatched, peer);
}

void tpck_played_forked(void)
{
	running = false;
	atomic_store(&tpck_played_lock, 0);
	atomic_store(&child_begins, 0);
	atomic_store(&waiting, 0);
	atomic_store(&waiting_at_boundary, 0);
	tpck_player_forked();
}

bool tpck_played_is_settled(void)
{
	return atomic_load(&settled);
}

void tpck_played_differs(const char *what, const struct tpck_record_peer *peer, bool at_once)
{
	char text[TPCK_PEER_TEXT], all[sizeof difference];

	if (tpck_network_is_child() || tpck_network_is_started()) {
		snprintf(all, sizeof all, what, tpck_peer_text(peer, text));
		tpck_network_child_differs(all);
		return;
	}
	tpck_spin_lock(&tpck_played_lock);
	if (!difference[0])
		snprintf(difference, sizeof difference, what, tpck_peer_text(peer, text));
	tpck_spin_unlock(&tpck_played_lock);
	atomic_store(at_once ? &differs_at_once : &differs_later, true);
	/* Before there is a device nobody looks. */
	if (at_once && diverges && !atomic_load(&settled))
		diverges(difference);
}

const char *tpck_network_difference(bool *at_once)
{
	const char *child = tpck_network_forwards() && !atomic_load(&settled) ? tpck_network_children_differ() : NULL;

	*at_once = child || atomic_load(&differs_at_once);
	if (child)
		return child;
	return tpck_network_forwards() && !atomic_load(&settled) && (*at_once || (atomic_load(&differs_later) && atomic_load(&waiting))) ? difference : NULL;
}

void tpck_network_forward(void (*diverged)(const char *what))
{
	diverges = diverged;
	tpck_started_leaves();
	atomic_store(&tpck_network_forwarding_now, true);
	tpck_network_children_forward();
	if (!tpck_spoken_all)
		return;
	tpck_spoken_settle();
	running = tpck_player_begin();
}

/* ---- connecting ---------------------------------------------------------------------------------------- */

/* The same by a Unix socket, whose abstract name the kernel gives (unix(7)). */
static int listen_locally(struct tpck_network_connect *state)
{
	struct sockaddr_un found = {.sun_family = AF_UNIX};
	int fd = tpck_sys_high(tpck_sys_socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	socklen_t bytes = sizeof found;

	if (fd < 0 || tpck_sys_bind(fd, &found, sizeof found.sun_family) || tpck_sys_listen(fd, 1) || tpck_sys_getsockname(fd, &found, &bytes)) {
		if (fd >= 0)
			tpck_sys_close(fd);
		return -1;
	}
	memset(&state->instead, 0, sizeof state->instead);
	memcpy(&state->instead, &found, bytes);
	state->instead_bytes = bytes;
	return fd;
}

/* A socket of ours that listens where only this machine gets to, for the one connection. */
static int listen_for(int family, struct tpck_network_connect *state)
{
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, found;
	struct sockaddr_in6 six = {.sin6_family = AF_INET6};
	int fd = family == AF_UNIX ? -1 : tpck_sys_socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t bytes = sizeof found;

	if (family == AF_UNIX)
		return listen_locally(state);
	if (fd < 0)
		return -1;
	fd = tpck_sys_high(fd);
	if (tpck_sys_bind(fd, &four, sizeof four) || tpck_sys_listen(fd, 1) || tpck_sys_getsockname(fd, &found, &bytes)) {
		tpck_sys_close(fd);
		return -1;
	}
	memset(&state->instead, 0, sizeof state->instead);
	if (family == AF_INET) {
		memcpy(&state->instead, &found, sizeof found);
		state->instead_bytes = sizeof found;
	} else {
		/* The same address as one of IPv6. */
		six.sin6_port = found.sin_port;
		six.sin6_addr.s6_addr[10] = six.sin6_addr.s6_addr[11] = 0xff;
		memcpy(&six.sin6_addr.s6_addr[12], &four.sin_addr, sizeof four.sin_addr);
		memcpy(&state->instead, &six, sizeof six);
		state->instead_bytes = sizeof six;
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
		tpck_sys_clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
	atomic_fetch_sub(&waiting_at_boundary, at_boundary);
	atomic_fetch_sub(&waiting, 1);
}

/* In a forked child, or a program that was started: the player begins with the first connection, and once more where it had ended. */
static bool child_plays(void)
{
	bool begun;

	tpck_spin_lock(&child_begins);
	begun = running = tpck_player_begin();
	tpck_spin_unlock(&child_begins);
	return begun;
}

/* In such a process. What cannot be answered ends the root's attempt; behind: the root is live, and it is made for real, with a line. */
static enum tpck_network_way child_connects(const struct tpck_record_peer *peer, struct tpck_network_connect *state, bool behind)
{
	uint32_t thread = tpck_network_child_known_as(state->thread);
	struct tpck_spoken *of;
	char text[TPCK_PEER_TEXT];

	tpck_spin_lock(&tpck_played_lock);
	of = tpck_spoken_find(thread, state->ordinal, peer, true);
	if (of && behind && (!of->child || of->thread != thread))
		of = NULL;
	if (of)
		of->taken = true;
	tpck_spin_unlock(&tpck_played_lock);
	if (of && of->own)
		return TPCK_NETWORK_REAL;
	if (of && of->failed) {
		state->error = of->peer.error ? of->peer.error : ECONNREFUSED;
		return TPCK_NETWORK_FAILS;
	}
	if (of && behind && tpck_network_child_is_late()) {
		tpck_log_warn("a process that is not as far as in the first run a minute after the program was live tells %s again what that had told it",
			      tpck_peer_text(peer, text));
		return TPCK_NETWORK_NOTED;
	}
	if (of && behind && of->lost && of->unsafe)
		tpck_log_warn("what %s answered to the first run is not in the record, and is asked again by a process that was behind", tpck_peer_text(peer, text));
	if (of ? of->lost || (of->safe && !of->unsafe) : behind || tpck_spoken_all_safe(peer, true))
		return TPCK_NETWORK_NOTED;
	if (of && child_plays() && (state->listener = listen_for(((const struct sockaddr *)&state->address)->sa_family, state)) >= 0) {
		state->spoken = of;
		return TPCK_NETWORK_INSTEAD;
	}
	if (of && !behind)
		tpck_played_differs("nothing can stand in for %s", peer, true);
	if (!behind && (of || peer->family != AF_UNIX))
		tpck_network_child_waits(peer);
	if (of && !behind && tpck_network_child_forwards()) {
		/* The root is gone. */
		state->error = ECONNREFUSED;
		return TPCK_NETWORK_FAILS;
	}
	if (of)
		tpck_log_warn("nothing can stand in for %s, which a process that was behind tells again what the first run had told it", tpck_peer_text(peer, text));
	return TPCK_NETWORK_NOTED;
}

enum tpck_network_way tpck_played_behind(const struct tpck_record_peer *peer, struct tpck_network_connect *state)
{
	return child_connects(peer, state, true);
}

void tpck_played_unknown(struct tpck_thread *self, const struct tpck_record_peer *peer)
{
	enum tpck_forward stands = self ? tpck_forward_stands(self) : TPCK_FORWARD_FOREIGN;

	if (stands == TPCK_FORWARD_FOREIGN && tpck_spoken_all_safe(peer, tpck_network_is_child()))
		return;
	if (tpck_network_is_child()) {
		tpck_network_child_waits(peer);
		return;
	}
	if (stands != TPCK_FORWARD_END)
		tpck_played_differs("a connection to %s is made that the first run did not make there", peer, stands == TPCK_FORWARD_SAME);
	wait_for_live(stands == TPCK_FORWARD_END);
}

enum tpck_network_way tpck_played_connects(struct tpck_thread *self, int fd, const struct tpck_record_peer *peer, struct tpck_network_connect *state)
{
	enum tpck_forward stands = self ? tpck_forward_stands(self) : TPCK_FORWARD_FOREIGN;
	struct tpck_spoken *of;
	bool plays = false;

	(void)fd;
	if (tpck_network_is_child())
		return child_connects(peer, state, false);
	tpck_spin_lock(&tpck_played_lock);
	of = tpck_spoken_find(self->id, state->ordinal, peer, stands != TPCK_FORWARD_SAME);
	if (of)
		of->taken = true;
	/* The job's other nodes are real, too, but not at such a socket. */
	if (of && of->own && peer->family == AF_UNIX)
		tpck_peer_name_add(passed, peer);
	tpck_spin_unlock(&tpck_played_lock);
	if (of ? of->own : peer->family == AF_UNIX)
		return of ? TPCK_NETWORK_REAL : TPCK_NETWORK_NOTED;
	/* The first run took it for the job's own, or it would be in the record: its agent knew of a node that this one's does not know yet. */
	if (!of && state->elsewhere && stands == TPCK_FORWARD_SAME)
		return TPCK_NETWORK_REAL;
	if (of && of->failed) {
		of->whole = true;
		state->error = of->peer.error ? of->peer.error : ECONNREFUSED;
		return TPCK_NETWORK_FAILS;
	}
	/* Threads that share work, as a pool's that fetches files, ask for other things than they did, by another number of connections. */
	if (of ? of->safe && !of->unsafe && (of->lost || stands == TPCK_FORWARD_FOREIGN) : stands == TPCK_FORWARD_FOREIGN && tpck_spoken_all_safe(peer, false)) {
		tpck_spin_lock(&tpck_played_lock);
		if (of && of->lost)
			tpck_peer_name_add(again, peer);
		if (of)
			of->whole = true;
		tpck_spin_unlock(&tpck_played_lock);
		return TPCK_NETWORK_NOTED;
	}
	if (of && of->lost)
		tpck_played_differs("what %s answered to the first run is not in the record, and it may not be asked again", peer, true);
	else if (of)
		plays = running && (state->listener = listen_for(((const struct sockaddr *)&state->address)->sa_family, state)) >= 0;
	else if (stands != TPCK_FORWARD_END)
		tpck_played_differs("a connection to %s is made that the first run did not make there", peer, stands == TPCK_FORWARD_SAME);
	if (plays) {
		state->spoken = of;
		return TPCK_NETWORK_INSTEAD;
	}
	if (of && !of->lost)
		tpck_played_differs("nothing can stand in for %s", peer, true);
	wait_for_live(stands == TPCK_FORWARD_END);
	/* The program is live: what comes is noted as ever. */
	return TPCK_NETWORK_NOTED;
}

void tpck_played_connected(struct tpck_network_connect *state, int fd, int error)
{
	struct tpck_spoken *of = state->spoken;
	struct pollfd comes = {state->listener, POLLIN, 0};
	struct timespec limit = {2, 0};
	int end = -1, on = 1;

	if ((!error || error == EINPROGRESS || error == EINTR) && tpck_sys_ppoll(&comes, 1, &limit, NULL, 0) > 0)
		end = tpck_sys_accept4(state->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	tpck_sys_close(state->listener);
	if (end >= 0) {
		end = tpck_sys_high(end);
		(void)tpck_sys_fcntl(end, F_SETFL, O_NONBLOCK);
		(void)tpck_sys_setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
		(void)tpck_talk_begin(fd, TPCK_TALK_PLAYED, state, &of->peer);
		if (tpck_player_plays(end, fd, of) || (of->child && child_plays() && tpck_player_plays(end, fd, of)))
			return;
		tpck_sys_close(end);
	}
	tpck_played_differs("nothing can stand in for %s", &of->peer, true);
}

/* ---- going live ----------------------------------------------------------------------------------------- */

enum tpck_network_stop tpck_network_stops(void)
{
	if (!tpck_network_forwards() || (!atomic_load(&waiting) && !tpck_network_children_wait()))
		return TPCK_NETWORK_GO;
	return atomic_load(&waiting_at_boundary) ? TPCK_NETWORK_STOP : TPCK_NETWORK_MAY_STOP;
}

void tpck_network_settle(void)
{
	struct timespec pause = {0, 2000000};
	uint64_t begun = tpck_clock_monotonic_ns(), now = begun;

	if (!tpck_network_forwards())
		return;
	atomic_store(&tpck_player_moved_ns, begun);
	while (!tpck_spoken_all_said() && !atomic_load(&differs_at_once) && now - begun < SETTLE_NS && (now < atomic_load(&tpck_player_moved_ns) + MOVES_NS)) {
		tpck_sys_clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
		now = tpck_clock_monotonic_ns();
	}
	atomic_store(&settled, !atomic_load(&differs_at_once));
}

void tpck_network_live(uint64_t step)
{
	char open[NAMES] = "", unsaid[NAMES] = "";
	unsigned long long at = step;

	if (!tpck_network_forwards())
		return;
	if (tpck_network_children_sent_other())
		tpck_peer_name_add(mismatched, tpck_network_children_sent_other());
	for (struct tpck_spoken *of = tpck_spoken_all; of; of = of->next) {
		if (of->child)
			continue;
		if (!of->whole && !of->failed)
			tpck_peer_name_add(unsaid, &of->peer);
		else if (of->taken && !of->over && !of->failed && !of->lost)
			tpck_peer_name_add(open, &of->peer);
	}
	if (again[0])
		tpck_log_info("what came by these connections is more than the record holds, and was asked for again on the way to step %llu: %s", at, again);
	if (passed[0])
		tpck_log_warn("what goes there moves past what the kernel counts (descriptors are passed, or it is moved by sendfile or a stream of libc's), and "
			      "was sent again on the way to step %llu: %s", at, passed);
	if (mismatched[0])
		tpck_log_warn("what was sent on the way to step %llu is not what the first run had sent; it was not sent again, and the answers were those of then: %s", at, mismatched);
	if (unsaid[0])
		tpck_log_warn("threads were not as far as in the first run at step %llu: what they had sent before that step may be sent again: %s", at, unsaid);
	if (open[0])
		tpck_log_info("connections that were open at step %llu are closed, for the program to make them anew: %s", at, open);
	tpck_again_say(step);
	tpck_network_children_live(step);
	tpck_spoken_note_late();
	/* Connections end there for who runs forward next. */
	for (struct tpck_spoken *of = tpck_spoken_all; of; of = of->next)
		of->over = of->over || of->failed || of->lost || (!of->taken && !of->child);
	atomic_store(&tpck_network_forwarding_now, false);
	for (struct tpck_spoken *of = tpck_spoken_all; of; of = of->next)
		if (!of->over)
			tpck_talk_note(of->cut ? TPCK_TALK_CUT : TPCK_TALK_ENDED, &(struct tpck_record_talk){.thread = of->thread, .ordinal = of->ordinal}, NULL, 0);
	/* What a connection that is kept does next may be at once: its other end is gone by then. */
	tpck_player_ends();
}
