/* SPDX-License-Identifier: Apache-2.0 */
/* Fences over submitted work. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/capture/fences.h"

#include <errno.h>
#include <linux/futex.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"

/* How long a thread of the program waits while nothing more is submitted: on a busy machine the copier may not run for so long. Each time that was not
 * enough the next wait is half of it, down to the least. */
#define PATIENCE_NS 50000000ull
#define PATIENCE_LEAST_NS 1000000ull

enum state { PENDING, SUBMITTED, PASSED, GIVEN_UP };

struct tpck_fences tpck_fences;
struct tpck_submit_waits tpck_submit_waits;

static const struct tpck_device *device;
static _Atomic bool closed = true;
/* By number, over and over again. */
static struct {
	_Atomic uint64_t word; /* the fence's number, and its state in the last two bits */
	tpck_event_handle event;
} parts[TPCK_FENCES][TPCK_PARTS];
static _Atomic uint32_t submissions; /* ever made; also a futex */
static _Atomic uint32_t waiting;     /* threads */
static _Atomic uint32_t given_up;    /* in a row */

static uint64_t word_of(uint32_t fence, enum state state)
{
	return (uint64_t)fence << 2 | state;
}

static bool turns(uint32_t fence, enum tpck_part part, enum state from, enum state to)
{
	uint64_t word = word_of(fence, from);

	return atomic_compare_exchange_strong(&parts[fence % TPCK_FENCES][part].word, &word, word_of(fence, to));
}

int tpck_fences_open(const struct tpck_device *with)
{
	int result = 0;

	for (int i = 0; i < TPCK_FENCES && !result; i++)
		for (int part = 0; part < TPCK_PARTS && !result; part++)
			result = with->event_create(&parts[i][part].event, true);
	if (result)
		return result;
	device = with;
	atomic_store(&closed, false);
	return 0;
}

void tpck_fences_close(void)
{
	atomic_store(&closed, true);
}

uint32_t tpck_fences_begin(bool whole)
{
	uint32_t fence = atomic_load(&tpck_fences.early) + 1;

	for (int part = 0; part < TPCK_PARTS; part++)
		atomic_store(&parts[fence % TPCK_FENCES][part].word, word_of(fence, PENDING));
	if (whole)
		atomic_store(&tpck_fences.all, fence);
	atomic_store(&tpck_fences.early, fence);
	return fence;
}

void tpck_fences_all(void)
{
	atomic_store(&tpck_fences.all, atomic_load(&tpck_fences.early));
}

/* ---- the program's side -------------------------------------------------------------------------------- */

static void sleep_until_more(uint32_t seen, uint64_t ns)
{
	struct timespec limit = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
	int saved = errno;

	atomic_fetch_add(&waiting, 1);
	tpck_sys_futex(&submissions, FUTEX_WAIT_PRIVATE, seen, &limit, NULL, 0);
	atomic_fetch_sub(&waiting, 1);
	errno = saved;
}

/* Both parts: what is not submitted of the first is not worth the second. Whether anything was. */
static bool give_up(uint32_t fence)
{
	bool any = false;

	for (int part = 0; part < TPCK_PARTS; part++)
		any = turns(fence, part, PENDING, GIVEN_UP) || any;
	return any;
}

static void note_wait(uint64_t ns)
{
	uint64_t most = atomic_load(&tpck_submit_waits.ns_max);

	atomic_fetch_add(&tpck_submit_waits.ns_sum, ns);
	atomic_fetch_add(&tpck_submit_waits.count, 1);
	while (ns > most && !atomic_compare_exchange_weak(&tpck_submit_waits.ns_max, &most, ns))
		;
}

/* The state of a part once it is submitted, or is not going to be waited for. */
static enum state settled(uint32_t fence, enum tpck_part part)
{
	uint64_t patience = PATIENCE_NS >> atomic_load(&given_up), begun = 0, since = 0;
	uint32_t seen = atomic_load(&submissions);

	if (patience < PATIENCE_LEAST_NS)
		patience = PATIENCE_LEAST_NS;
	for (;;) {
		uint64_t word = atomic_load(&parts[fence % TPCK_FENCES][part].word), now;
		uint32_t count;

		/* Another one has its place by now: it has been passed. */
		if (word >> 2 != fence)
			word = PASSED;
		if ((word & 3) != PENDING) {
			if (begun)
				note_wait(tpck_clock_monotonic_ns() - begun);
			return word & 3;
		}
		now = tpck_clock_monotonic_ns();
		begun = begun ? begun : now;
		count = atomic_load(&submissions);
		if (!since || count != seen) {
			since = now;
			seen = count;
		}
		if (now - since < patience)
			sleep_until_more(seen, patience - (now - since));
		else if (give_up(fence) && atomic_load(&given_up) < 16)
			atomic_fetch_add(&given_up, 1);
	}
}

/* The stream is noted as having it behind the call: another thread that queues something on it meanwhile puts one in, too. */
static void put(_Atomic uint32_t *has, uint32_t fence, enum tpck_part part, tpck_stream_handle handle)
{
	tpck_event_handle event = parts[fence % TPCK_FENCES][part].event;

	if (atomic_load_explicit(has, memory_order_relaxed) == fence)
		return;
	/* Where the device refuses to wait the program's thread does. */
	if (settled(fence, part) == SUBMITTED && device->stream_wait_event(handle, event)) {
		atomic_fetch_add(&tpck_submit_waits.refused, 1);
		device->event_synchronize(event);
	}
	atomic_store_explicit(has, fence, memory_order_relaxed);
}

void tpck_fence_put(struct tpck_stream *stream, tpck_stream_handle handle)
{
	if (atomic_load_explicit(&closed, memory_order_acquire))
		return;
	put(&stream->fence, atomic_load_explicit(&tpck_fences.early, memory_order_acquire), TPCK_PART_EARLY, handle);
	put(&stream->fence_all, atomic_load_explicit(&tpck_fences.all, memory_order_acquire), TPCK_PART_ALL, handle);
}

/* ---- the copier's side --------------------------------------------------------------------------------- */

void tpck_fences_progress(void)
{
	atomic_fetch_add(&submissions, 1);
	if (atomic_load(&waiting))
		tpck_sys_futex(&submissions, FUTEX_WAKE_PRIVATE, 0x7fffffff, NULL, NULL, 0);
}

int tpck_fences_submitted(uint32_t fence, enum tpck_part part, tpck_stream_handle stream)
{
	int result = device->event_record(parts[fence % TPCK_FENCES][part].event, stream);

	if (!result && !turns(fence, part, PENDING, SUBMITTED))
		result = -ECANCELED;
	tpck_fences_progress();
	return result;
}

int tpck_fences_pass(uint32_t fence, enum tpck_part part)
{
	int result = device->event_synchronize(parts[fence % TPCK_FENCES][part].event);

	if (!result && turns(fence, part, SUBMITTED, PASSED) && part == TPCK_PART_ALL)
		atomic_store(&given_up, 0);
	return result;
}

bool tpck_fences_over(uint32_t fence, enum tpck_part part)
{
	uint64_t word = atomic_load(&parts[fence % TPCK_FENCES][part].word);

	return word == word_of(fence, PASSED) ||
	       (word == word_of(fence, SUBMITTED) && device->event_passed(parts[fence % TPCK_FENCES][part].event));
}

uint64_t tpck_fences_took(uint32_t fence, enum tpck_part part, tpck_event_handle since)
{
	return device->event_elapsed(since, parts[fence % TPCK_FENCES][part].event);
}

bool tpck_fences_wanted(uint32_t fence)
{
	bool wanted = true;

	for (int part = 0; part < TPCK_PARTS; part++)
		wanted = wanted && (atomic_load(&parts[fence % TPCK_FENCES][part].word) & 3) != GIVEN_UP;
	return wanted;
}

void tpck_fences_settle(uint32_t fence)
{
	(void)give_up(fence);
	tpck_fences_progress();
}
