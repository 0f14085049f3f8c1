/* SPDX-License-Identifier: Apache-2.0 */
/* Packed segments of the log. An input is the frame of one, and of what is unpacked the records are packed again; or, where it is no frame, records. */
#include "config.h"

#include "tests/fuzz/fuzz.h"

#include "runtime/replay/record_log.h"
#include "runtime/wire/pack.h"
#include "runtime/wire/segment.h"

/* Of a frame that says that it has more nothing is asked: that takes memory, and finds nothing else. */
enum { MOST = 8 << 20 };

static void unpack(const uint8_t *data, size_t size)
{
	struct tpck_log_header *pack = malloc(sizeof *pack + size), *segment;
	uint64_t end;

	FUZZ_HOLDS(pack != NULL);
	*pack = (struct tpck_log_header){.magic = TPCK_LOG_MAGIC, .version = TPCK_WIRE_VERSION, .sealed = TPCK_LOG_PACKED, .bytes = MOST, .used = sizeof *pack + size};
	memcpy(pack + 1, data, size);
	if (tpck_pack_learn(pack, sizeof *pack + size, 0, &end) == 0) {
		FUZZ_HOLDS(end >= sizeof *segment && end <= MOST);
		segment = malloc(end);
		FUZZ_HOLDS(segment != NULL);
		if (tpck_pack_read(pack, sizeof *pack + size, 0, segment, end) == 0)
			(void)tpck_log_is_whole(segment, end, 0, end);
		free(segment);
	}
	free(pack);
}

/* Both ways leave what there was. */
static void turn(const uint8_t *data, size_t size)
{
	uint8_t *records = malloc(size + 1);

	FUZZ_HOLDS(records != NULL);
	memcpy(records, data, size);
	tpck_pack_turn(records, size, true);
	tpck_pack_turn(records, size, false);
	FUZZ_HOLDS(memcmp(records, data, size) == 0);
	free(records);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unpack(data, size);
	turn(data, size);
	return 0;
}
