/* SPDX-License-Identifier: Apache-2.0 */
/* The part of an identity text that does not depend on the user's key. */
#include "config.h"

#include "runtime/base/identity_names.h"

#include <stddef.h>
#include <string.h>

#include "runtime/base/digest.h"
#include "runtime/base/layout.h"

#define VARIABLE "environment "

/* Of a variable its name, of the line about those behind the list's end their number. */
static TPCK_AT_START size_t compared(const char *line, size_t length)
{
	const size_t begin = sizeof VARIABLE - 1;

	if (length >= sizeof TPCK_IDENTITY_KEY_LINE - 1 && memcmp(line, TPCK_IDENTITY_KEY_LINE, sizeof TPCK_IDENTITY_KEY_LINE - 1) == 0)
		return 0;
	if (length < begin || memcmp(line, VARIABLE, begin) != 0)
		return length;
	for (size_t i = begin; i < length; i++)
		if (line[i] == (line[begin] == '(' ? ',' : '='))
			return i;
	return length;
}

TPCK_AT_START uint64_t tpck_identity_names(const char *text)
{
	uint64_t digest = 0;

	while (*text) {
		size_t length = strcspn(text, "\n"), part = compared(text, length);

		if (part)
			digest = tpck_digest64(text, part, digest + 1);
		text += length + (text[length] == '\n');
	}
	return digest;
}
