/* SPDX-License-Identifier: Apache-2.0 */
/* A stream waits for what has been submitted, and for nothing else; who comes before waits for the submission, for as long as anything is submitted; what
 * is given up is given up for all. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/capture/fences.h"
#include "tests/unit/store_tap.h"

enum { EVENTS = TPCK_FENCES * TPCK_PARTS };

static struct { char text[1]; } err;
static char events[EVENTS];
static int made;
static _Atomic int recorded[EVENTS], waited[EVENTS], synchronized[EVENTS];
static bool refuses;

static int create(tpck_event_handle *event, bool timed)
{
	(void)timed;
	*event = &events[made++];
	return 0;
}

static int of(tpck_event_handle event)
{
	return (int)((char *)event - events);
}

static int record(tpck_event_handle event, tpck_stream_handle stream)
{
	(void)stream;
	recorded[of(event)]++;
	return 0;
}

static int wait_event(tpck_stream_handle stream, tpck_event_handle event)
{
	(void)stream;
	waited[of(event)]++;
	return refuses ? -EIO : 0;
}

static int synchronize(tpck_event_handle event)
{
	synchronized[of(event)]++;
	return 0;
}

static bool passed(tpck_event_handle event)
{
	return recorded[of(event)] > 0;
}

static const struct tpck_device device = {
	.event_create = create, .event_record = record, .stream_wait_event = wait_event, .event_synchronize = synchronize, .event_passed = passed,
};

static int sum(const _Atomic int *counts)
{
	int all = 0;

	for (int i = 0; i < EVENTS; i++)
		all += counts[i];
	return all;
}

static double put(struct tpck_stream *stream)
{
	uint64_t begun = tpck_clock_monotonic_ns();

	tpck_fence(stream, stream);
	return (double)(tpck_clock_monotonic_ns() - begun) / 1e6;
}

/* The least that it takes on any of some streams that are new: a busy machine may hold up one. */
static double put_least(void)
{
	double least = 1e9;

	for (int i = 0; i < 5; i++) {
		struct tpck_stream stream = {0};
		double took = put(&stream);

		least = took < least ? took : least;
	}
	return least;
}

static void *put_too(void *stream)
{
	put(stream);
	return NULL;
}

static void *submit_slowly(void *number)
{
	uint32_t fence = *(uint32_t *)number;

	/* Longer than anybody waits for nothing. */
	for (int i = 0; i < 20; i++) {
		usleep(10000);
		tpck_fences_progress();
	}
	tpck_fences_submitted(fence, TPCK_PART_EARLY, NULL);
	return NULL;
}

int main(void)
{
	struct tpck_stream stream = {0}, other = {0}, third = {0};
	uint32_t fence;
	pthread_t thread;
	double first, least = 1e9;
	int before;

	ok(!tpck_fences_open(&device) && made == EVENTS, "each fence has an event a part");
	put(&stream);
	ok(sum(waited) == 0, "before there is a snapshot no stream waits");

	fence = tpck_fences_begin(false);
	ok(!tpck_fences_submitted(fence, TPCK_PART_EARLY, NULL) && tpck_fences_over(fence, TPCK_PART_EARLY) && !tpck_fences_over(fence, TPCK_PART_ALL),
	   "the first part is submitted");
	put(&stream);
	ok(waited[fence % TPCK_FENCES * 2] == 1 && sum(waited) == 1, "a stream waits for it");
	put(&stream);
	ok(sum(waited) == 1, "once");
	ok(!tpck_fences_submitted(fence, TPCK_PART_ALL, NULL), "the rest is submitted");
	put(&stream);
	ok(sum(waited) == 1, "for which no stream waits yet");
	tpck_fences_all();
	put(&stream);
	ok(waited[fence % TPCK_FENCES * 2 + 1] == 1 && sum(waited) == 2, "but before the optimizer does");
	put(&other);
	ok(sum(waited) == 4, "another stream waits for both");
	ok(!tpck_fences_pass(fence, TPCK_PART_EARLY) && !tpck_fences_pass(fence, TPCK_PART_ALL) && tpck_fences_wanted(fence), "the device passes both");
	put(&third);
	ok(sum(waited) == 4, "and no stream waits any more");

	fence = tpck_fences_begin(true);
	refuses = true;
	tpck_fences_submitted(fence, TPCK_PART_EARLY, NULL);
	tpck_fences_submitted(fence, TPCK_PART_ALL, NULL);
	put(&third);
	ok(sum(synchronized) == 4 && synchronized[fence % TPCK_FENCES * 2] == 1 && synchronized[fence % TPCK_FENCES * 2 + 1] == 1,
	   "where the device refuses to wait the thread waits for the same");
	ok(tpck_submit_waits.refused == 2, "and it is counted");
	refuses = false;

	fence = tpck_fences_begin(false);
	pthread_create(&thread, NULL, submit_slowly, &fence);
	first = put(&stream);
	pthread_join(thread, NULL);
	ok(tpck_fences_wanted(fence) && waited[fence % TPCK_FENCES * 2] == 1 && first >= 100, "as long as something is submitted its end is waited for");

	fence = tpck_fences_begin(false);
	pthread_create(&thread, NULL, put_too, &other);
	first = put(&stream);
	pthread_join(thread, NULL);
	ok(!tpck_fences_wanted(fence) && first >= 1, "where nothing is it is given up");
	ok(tpck_fences_submitted(fence, TPCK_PART_EARLY, NULL) == -ECANCELED, "who submits it later hears that");
	tpck_fences_all();
	ok(put_least() < first / 2, "and nobody waits for its other part");
	for (int i = 0; i < 10; i++) {
		double took;

		fence = tpck_fences_begin(false);
		took = put(&stream);
		least = i > 5 && took < least ? took : least;
	}
	ok(least < first && least >= 1, "after several that were given up in a row the program waits less");
	fence = tpck_fences_begin(true);
	tpck_fences_settle(fence);
	before = sum(waited);
	ok(!tpck_fences_wanted(fence) && put_least() < 1 && sum(waited) == before, "what could not be submitted holds nobody up");
	fence = tpck_fences_begin(true);
	tpck_fences_submitted(fence, TPCK_PART_EARLY, NULL);
	tpck_fences_submitted(fence, TPCK_PART_ALL, NULL);
	tpck_fences_close();
	ok(put_least() < 1 && sum(waited) == before, "behind the context's end there are no fences");
	return tap_done();
}
