/* SPDX-License-Identifier: Apache-2.0 */
/* Digests of a plan's rows on the device. */
#include "config.h"

#include "runtime/capture/digests.h"

#include <errno.h>
#include <stdlib.h>

#include "runtime/base/block_digest.h"
#include "runtime/capture/fences.h"

static const struct tpck_device *device;
static _Atomic bool ready;
/* The units of two plans, in memory that the device sees. One is made anew for a third plan, once the device has passed what read it. */
static struct table {
	struct tpck_digest_unit *units;
	uint64_t address, room, serial;
	uint32_t count;
	tpck_event_handle read; /* behind the last kernel that reads it */
} tables[2], *table = tables;
static uint64_t sums_address, device_room; /* on the device */
/* Pinned, and one for each fence under way: the next kernel may be through before the last one's sums are looked at. */
static struct {
	uint64_t *sums, room;
} hosts[TPCK_FENCES];

bool tpck_digests_ready(void)
{
	return ready;
}

/* Room for `count`: at least twice what there was, so that what lies idle is less than what is used. */
static uint64_t grown(uint64_t room, uint64_t count)
{
	return count > 2 * room ? count * 3 / 2 : 2 * room;
}

/* What is too small is never given back: freeing waits for the device, and the program's streams may have much to do until then. */
static int make_pinned(void **host, uint64_t *address, uint64_t *room, uint64_t count, size_t size)
{
	uint64_t more = grown(*room, count);
	int result;

	if (count <= *room)
		return 0;
	result = device->host_alloc(host, address, more * size);
	if (!result)
		*room = more;
	return result;
}

static int make_sums(uint32_t slot, uint64_t rows)
{
	uint64_t unused;
	void *host = hosts[slot].sums;
	int result = make_pinned(&host, &unused, &hosts[slot].room, rows, sizeof *hosts->sums);

	hosts[slot].sums = host;
	if (result || hosts[slot].room <= device_room)
		return result;
	result = device->device_alloc(&sums_address, hosts[slot].room * sizeof *hosts->sums);
	if (!result)
		device_room = hosts[slot].room;
	return result;
}

/* Nothing is asked of what has no data. */
static uint64_t units_bytes(const struct tpck_image_row *row)
{
	return row->class_ == TPCK_CLASS_DEAD ? 0 : row->bytes;
}

static int table_make(const struct tpck_plan *plan)
{
	uint64_t count = 0;
	void *host;
	int result;

	table = table == tables ? tables + 1 : tables;
	table->serial = 0;
	for (uint32_t i = 0; i < plan->rows; i++)
		count += (units_bytes(&plan->row[i]) + TPCK_DIGEST_UNIT_BYTES - 1) / TPCK_DIGEST_UNIT_BYTES;
	if (count > UINT32_MAX)
		return -E2BIG;
	result = device->event_synchronize(table->read);
	host = table->units;
	if (!result)
		result = make_pinned(&host, &table->address, &table->room, count ? count : 1, sizeof *table->units);
	table->units = host;
	if (result)
		return result;
	table->count = 0;
	for (uint32_t i = 0; i < plan->rows; i++) {
		const struct tpck_image_row *row = &plan->row[i];

		for (uint64_t at = 0; at < units_bytes(row); at += TPCK_DIGEST_UNIT_BYTES) {
			uint64_t left = row->bytes - at;

			table->units[table->count++] = (struct tpck_digest_unit){
				row->address + at, at / 8,
				(uint32_t)(left < TPCK_DIGEST_UNIT_BYTES ? left : TPCK_DIGEST_UNIT_BYTES), i,
			};
		}
	}
	table->serial = plan->serial;
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
	result = tpck_digests_queue(plan, 0, stream);
	if (!result)
		result = device->stream_synchronize(stream);
	got = result ? NULL : tpck_digests_get(plan, 0);
	for (uint32_t i = 0; i < TWIN_ROWS && !result; i++)
		if (got[i] != tpck_block_digest((char *)host + (plan->row[i].address - address), plan->row[i].bytes))
			result = -EILSEQ;
	table->serial = 0;
	tpck_plan_free(plan);
	return result;
}

int tpck_digests_open(const struct tpck_device *with, const char *library, const char *setting, tpck_stream_handle stream)
{
	int result = with->digest_open(library, setting);

	for (int i = 0; i < 2 && !result; i++)
		result = with->event_create(&tables[i].read, false);
	if (result)
		return result;
	device = with;
	result = compare_twins(stream);
	ready = !result;
	return result;
}

int tpck_digests_queue(const struct tpck_plan *plan, uint32_t fence, tpck_stream_handle stream)
{
	uint32_t slot = fence % TPCK_FENCES;
	int result = table->serial == plan->serial ? 0 : table_make(plan);

	if (!result)
		result = make_sums(slot, plan->rows ? plan->rows : 1);
	if (!result)
		result = device->digest(table->address, table->count, sums_address, plan->rows, stream);
	if (!result)
		result = device->event_record(table->read, stream);
	if (!result && plan->rows)
		result = device->copy_from_device(hosts[slot].sums, sums_address, plan->rows * sizeof *hosts->sums, stream);
	return result;
}

const uint64_t *tpck_digests_get(const struct tpck_plan *plan, uint32_t fence)
{
	uint64_t *sums = hosts[fence % TPCK_FENCES].sums;

	for (uint32_t i = 0; i < plan->rows; i++)
		sums[i] = units_bytes(&plan->row[i]) ? tpck_block_digest_finish(sums[i], plan->row[i].bytes) : 0;
	return sums;
}
