/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The application's threads: a stable identity for each (the same in every run that creates its
 * threads in the same order), the reentrancy guard, and the gate (DESIGN 5, boundary gate).
 */
#ifndef TPCK_RUNTIME_TRACK_THREADS_H
#define TPCK_RUNTIME_TRACK_THREADS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { TPCK_THREADS_MAX = 512, TPCK_PENDING_OPS = 2048, TPCK_PENDING_CONTENTS = 256 };

struct tpck_expected;

struct tpck_thread {
	uint32_t id;             /* stable identity; 1 is the main thread, 0 an unused slot */
	uint32_t children;       /* threads it has created */
	uint32_t objects;        /* streams and events it has created */
	uint32_t depth;          /* > 0: inside our code, hooks pass through */
	_Atomic uint32_t inside; /* 1: between gate_enter and gate_leave */
	_Atomic uint32_t alive;
	bool ours;               /* a thread of this library: every hook passes through */
	bool launches;           /* it has launched kernels: its operations carry the iteration */
	uint64_t operations;     /* device operations so far */
	/* Device operations since the last mark in the log, and digests of uploaded bytes. */
	uint32_t pending, contents;
	uint32_t pending_ops[TPCK_PENDING_OPS];
	uint32_t pending_contents[TPCK_PENDING_CONTENTS];
	/* Event and stream queries that said "not ready" since the last logged one. */
	uint32_t not_ready;
	uint64_t waited_mark;    /* copies to the host that were queued when its current wait began */
	struct tpck_expected *expected; /* while running forward: what the log says of this thread */
};

/* The calling thread's slot; NULL when there is none left or at thread exit. */
struct tpck_thread *tpck_thread_self(void);
/* The slot of the calling thread if it has one already. */
struct tpck_thread *tpck_thread_peek(void);
/* Called in a new thread, with the identity that its creator drew by tpck_thread_draw(). */
void tpck_thread_begin(uint32_t id);
void tpck_thread_end(void);
uint32_t tpck_thread_draw(void);
/* Marks the calling thread as one of this library's. */
void tpck_thread_own(void);
/* Starts a thread of this library's: small stack, all signals blocked, never joined. 0 or -errno. */
int tpck_thread_start(void *(*main)(void *));
/* All slots ever used; unused ones have id 0. */
struct tpck_thread *tpck_threads(uint32_t *count);

/* ---- gate ---- */
/* Waits while the gate is closed by another thread. Never nested. */
void tpck_gate_enter(struct tpck_thread *self);
void tpck_gate_leave(struct tpck_thread *self);
/* Closes the gate and waits at most limit_ns until no other thread is inside; false: it is open
 * again and somebody was. The caller is not inside. */
bool tpck_gate_close(const struct tpck_thread *self, uint64_t limit_ns);
void tpck_gate_open(void);

/* ---- a lock for short sections of ours, never held across a call of the application's or driver's ---- */
typedef _Atomic uint32_t tpck_spin;
void tpck_spin_lock(tpck_spin *lock);
void tpck_spin_unlock(tpck_spin *lock);

#endif
