/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The application's threads: a stable identity for each (the same in every run that creates its
 * threads in the same order), the reentrancy guard, and the gate (doc/snapshots.md, "Boundary and gate").
 */
#ifndef TPCK_RUNTIME_TRACK_THREADS_H
#define TPCK_RUNTIME_TRACK_THREADS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/clock.h"
#include "runtime/base/lock_order.h"

enum {
	TPCK_THREADS_MAX = 512, TPCK_PENDING_OPS = 2048, TPCK_PENDING_CONTENTS = 256, TPCK_THREAD_KINDS = 16,
	TPCK_EARLY_QUERIES = 128, TPCK_LOOK_BYTES = 256,
};

/* A lock for short sections of ours, never held across a call of the application's or driver's. */
typedef _Atomic uint32_t tpck_spin;
void (tpck_spin_lock)(tpck_spin *lock);
void (tpck_spin_unlock)(tpck_spin *lock);

struct tpck_expected;
struct tpck_readings;
struct tpck_stream;

struct tpck_thread {
	/* What every call looks at, in one cache line. */
	uint32_t id;             /* stable identity; 1 is the main thread, 0 an unused slot */
	uint32_t depth;          /* > 0: inside our code, hooks pass through */
	_Atomic uint32_t inside; /* 1: between gate_enter and gate_leave */
	_Atomic uint32_t light;  /* it enters the gate without a full barrier of its own (runtime/track/barrier.h) */
	_Atomic uint32_t passing; /* it is in, or on its way into, a lock that it may own (runtime/track/bias.h) */
	_Atomic uint32_t alive;
	bool ours;               /* a thread of this library: every hook passes through */
	bool elsewhere;          /* it is in a call of another library's (NCCL), and so are threads that it starts there */
	bool launches;           /* it has launched kernels: its operations carry the iteration */
	bool launched;           /* since its last upload */
	bool at_upload;          /* its operation is the first upload behind launches */
	uint32_t room;           /* for operations in the list below; 0 before the first one */
	struct tpck_stream *stream; /* the one that it used last */
	uint64_t operations;     /* device operations so far */
	/* Device operations since the last mark in the log, and digests of uploaded bytes: the lists are below. */
	uint32_t pending, contents;
	uint64_t places;         /* where these operations read and write, as far as it is known: one digest */

	int32_t tid;             /* as the kernel names it */
	struct tpck_born {
		uint32_t kind, count;
	} born[TPCK_THREAD_KINDS]; /* threads it has created, by kind; the last one is of all others */
	uint32_t objects;        /* streams and events it has created */
	uint32_t programs;       /* children it has made that may execute a program */
	uint32_t talks, locals;  /* connections it has made to who does not belong to the job; and by Unix sockets to anybody */
	uint32_t drawn, drawn_at; /* draws of a library for its connections since the newest one; how many connections there were at the last draw */
	uint32_t others;         /* programs that it has seen end: files may be others since */
	/* Event and stream queries that said "not ready" since the last logged one, at which count of operations that was, and
	 * the last answer while running forward. */
	uint32_t not_ready, queried_at;
	int answered;
	uint64_t arena_call;     /* the arena's last call that this thread made */
	uint64_t waited_mark;    /* copies to the host that were queued when its current wait began */
	struct tpck_expected *expected; /* while running forward: what the log says of this thread */
	uint32_t early;          /* queries from before its first operation, which the log gets with that: below */
	/* Looks at clocks: what is written of them and not in the log yet (replay/looks.h). */
	struct tpck_looks {
		tpck_spin lock;              /* of its own thread, and of a boundary */
		bool begun;                  /* the log has some of this thread */
		bool runs;                   /* there is a run, below */
		uint32_t used;               /* bytes, below */
		uint32_t from, order;        /* the thread's operations at the first of these bytes; at the last look */
		uint32_t row[TPCK_CLOCKS];   /* looks at a clock in a row, at one count of operations */
		uint32_t run[TPCK_CLOCKS];   /* how many of them are not in the bytes */
		uint64_t run_before[TPCK_CLOCKS], run_last[TPCK_CLOCKS]; /* ns of the last two of these */
		uint64_t last[TPCK_CLOCKS];  /* ns of the last one in the bytes */
	} looks;
	struct tpck_readings *readings; /* replay/readings.h: what the machine told it, as far as the next one is compared; stays with the slot */
	_Atomic bool readings_pending; /* some of these are not in the log yet */
	uint64_t shown[TPCK_CLOCKS]; /* while running forward: what it was told last */
	int64_t cpu_moved;           /* ns that its own CPU clock is ahead of the kernel's for the program */
	uint32_t pending_ops[TPCK_PENDING_OPS];
	uint32_t pending_contents[TPCK_PENDING_CONTENTS];
	unsigned char look_bytes[TPCK_LOOK_BYTES];
	struct tpck_early_query {
		uint32_t not_ready;
		int32_t result;  /* < 0: none yet */
	} early_queries[TPCK_EARLY_QUERIES];
} __attribute__((aligned(64)));

/* Private: the calling thread's slot, and what finds it one. */
extern __thread struct tpck_thread *tpck_thread_slot __attribute__((tls_model("initial-exec"), visibility("hidden")));
struct tpck_thread *tpck_thread_slot_find(void);

/* The calling thread's slot; NULL when there is none left or at thread exit. */
static inline struct tpck_thread *tpck_thread_self(void)
{
	return __builtin_expect(tpck_thread_slot != NULL, 1) ? tpck_thread_slot : tpck_thread_slot_find();
}
/* The slot of the calling thread if it has one already. */
struct tpck_thread *tpck_thread_peek(void);
/* Called in a new thread, with the identity that its creator drew by tpck_thread_draw(). */
void tpck_thread_begin(uint32_t id);
void tpck_thread_end(void);
/* In the child of a fork: the threads that held locks are not there. */
void tpck_threads_forked(void);
/* kind: what tells such threads from others in every run (where their code is), or 0. One more of another kind, as a server's
 * that only some runs need, does not change who the later ones are. */
uint32_t tpck_thread_draw(uint32_t kind);
/* Marks the calling thread as one of this library's. */
void tpck_thread_own(void);
/* Starts a thread of this library's: small stack, all signals blocked, never joined. 0 or -errno. */
int tpck_thread_start(void *(*main)(void *));
/* All slots ever used; unused ones have id 0. */
struct tpck_thread *tpck_threads(uint32_t *count);

/* ---- gate ----
 * Nobody is inside while it is closed. Who enters stores `inside`, then looks at `closed`; who closes stores `closed`,
 * then looks at `inside` of every thread: at least one of two that meet must see the other, so both need a full barrier
 * between the two. Entering comes with every launch, closing once an iteration: a thread that is `light` leaves its
 * barrier to the closer (runtime/track/barrier.h), who passes the heavy one if it finds such a thread. A thread becomes
 * light outside, by an exchange, on its first way in; a closer that did not see that stored `closed` before the exchange,
 * and the thread sees it.
 */
extern _Atomic uint32_t tpck_gate_closed __attribute__((visibility("hidden")));
void tpck_gate_enter_slowly(struct tpck_thread *self);

/* Waits while the gate is closed by another thread. Never nested. */
static inline void tpck_gate_enter(struct tpck_thread *self)
{
	if (__builtin_expect(atomic_load_explicit(&self->light, memory_order_relaxed), 1)) {
		atomic_store_explicit(&self->inside, 1, memory_order_relaxed);
		atomic_signal_fence(memory_order_seq_cst);
		if (__builtin_expect(!atomic_load_explicit(&tpck_gate_closed, memory_order_acquire), 1))
			return;
	}
	tpck_gate_enter_slowly(self);
}

static inline void tpck_gate_leave(struct tpck_thread *self)
{
	atomic_store_explicit(&self->inside, 0, memory_order_release);
}

/* Closes the gate and waits at most limit_ns until no other thread is inside; false: it is open
 * again and somebody was, or may have been. The caller is not inside. */
bool tpck_gate_close(const struct tpck_thread *self, uint64_t limit_ns);
void tpck_gate_open(void);

/* A heavy barrier, unless no other thread relies on one. False: it was refused. */
bool tpck_threads_barrier(const struct tpck_thread *self);

#endif
