/* SPDX-License-Identifier: Apache-2.0 */
/* The job's secret, over libsodium. */
#include "config.h"

#include "runtime/peer/secret.h"

#include <errno.h>

#ifdef HAVE_SODIUM

#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/door.h"
#include "runtime/store/file.h"
#include "runtime/store/file_names.h"

_Static_assert(TPCK_SECRET_BYTES == crypto_auth_KEYBYTES && TPCK_PROOF_BYTES == crypto_auth_BYTES &&
		       TPCK_NONCE_BYTES == crypto_scalarmult_BYTES && TPCK_NONCE_BYTES == crypto_scalarmult_SCALARBYTES,
	       "sizes of libsodium");

/* What the user names is opened as it is named. */
static int open_secret(const char *path, int names)
{
	int fd = names < 0 ? open(path, TPCK_DOOR_READ) : tpck_door_file(path, (unsigned)names + 1, TPCK_DOOR_READ, 0);

	return fd < 0 && names < 0 ? -errno : fd;
}

static int read_secret(const char *path, int names, uint8_t secret[TPCK_SECRET_BYTES], struct tpck_error *err)
{
	char text[2 * TPCK_SECRET_BYTES + 2] = "";
	int fd = open_secret(path, names);
	struct stat status;
	ssize_t got;
	size_t bytes;

	if (fd < 0)
		return tpck_error_set(err, -fd, "opening the job's secret %s", path);
	if (fstat(fd, &status) || !S_ISREG(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 077)) {
		close(fd);
		return tpck_error_set(err, EPERM, "using the job's secret %s, which is not its user's alone", path);
	}
	got = read(fd, text, sizeof text - 1);
	close(fd);
	if (got < 2 * TPCK_SECRET_BYTES ||
	    sodium_hex2bin(secret, TPCK_SECRET_BYTES, text, 2 * TPCK_SECRET_BYTES, NULL, &bytes, NULL) ||
	    bytes != TPCK_SECRET_BYTES)
		return tpck_error_set(err, EBADMSG, "using the job's secret %s, which is not %d hexadecimal digits", path,
				      2 * TPCK_SECRET_BYTES);
	return 0;
}

static int make_secret(const char *path, int names, uint8_t secret[TPCK_SECRET_BYTES], struct tpck_error *err)
{
	char text[2 * TPCK_SECRET_BYTES + 1], folder[TPCK_PATH_MAX];
	struct tpck_below below;
	int rc;

	snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
	below = (struct tpck_below){tpck_door_folder(folder, (unsigned)names, TPCK_DOOR_MAKE), strlen(folder) + 1};
	if (below.at < 0)
		return tpck_error_set(err, -below.at, "making the job's secret %s", path);
	randombytes_buf(secret, TPCK_SECRET_BYTES);
	sodium_bin2hex(text, sizeof text, secret, TPCK_SECRET_BYTES);
	rc = tpck_file_write_below(below, path, text, strlen(text), TPCK_FILE_ABSENT | TPCK_FILE_DURABLE, err);
	close(below.at);
	return rc == -EEXIST ? 0 : rc;
}

int tpck_secret_load(const char *path, int names, uint8_t secret[TPCK_SECRET_BYTES], struct tpck_error *err)
{
	int fd, rc = 0;

	if (sodium_init() < 0)
		return tpck_error_set(err, EIO, "starting libsodium");
	fd = names < 0 ? -1 : open_secret(path, names);
	if (names >= 0 && fd == -ENOENT)
		rc = make_secret(path, names, secret, err);
	if (fd >= 0)
		close(fd);
	return rc ? rc : read_secret(path, names, secret, err);
}

void tpck_nonce(uint8_t kept[TPCK_NONCE_BYTES], uint8_t nonce[TPCK_NONCE_BYTES])
{
	randombytes_buf(kept, TPCK_NONCE_BYTES);
	(void)crypto_scalarmult_base(nonce, kept);
}

int tpck_nonce_shared(const uint8_t kept[TPCK_NONCE_BYTES], const uint8_t nonce[TPCK_NONCE_BYTES], uint8_t shared[TPCK_NONCE_BYTES])
{
	return crypto_scalarmult(shared, kept, nonce);
}

void tpck_proof(const uint8_t secret[TPCK_SECRET_BYTES], const void *text, size_t size, uint8_t proof[TPCK_PROOF_BYTES])
{
	crypto_auth(proof, text, size, secret);
}

int tpck_proof_check(const uint8_t secret[TPCK_SECRET_BYTES], const void *text, size_t size,
		     const uint8_t proof[TPCK_PROOF_BYTES])
{
	return crypto_auth_verify(proof, text, size, secret);
}

#else

int tpck_secret_load(const char *path, int names, uint8_t secret[TPCK_SECRET_BYTES], struct tpck_error *err)
{
	(void)path;
	(void)names;
	(void)secret;
	return tpck_error_set(err, ENOTSUP, "using libsodium, which this agent was built without");
}

void tpck_nonce(uint8_t kept[TPCK_NONCE_BYTES], uint8_t nonce[TPCK_NONCE_BYTES])
{
	(void)kept;
	(void)nonce;
}

int tpck_nonce_shared(const uint8_t kept[TPCK_NONCE_BYTES], const uint8_t nonce[TPCK_NONCE_BYTES], uint8_t shared[TPCK_NONCE_BYTES])
{
	(void)kept;
	(void)nonce;
	(void)shared;
	return -1;
}

void tpck_proof(const uint8_t secret[TPCK_SECRET_BYTES], const void *text, size_t size, uint8_t proof[TPCK_PROOF_BYTES])
{
	(void)secret;
	(void)text;
	(void)size;
	(void)proof;
}

int tpck_proof_check(const uint8_t secret[TPCK_SECRET_BYTES], const void *text, size_t size,
		     const uint8_t proof[TPCK_PROOF_BYTES])
{
	(void)secret;
	(void)text;
	(void)size;
	(void)proof;
	return -1;
}

#endif
