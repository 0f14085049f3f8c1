/* SPDX-License-Identifier: Apache-2.0 */
/* The image that is resumed from: mapped, verified, pinned. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/base/lock_order.h"
#include "runtime/engine/offered.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/block_digest.h"
#include "runtime/base/digest.h"
#include "runtime/base/huge.h"
#include "runtime/track/threads.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
/* Memory is pinned in pieces of this size, and no copy crosses from one into the next. */
#define PIECE_BYTES (64ull << 20)

enum stage { VERIFY, PIN, COPY, OVER };

static struct tpck_image_header *image; /* set once; unmapped by the thread */
static size_t image_bytes;
static bool offered;
static _Atomic uint32_t chunks_done; /* verified, or found bad; a futex */
static _Atomic uint32_t chunk_bad;   /* 1 + the one that does not verify; 0 none */
static _Atomic uint32_t stage;       /* enum stage, only grows; a futex */
static pthread_mutex_t pinning = PTHREAD_MUTEX_INITIALIZER;
static const struct tpck_device *device;
static void *device_context;
static uint64_t pinned; /* bytes of the data area */

/* Blocks of the image are compared with what the device had by several threads, in pieces of this size. */
#define COMPARED_BYTES (16ull << 20)
#define COMPARER_BYTES (4ull << 30)
enum { COMPARERS_MAX = 8 };
static struct {
	pthread_mutex_t lock;
	uint32_t row;           /* the next piece. Under the lock, as what follows */
	uint64_t at;
	struct compared {
		_Atomic uint64_t sum, done;
	} *rows;                /* NULL: nothing is compared */
	size_t bytes;
	_Atomic uint32_t busy;  /* threads; a futex */
	_Atomic uint32_t bad;   /* 1 + the row that differs; 0 none */
} comparing = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void set_and_wake(_Atomic uint32_t *word, uint32_t value)
{
	atomic_store(word, value);
	tpck_sys_futex(word, FUTEX_WAKE_PRIVATE, 0x7fffffff, NULL, NULL, 0);
}

static void wait_while(_Atomic uint32_t *word, uint32_t value)
{
	while (atomic_load(word) == value)
		tpck_sys_futex(word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static char *data(void)
{
	return (char *)image + TPCK_IMAGE_DATA_AT;
}

/* A chunk without a digest has only the image's footer: the agent checked what it offered. */
static bool chunk_verifies(uint32_t c)
{
	const struct tpck_image_chunk *chunk = (const struct tpck_image_chunk *)((char *)image + TPCK_IMAGE_CHUNKS_AT) + c;
	uint8_t digest[16];

	if (!atomic_load(&chunk->hashed))
		return true;
	if ((uint64_t)c * TPCK_CHUNK_BYTES + chunk->bytes > image->data_bytes)
		return false;
	tpck_digest128(data() + (uint64_t)c * TPCK_CHUNK_BYTES, chunk->bytes, digest);
	return memcmp(digest, chunk->digest, sizeof digest) == 0;
}

/* Pins the next piece; false when there is no more to pin, or no use in trying. */
static bool piece_pin(void)
{
	uint64_t left = image->data_bytes - pinned, bytes = left < PIECE_BYTES ? left : PIECE_BYTES;
	bool done = false;

	pthread_mutex_lock(&pinning);
	if (left && atomic_load(&stage) == PIN) {
		device->context_use(device_context);
		/* Where it is refused copies still work, only slower. */
		done = !device->host_register(data() + pinned, bytes);
		if (done)
			pinned += bytes;
	}
	pthread_mutex_unlock(&pinning);
	return done;
}

static const struct tpck_image_row *rows(void)
{
	return (const struct tpck_image_row *)((char *)image + TPCK_IMAGE_INDEX_AT);
}

/* ---- comparing ------------------------------------------------------------------------------------ */

static bool has_digest(const struct tpck_image_row *row)
{
	return row->device_digest && row->data_offset != UINT64_MAX && row->bytes;
}

/* The next piece; false when all are taken. */
static bool piece_take(uint32_t *row, uint64_t *at, uint64_t *bytes)
{
	bool more;

	pthread_mutex_lock(&comparing.lock);
	while (comparing.row < image->rows && (!has_digest(&rows()[comparing.row]) || comparing.at == rows()[comparing.row].bytes)) {
		comparing.row++;
		comparing.at = 0;
	}
	more = comparing.row < image->rows;
	if (more) {
		uint64_t left = rows()[comparing.row].bytes - comparing.at;

		*row = comparing.row;
		*at = comparing.at;
		*bytes = left < COMPARED_BYTES ? left : COMPARED_BYTES;
		comparing.at += *bytes;
	}
	pthread_mutex_unlock(&comparing.lock);
	return more;
}

static void *comparing_main(void *unused)
{
	uint64_t at, bytes;
	uint32_t r;

	(void)unused;
	tpck_thread_own();
	pthread_setname_np(pthread_self(), "tpck-offered");
	while (!atomic_load(&comparing.bad) && atomic_load(&stage) != OVER && piece_take(&r, &at, &bytes)) {
		const struct tpck_image_row *row = &rows()[r];
		struct compared *compared = &comparing.rows[r];

		atomic_fetch_add(&compared->sum, tpck_block_digest_piece(data() + row->data_offset + at, bytes, at / 8));
		if (atomic_fetch_add(&compared->done, bytes) + bytes == row->bytes &&
		    tpck_block_digest_finish(atomic_load(&compared->sum), row->bytes) != row->device_digest)
			atomic_store(&comparing.bad, r + 1);
	}
	atomic_fetch_sub(&comparing.busy, 1);
	tpck_sys_futex(&comparing.busy, FUTEX_WAKE_PRIVATE, 0x7fffffff, NULL, NULL, 0);
	return NULL;
}

/* What is large is on machines with many processors, and is copied at their speed. */
static unsigned comparers(void)
{
	uint64_t wanted = 1 + image->data_bytes / COMPARER_BYTES;

	return wanted < COMPARERS_MAX ? (unsigned)wanted : COMPARERS_MAX;
}

static int comparing_start(void)
{
	unsigned wanted = comparers(), started = 0;
	int result = 0;

	for (uint32_t i = 0; i < image->rows; i++)
		if (rows()[i].data_offset != UINT64_MAX &&
		    (rows()[i].bytes > image->data_bytes || rows()[i].data_offset > image->data_bytes - rows()[i].bytes))
			return -EBADMSG;
	comparing.bytes = (image->rows + 1) * sizeof *comparing.rows;
	comparing.rows = tpck_sys_mmap(NULL, comparing.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (comparing.rows == MAP_FAILED) {
		comparing.rows = NULL;
		return -ENOMEM;
	}
	while (started < wanted && !result) {
		atomic_fetch_add(&comparing.busy, 1);
		result = tpck_thread_start(comparing_main);
		if (result)
			atomic_fetch_sub(&comparing.busy, 1);
		else
			started++;
	}
	return started ? 0 : result;
}

static void comparing_wait(void)
{
	uint32_t busy;

	while ((busy = atomic_load(&comparing.busy)))
		wait_while(&comparing.busy, busy);
}

int tpck_offered_compared(char *why, size_t size)
{
	comparing_wait();
	if (!atomic_load(&comparing.bad))
		return 0;
	snprintf(why, size, "the block at %#llx of the snapshot is not what the device had",
		 (unsigned long long)rows()[atomic_load(&comparing.bad) - 1].address);
	return -EBADMSG;
}

/* ---- the thread ----------------------------------------------------------------------------------- */

static void *offered_main(void *unused)
{
	(void)unused;
	tpck_thread_own();
	pthread_setname_np(pthread_self(), "tpck-offered");
	for (uint32_t c = 0; c < image->chunks && !atomic_load(&chunk_bad) && atomic_load(&stage) != OVER; c++) {
		/* Faults are taken here, not in the copy; where the kernel cannot, they are taken there. */
		madvise(data() + (uint64_t)c * TPCK_CHUNK_BYTES, TPCK_CHUNK_BYTES, MADV_POPULATE_READ);
		if (!chunk_verifies(c))
			atomic_store(&chunk_bad, c + 1);
		set_and_wake(&chunks_done, c + 1);
	}
	wait_while(&stage, VERIFY);
	while (piece_pin())
		;
	wait_while(&stage, PIN);
	wait_while(&stage, COPY);
	for (uint64_t at = 0; at < pinned; at += PIECE_BYTES)
		device->host_unregister(data() + at);
	comparing_wait();
	if (comparing.rows)
		tpck_sys_munmap(comparing.rows, comparing.bytes);
	tpck_sys_munmap(image, image_bytes);
	return NULL;
}

static int image_map(const char *session, uint64_t step)
{
	char path[300];
	struct stat found;
	void *at;
	int fd;

	snprintf(path, sizeof path, "%s/resume.image", session);
	fd = tpck_sys_openat(AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH) ||
	    (uint64_t)found.st_size < TPCK_IMAGE_DATA_AT) {
		tpck_sys_close(fd);
		return -EBADMSG;
	}
	/* Writable, since drivers do not pin what is not; nothing is written. */
	at = tpck_huge_map(fd, (size_t)found.st_size, PROT_READ | PROT_WRITE);
	tpck_sys_close(fd);
	if (at == MAP_FAILED)
		return -ENOMEM;
	image = at;
	image_bytes = (size_t)found.st_size;
	if (image->magic != TPCK_IMAGE_MAGIC || image->version != TPCK_WIRE_VERSION ||
	    image->footer != tpck_image_footer(image) || image->step != step ||
	    TPCK_IMAGE_DATA_AT + image->data_bytes > image_bytes)
		return -EBADMSG;
	return 0;
}

int tpck_offered_open(const char *session, uint64_t step, bool compare)
{
	int result = image_map(session, step);

	if (!result && compare)
		result = comparing_start();
	if (!result)
		result = tpck_thread_start(offered_main);
	offered = !result;
	return result;
}

const struct tpck_image_header *tpck_offered(void)
{
	return offered ? image : NULL;
}

void tpck_offered_pin(const struct tpck_device *with, void *context)
{
	if (!offered || atomic_load(&stage) != VERIFY)
		return;
	device = with;
	device_context = context;
	set_and_wake(&stage, PIN);
}

int tpck_offered_ready(uint64_t from, uint64_t bytes, uint64_t *ready, char *why, size_t size)
{
	uint32_t needed = (uint32_t)(from / TPCK_CHUNK_BYTES) + 1, done;
	uint64_t end = (from / PIECE_BYTES + 1) * PIECE_BYTES, good;

	if (atomic_load(&stage) < COPY) {
		set_and_wake(&stage, COPY);
		pthread_mutex_lock(&pinning); /* none is under way */
		pthread_mutex_unlock(&pinning);
	}
	while ((done = atomic_load(&chunks_done)) < needed && !atomic_load(&chunk_bad))
		wait_while(&chunks_done, done);
	if (atomic_load(&chunk_bad)) {
		snprintf(why, size, "chunk %u of the snapshot does not verify", atomic_load(&chunk_bad) - 1);
		return -EBADMSG;
	}
	good = (uint64_t)done * TPCK_CHUNK_BYTES;
	end = good < end ? good : end;
	*ready = end - from < bytes ? end - from : bytes;
	return 0;
}

void tpck_offered_close(void)
{
	if (offered)
		set_and_wake(&stage, OVER);
	offered = false;
}
