/* SPDX-License-Identifier: Apache-2.0 */
/* The application's threads: identity, guard, gate. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/track/threads.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/layout.h"
#include "runtime/track/barrier.h"

/* On a page of its own: the first one's head is on one page then, whatever lies before it. */
static struct tpck_thread slots[TPCK_THREADS_MAX] TPCK_LARGE_USED __attribute__((aligned(4096)));
static _Atomic uint32_t slots_used;
static tpck_spin slots_lock;
__thread struct tpck_thread *tpck_thread_slot;
static __thread bool ended __attribute__((tls_model("initial-exec")));

_Atomic uint32_t tpck_gate_closed;

static uint32_t mix(uint32_t a, uint32_t b)
{
	uint64_t x = ((uint64_t)a << 32 | b) * 0x9e3779b97f4a7c15ull;

	x ^= x >> 29;
	x *= 0xbf58476d1ce4e5b9ull;
	x ^= x >> 32;
	return (uint32_t)x > 1 ? (uint32_t)x : 2;
}

TPCK_AT_START void (tpck_spin_lock)(tpck_spin *lock)
{
	for (unsigned spins = 0; atomic_exchange_explicit(lock, 1, memory_order_acquire); spins++)
		if (spins > 100)
			sched_yield();
}

TPCK_AT_START void (tpck_spin_unlock)(tpck_spin *lock)
{
	atomic_store_explicit(lock, 0, memory_order_release);
}

static TPCK_AT_START struct tpck_thread *slot_take(uint32_t id, pid_t tid)
{
	struct tpck_thread *taken = NULL;

	tpck_spin_lock(&slots_lock);
	for (uint32_t i = 0; i < slots_used && !taken; i++)
		if (!atomic_load(&slots[i].alive) && !slots[i].pending && !slots[i].not_ready && !slots[i].looks.used && !slots[i].looks.runs &&
		    !atomic_load(&slots[i].readings_pending))
			taken = &slots[i];
	if (!taken && slots_used < TPCK_THREADS_MAX)
		taken = &slots[slots_used++];
	if (taken) {
		struct tpck_readings *readings = taken->readings;

		memset(taken, 0, offsetof(struct tpck_thread, pending_ops));
		taken->readings = readings;
		taken->id = id;
		taken->tid = tid;
		atomic_store(&taken->alive, 1);
	}
	tpck_spin_unlock(&slots_lock);
	return taken;
}

TPCK_AT_START struct tpck_thread *tpck_thread_peek(void)
{
	return tpck_thread_slot;
}

TPCK_AT_START struct tpck_thread *tpck_thread_slot_find(void)
{
	if (!tpck_thread_slot && !ended) {
		/* A thread that nobody drew an identity for: the main thread, or one made by clone(). */
		pid_t tid = tpck_sys_gettid();

		tpck_thread_slot = slot_take(tid == getpid() ? 1 : mix((uint32_t)tid, 0x636c6f6e), tid);
	}
	return tpck_thread_slot;
}

void tpck_thread_begin(uint32_t id)
{
	tpck_thread_slot = slot_take(id, tpck_sys_gettid());
}

void tpck_threads_forked(void)
{
	tpck_spin_unlock(&slots_lock);
}

void tpck_thread_end(void)
{
	struct tpck_thread *self = tpck_thread_slot;

	ended = true;
	tpck_thread_slot = NULL;
	if (!self)
		return;
	atomic_store(&self->light, 0);
	atomic_store(&self->alive, 0);
}

uint32_t tpck_thread_draw(uint32_t kind)
{
	struct tpck_thread *creator = tpck_thread_self();
	struct tpck_born *born;

	if (!creator)
		return 2;
	for (born = creator->born; born < &creator->born[TPCK_THREAD_KINDS - 1] && born->count; born++)
		if (born->kind == kind)
			break;
	if (!born->count)
		born->kind = born == &creator->born[TPCK_THREAD_KINDS - 1] ? 0 : kind;
	return mix(mix(creator->id, born->kind), ++born->count);
}

void tpck_thread_own(void)
{
	struct tpck_thread *thread = tpck_thread_self();

	if (thread) {
		thread->ours = true;
		thread->depth = 1;
	}
}

int tpck_thread_start(void *(*main)(void *))
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;
	int result;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 256 << 10);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	result = -pthread_create(&thread, &attributes, main, NULL);
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return result;
}

struct tpck_thread *tpck_threads(uint32_t *count)
{
	*count = atomic_load(&slots_used);
	return slots;
}

static void futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t limit_ns)
{
	struct timespec limit = {(time_t)(limit_ns / 1000000000u), (long)(limit_ns % 1000000000u)};
	int saved = errno;

	tpck_sys_futex(word, FUTEX_WAIT_PRIVATE, value, &limit, NULL, 0);
	errno = saved;
}

void tpck_gate_enter_slowly(struct tpck_thread *self)
{
	atomic_store(&self->inside, 0);
	if (tpck_barrier_there())
		atomic_exchange(&self->light, 1);
	for (;;) {
		atomic_exchange(&self->inside, 1);
		if (!atomic_load(&tpck_gate_closed))
			return;
		atomic_store(&self->inside, 0);
		futex_wait(&tpck_gate_closed, 1, 1000000);
	}
}

bool tpck_threads_barrier(const struct tpck_thread *self)
{
	uint32_t used = atomic_load(&slots_used);

	for (uint32_t i = 0; i < used; i++)
		if (&slots[i] != self && atomic_load(&slots[i].light))
			return tpck_barrier_heavy();
	return true;
}

bool tpck_gate_close(const struct tpck_thread *closer, uint64_t limit_ns)
{
	uint64_t begun;
	uint32_t used;

	if (atomic_exchange(&tpck_gate_closed, 1))
		return false;
	if (!tpck_threads_barrier(closer)) {
		tpck_gate_open();
		return false;
	}
	used = atomic_load(&slots_used);
	begun = tpck_clock_monotonic_ns();
	for (uint32_t i = 0; i < used; i++) {
		if (&slots[i] == closer)
			continue;
		while (atomic_load(&slots[i].inside)) {
			if (tpck_clock_monotonic_ns() - begun > limit_ns) {
				tpck_gate_open();
				return false;
			}
			sched_yield();
		}
	}
	return true;
}

void tpck_gate_open(void)
{
	atomic_store(&tpck_gate_closed, 0);
	tpck_sys_futex(&tpck_gate_closed, FUTEX_WAKE_PRIVATE, 0x7fffffff, NULL, NULL, 0);
}
