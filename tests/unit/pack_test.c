/* SPDX-License-Identifier: Apache-2.0 */
/* Packed segments of the log: what is read is what was written, equal iterations cost a few bytes, what is damaged or cut short is refused, and who writes
 * the log has the memory back. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/replay/record_log.h"
#include "runtime/store/memory_tier.h"
#include "runtime/store/packing.h"
#include "runtime/wire/pack.h"
#include "tests/unit/shm_room.h"
#include "tests/unit/store_tap.h"

#define is_true(good) tap_ok(good, #good, "")

enum { GENERATION = 7, MARKS = 12 };
static const char *tmp;
static struct tpck_error err;

/* What a small trainer's iteration leaves: marks of sequences that were seen before, a draw, a loss, a boundary. */
static bool iteration(struct tpck_log *log, uint64_t step, uint32_t *random)
{
	bool good = true;

	for (uint64_t i = 0; i < MARKS; i++) {
		struct tpck_record_mark mark = {.digest = 0x9e3779b97f4a7c15u * (i + 1), .places = 77 * i, .operations = 9};

		good &= tpck_log_append(log, TPCK_RECORD_MARK, 0, 1, (uint32_t)step, &mark, sizeof mark) != NULL;
		good &= tpck_log_append(log, TPCK_RECORD_QUERY, 0, 1, (uint32_t)(step * MARKS * 9 + i * 9), &(struct tpck_record_query){0, 0}, sizeof(struct tpck_record_query)) != NULL;
	}
	*random = *random * 1664525 + 1013904223;
	good &= tpck_log_append(log, TPCK_RECORD_FROM_DEVICE, 0, 1, (uint32_t)step, random, sizeof *random) != NULL;
	return good && tpck_log_append(log, TPCK_RECORD_BOUNDARY, 0, 0, (uint32_t)step,
				       &(struct tpck_record_boundary){step, step * 3, 1000000007u * step + *random % 9000, 1000000007u * step + *random % 9000 + 31}, sizeof(struct tpck_record_boundary)) != NULL;
}

/* Each record's bytes up to the cut, into one digest of this test's own. */
static uint64_t sum(const char *folder, struct tpck_log_position cut)
{
	struct tpck_log_reader *reader;
	const struct tpck_record *record;
	uint64_t sum = 1;

	if (tpck_log_open(&reader, folder, cut))
		return 0;
	while ((record = tpck_log_next(reader)))
		for (size_t i = 0; i < sizeof *record + record->bytes; i++)
			sum = (sum ^ ((const unsigned char *)record)[i]) * 1099511628211u;
	tpck_log_close(reader);
	return sum;
}

static uint64_t size_of(const char *path)
{
	struct stat found;

	return stat(path, &found) ? 0 : (uint64_t)found.st_size;
}

static bool drop(const char *folder, uint64_t sequence)
{
	char path[TPCK_PATH_MAX];

	tpck_log_path(folder, sequence, path, sizeof path);
	return unlink(path) == 0;
}

static uint64_t shared_kib(void)
{
	char line[256];
	uint64_t kib = 0;
	FILE *f = fopen("/proc/self/status", "r");

	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "RssShmem: %lu", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib;
}

static void test_log(void)
{
	char *folder = tap_folder(tmp), path[TPCK_PATH_MAX], note[160];
	struct tpck_log *log = tpck_log_new(40u << 20);
	struct tpck_log_position cut, end;
	uint64_t step = 1, whole, before, packed = 0, raw;
	uint32_t random = 1;
	bool good = log && tpck_log_attach(log, folder, GENERATION, NULL) == 0;

	while (good && (cut = tpck_log_end(log)).sequence < 2)
		good = iteration(log, step++, &random);
	is_true(good);
	whole = sum(folder, cut);
	before = shared_kib();
	for (uint64_t s = 0; s < 2; s++) {
		is_true(tpck_pack_segment(folder, s, &err) == 0);
		tpck_pack_path(folder, s, path, sizeof path);
		packed += size_of(path);
		is_true(tpck_pack_raw(path, s, &raw, &err) == 0 && raw > (16u << 20) - 4096);
		is_true(drop(folder, s));
	}
	snprintf(note, sizeof note, "%.1f of %.1f", (double)packed / (double)step, 32.0 * (1 << 20) / (double)step);
	tap_ok(packed / step < 12, "an iteration like the one before takes a few bytes", note);
	printf("# %s bytes\n", note);
	is_true(whole && sum(folder, cut) == whole);
	is_true(tpck_log_timeline(folder) == GENERATION);
	is_true(tpck_log_check(folder, &(struct tpck_cut){cut.sequence, cut.offset}, &err) == 0);
	tpck_log_give_back(log, 2);
	snprintf(note, sizeof note, "%llu KiB before, %llu behind", (unsigned long long)before, (unsigned long long)shared_kib());
	tap_ok(shared_kib() + (31u << 10) < before, "who writes the log has the memory of what is packed back", note);
	/* 32 MiB of the 40 that the log may have are used, but for what packing has saved. */
	while (good && tpck_log_end(log).sequence < 4)
		good = iteration(log, step++, &random);
	is_true(good && !tpck_log_failed(log));
	while (!tpck_log_failed(log) && tpck_log_end(log).sequence < 6)
		iteration(log, step++, &random);
	is_true(tpck_log_failed(log) && tpck_log_end(log).sequence == 4);
	end = tpck_log_end(log);
	is_true(sum(folder, end) != 0);
	tpck_pack_path(folder, 1, path, sizeof path);
	is_true(unlink(path) == 0 && sum(folder, end) == 0);
	tpck_session_remove(folder);
}

/* ---- what is no pack ----------------------------------------------------------------------------------- */

static struct tpck_log_header *segment_of(size_t bytes, bool chance)
{
	struct tpck_log_header *segment = calloc(1, sizeof *segment + bytes);

	segment->magic = TPCK_LOG_MAGIC;
	segment->version = TPCK_WIRE_VERSION;
	segment->sealed = TPCK_LOG_SEALED;
	segment->generation = GENERATION;
	segment->sequence = 3;
	segment->bytes = segment->used = sizeof *segment + bytes;
	for (size_t i = 0; i < bytes; i++)
		((uint8_t *)(segment + 1))[i] = (uint8_t)(chance ? rand() >> 5 : (int)(i / 7));
	return segment;
}

static int read_pack(const void *pack, size_t size, const struct tpck_log_header *segment)
{
	uint64_t end = segment->used;
	uint8_t *to = calloc(1, end);
	int rc = tpck_pack_read(pack, size, 3, to, end);

	if (!rc && memcmp(to, segment, end) != 0)
		rc = -EIO;
	free(to);
	return rc;
}

static void test_damage(void)
{
	enum { BYTES = 100000 };
	struct tpck_log_header *segment = segment_of(BYTES, false), *chance = segment_of(BYTES, true);
	unsigned refused = 0, tried = 0, wrong = 0;
	uint8_t *pack, *bad;
	size_t size;

	is_true(tpck_pack_make(segment, segment->used, &pack, &size) == 0 && size < BYTES / 10);
	is_true(read_pack(pack, size, segment) == 0);
	bad = malloc(size);
	/* The segment's generation and its file's size are not the pack's to know. Some bits of a frame mean nothing. */
	for (size_t at = 0; at < size; at += at < 64 ? 1 : 37) {
		int rc;

		if ((at >= offsetof(struct tpck_log_header, generation) && at < offsetof(struct tpck_log_header, sequence)) ||
		    (at >= offsetof(struct tpck_log_header, bytes) && at < offsetof(struct tpck_log_header, used)))
			continue;
		memcpy(bad, pack, size);
		bad[at] ^= 0x08;
		rc = read_pack(bad, size, segment);
		tried++;
		refused += rc == -EBADMSG;
		wrong += rc == -EIO;
	}
	tap_ok(!wrong && refused + 2 >= tried && tried > 40, "damaged bytes are found", "");
	for (size_t cut = 0; cut < size; cut += 11) {
		memcpy(bad, pack, size);
		((struct tpck_log_header *)bad)->used = cut > sizeof *segment ? cut : size;
		wrong += read_pack(bad, cut, segment) != -EBADMSG;
	}
	tap_ok(!wrong, "so is a pack that is cut short", "");
	free(bad);
	is_true(tpck_pack_make(chance, chance->used, &bad, &size) == -EFBIG);
	free(pack);
	free(segment);
	free(chance);
}

/* Whatever the bytes are, both ways find the same. */
static void test_turns(void)
{
	enum { BYTES = 4096 };
	uint8_t bytes[BYTES], same[BYTES];
	bool good = true;

	for (int round = 0; round < 2000; round++) {
		for (size_t i = 0; i < BYTES; i++)
			bytes[i] = (uint8_t)(rand() >> 7);
		/* Some records, the last of which does not fit. */
		for (size_t at = 0; at + sizeof(struct tpck_record) <= BYTES;) {
			struct tpck_record record = {(uint32_t)rand() % 200, (uint16_t)(rand() % 24), 0, (uint32_t)rand() % 3, (uint32_t)rand()};

			memcpy(bytes + at, &record, sizeof record);
			at += (sizeof record + record.bytes + 15) / 16 * 16;
		}
		memcpy(same, bytes, BYTES);
		tpck_pack_turn(same, BYTES, true);
		good &= memcmp(same, bytes, BYTES) != 0;
		tpck_pack_turn(same, BYTES, false);
		good &= memcmp(same, bytes, BYTES) == 0;
	}
	is_true(good);
}

int main(void)
{
#ifndef HAVE_ZSTD
	puts("1..0 # SKIP this build has no zstd");
	return 0;
#endif
	tap_need_shm(160);
	tmp = "/dev/shm";
	test_log();
	test_damage();
	test_turns();
	return tap_done();
}
