/* SPDX-License-Identifier: Apache-2.0 */
/* Texts put together piece by piece. */
#include "config.h"

#include "runtime/base/text.h"

#include <string.h>

#include "runtime/base/layout.h"

TPCK_AT_START struct tpck_text tpck_text_in(char *at, size_t size)
{
	*at = '\0';
	return (struct tpck_text){.at = at, .size = size};
}

TPCK_AT_START void tpck_text_bytes(struct tpck_text *text, const char *bytes, size_t count)
{
	size_t room = text->size - 1 - text->used;

	if (count > room) {
		text->cut = true;
		count = room;
	}
	memcpy(text->at + text->used, bytes, count);
	text->used += count;
	text->at[text->used] = '\0';
}

TPCK_AT_START void tpck_text_add(struct tpck_text *text, const char *part)
{
	tpck_text_bytes(text, part, strlen(part));
}

TPCK_AT_START void tpck_text_number(struct tpck_text *text, uint64_t value)
{
	char digits[20], *first = digits + sizeof digits;

	do
		*--first = (char)('0' + value % 10);
	while (value /= 10);
	tpck_text_bytes(text, first, (size_t)(digits + sizeof digits - first));
}

TPCK_AT_START void tpck_text_hexadecimal(struct tpck_text *text, uint64_t value, unsigned digits)
{
	char shown[16];

	for (unsigned i = digits; i-- > 0; value >>= 4)
		shown[i] = "0123456789abcdef"[value & 15];
	tpck_text_bytes(text, shown, digits);
}
