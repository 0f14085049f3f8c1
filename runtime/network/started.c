/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This process is a program that another process of the job has started, as a service, or a worker that is executed anew. It has a record of its own, as it may
 * turn out to be a trainer itself; until then what it says to others is the root's, too (speakers.h). Whose program it is becomes of interest when it first
 * speaks with somebody else: an ancestor has the root's files mapped, and these say its number. A root that has no session yet has no such files: what is said
 * meanwhile is kept, and a thread looks for them.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
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
#include "runtime/base/processes.h"
#include "runtime/network/speakers.h"
#include "runtime/view/rules.h"
#include "runtime/wire/segment.h"

enum standing {
	NOBODYS,  /* it is nobody's, or a trainer */
	UNSURE,   /* it has spoken with nobody yet */
	LOOKING,  /* a thread looks whose it is */
	EARLY,    /* whoever it belongs to has no session yet */
	BELONGS,  /* to the root */
};
enum { PATH = 320, GENERATIONS = 64, SAME = 64, SOON_TIMES = 200 };
#define AGAIN_NS 20000000ull
static _Atomic int standing;
_Atomic bool tpck_started_unsure, tpck_started_now, tpck_started_early;
static tpck_spin moving;             /* the mail below moves to the root's */
static struct tpck_mail *kept;       /* what is said early */
static struct tpck_mail *roots_mail; /* NULL: there is none yet */
static uint32_t number;
static _Atomic bool looks;           /* a thread looks again */
static _Atomic uint64_t looked_ns;
static void (*then)(const struct tpck_root *root);

TPCK_AT_START static void stand(enum standing now)
{
	atomic_store(&standing, now);
	atomic_store(&tpck_started_early, now == EARLY);
}

TPCK_AT_START void tpck_started_may_be(bool may)
{
	stand(may ? UNSURE : NOBODYS);
	atomic_store(&tpck_started_unsure, may);
}

TPCK_AT_START void tpck_started_then(void (*belongs)(const struct tpck_root *root))
{
	then = belongs;
}

static void say_nobodys(void)
{
	if (then)
		then(NULL);
}

/* ---- whose it is ------------------------------------------------------------------------------------------ */

static uint64_t command_digest(void)
{
	char bytes[4096];
	int fd = tpck_sys_openat(AT_FDCWD, "/proc/self/cmdline", O_RDONLY | O_CLOEXEC, 0);
	long got = fd >= 0 ? tpck_sys_read_full(fd, bytes, sizeof bytes) : 0;

	if (fd >= 0)
		tpck_sys_close(fd);
	return tpck_digest64(bytes, got > 0 ? (size_t)got : 0, 0);
}

/* The number that the root has given this process. One that was started by a program without this library, as a shell, is told by its command line, and
 * from others with the same one by which of them came first. */
static uint32_t number_in(struct tpck_speakers *state)
{
	int pid = tpck_sys_getpid(), above = pid, shell = TPCK_SPEAKER_SHELL(tpck_process_parent(pid)), of = pid;
	uint32_t found = tpck_speakers_number(state, pid), mixed = 0;

	if (found)
		return found;
	found = tpck_speakers_number(state, shell);
	if (found) {
		tpck_speakers_add(state, pid, found, tpck_speakers_flags(state, shell));
		return found;
	}
	for (int i = 0; i < GENERATIONS && !found && above > 1 && above != state->root; i++) {
		above = tpck_process_parent(above);
		shell = TPCK_SPEAKER_SHELL(tpck_process_parent(above));
		of = tpck_speakers_number(state, above) ? above : shell;
		found = tpck_speakers_number(state, of);
	}
	if (!found)
		return 0;
	found = tpck_digest_pair(found, (uint32_t)command_digest());
	for (uint32_t i = 0; i < SAME; i++) {
		mixed = tpck_digest_pair(found, i);
		if (!tpck_speakers_has(state, mixed))
			break;
	}
	tpck_speakers_add(state, pid, mixed, TPCK_SPEAKER_GUESS | (tpck_speakers_flags(state, of) & TPCK_SPEAKER_FORWARD));
	return mixed;
}

/* The number of the nearest one that the log knows, of this process and those that it descends from. */
static uint32_t through_in(const struct tpck_speakers *state)
{
	uint32_t through = 0;
	int pid = tpck_sys_getpid();

	for (int i = 0; i < GENERATIONS && !through && pid > 1 && pid != state->root; i++) {
		through = tpck_speakers_known(state, pid);
		pid = tpck_process_parent(pid);
		through = through ? through : tpck_speakers_known(state, TPCK_SPEAKER_SHELL(pid));
	}
	return through;
}

/* A shell, say, never meets a device. */
static bool is_tool(int pid)
{
	char link[40], path[PATH];
	long got;

	snprintf(link, sizeof link, "/proc/%d/exe", pid);
	got = tpck_sys_readlink(link, path, sizeof path - 1);
	path[got > 0 ? got : 0] = '\0';
	return tpck_rules_tool(path);
}

enum found { FOUND_NOBODY, FOUND_LIBRARY, FOUND_ROOT };

/* Who of those that this process descends from has the library, and the files of a root. says: a line where that one does not know it. */
static enum found look(struct tpck_speakers_of *of, char session[PATH], bool says)
{
	enum found found = FOUND_NOBODY;
	int pid = tpck_process_parent(tpck_sys_getpid());
	bool library;
	int failed;

	for (int i = 0; i < GENERATIONS && pid > 1; i++) {
		if (tpck_process_has_mapped(pid, "/" TPCK_SPEAKERS, session, PATH, &library)) {
			*strrchr(session, '/') = '\0';
			failed = tpck_speakers_open(of, session);
			number = failed ? 0 : number_in(of->state);
			if (failed == EAGAIN || (!number && !says))
				return FOUND_LIBRARY;
			if (!number)
				tpck_log_warn("what this program says to others, or writes to files, is not in the record of process %d that it belongs to, which %s: a "
					      "resume does it again", pid, of->state ? "does not know it" : "cannot be shared");
			return number ? FOUND_ROOT : FOUND_NOBODY;
		}
		found = library && !is_tool(pid) ? FOUND_LIBRARY : found;
		pid = tpck_process_parent(pid);
	}
	return found;
}

/* ---- it belongs to the root --------------------------------------------------------------------------------- */

/* What the root knows of it; the records stay mapped. */
static void learn(const char *session, struct tpck_log_position cut)
{
	const struct tpck_record *record;
	struct tpck_log_reader *reader;
	char left[PATH + 16];

	if (tpck_log_open(&reader, session, cut))
		return;
	while ((record = tpck_log_next(reader)))
		tpck_network_learn(record);
	(void)tpck_log_behind(session, cut, tpck_network_learn_behind);
	snprintf(left, sizeof left, "%s/" TPCK_SAID_BEHIND, session);
	tpck_mail_left(left, tpck_network_learn_behind);
	tpck_spoken_settle();
}

static bool send_on(struct tpck_mail *to, uint16_t detail, struct tpck_record_talk *first, size_t first_bytes, const void *bytes, size_t count)
{
	first->thread = tpck_digest_pair(number, first->thread);
	return tpck_mail_send(to, TPCK_RECORD_TALK, detail, first, first_bytes, bytes, count);
}

static void pass_on(const struct tpck_record *record, void *to)
{
	struct tpck_record_talk first;

	if (record->bytes < sizeof first)
		return;
	memcpy(&first, record + 1, sizeof first);
	(void)send_on(to, record->detail, &first, sizeof first, (const char *)(record + 1) + sizeof first, record->bytes - sizeof first);
}

static void belong(const struct tpck_speakers_of *of, const char *session)
{
	bool forwards = atomic_load(&of->state->forwards), follows = forwards || tpck_speakers_flags(of->state, tpck_sys_getpid()) & TPCK_SPEAKER_FORWARD;
	struct tpck_root root;

	if (follows)
		learn(session, of->state->cut);
	tpck_spin_lock(&moving);
	/* The program may have met a device meanwhile. */
	if (atomic_load(&standing) != NOBODYS) {
		tpck_network_child_begins(of, number, follows);
		if (kept)
			tpck_mail_forward(kept, pass_on, of->mail);
		roots_mail = of->mail;
		stand(BELONGS);
		atomic_store(&tpck_started_now, true);
	}
	tpck_spin_unlock(&moving);
	root = (struct tpck_root){session, of->state->root, number, through_in(of->state), of->mail, forwards, follows, of->state->cut, of->state->boundary_ns};
	if (then)
		then(&root);
	tpck_log_debug("what this program says to others is in the record that %s has, by the number %u", session, number);
}

bool tpck_started_tells(uint16_t detail, void *first, size_t first_bytes, const void *bytes, size_t count)
{
	bool told = false;

	tpck_spin_lock(&moving);
	if (roots_mail)
		told = send_on(roots_mail, detail, first, first_bytes, bytes, count);
	else if (kept)
		told = tpck_mail_send(kept, TPCK_RECORD_TALK, detail, first, first_bytes, bytes, count);
	tpck_spin_unlock(&moving);
	return told;
}

static enum found look_and_belong(bool says)
{
	struct tpck_speakers_of of = {0};
	char session[PATH];
	enum found found = look(&of, session, says);

	if (found == FOUND_ROOT)
		belong(&of, session);
	looked_ns = tpck_clock_monotonic_ns();
	return found;
}

void tpck_started_looks(void)
{
	int saved = errno;

	if (atomic_load(&standing) != EARLY || tpck_clock_monotonic_ns() - atomic_load(&looked_ns) < AGAIN_NS || atomic_exchange(&looks, true))
		return;
	if (atomic_load(&standing) == EARLY)
		(void)look_and_belong(true);
	atomic_store(&looks, false);
	errno = saved;
}

void tpck_started_told_slow(void)
{
	if (tpck_network_home())
		tpck_started_looks();
}

/* While the root has no session. */
static void *watch_main(void *unused)
{
	struct timespec pause = {0, 100000000};
	enum found found = FOUND_LIBRARY;
	int early = EARLY;
	unsigned times = 0;

	(void)unused;
	tpck_thread_own();
	pthread_setname_np(pthread_self(), "tpck-started");
	while (found == FOUND_LIBRARY && atomic_load(&standing) == EARLY) {
		tpck_sys_clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
		pause.tv_sec = ++times > SOON_TIMES;
		if (atomic_exchange(&looks, true))
			continue;
		if (atomic_load(&standing) == EARLY)
			found = look_and_belong(true);
		atomic_store(&looks, false);
	}
	if (found == FOUND_NOBODY && atomic_compare_exchange_strong(&standing, &early, NOBODYS)) {
		atomic_store(&tpck_started_early, false);
		atomic_store(&tpck_started_now, false);
		say_nobodys();
	}
	return NULL;
}

/* waits: where the root has no session yet a thread looks again. */
static void ask(bool waits)
{
	struct timespec pause = {0, 1000000};
	int unsure = UNSURE, saved = errno;
	enum found found;

	if (atomic_compare_exchange_strong(&standing, &unsure, LOOKING)) {
		found = look_and_belong(waits);
		if (found == FOUND_LIBRARY && !waits) {
			stand(UNSURE);
			goto out;
		}
		kept = found == FOUND_LIBRARY ? tpck_mail_new(TPCK_SPEAKERS_MAIL, NULL) : NULL;
		atomic_store(&tpck_started_unsure, false);
		atomic_store(&tpck_started_now, kept || found == FOUND_ROOT);
		stand(kept ? EARLY : found == FOUND_ROOT ? BELONGS : NOBODYS);
		if (!kept && found != FOUND_ROOT)
			say_nobodys();
		if (kept && tpck_thread_start(watch_main))
			tpck_started_leaves();
	}
	while (atomic_load(&standing) == LOOKING)
		tpck_sys_clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
out:
	errno = saved;
}

void tpck_started_asks(void)
{
	ask(true);
}

void tpck_started_asks_once(void)
{
	ask(false);
}

void tpck_started_leaves(void)
{
	tpck_spin_lock(&moving);
	stand(NOBODYS);
	atomic_store(&tpck_started_unsure, false);
	if (atomic_exchange(&tpck_started_now, false))
		tpck_network_child_ends();
	roots_mail = kept = NULL;
	tpck_spin_unlock(&moving);
	say_nobodys();
}

bool tpck_started_forked(void)
{
	bool was = roots_mail != NULL;

	stand(NOBODYS);
	atomic_store(&tpck_started_unsure, false);
	atomic_store(&tpck_started_now, false);
	atomic_store(&moving, 0);
	atomic_store(&looks, false);
	roots_mail = kept = NULL;
	return was;
}
