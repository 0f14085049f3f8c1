/* SPDX-License-Identifier: Apache-2.0 */
/* Datagrams to who does not belong to the job: while running forward they are not sent. Else the log gets whom the program sends some, once between two boundaries. */
#include "config.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/network/network_private.h"
#include "runtime/network/speakers.h"

/* Addresses that datagrams were sent to of late, by a digest of the address and of when that was: no lock is taken. Several that have one place are looked at more often. */
enum { PLACES = 64, PEER = offsetof(struct tpck_record_peer, path) };
static _Atomic uint64_t noted[PLACES] TPCK_LARGE, others[PLACES] TPCK_LARGE, own[PLACES] TPCK_LARGE;
static _Atomic uint32_t boundaries;

/* Of threads that send just then what comes behind a boundary may count as sent before it, but not for as long as this. */
#define SOON_NS 1000000000ull

static bool is_type(int fd, int type)
{
	socklen_t bytes = sizeof type;
	int found = -1;

	if (fd == TPCK_NETWORK_LOG)
		return type == SOCK_DGRAM;
	return !tpck_sys_getsockopt(fd, SOL_SOCKET, SO_TYPE, &found, &bytes) && found == type;
}

static bool is_others(enum tpck_whose whose)
{
	return whose == TPCK_WHOSE_OTHER || whose == TPCK_WHOSE_AWAY || whose == TPCK_WHOSE_UNKNOWN;
}

void tpck_network_bounded(void)
{
	atomic_fetch_add(&boundaries, 1);
	tpck_network_children_bounded();
}

static void note(const struct tpck_record_peer *peer)
{
	uint64_t now = tpck_clock_monotonic_ns() / SOON_NS, digest = tpck_digest64(peer, sizeof *peer, now + atomic_load(&boundaries) + tpck_network_child_boundaries());
	size_t bytes = peer->family == AF_UNIX ? PEER + peer->port : PEER;
	struct tpck_record_talk record = {.sent = 0};
	bool done;

	if (!tpck_network_recording() || atomic_load(&noted[digest % PLACES]) == digest)
		return;
	done = tpck_talk_note(TPCK_TALK_DATAGRAM, &record, peer, bytes);
	if (tpck_network_is_started() && !tpck_network_is_child())
		done = tpck_network_child_note(TPCK_TALK_DATAGRAM, &record, peer, bytes) && done;
	if (done)
		atomic_store(&noted[digest % PLACES], digest);
}

bool tpck_datagram_peer(const struct tpck_record *record, struct tpck_record_peer *peer)
{
	size_t bytes = record->bytes - sizeof(struct tpck_record_talk);

	if (record->detail != TPCK_TALK_DATAGRAM || record->bytes < sizeof(struct tpck_record_talk) + PEER || bytes > sizeof *peer)
		return false;
	memset(peer, 0, sizeof *peer);
	memcpy(peer, (const char *)(record + 1) + sizeof(struct tpck_record_talk), bytes);
	return true;
}

bool tpck_network_converses(const struct tpck_record *record)
{
	return record->type == TPCK_RECORD_TALK && record->detail != TPCK_TALK_DATAGRAM;
}

void tpck_datagram_sent(const struct tpck_record_peer *peer)
{
	int saved = errno;

	note(peer);
	errno = saved;
}

void tpck_network_datagram(int fd, const struct sockaddr *address, socklen_t bytes, const void *caller)
{
	struct tpck_record_peer peer;
	int saved = errno;
	uint64_t digest;

	if ((!tpck_network_recording() && !tpck_network_unsure()) || !tpck_network_home() || !tpck_peer_of(address, bytes, &peer))
		return;
	digest = tpck_digest64(&peer, sizeof peer, tpck_clock_monotonic_ns() / SOON_NS);
	if (atomic_load(&own[digest % PLACES]) == digest)
		return;
	if (atomic_load(&others[digest % PLACES]) != digest) {
		bool other = is_type(fd, SOCK_DGRAM) && is_others(tpck_whose(&peer, false, caller));

		atomic_store(other ? &others[digest % PLACES] : &own[digest % PLACES], digest);
		if (other && tpck_network_unsure())
			tpck_started_asks();
		if (!other) {
			errno = saved;
			return;
		}
	}
	note(&peer);
	errno = saved;
}

bool tpck_network_mutes(int fd, const struct sockaddr *address, socklen_t bytes, const void *caller)
{
	struct tpck_record_peer peer;
	int saved = errno;
	enum tpck_whose whose;
	bool mutes;

	if ((!tpck_network_forwards() && !tpck_network_unsure()) || !tpck_network_home() || (tpck_network_is_child() && !tpck_network_child_forwards()))
		return false;
	whose = address && bytes && tpck_peer_of(address, bytes, &peer) && is_type(fd, SOCK_DGRAM) ? tpck_whose(&peer, false, caller) : TPCK_WHOSE_OWN;
	if (whose != TPCK_WHOSE_OWN && tpck_network_unsure())
		tpck_started_asks();
	if (!tpck_network_forwards())
		mutes = false;
	else if (address && bytes)
		mutes = whose == TPCK_WHOSE_OTHER || whose == TPCK_WHOSE_AWAY;
	else
		mutes = tpck_network_has(fd) && tpck_talk_kind_is(fd, TPCK_TALK_DATAGRAMS);
	errno = saved;
	return mutes;
}
