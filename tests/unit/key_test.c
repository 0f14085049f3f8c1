// SPDX-License-Identifier: Apache-2.0
/* The user's key: SipHash's own vectors, several that make the file at once, and what is refused. */
#include "config.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/key.h"
#include "tests/unit/store_tap.h"

#define check(good, what) tap_ok(good, what, NULL)
enum { MAKERS = 16 };

static char state[400], file[420];

/* The first and others of the 64 vectors that the reference implementation comes with: key 00 01 ... 0f, input 00 01 ... of so many bytes. */
static void test_vectors(void)
{
	static const struct {
		size_t size;
		uint64_t digest;
	} known[] = {
		{0, 0x726fdb47dd0e0e31}, {1, 0x74f839c593dc67fd}, {7, 0xab0200f58b01d137}, {8, 0x93f5f5799a932462}, {15, 0xa129ca6149be45e5}, {63, 0x958a324ceb064572},
	};
	uint8_t key[TPCK_KEY_BYTES], input[64];
	bool all = true;

	for (uint8_t i = 0; i < sizeof input; i++)
		input[i] = i;
	memcpy(key, input, sizeof key);
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		all = all && tpck_key_digest(key, input, known[i].size) == known[i].digest;
	check(all, "SipHash-2-4 as its authors have it");
}

static void test_makers(void)
{
	uint8_t(*got)[TPCK_KEY_BYTES] = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), again[TPCK_KEY_BYTES];
	bool all = true;
	struct stat found;
	int status, gate[2];
	char byte;

	if (got == MAP_FAILED || pipe(gate))
		exit(99);
	for (int i = 0; i < MAKERS; i++)
		if (!fork()) {
			close(gate[1]);
			(void)!read(gate[0], &byte, 1);
			_exit(!tpck_key_of(state, got[i]));
		}
	close(gate[0]);
	close(gate[1]);
	for (int i = 0; i < MAKERS; i++)
		all = wait(&status) > 0 && status == 0 && all;
	for (int i = 1; i < MAKERS; i++)
		all = all && memcmp(got[0], got[i], TPCK_KEY_BYTES) == 0;
	check(all, "of several that make it at once all have the same");
	check(stat(file, &found) == 0 && (found.st_mode & 07777) == 0600 && found.st_size == TPCK_KEY_BYTES && found.st_nlink == 1, "its user's alone");
	check(tpck_key_of(state, again) && memcmp(again, got[0], sizeof again) == 0, "and it stays");
	check(access(state, F_OK) == 0 && unlink(file) == 0 && rmdir(state) == 0, "nothing else is left beside it");
}

/* What is at the file's name is no key: each start is its own, and what was there is as it was. */
static void refused(const char *what)
{
	uint8_t first[TPCK_KEY_BYTES], second[TPCK_KEY_BYTES];
	struct stat before, behind;

	check(lstat(file, &before) == 0 && !tpck_key_of(state, first) && !tpck_key_of(state, second) && memcmp(first, second, sizeof first) != 0 &&
	      lstat(file, &behind) == 0 && before.st_ino == behind.st_ino && before.st_mode == behind.st_mode, what);
	unlink(file);
}

static void put(const char *bytes, mode_t mode)
{
	int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, bytes, strlen(bytes)) < 0 || fchmod(fd, mode))
		exit(99);
	close(fd);
}

static void test_refusals(void)
{
	uint8_t key[TPCK_KEY_BYTES];

	if (mkdir(state, 0700))
		exit(99);
	put("0123456789abcdef", 0644);
	refused("one that others may read");
	put("0123456", 0600);
	refused("one that is not whole");
	if (mkfifo(file, 0600))
		exit(99);
	refused("a FIFO, which nobody waits at");
	if (symlink("/dev/zero", file))
		exit(99);
	refused("a link");
	check(chmod(state, 0777) == 0 && !tpck_key_of(state, key) && access(file, F_OK) != 0, "in a folder that others may write to");
	check(rmdir(state) == 0, "nothing is made");
}

int main(void)
{
	const char *folder = tap_folder(getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	char above[300];

	snprintf(above, sizeof above, "%s/home", folder);
	snprintf(state, sizeof state, "%s/state", above);
	snprintf(file, sizeof file, "%s/" TPCK_KEY_FILE, state);
	test_vectors();
	test_makers();
	test_refusals();
	check(rmdir(above) == 0 && rmdir(folder) == 0, "nothing is left");
	return tap_done();
}
