/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes of a twin that go on with its work, as a loader's workers. The twin makes them as soon as its record shows that they went on, and they work for
 * it: they read and answer. What others would see of it they leave until it is known what becomes of them, at the twin's takeover, or once the record has
 * their end. From there on they are as a resume's children are, and know what the record has by then.
 */
#include "config.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "runtime/base/clock.h"
#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/follow/follow.h"
#include "runtime/programs/programs_private.h"

#define LOOK_NS 100000000ull
enum { ENDS_WITH = 137 };

static void (*stays)(void);
static bool started; /* this process is a program, which the twin has started */
static _Atomic bool looked; /* a thread sees to it that this process goes on */

/* ---- the twin ----------------------------------------------------------------------------------------- */

static void wake(struct tpck_standin_page *page)
{
	atomic_fetch_add(&page->news, 1);
	tpck_sys_futex(&page->news, FUTEX_WAKE, 0x7fffffff, NULL, NULL, 0);
}

static bool has_ended(const struct tpck_child *at)
{
	const struct tpck_known *of = tpck_known_of(at->thread, at->ordinal);

	return of && of->ended && !of->lost;
}

void tpck_programs_follow_to(const char *session, struct tpck_log_position cut, bool further)
{
	struct tpck_standin_page *page = tpck_starts_page();
	uint32_t used = tpck_children_used();

	if (!page)
		return;
	page->process = tpck_sys_getpid();
	/* Whoever reads this meanwhile sees that it changes. */
	atomic_fetch_add(&page->cut_writes, 1);
	snprintf(page->session, sizeof page->session, "%s", session);
	page->cut_sequence = cut.sequence;
	page->cut_offset = cut.offset;
	atomic_fetch_add(&page->cut_writes, 1);
	for (uint32_t i = 0; i < used; i++)
		if (atomic_load(&tpck_children[i].pid) && has_ended(&tpck_children[i]))
			atomic_store(&tpck_children[i].decided, true);
	/* Of forked children each sees to it itself. */
	for (uint32_t i = 0; i < used && !further; i++)
		if (atomic_load(&tpck_children[i].pid) > 0 && atomic_load(&tpck_children[i].doing) == TPCK_DOING_WORKER)
			tpck_unwritten_of(tpck_programs_number((int)i));
	atomic_store(&page->follows, further);
	wake(page);
}

/* ---- a child ------------------------------------------------------------------------------------------- */

static bool read_cut(const struct tpck_standin_page *page, char session[TPCK_STANDIN_SESSION], struct tpck_log_position *cut)
{
	for (unsigned tries = 0; tries < 1000; tries++) {
		uint32_t before = atomic_load(&page->cut_writes);

		memcpy(session, page->session, TPCK_STANDIN_SESSION);
		*cut = (struct tpck_log_position){page->cut_sequence, page->cut_offset};
		atomic_thread_fence(memory_order_acquire);
		if (!(before & 1) && atomic_load(&page->cut_writes) == before)
			return true;
		tpck_sys_clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){0, 1000000}, NULL);
	}
	return false;
}

/* What was known when this process was made is old. */
bool tpck_undecided_learn(void)
{
	char session[TPCK_STANDIN_SESSION];
	struct tpck_log_position cut;

	if (!read_cut(tpck_starts_page(), session, &cut))
		return false;
	tpck_programs_unlearn();
	return tpck_starts_learn(session, cut);
}

static bool is_decided(void)
{
	int place = started ? -1 : tpck_child_here();

	return !atomic_load(&tpck_starts_page()->follows) || (place >= 0 && atomic_load(&tpck_children[place].decided));
}

static void look(void)
{
	bool kept;

	if (!is_decided() || atomic_exchange(&looked, true))
		return;
	if (!tpck_undecided_learn())
		tpck_log_warn("what a process of the twin has started, and the program had started before, is started again: the record cannot be used");
	kept = !started && tpck_child_goes_on();
	if (kept)
		stays();
	tpck_follow_unhold(kept);
}

/* Returns once there may be something new. A process whose twin is gone has nothing to wait for, and nobody who waits for it. */
static void await_news(void)
{
	struct tpck_standin_page *page = tpck_starts_page();
	struct timespec limit = {0, LOOK_NS};
	uint32_t now = atomic_load(&page->news);

	look();
	if (!tpck_follow_held())
		return;
	if (atomic_load(&page->live) == 2 || (tpck_sys_kill(page->process, 0) && errno == ESRCH))
		tpck_sys_exit_group(ENDS_WITH);
	tpck_sys_futex(&page->news, FUTEX_WAIT, now, &limit, NULL, 0);
}

static void await(void)
{
	while (tpck_follow_held())
		await_news();
}

static bool begins(bool is_started)
{
	struct tpck_standin_page *page = tpck_starts_page();

	atomic_store(&looked, false);
	if (!page || !atomic_load(&page->follows))
		return false;
	started = is_started;
	tpck_follow_hold(look, await);
	return true;
}

bool tpck_undecided_begins(void (*when_kept)(void))
{
	stays = when_kept;
	return begins(false);
}

void tpck_undecided_started(void)
{
	(void)begins(true);
}

/* Whether what was learnt last has the end of such a program. */
static bool knows_end(const struct tpck_child *program)
{
	const struct tpck_known *of = tpck_known_of(program->thread, program->ordinal);

	if (!tpck_known_is(of, program->path) || of->started->arguments != program->arguments)
		of = tpck_known_alike(program->path, program->arguments, tpck_starts_page());
	return of && of->ended && !of->lost;
}

void tpck_undecided_await(const struct tpck_child *program)
{
	uint64_t pause_ns = LOOK_NS;
	int saved = errno;

	/* Learning takes as long as the record: it is done less and less often. */
	while (tpck_follow_held() && !(knows_end(program) || (tpck_undecided_learn() && knows_end(program)))) {
		uint64_t until = tpck_clock_monotonic_ns() + pause_ns;

		while (tpck_follow_held() && tpck_clock_monotonic_ns() < until)
			await_news();
		pause_ns *= 2;
	}
	errno = saved;
}

bool tpck_undecided_look(void)
{
	int saved = errno;

	if (tpck_follow_held())
		look();
	errno = saved;
	return tpck_follow_held();
}
