/* SPDX-License-Identifier: Apache-2.0 */
/* Segments of the log, and what their records say. An input is a segment; its magic, version and number are made right. */
#include "config.h"

#include "tests/fuzz/fuzz.h"

#include "runtime/follow/contents.h"
#include "runtime/follow/follow.h"
#include "runtime/network/network.h"
#include "runtime/programs/programs.h"
#include "runtime/replay/looks.h"
#include "runtime/replay/record_log.h"
#include "runtime/store/tried.h"
#include "runtime/wire/segment.h"

/* What is learnt of files and programs stays in memory for threads that are late: so many records of them are given. */
enum { RECORDS = 4096, LOOKS = 10000, LEARNT = 4 << 20 };
static unsigned learnt;
/* Forgetting takes longer than all else: it is done once for so many inputs, which stay until then. */
enum { KEPT = 32 };
static void *kept[KEPT];
static unsigned kept_count;
static bool to_keep;

static const struct tpck_record *looks[RECORDS];
static uint32_t looks_count;
static volatile uint64_t seen;

/* All that a structure has is read, so that the address sanitizer sees what is not there. */
static void read_all(const void *at, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		seen += ((const uint8_t *)at)[i];
}

/* The leak sanitizer's, where there is one. */
void __lsan_disable(void) __attribute__((weak));
void __lsan_enable(void) __attribute__((weak));

static void learn(const struct tpck_record *record)
{
	if (learnt++ >= LEARNT)
		return;
	to_keep = true;
	if (__lsan_disable)
		__lsan_disable();
	tpck_follow_learn(record);
	tpck_programs_learn(record);
	tpck_programs_learn_behind(record);
	tpck_network_learn(record);
	tpck_network_learn_behind(record);
	tpck_network_learn_sent(record);
	tpck_network_learn_tried(record);
	tpck_programs_learn_tried(record);
	if (__lsan_enable)
		__lsan_enable();
}

static void take(const struct tpck_record *record)
{
	const struct tpck_record_mark *mark = (const void *)(record + 1);

	read_all(record + 1, record->bytes);
	if (!tpck_record_is_sound(record))
		return;
	switch (record->type) {
	case TPCK_RECORD_MARK:
		read_all(mark, sizeof *mark + (record->detail ? 4ull * mark->operations : 0));
		read_all((const char *)(record + 1) + record->bytes - 4ull * mark->contents, 4ull * mark->contents);
		break;
	case TPCK_RECORD_BOUNDARY:
		read_all(record + 1, sizeof(struct tpck_record_boundary));
		break;
	case TPCK_RECORD_QUERY:
		read_all(record + 1, sizeof(struct tpck_record_query));
		break;
	case TPCK_RECORD_LOOKS:
		if (looks_count < RECORDS)
			looks[looks_count++] = record;
		break;
	case TPCK_RECORD_FILE:
	case TPCK_RECORD_PROGRAM:
	case TPCK_RECORD_TALK:
		learn(record);
		break;
	default:
		break;
	}
}

static void read_looks(void)
{
	for (unsigned clock = 0; clock < TPCK_CLOCKS; clock++) {
		struct tpck_looks_reader reader = {0};

		for (int i = 0; i < LOOKS && tpck_looks_next(&reader, (enum tpck_clock)clock, looks, looks_count); i++) {
			seen += reader.there_ns;
			reader.there = false;
		}
	}
}

/* What the agent keeps of it is a segment that can be read. */
static void keep(const void *segment, size_t size, uint64_t first)
{
	static struct tpck_log_header *kept_of_it;

	if (!kept_of_it)
		kept_of_it = malloc(TPCK_TRIED_MOST);
	FUZZ_HOLDS(kept_of_it != NULL);
	*kept_of_it = (struct tpck_log_header){.magic = TPCK_LOG_MAGIC, .version = TPCK_WIRE_VERSION, .used = sizeof *kept_of_it};
	(void)tpck_tried_add(kept_of_it, segment, size, first);
	FUZZ_HOLDS(kept_of_it->used <= TPCK_TRIED_MOST && tpck_log_is_whole(kept_of_it, kept_of_it->used, 0, kept_of_it->used));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint64_t first = (sizeof(struct tpck_log_header) + 15) / 16 * 16;
	struct tpck_log_header *segment;
	void *bytes;

	FUZZ_HOLDS(posix_memalign(&bytes, 16, size ? size : 1) == 0);
	segment = bytes;
	if (size)
		memcpy(segment, data, size);
	if (size >= sizeof *segment) {
		segment->magic = TPCK_LOG_MAGIC;
		segment->version = TPCK_WIRE_VERSION;
		segment->sequence = 0;
		/* Else hardly any input would say how much of it is used. */
		if (segment->used == UINT64_MAX)
			segment->used = size / 16 * 16;
	}
	looks_count = 0;
	(void)tpck_log_each(segment, size, 0, first, take);
	if (size >= sizeof *segment)
		(void)tpck_log_is_whole(segment, size, 0, segment->used);
	keep(segment, size, first);
	read_looks();
	if (!to_keep) {
		free(segment);
		return 0;
	}
	to_keep = false;
	kept[kept_count++] = segment;
	if (kept_count < KEPT)
		return 0;
	tpck_programs_unlearn();
	tpck_follow_unlearn();
	while (kept_count)
		free(kept[--kept_count]);
	return 0;
}
