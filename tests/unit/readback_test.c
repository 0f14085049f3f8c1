/* SPDX-License-Identifier: Apache-2.0 */
/* Copies to the host of which nobody says that they have arrived, over a device whose streams are done at once, or not. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/error.h"
#include "runtime/capture/readback.h"
#include "runtime/track/streams.h"
#include "tests/unit/store_tap.h"

enum { MANY = 100000, ONE = 0x1000, OTHER = 0x2000 };

static char pool[4 << 20], events[4096];
static struct tpck_error err;
static unsigned made, ended;
static bool is_recorded[4096], stuck;
static void *recorded_on[4096], *refused;

static int host_alloc(void **host, uint64_t *address, size_t bytes)
{
	*host = pool;
	*address = 0;
	return bytes == sizeof pool ? 0 : -ENOMEM;
}

static int event_create(tpck_event_handle *event, bool timed)
{
	(void)timed;
	*event = &events[made++];
	return 0;
}

static int event_destroy(tpck_event_handle event)
{
	(void)event;
	ended++;
	return 0;
}

static int event_record(tpck_event_handle event, tpck_stream_handle stream)
{
	size_t at = (size_t)((char *)event - events);

	/* An event belongs to the context of the stream that it was first used on. */
	if (refused && recorded_on[at] && recorded_on[at] != stream)
		return -EINVAL;
	recorded_on[at] = stream;
	return is_recorded[at] = true, 0;
}

static bool event_passed(tpck_event_handle event)
{
	return is_recorded[(char *)event - events] && !stuck;
}

static int copy_from_device(void *host, uint64_t address, size_t bytes, tpck_stream_handle stream)
{
	(void)stream;
	memset(host, (int)(address & 0xff), bytes);
	return 0;
}

static bool is_capturing(tpck_stream_handle stream)
{
	(void)stream;
	return false;
}

static int synchronize(void)
{
	return 0;
}

static const struct tpck_device device = {.host_alloc = host_alloc, .event_create = event_create, .event_destroy = event_destroy,
	.event_record = event_record, .event_passed = event_passed, .copy_from_device = copy_from_device, .is_capturing = is_capturing,
	.synchronize = synchronize};
static unsigned char payloads[MANY];

static int queue(unsigned i, uintptr_t handle)
{
	struct tpck_thread thread = {.id = 1};
	struct tpck_stream *stream = tpck_stream_of((tpck_stream_handle)handle, &thread); // NOLINT(performance-no-int-to-ptr)

	return tpck_readback_queue(&payloads[i], NULL, i % 251 + 1, 1, stream->handle, stream->ordinal, &payloads[i]);
}

/* Of the copies [0, count); those on their way still are taken as they are at the close. */
static bool all_came(unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (payloads[i] != i % 251 + 1)
			return false;
	return true;
}

static void begin(void)
{
	memset(payloads, 0, sizeof payloads);
	stuck = false;
	refused = NULL;
	tpck_readback_open(&device);
}

/* All but `every`-th copy on one stream; 0: all on one. Whether all went well. */
static bool many(unsigned every)
{
	int result = 0;

	begin();
	for (unsigned i = 0; i < MANY && !result; i++)
		result = queue(i, every && i % every == 0 ? OTHER : ONE);
	tpck_readback_close();
	return !result && all_came(MANY);
}

int main(void)
{
	struct tpck_thread thread = {.id = 1};
	unsigned i;
	int result = 0;

	tpck_stream_created((tpck_stream_handle)ONE, &thread);
	tpck_stream_created((tpck_stream_handle)OTHER, &thread);
	ok(many(0), "copies on one stream arrive, and make room for others");
	ok(many(2), "on two in turns");
	ok(many(MANY), "and where there is only one on the other stream");

	begin();
	result = queue(0, OTHER);
	tpck_readback_stream_ends((tpck_stream_handle)OTHER, tpck_stream_of((tpck_stream_handle)OTHER, &thread)->ordinal);
	tpck_stream_destroyed((tpck_stream_handle)OTHER);
	for (i = 1; i < MANY && !result; i++)
		result = queue(i, ONE);
	tpck_readback_close();
	ok(!result && all_came(MANY), "a stream that is gone keeps nobody");
	tpck_stream_created((tpck_stream_handle)OTHER, &thread);

	begin();
	refused = pool;
	for (result = 0, i = 0; i < MANY && !result; i++)
		result = queue(i, i / (MANY / 4) % 2 ? OTHER : ONE);
	tpck_readback_close();
	ok(!result && all_came(MANY) && ended > 0, "an event of another context is made anew");

	begin();
	stuck = true;
	for (result = 0, i = 0; i < MANY && !result; i++)
		result = queue(i, ONE);
	ok(result == -ENOSPC && i > 8000, "where nothing arrives there is an end");
	stuck = false;
	tpck_readback_close();
	ok(all_came(i - 1), "and what had room is there");
	return tap_done();
}
