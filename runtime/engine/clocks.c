/* SPDX-License-Identifier: Apache-2.0 */
/* What the program is told of clocks, and how long it waits by them (engine.h). */
#include "config.h"

#include "runtime/base/clock.h"
#include "runtime/engine/engine_private.h"
#include "runtime/replay/looks.h"

static struct tpck_engine *const engine = &tpck_engine;

_Atomic bool tpck_engine_clocks_moved;
/* Nanoseconds that the program is told more than this machine's clock says. They grow, so that no clock goes back. Of a
 * thread's own CPU clock the thread has them. */
static _Atomic int64_t moved[TPCK_CLOCKS];

static bool of_calendar(enum tpck_clock clock)
{
	return clock == TPCK_CLOCK_REAL || clock == TPCK_CLOCK_REAL_COARSE;
}

/* CLOCK_MONOTONIC_COARSE is CLOCK_MONOTONIC at the last tick: one must not be told apart from the other. */
static _Atomic int64_t *moved_of(enum tpck_clock clock)
{
	return &moved[clock == TPCK_CLOCK_COARSE ? TPCK_CLOCK_MONOTONIC : clock];
}

static uint64_t program_time(const struct tpck_thread *self, enum tpck_clock clock, uint64_t ns)
{
	int64_t more = clock == TPCK_CLOCK_THREAD ? (self ? self->cpu_moved : 0) : atomic_load_explicit(moved_of(clock), memory_order_relaxed);

	return ns + (uint64_t)more;
}

/* The program was told `shown` when the clock stood at ns. */
static void told(struct tpck_thread *self, enum tpck_clock clock, uint64_t shown, uint64_t ns)
{
	int64_t more = (int64_t)(shown - ns), before;

	if (of_calendar(clock))
		return;
	if (clock == TPCK_CLOCK_THREAD) {
		self->cpu_moved = more > self->cpu_moved ? more : self->cpu_moved;
		return;
	}
	before = atomic_load(moved_of(clock));
	while (more > before && !atomic_compare_exchange_weak(moved_of(clock), &before, more))
		;
}

void tpck_clocks_begin(void)
{
	for (unsigned i = 0; i < TPCK_CLOCKS; i++) {
		uint64_t first = tpck_forward_first_look((enum tpck_clock)i);

		if (first && !of_calendar((enum tpck_clock)i) && i != TPCK_CLOCK_THREAD && i != TPCK_CLOCK_COARSE)
			atomic_store(&moved[i], (int64_t)(first - tpck_clock_read((enum tpck_clock)i)));
	}
	atomic_store(&tpck_engine_clocks_moved, true);
}

void tpck_clocks_live(void)
{
	if (tpck_forward_first_look(TPCK_CLOCK_MONOTONIC))
		told(NULL, TPCK_CLOCK_MONOTONIC, tpck_forward_shown_ns(), tpck_clock_read(TPCK_CLOCK_MONOTONIC));
}

uint64_t tpck_clocks_shown_ns(void)
{
	return program_time(NULL, TPCK_CLOCK_MONOTONIC, tpck_clock_monotonic_ns());
}

/* False: the log has no answer. A look more than in the first run sees the time stand still, not the present: what the
 * program waits for takes longer here, and no wait of the first run's came to its limit meanwhile. */
static bool answered(struct tpck_thread *self, enum tpck_clock clock, uint64_t ns, uint64_t *shown)
{
	switch (tpck_forward_look(self, clock, shown)) {
	case TPCK_FORWARD_SAME:
		told(self, clock, *shown, ns);
		return true;
	case TPCK_FORWARD_MORE:
		return *shown != 0;
	case TPCK_FORWARD_END:
		/* What day it is then nobody has said yet. */
		if (of_calendar(clock))
			tpck_resume_at_boundary(self);
		else if (clock == TPCK_CLOCK_MONOTONIC)
			told(self, clock, tpck_forward_shown_ns(), ns);
		return false;
	default:
		return false;
	}
}

/* The driver's own looks, NCCL's, and the library's, are at the machine's clock. */
static bool is_program(const struct tpck_thread *self)
{
	return !self->depth && !self->ours && !self->elsewhere;
}

/* Of clocks that count since a start only threads are recorded that have done something else before. There may be more threads than slots,
 * and who has none would look for one in vain each time. */
static struct tpck_thread *thread_for(enum tpck_clock clock)
{
	return of_calendar(clock) ? tpck_thread_self() : tpck_thread_peek();
}

uint64_t tpck_engine_look(enum tpck_clock clock, uint64_t ns)
{
	uint32_t mode = tpck_engine_mode();
	struct tpck_thread *self = mode == TPCK_MODE_OFF ? NULL : thread_for(clock);
	uint64_t shown;

	if (!self)
		return program_time(NULL, clock, ns);
	if (!is_program(self))
		return ns;
	self->depth = 1;
	if (mode != TPCK_MODE_FORWARD || !answered(self, clock, ns, &shown)) {
		shown = program_time(self, clock, ns);
		mode = tpck_engine_mode();
		/* A thread that only waits, as a watchdog does, would fill the log with its looks. */
		if ((mode == TPCK_MODE_LIVE || mode == TPCK_MODE_EARLY) && (of_calendar(clock) || self->id == 1 || self->operations))
			tpck_looks_note(self, engine->log, clock, shown);
	}
	self->depth = 0;
	return shown;
}

uint64_t tpck_engine_deadline(enum tpck_clock clock, uint64_t ns)
{
	uint32_t mode = tpck_engine_mode();
	struct tpck_thread *self = mode == TPCK_MODE_OFF ? NULL : tpck_thread_peek();
	uint64_t now, shown;
	int64_t more;

	if (self && !is_program(self))
		return ns;
	if (mode != TPCK_MODE_FORWARD || !self || !self->shown[clock]) {
		more = (int64_t)program_time(self, clock, 0);
		return more > 0 && ns < (uint64_t)more ? 0 : ns - (uint64_t)more;
	}
	/* By what the thread was told last. */
	now = tpck_clock_read(clock);
	shown = self->shown[clock];
	return ns > shown ? now + (ns - shown) : now;
}
