/* SPDX-License-Identifier: Apache-2.0 */
/* The table of hooked driver calls, made from the .def files. */
#include "config.h"

#include "hooks/cuda_driver.h"

#include <stddef.h>

#include "hooks/hooks.h"
#include "shim/table.h"

struct tpck_cuda tpck_cuda;

static const struct tpck_hook_row rows[] = {
#define TPCK_HOOK(symbol, base, since, ret, params, args) \
	{#symbol, base, since, (void *)tpck_hook_##symbol, (void **)&tpck_cuda.symbol},
#include "hooks/cuda_all.def"
#undef TPCK_HOOK
};

void tpck_hooks_cuda(void)
{
	tpck_table_set(rows, sizeof rows / sizeof *rows);
}

int tpck_cuda_bind(void)
{
	int result = tpck_driver_bind();

	if (result)
		return result;
#define TPCK_USE(symbol) \
	if (!tpck_cuda.symbol) \
		tpck_cuda.symbol = (__typeof__(tpck_cuda.symbol))tpck_driver_symbol(#symbol);
#include "hooks/cuda_used.def"
#undef TPCK_USE
	return 0;
}
