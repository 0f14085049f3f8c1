// SPDX-License-Identifier: Apache-2.0
/* A file of the program's is put at its path whole: bytes, holes, mode, times and attributes, with a part that was written while it
 * still grew; and what a step that fails leaves. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "runtime/store/replace.h"
#include "tests/unit/store_tap.h"

enum { CHUNK = TPCK_SUMS_CHUNK, HALF = CHUNK / 2, WHOLE = 3, TAIL = 4097 };
#define BYTES ((uint64_t)WHOLE * CHUNK + TAIL)

static uint8_t *content;
static char *memory, *disk;
static int disk_folder;

static void write_all(int fd, const void *bytes, size_t size, uint64_t at)
{
	if (pwrite(fd, bytes, size, (off_t)at) != (ssize_t)size)
		exit(99);
}

/* What the program has saved: its second chunk is a hole, and the begin of the third one. */
static int saved(void)
{
	char path[160];
	int fd;

	snprintf(path, sizeof path, "%s/saved", memory);
	unlink(path);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)BYTES))
		exit(99);
	write_all(fd, content, CHUNK, 0);
	write_all(fd, content + 2 * CHUNK + HALF, HALF + TAIL, 2 * (uint64_t)CHUNK + HALF);
	return fd;
}

static bool holds(int folder, const char *name, const uint8_t *wanted, uint64_t bytes)
{
	int fd = openat(folder, name, O_RDONLY | O_CLOEXEC);
	uint8_t *got = malloc(bytes + 1);
	bool same = fd >= 0 && got && pread(fd, got, bytes + 1, 0) == (ssize_t)bytes && memcmp(got, wanted, bytes) == 0;

	free(got);
	if (fd >= 0)
		close(fd);
	return same;
}

static bool is_there(int folder, const char *name)
{
	return faccessat(folder, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool idle(void)
{
	return false;
}

static void test_copy(void)
{
	struct tpck_error err = {0};
	struct tpck_sums *sums, *again;
	struct stat was, is;
	bool attributes;
	char value[8];
	int fd = saved();

	attributes = !fsetxattr(fd, "user.note", "mine", 4, 0);
	fchmod(fd, 0641);
	futimens(fd, (const struct timespec[2]){{1000, 5}, {2000, 7}});
	fstat(fd, &was);
	close(openat(disk_folder, "part", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	ok(tpck_replace_copy(fd, disk_folder, "part", "model.pt", NULL, NULL, &sums, &err) == 0,
	   "a file is copied over an old part");
	fstatat(disk_folder, "part", &is, 0);
	ok(holds(disk_folder, "part", content, BYTES), "all of its bytes");
	ok(is.st_mode == was.st_mode && is.st_mtim.tv_sec == 2000 && is.st_mtim.tv_nsec == 7 && is.st_atim.tv_sec == 1000,
	   "mode and times");
	ok((uint64_t)is.st_blocks * 512 < BYTES - CHUNK, "its hole is one");
	fd = openat(disk_folder, "part", O_RDONLY | O_CLOEXEC);
	if (attributes && (fgetxattr(fd, "user.note", value, sizeof value) >= 0 || errno != EOPNOTSUPP))
		ok(fgetxattr(fd, "user.note", value, sizeof value) == 4 && memcmp(value, "mine", 4) == 0, "its attribute");
	again = tpck_sums_new(BYTES);
	ok(sums && again && sums->count == WHOLE + 1 && !tpck_sums_take(again, fd, idle, &err) &&
		   memcmp(again->digest, sums->digest, sums->count * sizeof *sums->digest) == 0, "the sums are those of what is there");
	ok(sums && sums->modified.tv_sec == 2000 && !sums->shared, "and say when it was written");
	tpck_sums_free(sums);
	tpck_sums_free(again);
	close(fd);
}

/* What a sync has made stays until there is something whole in its place. */
static void test_kept(void)
{
	struct tpck_error err = {0};
	struct tpck_sums *sums;
	char path[160];
	int fd = saved(), blind, old = openat(disk_folder, "kept", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	write_all(old, content, TAIL, 0);
	close(old);
	snprintf(path, sizeof path, "%s/saved", memory);
	blind = open(path, O_WRONLY | O_CLOEXEC);
	ok(tpck_replace_copy(blind, disk_folder, "kept", "model.pt", NULL, NULL, &sums, &err) < 0 && !sums, "one that cannot be read is not copied");
	ok(holds(disk_folder, "kept", content, TAIL) && !is_there(disk_folder, "kept.new"), "and the part that was there stays as it was");
	ok(tpck_replace_copy(fd, disk_folder, "kept", "model.pt", NULL, NULL, &sums, &err) == 0 && holds(disk_folder, "kept", content, BYTES) &&
		   !is_there(disk_folder, "kept.new"), "one that can be read takes its place");
	tpck_sums_free(sums);
	close(blind);
	close(fd);
	unlinkat(disk_folder, "kept", 0);
}

static void test_ahead(void)
{
	struct tpck_ahead ahead = {.fd = -1};
	struct tpck_error err = {0};
	struct tpck_sums *sums;
	uint8_t *changed = malloc(BYTES);
	int fd = saved();

	memcpy(changed, content, BYTES);
	ok(tpck_replace_ahead(fd, disk_folder, "ahead", &ahead, 1) == 1 && ahead.count == 1, "one chunk ahead");
	ok(tpck_replace_ahead(fd, disk_folder, "ahead", &ahead, 9) == 1 && ahead.count == WHOLE - 1,
	   "the rest, but the last whole one");
	ok(tpck_replace_ahead(fd, disk_folder, "ahead", &ahead, 9) == 0 && tpck_replace_ahead_valid(&ahead),
	   "no more is there to do");
	/* The program goes back: a byte in a chunk that is in the part, one in a hole that is, and the hole's end. */
	changed[5] ^= 1;
	changed[CHUNK + 9] = 7;
	write_all(fd, changed + 5, 1, 5);
	write_all(fd, changed + CHUNK + 9, 1, CHUNK + 9);
	ok(tpck_replace_copy(fd, disk_folder, "ahead", "model.pt", &ahead, NULL, &sums, &err) == 0 && ahead.fd == -1,
	   "the copy uses what is ahead");
	ok(holds(disk_folder, "ahead", changed, BYTES), "and what has changed since is as it is now");
	tpck_sums_free(sums);
	/* Data that becomes a hole again. */
	ok(tpck_replace_ahead(fd, disk_folder, "ahead", &ahead, 9) == WHOLE - 1, "all ahead");
	memset(changed, 0, CHUNK);
	if (ftruncate(fd, 0) || ftruncate(fd, (off_t)BYTES))
		exit(99);
	write_all(fd, changed + CHUNK, BYTES - CHUNK, CHUNK);
	ok(tpck_replace_copy(fd, disk_folder, "ahead", "model.pt", &ahead, NULL, &sums, &err) == 0 && holds(disk_folder, "ahead", changed, BYTES),
	   "what was data and is a hole by now");
	tpck_sums_free(sums);
	/* Somebody takes the part away. */
	ok(tpck_replace_ahead(fd, disk_folder, "ahead", &ahead, 2) == 2 && !unlinkat(disk_folder, "ahead", 0) && !tpck_replace_ahead_valid(&ahead),
	   "a part without a name is none");
	ok(tpck_replace_copy(fd, disk_folder, "ahead", "model.pt", &ahead, NULL, &sums, &err) == 0 && holds(disk_folder, "ahead", changed, BYTES),
	   "and is made anew");
	tpck_sums_free(sums);
	tpck_replace_ahead_end(&ahead);
	unlinkat(disk_folder, "ahead", 0);
	free(changed);
	close(fd);
}

static void test_commit(void)
{
	struct tpck_error err = {0};
	int other = open(memory, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd;
	uint8_t old = 1;
	struct stat at, far;

	fd = openat(disk_folder, "model.pt", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	write_all(fd, &old, 1, 0);
	close(fd);
	ok(tpck_replace_commit(disk_folder, "none", disk_folder, "model.pt", &err) == -ENOENT && strstr(err.text, "model.pt"),
	   "no part: said");
	err.text[0] = '\0';
	fd = openat(other, "far", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	fstat(fd, &far);
	close(fd);
	fstatat(disk_folder, "part", &at, 0);
	if (far.st_dev != at.st_dev)
		ok(tpck_replace_commit(other, "far", disk_folder, "model.pt", &err) == -EXDEV && !err.text[0] && is_there(other, "far"),
		   "another file system: for the caller to see");
	ok(holds(disk_folder, "model.pt", &old, 1), "and nothing has happened");
	fstat(other, &at);
	ok(tpck_replace_commit(disk_folder, "part", disk_folder, "model.pt", &err) == 0 && !is_there(disk_folder, "part") &&
		   holds(disk_folder, "model.pt", content, BYTES), "the part becomes the file");
	fd = tpck_replace_folder(memory, at.st_dev, at.st_ino, &err);
	ok(fd >= 0, "a folder that is the one that was meant");
	close(fd);
	ok(tpck_replace_folder(memory, at.st_dev, at.st_ino + 1, &err) == -ESTALE && tpck_replace_folder(memory, at.st_dev + 1, at.st_ino, &err) == -ESTALE,
	   "another one of that name is not");
	unlinkat(other, "far", 0);
	close(other);
}

static void test_again(void)
{
	struct tpck_error err = {0};
	struct tpck_sums *sums = (void *)&err;
	int fd = openat(disk_folder, "model.pt", O_RDONLY | O_CLOEXEC), writer;
	struct stat was, is;

	fstat(fd, &was);
	ok(tpck_replace_cached(fd), "what has just been written is in memory");
	ok(tpck_replace_rewrite(fd, disk_folder, "again", "model.pt", &err) == 0 && holds(disk_folder, "again", content, BYTES),
	   "what a disk may have lost is written again");
	fstatat(disk_folder, "again", &is, 0);
	ok(is.st_mode == was.st_mode && is.st_mtim.tv_sec == was.st_mtim.tv_sec && is.st_ino != was.st_ino && !is_there(disk_folder, "again.new"),
	   "as another file with the same attributes");
	ok(tpck_replace_unwritten(fd), "a file that nobody writes");
	writer = openat(disk_folder, "model.pt", O_WRONLY | O_CLOEXEC);
	ok(!tpck_replace_unwritten(fd), "a file that somebody writes");
	close(writer);
	ok(tpck_replace_copy(fd, disk_folder, "no/part", "model.pt", NULL, NULL, &sums, &err) == -ENOENT && !sums && strstr(err.text, "model.pt"),
	   "a part that cannot be made is said");
	writer = openat(disk_folder, "again", O_WRONLY | O_CLOEXEC);
	ok(tpck_replace_copy(writer, disk_folder, "third", "model.pt", NULL, NULL, &sums, &err) == -EBADF && !sums && !is_there(disk_folder, "third"),
	   "a copy that fails leaves no part");
	close(writer);
	close(fd);
}

int main(void)
{
	static const char *const left[] = {"part", "again", "model.pt"};
	char path[160];

	content = malloc(BYTES);
	memory = tap_folder("/dev/shm");
	disk = tap_folder("/tmp");
	disk_folder = open(disk, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (!content || disk_folder < 0)
		return 99;
	for (uint64_t i = 0; i < BYTES; i++)
		content[i] = (uint8_t)(1 + i % 251);
	memset(content + CHUNK, 0, CHUNK + HALF);
	test_copy();
	test_kept();
	test_ahead();
	test_commit();
	test_again();
	for (size_t i = 0; i < sizeof left / sizeof *left; i++)
		unlinkat(disk_folder, left[i], 0);
	snprintf(path, sizeof path, "%s/saved", memory);
	unlink(path);
	rmdir(memory);
	rmdir(disk);
	free(content);
	return tap_done();
}
