/* SPDX-License-Identifier: Apache-2.0 */
/* Numbered names: an open hash table, at most half full. */
#include "config.h"

#include "runtime/peer/node_names.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/digest.h"

void tpck_names_free(struct tpck_names *names)
{
	for (size_t i = 0; i < names->count; i++)
		free(names->name[i]);
	free(names->name);
	free(names->table);
	*names = (struct tpck_names){0};
}

static uint32_t *place_of(const struct tpck_names *names, const char *name)
{
	size_t at = tpck_digest64(name, strlen(name), 0);

	for (;; at++) {
		uint32_t *place = &names->table[at & (names->size - 1)];

		if (!*place || strcmp(names->name[*place - 1], name) == 0)
			return place;
	}
}

uint32_t tpck_names_find(const struct tpck_names *names, const char *name)
{
	uint32_t number = names->size ? *place_of(names, name) : 0;

	return number ? number - 1 : TPCK_NO_NAME;
}

static int make_room(struct tpck_names *names)
{
	size_t room = 2 * names->room + 8, size = names->size ? 2 * names->size : 16;
	uint32_t *table;
	char **grown;

	if (names->count == names->room) {
		grown = reallocarray(names->name, room, sizeof(char *));
		if (!grown)
			return -1;
		names->name = grown;
		names->room = room;
	}
	if (2 * (names->count + 1) <= names->size)
		return 0;
	table = calloc(size, sizeof *table);
	if (!table)
		return -1;
	free(names->table);
	names->table = table;
	names->size = size;
	for (size_t i = 0; i < names->count; i++)
		*place_of(names, names->name[i]) = (uint32_t)i + 1;
	return 0;
}

uint32_t tpck_names_add(struct tpck_names *names, const char *name)
{
	uint32_t number = tpck_names_find(names, name);
	char *text;

	if (number != TPCK_NO_NAME)
		return number;
	text = make_room(names) == 0 ? strdup(name) : NULL;
	if (!text)
		return TPCK_NO_NAME;
	number = (uint32_t)names->count;
	names->name[names->count++] = text;
	*place_of(names, text) = number + 1;
	return number;
}
