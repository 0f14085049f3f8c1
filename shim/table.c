/* SPDX-License-Identifier: Apache-2.0 */
/* Rows by symbol and by real function. */
#include "config.h"

#include "shim/table.h"

#include <stdatomic.h>
#include <string.h>

#include "runtime/base/layout.h"

static const struct tpck_hook_row *_Atomic table;
static const struct tpck_hook_row *(*make_rows)(size_t *count);
static size_t rows;

TPCK_AT_START void tpck_table_set(const struct tpck_hook_row *(*make)(size_t *count))
{
	make_rows = make;
}

const struct tpck_hook_row *tpck_table_rows(size_t *count)
{
	const struct tpck_hook_row *known = atomic_load_explicit(&table, memory_order_acquire);

	/* Who comes at the same time makes the same. */
	if (!known && make_rows) {
		known = make_rows(&rows);
		atomic_store_explicit(&table, known, memory_order_release);
	}
	*count = known ? rows : 0;
	return known;
}

const struct tpck_hook_row *tpck_table_find(const char *symbol)
{
	size_t count;
	const struct tpck_hook_row *row = tpck_table_rows(&count);

	for (size_t i = 0; i < count; i++)
		if (strcmp(row[i].symbol, symbol) == 0)
			return &row[i];
	return NULL;
}

const struct tpck_hook_row *tpck_table_find_real(const void *real)
{
	size_t count;
	const struct tpck_hook_row *row = tpck_table_rows(&count);

	for (size_t i = 0; real && i < count; i++)
		if (*row[i].real == real)
			return &row[i];
	return NULL;
}
