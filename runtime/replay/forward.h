/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running forward: answers the hooks from the log, thread by thread, until every thread stands
 * where it stood at the boundary of the snapshot (doc/architecture.md, "A resume"). Each device operation is compared
 * with the one in the log; the first that differs is named.
 */
#ifndef TPCK_RUNTIME_REPLAY_FORWARD_H
#define TPCK_RUNTIME_REPLAY_FORWARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/replay/record_log.h"
#include "runtime/track/threads.h"

/* What a step of a thread finds. */
enum tpck_forward {
	TPCK_FORWARD_SAME,     /* as in the log */
	TPCK_FORWARD_END,      /* the log says no more of this thread: it stands at the boundary */
	TPCK_FORWARD_DIFFERS,  /* tpck_forward_difference() says how */
	TPCK_FORWARD_FOREIGN,  /* a thread of which the log has no device operations: it gets the truth */
	TPCK_FORWARD_MORE,     /* the first run did not draw so often between these two operations of the thread */
};

/* Reads the log up to the cut. 0 or -errno. */
int tpck_forward_open(const char *folder, struct tpck_log_position cut);
void tpck_forward_close(void);

/* ---- following a run that is still writing its log ----
 * Threads wait at the end of what the log has for them, without a limit, as there may be more of it. Lists grow up to one cut after the other:
 * each is a snapshot's, so that all of a thread's answers up to there are there. */
/* Before a thread is answered. */
void tpck_forward_follow(void);
/* The log goes up to this later cut, by the one thread that follows it. Before threads are told of it, also() is called with each record that is new. 0,
 * or -errno: nothing more can be followed. */
int tpck_forward_extend(struct tpck_log_position cut, void (*also)(const struct tpck_record *record));
/* What is followed goes on in this folder (tpck_log_move()), by the same thread. */
int tpck_forward_move(const char *folder);
/* Waits until what() holds of the thread, which more of the log may bring about, or no more will come. */
void tpck_forward_await_that(bool (*what)(const void *of), const void *of);
/* Whether the log is known to have more operations of the thread's, which calls this, than it has come to. */
bool tpck_forward_goes_on(const struct tpck_thread *self);
/* In the child of a fork: nobody extends the log there. */
void tpck_forward_forked(void);
/* The iteration that the furthest thread is in. */
uint64_t tpck_forward_reached(void);
/* No more will come: the last cut is the boundary. */
void tpck_forward_last(void);
extern _Atomic bool tpck_forward_follows_now __attribute__((visibility("hidden")));
static inline bool tpck_forward_follows(void)
{
	return __builtin_expect(atomic_load_explicit(&tpck_forward_follows_now, memory_order_acquire), 0);
}
/* A process that a twin has made leaves what others see until later: it is held (runtime/follow/held.c). */
extern _Atomic bool tpck_forward_held_now __attribute__((visibility("hidden")));
/* Whether this is such a process, or a twin that follows: beside others that have the same names. */
static inline bool tpck_forward_stands_beside(void)
{
	return tpck_forward_follows() || __builtin_expect(atomic_load_explicit(&tpck_forward_held_now, memory_order_relaxed), 0);
}
/* The living process leads this group; 0: not known. */
extern int32_t tpck_forward_living_group __attribute__((visibility("hidden")));
void tpck_forward_await_slow(struct tpck_thread *self);
/* A thread that stands at the end of the log waits until there is more, or no more will come. */
static inline void tpck_forward_await(struct tpck_thread *self)
{
	if (tpck_forward_follows() && self)
		tpck_forward_await_slow(self);
}

/* The next device operation of a thread, by its 32-bit token and, where uploaded bytes were
 * digested, that digest (0: none). */
enum tpck_forward tpck_forward_operation(struct tpck_thread *self, uint32_t token, uint32_t content);
/* The next record of a type. On SAME *record is it. */
enum tpck_forward tpck_forward_record(struct tpck_thread *self, enum tpck_record_type type,
				      const struct tpck_record **record);
/* The next draw from chance, or query, that the thread made at this count of its operations; what it drew
 * at earlier counts, and does not here, is left out. On SAME *record is it; on MORE the last one before, or NULL. */
enum tpck_forward tpck_forward_draw(struct tpck_thread *self, enum tpck_record_type type,
				    const struct tpck_record **record);
/* The same of a look at a clock. On SAME *ns is what it said; on MORE what it said at the look before, or 0. */
enum tpck_forward tpck_forward_look(struct tpck_thread *self, enum tpck_clock clock, uint64_t *ns);
/* The same of a reading (replay/readings.h): on SAME, and on MORE where there was one before, *bytes is it. ahead: it is not used up. */
enum tpck_forward tpck_forward_reading(struct tpck_thread *self, uint32_t key, bool ahead, const void **bytes, uint32_t *count);
/* The number-th draw of a library since the thread's talks-th connection; NULL: the log has none. */
const struct tpck_record *tpck_forward_drawn(struct tpck_thread *self, uint32_t talks, uint32_t number);
/* Whether a graph has captured a call on the communicator of this index, up to the cut. */
bool tpck_forward_captures(uint32_t communicator);
/* What the first look of the log at a clock said; 0: there is none. */
uint64_t tpck_forward_first_look(enum tpck_clock clock);
/* The same record again at the next call: it was not used up. */
void tpck_forward_unread(struct tpck_thread *self, enum tpck_record_type type);
/* Where a thread stands: SAME: on its way, END: at the boundary, FOREIGN. */
enum tpck_forward tpck_forward_stands(struct tpck_thread *self);
/* Whether it is at the boundary, or has no place there: for other threads, which wait for nothing. */
bool tpck_forward_at_end(const struct tpck_thread *thread);
/* Whether a thread of that identity uses the device: the boundary has a place for it. */
bool tpck_forward_uses_device(uint32_t thread);
/* Whether every thread of the log stands at the boundary. */
bool tpck_forward_complete(void);
/* A thread that does not, for messages: its identity, or 0. */
uint32_t tpck_forward_late(void);
/* Whether it is this thread's turn for allocation call `number`. */
bool tpck_forward_turn(const struct tpck_thread *self, uint64_t number);
/* The iteration that the thread is in, for messages. */
uint64_t tpck_forward_iteration(const struct tpck_thread *self);
/* 0, or TPCK_BOUNDARY_*, as no iteration was found. */
int tpck_forward_by_uploads(void);
/* When the boundary was, by tpck_clock_monotonic_ns() of then, and by what CLOCK_MONOTONIC told the program. */
uint64_t tpck_forward_boundary_ns(void);
uint64_t tpck_forward_shown_ns(void);
/* Time from the first boundary to the last in the run that wrote the log: more than running forward takes. */
uint64_t tpck_forward_wall_ns(void);
const char *tpck_forward_difference(void);
/* Whether that may be otherwise at another try: addresses follow from what threads do meanwhile. */
bool tpck_forward_by_chance(void);

#endif
