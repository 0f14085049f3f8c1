/* SPDX-License-Identifier: Apache-2.0 */
/* Identifiers in images and texts. */
#include "config.h"

#include "runtime/track/variables.h"

#include <elf.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { NAME_MOST = 96 };

static bool is_letter(char c)
{
	return c == '_' || c == '$' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_identifier(const char *text, size_t length)
{
	if (!length || length > NAME_MOST || (text[0] >= '0' && text[0] <= '9'))
		return false;
	for (size_t i = 0; i < length; i++)
		if (!is_letter(text[i]))
			return false;
	return true;
}

void tpck_variables_read_strings(const char *bytes, size_t size, tpck_variable_visit *visit, void *context)
{
	for (size_t at = 0, length; at < size; at += length + 1) {
		length = strnlen(bytes + at, size - at);
		if (length < size - at && is_identifier(bytes + at, length))
			visit(context, bytes + at);
	}
}

void tpck_variables_read_words(const char *text, tpck_variable_visit *visit, void *context)
{
	char word[NAME_MOST + 1];

	while (*text) {
		size_t length = 0;

		while (is_letter(text[length]))
			length++;
		if (is_identifier(text, length)) {
			memcpy(word, text, length);
			word[length] = '\0';
			visit(context, word);
		}
		text += length ? length : 1;
	}
}

void tpck_variables_read_image(const void *image, tpck_variable_visit *visit, void *context)
{
	const char *text = image;
	Elf64_Ehdr head;

	if (strncmp(text, ELFMAG, SELFMAG) == 0) {
		memcpy(&head, image, sizeof head);
		tpck_variables_read_strings(text, head.e_shoff + (uint64_t)head.e_shnum * head.e_shentsize, visit, context);
	} else if (text[0] == '/' || text[0] == '.' || text[0] == '\n') {
		tpck_variables_read_words(text, visit, context);
	}
}
