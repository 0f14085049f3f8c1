/* SPDX-License-Identifier: Apache-2.0 */
/* Sealing of messages, over libsodium. */
#include "config.h"

#include "runtime/peer/seal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *tpck_seal_cipher_name(uint32_t cipher)
{
	return cipher == TPCK_SEAL_AES256_GCM ? "AES-256-GCM" : cipher == TPCK_SEAL_CHACHA20_POLY1305 ? "ChaCha20-Poly1305" : "no cipher";
}

void tpck_seal_describe(enum tpck_seal_level level, uint32_t cipher, char *text, size_t size)
{
	if (level == TPCK_SEAL_OFF)
		snprintf(text, size, "neither encrypted nor authenticated");
	else
		snprintf(text, size, "%s with %s", level == TPCK_SEAL_ENCRYPT ? "encrypted" : "authenticated", tpck_seal_cipher_name(cipher));
}

uint32_t tpck_seal_choose(uint32_t mine, uint32_t theirs)
{
	uint32_t both = mine & theirs;

	return both & TPCK_SEAL_AES256_GCM ? TPCK_SEAL_AES256_GCM : both & TPCK_SEAL_CHACHA20_POLY1305;
}

bool tpck_seal_is(const void *head, size_t head_bytes, struct tpck_seal_front *front)
{
	if (head_bytes < sizeof *front)
		return false;
	memcpy(front, head, sizeof *front);
	return front->magic == TPCK_SEAL_MAGIC;
}

#ifdef HAVE_SODIUM

#include <sodium.h>

_Static_assert(TPCK_SEAL_KEY == crypto_aead_aes256gcm_KEYBYTES && TPCK_SEAL_KEY == crypto_aead_chacha20poly1305_ietf_KEYBYTES &&
		       TPCK_SEAL_TAG == crypto_aead_aes256gcm_ABYTES && TPCK_SEAL_TAG == crypto_aead_chacha20poly1305_ietf_ABYTES &&
		       TPCK_SEAL_KEY == crypto_kdf_KEYBYTES && crypto_aead_aes256gcm_NPUBBYTES == crypto_aead_chacha20poly1305_ietf_NPUBBYTES,
	       "sizes of libsodium");

enum { NONCE = crypto_aead_aes256gcm_NPUBBYTES, HEAD_NONCE = 0, BYTES_NONCE = 1, HEAD_MOST = 1024 };

/* libsodium ends the process where AES-256-GCM is asked for more than this under one nonce. */
#define COUNT_MOST (1ull << 32)

uint32_t tpck_seal_ciphers(void)
{
	return TPCK_SEAL_CHACHA20_POLY1305 | (sodium_init() >= 0 && crypto_aead_aes256gcm_is_available() ? TPCK_SEAL_AES256_GCM : 0);
}

void tpck_seal_make(struct tpck_seal *seal, enum tpck_seal_level level, uint32_t cipher, const uint8_t secret[TPCK_SECRET_BYTES],
		    const uint8_t shared[TPCK_NONCE_BYTES], const void *said, size_t size, bool asker)
{
	static const unsigned char use[] = "transpckpt peer keys";
	crypto_generichash_state state;
	uint8_t key[crypto_kdf_KEYBYTES];

	crypto_generichash_init(&state, secret, TPCK_SECRET_BYTES, sizeof key);
	crypto_generichash_update(&state, use, sizeof use);
	crypto_generichash_update(&state, shared, TPCK_NONCE_BYTES);
	crypto_generichash_update(&state, said, size);
	crypto_generichash_final(&state, key, sizeof key);
	seal->level = level;
	seal->cipher = cipher;
	crypto_kdf_derive_from_key(asker ? seal->sends : seal->receives, TPCK_SEAL_KEY, 1, "tpckways", key);
	crypto_kdf_derive_from_key(asker ? seal->receives : seal->sends, TPCK_SEAL_KEY, 2, "tpckways", key);
	sodium_memzero(key, sizeof key);
	sodium_memzero(&state, sizeof state);
}

static void key_and_nonce(const uint8_t direction[TPCK_SEAL_KEY], uint64_t number, uint8_t what, uint8_t key[TPCK_SEAL_KEY], uint8_t nonce[NONCE])
{
	crypto_kdf_derive_from_key(key, TPCK_SEAL_KEY, number / TPCK_SEAL_EPOCH, "tpckseal", direction);
	memset(nonce, 0, NONCE);
	nonce[0] = what;
	for (unsigned i = 0; i < sizeof number; i++)
		nonce[4 + i] = (uint8_t)(number >> (8 * i));
}

/* Both ciphers have one shape. With TPCK_SEAL_AUTH there is no text, and all is what goes with it. */
static void lock(const struct tpck_seal *seal, uint64_t number, uint8_t what, const void *with, size_t with_bytes, const void *text,
		 size_t count, void *locked, void *tag)
{
	uint8_t key[TPCK_SEAL_KEY], nonce[NONCE];

	key_and_nonce(seal->sends, number, what, key, nonce);
	if (seal->cipher == TPCK_SEAL_AES256_GCM)
		crypto_aead_aes256gcm_encrypt_detached(locked, tag, NULL, text, count, with, with_bytes, NULL, nonce, key);
	else
		crypto_aead_chacha20poly1305_ietf_encrypt_detached(locked, tag, NULL, text, count, with, with_bytes, NULL, nonce, key);
	sodium_memzero(key, sizeof key);
}

static int unlock(const struct tpck_seal *seal, uint64_t number, uint8_t what, const void *with, size_t with_bytes, const void *locked,
		  size_t count, const void *tag, void *text)
{
	uint8_t key[TPCK_SEAL_KEY], nonce[NONCE];
	int rc;

	key_and_nonce(seal->receives, number, what, key, nonce);
	if (seal->cipher == TPCK_SEAL_AES256_GCM)
		rc = crypto_aead_aes256gcm_decrypt_detached(text, NULL, locked, count, tag, with, with_bytes, nonce, key);
	else
		rc = crypto_aead_chacha20poly1305_ietf_decrypt_detached(text, NULL, locked, count, tag, with, with_bytes, nonce, key);
	sodium_memzero(key, sizeof key);
	return rc ? -EBADMSG : 0;
}

int tpck_seal_head(const struct tpck_seal *seal, uint64_t number, const void *head, size_t head_bytes, uint64_t count, void *sealed)
{
	struct tpck_seal_front front = {TPCK_SEAL_MAGIC, (uint32_t)head_bytes, number, count};
	uint8_t *at = (uint8_t *)sealed + sizeof front;

	if (number >= TPCK_SEAL_NUMBERS)
		return -EOVERFLOW;
	if (head_bytes > HEAD_MOST || count >= COUNT_MOST)
		return -EMSGSIZE;
	memcpy(sealed, &front, sizeof front);
	if (seal->level == TPCK_SEAL_ENCRYPT) {
		lock(seal, number, HEAD_NONCE, &front, sizeof front, head, head_bytes, at, at + head_bytes);
		return 0;
	}
	memcpy(at, head, head_bytes);
	lock(seal, number, HEAD_NONCE, sealed, sizeof front + head_bytes, NULL, 0, at, at + head_bytes);
	return 0;
}

int tpck_seal_open_head(const struct tpck_seal *seal, const void *sealed, size_t sealed_bytes, void *head)
{
	struct tpck_seal_front front;
	const uint8_t *at = (const uint8_t *)sealed + sizeof front;
	int rc;

	if (!tpck_seal_is(sealed, sealed_bytes, &front) || front.head_bytes > HEAD_MOST ||
	    sealed_bytes != (size_t)front.head_bytes + TPCK_SEAL_HEAD_MORE || front.number >= TPCK_SEAL_NUMBERS || front.count >= COUNT_MOST)
		return -EBADMSG;
	if (seal->level == TPCK_SEAL_ENCRYPT)
		return unlock(seal, front.number, HEAD_NONCE, &front, sizeof front, at, front.head_bytes, at + front.head_bytes, head);
	rc = unlock(seal, front.number, HEAD_NONCE, sealed, sizeof front + front.head_bytes, at, 0, at + front.head_bytes, NULL);
	if (!rc)
		memcpy(head, at, front.head_bytes);
	return rc;
}

int tpck_seal_bytes(const struct tpck_seal *seal, uint64_t number, const void *bytes, size_t count, void *sealed)
{
	uint8_t *tag = (uint8_t *)sealed + count;

	if (number >= TPCK_SEAL_NUMBERS)
		return -EOVERFLOW;
	if (count >= COUNT_MOST)
		return -EMSGSIZE;
	if (seal->level == TPCK_SEAL_ENCRYPT) {
		lock(seal, number, BYTES_NONCE, NULL, 0, bytes, count, sealed, tag);
		return 0;
	}
	/* What is sent is what the tag is of, though somebody writes to the bytes meanwhile. */
	memcpy(sealed, bytes, count);
	lock(seal, number, BYTES_NONCE, sealed, count, NULL, 0, sealed, tag);
	return 0;
}

int tpck_seal_open_bytes(const struct tpck_seal *seal, uint64_t number, const void *sealed, size_t count, void *bytes)
{
	const uint8_t *tag = (const uint8_t *)sealed + count;
	int rc;

	if (number >= TPCK_SEAL_NUMBERS || count >= COUNT_MOST)
		return -EBADMSG;
	if (seal->level == TPCK_SEAL_ENCRYPT)
		return unlock(seal, number, BYTES_NONCE, NULL, 0, sealed, count, tag, bytes);
	rc = unlock(seal, number, BYTES_NONCE, sealed, count, sealed, 0, tag, NULL);
	if (!rc)
		memcpy(bytes, sealed, count);
	return rc;
}

#else

/* Without libsodium there is no secret, and so nobody to speak with. */
uint32_t tpck_seal_ciphers(void)
{
	return 0;
}

void tpck_seal_make(struct tpck_seal *seal, enum tpck_seal_level level, uint32_t cipher, const uint8_t secret[TPCK_SECRET_BYTES],
		    const uint8_t shared[TPCK_NONCE_BYTES], const void *said, size_t size, bool asker)
{
	(void)secret;
	(void)shared;
	(void)said;
	(void)size;
	(void)asker;
	*seal = (struct tpck_seal){.level = level, .cipher = cipher};
}

int tpck_seal_head(const struct tpck_seal *seal, uint64_t number, const void *head, size_t head_bytes, uint64_t count, void *sealed)
{
	(void)seal;
	(void)number;
	(void)head;
	(void)head_bytes;
	(void)count;
	(void)sealed;
	return -ENOTSUP;
}

int tpck_seal_open_head(const struct tpck_seal *seal, const void *sealed, size_t sealed_bytes, void *head)
{
	(void)seal;
	(void)sealed;
	(void)sealed_bytes;
	(void)head;
	return -EBADMSG;
}

int tpck_seal_bytes(const struct tpck_seal *seal, uint64_t number, const void *bytes, size_t count, void *sealed)
{
	(void)seal;
	(void)number;
	(void)bytes;
	(void)count;
	(void)sealed;
	return -ENOTSUP;
}

int tpck_seal_open_bytes(const struct tpck_seal *seal, uint64_t number, const void *sealed, size_t count, void *bytes)
{
	(void)seal;
	(void)number;
	(void)sealed;
	(void)count;
	(void)bytes;
	return -EBADMSG;
}

#endif
