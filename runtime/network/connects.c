/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that the program makes. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/network/network_private.h"
#include "runtime/track/threads.h"

static bool is_type(int fd, int type)
{
	socklen_t bytes = sizeof type;
	int found = -1;

	return !tpck_sys_getsockopt(fd, SOL_SOCKET, SO_TYPE, &found, &bytes) && found == type;
}

/* The number of a connection that is counted, in each run the same: those to Unix sockets have numbers of their own, as it is known only behind connect()
 * whose they are. */
enum { LOCAL = 0x80000000u };

static void number(struct tpck_thread *self, bool local, bool counts, struct tpck_network_connect *state)
{
	uint32_t *of = NULL;

	if (tpck_network_is_child() && !tpck_network_is_started()) {
		state->thread = tpck_network_child_thread(&of, local);
	} else {
		state->thread = self->id;
		of = local ? &self->locals : &self->talks;
		if (tpck_network_is_started())
			tpck_network_child_speaks(self->id);
	}
	state->ordinal = !counts ? 0 : (*of)++ | (local ? LOCAL : 0);
}

enum tpck_network_way tpck_network_connects(struct tpck_thread *self, int fd, const struct sockaddr *address, socklen_t bytes, const void *caller,
					    struct tpck_network_connect *state)
{
	enum tpck_network_way way = TPCK_NETWORK_REAL;
	bool stream, forwards = tpck_network_forwards();
	struct tpck_record_peer peer;
	int saved = errno;
	enum tpck_whose whose;

	if (tpck_network_is_child())
		forwards = tpck_network_child_forwards();
	if ((!tpck_network_is_child() || tpck_network_is_started()) && (!self || self->ours || self->elsewhere || !tpck_network_records()))
		return way;
	if (!tpck_network_home() || bytes > sizeof state->address || !tpck_peer_of(address, bytes, &peer) || (!forwards && !tpck_network_recording()) ||
	    tpck_talk_known(fd))
		return way;
	stream = is_type(fd, SOCK_STREAM);
	whose = stream || is_type(fd, SOCK_DGRAM) ? tpck_whose(&peer, stream, caller) : TPCK_WHOSE_OWN;
	if (whose != TPCK_WHOSE_OWN && tpck_network_unsure()) {
		tpck_started_asks();
		forwards = tpck_network_forwards();
	}
	/* Those of unknown nodes are numbered in each run: it may be known later, or not yet. */
	number(self, peer.family == AF_UNIX, whose != TPCK_WHOSE_OWN && stream, state);
	if (whose == TPCK_WHOSE_OTHER || whose == TPCK_WHOSE_AWAY || whose == TPCK_WHOSE_LOCAL || (whose == TPCK_WHOSE_UNKNOWN && !forwards)) {
		memset(&state->address, 0, sizeof state->address);
		memcpy(&state->address, address, bytes);
		state->bytes = bytes;
		state->spoken = NULL;
		state->listener = -1;
		state->elsewhere = whose == TPCK_WHOSE_AWAY || whose == TPCK_WHOSE_UNKNOWN;
		if (stream)
			way = forwards ? tpck_played_connects(self, fd, &peer, state)
				       : tpck_network_child_trails() ? tpck_played_behind(&peer, state) : TPCK_NETWORK_NOTED;
		else
			(void)tpck_talk_begin(fd, TPCK_TALK_DATAGRAMS, state, &peer);
	}
	errno = saved;
	return way;
}

static void begin(const struct tpck_network_connect *state, int fd, int error, struct tpck_record_peer *peer)
{
	struct tpck_record_talk record = {.thread = state->thread, .ordinal = state->ordinal};

	peer->error = error;
	tpck_talk_note(tpck_network_is_child() ? TPCK_TALK_CHILD : TPCK_TALK_OPENED, &record, peer, sizeof *peer);
	if (tpck_network_is_started() && !tpck_network_is_child())
		(void)tpck_network_child_note(TPCK_TALK_CHILD, &record, peer, sizeof *peer);
	if (!error && !tpck_talk_begin(fd, TPCK_TALK_NOTED, state, peer))
		tpck_talk_lost(state, &record, peer);
}

void tpck_network_connected(struct tpck_network_connect *state, int fd, int error)
{
	bool begun = !error || error == EINPROGRESS || error == EINTR;
	struct tpck_record_peer peer;
	int saved = errno;

	if (!tpck_peer_of((const struct sockaddr *)&state->address, state->bytes, &peer))
		return;
	/* Nobody is there, or it is the job's own. */
	if (peer.family == AF_UNIX && !state->spoken && (!begun || tpck_whose_connected(fd) == TPCK_WHOSE_OWN)) {
		errno = saved;
		return;
	}
	if (peer.family == AF_UNIX && !state->spoken && tpck_network_forwards())
		tpck_played_unknown(tpck_network_is_child() ? NULL : tpck_thread_peek(), &peer);
	if (tpck_network_is_child() || tpck_network_is_started())
		tpck_network_child_newest(!state->spoken && tpck_network_recording(), state->ordinal, state->spoken);
	if (state->spoken)
		tpck_played_connected(state, fd, error);
	else if (tpck_network_is_child() && tpck_network_forwards())
		begun = begun && tpck_talk_begin(fd, TPCK_TALK_TOLD, state, &peer);
	else if (tpck_network_recording())
		begin(state, fd, begun ? 0 : error, &peer);
	errno = saved;
}
