/* SPDX-License-Identifier: Apache-2.0 */
/* The header and the index of an image, and the counts in it. An input is the bytes of the header, then the size of the
 * data in KiB (two bytes), then the index. */
#include "config.h"

#include "tests/fuzz/fuzz.h"

#include <sys/mman.h>

#include "runtime/base/digest.h"
#include "runtime/store/cut.h"
#include "runtime/store/memory_tier.h"

/* Behind a file that is mapped there is nothing, at least nothing that anybody may read. */
enum { DATA_MOST = 64 << 20, INDEX_MOST = 1 << 20 };
static char *base;

static void look_at(const struct tpck_image *image)
{
	struct tpck_counts counts = {0};
	uint64_t sum = 0, bytes = 0;

	for (uint32_t i = 0; i < image->header->rows; i++) {
		const struct tpck_image_row *row = &tpck_image_rows(image)[i];

		bytes += row->bytes;
		if (row->data_offset != UINT64_MAX && row->bytes)
			sum += tpck_image_data(image)[row->data_offset] + tpck_image_data(image)[row->data_offset + row->bytes - 1];
	}
	for (uint32_t i = 0; i < image->header->chunks; i++)
		sum += tpck_image_chunk_bytes(image->header, i);
	FUZZ_HOLDS(sum < UINT64_MAX);
	for (uint32_t i = 0; i < image->header->tensors; i++)
		sum += tpck_image_rows(image)[tpck_image_tensors(image)[i].row].bytes +
		       tpck_image_optimizers(image)[tpck_image_tensors(image)[i].optimizer].known;
	FUZZ_HOLDS(tpck_counts_add_image(&counts, image) == 0);
	(void)tpck_counts_match(&counts, NULL);
	tpck_counts_free(&counts);
	/* Digests of much would take long. */
	if (bytes < 1 << 20)
		(void)tpck_image_check_device(image, "input", NULL);
}

/* As many as an input can have, or more than an image can. */
static uint32_t few(uint32_t count)
{
	return count < 1u << 24 ? count % 2048 : count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = {data, size};
	struct tpck_image_header header = {0};
	struct tpck_image image = {0};
	size_t got, more;
	void *bytes;

	if (!base) {
		base = mmap(NULL, TPCK_IMAGE_DATA_AT + DATA_MOST + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (base == MAP_FAILED)
			abort();
	}
	bytes = fuzz_bytes(&input, sizeof header, &got);
	memcpy(&header, bytes, got);
	free(bytes);
	header.magic = TPCK_IMAGE_MAGIC;
	header.version = TPCK_WIRE_VERSION;
	header.rows = few(header.rows);
	header.tensors = few(header.tensors);
	header.optimizers = few(header.optimizers);
	header.communicators = few(header.communicators);
	header.peers = few(header.peers);
	more = (size_t)fuzz_short(&input) << 10;
	bytes = fuzz_bytes(&input, INDEX_MOST, &got);
	image = (struct tpck_image){(struct tpck_image_header *)(void *)base, (TPCK_IMAGE_DATA_AT + more) & ~4095ull};
	FUZZ_HOLDS(mprotect(base, image.size, PROT_READ | PROT_WRITE) == 0);
	memcpy(base + TPCK_IMAGE_INDEX_AT, bytes, got);
	free(bytes);
	FUZZ_HOLDS(mprotect(base + image.size, TPCK_IMAGE_DATA_AT + DATA_MOST + 4096 - image.size, PROT_NONE) == 0);
	/* The digest over the header, too, is right, or nothing behind it would be looked at. */
	header.footer = tpck_image_footer(&header);
	memcpy(base, &header, sizeof header);
	if (tpck_image_check(&image, "input", NULL) == 0)
		look_at(&image);
	FUZZ_HOLDS(mprotect(base, TPCK_IMAGE_DATA_AT + DATA_MOST + 4096, PROT_READ | PROT_WRITE) == 0);
	memset(base + TPCK_IMAGE_INDEX_AT, 0, got);
	return 0;
}
