/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that are followed, and what the log gets of them. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/digest.h"
#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/network/http.h"
#include "runtime/network/network_private.h"

/* More that comes by one connection is not kept, nor of all more than a part of what the log may hold, or than this before there is a device, while
 * the log is in private memory. */
enum { TALKS = 256 };
#define ONE_MOST (4ull << 20)
#define EARLY_MOST (8ull << 20)
/* Of a forked child's, of which what changes nothing is asked for once more anyway: it is kept in case that something else follows. */
#define CHILDS_MOST (1ull << 20)
#define CHILDS_SAFE_MOST (4ull << 10)
#define CHILDS_ENCRYPTED_MOST (32ull << 10)

struct talk {
	uint64_t socket;      /* its inode; 0: nobody's */
	enum tpck_talk_kind kind;
	uint32_t copies;      /* descriptors */
	uint32_t thread, ordinal;
	struct tpck_record_peer peer;
	struct sockaddr_storage address; /* that the program has connected to */
	socklen_t address_bytes;
	bool lost, ended, safe, unsafe, encrypted;
	bool elsewhere;       /* on another machine, of which it is still to be known whether it is a node of the job */
	bool asked;           /* of HTTP/1, and of what is encrypted: the newest request has not all of its answer yet */
	bool framed;          /* that is HTTP/1: */
	struct tpck_http http;
	bool gap;             /* something is not in the log, which does not say so yet */
	struct {
		bool lost, gap;
		uint64_t received;
	} root;               /* the same of what is told to the root by a program that it has started */
	uint64_t received;    /* bytes in the log */
	uint64_t sent, noted; /* bytes sent, and how many of them the log knows of */
	uint64_t seen;        /* bytes sent that went through hooks */
	uint32_t first;       /* bytes below: what was sent since the last record */
	unsigned char *bytes;
};

_Atomic uint64_t tpck_network_bits[TPCK_NETWORK_DESCRIPTORS / 64] TPCK_LARGE;
_Atomic uint32_t tpck_network_any;
static struct talk talks[TALKS] TPCK_LARGE;
static unsigned talks_end; /* behind the last one that is somebody's */
static tpck_spin lock;
static struct tpck_log *journal;
static int32_t home;
static _Atomic uint64_t all_received;
static uint64_t all_most;
/* The first connection that stops a resume, as it may not be asked again; a line says so once no lock is held. */
static struct tpck_record_peer stopping;
static _Atomic int stops; /* 1: to be said, 2: said */

TPCK_AT_START void tpck_network_record(struct tpck_log *log, uint64_t most, const char *real, const char *shm, const char *job)
{
	journal = log;
	all_most = most;
	home = tpck_sys_getpid();
	tpck_whose_real(real);
	if (shm)
		tpck_whose_nodes(shm, job);
}

bool tpck_network_recording(void)
{
	return journal && !tpck_log_failed(journal) && !tpck_network_forwards();
}

int tpck_network_process(void)
{
	return home;
}

/* A child that shares this memory (vfork) closes descriptors of its own. */
bool tpck_network_home(void)
{
	return home == tpck_sys_getpid();
}

bool tpck_network_has_log(void)
{
	return journal != NULL;
}

bool tpck_network_records(void)
{
	return journal && tpck_network_home();
}

static void leave_parents(void);

/* What the parent had is none of this process's, and no other thread has a lock. */
void tpck_network_forked(uint32_t child)
{
	atomic_store(&lock, 0);
	if (atomic_load(&tpck_network_any))
		leave_parents();
	tpck_whose_forked();
	tpck_played_forked();
	home = tpck_sys_getpid();
	if (!tpck_network_children_forked(child, journal && !tpck_log_failed(journal)))
		journal = NULL;
}

uint64_t tpck_network_digest(const void *bytes, size_t count)
{
	uint64_t digest = tpck_digest64(bytes, count, count);

	return digest ? digest : 1;
}

/* ---- what is followed ---------------------------------------------------------------------------- */

static uint64_t socket_of(int fd)
{
	struct stat found;

	return tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH) || !S_ISSOCK(found.st_mode) ? 0 : (uint64_t)found.st_ino;
}

static void bit_set(int fd, bool on)
{
	uint64_t bit = 1ull << (fd & 63);

	if ((unsigned)fd >= TPCK_NETWORK_DESCRIPTORS)
		return;
	if (on)
		atomic_fetch_or(&tpck_network_bits[fd / 64], bit);
	else
		atomic_fetch_and(&tpck_network_bits[fd / 64], ~bit);
}

/* The lock is held. */
static struct talk *talk_of(int fd)
{
	uint64_t socket = tpck_network_has(fd) ? socket_of(fd) : 0;

	for (unsigned i = 0; socket && i < talks_end; i++)
		if (talks[i].socket == socket)
			return &talks[i];
	return NULL;
}

static void talk_end(struct talk *talk)
{
	free(talk->bytes);
	memset(talk, 0, sizeof *talk);
	while (talks_end && !talks[talks_end - 1].socket)
		talks_end--;
}

/* In a forked child: but for sockets of datagrams, by which any process may send some. */
static void leave_parents(void)
{
	for (unsigned i = 0; i < talks_end; i++)
		if (talks[i].kind != TPCK_TALK_DATAGRAMS)
			memset(&talks[i], 0, sizeof talks[i]);
	while (talks_end && !talks[talks_end - 1].socket)
		talks_end--;
	for (int fd = 0; fd < TPCK_NETWORK_DESCRIPTORS; fd++)
		if (!(fd & 63) && !atomic_load(&tpck_network_bits[fd / 64]))
			fd += 63;
		else if (tpck_network_has(fd) && !talk_of(fd))
			bit_set(fd, false);
	atomic_store(&tpck_network_any, talks_end > 0);
}

bool tpck_talk_begin(int fd, enum tpck_talk_kind kind, const struct tpck_network_connect *state, const struct tpck_record_peer *peer)
{
	uint64_t socket = (unsigned)fd < TPCK_NETWORK_DESCRIPTORS ? socket_of(fd) : 0;
	struct talk *talk = NULL;

	tpck_spin_lock(&lock);
	for (unsigned i = 0; socket && i < TALKS && !talk; i++)
		if (!talks[i].socket)
			talk = &talks[i];
	if (talk) {
		*talk = (struct talk){.socket = socket, .kind = kind, .copies = 1, .thread = state->thread, .ordinal = state->ordinal, .peer = *peer,
				      .elsewhere = state->elsewhere, .address = state->address, .address_bytes = state->bytes};
		if (kind == TPCK_TALK_NOTED)
			talk->bytes = malloc(TPCK_TALK_FIRST);
		if (kind == TPCK_TALK_NOTED && !talk->bytes)
			talk->socket = 0;
	}
	if (talk && talk->socket) {
		if (talks_end <= (unsigned)(talk - talks))
			talks_end = (unsigned)(talk - talks) + 1;
		bit_set(fd, true);
		atomic_store(&tpck_network_any, 1);
	}
	tpck_spin_unlock(&lock);
	return talk && talk->socket;
}

bool tpck_talk_known(int fd)
{
	bool known;

	tpck_spin_lock(&lock);
	known = talk_of(fd) != NULL;
	tpck_spin_unlock(&lock);
	return known;
}

bool tpck_talk_kind_is(int fd, enum tpck_talk_kind kind)
{
	struct talk *talk;
	bool is;

	tpck_spin_lock(&lock);
	talk = talk_of(fd);
	is = talk && talk->kind == kind;
	tpck_spin_unlock(&lock);
	return is;
}

bool tpck_network_peer(int fd, struct sockaddr *address, socklen_t *bytes)
{
	struct talk *talk;
	bool played;

	if (!tpck_network_has(fd))
		return false;
	tpck_spin_lock(&lock);
	talk = talk_of(fd);
	played = talk && talk->kind == TPCK_TALK_PLAYED;
	if (played) {
		memcpy(address, &talk->address, *bytes < talk->address_bytes ? *bytes : talk->address_bytes);
		*bytes = talk->address_bytes;
	}
	tpck_spin_unlock(&lock);
	return played;
}

/* ---- the log --------------------------------------------------------------------------------------- */

bool tpck_talk_note(uint16_t detail, const struct tpck_record_talk *record, const void *bytes, size_t count)
{
	char *payload;

	if (tpck_network_is_child())
		return tpck_network_child_note(detail, record, bytes, count);
	payload = tpck_log_append(journal, TPCK_RECORD_TALK, detail, 0, 0, NULL, sizeof *record + count);
	if (!payload)
		return false;
	memcpy(payload, record, sizeof *record);
	if (count)
		memcpy(payload + sizeof *record, bytes, count);
	return true;
}

/* What the kernel counts: bytes that the program has written, and that have come; false where it does not say. */
static bool counted(int fd, uint64_t *written, uint64_t *come)
{
	/* Behind what glibc's struct tcp_info has: tcpi_bytes_sent and tcpi_bytes_retrans of the kernel's (linux/tcp.h, since 4.19). */
	enum { UNSENT = 144, COME = 128, SENT = 200, AGAIN = 208 };
	unsigned char told[256];
	socklen_t bytes = sizeof told;
	uint64_t sent, again;
	uint32_t unsent;

	if (tpck_sys_getsockopt(fd, IPPROTO_TCP, TCP_INFO, told, &bytes) || bytes < AGAIN + sizeof again)
		return false;
	memcpy(&sent, told + SENT, sizeof sent);
	memcpy(&again, told + AGAIN, sizeof again);
	memcpy(&unsent, told + UNSENT, sizeof unsent);
	memcpy(come, told + COME, sizeof *come);
	*written = sent - again + unsent;
	return true;
}

/* How much of it the log of another process gets, from a forked child or a program that it has started. */
static uint64_t most_of_root(const struct talk *talk)
{
	return !talk->safe || talk->unsafe ? CHILDS_MOST : talk->encrypted ? CHILDS_ENCRYPTED_MOST : CHILDS_SAFE_MOST;
}

static void tell_root(struct talk *talk, uint16_t detail, const struct tpck_record_talk *record, const void *bytes, size_t count)
{
	talk->root.received += detail == TPCK_TALK_RECEIVED ? count : 0;
	if (!talk->root.lost && talk->root.received > most_of_root(talk))
		talk->root.lost = talk->root.gap = true;
	if (talk->root.gap) {
		talk->root.lost = true;
		talk->root.gap = !tpck_network_child_note(TPCK_TALK_LOST, record, NULL, 0);
	}
	if (!talk->root.gap && !(talk->root.lost && detail == TPCK_TALK_RECEIVED))
		talk->root.gap = !tpck_network_child_note(detail, record, bytes, count);
}

/* The lock is held for what follows. */
static void note(struct talk *talk, uint16_t detail, const void *bytes, size_t count)
{
	struct tpck_record_talk record = {talk->thread, talk->ordinal, talk->sent - talk->noted, 0};

	/* Of what was written past the hooks the bytes are not known. */
	if (record.sent && talk->seen == talk->sent)
		record.digest = tpck_network_digest(talk->bytes, talk->first);
	if (talk->gap) {
		talk->lost = true;
		talk->gap = !tpck_talk_note(TPCK_TALK_LOST, &record, NULL, 0);
	}
	if (!talk->gap)
		talk->gap = !tpck_talk_note(detail, &record, bytes, count);
	if (tpck_network_is_started() && !tpck_network_is_child())
		tell_root(talk, detail, &record, bytes, count);
	talk->noted = talk->sent;
	talk->first = 0;
}

static void stopped_by(const struct tpck_record_peer *peer)
{
	int none = 0;

	if (atomic_load(&stops) == none)
		stopping = *peer;
	(void)atomic_compare_exchange_strong(&stops, &none, 1);
}

/* Whether it does not belong to the job, as far as is known by now. */
static bool is_others(bool elsewhere, const struct tpck_record_peer *peer)
{
	return !elsewhere || tpck_whose_elsewhere(peer) == TPCK_WHOSE_AWAY;
}

/* What is said to the job's own nodes is not kept. True: this is one. */
static bool is_nodes(struct talk *talk)
{
	if (!talk->elsewhere || tpck_whose_elsewhere(&talk->peer) != TPCK_WHOSE_NODE)
		return false;
	note(talk, TPCK_TALK_OWN, NULL, 0);
	talk_end(talk);
	return true;
}

static void lose(struct talk *talk)
{
	if (!talk->lost) {
		note(talk, TPCK_TALK_LOST, NULL, 0);
		/* What was only GET is asked for again, and a forked child's with a line. */
		if ((!talk->safe || talk->unsafe) && !tpck_network_is_child() && is_others(talk->elsewhere, &talk->peer))
			stopped_by(&talk->peer);
	}
	talk->lost = true;
}

static void tell_stop(void)
{
	char peer[TPCK_PEER_TEXT];
	int untold = 1;

	if (atomic_load_explicit(&stops, memory_order_relaxed) == untold && atomic_compare_exchange_strong(&stops, &untold, 2))
		tpck_log_warn("what %s answers is not all in the record, and may not be asked for again: from here on snapshots cannot be resumed; where it may, "
			      "TRANSPCKPT_NETWORK_REAL can name it", tpck_peer_text(&stopping, peer));
}

/* How much has been sent, and whether something has come that went past the hooks. One byte more is the other end's end. */
static void look(struct talk *talk, int fd, bool all)
{
	uint64_t written, come;
	int waiting = 0;

	if (!counted(fd, &written, &come))
		return;
	if (written > talk->sent)
		talk->sent = written;
	/* What comes between the two questions waits, too. */
	if (all && !talk->lost && !tpck_sys_ioctl(fd, SIOCINQ, &waiting) && come > talk->received + (uint64_t)waiting + 1)
		lose(talk);
}

/* A request begins with these bytes of the program's. */
static void asks(struct talk *talk, const void *bytes, size_t count)
{
	note(talk, TPCK_TALK_ASKED, NULL, 0);
	talk->asked = true;
	talk->framed = tpck_http_is_request(bytes, count);
	if (talk->framed)
		tpck_http_begin(&talk->http, bytes, count);
}

/* These bytes came behind one. Of what has no frame any byte is an answer. */
static void hears(struct talk *talk, const void *bytes, size_t count)
{
	if (!talk->asked || talk->lost || (talk->framed && tpck_http_feed(&talk->http, bytes, count) == TPCK_HTTP_MORE))
		return;
	note(talk, TPCK_TALK_ANSWERED, NULL, 0);
	talk->asked = false;
}

static void note_parts(struct talk *talk, const struct iovec *parts, size_t count, size_t got)
{
	for (size_t i = 0; i < count && got; i++) {
		size_t bytes = parts[i].iov_len < got ? parts[i].iov_len : got;

		if (bytes)
			note(talk, TPCK_TALK_RECEIVED, parts[i].iov_base, bytes);
		if (bytes && !talk->encrypted)
			hears(talk, parts[i].iov_base, bytes);
		got -= bytes;
	}
}

/* How much of it the log gets. */
static uint64_t most_of(const struct talk *talk)
{
	return tpck_network_is_child() ? most_of_root(talk) : ONE_MOST;
}

void tpck_network_received_slow(int fd, const struct iovec *parts, size_t count, ssize_t got)
{
	int error = errno;
	struct talk *talk;

	if (!tpck_network_recording() || (got < 0 && error != ECONNRESET && error != ETIMEDOUT && error != EPIPE)) {
		errno = error;
		return;
	}
	tpck_spin_lock(&lock);
	talk = talk_of(fd);
	if (talk && talk->kind == TPCK_TALK_NOTED && !talk->lost && !talk->ended && !is_nodes(talk)) {
		uint64_t all = got > 0 ? atomic_fetch_add(&all_received, (uint64_t)got) + (uint64_t)got : 0;

		if (got > 0)
			talk->received += (uint64_t)got;
		look(talk, fd, true);
		if (got <= 0) {
			talk->ended = true;
			note(talk, TPCK_TALK_ENDED, NULL, 0);
		} else if (talk->received > most_of(talk) || all > (tpck_log_attached(journal) ? all_most : EARLY_MOST)) {
			lose(talk);
		} else if (!talk->lost) {
			note_parts(talk, parts, count, (size_t)got);
		}
	}
	tpck_spin_unlock(&lock);
	tell_stop();
	errno = error;
}

bool tpck_talk_is_safe(const void *bytes, size_t count)
{
	static const char methods[][12] = {"GET ", "HEAD ", "OPTIONS "};

	for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
		if (count >= strlen(methods[i]) && memcmp(bytes, methods[i], strlen(methods[i])) == 0)
			return true;
	return false;
}

static void judge(struct talk *talk, const unsigned char *bytes, size_t count)
{
	bool safe = tpck_talk_is_safe(bytes, count);
	bool *was = safe ? &talk->safe : &talk->unsafe;

	if (!*was)
		note(talk, safe ? TPCK_TALK_SAFE : TPCK_TALK_UNSAFE, NULL, 0);
	*was = true;
}

void tpck_network_sent_slow(int fd, const struct iovec *parts, size_t count, ssize_t done)
{
	int error = errno;
	size_t left = (size_t)done;
	struct talk *talk;

	if (!tpck_network_recording() && !tpck_network_is_child()) {
		errno = error;
		return;
	}
	if (tpck_network_is_started())
		tpck_started_looks();
	tpck_spin_lock(&lock);
	talk = talk_of(fd);
	if (talk && talk->kind == TPCK_TALK_DATAGRAMS) {
		struct tpck_record_peer peer = talk->peer;

		tpck_spin_unlock(&lock);
		tpck_datagram_sent(&peer);
		errno = error;
		return;
	}
	if (talk && talk->kind == TPCK_TALK_TOLD && count)
		tpck_network_child_sends(&talk->peer, parts[0].iov_base, parts[0].iov_len < left ? parts[0].iov_len : left, false);
	for (size_t i = 0; talk && talk->kind == TPCK_TALK_NOTED && i < count && left; i++) {
		size_t bytes = parts[i].iov_len < left ? parts[i].iov_len : left;
		size_t fits = TPCK_TALK_FIRST - talk->first < bytes ? TPCK_TALK_FIRST - talk->first : bytes;

		if (!bytes)
			continue;
		/* A record of TLS: a handshake's type, and the version's first byte (RFC 8446, 5.1). */
		if (!talk->seen)
			talk->encrypted = bytes > 1 && memcmp(parts[i].iov_base, "\x16\x03", 2) == 0;
		if (!talk->encrypted && !talk->asked && tpck_http_is_request(parts[i].iov_base, bytes))
			asks(talk, parts[i].iov_base, bytes);
		/* What comes before the answer to it belongs to the same request. */
		if (!talk->first && !talk->encrypted)
			judge(talk, parts[i].iov_base, bytes);
		memcpy(talk->bytes + talk->first, parts[i].iov_base, fits);
		talk->first += (uint32_t)fits;
		talk->seen += bytes;
		talk->sent = talk->seen > talk->sent ? talk->seen : talk->sent;
		left -= bytes;
	}
	tpck_spin_unlock(&lock);
	errno = error;
}

void tpck_network_says(int fd, const void *bytes, size_t count)
{
	int error = errno;
	struct talk *talk;

	if ((!tpck_network_recording() && !tpck_network_is_child()) || !count) {
		errno = error;
		return;
	}
	tpck_spin_lock(&lock);
	talk = talk_of(fd);
	if (talk && talk->kind == TPCK_TALK_TOLD)
		tpck_network_child_sends(&talk->peer, bytes, count, true);
	if (talk && talk->kind == TPCK_TALK_NOTED && talk->encrypted) {
		if (!talk->asked)
			asks(talk, bytes, count);
		judge(talk, bytes, count);
	}
	tpck_spin_unlock(&lock);
	errno = error;
}

void tpck_network_hears(int fd, const void *bytes, size_t count)
{
	int error = errno;
	struct talk *talk;

	if (!tpck_network_recording())
		return;
	tpck_spin_lock(&lock);
	talk = talk_of(fd);
	if (talk && talk->kind == TPCK_TALK_NOTED && talk->encrypted)
		hears(talk, bytes, count);
	tpck_spin_unlock(&lock);
	errno = error;
}

/* Whether a connection that was begun never came to be. */
static bool has_failed(const struct talk *talk, int fd)
{
	struct tcp_info info;
	socklen_t bytes = sizeof info;

	return !talk->received && !talk->sent && !tpck_sys_getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) &&
	       (info.tcpi_state == TCP_CLOSE || info.tcpi_state == TCP_SYN_SENT);
}

void tpck_network_closes_slow(int fd)
{
	int error = errno;
	struct talk *talk;

	if (!tpck_network_home())
		return;
	tpck_spin_lock(&lock);
	talk = talk_of(fd);
	bit_set(fd, false);
	if (talk && !--talk->copies) {
		if (talk->kind == TPCK_TALK_NOTED && tpck_network_recording()) {
			look(talk, fd, true);
			note(talk, has_failed(talk, fd) ? TPCK_TALK_FAILED : TPCK_TALK_CLOSED, NULL, 0);
		}
		talk_end(talk);
	}
	tpck_spin_unlock(&lock);
	tell_stop();
	errno = error;
}

void tpck_network_closes_range(unsigned first, unsigned last)
{
	for (unsigned fd = first; fd <= last && fd < TPCK_NETWORK_DESCRIPTORS; fd++)
		tpck_network_closes((int)fd);
}

void tpck_network_copied_slow(int from, int to)
{
	int error = errno;
	struct talk *talk;

	if (!tpck_network_home())
		return;
	tpck_spin_lock(&lock);
	bit_set(to, tpck_network_has(from));
	talk = talk_of(to);
	if (talk)
		talk->copies++;
	tpck_spin_unlock(&lock);
	errno = error;
}

void tpck_network_boundary(void)
{
	int error = errno;

	if (tpck_network_recording())
		tpck_network_children_boundary(journal);
	if (!atomic_load(&tpck_network_any) || !tpck_network_recording())
		return;
	for (int word = 0; word < TPCK_NETWORK_DESCRIPTORS / 64; word++)
		for (int bit = 0; atomic_load(&tpck_network_bits[word]) && bit < 64; bit++) {
			struct talk *talk;

			if (!tpck_network_has(word * 64 + bit))
				continue;
			tpck_spin_lock(&lock);
			talk = talk_of(word * 64 + bit);
			if (talk && talk->kind == TPCK_TALK_NOTED)
				look(talk, word * 64 + bit, false); /* a thread may have read, and not have come to its hook's end */
			/* Sent and not answered yet: what was sent is known to be. */
			if (talk && talk->kind == TPCK_TALK_NOTED && talk->sent > talk->noted)
				note(talk, TPCK_TALK_RECEIVED, NULL, 0);
			tpck_spin_unlock(&lock);
		}
	errno = error;
}

void tpck_network_passes(int fd)
{
	int error = errno;
	struct talk *talk;

	if (!tpck_network_home())
		return;
	tpck_spin_lock(&lock);
	talk = talk_of(fd);
	if (talk && talk->kind == TPCK_TALK_NOTED && talk->peer.family == AF_UNIX) {
		note(talk, TPCK_TALK_OWN, NULL, 0);
		talk_end(talk);
	}
	tpck_spin_unlock(&lock);
	errno = error;
}

void tpck_talk_lost(const struct tpck_network_connect *state, const struct tpck_record_talk *record, const struct tpck_record_peer *peer)
{
	tpck_talk_note(TPCK_TALK_LOST, record, NULL, 0);
	if (tpck_network_is_started() && !tpck_network_is_child())
		(void)tpck_network_child_note(TPCK_TALK_LOST, record, NULL, 0);
	if (!tpck_network_is_child() && is_others(state->elsewhere, peer))
		stopped_by(peer);
	tell_stop();
}
