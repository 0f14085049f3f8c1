/* SPDX-License-Identifier: Apache-2.0 */
/* What is sealed for another agent: each of its bytes counts, it is good for one connection, one direction and one number, and which cipher is
 * used is what both have. */
#include "config.h"

#include <errno.h>
#ifdef HAVE_SODIUM
#include <sodium.h>
#endif

#include "runtime/peer/seal.h"
#include "tests/unit/store_tap.h"

static struct {
	char text[120];
} err;

enum { HEAD = 88, BYTES = 1000, SEALED_HEAD = HEAD + TPCK_SEAL_HEAD_MORE, SEALED_BYTES = BYTES + TPCK_SEAL_TAG };
static const uint8_t secret[TPCK_SECRET_BYTES] = "a secret of one job", other_secret[TPCK_SECRET_BYTES] = "a secret of another";
static const char said[] = "what both have said to each other";
static uint8_t text[1 << 20];

struct pair {
	struct tpck_seal asker, answerer;
};

static struct pair pair_of(enum tpck_seal_level level, uint32_t cipher)
{
	uint8_t kept[2][TPCK_NONCE_BYTES], nonce[2][TPCK_NONCE_BYTES], shared[2][TPCK_NONCE_BYTES];
	struct pair pair;

	for (int i = 0; i < 2; i++)
		tpck_nonce(kept[i], nonce[i]);
	for (int i = 0; i < 2; i++)
		if (tpck_nonce_shared(kept[i], nonce[1 - i], shared[i]))
			snprintf(err.text, sizeof err.text, "nonces that share nothing");
	if (memcmp(shared[0], shared[1], sizeof shared[0]) != 0)
		snprintf(err.text, sizeof err.text, "each side shares something else");
	tpck_seal_make(&pair.asker, level, cipher, secret, shared[0], said, sizeof said, true);
	tpck_seal_make(&pair.answerer, level, cipher, secret, shared[1], said, sizeof said, false);
	return pair;
}

static bool opens(const struct tpck_seal *by, uint64_t number, const uint8_t *head, const uint8_t *bytes, size_t count)
{
	uint8_t opened[HEAD], *there = malloc(count + 1);
	bool good = tpck_seal_open_head(by, head, SEALED_HEAD, opened) == 0 && memcmp(opened, text, HEAD) == 0 &&
		    tpck_seal_open_bytes(by, number, bytes, count, there) == 0 && memcmp(there, text, count) == 0;

	free(there);
	return good;
}

static bool holds(const uint8_t *where, size_t size, const uint8_t *what, size_t length)
{
	return memmem(where, size, what, length) != NULL;
}

/* Of every bit of this many bytes, one at a time: how many changes are not noticed. */
static unsigned unnoticed(const struct tpck_seal *by, uint64_t number, uint8_t *sealed, size_t size, bool head)
{
	uint8_t there[SEALED_BYTES];
	unsigned count = 0;

	for (size_t i = 0; i < size; i++) {
		for (unsigned bit = 0; bit < 8; bit++) {
			memset(there, 0, sizeof there);
			sealed[i] ^= (uint8_t)(1u << bit);
			count += (head ? tpck_seal_open_head(by, sealed, size, there)
				       : tpck_seal_open_bytes(by, number, sealed, size - TPCK_SEAL_TAG, there)) != -EBADMSG;
			sealed[i] ^= (uint8_t)(1u << bit);
			/* Nothing that is not verified is given out. */
			count += holds(there, sizeof there, text, 16);
		}
	}
	return count;
}

static void check_cipher(enum tpck_seal_level level, uint32_t cipher)
{
	static const size_t counts[] = {1, 15, 16, 17, 1000, 65536, sizeof text};
	static uint8_t sealed[sizeof text + TPCK_SEAL_TAG];
	uint8_t head[SEALED_HEAD], again[SEALED_HEAD], bytes[SEALED_BYTES], other[SEALED_BYTES], there[SEALED_BYTES];
	struct pair pair = pair_of(level, cipher), stranger = pair_of(level, cipher);
	struct tpck_seal_front front;
	char name[80], what[200];
	bool good = true;
	unsigned missed = 0;

	tpck_seal_describe(level, cipher, name, sizeof name);
#define CHECK(condition, words) \
	do { \
		snprintf(what, sizeof what, "%s: %s", name, words); \
		ok(condition, what); \
	} while (0)
	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
		good = good && tpck_seal_head(&pair.asker, i, text, HEAD, counts[i], head) == 0 &&
		       tpck_seal_bytes(&pair.asker, i, text, counts[i], sealed) == 0 && opens(&pair.answerer, i, head, sealed, counts[i]);
		good = good && tpck_seal_head(&pair.answerer, i, text, HEAD, counts[i], head) == 0 &&
		       tpck_seal_bytes(&pair.answerer, i, text, counts[i], sealed) == 0 && opens(&pair.asker, i, head, sealed, counts[i]);
	}
	CHECK(good, "what one side seals the other one opens");
	(void)tpck_seal_head(&pair.asker, 7, text, HEAD, BYTES, head);
	(void)tpck_seal_bytes(&pair.asker, 7, text, BYTES, bytes);
	CHECK(tpck_seal_is(head, sizeof head, &front) && front.number == 7 && front.count == BYTES, "its front says its number and its length");
	CHECK(holds(head, sizeof head, text, 16) == (level == TPCK_SEAL_AUTH) && holds(bytes, sizeof bytes, text, 16) == (level == TPCK_SEAL_AUTH),
	      level == TPCK_SEAL_AUTH ? "it can be read" : "it cannot be read");
	CHECK(unnoticed(&pair.answerer, 7, head, sizeof head, true) == 0, "each bit of a head counts");
	CHECK(unnoticed(&pair.answerer, 7, bytes, sizeof bytes, false) == 0, "each bit of the bytes counts");
	for (size_t size = 0; size < sizeof head; size++)
		missed += tpck_seal_open_head(&pair.answerer, head, size, there) != -EBADMSG;
	for (size_t count = 0; count < BYTES; count++)
		missed += tpck_seal_open_bytes(&pair.answerer, 7, bytes, count, there) != -EBADMSG;
	CHECK(missed == 0, "so does each that is cut off");
	(void)tpck_seal_bytes(&pair.asker, 8, text, BYTES, other);
	CHECK(tpck_seal_open_bytes(&pair.answerer, 7, other, BYTES, there) && tpck_seal_open_bytes(&pair.answerer, 8, bytes, BYTES, there) &&
		      tpck_seal_open_bytes(&pair.answerer, 7 + TPCK_SEAL_EPOCH, bytes, BYTES, there),
	      "bytes of one number are not another one's");
	(void)tpck_seal_bytes(&pair.asker, 7, text, HEAD, other);
	memcpy(again, head, sizeof front);
	memcpy(again + sizeof front, other, HEAD + TPCK_SEAL_TAG);
	CHECK(tpck_seal_open_head(&pair.answerer, again, sizeof again, there) == -EBADMSG, "nor are they a head");
	CHECK(level == TPCK_SEAL_AUTH || memcmp(head + sizeof front, other, HEAD) != 0, "what is in both is not the same in both");
	CHECK(tpck_seal_open_head(&pair.asker, head, sizeof head, there) && tpck_seal_open_bytes(&pair.asker, 7, bytes, BYTES, there),
	      "who has sent it does not take it back");
	CHECK(!opens(&stranger.answerer, 7, head, bytes, BYTES), "it is good for no other connection");
	CHECK(tpck_seal_head(&pair.asker, TPCK_SEAL_NUMBERS - 1, text, HEAD, 0, head) == 0 &&
		      tpck_seal_open_head(&pair.answerer, head, sizeof head, there) == 0 &&
		      tpck_seal_head(&pair.asker, TPCK_SEAL_NUMBERS, text, HEAD, 0, head) == -EOVERFLOW &&
		      tpck_seal_bytes(&pair.asker, TPCK_SEAL_NUMBERS, text, BYTES, bytes) == -EOVERFLOW,
	      "behind the last number nothing is sealed");
}

/* As another program would open it: the key of so many numbers, and the nonce. */
static void check_epochs(void)
{
#ifdef HAVE_SODIUM
	struct pair pair = pair_of(TPCK_SEAL_ENCRYPT, TPCK_SEAL_CHACHA20_POLY1305);
	uint8_t bytes[SEALED_BYTES], there[BYTES], key[TPCK_SEAL_KEY], nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];
	bool good = true;

	for (uint64_t epoch = 0; epoch < 3; epoch++) {
		uint64_t number = epoch * TPCK_SEAL_EPOCH + 0x123;

		(void)tpck_seal_bytes(&pair.asker, number, text, BYTES, bytes);
		crypto_kdf_derive_from_key(key, sizeof key, epoch, "tpckseal", pair.asker.sends);
		memset(nonce, 0, sizeof nonce);
		nonce[0] = 1;
		for (int i = 0; i < 8; i++)
			nonce[4 + i] = (uint8_t)(number >> (8 * i));
		good = good && crypto_aead_chacha20poly1305_ietf_decrypt_detached(there, NULL, bytes, BYTES, bytes + BYTES, NULL, 0, nonce, key) == 0 &&
		       memcmp(there, text, BYTES) == 0;
	}
	ok(good, "keys: another one for each so many numbers");
#endif
}

/* Who has not the same in common has other keys. */
static void check_keys(void)
{
	static const uint8_t shared[TPCK_NONCE_BYTES] = "shared", other_shared[TPCK_NONCE_BYTES] = "other";
	struct tpck_seal one, other[4];
	uint8_t head[SEALED_HEAD], bytes[SEALED_BYTES], zero[TPCK_NONCE_BYTES] = {0}, kept[TPCK_NONCE_BYTES], nonce[TPCK_NONCE_BYTES], out[TPCK_NONCE_BYTES];
	bool good = true;

	tpck_seal_make(&one, TPCK_SEAL_ENCRYPT, TPCK_SEAL_CHACHA20_POLY1305, secret, shared, said, sizeof said, true);
	tpck_seal_make(&other[0], TPCK_SEAL_ENCRYPT, TPCK_SEAL_CHACHA20_POLY1305, secret, shared, said, sizeof said, false);
	(void)tpck_seal_head(&one, 0, text, HEAD, BYTES, head);
	(void)tpck_seal_bytes(&one, 0, text, BYTES, bytes);
	ok(opens(&other[0], 0, head, bytes, BYTES), "keys: of the same secret, shared and said");
	tpck_seal_make(&other[0], TPCK_SEAL_ENCRYPT, TPCK_SEAL_CHACHA20_POLY1305, other_secret, shared, said, sizeof said, false);
	tpck_seal_make(&other[1], TPCK_SEAL_ENCRYPT, TPCK_SEAL_CHACHA20_POLY1305, secret, other_shared, said, sizeof said, false);
	tpck_seal_make(&other[2], TPCK_SEAL_ENCRYPT, TPCK_SEAL_CHACHA20_POLY1305, secret, shared, said, sizeof said - 1, false);
	tpck_seal_make(&other[3], TPCK_SEAL_ENCRYPT, TPCK_SEAL_CHACHA20_POLY1305, secret, shared, said, sizeof said, true);
	for (int i = 0; i < 4; i++)
		good = good && !opens(&other[i], 0, head, bytes, BYTES);
	ok(good, "keys: not of another secret, of other nonces, of other greetings, nor of the same side");
	tpck_nonce(kept, nonce);
	ok(tpck_nonce_shared(kept, zero, out) != 0, "keys: a nonce that gives everybody the same is refused");
}

static void check_choice(void)
{
	uint32_t both = TPCK_SEAL_AES256_GCM | TPCK_SEAL_CHACHA20_POLY1305;

	ok(tpck_seal_choose(both, both) == TPCK_SEAL_AES256_GCM && tpck_seal_choose(both, TPCK_SEAL_CHACHA20_POLY1305) == TPCK_SEAL_CHACHA20_POLY1305 &&
		   tpck_seal_choose(TPCK_SEAL_CHACHA20_POLY1305, both) == TPCK_SEAL_CHACHA20_POLY1305 &&
		   tpck_seal_choose(TPCK_SEAL_AES256_GCM, TPCK_SEAL_CHACHA20_POLY1305) == 0 && tpck_seal_choose(both, 0) == 0,
	   "AES-256-GCM where both have it, else ChaCha20-Poly1305 where both have that");
	ok(tpck_seal_ciphers() & TPCK_SEAL_CHACHA20_POLY1305, "every processor has ChaCha20-Poly1305");
}

int main(void)
{
	if (!tpck_seal_ciphers()) {
		printf("1..0 # SKIP built without libsodium\n");
		return 77;
	}
	for (size_t i = 0; i < sizeof text; i++)
		text[i] = (uint8_t)(i * 2654435761u >> 13);
	for (uint32_t cipher = TPCK_SEAL_AES256_GCM; cipher <= TPCK_SEAL_CHACHA20_POLY1305; cipher <<= 1)
		if (tpck_seal_ciphers() & cipher) {
			check_cipher(TPCK_SEAL_AUTH, cipher);
			check_cipher(TPCK_SEAL_ENCRYPT, cipher);
		}
	check_epochs();
	check_keys();
	check_choice();
	return tap_done();
}
