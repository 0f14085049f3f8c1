/* SPDX-License-Identifier: Apache-2.0 */
/* The log of published files. An input is a log; the digests of records that are whole are made right. */
#include "config.h"

#include "tests/fuzz/fuzz.h"

#include "runtime/base/digest.h"
#include "runtime/store/sums.h"
#include "runtime/view/sums_record.h"

static volatile uint64_t seen;

static void seal(uint8_t *log, size_t size)
{
	const size_t before = offsetof(struct tpck_sums_record, inode);
	struct tpck_sums_record head;

	for (size_t at = 0; at + sizeof head <= size;) {
		size_t length;

		memcpy(&head, log + at, sizeof head);
		length = tpck_sums_record_length(&head);
		if (!length || length > size - at) {
			at++;
			continue;
		}
		tpck_digest128(log + at + before, length - before, head.digest);
		memcpy(log + at + offsetof(struct tpck_sums_record, digest), head.digest, sizeof head.digest);
		at += length;
	}
}

static int take(void *context, struct tpck_sums *sums)
{
	(void)context;
	FUZZ_HOLDS(sums->path && sums->count == tpck_sums_chunks(sums->bytes));
	for (size_t i = 0; i < sums->count; i++)
		seen += sums->digest[i][15];
	tpck_sums_free(sums);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = {data, size};
	size_t got;
	uint8_t *log = fuzz_bytes(&input, size, &got);

	seal(log, got);
	(void)tpck_sums_parse(log, got, take, NULL);
	free(log);
	return 0;
}
