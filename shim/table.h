/* SPDX-License-Identifier: Apache-2.0 */
/* A hook as a row: the symbol it stands for, our function, and where the real one is remembered.
 * The shim knows rows, not what is in them. */
#ifndef TPCK_SHIM_TABLE_H
#define TPCK_SHIM_TABLE_H

#include <stddef.h>

struct tpck_hook_row {
	const char *symbol;
	const char *base;   /* the name under which the vendor's look-up function knows it */
	int since;          /* version from which base means this symbol */
	void *hook;
	void **real;        /* NULL until bound */
};

/* Hands the rows to the doors: they are asked for when one is looked for, maybe by several threads at a time, and stay. Once,
 * before any door opens. */
void tpck_table_set(const struct tpck_hook_row *(*make)(size_t *count));
const struct tpck_hook_row *tpck_table_rows(size_t *count);
/* The row of a symbol, or NULL. */
const struct tpck_hook_row *tpck_table_find(const char *symbol);
/* The row whose real function this is, or NULL. */
const struct tpck_hook_row *tpck_table_find_real(const void *real);

#endif
