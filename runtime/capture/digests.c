/* SPDX-License-Identifier: Apache-2.0 */
/* Digests of a plan's rows on the device. */
#include "config.h"

#include "runtime/capture/digests.h"

#include <errno.h>
#include <stdlib.h>

#include "runtime/base/block_digest.h"

static const struct tpck_device *device;
static _Atomic bool ready;
/* The units of a plan, in memory that the device sees; made anew for another plan. */
static uint64_t plan_serial;
static struct tpck_digest_unit *units;
static uint64_t units_address, units_room;
static uint32_t units_count;
static uint64_t sums_address, device_room; /* on the device */
static uint64_t *sums, sums_room;          /* pinned */
static tpck_event_handle done;

bool tpck_digests_ready(void)
{
	return ready;
}

/* Room for `count`: at least twice what there was, so that what lies idle is less than what is used. */
static uint64_t grown(uint64_t room, uint64_t count)
{
	return count > 2 * room ? count * 3 / 2 : 2 * room;
}

/* What is too small is never given back: freeing waits for the device, and the program's streams wait there for what this
 * thread has yet to do. */
static int make_room(uint64_t unit_count, uint64_t rows)
{
	uint64_t unused, room = grown(units_room, unit_count);
	void *host;
	int result;

	if (unit_count > units_room) {
		result = device->host_alloc(&host, &units_address, room * sizeof *units);
		if (result)
			return result;
		units = host;
		units_room = room;
	}
	room = grown(sums_room, rows);
	if (rows > sums_room) {
		result = device->host_alloc(&host, &unused, room * sizeof *sums);
		if (result)
			return result;
		sums = host;
		sums_room = room;
	}
	if (sums_room > device_room) {
		result = device->device_alloc(&sums_address, sums_room * sizeof *sums);
		if (result)
			return result;
		device_room = sums_room;
	}
	return 0;
}

static int units_make(const struct tpck_plan *plan)
{
	uint64_t count = 0;
	int result;

	for (uint32_t i = 0; i < plan->rows; i++)
		count += (plan->row[i].bytes + TPCK_DIGEST_UNIT_BYTES - 1) / TPCK_DIGEST_UNIT_BYTES;
	plan_serial = 0;
	result = count > UINT32_MAX ? -E2BIG : make_room(count ? count : 1, plan->rows ? plan->rows : 1);
	if (result)
		return result;
	units_count = 0;
	for (uint32_t i = 0; i < plan->rows; i++) {
		const struct tpck_image_row *row = &plan->row[i];

		for (uint64_t at = 0; at < row->bytes; at += TPCK_DIGEST_UNIT_BYTES) {
			uint64_t left = row->bytes - at;

			units[units_count++] = (struct tpck_digest_unit){
				row->address + at, at / 8,
				(uint32_t)(left < TPCK_DIGEST_UNIT_BYTES ? left : TPCK_DIGEST_UNIT_BYTES), i,
			};
		}
	}
	plan_serial = plan->serial;
	return 0;
}

/* Sizes of rows that have each kind of unit: less than a word, a whole unit, one with a tail, several. */
static const uint32_t twin_bytes[] = {3, 8, TPCK_DIGEST_UNIT_BYTES, 1001, 2 * TPCK_DIGEST_UNIT_BYTES + 13, 4096};
enum { TWIN_ROWS = sizeof twin_bytes / sizeof *twin_bytes, TWIN_ROOM = 4 * TPCK_DIGEST_UNIT_BYTES };

/* The kernel over bytes whose digests the CPU takes, too. A device that computes anything else would have each snapshot dropped, for ever. The memory
 * is kept: giving it back waits for the program. -EILSEQ. */
static int compare_twins(tpck_stream_handle stream)
{
	struct tpck_plan *plan = tpck_plan_new(TWIN_ROWS);
	uint64_t address, at = 0, word = TPCK_DIGEST_STEP;
	const uint64_t *got;
	void *host = NULL;
	int result = plan ? device->host_alloc(&host, &address, TWIN_ROOM) : -ENOMEM;

	if (result) {
		if (plan)
			tpck_plan_free(plan);
		return result;
	}
	for (uint64_t *w = host; w < (uint64_t *)host + TWIN_ROOM / 8; w++)
		*w = word = word * 6364136223846793005ull + 1442695040888963407ull;
	plan->rows = TWIN_ROWS;
	for (uint32_t i = 0; i < TWIN_ROWS; i++) {
		plan->row[i].address = address + at;
		plan->row[i].bytes = twin_bytes[i];
		at += tpck_plan_room(&plan->row[i]);
	}
	result = tpck_digests_queue(plan, stream);
	got = result ? NULL : tpck_digests_wait(plan, stream);
	if (!result && !got)
		result = -EIO;
	for (uint32_t i = 0; i < TWIN_ROWS && !result; i++)
		if (got[i] != tpck_block_digest((char *)host + (plan->row[i].address - address), plan->row[i].bytes))
			result = -EILSEQ;
	plan_serial = 0;
	tpck_plan_free(plan);
	return result;
}

int tpck_digests_open(const struct tpck_device *with, const char *library, const char *setting, tpck_stream_handle stream)
{
	int result = with->digest_open(library, setting);

	if (!result)
		result = with->event_create(&done);
	if (result)
		return result;
	device = with;
	result = compare_twins(stream);
	ready = !result;
	return result;
}

int tpck_digests_queue(const struct tpck_plan *plan, tpck_stream_handle stream)
{
	int result = 0;

	if (plan_serial != plan->serial)
		result = units_make(plan);
	if (!result)
		result = device->digest(units_address, units_count, sums_address, plan->rows, stream);
	if (!result && plan->rows)
		result = device->copy_from_device(sums, sums_address, plan->rows * sizeof *sums, stream);
	if (!result)
		result = device->event_record(done, stream);
	return result;
}

const uint64_t *tpck_digests_wait(const struct tpck_plan *plan, tpck_stream_handle stream)
{
	(void)stream;
	if (device->event_synchronize(done))
		return NULL;
	for (uint32_t i = 0; i < plan->rows; i++)
		sums[i] = tpck_block_digest_finish(sums[i], plan->row[i].bytes);
	return sums;
}
