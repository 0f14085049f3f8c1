/* SPDX-License-Identifier: Apache-2.0 */
/* Stashes: what is put there comes back, from memory and from the store; what waits for the store is bounded; what nothing refers to goes. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/digest.h"
#include "runtime/replay/stash.h"
#include "runtime/wire/segment.h"
#include "tests/unit/store_tap.h"

#define is_true(condition) tap_ok((condition), #condition, NULL)

enum { PIECES = 40, MOST = 3 << 20, LIMIT = 16 << 20 };

static char memory[64], store[64], bytes[MOST], back[MOST];
static struct tpck_record_stashed where[PIECES];

static size_t size_of(int i)
{
	return i == 7 ? MOST : (64 << 10) + (size_t)i * 1237;
}

static void fill(int i)
{
	for (size_t b = 0; b < size_of(i); b++)
		bytes[b] = (char)((b + (size_t)i * 7) % 251);
}

static int same(int from, int to)
{
	int count = 0;

	for (int i = from; i < to; i++) {
		fill(i);
		memset(back, 0, size_of(i));
		count += !tpck_stash_get(&where[i], back) && memcmp(back, bytes, size_of(i)) == 0;
	}
	return count;
}

static void path_of(char path[160], const char *folder, uint64_t number)
{
	snprintf(path, 160, "%s/3.%llu", folder, (unsigned long long)number);
}

/* As the agent does. False: it is not in memory. */
static bool to_store(uint64_t number)
{
	static char whole[16 << 20];
	struct tpck_stash_header *header = (void *)whole;
	char from[160], to[160];
	uint64_t used;
	ssize_t got;
	int fd;

	path_of(from, memory, number);
	path_of(to, store, number);
	fd = open(from, O_RDONLY);
	if (fd < 0)
		return false;
	got = read(fd, whole, sizeof whole);
	close(fd);
	used = atomic_load(&header->used);
	header->digest = header->number;
	for (uint64_t at = TPCK_STASH_AT; at < used; at += TPCK_STASH_PIECE)
		header->digest = tpck_digest64(whole + at, used - at < TPCK_STASH_PIECE ? used - at : TPCK_STASH_PIECE, header->digest);
	fd = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	got = got > 0 ? write(fd, whole, (size_t)got) : -1;
	close(fd);
	return got > 0 && unlink(from) == 0;
}

static void flip(uint64_t number)
{
	char path[160], byte;
	int fd;

	path_of(path, store, number);
	fd = open(path, O_RDWR);
	if (pread(fd, &byte, 1, TPCK_STASH_AT + 5) == 1) {
		byte ^= 1;
		(void)!pwrite(fd, &byte, 1, TPCK_STASH_AT + 5);
	}
	close(fd);
}

static bool is_there(const char *folder, uint64_t number)
{
	char path[160];

	path_of(path, folder, number);
	return access(path, F_OK) == 0;
}

static void test_room(void)
{
	struct tpck_record_stashed at;
	struct tpck_stash_header header;
	const char *why = NULL;
	char path[160];
	void *piece;
	int fd, count;

	/* Bytes that come later: the file is not done before that. */
	fill(3);
	is_true(!tpck_stash_room(size_of(3), &at, &piece));
	path_of(path, memory, at.number);
	fd = open(path, O_RDONLY);
	is_true(pread(fd, &header, sizeof header, 0) == sizeof header && atomic_load(&header.awaited) == 1);
	memcpy(piece, bytes, size_of(3));
	tpck_stash_came(&at);
	is_true(pread(fd, &header, sizeof header, 0) == sizeof header && atomic_load(&header.awaited) == 0);
	close(fd);
	is_true(!tpck_stash_get(&at, back) && memcmp(back, bytes, size_of(3)) == 0);
	for (count = 0; count < 1000 && !why; count++)
		why = tpck_stash_put(bytes, MOST, &at);
	is_true(count < LIMIT / MOST + 1 && strstr(why, "TRANSPCKPT_RECORD_DISK"));
	/* What has come to the store does not count any more. */
	for (uint64_t number = 1; number < 1000; number++)
		(void)to_store(number);
	is_true(!tpck_stash_put(bytes, MOST, &at));
}

int main(void)
{
	char root[] = "/tmp/tpck-stash.XXXXXX", path[160];
	uint64_t last;
	int good = 0, other = PIECES - 1;

	if (!mkdtemp(root))
		return 1;
	snprintf(memory, sizeof memory, "%s/stash/p", root);
	snprintf(store, sizeof store, "%s/keep", root);
	is_true(mkdir(store, 0700) == 0 && mkdir(strcat(store, "/p"), 0700) == 0);
	is_true(tpck_stash_put(bytes, MOST, &where[0]) != NULL);
	tpck_stash_folders(memory, store);
	tpck_stash_clear();
	tpck_stash_begin(3);
	tpck_stash_limit(LIMIT);
	for (int i = 0; i < PIECES; i++) {
		fill(i);
		good += !tpck_stash_put(bytes, size_of(i), &where[i]);
	}
	is_true(good == PIECES && same(0, PIECES) == PIECES);
	last = where[PIECES - 1].number;
	is_true(last >= 1 && to_store(0) && same(0, PIECES) == PIECES);
	flip(0);
	/* Each is looked at once: another one in between. */
	while (where[other].number != last - 1)
		other--;
	is_true(to_store(last - 1) && same(other, other + 1) == 1);
	is_true(tpck_stash_get(&where[0], back) == -EBADMSG);
	flip(0);
	is_true(tpck_stash_refers(&where[0]));
	where[1].number = 77;
	is_true(!tpck_stash_refers(&where[1]) && tpck_stash_get(&where[1], back) == -ENODATA);
	where[0].offset = UINT64_MAX - 10;
	is_true(!tpck_stash_refers(&where[0]));
	test_room();
	/* Another process goes on from a cut that refers to the first one. */
	tpck_stash_begin(4);
	/* Who may rename the job's folder of the store has put a link there. */
	snprintf(path, sizeof path, "%s.away", root);
	is_true(rename(root, path) == 0 && symlink(path, root) == 0);
	tpck_stash_settle();
	is_true(unlink(root) == 0 && rename(path, root) == 0 && is_there(store, 1) && is_there(store, 2));
	tpck_stash_settle();
	is_true(is_there(store, 0) && !is_there(store, 1) && !is_there(store, 2) && !is_there(memory, 2));
	tpck_stash_clear();
	snprintf(path, sizeof path, "rm -rf %s", root);
	return tap_done() | system(path);
}
