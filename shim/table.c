/* SPDX-License-Identifier: Apache-2.0 */
/* Rows by symbol and by real function. */
#include "config.h"

#include "shim/table.h"

#include <string.h>

static const struct tpck_hook_row *table;
static size_t rows;

void tpck_table_set(const struct tpck_hook_row *with, size_t count)
{
	table = with;
	rows = count;
}

const struct tpck_hook_row *tpck_table_rows(size_t *count)
{
	*count = rows;
	return table;
}

const struct tpck_hook_row *tpck_table_find(const char *symbol)
{
	for (size_t i = 0; i < rows; i++)
		if (strcmp(table[i].symbol, symbol) == 0)
			return &table[i];
	return NULL;
}

const struct tpck_hook_row *tpck_table_find_real(const void *real)
{
	for (size_t i = 0; real && i < rows; i++)
		if (*table[i].real == real)
			return &table[i];
	return NULL;
}
