/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between two agents that nobody between them can change, or read: the keys of one connection, and how the head and the bytes of a
 * message are sealed with them. Over libsodium. What is kept of a connection is its keys only; which number a message has, and which one is to
 * come next, is the caller's (sealed.h). So several threads may seal and open at a time.
 *
 * A message has a number of its connection and direction, from 0 on. Its head is sealed by itself, since it is needed before the bytes have
 * come: struct tpck_seal_front, the head, a tag. Its bytes, if there are any, are sealed with the same number, and a tag is behind them. The
 * front is authenticated with the head, and says how many bytes there are.
 *
 * Each direction has a key of its own, so that nothing can be sent back to whom it came from. Of that key another one is made for each
 * TPCK_SEAL_EPOCH numbers, since AES-256-GCM is not to see too much of one key. Within one of these a pair of key and nonce is used once: the
 * nonce is the number, and whether it is of the head or of the bytes.
 *
 * TPCK_PEER_VERSION must be raised whenever something here changes what is sent.
 */
#ifndef TPCK_RUNTIME_PEER_SEAL_H
#define TPCK_RUNTIME_PEER_SEAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/peer/secret.h"

/* In order: the greater one is the stricter one. */
enum tpck_seal_level { TPCK_SEAL_OFF, TPCK_SEAL_AUTH, TPCK_SEAL_ENCRYPT };

/* Bits of a mask. Both authenticate, too; with TPCK_SEAL_AUTH that is all that they do. */
enum tpck_seal_cipher { TPCK_SEAL_AES256_GCM = 1, TPCK_SEAL_CHACHA20_POLY1305 = 2 };

#define TPCK_SEAL_MAGIC 0x6c616573u /* "seal" */
enum { TPCK_SEAL_TAG = 16, TPCK_SEAL_KEY = 32, TPCK_SEAL_EPOCH = 1 << 14 };
/* No message has this number. */
#define TPCK_SEAL_NUMBERS (1ull << 48)

struct tpck_seal_front {
	uint32_t magic;
	uint32_t head_bytes;
	uint64_t number;
	uint64_t count; /* bytes behind the head, without their tag */
};
/* What sealing adds to a head. */
enum { TPCK_SEAL_HEAD_MORE = sizeof(struct tpck_seal_front) + TPCK_SEAL_TAG };

struct tpck_seal {
	enum tpck_seal_level level;
	enum tpck_seal_cipher cipher;
	uint8_t sends[TPCK_SEAL_KEY], receives[TPCK_SEAL_KEY];
};

/* The ciphers that this processor has, as a mask. */
uint32_t tpck_seal_ciphers(void);
/* The cipher of these that both sides take; 0: there is none. */
uint32_t tpck_seal_choose(uint32_t mine, uint32_t theirs);
/* "AES-256-GCM", and what it does: "encrypted with AES-256-GCM", "authenticated with ...", "neither encrypted nor authenticated". */
const char *tpck_seal_cipher_name(uint32_t cipher);
void tpck_seal_describe(enum tpck_seal_level level, uint32_t cipher, char *text, size_t size);

/* The keys of a connection, of the secret that both sides have, of what only they share of this connection (secret.h), and of all that they
 * have said to each other until now, which the level and the cipher are part of. `asker`: this side has made the connection. */
void tpck_seal_make(struct tpck_seal *seal, enum tpck_seal_level level, uint32_t cipher, const uint8_t secret[TPCK_SECRET_BYTES],
		    const uint8_t shared[TPCK_NONCE_BYTES], const void *said, size_t size, bool asker);

/* Whether a message's head begins as a sealed one's does, and what its front says, which is not to be believed before it is opened. */
bool tpck_seal_is(const void *head, size_t head_bytes, struct tpck_seal_front *front);
/* The sealed head, of head_bytes + TPCK_SEAL_HEAD_MORE bytes. -EOVERFLOW: the numbers are used up. */
int tpck_seal_head(const struct tpck_seal *seal, uint64_t number, const void *head, size_t head_bytes, uint64_t count, void *sealed);
/* The head, of sealed_bytes - TPCK_SEAL_HEAD_MORE bytes. -EBADMSG: it is not what the other side has sealed. */
int tpck_seal_open_head(const struct tpck_seal *seal, const void *sealed, size_t sealed_bytes, void *head);
/* The sealed bytes, of count + TPCK_SEAL_TAG. */
int tpck_seal_bytes(const struct tpck_seal *seal, uint64_t number, const void *bytes, size_t count, void *sealed);
/* The bytes, of which there are `count`. -EBADMSG: as above; what is at `bytes` then is zeros, or what was there. */
int tpck_seal_open_bytes(const struct tpck_seal *seal, uint64_t number, const void *sealed, size_t count, void *bytes);

#endif
