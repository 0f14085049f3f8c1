/* SPDX-License-Identifier: Apache-2.0 */
/* The log: what is appended comes back in order, before and after attaching, over segments and behind a cut;
 * limits and damage are told. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/replay/record_log.h"
#include "runtime/wire/segment.h"
#include "tests/unit/shm_room.h"
#include "tests/unit/store_tap.h"

#define is_true(good) tap_ok(good, #good, "")

enum { GENERATION = 7, EARLY = 4 << 20, THREADS = 4, EACH = 5000 };
static const char *tmp;

static void remove_folder(const char *folder)
{
	char path[256];

	for (int i = 0; i < 64; i++) {
		snprintf(path, sizeof path, "%s/log.%06d", folder, i);
		unlink(path);
	}
	rmdir(folder);
}

/* Logs live as long as their process: nothing closes one. */
static struct tpck_log *attached(const char *folder, uint64_t limit)
{
	struct tpck_log *log = tpck_log_new(limit);

	if (!log || tpck_log_attach(log, folder, GENERATION, NULL)) {
		printf("Bail out! no log in %s\n", folder);
		exit(1);
	}
	return log;
}

static bool put(struct tpck_log *log, uint32_t number, size_t bytes)
{
	unsigned char *at = tpck_log_append(log, TPCK_RECORD_CHANCE, (uint16_t)(number % 7), number % 5, number, NULL, bytes);

	if (at)
		memset(at, (int)(number % 251), bytes);
	return at != NULL;
}

static bool is_record(const struct tpck_record *r, uint32_t number, size_t bytes)
{
	const unsigned char *at = (const unsigned char *)(r + 1);

	if (!r || r->bytes != bytes || r->type != TPCK_RECORD_CHANCE || r->detail != number % 7 || r->thread != number % 5 ||
	    r->order != number || ((uintptr_t)r & 15))
		return false;
	for (size_t i = 0; i < bytes; i++)
		if (at[i] != number % 251)
			return false;
	return true;
}

/* How many records from `first` on come back up to the cut, or -1. `bytes` gives the size of each. */
static int read_back(const char *folder, struct tpck_log_position cut, uint32_t first, size_t (*bytes)(uint32_t))
{
	struct tpck_log_reader *reader;
	const struct tpck_record *record;
	uint32_t number = first;

	if (tpck_log_open(&reader, folder, cut))
		return -1;
	while ((record = tpck_log_next(reader)) && is_record(record, number, bytes(number)))
		number++;
	if (record)
		printf("# record %u is wrong\n", number);
	tpck_log_close(reader);
	return record ? -1 : (int)(number - first);
}

static size_t small(uint32_t number)
{
	return number % 100;
}

static size_t large(uint32_t number)
{
	return number == 20 ? 40u << 20 : (1 << 20) + number;
}

static void test_attach(void)
{
	char *folder = tap_folder(tmp);
	struct tpck_log *log = tpck_log_new(1 << 30);
	struct tpck_log_position cut, end;
	uint32_t number = 0;
	bool good = true;
	void *early;
	int payload = 0x01020304;

	for (; number < 1000; number++)
		good &= put(log, number, small(number));
	early = tpck_log_append(log, TPCK_RECORD_CHANCE, (uint16_t)(number % 7), number % 5, number, NULL, small(number));
	memset(early, (int)(number % 251), small(number));
	number++;
	good &= tpck_log_attach(log, folder, GENERATION, NULL) == 0;
	for (; number < 1500; number++)
		good &= put(log, number, small(number));
	cut = tpck_log_end(log);
	for (; number < 2000; number++)
		good &= put(log, number, small(number));
	end = tpck_log_end(log);
	is_true(good && !tpck_log_failed(log));
	is_true(read_back(folder, end, 0, small) == 2000);
	is_true(read_back(folder, cut, 0, small) == 1500);
	cut = (struct tpck_log_position){0, (sizeof(struct tpck_log_header) + 15) / 16 * 16};
	is_true(read_back(folder, cut, 0, small) == 0);
	is_true(tpck_log_append(log, TPCK_RECORD_ELAPSED, 1, 2, 3, &payload, sizeof payload) != NULL);
	tap_ok(tpck_log_attach(tpck_log_new(1 << 20), "/nonexistent/folder", 1, NULL) == -ENOENT, "no folder, no log", "");
	remove_folder(folder);
}

/* A restarted process goes on in the same log. */
static void test_cut(void)
{
	char *folder = tap_folder(tmp);
	struct tpck_log *log = attached(folder, 1 << 30), *second = tpck_log_new(1 << 30);
	struct tpck_log_position cut, beyond = {0, 1ull << 40}, missing = {3, 64};
	uint32_t number = 0;
	bool good = true;

	for (; number < 700; number++)
		good &= put(log, number, small(number));
	cut = tpck_log_end(log);
	for (uint32_t stale = 5000; stale < 5300; stale++)
		good &= put(log, stale, small(stale));
	/* What it drew before the end of the forward run is in the log already. */
	good &= put(second, 9999, 10);
	is_true(good && tpck_log_attach(second, folder, GENERATION + 1, &cut) == 0);
	is_true(read_back(folder, tpck_log_end(second), 0, small) == 700);
	for (; number < 1200; number++)
		good &= put(second, number, small(number));
	tap_ok(good && read_back(folder, tpck_log_end(second), 0, small) == 1200, "behind the cut it goes on", "");
	is_true(tpck_log_attach(tpck_log_new(1 << 20), folder, 9, &beyond) == -EBADMSG);
	is_true(tpck_log_attach(tpck_log_new(1 << 20), folder, 9, &missing) == -ENOENT);
	remove_folder(folder);
}

static void test_segments(void)
{
	char *folder = tap_folder("/dev/shm"), path[256];
	struct tpck_log *log = attached(folder, 1 << 30);
	struct tpck_log_position end;
	struct tpck_log_header header;
	bool good = true, sealed = true;

	for (uint32_t number = 0; number < 40; number++) {
		good &= put(log, number, large(number));
		if (number % 3 == 0)
			tpck_log_prepare(log);
	}
	end = tpck_log_end(log);
	is_true(good && end.sequence >= 4);
	for (uint64_t s = 0; s <= end.sequence; s++) {
		int fd;

		snprintf(path, sizeof path, "%s/log.%06llu", folder, (unsigned long long)s);
		fd = open(path, O_RDONLY);
		sealed &= fd >= 0 && read(fd, &header, sizeof header) == sizeof header &&
			  header.sealed == (s < end.sequence) && header.sequence == s && header.generation == GENERATION &&
			  lseek(fd, 0, SEEK_END) == (off_t)header.bytes && header.used <= header.bytes;
		close(fd);
	}
	tap_ok(sealed, "every segment but the last is sealed, and says what it is", "");
	tap_ok(read_back(folder, end, 0, large) == 40, "records over segments, one larger than any", "");
	remove_folder(folder);
}

static void test_limits(void)
{
	char *folder = tap_folder(tmp);
	struct tpck_log *log = attached(folder, 1 << 20), *early = tpck_log_new(1 << 30);
	struct tpck_log_position end;
	int count = 0;

	tpck_log_configure("none");
	while (count < 100000 && put(log, (uint32_t)count, small((uint32_t)count)))
		count++;
	end = tpck_log_end(log);
	is_true(count > 5000 && count < 100000 && end.sequence == 0 &&
		end.offset <= (1 << 20) + sizeof(struct tpck_log_header));
	is_true(tpck_log_failed(log) && strstr(tpck_log_failed(log), "TRANSPCKPT_LOG_BYTES"));
	tap_ok(!put(log, 1, 0), "one that failed takes no more", "");
	tap_ok(read_back(folder, end, 0, small) == count, "and what it took is whole", "");
	for (count = 0; count < 100 && put(early, 1, EARLY / 50); count++)
		;
	is_true(count == 49 && tpck_log_failed(early) && strstr(tpck_log_failed(early), "before it used a device"));
	tpck_log_fail(early, "another reason");
	tap_ok(strstr(tpck_log_failed(early), "before it used a device") != NULL, "the first reason is kept", "");
	tpck_log_configure("warn");
	remove_folder(folder);
}

/* ---- damage ---- */

static int open_status(const char *folder, struct tpck_log_position cut)
{
	struct tpck_log_reader *reader = NULL;
	int result = tpck_log_open(&reader, folder, cut);

	if (!result)
		tpck_log_close(reader);
	return result;
}

/* Opens the log with some bytes of a segment overwritten, and puts them back. */
static int with_damage(const char *folder, struct tpck_log_position cut, int segment, off_t at, const void *bytes, size_t size)
{
	char path[256], before[64];
	int fd, result = -1;

	snprintf(path, sizeof path, "%s/log.%06d", folder, segment);
	fd = open(path, O_RDWR);
	if (fd >= 0 && pread(fd, before, size, at) == (ssize_t)size && pwrite(fd, bytes, size, at) == (ssize_t)size)
		result = open_status(folder, cut);
	if (fd < 0 || pwrite(fd, before, size, at) != (ssize_t)size || close(fd))
		exit(99);
	return result;
}

static void test_damage(void)
{
	char *folder = tap_folder("/dev/shm"), path[256];
	struct tpck_log *log = attached(folder, 1 << 30);
	const off_t first = (sizeof(struct tpck_log_header) + 15) / 16 * 16;
	const uint32_t huge = 0xffffffff, odd = 17 << 20, none = 0, other = 99;
	const uint64_t wrong = 5, most = UINT64_MAX;
	struct tpck_log_position end, past, inside;

	for (uint32_t number = 0; number < 20; number++)
		put(log, number, large(number));
	end = tpck_log_end(log);
	past = (struct tpck_log_position){end.sequence + 1, 64};
	inside = (struct tpck_log_position){end.sequence, end.offset - 8};
	is_true(end.sequence == 1 && open_status(folder, end) == 0);
	is_true(open_status(folder, past) == -ENOENT);
	is_true(open_status(folder, (struct tpck_log_position){end.sequence, 1ull << 40}) == -EBADMSG);
	is_true(open_status(folder, (struct tpck_log_position){UINT64_MAX, 0}) < 0);
	tap_ok(open_status(folder, inside) == -EBADMSG, "a cut inside a record", "");
	for (int s = 0; s < 2; s++) {
		tap_ok(with_damage(folder, end, s, offsetof(struct tpck_log_header, magic), &other, 4) == -EBADMSG, "magic", "");
		tap_ok(with_damage(folder, end, s, offsetof(struct tpck_log_header, version), &other, 4) == -EBADMSG, "version", "");
		tap_ok(with_damage(folder, end, s, offsetof(struct tpck_log_header, sequence), &wrong, 8) == -EBADMSG, "sequence", "");
		tap_ok(with_damage(folder, end, s, first, &huge, 4) == -EBADMSG, "a record that is longer than all", "");
		tap_ok(with_damage(folder, end, s, first, &odd, 4) == -EBADMSG, "a record that leaves its segment", "");
		tap_ok(with_damage(folder, end, s, first, &wrong, 4) == -EBADMSG, "a record that is too short", "");
		tap_ok(with_damage(folder, end, s, first + 4, &none, 2) == -EBADMSG, "a record of no type", "");
		tap_ok(with_damage(folder, end, s, first + 4, &other, 2) == -EBADMSG, "a record of an unknown type", "");
	}
	tap_ok(with_damage(folder, end, 0, offsetof(struct tpck_log_header, used), &most, 8) == -EBADMSG, "more used than there is", "");
	tap_ok(with_damage(folder, end, 0, offsetof(struct tpck_log_header, used), &wrong, 8) == -EBADMSG, "less used than a header", "");
	is_true(open_status(folder, end) == 0);
	snprintf(path, sizeof path, "%s/log.000000", folder);
	is_true(truncate(path, 1 << 20) == 0 && open_status(folder, end) == -EBADMSG);
	is_true(truncate(path, 20) == 0 && open_status(folder, end) == -EBADMSG);
	is_true(truncate(path, 0) == 0 && open_status(folder, end) == -EBADMSG);
	is_true(unlink(path) == 0 && open_status(folder, end) == -ENOENT);
	remove_folder(folder);
}

/* ---- several threads ---- */

static struct tpck_log *shared;

static void *append_all(void *argument)
{
	uint32_t thread = (uint32_t)(uintptr_t)argument;

	for (uint32_t i = 0; i < EACH; i++)
		tpck_log_append(shared, TPCK_RECORD_ELAPSED, 0, thread, i, &i, sizeof i);
	return NULL;
}

static void test_threads(void)
{
	char *folder = tap_folder(tmp);
	pthread_t threads[THREADS];
	uint32_t next[THREADS] = {0};
	struct tpck_log_reader *reader;
	const struct tpck_record *r;
	bool good = true;

	shared = attached(folder, 1 << 30);
	for (uintptr_t t = 0; t < THREADS; t++)
		pthread_create(&threads[t], NULL, append_all, (void *)t);
	for (int t = 0; t < THREADS; t++)
		pthread_join(threads[t], NULL);
	good &= tpck_log_open(&reader, folder, tpck_log_end(shared)) == 0;
	while (good && (r = tpck_log_next(reader)))
		good &= r->thread < THREADS && r->order == next[r->thread]++ && memcmp(r + 1, &r->order, 4) == 0;
	for (int t = 0; t < THREADS; t++)
		good &= next[t] == EACH;
	tap_ok(good, "several threads: each one's records in its order, none lost", "");
	tpck_log_close(reader);
	remove_folder(folder);
}

/* A segment of an older session that a resume was given and did not take. */
struct racing {
	struct tpck_log *log;
	_Atomic bool done;
};

static void *prepare_on(void *argument)
{
	struct racing *racing = argument;

	while (!atomic_load(&racing->done))
		tpck_log_prepare(racing->log);
	return NULL;
}

static size_t same(uint32_t number)
{
	(void)number;
	return 4000;
}

/* Whoever makes segments ahead may be overtaken: each is there once, and whole. */
static void test_prepare(void)
{
	enum { COUNT = 40000 };
	char *folder = tap_folder("/dev/shm");
	struct racing racing = {.log = attached(folder, 1 << 30)};
	pthread_t thread;
	bool good = pthread_create(&thread, NULL, prepare_on, &racing) == 0;

	for (uint32_t number = 0; number < COUNT; number++)
		good &= put(racing.log, number, same(number));
	atomic_store(&racing.done, true);
	pthread_join(thread, NULL);
	tap_ok(good && read_back(folder, tpck_log_end(racing.log), 0, same) == COUNT, "segments are made ahead while others fill them", "");
	remove_folder(folder);
}

static void test_left_alone(void)
{
	char *folder = tap_folder(tmp), theirs[200], ours[200], byte = 0;
	int fd;

	snprintf(theirs, sizeof theirs, "%s/older", folder);
	snprintf(ours, sizeof ours, "%s/log.000000", folder);
	fd = open(theirs, O_RDWR | O_CREAT, 0600);
	is_true(fd >= 0 && pwrite(fd, "x", 1, 1000) == 1 && link(theirs, ours) == 0);
	attached(folder, 1 << 30);
	tap_ok(pread(fd, &byte, 1, 1000) == 1 && byte == 'x', "beginning anew leaves an older session's segment alone", "");
	close(fd);
	unlink(theirs);
	remove_folder(folder);
}

int main(void)
{
	tap_need_shm(512);
	tmp = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
	test_attach();
	test_cut();
	test_segments();
	test_limits();
	test_damage();
	test_threads();
	test_prepare();
	test_left_alone();
	return tap_done();
}
