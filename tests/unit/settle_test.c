/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that launches after another one goes on when that rests, and does not wait for one that never does. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/track/settle.h"
#include "tests/unit/store_tap.h"

enum { ROUNDS = 200, CHANGES = 3000, LIMIT_NS = 1000000, LONG_NS = 2000000000 };

static sem_t begin, launched;
static _Atomic uint64_t leftover; /* what the other thread does after its last launch */
static _Atomic bool spins, ends;

static void work(void)
{
	static _Atomic unsigned sink;

	for (int i = 0; i < 20000; i++)
		atomic_fetch_add_explicit(&sink, 1, memory_order_relaxed);
}

static void *other_main(void *argument)
{
	struct tpck_thread *self;

	tpck_thread_begin(2);
	self = tpck_thread_self();
	*(struct tpck_thread **)argument = self;
	sem_post(&launched);
	for (;;) {
		sem_wait(&begin);
		if (atomic_load(&ends))
			break;
		tpck_settle(self, LIMIT_NS, true);
		sem_post(&launched);
		work();
		atomic_fetch_add(&leftover, 1);
		while (atomic_load(&spins))
			;
	}
	tpck_thread_end();
	return NULL;
}

int main(void)
{
	struct tpck_thread *self = tpck_thread_self(), *other = NULL;
	unsigned late = 0, late_without = 0;
	uint64_t begun, waited = 0;
	pthread_t thread;

	sem_init(&begin, 0, 0);
	sem_init(&launched, 0, 0);
	pthread_create(&thread, NULL, other_main, &other);
	sem_wait(&launched);
	for (unsigned i = 1; i <= ROUNDS; i++) {
		sem_post(&begin);
		sem_wait(&launched);
		errno = 77;
		tpck_settle(self, LONG_NS, true);
		late += atomic_load(&leftover) != i || errno != 77;
	}
	printf("# %u of %d times it had not\n", late, ROUNDS);
	tap_ok(late == 0, "when it goes on the other one has done what it had left to do", "");
	for (unsigned i = ROUNDS + 1; i <= 2 * ROUNDS; i++) {
		sem_post(&begin);
		sem_wait(&launched);
		late_without += atomic_load(&leftover) != i;
		tpck_settle(self, LONG_NS, true);
	}
	tap_ok(late_without > 0, "which it does not have without the wait", "");

	atomic_store(&spins, true);
	sem_post(&begin);
	sem_wait(&launched);
	begun = tpck_clock_monotonic_ns();
	for (int i = 0; i < CHANGES; i++) {
		uint64_t at = tpck_clock_monotonic_ns();

		atomic_store(&tpck_settle_last, other);
		tpck_settle(self, LIMIT_NS, false);
		waited += tpck_clock_monotonic_ns() - at > LIMIT_NS / 2;
	}
	printf("# waited %llu of %d times\n", (unsigned long long)waited, CHANGES);
	tap_ok(waited >= 1 && waited < CHANGES / 10, "one that never rests is waited for more and more seldom", "");
	atomic_store(&spins, false);
	atomic_store(&tpck_settle_last, other);
	atomic_store(&ends, true);
	sem_post(&begin);
	pthread_join(thread, NULL);
	begun = tpck_clock_monotonic_ns();
	tpck_settle(self, LONG_NS, true);
	tap_ok(tpck_clock_monotonic_ns() - begun < LONG_NS / 2, "one that has ended is not waited for", "");
	return tap_done();
}
