/* SPDX-License-Identifier: Apache-2.0 */
/* The application's threads: identities that repeat, slots that come back, and a gate that nobody is inside of
 * while it is closed. Clean under ThreadSanitizer. */
#include "config.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/track/barrier.h"
#include "runtime/track/bias.h"
#include "runtime/track/threads.h"
#include "tests/unit/store_tap.h"

#define is_true(good) tap_ok(good, #good, "")

enum { WORKERS = 2, CLOSINGS = 4000, LOOKS = 20, INTRUSIONS = 10000, COLD = 1 << 19, MANY = TPCK_THREADS_MAX + 20 };

struct child {
	pthread_t thread;
	uint32_t id, seen;
	void *slot;
};

/* As the hook of pthread_create does it. */
static void *child_main(void *argument)
{
	struct child *child = argument;
	struct tpck_thread *self;

	tpck_thread_begin(child->id);
	self = tpck_thread_self();
	child->seen = self ? self->id : 0;
	child->slot = self;
	tpck_thread_end();
	if (tpck_thread_self())
		child->seen = 1; /* an ended thread must stay without a slot */
	return NULL;
}

static void *grandparent_main(void *argument)
{
	struct child *child = argument;

	tpck_thread_begin(child->id);
	child->seen = tpck_thread_draw(7);
	tpck_thread_end();
	return NULL;
}

static void test_identities(void)
{
	struct child children[64];
	bool good = true, distinct = true, reused = true;
	uint32_t count;

	is_true(tpck_thread_peek() == NULL);
	is_true(tpck_thread_self() && tpck_thread_self()->id == 1 && tpck_thread_peek() == tpck_thread_self());
	for (int i = 0; i < 64; i++) {
		children[i].id = tpck_thread_draw(7);
		pthread_create(&children[i].thread, NULL, child_main, &children[i]);
		pthread_join(children[i].thread, NULL);
		good &= children[i].seen == children[i].id && children[i].id > 1;
		reused &= children[i].slot == children[0].slot;
		for (int j = 0; j < i; j++)
			distinct &= children[i].id != children[j].id;
	}
	tap_ok(good, "a thread has the identity that its creator drew", "");
	tap_ok(distinct, "no two have the same", "");
	tap_ok(reused, "a slot comes back when its thread has ended", "");
	tpck_threads(&count);
	is_true(count == 2);
	/* The same creation gives the same identities: the main thread's count begins again. */
	memset(tpck_thread_self()->born, 0, sizeof tpck_thread_self()->born);
	for (int i = 0; i < 64; i++)
		good &= tpck_thread_draw(7) == children[i].id;
	tap_ok(good, "the same order of creation gives the same identities", "");
	memset(tpck_thread_self()->born, 0, sizeof tpck_thread_self()->born);
	for (int i = 0; i < 64; i++) {
		distinct &= tpck_thread_draw(8) != children[i].id;
		good &= tpck_thread_draw(7) == children[i].id;
	}
	tap_ok(good && distinct, "whatever threads of another kind there are between them", "");
	for (uint32_t kind = 100; kind < 164; kind++)
		for (int j = 0; j < 2; j++)
			for (int i = 0; i < 64; i++)
				distinct &= tpck_thread_draw(kind) != children[i].id;
	tap_ok(distinct, "more kinds than are told apart", "");
	for (int i = 0; i < 2; i++) {
		pthread_create(&children[i].thread, NULL, grandparent_main, &children[i]);
		pthread_join(children[i].thread, NULL);
	}
	tap_ok(children[0].seen != children[1].seen && children[0].seen != children[0].id, "children of children too", "");
}

/* ---- more threads than slots ---- */

static pthread_barrier_t all_there;
static _Atomic int with_slot, without_slot;

static void *crowd_main(void *unused)
{
	(void)unused;
	tpck_thread_begin(5);
	atomic_fetch_add(tpck_thread_self() ? &with_slot : &without_slot, 1);
	pthread_barrier_wait(&all_there);
	tpck_thread_end();
	return NULL;
}

static void test_crowd(void)
{
	static pthread_t crowd[MANY];
	pthread_attr_t small;
	int made = 0;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 << 10);
	pthread_barrier_init(&all_there, NULL, MANY + 1);
	for (; made < MANY; made++)
		if (pthread_create(&crowd[made], &small, crowd_main, NULL))
			break;
	if (made < MANY) {
		printf("Bail out! this machine does not allow %d threads\n", MANY);
		_exit(99);
	}
	pthread_barrier_wait(&all_there);
	for (int i = 0; i < MANY; i++)
		pthread_join(crowd[i], NULL);
	is_true(with_slot == TPCK_THREADS_MAX - 1 && without_slot == MANY - with_slot);
	with_slot = without_slot = 0;
	pthread_barrier_destroy(&all_there);
	pthread_barrier_init(&all_there, NULL, 2);
	pthread_create(&crowd[0], &small, crowd_main, NULL);
	pthread_barrier_wait(&all_there);
	pthread_join(crowd[0], NULL);
	is_true(with_slot == 1);
	pthread_attr_destroy(&small);
}

/* ---- the gate ---- */

static _Atomic bool stop;
static _Atomic int light; /* workers that enter without a full barrier */
static _Atomic uint64_t passes[WORKERS];
/* Stores that miss every cache keep the next ones from being seen for long: what a missing barrier lets through. */
static uint64_t cold[WORKERS][COLD];

static void store_slowly(uintptr_t number, uint64_t *random)
{
	for (int i = 0; i < 4; i++) {
		*random = *random * 6364136223846793005ull + 1442695040888963407ull;
		cold[number][*random >> 45] = *random;
	}
}

/* Takes a while, without a barrier. */
static void load_slowly(uintptr_t number, uint64_t *random)
{
	for (int i = 0; i < 10; i++)
		*random = *random * 6364136223846793005ull + cold[number][*random >> 45];
}

static uint64_t guarded; /* written by whoever closed the gate, read inside it: never at once */
static _Atomic uint64_t changed; /* somebody inside saw it change */

static void *worker_main(void *argument)
{
	uintptr_t number = (uintptr_t)argument;
	struct tpck_thread *self;
	uint64_t sum = 0, random = number;

	tpck_thread_begin((uint32_t)number + 10);
	self = tpck_thread_self();
	while (!atomic_load(&stop)) {
		store_slowly(number, &random);
		tpck_gate_enter(self);
		sum = guarded;
		load_slowly(number, &random);
		if (*(volatile uint64_t *)&guarded != sum)
			atomic_fetch_add(&changed, 1);
		tpck_gate_leave(self);
		atomic_store_explicit(&passes[number], passes[number] + 1, memory_order_relaxed);
	}
	atomic_fetch_add(&light, (int)self->light);
	tpck_thread_end();
	return NULL;
}

static void test_gate(bool with_barrier)
{
	pthread_t workers[WORKERS];
	int closed = 0, tries = 0;
	bool moved = true;
	uint64_t before[WORKERS], limit;

	if (with_barrier && !tpck_barrier_open()) {
		tap_ok(true, "the light gate # SKIP this kernel refuses membarrier()", "");
		return;
	}
	atomic_store(&stop, false);
	atomic_store(&light, 0);
	for (uintptr_t i = 0; i < WORKERS; i++)
		pthread_create(&workers[i], NULL, worker_main, (void *)i);
	for (; closed < CLOSINGS && tries < 100 * CLOSINGS; tries++) {
		if (!tpck_gate_close(tpck_thread_self(), 100000000))
			continue;
		closed++;
		for (int look = 0; look < LOOKS; look++) {
			guarded++;
			for (volatile int pause = 0; pause < 100; pause++)
				;
		}
		tpck_gate_open();
	}
	is_true(closed == CLOSINGS);
	tap_ok(changed == 0, "nobody is inside while the gate is closed", "");
	for (int i = 0; i < WORKERS; i++)
		before[i] = atomic_load(&passes[i]);
	limit = tpck_clock_monotonic_ns() + 10000000000ull;
	for (int i = 0; i < WORKERS; i++) {
		while (atomic_load(&passes[i]) == before[i] && tpck_clock_monotonic_ns() < limit)
			usleep(100);
		moved &= atomic_load(&passes[i]) > before[i];
	}
	tap_ok(moved, "everybody goes on once it is open", "");
	atomic_store(&stop, true);
	for (int i = 0; i < WORKERS; i++)
		pthread_join(workers[i], NULL);
	is_true(light == (with_barrier ? WORKERS : 0));
}

static _Atomic int entered, leave;

static void *lingerer_main(void *unused)
{
	struct tpck_thread *self;

	(void)unused;
	tpck_thread_begin(77);
	self = tpck_thread_self();
	tpck_gate_enter(self);
	atomic_store(&entered, 1);
	while (!atomic_load(&leave))
		usleep(100);
	tpck_gate_leave(self);
	tpck_thread_end();
	return NULL;
}

static void *closer_main(void *result)
{
	*(bool *)result = tpck_gate_close(NULL, 0);
	return NULL;
}

static void test_gate_limit(void)
{
	pthread_t thread, closer;
	uint64_t begun, took;
	bool second = true;

	pthread_create(&thread, NULL, lingerer_main, NULL);
	while (!atomic_load(&entered))
		usleep(100);
	begun = tpck_clock_monotonic_ns();
	is_true(!tpck_gate_close(tpck_thread_self(), 2000000));
	took = tpck_clock_monotonic_ns() - begun;
	tap_ok(took >= 2000000 && took < 2000000000, "somebody inside: it gives up at the limit", "");
	/* And is open again. */
	tpck_gate_enter(tpck_thread_self());
	tpck_gate_leave(tpck_thread_self());
	atomic_store(&leave, 1);
	pthread_join(thread, NULL);
	is_true(tpck_gate_close(tpck_thread_self(), 1000000000));
	pthread_create(&closer, NULL, closer_main, &second);
	pthread_join(closer, NULL);
	tap_ok(!second, "two cannot close it", "");
	tpck_gate_open();
}

/* ---- the lock ---- */

static tpck_spin lock;
static uint64_t counted;

static void *count_main(void *unused)
{
	(void)unused;
	for (int i = 0; i < 20000; i++) {
		tpck_spin_lock(&lock);
		counted++;
		tpck_spin_unlock(&lock);
	}
	return NULL;
}

static void test_lock(void)
{
	pthread_t threads[WORKERS];

	for (int i = 0; i < WORKERS; i++)
		pthread_create(&threads[i], NULL, count_main, NULL);
	for (int i = 0; i < WORKERS; i++)
		pthread_join(threads[i], NULL);
	is_true(counted == WORKERS * 20000);
}

/* ---- the lock that leans ---- */

static struct tpck_bias bias;
static uint64_t leaned;
static _Atomic int owned;

/* Passes all the time. */
static void *owner_main(void *unused)
{
	struct tpck_thread *self;
	uint64_t random = 1, passed = 0, was;

	(void)unused;
	tpck_thread_begin(30);
	self = tpck_thread_self();
	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		store_slowly(0, &random);
		if (!tpck_bias_lock(&bias, self))
			break;
		was = leaned;
		load_slowly(0, &random);
		leaned = was + 1;
		tpck_bias_unlock(&bias, self);
		passed++;
		if (atomic_load_explicit(&bias.owner, memory_order_relaxed) == self)
			owned++;
	}
	tpck_thread_end();
	return (void *)(uintptr_t)passed;
}

static void test_bias(void)
{
	struct tpck_thread *self = tpck_thread_self();
	int intrusions = 0, taken = 0;
	uint64_t before;
	pthread_t owner;
	void *passed;

	if (!tpck_barrier_there())
		return;
	for (int i = 0; i < TPCK_BIAS_NEEDED; i++) {
		tpck_bias_lock(&bias, self);
		tpck_bias_unlock(&bias, self);
	}
	is_true(bias.owner == NULL);
	tpck_bias_lock(&bias, self);
	tpck_bias_unlock(&bias, self);
	tap_ok(bias.owner == self && !bias.lock, "who takes it many times in a row owns it", "");
	tpck_bias_lock(&bias, self);
	tap_ok(!bias.lock, "and passes without the lock", "");
	tpck_bias_unlock(&bias, self);
	atomic_store(&stop, false);
	pthread_create(&owner, NULL, owner_main, NULL);
	while (bias.owner == self)
		sched_yield();
	for (; intrusions < INTRUSIONS; intrusions++) {
		uint64_t until = tpck_clock_monotonic_ns() + 1000000000u;

		/* Given again after a few takings, so that there is always something to take away. */
		while (!bias.owner && tpck_clock_monotonic_ns() < until)
			;
		for (volatile int pause = intrusions % 3000; pause > 0; pause--)
			;
		taken += bias.owner && bias.owner != self;
		if (!tpck_bias_lock(&bias, self))
			break;
		leaned++;
		bias.needed = 2;
		tpck_bias_unlock(&bias, self);
	}
	tpck_bias_lock(&bias, self);
	bias.needed = 2;
	before = bias.needed;
	tpck_bias_unlock(&bias, self);
	while (bias.owner == NULL)
		sched_yield();
	tpck_bias_lock(&bias, self);
	tap_ok(bias.needed == 4 * before, "taken away, it is given less readily", "");
	tpck_bias_unlock(&bias, self);
	atomic_store(&stop, true);
	pthread_join(owner, &passed);
	tap_ok(leaned == (uint64_t)intrusions + (uint64_t)(uintptr_t)passed, "one at a time, whoever owns it", "");
	is_true(intrusions == INTRUSIONS && taken > INTRUSIONS / 2);
	printf("# %d passes, %d by the owner, %d times taken away\n", (int)(uintptr_t)passed, owned, taken);
}

int main(void)
{
	test_identities();
	test_lock();
	test_gate(false);
	test_gate(true);
	test_bias();
	test_gate_limit();
	test_crowd();
	return tap_done();
}
