/* SPDX-License-Identifier: Apache-2.0 */
/* Forked children: what they say to others goes into the log of the process that they come from, which is called the root here, by mail that it takes at each
 * boundary. While the root runs forward each child is answered as it was then, by a player of its own, and waits behind that until the root is live. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/network/played_private.h"
#include "runtime/replay/mail.h"
#include "runtime/wire/segment.h"

/* Until the root's next boundary. */
enum { MAIL_BYTES = 1 << 20 };

/* Of the root and all that are forked from it. */
static struct shared {
	_Atomic bool forwards;
	_Atomic bool released;    /* children wait no more */
	_Atomic uint32_t waiting; /* children's threads; one that is killed meanwhile stays in it */
	/* 1: what follows is being written, 2: it is there */
	_Atomic int sent, other, differs;
	struct tpck_record_peer sent_to, other_to;
	char difference[200];
} *shared;
/* In the session's folder, and of children that were forked before there was one. */
static struct tpck_mail *mail, *early_mail;
static char session[300] TPCK_LARGE;
_Atomic bool tpck_network_in_child;
static uint32_t child;            /* in a child: its number, or 0 */
static _Atomic uint32_t threads;  /* of the child, that have connected */
static _Atomic bool tells;        /* a library says what it encrypts */
static __thread struct {
	uint32_t of; /* the child whose these are */
	uint32_t id, made, made_local, newest, drawn;
	bool noted;
	const struct tpck_spoken *answers;
} mine __attribute__((tls_model("initial-exec")));

void tpck_network_forking(void)
{
	int saved = errno;
	void *at;

	if (!tpck_network_records() || tpck_network_is_child())
		return;
	if (!mail || (session[0] && early_mail == mail)) {
		char path[sizeof session + 8];

		snprintf(path, sizeof path, "%s/" TPCK_SAID, session);
		mail = tpck_mail_new(MAIL_BYTES, session[0] ? path : NULL);
		if (!session[0] || !mail)
			early_mail = mail;
	}
	at = shared || !mail ? MAP_FAILED : tpck_sys_mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (at != MAP_FAILED) {
		shared = at;
		atomic_store(&shared->forwards, tpck_network_forwards());
	}
	errno = saved;
}

void tpck_network_session(const char *folder)
{
	if (snprintf(session, sizeof session, "%s", folder) >= (int)sizeof session)
		session[0] = '\0';
}

/* ---- the root ---------------------------------------------------------------------------------------------- */

void tpck_network_children_boundary(struct tpck_log *log)
{
	if (early_mail)
		tpck_mail_take(early_mail, log);
	if (mail && mail != early_mail)
		tpck_mail_take(mail, log);
}

void tpck_network_learn_left(void)
{
	char path[sizeof session + 16];

	snprintf(path, sizeof path, "%s/" TPCK_SAID_BEHIND, session);
	if (session[0])
		tpck_mail_left(path, tpck_network_learn_behind);
}

void tpck_network_children_forward(void)
{
	if (!shared)
		return;
	atomic_store(&shared->released, false);
	atomic_store(&shared->forwards, true);
}

void tpck_network_children_live(uint64_t step)
{
	char peer[TPCK_PEER_TEXT];

	if (!shared || !atomic_exchange(&shared->forwards, false) || atomic_load(&shared->sent) != 2)
		return;
	tpck_log_warn("on the way to step %llu a forked child sent something to %s that its first run may have sent already: it is not in the record",
		      (unsigned long long)step, tpck_peer_text(&shared->sent_to, peer));
}

const char *tpck_network_children_differ(void)
{
	return shared && atomic_load(&shared->differs) == 2 ? shared->difference : NULL;
}

const struct tpck_record_peer *tpck_network_children_sent_other(void)
{
	return shared && atomic_load(&shared->other) == 2 ? &shared->other_to : NULL;
}

bool tpck_network_children_wait(void)
{
	return shared && atomic_load(&shared->waiting) && !atomic_load(&shared->released);
}

bool tpck_network_children_held(void)
{
	return tpck_network_forwards() && !tpck_network_is_child() && tpck_network_children_wait();
}

void tpck_network_children_release(void)
{
	if (shared)
		atomic_store(&shared->released, true);
}

/* ---- a child ----------------------------------------------------------------------------------------------- */

bool tpck_network_children_forked(uint32_t number, bool recording)
{
	bool forwards = shared && atomic_load(&shared->forwards);

	child = shared && mail && recording ? number : 0;
	atomic_store(&threads, 0);
	atomic_store(&tells, false);
	/* Whoever has no number says for real what it says, and a line tells. */
	atomic_store(&tpck_network_in_child, child || forwards);
	atomic_store(&tpck_network_forwarding_now, forwards);
	return child != 0;
}

bool tpck_network_child_forwards(void)
{
	if (!tpck_network_forwards() || atomic_load(&shared->forwards))
		return tpck_network_forwards();
	if (atomic_exchange(&tpck_network_forwarding_now, false))
		tpck_player_ends();
	return false;
}

static uint32_t mixed(uint32_t one, uint32_t other)
{
	return (uint32_t)((((uint64_t)one << 32 | other) * 0x9e3779b97f4a7c15ull) >> 32);
}

uint32_t tpck_network_child_thread(uint32_t **made, bool local)
{
	if (mine.of != child || !mine.id) {
		memset(&mine, 0, sizeof mine);
		mine.of = child;
		mine.id = mixed(child, atomic_fetch_add(&threads, 1));
	}
	*made = local ? &mine.made_local : &mine.made;
	return mine.id;
}

void tpck_network_child_newest(bool noted, uint32_t ordinal, const struct tpck_spoken *of)
{
	mine.noted = noted;
	mine.newest = ordinal;
	mine.answers = of;
	mine.drawn = 0;
}

bool tpck_network_child_draws(void *bytes, size_t count, uint32_t *number)
{
	const void *drawn;

	if (mine.of != child || (!mine.noted && !mine.answers))
		return false;
	*number = mine.drawn++;
	drawn = mine.answers ? tpck_spoken_drawn(mine.answers, *number, count) : NULL;
	if (drawn)
		memcpy(bytes, drawn, count);
	return drawn != NULL;
}

void tpck_network_child_drawn(const void *bytes, size_t count, uint32_t number)
{
	struct tpck_record_talk record = {.thread = mine.id, .ordinal = mine.newest};
	struct tpck_record_drawn drawn = {number};
	char payload[sizeof record + sizeof drawn];

	if (mine.of != child || !mine.noted || !tpck_network_recording())
		return;
	memcpy(payload, &record, sizeof record);
	memcpy(payload + sizeof record, &drawn, sizeof drawn);
	tpck_mail_send(mail, TPCK_RECORD_TALK, TPCK_TALK_DRAWN, payload, sizeof payload, bytes, count);
}

bool tpck_network_child_note(uint16_t detail, const struct tpck_record_talk *record, const void *bytes, size_t count)
{
	return child && tpck_mail_send(mail, TPCK_RECORD_TALK, detail, record, sizeof *record, bytes, count);
}

void tpck_network_child_sends(const struct tpck_record_peer *peer, const void *bytes, size_t count, bool told)
{
	/* Records of TLS are of types 20 to 23, and of version 3 (RFC 8446, 5.1). */
	bool record = count > 2 && ((const unsigned char *)bytes)[0] >= 20 && ((const unsigned char *)bytes)[0] <= 23 && ((const unsigned char *)bytes)[1] == 3;
	int none = 0;

	if (told)
		atomic_store(&tells, true);
	/* Of encrypted data only who encrypts it knows what it is; a handshake changes nothing. */
	else if (record && (((const unsigned char *)bytes)[0] != 23 || atomic_load(&tells)))
		return;
	if (!count || !tpck_network_child_forwards() || tpck_talk_is_safe(bytes, count))
		return;
	if (atomic_compare_exchange_strong(&shared->sent, &none, 1)) {
		shared->sent_to = *peer;
		atomic_store(&shared->sent, 2);
	}
}

void tpck_network_child_differs(const char *what)
{
	int none = 0;

	if (tpck_network_child_forwards() && atomic_compare_exchange_strong(&shared->differs, &none, 1)) {
		snprintf(shared->difference, sizeof shared->difference, "%s", what);
		atomic_store(&shared->differs, 2);
	}
}

void tpck_network_child_sent_other(const struct tpck_record_peer *peer)
{
	int none = 0;

	if (atomic_compare_exchange_strong(&shared->other, &none, 1)) {
		shared->other_to = *peer;
		atomic_store(&shared->other, 2);
	}
}

void tpck_network_child_waits(const struct tpck_record_peer *peer)
{
	struct timespec pause = {0, 2000000};
	char text[TPCK_PEER_TEXT];

	if (!child)
		return;
	tpck_log_debug("a forked child waits for its parent to be live before it connects to %s", tpck_peer_text(peer, text));
	atomic_fetch_add(&shared->waiting, 1);
	while (tpck_network_child_forwards() && !atomic_load(&shared->released))
		tpck_sys_clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
	atomic_fetch_sub(&shared->waiting, 1);
}
