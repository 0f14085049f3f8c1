/* SPDX-License-Identifier: Apache-2.0 */
/* Reading packed segments. */
#include "config.h"

#include "runtime/wire/pack.h"

#include <errno.h>
#include <string.h>
#ifdef HAVE_ZSTD
#include <zstd.h>
#endif

#include "runtime/wire/record.h"

/* A segment of more is nobody's. */
#define SEGMENT_MOST (1ull << 40)
enum { ALIGN = 16, ORDERS = 1024 };

/* The numbers that were met last. */
struct counted {
	uint32_t orders[ORDERS]; /* by thread and type; two that fall together cost a few bytes */
	struct tpck_record_boundary boundary;
	uint64_t turn;
};

static uint64_t turned(uint64_t *last, uint64_t number, bool to_differences)
{
	uint64_t before = *last;

	*last = to_differences ? number : before + number;
	return to_differences ? number - before : before + number;
}

static uint32_t order_turned(uint32_t *last, uint32_t number, bool to_differences)
{
	uint32_t before = *last;

	*last = to_differences ? number : before + number;
	return to_differences ? number - before : before + number;
}

/* What the program was told differs from the clock by what it waited for: that is one number for a long time. */
static void boundary_turn(struct counted *counted, void *payload, bool to_differences)
{
	struct tpck_record_boundary at;

	memcpy(&at, payload, sizeof at);
	if (to_differences)
		at.shown_ns -= at.wall_ns;
	at.step = turned(&counted->boundary.step, at.step, to_differences);
	at.allocations = turned(&counted->boundary.allocations, at.allocations, to_differences);
	at.wall_ns = turned(&counted->boundary.wall_ns, at.wall_ns, to_differences);
	at.shown_ns = turned(&counted->boundary.shown_ns, at.shown_ns, to_differences);
	if (!to_differences)
		at.shown_ns += at.wall_ns;
	memcpy(payload, &at, sizeof at);
}

/* No length is among what is turned, so that both ways find the same records. */
static void record_turn(struct counted *counted, struct tpck_record *record, bool to_differences)
{
	uint32_t place = (record->thread * TPCK_RECORD_TYPES + record->type) % ORDERS;
	uint64_t number;

	record->order = order_turned(&counted->orders[place], record->order, to_differences);
	if (record->type == TPCK_RECORD_BOUNDARY && record->bytes >= sizeof counted->boundary)
		boundary_turn(counted, record + 1, to_differences);
	if (record->type == TPCK_RECORD_TURN && record->bytes >= sizeof number) {
		memcpy(&number, record + 1, sizeof number);
		number = turned(&counted->turn, number, to_differences);
		memcpy(record + 1, &number, sizeof number);
	}
}

void tpck_pack_turn(void *records, uint64_t bytes, bool to_differences)
{
	struct counted counted = {0};
	struct tpck_record record;
	uint64_t at = 0, whole;

	for (; bytes - at >= sizeof record; at += whole) {
		memcpy(&record, (char *)records + at, sizeof record);
		whole = ((uint64_t)sizeof record + record.bytes + ALIGN - 1) / ALIGN * ALIGN;
		if (whole > bytes - at)
			return;
		record_turn(&counted, (void *)((char *)records + at), to_differences);
	}
}

bool tpck_pack_is_whole(const struct tpck_log_header *header, uint64_t size, uint64_t sequence)
{
	return size >= sizeof *header && header->magic == TPCK_LOG_MAGIC && header->version == TPCK_WIRE_VERSION && header->sealed == TPCK_LOG_PACKED &&
	       header->sequence == sequence && atomic_load(&header->used) == size && header->bytes <= SEGMENT_MOST;
}

#ifdef HAVE_ZSTD
int tpck_pack_learn(const void *pack, uint64_t size, uint64_t sequence, uint64_t *end)
{
	const struct tpck_log_header *header = pack;
	unsigned long long bytes;

	if (!tpck_pack_is_whole(header, size, sequence))
		return -EBADMSG;
	/* What cannot be said is more than that. */
	bytes = ZSTD_getFrameContentSize(header + 1, size - sizeof *header);
	if (bytes > SEGMENT_MOST || bytes + sizeof *header > header->bytes)
		return -EBADMSG;
	*end = bytes + sizeof *header;
	return 0;
}

int tpck_pack_read(const void *pack, uint64_t size, uint64_t sequence, void *segment, uint64_t end)
{
	const struct tpck_log_header *header = pack;
	struct tpck_log_header *made = segment;
	uint64_t there, bytes = end - sizeof *made;
	int rc = tpck_pack_learn(pack, size, sequence, &there);

	if (rc || there != end)
		return rc ? rc : -EBADMSG;
	if (ZSTD_decompress(made + 1, bytes, header + 1, size - sizeof *header) != bytes)
		return -EBADMSG;
	tpck_pack_turn(made + 1, bytes, false);
	made->magic = header->magic;
	made->version = header->version;
	made->sealed = TPCK_LOG_SEALED;
	made->generation = header->generation;
	made->sequence = header->sequence;
	made->bytes = header->bytes;
	atomic_store(&made->used, end);
	return 0;
}
#else
int tpck_pack_learn(const void *pack, uint64_t size, uint64_t sequence, uint64_t *end)
{
	(void)end;
	return tpck_pack_is_whole(pack, size, sequence) ? -ENOTSUP : -EBADMSG;
}

int tpck_pack_read(const void *pack, uint64_t size, uint64_t sequence, void *segment, uint64_t end)
{
	(void)segment;
	return tpck_pack_learn(pack, size, sequence, &end);
}
#endif
