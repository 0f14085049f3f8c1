/* SPDX-License-Identifier: Apache-2.0 */
/* Who else speaks for the root (speakers.h): what they say to others goes into its log, by mail that it takes at each boundary. While the root runs forward
 * each of them is answered as it was then, by a player of its own, and waits behind that until the root is live. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/network/played_private.h"
#include "runtime/network/speakers.h"
#include "runtime/replay/forward.h"
#include "runtime/replay/root.h"
#include "runtime/wire/segment.h"

/* Of the root, from when it has a session; and before that. */
static struct tpck_speakers_of own, early;
/* Of a forked child, or a program that was started: its root's. */
static struct tpck_speakers_of roots;
static tpck_spin making;
static bool own_failed, early_failed; /* a line has said so */
static char session[300] TPCK_LARGE;
static struct tpck_log_position cut_of_log;
_Atomic bool tpck_network_in_child;
static uint32_t child;            /* this process's number, or 0 */
static bool trails;
static uint32_t base;             /* of a fork of a program that was started: that one's */
static _Atomic uint32_t threads;  /* of a forked child, that have connected */
static _Atomic bool tells;        /* a library says what it encrypts */
static __thread struct {
	uint32_t of; /* the child whose these are */
	uint32_t id, made, made_local, newest, drawn;
	bool noted;
	const struct tpck_spoken *answers;
} mine __attribute__((tls_model("initial-exec")));

/* ---- the root ---------------------------------------------------------------------------------------------- */

static bool make(struct tpck_speakers_of *of, const char *folder)
{
	if (!tpck_speakers_new(of, folder))
		return false;
	of->state->root = tpck_network_process();
	of->state->cut = cut_of_log;
	of->state->boundary_ns = tpck_forward_boundary_ns();
	atomic_store(&of->state->forwards, tpck_network_forwards());
	if (of == &own && early.state)
		tpck_speakers_copy(own.state, early.state);
	tpck_speakers_ready(of->state);
	return true;
}

static void say_lost(const char *who, const char *why)
{
	tpck_log_warn("what %s to others will be in no record (%s): a resume sends it again", who, why);
}

/* Without a session, or without room in its folder, only forked children are spoken with. A child that shares this memory (vfork) may come by. */
static void make_all(void)
{
	bool lacks_all = false, lacks_own = false;

	tpck_spin_lock(&making);
	if (session[0] && !own.state && !own_failed) {
		if (!make(&own, session))
			own_failed = lacks_own = true;
	}
	if (!own.state && !early.state && !early_failed)
		lacks_all = early_failed = !make(&early, NULL);
	if (own.state && early.state)
		tpck_speakers_move(early.state, session);
	tpck_spin_unlock(&making);
	if (lacks_own)
		say_lost("programs say that are started", "the session's folder has no room for it");
	if (lacks_all)
		say_lost("forked children say", "no memory");
}

void tpck_network_forking(void)
{
	int saved = errno;

	if (tpck_network_records() && !tpck_network_is_child() && !roots.state)
		make_all();
	errno = saved;
}

void tpck_network_executes(int pid, uint32_t number)
{
	struct tpck_speakers *to = roots.state;
	int saved = errno;

	if (number && tpck_network_has_log()) {
		if (!to) {
			make_all();
			to = own.state ? own.state : early.state;
		}
		if (to)
			tpck_speakers_add(to, pid, number, trails || atomic_load(&to->forwards) ? TPCK_SPEAKER_FORWARD
									      : tpck_speakers_flags(to, tpck_network_process()) & TPCK_SPEAKER_FORWARD);
	}
	errno = saved;
}

void tpck_network_shell(uint32_t number)
{
	int saved = errno;

	if (number && roots.state && tpck_network_has_log())
		tpck_speakers_add(roots.state, TPCK_SPEAKER_SHELL(tpck_network_process()), number,
				  trails ? TPCK_SPEAKER_FORWARD : tpck_speakers_flags(roots.state, tpck_network_process()) & TPCK_SPEAKER_FORWARD);
	errno = saved;
}

void tpck_network_session(const char *folder, const struct tpck_log_position *cut)
{
	int saved = errno;

	tpck_started_leaves();
	own_failed = false;
	if (own.state && session[0] && strcmp(session, folder) != 0)
		tpck_speakers_rename(session, folder);
	if (snprintf(session, sizeof session, "%s", folder) >= (int)sizeof session) {
		session[0] = '\0';
		say_lost("programs say that are started", "the path of the session's folder is too long");
	}
	if (cut)
		cut_of_log = *cut;
	if (own.state)
		own.state->cut = cut_of_log;
	if (early.state)
		make_all();
	errno = saved;
}

void tpck_network_children_boundary(struct tpck_log *log)
{
	static bool said;

	if (early.mail)
		tpck_mail_take(early.mail, log);
	if (own.mail)
		tpck_mail_take(own.mail, log);
	if (!said && ((early.mail && tpck_mail_lost(early.mail)) || (own.mail && tpck_mail_lost(own.mail)))) {
		said = true;
		tpck_log_warn("what forked children and programs that were started say to others is not all in the record (more than %d KiB between two iterations, or "
			      "one was stopped just then): a resume sends some of it again", TPCK_SPEAKERS_MAIL >> 10);
	}
}

void tpck_network_children_bounded(void)
{
	if (own.state)
		atomic_fetch_add(&own.state->boundaries, 1);
	if (early.state)
		atomic_fetch_add(&early.state->boundaries, 1);
}

uint32_t tpck_network_child_boundaries(void)
{
	return roots.state ? atomic_load(&roots.state->boundaries) : 0;
}

static bool path_of_left(char path[sizeof session + 16])
{
	snprintf(path, sizeof session + 16, "%s/" TPCK_SAID_BEHIND, session);
	return session[0];
}

void tpck_network_left(void (*call)(const struct tpck_record *record))
{
	char path[sizeof session + 16];

	if (path_of_left(path))
		tpck_mail_left(path, call);
}

/* Of the two, NULL where it is not there. */
static struct tpck_speakers *one_of(int which)
{
	return which ? early.state : own.state;
}

void tpck_network_children_forward(void)
{
	for (int i = 0; i < 2; i++)
		if (one_of(i)) {
			tpck_speakers_clear(one_of(i));
			one_of(i)->boundary_ns = tpck_forward_boundary_ns();
			atomic_store(&one_of(i)->released, false);
			atomic_store(&one_of(i)->forwards, true);
		}
}

void tpck_network_children_live(uint64_t step)
{
	char peer[TPCK_PEER_TEXT], path[sizeof session + 16];

	for (int i = 0; i < 2; i++)
		if (one_of(i))
			atomic_store(&one_of(i)->live_ns, tpck_clock_monotonic_ns());
	for (int i = 0; i < 2; i++)
		if (one_of(i) && atomic_exchange(&one_of(i)->forwards, false) && atomic_load(&one_of(i)->sent) == 2)
			tpck_log_warn("on the way to step %llu a forked child, or a program that was started, sent something to %s that the first run may have sent "
				      "already: it is not in the record", (unsigned long long)step, tpck_peer_text(&one_of(i)->sent_to, peer));
	/* Nobody has to learn it any more. */
	if (path_of_left(path))
		tpck_sys_unlinkat(AT_FDCWD, path, 0);
	if (session[0])
		tpck_log_behind_done(session, cut_of_log);
}

const char *tpck_network_children_differ(void)
{
	for (int i = 0; i < 2; i++)
		if (one_of(i) && atomic_load(&one_of(i)->differs) == 2)
			return one_of(i)->difference;
	return NULL;
}

const struct tpck_record_peer *tpck_network_children_sent_other(void)
{
	for (int i = 0; i < 2; i++)
		if (one_of(i) && atomic_load(&one_of(i)->other) == 2)
			return &one_of(i)->other_to;
	return NULL;
}

bool tpck_network_children_wait(void)
{
	bool wait = false;

	for (int i = 0; i < 2; i++)
		wait = wait || (one_of(i) && atomic_load(&one_of(i)->waiting) && !atomic_load(&one_of(i)->released));
	return wait;
}

bool tpck_network_children_held(void)
{
	return tpck_network_forwards() && !tpck_network_is_child() && tpck_network_children_wait();
}

void tpck_network_children_release(void)
{
	for (int i = 0; i < 2; i++)
		if (one_of(i))
			atomic_store(&one_of(i)->released, true);
}

/* ---- a child ----------------------------------------------------------------------------------------------- */

bool tpck_network_children_forked(uint32_t number, bool recording)
{
	/* When it was forked, that is: it may come here only once its root is live. */
	bool forwards, forwarded = tpck_network_forwards();

	if (tpck_started_forked())
		base = child;
	else if (!roots.state)
		roots = own.state ? own : early;
	own = early = (struct tpck_speakers_of){0};
	atomic_store(&making, 0);
	forwards = roots.state && atomic_load(&roots.state->forwards);
	child = !roots.state || !recording || !number ? 0 : base ? tpck_digest_pair(base, number) : number;
	trails = child && forwarded;
	atomic_store(&threads, 0);
	atomic_store(&tells, false);
	/* Whoever has no number says for real what it says, and a line tells. */
	atomic_store(&tpck_network_in_child, child || forwards);
	atomic_store(&tpck_network_forwarding_now, forwards);
	return child != 0;
}

void tpck_network_child_begins(const struct tpck_speakers_of *of, uint32_t number, bool follows)
{
	roots = *of;
	child = number;
	trails = follows;
	atomic_store(&tells, false);
	if (!atomic_load(&roots.state->forwards))
		return;
	atomic_store(&tpck_network_in_child, true);
	atomic_store(&tpck_network_forwarding_now, true);
}

void tpck_network_child_ends(void)
{
	roots = (struct tpck_speakers_of){0};
	child = 0;
	trails = false;
	if (atomic_exchange(&tpck_network_in_child, false))
		atomic_store(&tpck_network_forwarding_now, false);
}

bool tpck_network_child_forwards(void)
{
	if (!tpck_network_forwards() || atomic_load(&roots.state->forwards))
		return tpck_network_forwards();
	if (atomic_exchange(&tpck_network_forwarding_now, false))
		tpck_player_ends();
	/* A program that was started has a record of its own, too. */
	if (tpck_network_is_started())
		atomic_store(&tpck_network_in_child, false);
	return false;
}

bool tpck_network_child_trails(void)
{
	return trails;
}

bool tpck_network_child_is_late(void)
{
	return tpck_clock_monotonic_ns() - atomic_load(&roots.state->live_ns) > TPCK_BEHIND_NS;
}

uint32_t tpck_network_child_thread(uint32_t **made, bool local)
{
	if (mine.of != child || !mine.id) {
		memset(&mine, 0, sizeof mine);
		mine.of = child;
		mine.id = tpck_digest_pair(child, atomic_fetch_add(&threads, 1));
	}
	*made = local ? &mine.made_local : &mine.made;
	return mine.id;
}

/* Of a program that was started, whose number may not be known yet. */
enum { STARTED = 2 };

static uint32_t whose(void)
{
	return tpck_network_is_started() ? STARTED : child;
}

void tpck_network_child_speaks(uint32_t thread)
{
	mine.of = STARTED;
	mine.id = thread;
}

uint32_t tpck_network_child_known_as(uint32_t thread)
{
	return tpck_network_is_started() ? tpck_digest_pair(child, thread) : thread;
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

	if (mine.of != whose() || (!mine.noted && !mine.answers))
		return false;
	*number = mine.drawn++;
	drawn = mine.answers ? tpck_spoken_drawn(mine.answers, *number, count) : NULL;
	if (drawn)
		memcpy(bytes, drawn, count);
	return drawn != NULL;
}

/* `first` begins with a struct tpck_record_talk, and may be changed. */
static bool tell(uint16_t detail, void *first, size_t first_bytes, const void *bytes, size_t count)
{
	if (tpck_network_is_started())
		return tpck_started_tells(detail, first, first_bytes, bytes, count);
	if (!child)
		return false;
	if (tpck_speakers_moved(&roots)) {
		tpck_spin_lock(&making);
		tpck_speakers_follow(&roots);
		tpck_spin_unlock(&making);
	}
	return tpck_mail_send(roots.mail, TPCK_RECORD_TALK, detail, first, first_bytes, bytes, count);
}

void tpck_network_child_drawn(const void *bytes, size_t count, uint32_t number)
{
	struct tpck_record_talk record = {.thread = mine.id, .ordinal = mine.newest};
	struct tpck_record_drawn drawn = {number};
	char payload[sizeof record + sizeof drawn];

	if (mine.of != whose() || !mine.noted || !tpck_network_recording())
		return;
	memcpy(payload, &record, sizeof record);
	memcpy(payload + sizeof record, &drawn, sizeof drawn);
	tell(TPCK_TALK_DRAWN, payload, sizeof payload, bytes, count);
}

bool tpck_network_child_note(uint16_t detail, const struct tpck_record_talk *record, const void *bytes, size_t count)
{
	struct tpck_record_talk first = *record;

	return tell(detail, &first, sizeof first, bytes, count);
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
	if (atomic_compare_exchange_strong(&roots.state->sent, &none, 1)) {
		roots.state->sent_to = *peer;
		atomic_store(&roots.state->sent, 2);
	}
}

void tpck_network_child_differs(const char *what)
{
	int none = 0;

	if (!tpck_network_child_forwards()) {
		tpck_log_warn("a process that was behind does something else than the first run did: %s", what);
		return;
	}
	if (atomic_compare_exchange_strong(&roots.state->differs, &none, 1)) {
		snprintf(roots.state->difference, sizeof roots.state->difference, "%s", what);
		atomic_store(&roots.state->differs, 2);
	}
}

void tpck_network_child_sent_other(const struct tpck_record_peer *peer)
{
	char text[TPCK_PEER_TEXT];
	int none = 0;

	if (!tpck_network_child_forwards()) {
		tpck_log_warn("what was sent by a process that was behind is not what the first run had sent; it was not sent again, and the answers were those of then: %s",
			      tpck_peer_text(peer, text));
		return;
	}
	if (atomic_compare_exchange_strong(&roots.state->other, &none, 1)) {
		roots.state->other_to = *peer;
		atomic_store(&roots.state->other, 2);
	}
}

static bool root_is_gone(void)
{
	return tpck_sys_kill(roots.state->root, 0) && errno == ESRCH;
}

void tpck_network_child_waits(const struct tpck_record_peer *peer)
{
	struct timespec pause = {0, 2000000};
	char text[TPCK_PEER_TEXT];

	if (!child)
		return;
	tpck_log_debug("this process waits for who it comes from to be live before it connects to %s", tpck_peer_text(peer, text));
	atomic_fetch_add(&roots.state->waiting, 1);
	while (tpck_network_child_forwards() && !atomic_load(&roots.state->released) && !root_is_gone())
		tpck_sys_clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
	atomic_fetch_sub(&roots.state->waiting, 1);
}
