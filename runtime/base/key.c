/* SPDX-License-Identifier: Apache-2.0 */
/* The user's key. SipHash is written out here, since the preloaded library links no cryptographic library. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/base/key.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/door.h"
#include "runtime/base/layout.h"
#include "runtime/base/settings.h"
#include "runtime/base/text.h"

/* ---- the file --------------------------------------------------------------------------------- */

/* 0, or -errno: -ENOENT where there is none, -EPERM where others may read it, -EBADMSG where it is no key. */
static TPCK_AT_START int read_key(const char *path, uint8_t key[TPCK_KEY_BYTES])
{
	int fd = tpck_sys_openat(AT_FDCWD, path, TPCK_DOOR_READ, 0), rc = fd < 0 ? -errno : 0;
	struct stat found;

	if (!rc && tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH))
		rc = -errno;
	if (!rc && (!S_ISREG(found.st_mode) || found.st_uid != geteuid() || found.st_mode & 077))
		rc = -EPERM;
	if (!rc && (found.st_size != TPCK_KEY_BYTES || tpck_sys_read(fd, key, TPCK_KEY_BYTES) != TPCK_KEY_BYTES))
		rc = -EBADMSG;
	if (fd >= 0)
		tpck_sys_close(fd);
	return rc;
}

static void random_bytes(uint8_t key[TPCK_KEY_BYTES])
{
	uint64_t weak[TPCK_KEY_BYTES / sizeof(uint64_t)] = {tpck_clock_monotonic_ns(), tpck_clock_realtime_ns() ^ (uint64_t)getpid() << 40};

	if (tpck_sys_getrandom(key, TPCK_KEY_BYTES, 0) != TPCK_KEY_BYTES)
		memcpy(key, weak, TPCK_KEY_BYTES);
}

/* Whole and synced under a name that nobody has, and then at its own, if nobody was first: nobody reads half of one. */
static __attribute__((noinline)) void make_key(const char *state)
{
	int folder = tpck_door_open(AT_FDCWD, state, TPCK_DOOR_MAKE);
	char name[64];
	struct tpck_text text = tpck_text_in(name, sizeof name);
	uint8_t key[TPCK_KEY_BYTES];
	uint64_t random;
	int fd;

	if (folder < 0)
		return;
	if (tpck_sys_getrandom(key, sizeof key, 0) != sizeof key || tpck_sys_getrandom(&random, sizeof random, 0) != sizeof random)
		goto out;
	tpck_text_add(&text, TPCK_KEY_FILE ".");
	tpck_text_hexadecimal(&text, random, 16);
	fd = tpck_sys_openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		goto out;
	if (tpck_sys_write(fd, key, sizeof key) == sizeof key && !tpck_sys_fsync(fd))
		tpck_sys_linkat(folder, name, folder, TPCK_KEY_FILE, 0);
	tpck_sys_close(fd);
	tpck_sys_unlinkat(folder, name, 0);
out:
	tpck_sys_close(folder);
}

/* A file that is its user's alone is nobody else's, whatever folder it is in: every start of a program reads it, and asks for no more. It is made
 * only in a folder that is the user's alone. */
static TPCK_AT_START bool find_key(const char *state, uint8_t key[TPCK_KEY_BYTES])
{
	char path[TPCK_SETTING_TEXT_MAX + sizeof "/" TPCK_KEY_FILE];
	struct tpck_text text = tpck_text_in(path, sizeof path);
	int rc;

	tpck_text_add(&text, state);
	tpck_text_add(&text, "/" TPCK_KEY_FILE);
	rc = text.cut ? -ENAMETOOLONG : read_key(path, key);
	if (rc != -ENOENT)
		return rc == 0;
	tpck_door_above(state);
	make_key(state);
	return read_key(path, key) == 0;
}

TPCK_AT_START bool tpck_key_of(const char *state, uint8_t key[TPCK_KEY_BYTES])
{
	int saved = errno;
	bool found = find_key(state, key);

	if (!found)
		random_bytes(key);
	errno = saved;
	return found;
}

/* ---- SipHash-2-4 ------------------------------------------------------------------------------ */

static inline uint64_t turned(uint64_t x, unsigned by)
{
	return x << by | x >> (64 - by);
}

static inline void rounds(uint64_t v[4], unsigned count)
{
	while (count--) {
		v[0] += v[1];
		v[2] += v[3];
		v[1] = turned(v[1], 13) ^ v[0];
		v[3] = turned(v[3], 16) ^ v[2];
		v[0] = turned(v[0], 32);
		v[2] += v[1];
		v[0] += v[3];
		v[1] = turned(v[1], 17) ^ v[2];
		v[3] = turned(v[3], 21) ^ v[0];
		v[2] = turned(v[2], 32);
	}
}

/* Up to eight bytes, the first the lowest. */
static inline uint64_t word_of(const uint8_t *bytes, size_t count)
{
	uint64_t word = 0;

	memcpy(&word, bytes, count);
	return le64toh(word);
}

TPCK_AT_START uint64_t tpck_key_digest(const uint8_t key[TPCK_KEY_BYTES], const void *bytes, size_t size)
{
	const uint8_t *at = bytes, *end = at + size / 8 * 8;
	uint64_t k0 = word_of(key, 8), k1 = word_of(key + 8, 8), word;
	uint64_t v[4] = {k0 ^ 0x736f6d6570736575u, k1 ^ 0x646f72616e646f6du, k0 ^ 0x6c7967656e657261u, k1 ^ 0x7465646279746573u};

	for (; at < end; at += 8) {
		word = word_of(at, 8);
		v[3] ^= word;
		rounds(v, 2);
		v[0] ^= word;
	}
	word = word_of(at, size % 8) | (uint64_t)size << 56;
	v[3] ^= word;
	rounds(v, 2);
	v[0] ^= word;
	v[2] ^= 0xff;
	rounds(v, 4);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}
