/* SPDX-License-Identifier: Apache-2.0 */
/* Texts put together piece by piece, for the start of a program: the C library's printf() costs a short program that does not use
 * it five more pages. */
#ifndef TPCK_RUNTIME_BASE_TEXT_H
#define TPCK_RUNTIME_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Always ends with a NUL within `size`, which is not 0; `used` bytes come before it. */
struct tpck_text {
	char *at;
	size_t size, used;
	bool cut; /* it did not all fit */
};

struct tpck_text tpck_text_in(char *at, size_t size);
void tpck_text_add(struct tpck_text *text, const char *part);
void tpck_text_bytes(struct tpck_text *text, const char *bytes, size_t count);
/* Decimal; hexadecimal with so many digits, 16 at most. */
void tpck_text_number(struct tpck_text *text, uint64_t value);
void tpck_text_hexadecimal(struct tpck_text *text, uint64_t value, unsigned digits);

#endif
