/* SPDX-License-Identifier: Apache-2.0 */
/* Image files of the memory tier: made, prefaulted, mapped, and checked before anybody trusts them. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/block_digest.h"
#include "runtime/base/digest.h"
#include "runtime/base/huge.h"
#include "runtime/store/memory_tier.h"

uint64_t tpck_image_chunk_bytes(const struct tpck_image_header *header, uint32_t i)
{
	uint64_t begin = (uint64_t)i * TPCK_CHUNK_BYTES;
	uint64_t left = header->data_bytes - begin;

	return left < TPCK_CHUNK_BYTES ? left : TPCK_CHUNK_BYTES;
}

int tpck_image_open(struct tpck_image *image, const char *path, bool writable, struct tpck_error *err)
{
	struct stat status;
	void *base;
	int fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return tpck_error_set(err, errno, "opening image %s", path);
	if (fstat(fd, &status) || (uint64_t)status.st_size < TPCK_IMAGE_DATA_AT) {
		close(fd);
		return tpck_error_set(err, EBADMSG, "image %s is cut short", path);
	}
	base = tpck_huge_map(fd, (size_t)status.st_size, PROT_READ | (writable ? PROT_WRITE : 0));
	close(fd);
	if (base == MAP_FAILED)
		return tpck_error_set(err, errno, "mapping image %s", path);
	image->header = base;
	image->size = (size_t)status.st_size;
	return 0;
}

void tpck_image_close(struct tpck_image *image)
{
	if (image->header)
		munmap(image->header, image->size);
	image->header = NULL;
}

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

uint64_t tpck_image_memory(uint64_t data_bytes)
{
	uint64_t data = round_up(data_bytes, TPCK_CHUNK_BYTES);

	/* header page, chunk table, and room for an index of one row a 64 KiB */
	return data + (64 << 10) + round_up(data / TPCK_CHUNK_BYTES * 64, 4096) + (1 << 20);
}

/* The tables are holes: having header, chunk table and data is what counts. */
static int grow(int fd, uint64_t now, uint64_t data)
{
	uint64_t table = 64 * (data / TPCK_CHUNK_BYTES), size = TPCK_IMAGE_DATA_AT + (data ? data : 4096);
	uint64_t from = now > TPCK_IMAGE_DATA_AT ? now : TPCK_IMAGE_DATA_AT;
	void *base;
	int rc;

	if (fallocate(fd, 0, 0, 4096) || fallocate(fd, 0, (off_t)TPCK_IMAGE_CHUNKS_AT, (off_t)(table ? table : 64)) ||
	    ftruncate(fd, (off_t)size))
		return -errno;
	base = tpck_huge_map(fd, size, PROT_READ | PROT_WRITE);
	if (base == MAP_FAILED)
		return -errno;
	rc = tpck_huge_reserve(fd, base, from, size - from);
	munmap(base, size);
	return rc;
}

int tpck_image_allocate(const char *path, uint32_t ordinal, uint64_t data_bytes, struct tpck_error *err)
{
	uint64_t data = round_up(data_bytes, TPCK_CHUNK_BYTES);
	struct tpck_image_header header = {
		.magic = TPCK_IMAGE_MAGIC, .version = TPCK_WIRE_VERSION, .ordinal = ordinal,
	};
	int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	struct stat status;
	int rc = 0;

	if (fd < 0)
		return tpck_error_set(err, errno, "making image %s", path);
	if (fstat(fd, &status))
		rc = tpck_error_set(err, errno, "making image %s", path);
	if (!rc && (uint64_t)status.st_size < TPCK_IMAGE_DATA_AT + data) {
		rc = grow(fd, (uint64_t)status.st_size, data);
		if (rc)
			tpck_error_set(err, -rc, "reserving %llu bytes of memory for image %s", (unsigned long long)data, path);
	}
	if (!rc && status.st_size == 0 && pwrite(fd, &header, sizeof header, 0) != sizeof header)
		rc = tpck_error_set(err, errno, "making image %s", path);
	if (rc && (status.st_size == 0))
		unlink(path);
	else if (rc)
		(void)!ftruncate(fd, status.st_size);
	close(fd);
	return rc;
}

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Threads that take the next piece each. A kernel clears some 2 GB a second in one of them. */
enum { PREFAULT_PIECE = 64 << 20, PREFAULT_THREADS = 8, CORES_A_THREAD = 4 };
struct prefault {
	struct tpck_image image;
	_Atomic size_t next;
};

static void *prefault_pieces(void *of)
{
	struct prefault *prefault = of;
	char *base = (char *)prefault->image.header;
	size_t at, size = prefault->image.size;

	while ((at = atomic_fetch_add(&prefault->next, PREFAULT_PIECE)) < size) {
		size_t length = size - at < PREFAULT_PIECE ? size - at : PREFAULT_PIECE;

		/* Reading clears an allocated page of tmpfs as well, where the kernel is older than 5.14;
		 * a write here could undo what the owner has begun to write. */
		if (madvise(base + at, length, MADV_POPULATE_WRITE) && errno == EINVAL)
			for (size_t page = 0; page < length; page += 4096)
				(void)*(volatile char *)(base + at + page);
	}
	return NULL;
}

static unsigned cores(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof set, &set) ? 1 : (unsigned)CPU_COUNT(&set);
}

int tpck_image_prefault(const char *path, struct tpck_error *err)
{
	struct prefault prefault = {.next = TPCK_IMAGE_DATA_AT};
	pthread_t threads[PREFAULT_THREADS];
	unsigned wanted = cores() / CORES_A_THREAD, started = 0;
	int rc = tpck_image_open(&prefault.image, path, true, err);

	if (rc)
		return rc;
	while (started + 1 < wanted && started < PREFAULT_THREADS - 1 &&
	       (started + 1) * (uint64_t)PREFAULT_PIECE < prefault.image.size - TPCK_IMAGE_DATA_AT &&
	       !pthread_create(&threads[started], NULL, prefault_pieces, &prefault))
		started++;
	prefault_pieces(&prefault);
	while (started)
		pthread_join(threads[--started], NULL);
	tpck_image_close(&prefault.image);
	return 0;
}

int tpck_image_check(const struct tpck_image *image, const char *path, struct tpck_error *err)
{
	const struct tpck_image_header *h = image->header;
	uint64_t chunks = (h->data_bytes + TPCK_CHUNK_BYTES - 1) / TPCK_CHUNK_BYTES;

	if (h->magic != TPCK_IMAGE_MAGIC)
		return tpck_error_set(err, EBADMSG, "image %s has no valid header", path);
	if (h->version != TPCK_WIRE_VERSION)
		return tpck_error_set(err, EPROTO, "image %s has version %u, this is %d", path, h->version,
				      TPCK_WIRE_VERSION);
	if (h->footer != tpck_image_footer(h))
		return tpck_error_set(err, EBADMSG, "footer of image %s does not match", path);
	if (h->data_bytes > image->size - TPCK_IMAGE_DATA_AT || h->chunks != chunks ||
	    chunks > (TPCK_IMAGE_INDEX_AT - TPCK_IMAGE_CHUNKS_AT) / sizeof(struct tpck_image_chunk) ||
	    tpck_image_index_bytes(h) > TPCK_IMAGE_DATA_AT - TPCK_IMAGE_INDEX_AT)
		return tpck_error_set(err, EBADMSG, "image %s names more than it holds", path);
	for (uint32_t i = 0; i < h->rows; i++) {
		const struct tpck_image_row *row = &tpck_image_rows(image)[i];

		if (row->data_offset != UINT64_MAX &&
		    (row->bytes > h->data_bytes || row->data_offset > h->data_bytes - row->bytes))
			return tpck_error_set(err, EBADMSG, "row %u of image %s lies outside its data", i, path);
	}
	for (uint32_t i = 0; i < h->tensors; i++)
		if (tpck_image_tensors(image)[i].row >= h->rows || tpck_image_tensors(image)[i].optimizer >= h->optimizers)
			return tpck_error_set(err, EBADMSG, "tensor %u of image %s lies in no block", i, path);
	for (uint32_t i = 0; i < h->peers; i++) {
		const struct tpck_image_peer *peer = &tpck_image_peers(image)[i];

		if (peer->communicator >= h->communicators ||
		    peer->peer >= tpck_image_communicators(image)[peer->communicator].size)
			return tpck_error_set(err, EBADMSG, "peer %u of image %s is in no communicator", i, path);
	}
	for (uint32_t i = 0; i < h->chunks; i++)
		if (!atomic_load_explicit(&tpck_image_chunks(image)[i].ready, memory_order_acquire))
			return tpck_error_set(err, EBADMSG, "chunk %u of image %s is not ready", i, path);
	return 0;
}

/* Whoever has it took it back meanwhile: there is nothing more to look at. */
enum { DEVICE_PIECE = 16 << 20 };
static int row_digest(const struct tpck_image *image, const struct tpck_image_row *row, uint32_t state, uint64_t *digest)
{
	uint64_t sum = 0;

	for (uint64_t at = 0; at < row->bytes; at += DEVICE_PIECE) {
		uint64_t left = row->bytes - at;

		if (atomic_load(&image->header->state) != state)
			return -ECANCELED;
		sum += tpck_block_digest_piece(tpck_image_data(image) + row->data_offset + at, left < DEVICE_PIECE ? left : DEVICE_PIECE, at / 8);
	}
	*digest = tpck_block_digest_finish(sum, row->bytes);
	return 0;
}

int tpck_image_check_device(const struct tpck_image *image, const char *path, struct tpck_error *err)
{
	uint32_t state = atomic_load(&image->header->state);

	for (uint32_t i = 0; i < image->header->rows; i++) {
		const struct tpck_image_row *row = &tpck_image_rows(image)[i];
		uint64_t digest;

		if (row->device_digest == 0 || row->data_offset == UINT64_MAX)
			continue;
		if (row_digest(image, row, state, &digest))
			return tpck_error_set(err, ECANCELED, "image %s was taken back meanwhile", path);
		if (digest != row->device_digest)
			return tpck_error_set(err, EBADMSG,
					      "block %u (address 0x%llx, %llu bytes) of image %s is not what the device had",
					      i, (unsigned long long)row->address,
					      (unsigned long long)row->bytes, path);
	}
	return 0;
}

int tpck_image_check_chunks(const struct tpck_image *image, const char *path, bool writable,
			    struct tpck_error *err)
{
	for (uint32_t i = 0; i < image->header->chunks; i++) {
		struct tpck_image_chunk *chunk = &tpck_image_chunks(image)[i];
		bool hashed = atomic_load_explicit(&chunk->hashed, memory_order_acquire);
		uint8_t digest[16];

		if (!hashed && !writable)
			continue;
		tpck_digest128(tpck_image_data(image) + (uint64_t)i * TPCK_CHUNK_BYTES,
			       tpck_image_chunk_bytes(image->header, i), digest);
		if (hashed) {
			if (memcmp(digest, chunk->digest, sizeof digest) != 0)
				return tpck_error_set(err, EBADMSG, "chunk %u of image %s does not match its digest",
						      i, path);
		} else {
			memcpy(chunk->digest, digest, sizeof digest);
			atomic_store_explicit(&chunk->hashed, 1, memory_order_release);
		}
	}
	return 0;
}
