/* SPDX-License-Identifier: Apache-2.0 */
/* Who may join: both sides of a connection prove that they know the job's secret, without saying it. */
#ifndef TPCK_RUNTIME_PEER_SECRET_H
#define TPCK_RUNTIME_PEER_SECRET_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

enum { TPCK_SECRET_BYTES = 32, TPCK_NONCE_BYTES = 32, TPCK_PROOF_BYTES = 32 };

/* Reads the secret of a file that is its user's alone. `names`: so many names of its folder are below one of ours (tpck_door_folder()), and it is
 * made where there is none, of several that make it at once by one, whose all have; -1: it is what the user names, and only read. */
int tpck_secret_load(const char *path, int names, uint8_t secret[TPCK_SECRET_BYTES], struct tpck_error *err);
/* A nonce of one connection, and what its maker keeps of it: the halves of a pair of keys (X25519). */
void tpck_nonce(uint8_t kept[TPCK_NONCE_BYTES], uint8_t nonce[TPCK_NONCE_BYTES]);
/* What both sides, and nobody else, get of what each kept and the other one's nonce: who gets hold of the secret later cannot open what was
 * recorded. -1: it is no nonce that tpck_nonce() has made. */
int tpck_nonce_shared(const uint8_t kept[TPCK_NONCE_BYTES], const uint8_t nonce[TPCK_NONCE_BYTES], uint8_t shared[TPCK_NONCE_BYTES]);
/* HMAC-SHA-512-256 of a text by the secret. */
void tpck_proof(const uint8_t secret[TPCK_SECRET_BYTES], const void *text, size_t size, uint8_t proof[TPCK_PROOF_BYTES]);
/* 0: it is that; takes the same time whatever differs. */
int tpck_proof_check(const uint8_t secret[TPCK_SECRET_BYTES], const void *text, size_t size,
		     const uint8_t proof[TPCK_PROOF_BYTES]);

#endif
