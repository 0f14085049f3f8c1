/* SPDX-License-Identifier: Apache-2.0 */
/* The user's key for digests that nobody else is to test guesses by, and those digests. */
#ifndef TPCK_RUNTIME_BASE_KEY_H
#define TPCK_RUNTIME_BASE_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TPCK_KEY_BYTES = 16 };
#define TPCK_KEY_FILE ".key" /* in the user's state folder, so many random bytes, mode 0600; never in a job's folder */

/* Reads the key of a state folder; where there is none one is made, of several that make it at once by one, whose all have. False: there
 * can be none, as in a folder that is not the user's alone, and the key is random: a digest by it equals no other process's. errno stays. */
bool tpck_key_of(const char *state, uint8_t key[TPCK_KEY_BYTES]);
/* SipHash-2-4 of the bytes (Aumasson and Bernstein, 2012, https://www.aumasson.jp/siphash/siphash.pdf): who does not have the key learns
 * nothing by it but that two inputs are the same. */
uint64_t tpck_key_digest(const uint8_t key[TPCK_KEY_BYTES], const void *bytes, size_t size);

#endif
